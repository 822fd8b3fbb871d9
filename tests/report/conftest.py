import pytest
import torch

from tests.browser import browser  # noqa: F401 (a fixture)
from tests.conftest import make_graph
from torch_gckm import GCKMClassifier, GCKMRegressor
from torch_gckm.select import search

QUICK = {"search": None, "members": 3, "progress": False}
EVIL = ["<b>&ant", 'bee" onload="x', "c'a$t$ $$x^2$$ </script><script>document.title = 1</script>"]


@pytest.fixture(scope="package")
def data():
    return make_graph()


@pytest.fixture(scope="package")
def result(data):
    return search(data, budget=None, max_settings=12, workers=1, progress=False)


@pytest.fixture(scope="package")
def ensemble(result):
    return result.ensemble(5)


@pytest.fixture(scope="package")
def classifier():
    nodes = [f"node {number:03d}" for number in range(90)]
    return GCKMClassifier(**QUICK).fit(make_graph(90), class_names=["ant", "bee", "cat"], node_names=nodes)


@pytest.fixture(scope="package")
def regressor():
    graph = make_graph(90)
    graph.y = 10 * graph.x[:, 0].double() + 100
    graph.train_mask = torch.arange(90) < 30
    graph.test_mask = ~graph.train_mask
    return GCKMRegressor(**QUICK).fit(graph, node_names=[f"<i>{number}</i>" for number in range(90)])


@pytest.fixture(scope="package")
def several():
    graph = make_graph(90)
    graph.y = torch.stack([graph.y == 0, graph.y != 1, graph.y == 2], dim=1).long()
    graph.train_mask = torch.arange(90) < 24
    graph.test_mask = ~graph.train_mask
    return GCKMClassifier(**QUICK).fit(graph, class_names=["first", "not the <second>", "third"])
