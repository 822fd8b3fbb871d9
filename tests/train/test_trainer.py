import csv
import math

import pytest
import torch

from tests.conftest import make_graph
from tests.train.helpers import KeepStep, model_for
from torch_gckm import GCKM, History, Trainer
from torch_gckm.errors import GCKMWarning, InvalidInputError, InvalidLabelError, NotFittedError
from torch_gckm.kernels import RBF
from torch_gckm.manifold import orthogonality_error
from torch_gckm.optim import CayleyAdam, param_groups
from torch_gckm.train import accuracy


def test_history_records_every_step(graph):
    history = Trainer(model_for(graph), steps=4, progress=False).fit(graph)
    assert [record.step for record in history] == [0, 1, 2, 3, 4]
    assert all(math.isfinite(v) for r in history for v in (r.loss, r.orthogonality, r.train_acc, r.val_acc, r.cosine))
    assert math.isfinite(history.records[0].leave_one_out)
    assert all(math.isnan(record.leave_one_out) for record in history.records[1:])
    assert all(record.orthogonality < 1e-5 for record in history)
    seconds = [record.seconds for record in history]
    assert seconds == sorted(seconds)


def test_one_step_is_algorithm_1(graph64):
    """Gradient of J with H3 fixed, a Cayley Adam step on H1 and H2, then the solve."""
    weights = [3.0, 1.0, 1.5]
    by_hand, trained = (model_for(graph64, loss_weights=weights) for _ in range(2))
    by_hand.initialize(graph64)
    by_hand.solve(graph64)
    optimizer = CayleyAdam(param_groups(by_hand), lr=1.0, betas=(0.0, 0.99))
    by_hand.loss(graph64).backward()
    optimizer.step()
    by_hand.solve(graph64)

    KeepStep(trained, steps=1).fit(graph64)
    for a, b in zip(by_hand.layers, trained.layers, strict=True):
        torch.testing.assert_close(a.h, b.h)
    torch.testing.assert_close(by_hand.readout.scores, trained.readout.scores)


@pytest.mark.parametrize("power", [0.0, 0.5])
def test_gradient_of_the_joint_objective(graph64, power):
    """J as the paper prints it (with the lemma's sign), differentiated by autograd through dense matrices.

    For power 0 it is the paper's; for others the layers above read columns of H with constant weights.
    """
    kernels = [RBF(3.0), RBF(0.5), RBF(0.2)]
    model = model_for(graph64, kernel=kernels, loss_weights=[2.0, 0.7, 1.3], power=power)
    model.initialize(graph64)
    model.solve(graph64)
    model.loss(graph64).backward()
    first, second = model.layers
    h1, h2 = (layer.h.detach().clone().requires_grad_() for layer in (first, second))
    h3, n = model.readout.h.detach(), 60
    values = [layer.eigenvalues / layer.eigenvalues[0] for layer in (first, second)]
    z1, z2 = (h * v**power * n**0.5 if power else h for h, v in zip((h1, h2), values, strict=True))
    centre = torch.eye(n, dtype=torch.float64) - 1 / n
    k1 = RBF(3.0)(first.aggregation(graph64.x, graph64.edge_index))
    k2 = RBF(0.5)(second.aggregation(z1, graph64.edge_index))
    k3 = RBF(0.2)(z2)
    label = graph64.train_mask.double()
    codes = 2.0 * torch.nn.functional.one_hot(graph64.y, 3).double() - 1
    r = torch.diag(1 / k3.sum(dim=1) - label / 0.1)
    supervised = -torch.trace(h3.t() @ r @ k3 @ r @ h3) / 2 + torch.trace(h3.t() @ r @ h3) / 2
    supervised = supervised - torch.trace(h3.t() @ torch.diag(label) @ codes) / 0.1
    j = -2.0 * torch.trace(h1.t() @ centre @ k1 @ centre @ h1) / 2
    j = j - 0.7 * torch.trace(h2.t() @ centre @ k2 @ centre @ h2) / 2 + 1.3 * supervised
    torch.testing.assert_close(model.loss(graph64).detach(), (j / n).detach())
    gradients = torch.autograd.grad(j / n, [h1, h2])
    for layer, expected in zip(model.layers, gradients, strict=True):
        torch.testing.assert_close(layer.h.grad, expected, atol=1e-10, rtol=1e-6)


@pytest.mark.parametrize("monitor", ["cosine", "val_acc", "combined"])
def test_the_best_step_is_kept_and_consistent(graph64, monitor):
    model = model_for(graph64)
    history = Trainer(model, steps=6, monitor=monitor, progress=False).fit(graph64)
    values = [record.monitored for record in history]
    assert history.best_step == values.index(max(values))
    assert history.best.monitored == max(values)
    assert accuracy(model.predict(), graph64.y, graph64.test_mask) == history.best.test_acc
    assert float(model.loss(graph64).detach()) == pytest.approx(history.best.loss)
    scores = model.readout.scores.clone()
    torch.testing.assert_close(model.readout.transform(model.embed()), scores, atol=1e-8, rtol=0)
    torch.testing.assert_close(model.solve(graph64), scores)
    support = model.layers[1].fit.rows().view("h").dense()
    torch.testing.assert_close(support, model.layers[1].aggregation(model.layers[0].z, graph64.edge_index).detach())


def test_no_label_outside_the_training_mask_is_used(graph):
    first, second = model_for(graph), model_for(graph)
    Trainer(first, steps=3, progress=False).fit(graph)
    blind = graph.clone()
    blind.y = torch.where(graph.train_mask, graph.y, -1)
    del blind.val_mask, blind.test_mask
    Trainer(second, steps=3, progress=False).fit(blind)
    assert torch.equal(first.readout.scores, second.readout.scores)


def test_is_deterministic_and_touches_no_global_seed(graph):
    results, state = [], torch.random.get_rng_state()
    for _ in range(2):
        model = model_for(graph)
        Trainer(model, steps=3, init="random", seed=3, progress=False).fit(graph)
        results.append(model.readout.scores)
    assert torch.equal(*results)
    assert torch.equal(state, torch.random.get_rng_state())


def test_random_initialisation_trains_towards_kernel_pca(graph):
    model = model_for(graph)
    history = Trainer(model, steps=30, init="random", progress=False).fit(graph)
    assert history.records[-1].loss < history.records[0].loss
    other = model_for(graph)
    Trainer(other, steps=0, init="random", seed=7, progress=False).fit(graph)
    assert float(orthogonality_error(other.layers[0].h)) < 1e-5


def test_early_stopping(graph):
    history = Trainer(model_for(graph), steps=50, patience=2, progress=False).fit(graph)
    assert len(history) == history.best_step + 3


def test_leave_out_scores_after_a_fit_belong_to_the_kept_state(graph):
    model = model_for(graph)
    history = Trainer(model, steps=0, progress=False).fit(graph)
    left_out = model.readout.leave_one_out().argmax(dim=1)
    assert float((left_out == graph.y[graph.train_mask]).double().mean()) == history.best.leave_one_out
    history = Trainer(model, steps=4, progress=False).fit(graph)
    assert history.best_step < 4
    with pytest.raises(NotFittedError, match="factors"):
        model.readout.leave_one_out()
    model.solve(graph)
    assert model.readout.leave_one_out().shape == (6, 3)


def test_a_failed_refit_leaves_no_mixture(graph):
    model, other = model_for(graph), make_graph(80, seed=1)
    Trainer(model, steps=0, progress=False).fit(graph)
    before = model.predict()
    unlabelled = other.clone()
    unlabelled.y = torch.full((80,), -1)
    with pytest.raises(InvalidLabelError, match="not a single node"):
        Trainer(model, steps=0, progress=False).fit(unlabelled)
    assert torch.equal(model.predict(), before)  # Refused before anything was touched.
    model.initialize(other)
    with pytest.raises(NotFittedError):
        model.predict()
    Trainer(model, steps=0, progress=False).fit(other)
    assert model.predict().shape == (80,)


def test_learned_kernels_train_at_their_own_rate(graph):
    model = model_for(graph, kernel=[RBF(3.0), RBF(0.5, learnable=True), RBF(0.2)])

    KeepStep(model, steps=3, kernel_lr=0.01).fit(graph)
    change = abs(math.log(float(model.layers[1].kernel.log_sigma2.detach().exp()) / 0.5))
    assert 0.0 < change < 0.04


def test_history_round_trip_and_csv(graph, tmp_path):
    history = Trainer(model_for(graph), steps=2, progress=False).fit(graph)
    copy = History.from_dict(history.to_dict())
    assert repr(copy) == repr(history)
    assert copy.to_dict()["loss"] == history.to_dict()["loss"]
    history.to_csv(tmp_path / "history.csv")
    with open(tmp_path / "history.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["loss"]) for row in rows] == [record.loss for record in history]
    assert repr(History("cosine")) == "History(monitor='cosine', empty)"


def test_splits_and_missing_masks(graph):
    many = graph.clone()
    for name in ("train_mask", "val_mask", "test_mask"):
        many[name] = torch.stack([~graph[name], graph[name]], dim=1)
    first, second = model_for(graph), model_for(graph)
    Trainer(first, steps=1, progress=False).fit(graph)
    Trainer(second, steps=1, progress=False).fit(many, split=1)
    assert torch.equal(first.readout.scores, second.readout.scores)
    bare = graph.clone()
    del bare.train_mask, bare.val_mask, bare.test_mask
    with pytest.warns(GCKMWarning, match="every node is labelled"):
        history = Trainer(model_for(graph), steps=1, progress=False).fit(bare)
    assert math.isnan(history.best.cosine)
    assert history.best_step == 0


def test_progress_bar(graph, capsys):
    Trainer(model_for(graph), steps=1).fit(graph)
    assert "fine-tuning: 100%" in capsys.readouterr().err


def test_bad_input(graph):
    model = model_for(graph)
    with pytest.raises(InvalidInputError, match="step 0 only"):
        Trainer(model, monitor="leave_one_out")
    for arguments in ({"steps": -1}, {"patience": 0}, {"checkpoint_every": 0}):
        with pytest.raises(InvalidInputError):
            Trainer(model, **arguments)
    blind = graph.clone()
    del blind.val_mask
    with pytest.raises(InvalidInputError, match="needs a val_mask"):
        Trainer(model, monitor="val_acc").fit(blind)
    with pytest.raises(InvalidInputError, match="no labels"):
        Trainer(model).fit(type(graph)(x=graph.x, edge_index=graph.edge_index))
    assert repr(Trainer(model)) == "Trainer(steps=10, lr=1, monitor='cosine', init='kernel_pca')"


def test_other_graph_features(graph):
    data = make_graph(50, seed=3)
    data.x = data.x.to(torch.float64)
    model = GCKM(8, (6, 4), 3)  # A float32 model takes float64 features.
    Trainer(model, steps=1, progress=False).fit(data)
    assert model.readout.scores.dtype == torch.float32
