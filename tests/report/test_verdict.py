import html
import re

import pytest
import torch

from tests.conftest import make_graph
from torch_gckm.report import verdict
from torch_gckm.report.graphs import GraphView
from torch_gckm.select.unseen import Unseen
from torch_gckm.select.withheld import Withheld

NAMES = ["ant", "bee", "<cat>"]


def withheld(classes, predicted, certainty=0.9, drawn_right=None):
    """Labels withheld one by one, and probabilities of the same predictions, or of some that are right so often."""
    classes, predicted = torch.tensor(classes), torch.tensor(predicted)
    top = predicted.clone()
    if drawn_right is not None:
        top = classes.clone()
        wrong = torch.arange(len(classes)) >= drawn_right
        top[wrong] = (classes[wrong] + 1) % 3
    probabilities = torch.full((len(classes), 3), (1 - certainty) / 2)
    probabilities[torch.arange(len(classes)), top] = certainty
    everything = torch.arange(len(classes))
    return Withheld(everything, classes, predicted, [0.5], everything, probabilities, None, 0, NAMES)


GUESSES = Unseen(right=11, count=30, chance=1 / 3, gain=0.2)


def said(findings):
    return [(found.kind, html.unescape(re.sub("<.*?>", "", found.words))) for found in findings]


def test_what_is_right():
    labels = [0, 1, 2] * 10
    found = withheld(labels, [*labels[:28], 0, 0])
    assert said(verdict.accuracy_of_withheld(found, "")) == [("good", "28 of 30 withheld labels are right.")]
    found = withheld(labels, [0] * 30)
    assert said(verdict.accuracy_of_withheld(withheld(labels, labels), "", searched=True)) == [
        ("good", "30 of 30 withheld labels are right. They have chosen the settings, so expect less of other nodes.")
    ]
    ((kind, words),) = said(verdict.accuracy_of_withheld(withheld(labels, labels), "", searched=True, unseen=GUESSES))
    assert kind == "warning"
    assert words.startswith("30 of 30 withheld labels are right. But they have chosen the settings; of labels that")
    assert "11 of 30 are right, no better than by chance: predictions are little more than guesses." in words
    ((kind, words),) = said(verdict.accuracy_of_withheld(found, "", searched=True))
    assert kind == "warning"
    assert words.startswith("10 of 30 withheld labels are right. Predictions are little better than chance:")
    # Naming the largest class is no merit.
    found = withheld([0] * 16 + [1] * 4, [0] * 20)
    assert said(verdict.accuracy_of_withheld(found, ""))[0][0] == "warning"
    assert said(verdict.accuracy_of_withheld(None, "no <reason>")) == [
        ("warning", "Nothing can be checked with withheld labels: no <reason>.")
    ]


@pytest.mark.parametrize(
    ("certainty", "right", "kind", "words"),
    [
        (0.9, 54, "good", "Probabilities are about right: 90 % on average, and 90 % of the predictions are right."),
        (0.95, 30, "warning", "Probabilities are too high: 95 % on average, while 50 % of the predictions are right."),
        (0.5, 57, "advice", "Probabilities are too low: 50 % on average, while 95 % of the predictions are right."),
    ],
)
def test_probabilities(certainty, right, kind, words):
    labels = [0, 1, 2] * 20
    assert said(verdict.trust_in_probabilities(withheld(labels, labels, certainty, right))) == [(kind, words)]


def test_few_labels_say_little_of_probabilities():
    labels = [0, 1, 2] * 2
    ((kind, words),) = said(verdict.trust_in_probabilities(withheld(labels, labels, 0.95, 5)))
    assert kind == "good"
    assert words.endswith("With 6 labels this says little.")
    assert verdict.trust_in_probabilities(None) == []


def test_classes():
    assert said(verdict.labels_per_class(torch.tensor([1, 4, 2]), torch.tensor([5, 5, 5]), NAMES)) == [
        ("advice", "Class “ant” has a single label, which cannot be checked: label more of it.")
    ]
    assert said(verdict.labels_per_class(torch.tensor([1, 4, 1]), torch.tensor([5, 5, 0]), NAMES)) == [
        ("advice", "2 classes have a single label each, which cannot be checked: “ant”, “<cat>”. Label more of them."),
        ("warning", "No node is predicted as “<cat>”."),
    ]
    assert verdict.labels_per_class(torch.tensor([2, 4, 3]), torch.tensor([5, 5, 5]), NAMES) == []
    assert verdict.named(list("abcde")) == "“a”, “b”, “c” and 2 more"


def test_weak_classes():
    found = withheld([0] * 5 + [1] * 5 + [2] * 2, [0, 0, 0, 0, 0, 1, 2, 2, 2, 0, 0, 0])
    assert said(verdict.weak_classes(found)) == [
        ("warning", "Class “bee” is rarely recognised (1 of 5 withheld labels), mostly taken for “<cat>”.")
    ]  # Two labels of the third class are too few to say so.


class TestEdges:
    def test_alike(self):
        graph = make_graph()
        view = GraphView.of(graph)
        share = 100 * float((graph.y[graph.edge_index[0]] == graph.y[graph.edge_index[1]]).double().mean())
        assert said(verdict.edges(view, graph.y)) == [
            ("good", f"Joined nodes are predicted alike ({share:.0f} % of the edges).")
        ]

    def test_not_alike(self):
        generator = torch.Generator().manual_seed(0)
        graph = make_graph()
        graph.y = torch.randint(3, (60,), generator=generator)
        ((kind, words),) = said(verdict.edges(GraphView.of(graph), graph.y))
        assert kind == "advice"
        assert "hardly more often predicted alike than any two nodes" in words

    def test_heavy_tails(self):
        graph = make_graph()
        graph.edge_weight = torch.ones(graph.edge_index.size(1))
        assert len(verdict.edges(GraphView.of(graph), graph.y)) == 1
        graph.edge_weight[:2] = 7000.0
        found = said(verdict.edges(GraphView.of(graph), graph.y))
        assert found[1][0] == "advice"
        assert found[1][1].startswith("The edge weights have a heavy tail (the largest is 7,000, the median 1)")

    def test_isolated_nodes(self):
        graph = make_graph()
        graph.edge_index = graph.edge_index[:, :4]
        assert "of 60 nodes have no edge" in said(verdict.edges(GraphView.of(graph), None))[0][1]


def test_numbers():
    assert said(verdict.numbers_explained(0.83)) == [
        ("good", "83 % of the variance of withheld numbers is explained (R² 0.83).")
    ]
    assert said(verdict.numbers_explained(0.3, " of “[a]”")) == [
        ("advice", "30 % of the variance of withheld numbers of “[a]” is explained (R² 0.30).")
    ]
    ((kind, words),) = said(verdict.numbers_explained(-0.2))
    assert kind == "warning"
    assert "little better than the mean of the given numbers (R² -0.20 on withheld numbers)" in words


def test_outliers():
    errors = torch.tensor([0.1, -0.2, 5.0, 0.1, -9.0])
    assert said(verdict.outliers(errors, 1.0, list("abcde"))) == [
        ("advice", "2 given numbers are more than 4 spreads from what is predicted without them: check “e”, “c”.")
    ]
    assert verdict.outliers(errors, 3.0, list("abcde")) == []


def test_several_labels():
    known = torch.tensor([[1.0, 0.0], [0.0, torch.nan], [1.0, 0.0]])
    assert said(verdict.labels_withheld(known, torch.tensor([[0.9, 0.1], [0.2, 0.5], [0.8, 0.7]]))) == [
        ("warning", "4 of 5 withheld labels are right; always giving the more frequent answer would make 4 right: "
         "label more nodes.")
    ]  # fmt: skip
    ((kind, words),) = said(verdict.labels_withheld(known, torch.tensor([[0.9, 0.1], [0.2, 0.5], [0.8, 0.2]])))
    assert (kind, words) == ("good", "5 of 5 withheld labels are right (the more frequent answer of each: 4).")
    found = said(verdict.labels_of_columns([0.0, 0.3, 0.4, 0.9], [0, 2, 5, 5], ["w", "x", "y", "z"]))
    assert found == [
        ("warning", "No labelled node has “w”, so it is never predicted."),
        ("advice", "Fewer than 3 labelled nodes have “x”: label more of them."),
        ("warning", "Hardly recognised (F1 below 0.5 on withheld labels): “y”."),
    ]


def test_short_searches():
    class Result(list):
        pass

    assert said(verdict.length_of_search(Result([1] * 5))) == [
        ("advice", "Only 5 settings were tried: a longer search may find better ones.")
    ]
    assert verdict.length_of_search(Result([1] * 40)) == verdict.length_of_search(None) == []


def test_as_a_list():
    content = verdict.listed(verdict.accuracy_of_withheld(None, "<script>"))
    assert content.startswith('<ul class="verdict">\n<li class="warning"><span class="kind">Warning</span>')
    assert "<script>" not in content
    assert 'title="A label that was given' in content
