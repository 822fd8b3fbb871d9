import pytest
import torch

from tests.conftest import make_graph
from tests.select.helpers import quick
from torch_gckm.errors import InvalidInputError
from torch_gckm.readout import Machine, p_values
from torch_gckm.select import GCKMEnsemble


@pytest.fixture(scope="module")
def searched():
    data = make_graph(90)
    data.train_mask[:24] = True
    return data, quick(data)


def test_self_training_and_files_change_nothing(searched, tmp_path):
    result = searched[1]
    plain, trained = result.ensemble(3, self_training=False), result.ensemble(3)
    assert trained.members[0].readout.labelled.numel() > 24  # It did learn from further nodes.
    torch.testing.assert_close(plain.p_values(), trained.p_values())
    trained.save(tmp_path / "ensemble.pt")
    loaded = GCKMEnsemble.load(tmp_path / "ensemble.pt")
    torch.testing.assert_close(loaded.p_values(per_class=True), trained.p_values(per_class=True))


def test_are_small_and_hold_the_class(searched):
    data, result = searched
    sets = result.ensemble(3).predict_set(0.9)
    assert torch.equal(sets[:24], torch.nn.functional.one_hot(data.y[:24], 3).bool())
    assert float(sets[24:].gather(1, data.y[24:, None]).double().mean()) > 0.7  # Of one draw of labels.
    assert float(sets[24:].sum(dim=1).double().mean()) < 2.0


def test_of_one_member_are_those_of_its_readout(searched):
    ensemble = searched[1].ensemble(1, self_training=False)
    readout = ensemble.members[0].readout
    expected = p_values([Machine(readout.fit.solution, readout.codes)], readout.fit.label_class)
    torch.testing.assert_close(ensemble.p_values(), expected)


def test_bad_coverage(searched):
    with pytest.raises(InvalidInputError, match="between 0 and 1"):
        searched[1].ensemble(1).predict_set(1.5)
