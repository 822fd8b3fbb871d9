"""A build fails if one of its pages would load anything from the network."""

import re
from html.parser import HTMLParser
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

# Attributes that make a browser load something, by tag. A link that a reader may follow is not among them.
LOADED = {
    "script": "src", "img": "src", "iframe": "src", "video": "src", "audio": "src", "source": "src", "embed": "src",
    "object": "data", "link": "href",
}  # fmt: skip


class _Loads(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        address = dict(attrs).get(LOADED.get(tag, ""))
        if address is not None and re.match(r"(https?:)?//", address):
            self.found.append(address)


def remote_parts(html: str) -> list[str]:
    """The addresses on the network that a page loads something from."""
    parser = _Loads()
    parser.feed(html)
    return parser.found + re.findall(r"(?:@import\s+|url\()['\"]?((?:https?:)?//[^'\")\s]+)", html)


def check(app: Sphinx, error: Exception | None) -> None:
    """Look at all pages and style sheets that were built."""
    if error is not None or app.builder.format != "html":
        return
    for path in sorted([*Path(app.outdir).rglob("*.html"), *Path(app.outdir).rglob("*.css")]):
        found = remote_parts(path.read_text())
        if found:
            raise ExtensionError(f"{path} loads {', '.join(found)}: pages must work without a network")


def setup(app: Sphinx) -> dict[str, bool]:
    """Look at the pages when all are built."""
    app.connect("build-finished", check)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
