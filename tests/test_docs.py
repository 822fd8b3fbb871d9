"""The code on every page of the documentation and in the README runs, and links between pages lead somewhere."""

import re
from fnmatch import fnmatch
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

from tests.conftest import make_graph

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
GENERATED = {DOCS / "command_line.md"}
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(set(DOCS.glob("*.md")) - GENERATED)]
ALL = [*PAGES, *NOTEBOOKS, *sorted((DOCS / "api").glob("*.md"))]


def code_of(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def larger(data: Data) -> Data:
    """The graph with three nodes more, joined to the first ones."""
    size = data.num_nodes
    new = torch.arange(size, size + 3)
    edges = torch.cat([data.edge_index, torch.stack([new, new - size]), torch.stack([new - size, new])], dim=1)
    return Data(x=torch.cat([data.x, data.x[:3] + 0.1]), edge_index=edges)


@pytest.mark.parametrize("page", [page for page in PAGES if code_of(page)], ids=lambda page: page.stem)
@pytest.mark.filterwarnings("ignore::torch_gckm.errors.LowRankWarning")  # The tiny graph has few directions.
def test_code_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = make_graph()
    names = {"data": data, "new": larger(data), "other_data": larger(data), "num_classes": 3, "torch": torch}
    for code in code_of(page):
        short = re.sub(r"budget=\d+", "budget=0.3", code)
        exec(compile(short, str(page), "exec"), names)


def test_the_first_pages_have_code():
    assert all(code_of(page) for page in (ROOT / "README.md", DOCS / "index.md"))
    assert len(code_of(DOCS / "index.md")[0].replace("\n\n", "\n").splitlines()) == 3, "three lines of code"


@pytest.mark.parametrize("page", [page for page in NOTEBOOKS if page.stem != "index"], ids=lambda page: page.stem)
def test_notebooks_compile(page):
    """They are run when the documentation is built."""
    text = page.read_text()
    assert text.startswith("---\nfile_format: mystnb\nkernelspec:\n"), "else its cells are not run"
    cells = re.findall(r"^```\{code-cell\} ipython3\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    assert len(cells) >= 3
    for cell in cells:
        compile(re.sub(r"^(!|:).*$", "", cell, flags=re.MULTILINE), str(page), "exec")


def anchors_of(page: Path) -> set[str]:
    """The names by which headings are linked to: small letters, without punctuation, with hyphens for blanks."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", ALL, ids=lambda page: f"{page.parent.name}/{page.stem}")
def test_links_lead_somewhere(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    links += [f"{target}.md" for target in re.findall(r"^:link: (\S+)$", text, flags=re.MULTILINE)]
    for link in links:
        target, _, anchor = link.partition("#")
        if re.match(r"https?:", link) or target.startswith("gallery/"):
            continue
        path = (page.parent / target).resolve() if target else page
        assert path in GENERATED or path.exists(), f"{page.name} links to {link}"
        assert not anchor or anchor in anchors_of(path), f"{page.name} links to {link}"


def test_every_page_is_in_a_table_of_contents():
    for folder in (DOCS, DOCS / "api", DOCS / "notebooks"):
        listed = re.findall(r"```\{toctree\}\n(.*?)```", (folder / "index.md").read_text(), flags=re.DOTALL)
        names = {line for block in listed for line in block.splitlines() if line and not line.startswith(":")}
        missing = {page.stem for page in folder.glob("*.md") if not any(fnmatch(page.stem, name) for name in names)}
        assert missing == {"index"}, folder


def test_what_the_first_page_says_of_versions_is_so():
    setup = (ROOT / "setup.py").read_text()
    versions = re.findall(r"Python :: (3\.\d+)", setup)
    for page in (ROOT / "README.md", DOCS / "index.md"):
        text = page.read_text()
        assert f"Python {versions[0]} to {versions[-1]}" in text
        for package, name in (("torch", "PyTorch"), ("torch-geometric", "PyTorch Geometric")):
            least = re.search(rf'"{package}>=([\d.]+)"', setup)[1]
            assert f"{name} {least} or newer" in text
