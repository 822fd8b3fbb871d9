"""The page of a session: widgets of Bokeh, one set per tab, that show the same state and send answers to it."""

from pathlib import Path
from typing import Any

from bokeh.core.properties import Any as AnyValue
from bokeh.core.properties import Int, List, String
from bokeh.document import Document
from bokeh.events import ValueSubmit
from bokeh.layouts import row
from bokeh.model import DataModel
from bokeh.models import ColumnDataSource, CustomJS, HoverTool, InlineStyleSheet, NumeralTickFormatter, Range1d, Row
from bokeh.models.ui import UIElement
from bokeh.models.widgets.buttons import Button
from bokeh.models.widgets.inputs import AutocompleteInput, TextInput
from bokeh.models.widgets.markups import Div
from bokeh.plotting import figure
from jinja2 import Environment

from torch_gckm.errors import GCKMError
from torch_gckm.label import fragments
from torch_gckm.label.background import Background
from torch_gckm.label.session import LabellingSession

MOST_BUTTONS = 12  # With more classes, the likeliest ones have buttons, and any is chosen by its name.
_LIKELIEST = 5
_EVERY = 200  # Milliseconds between two looks at the session.
_FOLDER = Path(__file__).parent
_CSS = (_FOLDER / "widgets.css").read_text()
_KEYS = (_FOLDER / "keys.js").read_text()
_TEMPLATE = (_FOLDER / "page.html").read_text()
_SEND = "answer.content = [action, value, question.revision, Date.now() + Math.random()]"
_SEND_INPUT = f"const value = input.value_input || input.value; {_SEND}; input.value = ''; input.value_input = ''"
_GREY = "#808a94"  # Can be read on light and dark.


class Asked(DataModel):
    """The question that a tab shows."""

    revision = Int(default=0)
    keys = List(List(String))  # Pairs of a key and a class.


class Sent(DataModel):
    """What a tab has sent: an action, its value, the revision that the tab has shown, and a number of its own."""

    content = List(AnyValue)


def keys_of(classes: list[str]) -> dict[str, str]:
    """The keys of classes: 1 to 9 in their order, or their names if all are digits."""
    if all(len(name) == 1 and name in "0123456789" for name in classes):
        return {name: name for name in classes}
    return {str(number): name for number, name in enumerate(classes[:9], start=1)}


class Page:
    """One tab: what it shows of a session, and what it sends to it.

    Answers go by way of one model, together with the revision that the tab has shown when a button or key was pressed.
    """

    def __init__(self, document: Document, session: LabellingSession, background: Background, title: str) -> None:
        self._session, self._background = session, background
        self._message = ""
        self._seen: tuple[int, bool, str] | None = None  # What the widgets show.
        self._buttons: tuple[list[str], bool] | None = None
        self.sent, self.asked = Sent(), Asked()
        self.sent.on_change("content", self._receive)
        self._style = InlineStyleSheet(css=_CSS)
        names = ("state", "message", "question", "features", "neighbours", "accuracy", "sizes", "labelled")
        self._parts = {name: Div(name=name, **self._wide()) for name in names}
        self._classes = self._flow("classes", [])
        self._choice = AutocompleteInput(
            placeholder="any class", min_characters=1, search_strategy="includes", case_sensitive=False, **self._wide()
        )
        self._skip, self._undo = self._button("Skip", "skip"), self._button("Undo", "undo")
        naming = TextInput(placeholder="a new class", **self._wide())
        other = TextInput(placeholder="another node", **self._wide())
        self._chooser = self._field("choice", self._choice, "label", "Label")
        self._source = ColumnDataSource({"labels": [], "right": [], "text": []})
        self._chart = self._accuracy_chart()
        roots: list[UIElement] = [
            *self._parts.values(),
            self._classes,
            self._chooser,
            self._flow("actions", [self._skip, self._undo]),
            self._field("naming", naming, "label", "Add class"),
            self._field("other", other, "find", "Show"),
            self._chart,
            Div(name="hidden", visible=False, tags=[self.sent, self.asked]),
        ]
        for root in roots:
            document.add_root(root)
        document.title = title
        document.template = Environment(autoescape=False).from_string(_TEMPLATE)
        document.template_variables["saved"] = str(session.file.path)
        document.js_on_event("document_ready", CustomJS(args=self._models(), code=_KEYS))
        self.refresh()
        document.add_periodic_callback(self.refresh, _EVERY)

    def refresh(self) -> None:
        """Show what has changed."""
        session, task = self._session, self._background.task
        seen = (session.version, task is None, self._message)
        if seen == self._seen:
            return
        self._seen = seen
        parts, busy = self._parts, task is not None
        parts["state"].text = fragments.state(session, task)
        parts["message"].text = fragments.message(self._message)
        parts["message"].visible = bool(self._message)
        parts["question"].text = fragments.question(session, busy=busy)
        for name in ("features", "neighbours", "accuracy", "sizes", "labelled"):
            parts[name].text = getattr(fragments, name)(session)
        self._show_classes()
        self._skip.disabled, self._undo.disabled = session.asked is None, not session.answers
        records = [record for record in session.records if record.withheld]
        self._source.data = {
            "labels": [record.labels for record in records],
            "right": [record.right / record.withheld for record in records],
            "text": [f"{record.right} of {record.withheld}" for record in records],
        }
        self._chart.visible = len(records) > 1
        self.asked.update(revision=session.revision)

    def _receive(self, _attribute: str, _old: Any, new: list[Any]) -> None:
        """Do what a tab has sent, or say why not."""
        action, value, revision = str(new[0]), str(new[1]), int(new[2])
        session = self._session
        self._message = ""
        try:
            match action:
                case "label":
                    session.label(value, revision)
                case "skip":
                    session.skip(revision)
                case "undo":
                    session.undo(revision)
                case "ask":
                    session.ask(int(value), revision)
                case "find":
                    session.ask(session.place_of(value.strip()), revision)
        except (GCKMError, OSError) as error:  # Nothing has changed.
            self._message = str(error)
        self._background.step()
        self.refresh()

    def _show_classes(self) -> None:
        """Buttons of all classes with their keys, or of the likeliest ones."""
        session, asked, classes = self._session, self._session.asked, self._session.classes
        keys, shown = keys_of(classes), classes
        self._chooser.visible = len(classes) > MOST_BUTTONS
        if self._chooser.visible:
            guess = [] if asked is None or session.findings is None else session.findings.guess(asked.node)
            keys, shown = {}, [name for name, _ in guess[:_LIKELIEST]]
            self._choice.completions = classes
        self.asked.update(keys=[[key, name] for key, name in keys.items()])
        wanted = (shown, asked is None)
        if wanted != self._buttons:
            self._buttons = wanted
            of_class = {name: f"{key} · {name}" for key, name in keys.items() if key != name}
            self._classes.children = [
                self._button(of_class.get(name, name), "label", name, disabled=asked is None, button_type="primary")
                for name in shown
            ]

    def _models(self) -> dict[str, Any]:
        return {"answer": self.sent, "question": self.asked}

    def _wide(self) -> dict[str, Any]:
        return {"sizing_mode": "stretch_width", "stylesheets": [self._style], "margin": 0}

    def _flow(self, name: str, children: list[UIElement]) -> Row:
        """A row that goes on in the next line."""
        return row(children, name=name, styles={"flex-wrap": "wrap", "gap": "8px"}, sizing_mode="stretch_width")

    def _button(self, text: str, action: str, value: str = "", **options: Any) -> Button:
        button = Button(label=text, stylesheets=[self._style], margin=0, **options)
        button.js_on_event(
            "button_click", CustomJS(args={**self._models(), "action": action, "value": value}, code=_SEND)
        )
        return button

    def _field(self, name: str, entry: TextInput, action: str, text: str) -> Row:
        """A field to type a name in, and a button that sends it, as the enter key does."""
        send = CustomJS(args={**self._models(), "action": action, "input": entry}, code=_SEND_INPUT)
        button = Button(label=text, stylesheets=[self._style], margin=0)
        button.js_on_event("button_click", send)
        entry.js_on_event(ValueSubmit, send)
        return row([entry, button], name=name, styles={"gap": "8px"}, sizing_mode="stretch_width")

    def _accuracy_chart(self) -> Any:
        """The share of withheld labels that are predicted, against the number of labels."""
        chart = figure(
            name="chart", height=170, sizing_mode="stretch_width", toolbar_location=None,
            y_range=Range1d(start=0, end=1.03), x_axis_label="labels", tools="",
            background_fill_alpha=0, border_fill_alpha=0, outline_line_color=None,
        )  # fmt: skip
        chart.line("labels", "right", source=self._source, line_width=2, color="#1f6feb")
        chart.scatter("labels", "right", source=self._source, size=7, color="#1f6feb")
        chart.add_tools(HoverTool(tooltips=[("labels", "@labels"), ("withheld labels predicted", "@text")]))
        chart.yaxis.formatter = NumeralTickFormatter(format="0 %")
        for axis in (*chart.xaxis, *chart.yaxis):
            axis.axis_line_color = axis.major_tick_line_color = _GREY
            axis.minor_tick_line_color = None
            axis.major_label_text_color = axis.axis_label_text_color = _GREY
            axis.axis_label_text_font_style = "normal"
        chart.grid.grid_line_color, chart.grid.grid_line_alpha = _GREY, 0.25
        return chart
