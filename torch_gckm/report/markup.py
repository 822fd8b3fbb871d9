"""Pieces of a page: HTML, in which whatever is not :class:`Markup` is escaped."""

import html
import importlib.resources
import re
from collections.abc import Iterable, Sequence
from string import Template
from typing import Any

from torch_gckm.report.glossary import TERMS

_LONG = 16  # Letters of a cell that should not be squeezed.
_TERM = re.compile(r"\[([^\]|]+)(?:\|([^\]]+))?\]")


class Markup(str):
    """Text that is HTML already."""


def text(content: Any) -> Markup:
    """Anything as HTML."""
    return content if isinstance(content, Markup) else Markup(html.escape(str(content)))


def join(parts: Iterable[Any]) -> Markup:
    """Parts, one after the other."""
    return Markup("\n".join(text(part) for part in parts if part))


def prose(words: str, **values: Any) -> Markup:
    """Words with explained terms and values: ``prose("{right} of [withheld label|withheld labels]", right=3)``.

    A term in brackets, with what is shown instead behind a bar, links to its explanation, which is also its tooltip.
    """

    def link(found: re.Match[str]) -> str:
        name, shown = found[1], found[2] or found[1]
        explanation = html.escape(TERMS[name])
        return f'<a class="term" href="#{_anchor(name)}" title="{explanation}">{html.escape(shown)}</a>'

    pieces, last = [], 0
    for found in _TERM.finditer(words):
        pieces += [html.escape(words[last : found.start()], quote=False), link(found)]
        last = found.end()
    pieces.append(html.escape(words[last:], quote=False))
    return Markup("".join(pieces).format(**{name: text(value) for name, value in values.items()}))


def glossary() -> Markup:
    """All terms with their explanations, to which :func:`prose` links."""
    rows = (
        f'<div><dt id="{_anchor(name)}">{text(name)}</dt><dd>{text(words)}</dd></div>' for name, words in TERMS.items()
    )
    return Markup('<dl class="glossary">\n' + "\n".join(rows) + "\n</dl>")


def _anchor(name: str) -> str:
    return "term-" + re.sub(r"\W+", "-", name.lower()).strip("-")


def paragraph(content: Any, *, muted: bool = False) -> Markup:
    """A paragraph."""
    return Markup(f'<p class="muted">{text(content)}</p>' if muted else f"<p>{text(content)}</p>")


def section(title: str, *parts: Any) -> Markup:
    """A heading and what is below it; nothing if there is nothing below it."""
    body = join(parts)
    key = _anchor(title).replace("term-", "part-")
    heading = f'<section aria-labelledby="{key}">\n<h2 id="{key}">{text(title)}</h2>'
    return Markup(f"{heading}\n{body}\n</section>") if body else Markup()


def table(head: Sequence[Any], rows: Sequence[Sequence[Any]], numeric: Sequence[int] = (), label: str = "") -> Markup:
    """A table in a box that scrolls; the first cell of a row names it, an empty one continues the row above."""

    def cell(tag: str, column: int, content: Any, scope: str = "") -> str:
        is_long = len(str(content)) > _LONG and not isinstance(content, Markup)
        kind = ' class="n"' if column in numeric else ' class="long"' if is_long else ""
        return f"<{tag}{kind}{scope}>{text(content)}</{tag}>"

    def line(row: Sequence[Any]) -> str:
        first = cell("th", 0, row[0], ' scope="row"')
        rest = "".join(cell("td", column, content) for column, content in enumerate(row[1:], start=1))
        return f'<tr class="more">{first}{rest}</tr>' if row[0] == "" else f"<tr>{first}{rest}</tr>"

    names = "".join(cell("th", column, name, ' scope="col"') for column, name in enumerate(head))
    inside = "\n".join(["<thead>", f"<tr>{names}</tr>", "</thead>", "<tbody>", *map(line, rows), "</tbody>"])
    return scrolled(Markup(f"<table>\n{inside}\n</table>"), label or "Table")


def scrolled(content: Markup, label: str) -> Markup:
    """A box that scrolls sideways, also by keys."""
    named = f'role="region" aria-label="{html.escape(label)}"'
    return Markup(f'<div class="scroll" tabindex="0" {named}>{content}</div>')


def figure(drawn: str, describe: str, caption: Any) -> Markup:
    """A picture, which has a description for those who do not see it, and a caption."""
    box = f'<div role="img" aria-label="{html.escape(describe)}">{drawn}</div>'
    return Markup(f"<figure>\n{box}\n<figcaption>{text(caption)}</figcaption>\n</figure>")


def pair(*parts: Markup, uneven: bool = False) -> Markup:
    """Figures or sections side by side where there is room."""
    return Markup("\n".join([f'<div class="pair{" uneven" if uneven else ""}">', *parts, "</div>"]))


def folded(summary: Any, content: Markup) -> Markup:
    """Content that a click shows."""
    return Markup(f"<details>\n<summary>{text(summary)}</summary>\n{content}\n</details>")


def key_numbers(numbers: Iterable[tuple[Any, Any]]) -> Markup:
    """A few large numbers, each with what it is."""
    cells = "\n".join(f"<div><dt>{text(name)}</dt><dd>{text(value)}</dd></div>" for name, value in numbers)
    return Markup(f'<dl class="key">\n{cells}\n</dl>')


def page(title: str, body: Markup, scripts: Markup) -> str:
    """The whole page; it needs nothing from anywhere else."""
    template = importlib.resources.files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    return Template(template).substitute(title=text(title), body=body, scripts=scripts)
