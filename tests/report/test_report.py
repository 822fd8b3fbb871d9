import copy
import json
import re
from html import unescape
from html.parser import HTMLParser

import numpy as np
import pytest
import torch

from tests.conftest import make_graph
from tests.report.conftest import EVIL, QUICK
from torch_gckm import GCKM, GCKMClassifier, Trainer
from torch_gckm.errors import InvalidInputError
from torch_gckm.estimators import label_metrics
from torch_gckm.plot.withheld import withheld
from torch_gckm.report import report as module
from torch_gckm.report import write_report
from torch_gckm.report.glossary import TERMS

VOID = {"meta", "br", "hr", "img", "input", "link"}
pytestmark = pytest.mark.filterwarnings("ignore::torch_gckm.errors.LowRankWarning")


class Reader(HTMLParser):
    """Checks that tags are balanced; collects text, headings, attributes and scripts."""

    def __init__(self):
        super().__init__()
        self.open, self.headings, self.attributes, self.text, self.scripts = [], [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.attributes += [(tag, *pair) for pair in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "script" in self.open:
            self.scripts.append(data)
        elif "style" not in self.open:
            self.text.append(data)
            if self.open and self.open[-1] in ("h1", "h2"):
                self.headings.append(data)


def read(path):
    """The page, after checks that every page must pass."""
    content = path.read_text()
    reader = Reader()
    reader.feed(content)
    assert reader.open == []
    assert content.startswith('<!DOCTYPE html>\n<html lang="en">')
    names = [value for _, name, value in reader.attributes if name == "id"]
    assert len(names) == len(set(names))
    for tag, name, value in reader.attributes:
        assert name not in ("src", "srcset", "action"), (tag, name)
        assert not name.startswith("on"), (tag, name)
        if name in ("href", "aria-labelledby"):
            assert value.removeprefix("#") in names
    tags = re.findall(
        r"<(?:link|iframe|object|embed|img)\b", re.sub(r"<script.*?</script>", "", content, flags=re.DOTALL)
    )
    assert not tags
    described = [value for tag, name, value in reader.attributes if name == "aria-label"]
    pictures = sum(name == "role" and value == "img" for _, name, value in reader.attributes)
    assert 0 < pictures <= len(described)
    assert ("meta", "name", "viewport") in reader.attributes
    assert "prefers-color-scheme: dark" in content
    assert {"In short", "Nodes", "The graph", "Settings", "Time", "How to reproduce", "Words"} <= set(reader.headings)
    assert reader.headings.count("Words") == 1
    assert all(term in reader.text for term in TERMS)
    reader.all_text = " ".join(" ".join("".join(reader.text).split()).split())
    reader.verdict = re.findall(r'<li class="(\w+)">.*?<span>(.*?)</span></li>', content, flags=re.DOTALL)
    reader.verdict = [(kind, unescape(re.sub("<.*?>", "", words))) for kind, words in reader.verdict]
    reader.numbers = [
        unescape(f"{value} {re.sub('<.*?>', '', name)}")
        for name, value in re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", content)
    ]
    packed = re.search(r"const docs_json = '(.*?)';", reader.scripts[-1])[1]
    reader.drawn = unescape(packed.replace("\\\\", "\\"))
    return reader


def columns_of(reader):
    """The columns of the table of nodes: those of the source of data that has a column of names and classes."""

    def sources(part):
        if isinstance(part, dict):
            if part.get("name") == "ColumnDataSource":
                yield dict(part["attributes"]["data"]["entries"])
            for value in part.values():
                yield from sources(value)
        elif isinstance(part, list):
            for value in part:
                yield from sources(value)

    return next(source for source in sources(json.loads(reader.drawn)) if "what" in source)


def test_an_ensemble(data, result, ensemble, tmp_path):
    path = tmp_path / "report.html"
    nodes = [f"<i>{number}</i>" for number in range(60)]
    write_report(
        path, ensemble, data, result=result, names=EVIL, nodes=nodes, title="<h1>&", seconds={"<stage>": 1.25},
        command="gckm fit '<x>' && echo", seed=7,
    )  # fmt: skip
    page = read(path)
    for heading in ("Classes", "Withheld labels", "Search", "Layers", "Nodes to label next"):
        assert heading in page.headings
    assert "Training" not in page.headings
    for name in (*EVIL, "<h1>&", "<stage>", "gckm fit '<x>' && echo", "seed"):
        assert name in page.all_text  # As text, whatever it looks like.
    own = path.read_text().split("</main>")[0] + page.scripts[-1]  # Without Bokeh's own source.
    for raw in ("<i>", "<b>", "</script><script>document", "<stage>"):
        assert raw not in own
    found = withheld(ensemble, data)
    assert f"{100 * found.accuracy:.0f} % withheld labels right" in page.numbers
    right = int((found.predicted == found.classes).sum())
    assert f"{right} of {found.classes.numel()} withheld labels are right." in page.verdict[0][1]
    assert "before self-training" in page.all_text
    assert "2 more models" in page.all_text
    right = float((ensemble.predict() == data.y)[data.test_mask].double().mean())
    assert f"{100 * right:.1f} % of 48 test nodes right" in page.numbers


def test_the_table_of_nodes(classifier, tmp_path):
    write_report(tmp_path / "report.html", classifier)
    columns = columns_of(read(tmp_path / "report.html"))
    names = ["ant", "bee", "cat"]
    assert columns["node"] == classifier.node_names_
    assert columns["guess"] == classifier.predict().tolist()
    given = [names[classifier.graph_.y[node]] if node < 6 else "" for node in range(90)]
    assert columns["given"] == given
    found = withheld(classifier)
    assert [name for name in columns["alone"] if name] == [names[number] for number in found.predicted.tolist()]
    assert columns["what"].count("to label next") == 10
    start, stop = classifier.graph_.edge_index
    near = classifier.predict()[stop[start == 7].unique()]
    counts = sorted(((near == name).sum() for name in names if (near == name).any()), reverse=True)
    assert columns["near"][7].startswith(f"{counts[0]} x ")
    assert sum(int(part.split()[0]) for part in columns["near"][7].split(", ")) == len(near)
    assert columns["near"][89] == "none"


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
    assert f"{100 * history.records[0].leave_one_out:.0f} % withheld labels right" in page.numbers
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
    assert "seed3" in page.all_text.replace(" ", "")
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
        assert page.verdict[0][0] == "warning"
        assert "3 classes have a single label each" in page.verdict[1][1]
        assert "labels right" not in " ".join(page.numbers)
        assert "Confusion" not in (tmp_path / "report.html").read_text()
    else:
        assert "cannot be withheld; there are 1" in page.all_text
        assert "of 4 withheld labels are right" in page.all_text


def test_numbers(regressor, tmp_path):
    write_report(tmp_path / "report.html", regressor, seconds=regressor.seconds_)
    page = read(tmp_path / "report.html")
    assert "Withheld numbers" in page.headings
    assert "Nodes to label next" not in page.headings
    model = regressor.model_
    left_out, known = model.left_out()[:, 0], model.known()[:, 0]
    guess = torch.stack([(known.sum() - one) / (len(known) - 1) for one in known])  # The mean of the others.
    share = float(1 - (left_out - known).square().sum() / (known - guess).square().sum())
    assert f"{share:.2f} R² of withheld numbers" in page.numbers
    assert f"{float(model.deviation):.3g} spread" in page.numbers
    assert f"{regressor.score(regressor.graph_):.2f} R² of 60 test nodes" in page.numbers
    assert f"{100 * share:.0f} % of the variance of withheld numbers is explained" in page.verdict[0][1]
    columns = columns_of(page)
    assert columns["node"] == [f"<i>{number}</i>" for number in range(90)]
    assert columns["what"].count("number given") == 30
    assert "<i>" not in page.scripts[-1]
    assert re.fullmatch(r"\d+, mean -?[\d.]+", columns["near"][7])


def test_several_columns_of_numbers(tmp_path):
    from torch_gckm import GCKMRegressor

    graph = make_graph(60)
    graph.y = torch.stack([graph.x[:, 0], -5 * graph.x[:, 1]], dim=1).double()
    graph.y[3, 1] = torch.nan  # Known in part.
    graph.train_mask = torch.arange(60) < 20
    fitted = GCKMRegressor(**QUICK).fit(graph)
    write_report(tmp_path / "report.html", fitted, names=["height", "<depth>"], embedding="pca")
    page = read(tmp_path / "report.html")
    assert "withheld numbers of “<depth>”" in page.all_text
    assert columns_of(page)["node"] == [str(number) for number in range(60)]
    fitted.save(tmp_path / "model.pt")
    loaded = GCKMRegressor.load(tmp_path / "model.pt")  # A file has no graph, and no factors of solves.
    with pytest.raises(InvalidInputError, match="the graph that the model was fitted on"):
        write_report(tmp_path / "loaded.html", loaded)
    write_report(tmp_path / "loaded.html", loaded, graph, names=["height", "<depth>"], embedding="pca")
    assert read(tmp_path / "loaded.html").numbers == page.numbers


def test_several_labels_per_node(several, tmp_path):
    write_report(tmp_path / "report.html", several, embedding="pca")
    page = read(tmp_path / "report.html")
    content = (tmp_path / "report.html").read_text()
    model, test = several.model_, several.graph_.test_mask
    right = float((several.predict() == several.graph_.y)[test].double().mean())
    assert f"{100 * right:.1f} % labels of 66 test nodes right" in page.numbers
    probabilities = (several.scales_[0] * model.left_out() + several.scales_[1]).sigmoid()
    found = label_metrics(model.known(), (probabilities > 0.5).long(), probabilities)
    rows = re.findall(r"<tr><th[^>]*>(first|not the .*?|third)</th>(.*?)</tr>", content)
    cells = [re.findall(r">([^<]*)</td>", row) for _, row in rows]
    assert unescape(rows[1][0]) == "not the <second>"
    assert np.mean([float(row[4]) for row in cells]) == pytest.approx(found["macro_f1"], abs=0.01)
    assert np.mean([float(row[5]) for row in cells]) == pytest.approx(found["average_precision"], abs=0.01)
    assert int(cells[0][0]) == int(model.known()[:, 0].sum())
    assert float(cells[0][6]) == pytest.approx(float(-several.scales_[1, 0] / several.scales_[0, 0]), rel=0.01)
    right = int(((probabilities > 0.5) == (model.known() > 0.5)).sum())
    assert f"{right} of 72 withheld labels are right" in page.verdict[0][1]


def test_whole_or_not_at_all(data, ensemble, tmp_path, monkeypatch):
    with pytest.raises(InvalidInputError, match="fitted on"):
        write_report(tmp_path / "report.html", ensemble, make_graph(seed=1))
    monkeypatch.setattr(module.markup, "page", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_report(tmp_path / "report.html", ensemble, data, embedding="pca")
    assert list(tmp_path.iterdir()) == []


def test_the_extra_is_named(data, ensemble, tmp_path, monkeypatch):
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "bokeh" else find(name, *a))
    with pytest.raises(ImportError, match=r"torch_gckm\[report\]"):
        write_report(tmp_path / "report.html", ensemble, data)


def test_classes_without_a_label_count_as_wrong(tmp_path):
    graph = make_graph()
    graph.train_mask &= graph.y != 2
    fitted = GCKMClassifier(**QUICK).fit(graph)
    write_report(tmp_path / "page.html", fitted, embedding="pca")
    right = 100 * fitted.score(graph)
    assert f"{right:.1f} % of {int(graph.test_mask.sum())} test nodes right" in read(tmp_path / "page.html").numbers
    assert right < 80


def test_graphs_of_all_kinds(tmp_path):
    graph = make_graph()
    graph.edge_index, graph.edge_weight = graph.edge_index[:, :0], torch.ones(0)
    graph.x = (graph.x * (graph.x > 0)).to_sparse_coo()
    model = GCKM(8, (4, 3), 3, gram="dense")
    history = Trainer(model, steps=0, progress=False).fit(graph)
    names = np.array(["a", "b", "c"])
    write_report(tmp_path / "page.html", model, graph, history=history, names=names, embedding="pca")
    page = read(tmp_path / "page.html")
    assert "60 nodes" in page.all_text
    assert ("advice", "60 of 60 nodes have no edge; what is predicted for them comes from their features alone.") in (
        page.verdict
    )


def test_it_suggests_what_the_ensemble_suggests(classifier, tmp_path):
    write_report(tmp_path / "page.html", classifier, embedding="pca")
    text = (tmp_path / "page.html").read_text()
    rows = text[text.index(">Nodes to label next<") :]
    named = re.findall(r"<tr><t[dh][^>]*>node (\d+)</t[dh]>", rows)
    chosen = classifier.suggest(10)
    assert [int(node) for node in named] == chosen.tolist()
    assert classifier.explain_suggestions(chosen)[0].words in rows
    settled = classifier.model_.suggestions(10)[0].settled
    assert f'<td class="n">{100 * settled:.2g}</td>' in rows


def test_large_graphs_are_shown_in_part(classifier, tmp_path, monkeypatch):
    from torch_gckm.report import explorer

    monkeypatch.setattr(explorer, "MOST_ROWS", 50)
    monkeypatch.setattr(explorer, "MOST_POINTS", 30)
    write_report(tmp_path / "page.html", classifier, embedding="pca")
    page = read(tmp_path / "page.html")
    assert "The picture has 30 of 90 nodes" in page.all_text
    assert "The table has 50 of 90 nodes" in page.all_text
    columns = columns_of(page)
    assert len(columns["node"]) == 50
    assert {f"node {number:03d}" for number in (*range(6), *classifier.suggest(10).tolist())} <= set(columns["node"])
    assert columns["what"].count("to label next") == 10
    drawn = {node for node, near in zip(columns["node"], columns["near"], strict=True) if near}
    assert len(drawn) == 30
    assert {f"node {number:03d}" for number in (*range(6), *classifier.suggest(10).tolist())} <= drawn


def test_very_many_classes(tmp_path):
    graph = make_graph(160, classes=40)
    graph.train_mask = torch.arange(160) < 120
    fitted = GCKMClassifier(**QUICK).fit(graph)
    write_report(tmp_path / "page.html", fitted, embedding="pca")
    page = read(tmp_path / "page.html")
    assert "22 other classes" in page.drawn  # Of the legend.
    assert "predicted as" in page.all_text  # A list of confusions, not a matrix.
