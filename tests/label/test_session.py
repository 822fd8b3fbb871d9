"""Answers, undo, resuming, and what is asked, without a page."""

import pytest
import torch

from tests.conftest import make_graph
from tests.label.conftest import CLASSES, NAMES, rows_of
from torch_gckm.errors import InvalidInputError, OutdatedAnswerError
from torch_gckm.label.findings import Findings, Question, Task


def suggest(session, *nodes):
    """Pretend that a refit suggests nodes."""
    session.take(Findings(Task(session.labels), [Question(node, "because") for node in nodes]))


class TestAnswers:
    def test_they_are_in_the_file_at_once(self, start):
        session = start()
        suggest(session, 5, 7, 9)
        session.label("bee")
        assert rows_of(session.file.path) == [("n5", "bee")]
        session.skip()
        assert rows_of(session.file.path) == [("n5", "bee"), ("n7", "")]
        assert (session.labels, session.skipped, session.asked.node) == ({5: "bee"}, {7}, 9)

    def test_undo_asks_again_and_is_saved(self, start):
        session = start()
        suggest(session, 5, 7, 9)
        session.label("bee")
        session.skip()
        session.undo()
        assert (session.asked.node, rows_of(session.file.path)) == (7, [("n5", "bee")])
        session.undo()
        assert (session.asked.node, session.labels) == (5, {})
        assert rows_of(session.file.path) == []
        with pytest.raises(InvalidInputError, match="no answer to undo"):
            session.undo()

    def test_an_answer_is_changed_and_back(self, start):
        session = start()
        suggest(session, 5, 7)
        session.label("bee")
        session.ask(5)
        session.label("cat")
        assert session.labels == {5: "cat"}
        session.undo()
        assert session.labels == {5: "bee"}

    def test_a_label_that_is_looked_at_again_stays_when_it_is_skipped(self, start):
        session = start()
        suggest(session, 5, 7)
        session.label("bee")
        session.ask(5)
        session.skip()
        assert (session.labels, session.skipped, session.asked.node) == ({5: "bee"}, frozenset(), 7)

    def test_one_that_answers_another_question_is_refused(self, start):
        session = start()
        suggest(session, 5, 7, 9)
        seen = session.revision  # By two tabs.
        session.label("bee", seen)
        for answer in (lambda: session.label("cat", seen), lambda: session.skip(seen), lambda: session.undo(seen)):
            with pytest.raises(OutdatedAnswerError, match="was not used"):
                answer()
        assert (session.labels, session.asked.node) == ({5: "bee"}, 7)

    def test_a_refit_does_not_change_the_question(self, start):
        session = start()
        suggest(session, 5)
        seen = session.revision
        suggest(session, 9)
        assert session.asked.node == 5
        session.label("bee", seen)
        assert session.asked.node == 9

    def test_a_file_that_cannot_be_written_changes_nothing(self, start, monkeypatch):
        session = start()
        suggest(session, 5)
        session.file.path.mkdir()
        with pytest.raises((InvalidInputError, OSError)):
            session.label("bee")
        assert (session.labels, session.asked.node) == ({}, 5)


class TestClasses:
    def test_new_ones_come_with_their_first_label_and_go_with_their_last(self, start):
        session = start(classes=["ant"])
        suggest(session, 5)
        session.label("  wasp ")
        assert session.classes == ["ant", "wasp"]
        session.undo()
        assert session.classes == ["ant"]

    @pytest.mark.parametrize("name", ["", " ", "nan", "-1", "-1.0", "a\nb"])
    def test_names_that_no_table_can_hold(self, start, name):
        session = start()
        suggest(session, 5)
        with pytest.raises(InvalidInputError, match="class"):
            session.label(name)
        assert session.asked.node == 5


class TestResuming:
    def test_a_later_session_goes_on(self, start):
        first = start()
        suggest(first, 5, 7, 9)
        first.label("bee")
        first.label('a, "quoted" one')
        first.skip()
        second = start()
        assert (second.labels, second.skipped, second.resumed) == (first.labels, first.skipped, 3)
        assert second.classes == [*CLASSES, 'a, "quoted" one']
        second.undo()
        second.undo()
        assert start().labels == {5: "bee"}

    def test_given_labels_are_kept_beside_answers(self, start):
        given = make_graph()
        session = start(given, class_names=CLASSES)
        assert session.labels == {node: CLASSES[node % 3] for node in range(6)}
        assert not session.file.path.exists()  # Nothing has been answered.
        session.ask(2)
        session.label("ant")
        assert rows_of(session.file.path) == [*((NAMES[n], CLASSES[n % 3]) for n in (0, 1, 3, 4, 5)), ("n2", "ant")]
        later = start(given, class_names=CLASSES)
        assert (later.labels, later.resumed, later.overruled) == (session.labels, 1, 1)
        later.undo()
        assert later.labels[2] == "cat"

    def test_a_label_that_was_given_since_replaces_a_skip(self, start):
        session = start()
        suggest(session, 0)
        session.skip()
        later = start(make_graph(), class_names=CLASSES)
        assert (later.labels[0], later.skipped) == ("ant", frozenset())


class TestQuestions:
    def test_the_first_ones_need_no_label_and_find_all_classes(self, start, truth):
        session = start()
        assert session.asked is None
        session.refit()
        assert session.findings.probabilities is None
        asked = [question.node for question in session.findings.questions]
        assert session.asked.node == asked[0]
        assert "group of" in session.asked.reason
        assert {truth[node] for node in asked[:5]} == set(CLASSES)

    def test_groups_come_before_suggestions_while_a_class_lacks_a_label(self, start, truth):
        session = start()
        session.refit()
        for name in ("ant", "bee"):
            session.ask(truth.index(name))
            session.label(name)
        session.refit()
        assert session.findings.task.classes == ["ant", "bee"]
        assert "group of" in session.findings.questions[0].reason
        session.ask(truth.index("cat"))
        session.label("cat")
        session.refit()
        assert all("settle" in question.reason for question in session.findings.questions)

    def test_one_class_is_enough_to_go_on(self, start):
        session = start(classes=[])
        session.refit()
        for _ in range(3):
            session.label("ant")
            session.refit()
        assert session.asked.node not in session.labels
        assert session.error is None

    def test_labels_lead_to_suggestions_and_guesses(self, start, truth):
        session = start()
        for node in range(6):
            session.ask(node)
            session.label(truth[node])
        found = session.refit()
        right = sum(a == b for a, b in zip(found.predicted, truth, strict=True))
        assert right > 45
        assert found.withheld == 6
        assert 3 <= found.right <= 6
        assert session.asked.node not in session.labels
        name, chance = found.guess(7)[0]
        assert name == found.predicted[7]
        assert chance == pytest.approx(float(found.probabilities[7].max()))
        assert session.refit() is found  # The labels are the same.

    def test_when_suggestions_are_used_up_the_least_certain_node_is_asked(self, start):
        session = start()
        chances = torch.full((60, 2), 0.5)
        chances[:, 0] += torch.linspace(0.4, 0.1, 60)
        chances[:, 1] = 1 - chances[:, 0]
        labels = {0: "ant", 1: "bee"}
        session.take(Findings(Task(labels), [Question(3, "because")], chances.numpy()))
        session.label("ant")
        assert session.asked.node == 59

    def test_in_the_end_nothing_is_left(self, start):
        session = start()
        suggest(session, *range(59))
        for _ in range(60):
            session.label("ant")
        assert session.asked is None
        with pytest.raises(InvalidInputError, match="no node is asked"):
            session.skip()
        session.undo()
        assert session.asked is not None


class TestRefits:
    def test_records_say_what_changed(self, start, truth):
        session = start()
        for node in range(8):
            session.ask(node)
            session.label(truth[node])
            if node in (5, 7):
                session.refit()
        first, second = session.records
        assert (first.labels, first.changed, second.labels) == (6, None, 8)
        assert 0 <= second.changed < 30

    def test_a_failed_one_is_not_repeated_until_labels_change(self, start):
        session = start()
        task = session.task()
        session.begin(task)
        session.fail("no memory")
        assert session.error == "no memory"
        assert session.asked is not None  # Labelling goes on.
        assert session.task() is None
        session.label("ant")
        assert session.task().labels.keys() == session.labels.keys()

    def test_errors_of_a_fit_are_told(self, start, quick, unlabelled):
        unlabelled.x[4, 0] = float("nan")
        session = start(unlabelled)
        with pytest.raises(InvalidInputError):
            session.refit()
        assert "node 4" in session.error or "row 4" in session.error
        session.label("ant")

    def test_names_must_fit_the_graph(self, start):
        with pytest.raises(InvalidInputError, match="'node_names'"):
            start(node_names=["a"])
        with pytest.raises(InvalidInputError, match="'feature_names'"):
            start(feature_names=["a"])
        with pytest.raises(InvalidInputError, match="no node is called 'x'"):
            start().place_of("x")
