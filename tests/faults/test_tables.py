"""Tables that the command line could misread."""

import zipfile

import numpy as np
import pytest

from tests.faults.tables import CLASSES, NAMES, Tables, read, write
from torch_gckm import GCKMClassifier
from torch_gckm.cli import main


@pytest.fixture
def tables(tmp_path):
    return Tables(tmp_path)


class TestHeadings:
    @pytest.mark.parametrize("corner", ["node", "", "doc"])
    @pytest.mark.parametrize("first", [0, 1])
    def test_numbered_columns_are_no_node(self, tables, capsys, corner, first):
        expected = tables.classes()
        write(tables.x, [[corner, *range(first, first + 8)], *tables.rows])
        write(tables.y, [["node", "0"], *tables.labels])
        assert tables.classes() == expected
        message = capsys.readouterr().err
        assert "60 nodes, 8 columns" in message
        assert f"headings: x.csv ({corner}, {first}, {first + 1}, ...), edges.csv (from, to)" in message
        assert "y.csv (node, 0)" in message

    def test_a_node_with_such_features_is_one(self, tables, capsys):
        tables.rows[7][1:] = range(8)
        write(tables.x, [tables.rows[7], *tables.rows[:7], *tables.rows[8:]])
        assert tables.fit() == 0
        assert "60 nodes" in capsys.readouterr().err

    @pytest.mark.parametrize("heading", [["country", 2018, 2019], ["gene", "1.0", "2.0"]])
    def test_numbers_that_may_be_names_are_refused(self, tables, capsys, heading):
        write(tables.x, [heading, *(row[:3] for row in tables.rows)])
        assert tables.fit() == 2
        assert "a heading or a node?" in capsys.readouterr().err

    def test_a_first_node_whose_features_are_a_permutation(self, tmp_path, capsys):
        write(tmp_path / "x.csv", [["n0", 2, 1, 0], ["n1", 0, 2, 1], ["n2", 1, 0, 2], ["n3", 1, 1, 1]])
        write(tmp_path / "edges.csv", [["n0", "n1"], ["n2", "n3"]])
        options = ["--features", str(tmp_path / "x.csv"), "--edges", str(tmp_path / "edges.csv")]
        assert main(["embed", *options, "--channels", "1"]) == 0
        assert "4 nodes, 3 columns" in capsys.readouterr().err

    @pytest.mark.parametrize("row", [["n0", "", ""], ["n0", "?", "?"]])
    def test_a_first_node_without_features_is_not_dropped(self, tmp_path, capsys, row):
        write(tmp_path / "x.csv", [row, ["n1", 0.5, 1], ["n2", 0.3, 2], ["n3", 0.1, 3]])
        assert main(["embed", "--features", str(tmp_path / "x.csv"), "--n-neighbors", "1"]) == 2
        assert "line 1:" in capsys.readouterr().err

    def test_an_index_beside_the_nodes_is_refused(self, tables, capsys):
        write(tables.x, [["", "node", *"abcdefgh"], *([number, *row] for number, row in enumerate(tables.rows))])
        assert tables.fit() == 2
        assert "which column names the nodes?" in capsys.readouterr().err

    @pytest.mark.parametrize(
        "heading", [["", "source", "target"], ["weight", "source", "target"], ["target", "source"]]
    )
    def test_columns_of_edges_in_another_order_are_refused(self, tmp_path, capsys, heading):
        tables = Tables(tmp_path, [str(node) for node in range(60)])
        pairs = [[0, *pair] for pair in tables.pairs] if len(heading) == 3 else tables.pairs
        write(tables.edges, [heading, *pairs])
        assert tables.fit() == 2
        assert "sources before targets" in capsys.readouterr().err

    def test_columns_of_labels_in_another_order_are_refused(self, tmp_path, capsys):
        tables = Tables(tmp_path, [str(node) for node in range(60)])
        write(tables.y, [["class", "node"], [0, 17], [1, 4], [2, 33]])
        assert tables.fit() == 2
        assert "the node must come first" in capsys.readouterr().err

    def test_a_node_called_as_headings_are(self, tmp_path, capsys):
        tables = Tables(tmp_path, ["id", *NAMES[1:]])
        write(tables.y, [["id", "class"], *tables.labels[1:]])
        assert tables.fit() == 2
        assert "is the first line, id, class, a heading or a node's?" in capsys.readouterr().err

    def test_a_series_of_pandas(self, tmp_path):
        tables = Tables(tmp_path, [str(node) for node in range(60)])
        numbers = [[name, CLASSES.index(label)] for name, label in tables.labels if label]
        write(tables.y, [["", 0], *numbers])
        assert len(tables.classes()) == 60

    def test_what_is_unclear_is_refused(self, tmp_path, capsys):
        write(tmp_path / "x.csv", [["a", 0, 1], ["b", 0.5, 1], ["c", 0.3, 2]])
        write(tmp_path / "edges.csv", [["b", "c"]])
        options = ["--features", str(tmp_path / "x.csv"), "--edges", str(tmp_path / "edges.csv")]
        assert main(["embed", *options, "--channels", "1"]) == 2
        assert "is the first line, a, 0, 1, a heading or a node?" in capsys.readouterr().err

    @pytest.mark.parametrize("names", [NAMES, [str(node) for node in range(60)]], ids=["letters", "numbers"])
    @pytest.mark.parametrize("part", ["edges", "labels"])
    def test_an_unknown_node_in_the_first_line_is_not_dropped(self, tmp_path, capsys, names, part):
        tables, unknown = Tables(tmp_path, names), "n99" if names is NAMES else "99"
        if part == "edges":
            write(tables.edges, [[unknown, unknown], *tables.pairs])
        else:
            write(tables.y, [[unknown, "dog"], *tables.labels])
        assert tables.fit() == 2
        assert f"line 1: no node is called '{unknown}'" in capsys.readouterr().err

    def test_names_like_a_heading(self, tmp_path):
        names = ["".join(chr(97 + int(digit)) for digit in f"{node:02d}") for node in range(60)]
        tables = Tables(tmp_path, names)  # All letters, as "node" and "from" are.
        assert len(tables.classes()) == 60


@pytest.mark.parametrize("blank", ["-1", "-1.0", "nan", "NaN", " "])
def test_blank_labels_are_no_class(tables, blank):
    expected = tables.classes()
    write(tables.y, [["node", "class"], *([name, label or blank] for name, label in tables.labels)])
    assert tables.classes() == expected


class TestColumns:
    def test_they_are_known_by_their_names(self, tables):
        expected = [row[:2] for row in tables.classes()]
        order = [3, 1, 0, 7, 2, 5, 4, 6]
        rows = [[row[0], *(row[1 + column] for column in order)] for row in tables.rows]
        write(tables.x, [["node", *("abcdefgh"[column] for column in order)], *rows])
        output = tables.folder / "again.csv"
        assert main(["predict", str(tables.folder / "model.pt"), *tables.options, "--output", str(output)]) == 0
        assert [(row["node"], row["class"]) for row in read(output)] == expected

    def test_others_are_refused(self, tables, capsys):
        assert tables.fit() == 0
        write(tables.x, [["node", *"abcdefgz"], *tables.rows])
        assert main(["predict", str(tables.folder / "model.pt"), *tables.options]) == 2
        assert "has other columns than the model was fitted to: it lacks h" in capsys.readouterr().err

    def test_names_that_occur_twice_are_refused(self, tables, capsys):
        assert tables.fit() == 0
        write(tables.x, [["node", *"abbdefgh"], *tables.rows])
        assert main(["predict", str(tables.folder / "model.pt"), *tables.options]) == 2
        assert "names a column twice" in capsys.readouterr().err

    def test_without_names_their_order_counts(self, tables, capsys):
        assert tables.fit() == 0
        write(tables.x, tables.rows)
        assert main(["predict", str(tables.folder / "model.pt"), *tables.options]) == 0
        assert "does not name its columns" in capsys.readouterr().err

    def test_files_of_classifiers_keep_them(self, tables, tmp_path):
        names = list("abcdefgh")
        model = GCKMClassifier(budget=None, max_settings=4, workers=1, progress=False)
        model.fit(tables.graph, feature_names=names).save(tmp_path / "classifier.pt")
        assert GCKMClassifier.load(tmp_path / "classifier.pt").feature_names_in_.tolist() == names
        with pytest.raises(ValueError, match="3 'feature_names' for 8 features"):
            model.fit(tables.graph, feature_names=names[:3])


class TestMatrices:
    def embed(self, path):
        return main(["embed", "--features", str(path), "--n-neighbors", "3", "--channels", "2"])

    def test_several_arrays_are_refused(self, tmp_path, capsys):
        path = tmp_path / "x.npz"
        np.savez(path, a=np.eye(5), b=np.eye(5))
        assert self.embed(path) == 2
        assert "holds 2 arrays (a, b); call the features 'x'" in capsys.readouterr().err
        np.savez(path, a=np.eye(5), x=np.random.default_rng(0).random((9, 4)))
        assert self.embed(path) == 0

    @pytest.mark.parametrize("suffix", ["npy", "npz"])
    def test_complex_numbers_are_refused(self, tmp_path, capsys, suffix):
        path = tmp_path / f"x.{suffix}"
        (np.save if suffix == "npy" else np.savez)(path, np.eye(5) + 1j)
        assert self.embed(path) == 2
        assert "holds complex128; real numbers are needed" in capsys.readouterr().err

    def test_numbers_beyond_single_precision(self, tables, capsys):
        tables.rows[3][2] = 1e39
        write(tables.x, [["node", *"abcdefgh"], *tables.rows])
        assert main(["embed", "--features", str(tables.x), "--n-neighbors", "3"]) == 2
        assert "line 5: a value is too large for single precision" in capsys.readouterr().err

    def test_numbers_that_single_precision_blurs(self, tables, capsys):
        for place, row in enumerate(tables.rows):
            row[2] = 1_000_000 + 0.3 * place
        write(tables.x, [["node", *"abcdefgh"], *tables.rows])
        assert tables.fit() == 0
        assert "column 'b' differ by too little" in capsys.readouterr().err
        x = np.array([row[1:] for row in tables.rows])
        np.save(tables.folder / "x.npy", x)
        assert self.embed(tables.folder / "x.npy") == 0
        assert "column 1 differ by too little" in capsys.readouterr().err

    def test_edges_and_labels_are_tables(self, tables, capsys):
        np.save(tables.folder / "edges.npy", tables.graph.edge_index.numpy())
        tables.options[-1] = str(tables.folder / "edges.npy")
        assert tables.fit() == 2
        assert "edges and labels are tables of names, CSV or TSV" in capsys.readouterr().err

    def test_damaged_archives(self, tmp_path, capsys):
        path, draw = tmp_path / "x.npz", np.random.default_rng(0)
        np.savez_compressed(path, x=draw.random((9, 4)))
        whole = path.read_bytes()
        for place in draw.integers(len(whole), size=100):
            damaged = bytearray(whole)
            damaged[place] = draw.integers(256)
            path.write_bytes(damaged)
            assert self.embed(path) in (0, 2)
        capsys.readouterr()

    def test_a_header_of_many_terabytes(self, tmp_path, capsys):
        header = b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'fortran_order': False, 'shape': (1000000, 8000000), }"
        content = header.ljust(127) + b"\n"
        (tmp_path / "x.npy").write_bytes(content)
        with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
            archive.writestr("x.npy", content)
        for name in ("x.npy", "x.npz"):
            assert self.embed(tmp_path / name) == 2
            assert len(capsys.readouterr().err.splitlines()) == 1
