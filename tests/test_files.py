import pytest
import torch

from tests.conftest import make_graph
from torch_gckm import GCKM, Trainer
from torch_gckm.errors import InvalidInputError
from torch_gckm.files import load_tensors, save_tensors, write_atomically
from torch_gckm.select import GCKMEnsemble


def test_there_and_back(tmp_path):
    path = tmp_path / "new" / "file.pt"
    save_tensors({"a": torch.arange(3), "b": "text"}, path)
    content = load_tensors(path)
    assert content["a"].tolist() == [0, 1, 2]
    assert content["b"] == "text"


def test_whole_or_not_at_all(tmp_path):
    path = tmp_path / "deep" / "file"
    write_atomically(path, lambda file: file.write(b"old"))

    def write(file):
        file.write(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, write)
    assert path.read_text() == "old"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("content", [b"", b"node,class\n", b"\xff\xfen\x000\x00", b"PK\x03\x04 and no more"])
def test_other_files_are_refused(tmp_path, content):
    path = tmp_path / "file.pt"
    path.write_bytes(content)
    with pytest.raises(InvalidInputError, match="is not a file of torch_gckm"):
        load_tensors(path)


def test_code_is_not_executed(tmp_path, capsys):
    class Evil:
        def __reduce__(self):
            return print, ("executed",)

    save_tensors({"x": Evil()}, tmp_path / "evil.pt")
    with pytest.raises(InvalidInputError, match="is not a file of torch_gckm"):
        load_tensors(tmp_path / "evil.pt")
    assert capsys.readouterr().out == ""


def test_damaged_files_are_refused(tmp_path):
    path = tmp_path / "file.pt"
    save_tensors({"a": torch.arange(1000)}, path)
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(InvalidInputError, match="damaged"):
        load_tensors(path)
    torch.save([1, 2], path)
    with pytest.raises(InvalidInputError, match="is not a file of torch_gckm"):
        load_tensors(path)


def test_models_and_ensembles_know_each_other(tmp_path):
    graph = make_graph()
    model = GCKM(graph.num_features, (4, 3), 3)
    Trainer(model, steps=0, progress=False).fit(graph)
    model.save(tmp_path / "model.pt")
    alone = GCKMEnsemble.load(tmp_path / "model.pt")
    torch.testing.assert_close(alone.predict_proba(), model.predict_proba())
    assert torch.equal(alone.labelled, model.readout.labelled)
    GCKMEnsemble([model]).save(tmp_path / "ensemble.pt")
    with pytest.raises(InvalidInputError, match=r"GCKMEnsemble\.load"):
        GCKM.load(tmp_path / "ensemble.pt")
