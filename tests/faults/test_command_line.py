"""Options of the command line, and outputs that it could spoil."""

import os
import subprocess
import sys
from xml.etree import ElementTree

import pytest
import torch

from tests.faults.tables import NAMES, QUICK, Tables, write
from torch_gckm.cli import main


@pytest.fixture
def tables(tmp_path):
    return Tables(tmp_path)


class TestOutputs:
    @pytest.mark.parametrize("option", ["--predictions", "--report"])
    @pytest.mark.parametrize("name", ["x", "edges", "y"])
    def test_they_do_not_overwrite_inputs(self, tables, capsys, option, name):
        path = getattr(tables, name)
        before = path.read_bytes()
        assert tables.fit(option, str(tables.folder / "." / path.name)) == 2
        assert "would be overwritten" in capsys.readouterr().err
        assert path.read_bytes() == before

    def test_nor_each_other(self, tables, capsys):
        assert tables.fit("--predictions", str(tables.folder / "model.pt")) == 2
        assert "would be overwritten" in capsys.readouterr().err
        assert tables.fit() == 0
        model = str(tables.folder / "model.pt")
        assert main(["predict", model, "--output", model]) == 2
        assert main(["info", model]) == 0

    def test_checkpoints_are_outputs(self, tables, capsys):
        assert tables.fit("--checkpoint", str(tables.folder / "model.pt")) == 2
        assert "would be overwritten" in capsys.readouterr().err

    def test_what_cannot_be_written_is_known_before_the_work(self, tables, capsys):
        assert tables.fit("--predictions", str(tables.y / "classes.csv")) == 2
        assert "cannot write" in capsys.readouterr().err
        assert not (tables.folder / "model.pt").exists()

    @pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
    def test_a_full_disk_is_a_line(self, tables, capsys):
        assert tables.fit("--predictions", "/dev/full") == 2
        assert "No space left on device: '/dev/full'" in capsys.readouterr().err.splitlines()[-1]

    @pytest.mark.parametrize("name", ["=1+1", "+1+1", "-x", "@sum"])
    def test_names_are_no_formulas(self, tmp_path, name):
        tables = Tables(tmp_path, [name, "-5", *NAMES[2:]])
        classes = tables.classes()
        assert classes[0][0] == f"'{name}"
        assert classes[1][0] == "-5"  # A number is none either.

    def test_names_with_control_characters(self, tables):
        pytest.importorskip("matplotlib")
        strange = {"ant": "a\x01nt", "bee": "b\x1bee", "cat": "cat"}
        write(tables.y, [["node", "class"], *([name, strange.get(label, "")] for name, label in tables.labels)])
        page = tables.folder / "page.html"
        assert tables.fit("--report", str(page)) == 0
        text = page.read_text()
        drawings = [part.split("</svg>")[0] for part in text.split("<svg")[1:]]
        assert drawings
        for drawing in drawings:
            ElementTree.fromstring(f"<svg{drawing}</svg>")

    @pytest.mark.skipif(os.name != "posix", reason="closes a file by its number")
    def test_a_closed_screen(self, tables):
        assert tables.fit() == 0
        command = [sys.executable, "-m", "torch_gckm", "predict", str(tables.folder / "model.pt")]
        closed = ["sh", "-c", '"$@" >&-', "sh", *command]
        done = subprocess.run(closed, stderr=subprocess.PIPE, text=True, timeout=120)
        assert "Traceback" not in done.stderr


class TestOptions:
    @pytest.mark.parametrize("seed", ["-1", "x", "1.5"])
    def test_seeds(self, capsys, seed):
        with pytest.raises(SystemExit):
            main(["demo", "--seed", seed])
        assert f"a seed is a number from 0 on, got {seed}" in capsys.readouterr().err

    def test_datasets_without_a_folder(self, tmp_path, capsys):
        options = ["--dataset", "KarateClub", "--labels-per-class", "2"]
        assert main(["fit", str(tmp_path / "model.pt"), *options, *QUICK]) == 0
        assert "test nodes are right" in capsys.readouterr().err

    def test_datasets_that_need_more_than_a_name(self, tmp_path, capsys):
        assert main(["fit", str(tmp_path / "m.pt"), "--dataset", "StochasticBlockModelDataset", *QUICK]) == 2
        assert "cannot be made from a name alone" in capsys.readouterr().err


def test_a_file_that_ends_early(tmp_path, capsys):
    path = tmp_path / "model.pt"
    torch.save({"a": torch.zeros(1000)}, path)
    path.write_bytes(path.read_bytes()[:1000])
    assert main(["info", str(path)]) == 2
    assert "model.pt' is not a file of torch_gckm, or it is damaged" in capsys.readouterr().err
