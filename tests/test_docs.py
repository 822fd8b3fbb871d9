"""The code on every page of the documentation, and in the README, runs."""

import re
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

from tests.conftest import make_graph

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


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
