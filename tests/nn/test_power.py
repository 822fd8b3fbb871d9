"""What a layer's output keeps of the spectrum: Z = H (lambda / lambda_1)^power sqrt(n)."""

import copy
import warnings

import pytest
import torch
from sklearn.decomposition import KernelPCA

from tests.conftest import make_graph
from torch_gckm import GCKM, Trainer
from torch_gckm.errors import LowRankWarning
from torch_gckm.gram import LowRank
from torch_gckm.kernels import RBF
from torch_gckm.nn import GCKMConv, KernelLayers, LayerSettings, ModelSettings, Propagation, PropagationSettings
from torch_gckm.nn.layer_fit import spectral_scale

GRAMS = {"dense": "dense", "low_rank": LowRank(max_rank=40)}


def layer(data, **arguments):
    arguments = {"kernel": RBF(2.0), **arguments}
    return GCKMConv(8, arguments.pop("channels", 5), **arguments).to(data.x.dtype).initialize(data.x, data.edge_index)


def new_nodes(seed=5):
    data = make_graph(40, seed=seed)
    data.x = data.x.double()
    return data


def test_one_half_gives_the_coordinates_of_kernel_pca(graph64):
    conv = layer(graph64)
    propagated, new = Propagation()(graph64.x, graph64.edge_index), new_nodes()
    pca = KernelPCA(5, kernel="rbf", gamma=1 / 4, eigen_solver="dense").fit(propagated.numpy())
    factor = (60 / conv.eigenvalues[0]) ** 0.5  # One for all columns.
    for ours, theirs in (
        (conv(graph64.x, graph64.edge_index).detach(), pca.transform(propagated.numpy())),
        (conv.transform(new.x, new.edge_index), pca.transform(Propagation()(new.x, new.edge_index).numpy())),
    ):
        theirs = torch.from_numpy(theirs)
        signs = (ours * theirs).sum(dim=0).sign()
        torch.testing.assert_close(ours, factor * signs * theirs, atol=1e-8, rtol=1e-8)


@pytest.mark.parametrize("power", [0.0, 0.3, 0.5, 1.0, 2.0])
def test_columns_are_weighted_by_powers_of_eigenvalues(graph64, power):
    conv = layer(graph64, power=power)
    values = conv.eigenvalues
    expected = conv.h * (values / values[0]) ** power * 60**0.5 if power else conv.h
    torch.testing.assert_close(conv.z, expected)
    torch.testing.assert_close(conv.h, layer(graph64, power=0.0).h)  # The parameter itself does not depend on it.


def test_scale_of_odd_spectra():
    assert torch.equal(spectral_scale(torch.tensor([3.0, 1.0]), 4, 0.0), torch.ones(2))
    torch.testing.assert_close(spectral_scale(torch.tensor([4.0, 1.0]), 9, 0.5), torch.tensor([3.0, 1.5]))
    # A random start may have values of any order and sign; none may become NaN.
    torch.testing.assert_close(spectral_scale(torch.tensor([1.0, 4.0, -1e-9]), 9, 0.5), torch.tensor([1.5, 3.0, 0.0]))
    assert torch.equal(spectral_scale(torch.zeros(2), 9, 0.5), torch.zeros(2))


def test_layers_and_readout_read_the_output(graph64):
    model = GCKM(8, (6, 4), 3, power=[0.5, 1.0]).double()
    Trainer(model, steps=0, progress=False).fit(graph64)
    first, second = model.layers
    assert (first.power, second.power) == (0.5, 1.0)
    torch.testing.assert_close(second.fit.rows().view("h").dense(), Propagation()(first.z, graph64.edge_index).detach())
    torch.testing.assert_close(model.readout.fit.rows().view("h").dense(), second.z.detach())


@pytest.mark.parametrize("power", [0.5, 1.0])
def test_gradient_of_the_objective_by_finite_differences(graph64, power):
    """Every layer's H, off kernel PCA, with the readout's solution held fixed."""
    model = GCKM(8, (5, 4), 3, kernel=[RBF(3.0), RBF(2.0), RBF(2.0)], loss_weights=[1.5, 0.7, 1.2], power=power)
    model = model.double().initialize(graph64)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for conv in model.layers:
            conv.h.add_(0.05 * torch.randn(conv.h.shape, generator=generator, dtype=torch.float64))
    model.solve(graph64)
    prepared, step = model.prepare(graph64), 1e-5
    model.loss(prepared).backward()
    for conv in model.layers:
        direction = torch.randn(conv.h.shape, generator=generator, dtype=torch.float64)
        values = []
        for shift in (step, -2 * step, step):  # There, to the other side, and back.
            with torch.no_grad():
                conv.h.add_(shift * direction)
            values.append(float(model.loss(prepared).detach()))
        found = (values[0] - values[1]) / (2 * step)
        assert found == pytest.approx(float((conv.h.grad * direction).sum()), rel=1e-6)
        assert abs(found) > 1e-4


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("gram", GRAMS)
def test_the_extension_returns_the_output_or_follows_the_formula(graph64, gram, power):
    conv = layer(graph64, gram=GRAMS[gram], power=power)
    found = conv.transform(graph64.x, graph64.edge_index)
    torch.testing.assert_close(found, conv.z.detach(), atol=1e-8 if gram == "dense" else 2e-3, rtol=0.0)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        noise = torch.randn(conv.h.shape, generator=generator, dtype=torch.float64)
        conv.h.copy_(torch.linalg.qr(conv.h + 0.03 * noise)[0])
    new = new_nodes()
    k = RBF(2.0)(Propagation()(graph64.x, graph64.edge_index))
    k_new = RBF(2.0)(Propagation()(new.x, new.edge_index), Propagation()(graph64.x, graph64.edge_index))
    centred = conv.h.detach() - conv.h.detach().mean(dim=0)
    spectrum = centred.t() @ k @ centred
    expected = (k_new @ centred - (k @ centred).mean(dim=0)) @ torch.linalg.inv(spectrum) * conv.fit.scale
    found = conv.transform(new.x, new.edge_index)
    torch.testing.assert_close(
        found, expected, rtol=1e-6 if gram == "dense" else 5e-2, atol=1e-8 + 0.02 * (gram != "dense")
    )


@pytest.mark.parametrize("gram", GRAMS)
@pytest.mark.parametrize("power", [0.5, 1.0])
def test_small_eigenvalues_are_not_amplified(graph, gram, power):
    """Many channels of a wide kernel in single precision: the last eigenvalues are mostly rounding."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LowRankWarning)
        conv = layer(graph, channels=30, kernel=RBF(300.0), gram=GRAMS[gram], power=power)
    values = conv.eigenvalues
    assert float(values[-1]) < 1e-5 * float(values[0])
    exact = copy.deepcopy(graph)
    exact.x = graph.x.double()
    near = exact.clone()
    near.x = exact.x + 1e-3 * torch.randn(
        exact.x.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    own, moved = (conv.transform(data.x.float(), data.edge_index) for data in (exact, near))
    largest = float(conv.z.detach().abs().max())
    assert float((own - conv.z.detach()).abs().max()) < 0.05 * largest
    assert float((moved - conv.z.detach()).abs().max()) < 0.2 * largest


@pytest.mark.parametrize("gram", GRAMS)
def test_files_and_copies_carry_power_alpha_and_scale(graph, tmp_path, gram):
    arguments = {"aggregation": [Propagation("ppr", 4, alpha=0.3), Propagation("ssgc", 3, alpha=0.2)]}
    model = GCKM(8, (6, 4), 3, power=[0.25, 1.0], gram=GRAMS[gram], **arguments)
    Trainer(model, steps=2, progress=False).fit(graph)
    model.save(tmp_path / "model.pt")
    model.save(tmp_path / "small.pt", inductive=True)
    loaded, small, new = GCKM.load(tmp_path / "model.pt"), GCKM.load(tmp_path / "small.pt"), make_graph(20, seed=4)
    twin = GCKM(8, (6, 4), 3, power=[0.25, 1.0], gram=GRAMS[gram], **copy.deepcopy(arguments))
    twin.load_state_dict(model.state_dict())
    for found in (loaded, twin, copy.deepcopy(model)):
        assert [conv.power for conv in found.layers] == [0.25, 1.0]
        assert [conv.aggregation.key[:4] for conv in found.layers] == [("ppr", 4, "in", 0.3), ("ssgc", 3, "in", 0.2)]
        for ours, theirs in zip(found.layers, model.layers, strict=True):
            assert torch.equal(ours.fit.scale, theirs.fit.scale)
            assert torch.equal(ours.z, theirs.z)
        assert torch.equal(found.embed(), model.embed())
        assert torch.equal(found.scores(new), model.scores(new))
        assert found.settings == model.settings
    assert small.settings == model.settings
    assert torch.equal(small.scores(new), model.scores(new))
    torch.testing.assert_close(small.embed(new), model.transform(new))
    single = copy.deepcopy(model).double()
    assert single.layers[0].fit.scale.dtype == single.embed().dtype == torch.float64


def test_settings_go_round():
    made = ModelSettings(
        (
            LayerSettings(6, RBF(3.0).config(), PropagationSettings("ssgc", 8, "both"), 0.7),
            LayerSettings(4, RBF().config(), PropagationSettings("ppr", 3, alpha=0.25), 0.0),
        ),
        GCKM(8, (), 3).settings.readout,
        "l2",
    )
    assert ModelSettings.from_dict(made.to_dict()) == made
    found = GCKM.from_settings(made, 8, 3).settings
    assert [layer.propagation for layer in found.layers] == [layer.propagation for layer in made.layers]
    assert [layer.power for layer in found.layers] == [0.7, 0.0]
    assert "ssgc^8 both 6 power=0.7" in str(made)
    assert "ppr^3 alpha=0.25 4 power=0" in str(made)
    assert len(set(made.layer_keys())) == 2
    other = ModelSettings(
        (LayerSettings(6, RBF(3.0).config(), PropagationSettings("ssgc", 8, "both"), 0.5),), made.readout, "l2"
    )
    assert other.layer_keys()[0] != made.layer_keys()[0]
    layers = KernelLayers(8, (6, 4), power=[0.7, 0.0])
    assert [conv.settings().power for conv in layers.layers] == [0.7, 0.0]
