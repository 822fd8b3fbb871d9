"""Fitted attributes keep the underscore at the end of their names, which reStructuredText would take for a link."""

import re

from sphinx.application import Sphinx


def escaped(line: str) -> str:
    r"""The line of a field list that describes an attribute, with ``\_`` for an underscore that ends a name."""
    field = re.match(r":(ivar|vartype) [^:]*_:", line)
    return line if field is None else re.sub(r"_(?=[,:])", r"\_", field[0]) + line[field.end() :]


def escape(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Escape the names in a docstring that napoleon has turned into fields."""
    lines[:] = [escaped(line) for line in lines]


def setup(app: Sphinx) -> dict[str, bool]:
    """Run after napoleon, whose priority is 500."""
    app.connect("autodoc-process-docstring", escape, priority=600)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
