"""The parts of a page in HTML; whatever is not :class:`Markup` is escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Any

CSS = """
:root { color-scheme: light dark; --page: #f4f5f7; --surface: #ffffff; --ink: #1f2328; --muted: #59636e;
  --grid: #d8dee4; --accent: #0072b2; }
@media (prefers-color-scheme: dark) {
  :root { --page: #0e1116; --surface: #171b21; --ink: #e6e9ed; --muted: #a3adb8; --grid: #363e48; --accent: #6cb6ff; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 16px/1.5 system-ui, sans-serif;
  -webkit-text-size-adjust: 100%; }
main { max-width: 66rem; margin: 0 auto; padding: 1.5rem 1rem 3rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .4rem; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 0 0 .6rem; }
p { margin: 0 0 .8rem; max-width: 46rem; }
section { background: var(--surface); border: 1px solid var(--grid); border-radius: 10px; padding: 1.1rem 1.2rem;
  margin-top: 1rem; }
section > :last-child { margin-bottom: 0; }
.pair > section { min-width: 0; }
.muted, figcaption { color: var(--muted); font-size: .9rem; }
.key { display: flex; flex-wrap: wrap; gap: .6rem 2rem; margin: 1rem 0 0; }
.key div { display: flex; flex-direction: column-reverse; }
.key dt { color: var(--muted); font-size: .85rem; }
.key dd { margin: 0; font-size: 1.45rem; font-weight: 600; line-height: 1.2; }
.pair { display: grid; gap: 1.2rem 1.6rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); }
@media (min-width: 60rem) { .pair.uneven { grid-template-columns: 5fr 7fr; } }
figure { margin: 0; min-width: 0; }
figure svg { display: block; width: 100%; height: auto; margin: 0 auto .4rem; }
figcaption { max-width: 46rem; }
.scroll { overflow-x: auto; margin: 0 0 .8rem; }
table { border-collapse: collapse; font-size: .9rem; }
th, td { text-align: left; padding: .3rem .7rem .3rem 0; border-top: 1px solid var(--grid); vertical-align: top; }
thead th, tr.more > * { border-top: 0; }
th { color: var(--muted); font-weight: 600; white-space: nowrap; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.long { min-width: 11rem; }
tbody th { color: var(--ink); font-weight: 400; white-space: normal; overflow-wrap: break-word; max-width: 14rem; }
details { margin: 0 0 .8rem; }
summary { cursor: pointer; color: var(--accent); margin-bottom: .5rem; }
pre { overflow-x: auto; margin: 0 0 .8rem; padding: .7rem .8rem; background: var(--page); border-radius: 6px;
  font-size: .85rem; }
@media (max-width: 30rem) { section { padding: .9rem .8rem; } main { padding: 1rem .6rem 2rem; } }
@media print { section { break-inside: avoid; } }
"""


_LONG = 16  # Letters of a cell that should not be squeezed.


class Markup(str):
    """Text that is HTML already."""


def text(content: Any) -> Markup:
    """Anything as HTML."""
    return content if isinstance(content, Markup) else Markup(html.escape(str(content)))


def join(parts: Iterable[Any], between: str = "\n") -> Markup:
    """Parts, one after the other."""
    return Markup(between.join(text(part) for part in parts if part))


def paragraph(content: Any, *, muted: bool = False) -> Markup:
    """A paragraph."""
    return Markup(f'<p class="muted">{text(content)}</p>' if muted else f"<p>{text(content)}</p>")


def section(title: str, *parts: Any) -> Markup:
    """A heading and what is below it; nothing if there is nothing below it."""
    body = join(parts)
    return Markup(f"<section>\n<h2>{text(title)}</h2>\n{body}\n</section>") if body else Markup()


def table(head: Sequence[str], rows: Sequence[Sequence[Any]], numeric: Sequence[int] = ()) -> Markup:
    """A table that scrolls inside its own box; the first cell of a row names it, an empty one continues the row above.

    Args:
        head: The names of the columns.
        rows: The cells.
        numeric: The columns of numbers.
    """

    def cell(tag: str, column: int, content: Any, scope: str = "") -> str:
        kind = "n" if column in numeric else "long" if len(str(content)) > _LONG else ""
        return f"<{tag}{_class(kind)}{scope}>{text(content)}</{tag}>"

    lines = ["<tr>" + "".join(cell("th", at, name, ' scope="col"') for at, name in enumerate(head)) + "</tr>"]
    body = [
        f"<tr{_class('' if row[0] != '' else 'more')}>"
        + "".join(
            cell("td", at, content) if at else cell("th", at, content, ' scope="row"') for at, content in enumerate(row)
        )
        + "</tr>"
        for row in rows
    ]
    inside = "\n".join(["<thead>", *lines, "</thead>", "<tbody>", *body, "</tbody>"])
    return Markup(f'<div class="scroll" tabindex="0"><table>\n{inside}\n</table></div>')


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""


def figure(svg: str, caption: Any) -> Markup:
    """A picture, whose own words describe it to those who do not see it, and a caption."""
    return Markup(f"<figure>\n{svg}\n<figcaption>{text(caption)}</figcaption>\n</figure>")


def pair(*parts: Markup, uneven: bool = False) -> Markup:
    """Figures or sections side by side where there is room."""
    kind = _class("pair uneven" if uneven else "pair")
    return Markup(f"<div{kind}>\n" + "\n".join(parts) + "\n</div>")


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
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{text(title)}</title>
<style>{CSS}</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""
