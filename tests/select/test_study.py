import pytest

from tests.conftest import make_graph
from tests.select.helpers import SMALL
from torch_gckm.errors import GraphMismatchError
from torch_gckm.select import Space
from torch_gckm.select.study import study_search

pytest.importorskip("optuna", reason="optuna is not installed (extra 'tune')")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")


def test_two_processes_share_a_study(graph, tmp_path):
    storage = f"sqlite:///{tmp_path / 'study.db'}"
    options = {"budget": None, "max_settings": 6, "storage": storage, "progress": False}
    first = study_search(graph, SMALL, seed=0, **options)
    second = study_search(graph, SMALL, seed=1, **options)
    assert (len(first), len(second)) == (6, 12)
    assert [t.setting for t in second.trials[:6]] == [t.setting for t in first.trials]
    predicted = second.ensemble(3).predict()
    assert float((predicted == graph.y)[graph.test_mask].double().mean()) > 0.6


def test_a_study_is_of_one_graph(graph, tmp_path):
    storage = f"sqlite:///{tmp_path / 'study.db'}"
    options = {"budget": None, "max_settings": 2, "storage": storage, "progress": False}
    study_search(graph, SMALL, **options)
    with pytest.raises(GraphMismatchError, match="the study 'gckm' belongs to another search: other graph"):
        study_search(make_graph(50), SMALL, **options)
    with pytest.raises(GraphMismatchError, match="other space"):
        study_search(graph, Space(channels=(3,)), **options)
