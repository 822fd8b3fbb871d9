"""A page for every example: what it shows, its code, and what it prints and draws when it runs here."""

import ast
import contextlib
import io
import multiprocessing
import os
import runpy
import shlex
import shutil
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util import logging

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "gallery"
AT_ONCE = 2  # Processes, each with one thread; a process runs several examples, as importing torch takes seconds.
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Example:
    """A script of ``examples/``, its title, and how it is run for its page: offline, in seconds."""

    name: str
    title: str
    arguments: tuple[str, ...] = ()

    @property
    def source(self) -> Path:
        """The script."""
        return ROOT / "examples" / f"{self.name}.py"


EXAMPLES = (
    Example("cora_few_labels", "A graph and a few labels"),
    Example("digits_offline", "The demo", ("--draws", "1", "--picture", "digits.png")),
    Example("compare_with_gnns", "Next to PyG's networks", ("--draws", "1")),
    Example("prediction_sets", "Sets of classes"),
    Example("regression", "Numbers instead of classes"),
    Example("several_labels", "Several labels per node"),
    Example("clustering", "Clusters without labels"),
    Example("new_nodes", "Nodes that come later"),
    Example("large_graph", "A large graph"),
    Example("many_machines", "One graph over several processes"),
    Example("custom_kernel", "Kernels of your own", ("--draws", "1")),
    Example("gnn_with_rkm_head", "The readout as the head of a GNN", ("--draws", "1", "--encoders", "GCN")),
    Example("gckm_layer_in_gnn", "A kernel layer in a GNN", ("--draws", "1")),
    Example("cayley_adam_pca", "CayleyAdam by itself"),
)


@dataclass
class Outcome:
    """What an example printed, and the pictures that it left."""

    printed: str
    pictures: list[Path]


def prepare() -> None:
    """What a process that runs examples needs before it imports torch: a reader's environment without datasets."""
    os.environ.pop("GCKM_DATA_ROOT", None)
    os.environ |= {"OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}
    sys.path.insert(0, str(ROOT))


def run(example: Example) -> Outcome:
    """Run an example in an empty folder."""
    printed = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), contextlib.redirect_stdout(printed):
        sys.argv = [str(example.source), *example.arguments, "--no-progress"]
        runpy.run_path(str(example.source), run_name="__main__")
        kept = []
        for picture in sorted(Path(folder).rglob("*.png")):
            kept.append(FOLDER / f"{example.name}_{picture.name}")
            shutil.copyfile(picture, kept[-1])
    return Outcome(printed.getvalue(), kept)


def docstring_and_code(source: str) -> tuple[str, str]:
    """The text at the beginning of a script, and what follows it."""
    first = ast.parse(source).body[0]
    lines = source.splitlines()
    return ast.get_docstring(ast.parse(source)) or "", "\n".join(lines[first.end_lineno :]).strip()


def page_of(example: Example, outcome: Outcome) -> str:
    """The page of an example, as Markdown."""
    text, code = docstring_and_code(example.source.read_text())
    pictures = "".join(f"\n![{example.title}]({path.name})\n" for path in outcome.pictures)
    command = shlex.join(["python", f"examples/{example.name}.py", *example.arguments])
    return (
        f"# {example.title}\n\n{text.replace('``', '`')}\n\n"
        f"`{command}` prints:\n\n```text\n{outcome.printed.strip()}\n```\n{pictures}\n"
        f"## The script\n\n`examples/{example.name}.py`; `--help` lists its options.\n\n```python\n{code}\n```\n"
    )


def index_page() -> str:
    """The first page of the gallery: a card for every example."""
    cards = []
    for example in EXAMPLES:
        summary = docstring_and_code(example.source.read_text())[0].split("\n\n")[0].replace("\n", " ")
        summary = summary.replace("``", "`")
        cards.append(
            f":::{{grid-item-card}} {example.title}\n:link: {example.name}\n:link-type: doc\n\n{summary}\n:::\n"
        )
    names = "\n".join(example.name for example in EXAMPLES)
    return (
        "# Examples\n\nEach is a script of a page that runs offline, most of them on scikit-learn's digits. What they "
        "print here was printed when these pages were built.\n\n"
        f"::::{{grid}} 1 2 2 2\n:gutter: 3\n\n{''.join(cards)}::::\n\n```{{toctree}}\n:hidden:\n\n{names}\n```\n"
    )


def is_fresh(example: Example) -> bool:
    """Whether the page is younger than all that it depends on."""
    page = FOLDER / f"{example.name}.md"
    sources = [example.source, Path(__file__), *(ROOT / "torch_gckm").rglob("*.py")]
    return page.exists() and page.stat().st_mtime > max(path.stat().st_mtime for path in sources)


def write(app: Sphinx) -> None:
    """Run the examples whose pages are missing or old, and write these."""
    missing = {path.stem for path in (ROOT / "examples").glob("*.py")} - {example.name for example in EXAMPLES}
    if missing:
        raise ExtensionError(f"docs/extensions/gallery.py does not list examples/{', '.join(sorted(missing))}")
    FOLDER.mkdir(exist_ok=True)
    old = [example for example in EXAMPLES if not is_fresh(example)]
    log.info("running %d examples", len(old))
    with ProcessPoolExecutor(AT_ONCE, multiprocessing.get_context("spawn"), prepare) as pool:
        for example, outcome in zip(old, pool.map(run, old), strict=True):
            (FOLDER / f"{example.name}.md").write_text(page_of(example, outcome))
    (FOLDER / "index.md").write_text(index_page())


def setup(app: Sphinx) -> dict[str, bool]:
    """Run the examples before pages are read."""
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
