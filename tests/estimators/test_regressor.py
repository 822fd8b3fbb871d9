import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.metrics import r2_score
from torch_geometric.data import Data

from tests.conftest import make_graph, permute_graph
from torch_gckm import GCKMRegressor
from torch_gckm.errors import GCKMError, InvalidInputError
from torch_gckm.estimators import GCKMClassifier
from torch_gckm.select import InductiveValueEnsemble, ValueEnsemble, search
from torch_gckm.select.ensemble_files import ensemble_from
from torch_gckm.select.values import explained, means_of_others

QUICK = {"search": None, "members": 3, "progress": False}
pytestmark = pytest.mark.filterwarnings("ignore::torch_gckm.errors.LowRankWarning")


def smooth(known=24, columns=None):
    """A graph whose targets are smooth functions of the clusters, known for some nodes."""
    data = make_graph(90)
    target = 10.0 + 3.0 * data.y + data.x[:, 0]
    if columns:
        target = torch.stack([target, -100.0 * data.x[:, 1]], dim=1)
    data.train_mask = torch.arange(90) < known
    data.test_mask = ~data.train_mask
    data.y = target
    return data


@pytest.fixture(scope="module")
def fitted():
    data = smooth()
    return GCKMRegressor(**QUICK).fit(data), data


class TestGraph:
    def test_predicts_better_than_the_mean(self, fitted):
        regressor, data = fitted
        assert regressor.predict().shape == (90,)
        assert regressor.score(data) > 0.4
        true, found = data.y[data.test_mask], regressor.predict()[data.test_mask]
        assert regressor.score(data) == pytest.approx(r2_score(true, found), abs=1e-6)

    def test_other_targets_are_not_seen(self, fitted):
        regressor, data = fitted
        hidden = data.clone()
        hidden.y = torch.where(data.train_mask, data.y, torch.nan)
        del hidden.train_mask
        torch.testing.assert_close(GCKMRegressor(**QUICK).fit(hidden).predict(), regressor.predict())
        other = data.clone()
        other.y = torch.where(data.train_mask, data.y, 1e6)
        torch.testing.assert_close(GCKMRegressor(**QUICK).fit(other).predict(), regressor.predict())

    def test_spread_is_that_of_withheld_targets(self, fitted):
        regressor, data = fitted
        values, spread = regressor.predict(return_std=True)
        known = data.y[data.train_mask]
        left_out = torch.stack([m.readout.leave_one_out() for m in regressor.model_.members]).mean(dim=0)
        error = (left_out.squeeze(1) - known).square().mean().sqrt()
        torch.testing.assert_close(spread, error.expand(90), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(values, regressor.predict())
        assert float(spread[0]) > 0.9 * float((values - data.y)[data.train_mask].square().mean().sqrt())

    def test_units(self, fitted):
        regressor, data = fitted
        other = data.clone()
        other.y = 100.0 * data.y + 7.0
        moved = GCKMRegressor(**QUICK).fit(other)
        torch.testing.assert_close(moved.predict(), 100.0 * regressor.predict() + 7.0, rtol=1e-3, atol=1e-2)
        torch.testing.assert_close(moved.model_.deviation, 100.0 * regressor.model_.deviation, rtol=1e-3, atol=1e-2)

    def test_order_of_nodes(self, fitted):
        regressor, data = fitted
        order = torch.randperm(90, generator=torch.Generator().manual_seed(1))
        moved = GCKMRegressor(**QUICK).fit(permute_graph(data, order))
        torch.testing.assert_close(moved.predict(), regressor.predict()[order], rtol=1e-3, atol=1e-3)

    def test_a_column_that_some_nodes_lack(self):
        data = smooth(40, columns=True)
        data.y[:14, 1] = torch.nan
        both = GCKMRegressor(**QUICK).fit(data)
        errors = both.predict() - smooth(columns=True).y
        spread = smooth(columns=True).y.std(dim=0)
        assert (errors[data.test_mask].square().mean(dim=0).sqrt() < 0.9 * spread).all()
        assert both.model_.left_out().isnan().sum() == 14
        assert both.model_.deviation.isfinite().all()

    def test_several_columns(self):
        data = smooth(columns=2)
        regressor = GCKMRegressor(**QUICK).fit(data)
        values, spread = regressor.predict(return_std=True)
        assert values.shape == spread.shape == (90, 2)
        assert float(spread[0, 1]) > 10 * float(spread[0, 0])

    def test_new_graph(self, fitted):
        regressor, data = fitted
        same = Data(x=data.x.clone(), edge_index=data.edge_index)
        torch.testing.assert_close(regressor.predict(same), regressor.predict())
        rows = regressor.predict(data.x[:5].numpy() + 0.01)
        assert rows.shape == (5,)
        assert float((rows - regressor.predict()[:5]).abs().max()) < 3.0

    def test_whole_numbers_are_numbers(self):
        data = smooth()
        data.y = data.y.round().long()
        assert GCKMRegressor(**QUICK).fit(data).predict().is_floating_point()


class TestRows:
    def test_unknown_rows(self):
        data = smooth()
        X, y = data.x.numpy(), np.where(data.train_mask, data.y, np.nan)
        regressor = clone(GCKMRegressor(**QUICK)).fit(X, y)
        predicted = regressor.predict(X)
        assert isinstance(predicted, np.ndarray)
        assert predicted.shape == (90,)
        assert r2_score(data.y[data.test_mask], predicted[data.test_mask.numpy()]) > 0.3
        part = regressor.score(X[24:60], data.y[24:60].numpy())
        held = np.concatenate([data.y[24:60].numpy(), np.full(30, np.nan)])
        assert regressor.score(X[24:], held) == pytest.approx(part)

    def test_edges(self):
        data = smooth()
        y = torch.where(data.train_mask, data.y, torch.nan)
        rows = GCKMRegressor(**QUICK).fit(data.x, y, edge_index=data.edge_index).predict()
        assert np.allclose(rows, GCKMRegressor(**QUICK).fit(data).predict(), atol=1e-5)


class TestFiles:
    def test_whole_and_for_new_graphs(self, fitted, tmp_path):
        regressor, data = fitted
        regressor.save(tmp_path / "whole.pt")
        regressor.save(tmp_path / "small.pt", inductive=True)
        whole, small = GCKMRegressor.load(tmp_path / "whole.pt"), GCKMRegressor.load(tmp_path / "small.pt")
        assert isinstance(whole.model_, ValueEnsemble)
        assert isinstance(small.model_, InductiveValueEnsemble)
        assert torch.equal(whole.predict(), regressor.predict())
        torch.testing.assert_close(small.predict(data), regressor.predict(), atol=1e-2, rtol=1e-2)
        assert torch.equal(small.predict(data, return_std=True)[1], regressor.predict(return_std=True)[1])
        with pytest.raises(InvalidInputError, match="the regressor was saved with inductive=True"):
            small.predict()
        regressor.model_.save(tmp_path / "ensemble.pt")
        with pytest.raises(InvalidInputError, match="not a file of a regressor"):
            GCKMRegressor.load(tmp_path / "ensemble.pt")
        with pytest.raises(InvalidInputError, match="not a file of a classifier"):
            GCKMClassifier.load(tmp_path / "whole.pt")

    def test_an_ensemble_by_itself(self, fitted):
        ensemble = fitted[0].model_
        read = ensemble_from(ensemble.content(), "a file")
        assert isinstance(read, ValueEnsemble)
        assert torch.equal(read.predict(), ensemble.predict())


class TestSearch:
    def test_ranks_by_withheld_errors(self):
        data = smooth()
        result = search(data, budget=None, max_settings=8, numeric=True, progress=False, workers=1)
        best, last = result.ranked()[0], result.ranked()[-1]
        assert best.measures["leave_one_out"] > last.measures["leave_one_out"]
        assert set(best.measures) == {"leave_one_out"}
        assert best.setting.readout.class_weight is None
        known = data.y[:24].double().unsqueeze(1)
        left_out = result.evaluator.solve(best.setting).readout.leave_one_out()
        guess = means_of_others(known, torch.ones(24))
        torch.testing.assert_close(guess[3], torch.cat([known[:3], known[4:]]).mean(dim=0))
        assert best.measures["leave_one_out"] == pytest.approx(explained(left_out, known, guess), abs=1e-3)
        assert "one out" in result.table()

    def test_checkpoint_knows_the_targets(self, tmp_path):
        data, path = smooth(), tmp_path / "search.pt"
        options = {
            "budget": None,
            "max_settings": 3,
            "progress": False,
            "workers": 1,
            "checkpoint": path,
            "numeric": True,
        }
        assert len(search(data, **options)) == 3
        data.y[0] += 1.0
        with pytest.raises(GCKMError, match="other labels"):
            search(data, **options)

    def test_no_classes(self, fitted):
        ensemble = fitted[0].model_
        for ask in (ensemble.predict_proba, ensemble.suggest, lambda: ensemble.self_train_on(None)):
            with pytest.raises(InvalidInputError, match="numbers"):
                ask()
        with pytest.raises(InvalidInputError, match="about classes"):
            search(fitted[1], criterion="cosine", max_settings=1, numeric=True, progress=False)


BAD = {
    "constant": (lambda y: torch.full_like(y, 3.0), "nothing to learn"),
    "infinite": (lambda y: y.index_fill(0, torch.tensor(2), torch.inf), "node 2"),
    "shape": (lambda y: y[:-1], "have the shape"),
    "unknown": (lambda y: torch.full_like(y, torch.nan), "every node is unknown"),
    "complex": (lambda y: y + 0j, "real targets are numbers"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_targets(name):
    change, message = BAD[name]
    data = smooth()
    data.y = change(data.y)
    with pytest.raises(GCKMError, match=message):
        GCKMRegressor(**QUICK).fit(data)
