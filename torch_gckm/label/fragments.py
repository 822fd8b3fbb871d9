"""The parts of the page as HTML; every name is escaped here, and nowhere else."""

from collections import Counter
from collections.abc import Iterable
from html import escape

from torch_gckm.label.findings import Task
from torch_gckm.label.session import LabellingSession

_MOST_NEIGHBOURS = 12
_MOST_ANSWERS = 100
_MOST_CLASSES = 5


def state(session: LabellingSession, task: Task | None) -> str:
    """What is known, and what is being worked on."""
    labels, found = session.labels, session.findings
    counted = f"{len(labels):,} of {session.num_nodes:,} nodes have a label"
    if found is not None and found.probabilities is not None:
        news = _differences(found.task.labels, labels)
        counted += (
            f"; the guesses do not know of {_count(news, 'change')} yet" if news else "; the guesses are up to date"
        )
    lines = [counted + "."]
    if task is not None:
        what = f"Fitting to {_count(len(task.labels), 'label')}" if len(task.classes) > 1 else "Choosing first nodes"
        lines.append(f"{what} …")
    elif len(set(labels.values())) < 2:
        lines.append("The first fit begins once two classes have a label.")
    parts = [f'<p class="quiet">{escape(" ".join(lines))}</p>']
    if session.error is not None:
        text = f"The last fit failed: {session.error}. Go on; it is tried again after the next label."
        parts.append(f'<p class="bad">{escape(text)}</p>')
    if found is not None:
        parts += [f'<p class="quiet small">Note: {escape(note)}.</p>' for note in found.notes]
    return "".join(parts)


def message(text: str) -> str:
    """What became of an answer that was not used."""
    return f'<div class="bad" role="status">{escape(text)}</div>' if text else ""


def question(session: LabellingSession, *, busy: bool) -> str:
    """The node that is asked for, why, and its guess."""
    asked = session.asked
    if asked is None:
        text = "Choosing the first nodes …" if busy or session.findings is None else "No node is left to ask for."
        return f"<h2>{text}</h2>"
    label, found = session.labels.get(asked.node), session.findings
    parts = [f"<h2>Which class is node {escape(session.node_names[asked.node])}?</h2>"]
    parts.append(f'<p class="quiet">{escape(asked.reason)}</p>')
    if label is not None:
        parts.append(f'<p class="message">Its label is <b>{escape(label)}</b>; skip to keep it.</p>')
    guess = [] if found is None else found.guess(asked.node)[:_MOST_CLASSES]
    rows = ((escape(name), _bar(chance), f"{100 * chance:.0f} %") for name, chance in guess)
    return "".join(parts) + (_table(("present guess", "", ""), rows, numbers=1) if guess else "")


def features(session: LabellingSession) -> str:
    """The features in which the node differs most from others."""
    values = [] if session.asked is None else session.details.unusual(session.asked.node)
    rows = ((escape(v.name), f"{v.value:.4g}", f"{v.mean:.4g}", f"{v.deviations:+.1f}") for v in values)
    hint = "how many standard deviations above or below the mean of all nodes"
    head = ("column", "value", "mean", f'<span title="{hint}">deviations</span>')
    return _table(head, rows, numbers=3) if values else '<p class="quiet">None differs from the mean of all nodes.</p>'


def neighbours(session: LabellingSession) -> str:
    """The neighbours of the node, with their labels or guesses."""
    others = [] if session.asked is None else session.details.neighbours(session.asked.node)
    if not others:
        return '<p class="quiet">It is joined to no other node.</p>'
    labels, found = session.labels, session.findings
    rows = []
    for node in others[:_MOST_NEIGHBOURS]:
        name, chance = next(iter([] if found is None else found.guess(node)), ("", 0.0))
        kind = "label" if node in labels else "guess" if name else ""
        shown = f"<b>{escape(labels[node])}</b>" if node in labels else escape(name)
        rows.append((_node(session, node), shown, kind if kind != "guess" else f"guess, {100 * chance:.0f} %"))
    rest = len(others) - len(rows)
    more = f'<p class="quiet small">and {rest:,} more</p>' if rest else ""
    return _table(("node", "class", ""), rows) + more


def accuracy(session: LabellingSession) -> str:
    """How many withheld labels are predicted, and how much the last refit has changed."""
    if not session.records:
        return '<p class="quiet">Known after the first fit.</p>'
    last = session.records[-1]
    lines = ["No class has two labels yet, so none can be withheld."]
    if last.withheld:
        share = 100 * last.right / last.withheld
        lines = [f"<b>{last.right} of {last.withheld}</b> ({share:.0f} %) with {_count(last.labels, 'label')}."]
    if last.changed is not None:
        lines.append(f"The last fit changed the class of {_count(last.changed, 'node')}.")
    hint = "Nodes are asked for because they are hard to tell: expect more of the other nodes to be right."
    return f"<p>{' '.join(lines)}</p>" + (f'<p class="quiet small">{hint}</p>' if last.withheld else "")


def sizes(session: LabellingSession) -> str:
    """How many nodes have each class, by their labels or guesses."""
    labels, found = session.labels, session.findings
    predicted = None if found is None else found.predicted
    known = Counter(labels.values())
    total = known if predicted is None else Counter(labels.get(node, name) for node, name in enumerate(predicted))
    most = max(total.values(), default=1)
    rows = (
        (escape(name), _bar(total[name] / most), f"{total[name]:,}", f"{known[name]:,}") for name in session.classes
    )
    return f'<div class="scroll">{_table(("class", "", "nodes", "labelled"), rows, numbers=2)}</div>'


def labelled(session: LabellingSession) -> str:
    """The latest answers, the last one first."""
    answers = session.answers
    if not answers:
        text = f"{len(session.labels):,} labels were given." if session.labels else "Nothing yet."
        return f'<p class="quiet">{text}</p>'
    rows = (
        (_node(session, answer.node), '<i class="quiet">skipped</i>' if answer.name is None else escape(answer.name))
        for answer in answers[: -_MOST_ANSWERS - 1 : -1]
    )
    rest = max(len(answers) - _MOST_ANSWERS, 0)
    more = f'<p class="quiet small">and {rest:,} before</p>' if rest else ""
    return f'<div class="scroll">{_table(("node", "class"), rows)}</div>{more}'


def _differences(before: dict[int, str], now: dict[int, str]) -> int:
    """In how many nodes labels differ."""
    return sum(before.get(node) != now.get(node) for node in before.keys() | now.keys())


def _node(session: LabellingSession, node: int) -> str:
    """A name that a click on it asks for."""
    name = escape(session.node_names[node])
    return f'<button type="button" data-node="{node}" title="label this node">{name}</button>'


def _bar(share: float) -> str:
    return f'<div class="bar" style="width: {100 * share:.1f}%"></div>'


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _table(head: Iterable[str], rows: Iterable[Iterable[str]], numbers: int = 0) -> str:
    """A table of cells that are HTML; the last columns may be numbers, those with bars take what is left."""
    head = list(head)
    kinds = ["number" if place >= len(head) - numbers else "" for place in range(len(head))]

    def line(cells: Iterable[str], tag: str) -> str:
        parts = (
            f'<{tag} class="{"share" if cell.startswith("<div") else kind}">{cell}</{tag}>'
            for cell, kind in zip(cells, kinds, strict=True)
        )
        return f"<tr>{''.join(parts)}</tr>"

    return f"<table>{line(head, 'th')}{''.join(line(cells, 'td') for cells in rows)}</table>"
