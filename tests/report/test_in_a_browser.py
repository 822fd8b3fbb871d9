"""What a reader of the page does with it, in a real browser without a network."""

import csv
import re
import time

import pytest

from tests.conftest import make_graph
from tests.report.conftest import EVIL, QUICK
from torch_gckm import GCKMClassifier
from torch_gckm.report import write_report

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::torch_gckm.errors.LowRankWarning")]

# Elements are in shadow trees of Bokeh's; all that match, in the order of the page.
FIND = """
const found = []
const visit = (root) => {
  for (const one of root.querySelectorAll("*")) {
    if (one.matches(arguments[0])) found.push(one)
    if (one.shadowRoot) visit(one.shadowRoot)
  }
}
visit(document)
return found
"""
DRAWN = (
    "document.querySelectorAll('[data-root-id]').length > 0 && Bokeh.documents.length > 0 && Bokeh.documents[0].is_idle"
)
# Where a node is in the window, once the picture is in view.
PLACE = """
const name = arguments[0]
for (const view of Bokeh.index.all_views()) {
  if (view.model.type == "Figure" && view.model.renderers.length > 3) {
    view.el.scrollIntoView({block: "center"})
    const {data} = view.model.renderers[0].data_source
    const i = data.node.indexOf(name)
    const {left, top} = view.canvas_view.el.getBoundingClientRect()
    return [left + view.frame.x_scale.compute(data.x[i]), top + view.frame.y_scale.compute(data.y[i])]
  }
}
"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory, classifier, regressor, several):
    folder = tmp_path_factory.mktemp("pages")
    found = {"classes": classifier, "numbers": regressor, "several": several}
    for name, estimator in found.items():
        write_report(folder / f"{name}.html", estimator, embedding="pca")
    return folder


def find(browser, selector):
    return browser.run(FIND, selector)


def show(browser, page, *size, **options):
    browser.show(page, *size, **options)
    browser.wait(DRAWN)


def nodes_in_table(browser):
    """The first column of the rows that are in view."""
    rows = find(browser, ".slick-row")
    return [row.text.split("\n")[0] for row in sorted(rows, key=lambda row: row.location["y"])]


def wait_for(condition, seconds=10.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing changed"
        time.sleep(0.05)


def status(browser):
    return find(browser, ".status")[0].text


@pytest.mark.parametrize(
    ("name", "width", "dark"),
    [("classes", 1280, False), ("classes", 390, True), ("numbers", 390, True), ("several", 390, False)],
)
def test_it_fits_and_asks_for_nothing(browser, pages, tmp_path, name, width, dark):
    from PIL import Image, ImageStat

    show(browser, pages / f"{name}.html", width, dark=dark)
    wait_for(lambda: len(find(browser, "canvas")) > 4 and nodes_in_table(browser))
    assert browser.overflow() == 0
    assert browser.errors() == []
    assert browser.requests() == []
    browser.picture(tmp_path / "page.png")
    picture = Image.open(tmp_path / "page.png").convert("RGB")
    brightness = ImageStat.Stat(picture.convert("L")).mean[0]
    assert brightness < 60 if dark else brightness > 200
    # Letters on axes are readable, whatever the scheme.
    ink = browser.run("return getComputedStyle(document.body).color")
    assert ink == ("rgb(230, 233, 237)" if dark else "rgb(31, 35, 40)")
    assert (
        "rgb(31, 35, 40)" not in {row.value_of_css_property("color") for row in find(browser, ".slick-cell")}
        or not dark
    )
    points = [colour for _, colour in picture.getcolors(2**24) if max(colour) - min(colour) > 90]
    assert points  # Something is drawn in colours.


def test_a_name_is_searched(browser, pages):
    show(browser, pages / "classes.html")
    (field,) = find(browser, "input[type=text]")
    field.send_keys("NODE 04")
    wait_for(lambda: status(browser) == "10 of 90 nodes match")
    wait_for(lambda: nodes_in_table(browser) == [f"node 04{digit}" for digit in range(10)])
    field.send_keys("x")
    wait_for(lambda: status(browser) == "0 of 90 nodes match" and not nodes_in_table(browser))
    assert browser.errors() == []


def test_classes_and_kinds_of_nodes_are_chosen(browser, pages, classifier):
    from selenium.webdriver.support.ui import Select

    show(browser, pages / "classes.html")
    classes, kinds = map(Select, find(browser, "select"))
    assert [option.text for option in classes.options] == ["all", "ant", "bee", "cat"]
    classes.select_by_visible_text("bee")
    predicted = classifier.predict().tolist()
    wait_for(lambda: status(browser) == f"{predicted.count('bee')} of 90 nodes match")
    first = [classifier.node_names_[i] for i, name in enumerate(predicted) if name == "bee"][:5]
    wait_for(lambda: nodes_in_table(browser)[:5] == first)
    kinds.select_by_visible_text("to label next")
    expected = [i for i in classifier.suggest(10).tolist() if predicted[i] == "bee"]
    wait_for(lambda: status(browser) == f"{len(expected)} of 90 nodes match")
    # The picture shows the same ones in colours.
    drawn = browser.run("""
        const figure = Bokeh.documents[0].roots().find((root) => root.type == "Figure")
        return figure.renderers.slice(1, 4).map((one) => [...one.view.indices].length)
    """)
    assert sum(drawn) == len(expected)


def test_a_heading_sorts(browser, pages, classifier):
    show(browser, pages / "classes.html")
    wait_for(lambda: nodes_in_table(browser))
    heading = next(one for one in find(browser, ".slick-header-column") if one.text.startswith("probability"))
    heading.click()
    surest = classifier.predict_proba().amax(dim=1)
    names = classifier.node_names_
    lowest = names[int(surest.argmin())]
    wait_for(lambda: nodes_in_table(browser)[:1] == [lowest])


def test_pointing_at_a_node(browser, pages, classifier):
    from selenium.webdriver.common.action_chains import ActionChains

    show(browser, pages / "classes.html")
    number = int(classifier.model_.predict_proba().amax(dim=1).argmin())
    x, y = browser.run(PLACE, classifier.node_names_[number])
    actions = ActionChains(browser.driver)
    actions.w3c_actions.pointer_action.move_to_location(round(x), round(y))
    actions.perform()
    wait_for(lambda: any(one.text for one in find(browser, ".bk-Tooltip")))
    words = " ".join(one.text for one in find(browser, ".bk-Tooltip"))
    assert classifier.node_names_[number] in words
    assert f"{classifier.predict()[number]} ({float(classifier.predict_proba()[number].max()):.2f})" in words
    assert re.search(r"\d+ x (ant|bee|cat)", words)


def test_rows_are_saved(browser, pages, classifier):
    show(browser, pages / "classes.html")
    (field,) = find(browser, "input[type=text]")
    field.send_keys("node 00")
    wait_for(lambda: status(browser).startswith("10 of"))
    for old in browser.downloads.iterdir():
        old.unlink()
    next(one for one in find(browser, "button") if "CSV" in one.text).click()
    wait_for(lambda: (browser.downloads / "predictions.csv").exists())
    with (browser.downloads / "predictions.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["node"] for row in rows] == [f"node 00{digit}" for digit in range(10)]
    assert [row["class"] for row in rows] == classifier.predict().tolist()[:10]
    sure = classifier.predict_proba().amax(dim=1).tolist()
    assert [float(row["probability"]) for row in rows] == pytest.approx(sure[:10], abs=1e-4)
    assert rows[9]["label given"] == ""
    assert rows[0]["label given"] == "ant"


def test_a_legend_entry_mutes_its_class(browser, pages):
    show(browser, pages / "classes.html")
    place = browser.run("""
        const figure = Bokeh.index.all_views().find((view) => view.model.type == "Figure")
        figure.el.scrollIntoView({block: "center"})
        const legend = Bokeh.index.all_views().find((view) => view.model.type == "Legend")
        const {left, top} = figure.canvas_view.el.getBoundingClientRect()
        const box = legend.bbox
        return [left + box.left + 25, top + box.top + 18]
    """)
    from selenium.webdriver.common.action_chains import ActionChains

    actions = ActionChains(browser.driver)
    actions.w3c_actions.pointer_action.move_to_location(round(place[0]), round(place[1])).click()
    actions.perform()
    figure = "Bokeh.documents[0].roots().find((root) => root.type == 'Figure')"
    wait_for(lambda: browser.run(f"return {figure}.renderers.filter((one) => one.muted).length") == 1)
    assert browser.run(f"return {figure}.renderers[1].muted")


def test_another_label_colours_the_picture(browser, pages, several):
    from selenium.webdriver.support.ui import Select

    show(browser, pages / "several.html")
    chooser = Select(find(browser, "select")[-1])
    assert [option.text for option in chooser.options] == ["first", "not the <second>", "third"]
    chooser.select_by_visible_text("third")
    values = several.predict_proba()[:, 2]
    source = "Bokeh.documents[0].roots().find((root) => root.type == 'Figure').renderers[0].data_source"
    wait_for(lambda: browser.run(f"return {source}.data.value[5]") == pytest.approx(float(values[5]), abs=1e-4))
    assert browser.errors() == []


def test_names_are_text(browser, tmp_path):
    names = [f"=<img src=x onerror='document.title=2'>{number} $$y$$" for number in range(60)]
    fitted = GCKMClassifier(**QUICK).fit(make_graph(), class_names=EVIL, node_names=names)
    write_report(tmp_path / "page.html", fitted, title="A title </title><script>document.title = 3</script>")
    show(browser, tmp_path / "page.html")
    wait_for(lambda: nodes_in_table(browser)[:1] == names[:1])
    x, y = browser.run(PLACE, names[10])
    from selenium.webdriver.common.action_chains import ActionChains

    actions = ActionChains(browser.driver)
    actions.w3c_actions.pointer_action.move_to_location(round(x), round(y))
    actions.perform()
    wait_for(lambda: any(one.text for one in find(browser, ".bk-Tooltip")))
    assert "onerror='document.title=2'" in " ".join(one.text for one in find(browser, ".bk-Tooltip"))
    assert browser.driver.title == "A title </title><script>document.title = 3</script>"
    assert find(browser, "img") == []
    assert browser.errors() == []
    assert browser.requests() == []  # Not even a library that draws formulas.
    for old in browser.downloads.iterdir():
        old.unlink()
    next(one for one in find(browser, "button") if "CSV" in one.text).click()
    wait_for(lambda: (browser.downloads / "predictions.csv").exists())
    with (browser.downloads / "predictions.csv").open(encoding="utf-8-sig", newline="") as file:
        assert next(csv.DictReader(file))["node"] == f"'{names[0]}"  # No formula of a spreadsheet.
