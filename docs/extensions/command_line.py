"""The page about the command line, from the parser that reads it."""

import argparse
import re
from pathlib import Path

from sphinx.application import Sphinx

from torch_gckm.cli.parser import command_parser

PAGE = Path(__file__).parents[1] / "command_line.md"
INTRODUCTION = """\
# Command line

`gckm` does from files what the estimators do from Python. `gckm COMMAND --help` prints what is on this page;
[Getting started](getting_started.md#from-files-without-python) shows what files look like.

"""


def commands_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parsers of the commands, by their names."""
    kinds = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return dict(next(kinds).choices)


def page_of(parser: argparse.ArgumentParser) -> str:
    """All commands with their options, as Markdown."""
    parts = [INTRODUCTION, "| command | what it does |\n| --- | --- |\n"]
    found = commands_of(parser)
    parts += [f"| [`gckm {name}`](#gckm-{name}) | {_cell(sub.description)} |\n" for name, sub in found.items()]
    return "".join(parts) + "".join(_command(name, sub) for name, sub in found.items())


def _command(name: str, parser: argparse.ArgumentParser) -> str:
    text = f"\n## gckm {name}\n\n{_sentence(parser.description)}\n"
    formatter = argparse.HelpFormatter(parser.prog)
    for group in parser._action_groups:
        actions = [action for action in group._group_actions if action.help != argparse.SUPPRESS]
        if not actions:
            continue
        text += f"\n**{_sentence(group.title)[:-1]}**\n\n| option | meaning |\n| --- | --- |\n"
        for action in actions:
            shown = formatter._format_action_invocation(action)
            text += f"| `{_cell(shown)}` | {_cell(formatter._expand_help(action) if action.help else None)} |\n"
    return text


def _sentence(text: str | None) -> str:
    text = (text or "").strip()
    return text[:1].upper() + text[1:].rstrip(".") + "."


def _cell(text: str | None) -> str:
    """A text that may stand in a table: no bars, and nothing that Markdown or HTML would take for markup."""
    return re.sub(r"\s+", " ", text or "").replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def write(app: Sphinx) -> None:
    """Write the page, unless it is as it was."""
    text = page_of(command_parser())
    if not PAGE.exists() or PAGE.read_text() != text:
        PAGE.write_text(text)


def setup(app: Sphinx) -> dict[str, bool]:
    """Write the page before pages are read."""
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
