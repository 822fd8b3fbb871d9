# make demo    set up, then run the main job on data that ships with scikit-learn
# make test    set up, then lint, type-check and test
# make check   everything else that must hold: full examples, wheel in a clean environment

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
READY := $(VENV)/.ready

.PHONY: setup demo test lint check examples wheel clean

setup: $(READY)

$(READY): setup.py constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --constraint constraints.txt torch
	$(PIP) install --constraint constraints.txt --editable ".[test]"
	touch $(READY)

demo: setup
	$(BIN)/python examples/digits_offline.py

test: lint
	$(BIN)/python -m pytest

lint: setup
	$(BIN)/ruff check .
	$(BIN)/mypy

check: examples wheel

examples: setup
	for script in examples/*.py; do echo "== $$script"; $(BIN)/python $$script --no-progress || exit 1; done

wheel: setup
	rm -rf build dist
	$(BIN)/python -m build --quiet
	rm -rf $(VENV)-wheel && $(PYTHON) -m venv $(VENV)-wheel
	$(VENV)-wheel/bin/python -m pip --disable-pip-version-check --quiet install --constraint constraints.txt torch
	$(VENV)-wheel/bin/python -m pip --disable-pip-version-check --quiet install --constraint constraints.txt "$$(ls $(CURDIR)/dist/*.whl)[sklearn,plot]"
	cd $(VENV)-wheel && bin/python $(CURDIR)/examples/digits_offline.py --quick --no-progress
	rm -rf $(VENV)-wheel

clean:
	rm -rf $(VENV) $(VENV)-wheel build dist out *.egg-info
