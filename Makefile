# make demo    set up, then run the main job on data that ships with scikit-learn
# make test    set up, then lint, type-check and test
# make check   everything else that must hold: full examples, documentation, wheel in a clean environment, test-slow,
#               test-several, test-browser, test-sparse
# make docs    build the documentation; its first page is docs/_build/html/index.html
# make test-slow   tests that take long
# make test-several   processes that torchrun starts, one of which is killed
# make test-browser   the labelling page in Chromium, with a server that is killed
# make test-sparse   build torch-scatter and torch-sparse (a quarter of an hour, once) and run what needs them

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
READY := $(VENV)/.ready
SPARSE := $(VENV)/sparse

.PHONY: setup demo test test-slow test-several test-browser test-sparse lint check docs examples wheel clean

setup: $(READY)

$(READY): setup.py constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --constraint constraints.txt torch
	$(PIP) install --constraint constraints.txt --editable ".[test]"
	touch $(READY)

demo: setup
	$(BIN)/python examples/digits_offline.py

test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist worksteal

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy

# Beside the environment, not in it: PyG behaves differently where these packages are installed.
$(SPARSE)/.ready: $(READY)
	$(PIP) install ninja wheel
	PATH="$(CURDIR)/$(BIN):$$PATH" $(PIP) install --no-build-isolation --no-deps --upgrade --target $(SPARSE) torch-scatter torch-sparse
	touch $(SPARSE)/.ready

test-sparse: $(SPARSE)/.ready
	PYTHONPATH=$(SPARSE) $(BIN)/python -m pytest tests/graph/test_adjacency_types.py

test-slow: setup
	GCKM_SLOW=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist worksteal -m slow

test-several: setup
	GCKM_SLOW=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/several/test_restart.py tests/several/test_larger.py

test-browser: setup
	GCKM_SLOW=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/label

check: examples docs wheel test-slow test-several test-browser test-sparse

docs: setup
	$(PIP) install --constraint constraints.txt --editable ".[docs]"
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html

examples: setup
	for script in examples/*.py; do echo "== $$script"; $(BIN)/python $$script --no-progress || exit 1; done

wheel: setup
	rm -rf build dist
	$(BIN)/python -m build --quiet
	rm -rf $(VENV)-wheel && $(PYTHON) -m venv $(VENV)-wheel
	$(VENV)-wheel/bin/python -m pip --disable-pip-version-check --quiet install --constraint constraints.txt torch
	$(VENV)-wheel/bin/python -m pip --disable-pip-version-check --quiet install --constraint constraints.txt "$$(ls $(CURDIR)/dist/*.whl)[app]"
	cd $(VENV)-wheel && bin/gckm demo --budget 3 --quiet --report report.html && bin/gckm info digits.pt
	rm -rf $(VENV)-wheel

clean:
	rm -rf $(VENV) $(VENV)-wheel build dist out docs/_build docs/gallery docs/command_line.md *.egg-info
