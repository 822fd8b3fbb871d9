"""What makes pages of the documentation: formulas, examples, commands, and the look for parts on the network."""

import importlib
import re
import sys
from pathlib import Path

import pytest

from torch_gckm.cli.parser import command_parser

DOCS = Path(__file__).parent.parent / "docs"
FORMULA = re.compile(r"\$\$(.+?)\$\$|(?<![\\$])\$([^$\n]+?)\$", flags=re.DOTALL)


@pytest.fixture
def extension(monkeypatch):
    pytest.importorskip("sphinx", reason="the extra 'docs' is not installed")
    pytest.importorskip("latex2mathml", reason="the extra 'docs' is not installed")
    monkeypatch.setattr(sys, "path", [str(DOCS / "extensions"), *sys.path])
    return importlib.import_module


def test_every_formula_becomes_mathml(extension):
    """An unknown command would be printed as it is written."""
    extension("mathml")
    convert = importlib.import_module("latex2mathml.converter").convert
    pages = [page for page in DOCS.glob("*.md") if page.stem != "command_line"]
    texts = [re.sub(r"^```.*?^```|`[^`]*`", "", page.read_text(), flags=re.MULTILINE | re.DOTALL) for page in pages]
    formulas = [first or second for text in texts for first, second in FORMULA.findall(text)]
    assert len(formulas) > 100
    for formula in formulas:
        found = convert(formula)
        assert found.startswith("<math"), formula
        assert "\\" not in found.replace("\\setminus", ""), formula


def test_attributes_keep_their_underscores(extension):
    escaped = extension("underscores").escaped
    assert escaped(":ivar classes_: The classes_ that occur.") == r":ivar classes\_: The classes_ that occur."
    assert escaped(":ivar graph_, n_features_in_: The graph.") == r":ivar graph\_, n_features_in\_: The graph."
    assert escaped(":param n_nodes: so many, of :attr:`graph_`:") == ":param n_nodes: so many, of :attr:`graph_`:"


@pytest.mark.parametrize("html", [
    '<script src="https://example.org/a.js"></script>',
    "<link rel='stylesheet' href='//example.org/a.css'>",
    '<img alt="" src="http://example.org/a.png">',
    '<style>@import "https://example.org/a.css";</style>',
    "body { background: url(https://example.org/a.png) }",
])  # fmt: skip
def test_parts_on_the_network_are_found(extension, html):
    assert len(extension("offline").remote_parts(html)) == 1


def test_links_and_own_parts_are_none(extension):
    html = '<a href="https://arxiv.org/abs/2301.13764">paper</a><script src="_static/a.js"></script><img src="a.png">'
    assert extension("offline").remote_parts(html) == []


def test_the_page_about_commands_has_every_option(extension):
    module, parser = extension("command_line"), command_parser()
    page = module.page_of(parser)
    commands = module.commands_of(parser)
    assert {"fit", "predict", "suggest", "demo"} <= set(commands)
    parts = dict(re.findall(r"^## gckm (\S+)\n(.*?)(?=^## |\Z)", page, flags=re.MULTILINE | re.DOTALL))
    assert set(parts) == set(commands)
    for name, command in commands.items():
        for action in command._actions:
            assert all(option in parts[name] for option in action.option_strings), f"{name} {action.option_strings}"
    assert "%(default)s" not in page


def test_every_example_has_a_page(extension, tmp_path):
    module = extension("gallery")
    scripts = {path.stem for path in (DOCS.parent / "examples").glob("*.py")}
    assert {example.name for example in module.EXAMPLES} == scripts
    example = next(example for example in module.EXAMPLES if example.name == "digits_offline")
    page = module.page_of(example, module.Outcome("93.5 %", [tmp_path / "digits.png"]))
    assert page.startswith("# The demo\n\nClassify scikit-learn's digits")
    assert "examples/digits_offline.py --draws 1" in page
    assert "93.5 %" in page
    assert "![The demo](digits.png)" in page
    assert "```python\nimport argparse" in page
    assert "{grid-item-card} The demo\n:link: digits_offline" in module.index_page()
