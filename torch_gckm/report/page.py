"""The parts of a page in HTML; whatever is not :class:`Markup` is escaped."""

import html
import importlib.resources
from collections.abc import Iterable, Sequence
from string import Template
from typing import Any

_LONG = 16  # Letters of a cell that should not be squeezed.


class Markup(str):
    """Text that is HTML already."""


def text(content: Any) -> Markup:
    """Anything as HTML."""
    return content if isinstance(content, Markup) else Markup(html.escape(str(content)))


def join(parts: Iterable[Any]) -> Markup:
    """Parts, one after the other."""
    return Markup("\n".join(text(part) for part in parts if part))


def paragraph(content: Any, *, muted: bool = False) -> Markup:
    """A paragraph."""
    return Markup(f'<p class="muted">{text(content)}</p>' if muted else f"<p>{text(content)}</p>")


def section(title: str, *parts: Any) -> Markup:
    """A heading and what is below it; nothing if there is nothing below it."""
    body = join(parts)
    return Markup(f"<section>\n<h2>{text(title)}</h2>\n{body}\n</section>") if body else Markup()


def table(head: Sequence[str], rows: Sequence[Sequence[Any]], numeric: Sequence[int] = ()) -> Markup:
    """A table with columns of text and of numbers (``numeric``) that scrolls inside its own box.

    The first cell of a row names it, an empty one continues the row above.
    """

    def cell(tag: str, column: int, content: Any, scope: str = "") -> str:
        kind = "n" if column in numeric else "long" if len(str(content)) > _LONG else ""
        return f"<{tag}{_class(kind)}{scope}>{text(content)}</{tag}>"

    def line(row: Sequence[Any]) -> str:
        first = cell("th", 0, row[0], ' scope="row"')
        rest = "".join(cell("td", column, content) for column, content in enumerate(row[1:], start=1))
        return f"<tr{_class('more' if row[0] == '' else '')}>{first}{rest}</tr>"

    names = "".join(cell("th", column, name, ' scope="col"') for column, name in enumerate(head))
    inside = "\n".join(["<thead>", f"<tr>{names}</tr>", "</thead>", "<tbody>", *map(line, rows), "</tbody>"])
    return Markup(f'<div class="scroll" tabindex="0"><table>\n{inside}\n</table></div>')


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""


def figure(svg: str, caption: Any) -> Markup:
    """A picture, which has a description for those who do not see it, and a caption."""
    return Markup(f"<figure>\n{svg}\n<figcaption>{text(caption)}</figcaption>\n</figure>")


def pair(*parts: Markup, uneven: bool = False) -> Markup:
    """Figures or sections side by side where there is room."""
    return Markup("\n".join([f'<div class="pair{" uneven" if uneven else ""}">', *parts, "</div>"]))


def details(summary: str, content: Markup) -> Markup:
    """What is folded away at first."""
    return Markup(f"<details>\n<summary>{text(summary)}</summary>\n{content}\n</details>")


def code(content: str) -> Markup:
    """Preformatted text."""
    return Markup(f'<pre tabindex="0"><code>{text(content)}</code></pre>')


def key_numbers(pairs: Sequence[tuple[str, str]]) -> Markup:
    """A few large numbers and what they are."""
    cells = "\n".join(f"<div><dt>{text(name)}</dt><dd>{text(value)}</dd></div>" for name, value in pairs)
    return Markup(f'<dl class="key">\n{cells}\n</dl>')


def page(title: str, body: Markup) -> str:
    """The whole page; it needs nothing from anywhere else."""
    template = importlib.resources.files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    return Template(template).substitute(title=text(title), body=body)
