import csv

import pytest

from tests.cli.test_cli import NAMES, QUICK, files, read  # noqa: F401
from torch_gckm.cli import main

pytestmark = pytest.mark.filterwarnings("ignore::torch_gckm.errors.LowRankWarning")


@pytest.fixture
def numbers(files):  # noqa: F811
    """The graph as files, with numbers for the first nodes; -1 is one of them."""
    graph, folder, options, _ = files
    target = (2.0 * graph.y - 1.0 + 0.1 * graph.x[:, 0]).tolist()
    target[0] = -1.0
    rows = [[name, value if place < 20 else ""] for place, (name, value) in enumerate(zip(NAMES, target, strict=True))]
    with (folder / "numbers.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["node", "height"], *rows])
    return target, folder, options, ["--labels", str(folder / "numbers.csv"), "--target", "numeric"]


def test_from_files_to_numbers(numbers, capsys):
    target, folder, options, labels = numbers
    model, output = folder / "model.pt", folder / "numbers_out.csv"
    assert main(["fit", str(model), *options, *labels, *QUICK, "--predictions", str(output)]) == 0
    told = capsys.readouterr().err
    assert "20 numbers to learn from" in told
    assert "of the variance of withheld numbers" in told
    rows = read(output)
    assert [row["node"] for row in rows] == NAMES
    errors = [float(row["value"]) - value for row, value in zip(rows, target, strict=True)]
    mean = sum(target) / 60
    assert sum(e * e for e in errors[20:]) < 0.5 * sum((value - mean) ** 2 for value in target[20:])
    assert len({row["spread"] for row in rows}) == 1
    assert float(rows[0]["spread"]) > 0

    assert main(["predict", str(model), "--output", str(folder / "own.csv")]) == 0
    assert read(folder / "own.csv") == rows
    assert main(["predict", str(model), *options, "--output", str(folder / "again.csv")]) == 0
    assert float(read(folder / "again.csv")[30]["value"]) == pytest.approx(float(rows[30]["value"]), abs=1e-3)
    assert main(["info", str(model)]) == 0
    assert "20 labels given, numbers" in capsys.readouterr().out
    assert main(["suggest", str(model)]) == 2
    assert "holds no classes" in capsys.readouterr().err


def test_a_page_about_the_fit(numbers, capsys):
    _, folder, options, labels = numbers
    report = folder / "report.html"
    assert main(["fit", str(folder / "model.pt"), *options, *labels, *QUICK, "--report", str(report)]) == 0
    assert f"{report}: written" in capsys.readouterr().err
    page = report.read_text()
    assert "Numbers of x.csv" in page
    assert "of the variance of" in page
    assert "gckm fit" in page
    assert "--target numeric" in page


def test_refusals(numbers, capsys):
    _, folder, options, _ = numbers
    fit = ["fit", str(folder / "m.pt"), *QUICK]
    assert main([*fit, "--dataset", "digits", "--target", "numeric"]) == 2
    assert "labels of datasets are classes" in capsys.readouterr().err
    assert main([*fit, *options, "--labels", str(folder / "y.csv"), "--target", "numeric"]) == 2
    assert "'ant' is not a number" in capsys.readouterr().err
    assert main([*fit, *options, "--target", "numeric"]) == 2
    assert "every node is unknown" in capsys.readouterr().err
