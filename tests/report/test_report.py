import copy
import re
import shutil
import subprocess
from html.parser import HTMLParser

import numpy as np
import pytest
import torch

from tests.conftest import make_graph
from torch_gckm import GCKM, GCKMClassifier, Trainer
from torch_gckm.errors import InvalidInputError
from torch_gckm.plot.withheld import withheld
from torch_gckm.report import report as module
from torch_gckm.report import write_report
from torch_gckm.report.facts import graph_facts
from torch_gckm.select import search

VOID = {"meta", "br", "hr", "img", "input", "link"}
EVIL = ["<b>&ant", 'bee" onload="x', "c'a$t$ <script>"]
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Reader(HTMLParser):
    """Checks that tags are balanced; collects text, headings and attributes."""

    def __init__(self):
        super().__init__()
        self.open, self.headings, self.attributes, self.text = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.attributes += [(tag, *pair) for pair in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.attributes += [(tag, *pair) for pair in attrs]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("h1", "h2"):
            self.headings.append(data)
        if "style" not in self.open:
            self.text.append(data)


def read(path):
    """The page, after checks that every page must pass."""
    content = path.read_text()
    reader = Reader()
    reader.feed(content)
    assert reader.open == []
    assert content.startswith('<!DOCTYPE html>\n<html lang="en">')
    assert "://" not in content  # Neither resources nor namespaces from elsewhere.
    assert not re.search(r"@import|<script|<link|<iframe", content)
    for tag, name, value in reader.attributes:
        assert name not in ("src", "srcset", "data", "action"), (tag, name)
        assert not name.startswith("on"), (tag, name)
        if name.endswith("href"):
            assert value.startswith("#")
    assert all(target.startswith("#") for target in re.findall(r"url\((.*?)\)", content))
    names = [value for _, name, value in reader.attributes if name == "id"]
    assert len(names) == len(set(names))
    references = [value[1:] for _, name, value in reader.attributes if name == "href"]
    assert set(references) <= set(names)
    drawn = sum(tag == "svg" and name == "role" for tag, name, _ in reader.attributes)
    described = [value for tag, name, value in reader.attributes if tag == "svg" and name == "aria-label"]
    assert drawn == len(described) > 0
    assert ("meta", "name", "viewport") in reader.attributes
    assert "prefers-color-scheme: dark" in content
    assert "#1f2328" not in content.split("</style>")[1]  # Figures take the page's colours.
    reader.all_text = " ".join(" ".join(reader.text).split())
    return reader


@pytest.fixture(scope="module")
def data():
    return make_graph()


@pytest.fixture(scope="module")
def result(data):
    return search(data, budget=None, max_settings=12, workers=1, progress=False)


@pytest.fixture(scope="module")
def ensemble(result):
    return result.ensemble(5)


def test_an_ensemble(data, result, ensemble, tmp_path):
    path = tmp_path / "report.html"
    nodes = [f"<i>{number}</i>" for number in range(60)]
    write_report(
        path, ensemble, data, result=result, names=EVIL, nodes=nodes, title="<h1>&", seconds={"<stage>": 1.25},
        command="gckm fit '<x>' && echo", seed=7,
    )  # fmt: skip
    page = read(path)
    for heading in ("The graph", "Classes", "Embedding", "Withheld labels", "Search", "Settings", "Layers", "Time"):
        assert heading in page.headings
    assert "Training" not in page.headings
    for name in (*EVIL, "<h1>&", "<stage>", "gckm fit '<x>' && echo"):
        assert name in page.all_text  # As text, whatever it looks like.
    assert re.search(r"<i>\d+</i>", page.all_text)
    found = withheld(ensemble, data)
    assert f"{100 * found.accuracy:.0f} % withheld labels right" in _numbers(path)
    assert "before self-training" in page.all_text
    assert "2 more models" in page.all_text
    right = float((ensemble.predict() == data.y)[data.test_mask].double().mean())
    assert f"{100 * right:.1f} % of 48 test nodes right" in _numbers(path)


def _numbers(path):
    """The large numbers at the top, each with what it is."""
    pairs = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", path.read_text())
    return [f"{value} {name}" for name, value in pairs]


def test_a_model_and_its_history(data, tmp_path):
    model = GCKM(8, (6, 4), 3, hops=2)
    history = Trainer(model, steps=3, progress=False).fit(data)
    assert history.best_step > 0
    path = tmp_path / "new" / "report.html"
    write_report(path, model, data, history=history, embedding="pca")
    page = read(path)
    assert "Training" in page.headings
    assert "Search" not in page.headings
    assert "before fine-tuning" in page.all_text
    assert "fine-tuning, 3 steps" in page.all_text
    assert "exact, 60 x 60" in page.all_text
    # The number of step 0, where it is valid.
    assert f"{100 * history.records[0].leave_one_out:.0f} % withheld labels right" in _numbers(path)
    write_report(path, model, data, embedding="pca")
    assert "Training" not in read(path).headings


def test_a_classifier(tmp_path):
    data = make_graph()
    data.y = data.y + 10
    classifier = GCKMClassifier(budget=None, max_settings=6, members=3, workers=1, progress=False, random_state=3)
    write_report(tmp_path / "report.html", classifier.fit(data), embedding="pca")
    page = read(tmp_path / "report.html")
    assert "GCKMClassifier(" in page.all_text
    assert "Search" in page.headings
    assert "seed 3" in page.all_text
    assert "12" in page.text


@pytest.mark.parametrize("labels", [3, 5])
def test_no_number_where_none_is_valid(labels, data, tmp_path):
    few = copy.copy(data)
    few.train_mask = torch.arange(60) < labels
    model = GCKM(8, (6, 4), 3)
    history = Trainer(model, steps=0, progress=False).fit(few)
    write_report(tmp_path / "report.html", model, few, history=history, embedding="pca")
    page = read(tmp_path / "report.html")
    if labels == 3:
        assert "no class has two labels" in page.all_text
        assert "labels right" not in " ".join(_numbers(tmp_path / "report.html"))
        assert "confusion" not in (tmp_path / "report.html").read_text()
    else:
        assert "cannot be withheld; there are 1" in page.all_text
        assert "of 4 withheld labels are right" in page.all_text


def test_facts_of_a_graph(data):
    facts = dict(graph_facts(data, data.y))
    edges = data.edge_index.size(1)
    assert facts["nodes"] == "60"
    assert facts["edges"] == f"{edges // 2} undirected"
    assert facts["mean degree"] == f"{edges / 60:.2f}"
    assert int(facts["isolated nodes"]) >= 2
    same = float((data.y[data.edge_index[0]] == data.y[data.edge_index[1]]).double().mean())
    assert facts["edges within a predicted class"] == f"{100 * same:.0f} %"
    directed = copy.copy(data)
    directed.edge_index = torch.tensor([[0, 1, 2], [1, 2, 2]])
    facts = dict(graph_facts(directed, data.y))
    assert facts["edges"] == "2 directed, 1 self-loops"
    assert facts["isolated nodes"] == "57"
    assert facts["components"].startswith("58;")
    directed.edge_index = torch.empty(2, 0, dtype=torch.long)
    assert dict(graph_facts(directed, data.y))["edges"] == "0 undirected"


def test_whole_or_not_at_all(data, ensemble, tmp_path, monkeypatch):
    with pytest.raises(InvalidInputError, match="fitted on"):
        write_report(tmp_path / "report.html", ensemble, make_graph(seed=1))
    monkeypatch.setattr(module.parts, "page", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_report(tmp_path / "report.html", ensemble, data, embedding="pca")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(BROWSER is None, reason="no Chromium: what the page looks like is not tested")
def test_in_a_browser(data, ensemble, tmp_path):
    from PIL import Image, ImageStat

    write_report(tmp_path / "report.html", ensemble, data, embedding="pca")
    brightness = []
    for name, options in (("light", []), ("dark", ["--blink-settings=preferredColorScheme=0"])):
        command = [
            BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
            f"--user-data-dir={tmp_path / name}", "--window-size=390,5000", f"--screenshot={tmp_path / name}.png",
            *options, str(tmp_path / "report.html"),
        ]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        picture = Image.open(tmp_path / f"{name}.png").convert("RGB")
        assert picture.size == (390, 5000)
        assert len(picture.getcolors(390 * 5000)) > 100  # There is something to see.
        right = picture.crop((384, 0, 390, 5000))
        assert len(right.getcolors()) < 4  # Nothing sticks out of a narrow page.
        brightness.append(ImageStat.Stat(picture.convert("L")).mean[0])
    assert brightness[0] > 200
    assert brightness[1] < 60


def test_classes_without_a_label_count_as_wrong(tmp_path):
    graph = make_graph()
    graph.train_mask &= graph.y != 2
    fitted = GCKMClassifier(search=None).fit(graph)
    write_report(tmp_path / "page.html", fitted, embedding="pca")
    page = (tmp_path / "page.html").read_text()
    right = 100 * fitted.score(graph)
    assert f"{right:.1f} %" in page
    assert f"of {int(graph.test_mask.sum())} test nodes right" in page
    assert right < 80


def test_graphs_of_all_kinds(tmp_path):
    graph = make_graph()
    graph.edge_index, graph.edge_weight = graph.edge_index[:, :0], torch.ones(0)
    graph.x = (graph.x * (graph.x > 0)).to_sparse_coo()
    model = GCKM(8, (4, 3), 3, gram="dense")
    history = Trainer(model, steps=0, progress=False).fit(graph)
    names = np.array(["a", "b", "c"])
    write_report(tmp_path / "page.html", model, graph, history=history, names=names, embedding="pca")
    assert "60 nodes" in (tmp_path / "page.html").read_text()
    directed = make_graph()
    directed.edge_index = torch.tensor([[0, 1, 2], [3, 3, 3]])
    facts = dict(graph_facts(directed, directed.y))
    assert facts["largest degree"] == "3 in, 1 out"


def test_it_suggests_what_the_ensemble_suggests(graph, tmp_path):
    classifier = GCKMClassifier(search=None, members=3, progress=False).fit(graph)
    write_report(tmp_path / "page.html", classifier, embedding="pca")
    text = (tmp_path / "page.html").read_text()
    assert "the least error is expected" in text
    rows = text[text.index("the least error is expected") :]
    named = re.findall(r"<tr><t[dh][^>]*>(\d+)</t[dh]>", rows.replace("\n", ""))
    assert [int(node) for node in named[:5]] == classifier.suggest(5).tolist()
