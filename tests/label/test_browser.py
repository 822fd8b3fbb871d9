"""The page in a real browser, served by the real command."""

import csv
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from tests.browser import CHROMIUM, DRIVER, open_browser
from tests.conftest import make_graph
from tests.label.conftest import rows_of

pytest.importorskip("bokeh")
pytest.importorskip("selenium")

from selenium.webdriver.common.keys import Keys

from tests.label.tab import Tab

pytestmark = [
    pytest.mark.skipif("GCKM_SLOW" not in os.environ, reason="a browser takes a while: make test-browser"),
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no chromium or chromedriver"),
]
NAMES = ["<img src=x onerror=window.hacked=1>", *(f"n{node}" for node in range(1, 60))]
COLUMNS = ["<b>a</b>", *"bcdefgh"]


class Served:
    """``gckm label`` in a process of its own, on files in a folder."""

    def __init__(self, folder, *options):
        self.folder, self.labels = folder, folder / "x.labelled.csv"
        files = ["--features", folder / "x.csv", "--edges", folder / "edges.csv"]
        command = [sys.executable, "-m", "torch_gckm", "label", *files, "--no-browser", "--budget", "0.5", *options]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        lines = iter(self.process.stderr.readline, "")
        self.url = next(line.split()[-1] for line in lines if "http://" in line)

    def stop(self, number=signal.SIGINT):
        """End it; returns what it says."""
        self.process.send_signal(number)
        return self.process.communicate(timeout=60)[1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder, graph = tmp_path_factory.mktemp("insects"), make_graph()
    with (folder / "x.csv").open("w", newline="") as file:
        rows = ([name, *row] for name, row in zip(NAMES, graph.x.tolist(), strict=True))
        csv.writer(file).writerows([["node", *COLUMNS], *rows])
    with (folder / "edges.csv").open("w", newline="") as file:
        ends = graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]].t().tolist()
        csv.writer(file).writerows([["from", "to"], *([NAMES[a], NAMES[b]] for a, b in ends)])
    return folder


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    with open_browser(tmp_path_factory.mktemp("browser")) as browser:
        yield browser.driver


@pytest.fixture
def served(folder):
    (folder / "x.labelled.csv").unlink(missing_ok=True)
    served = Served(folder, "--classes", "ant", "<i>bee</i>", "cat")
    yield served
    if served.process.poll() is None:
        served.process.kill()
    served.process.communicate()


def test_clicks_keys_and_typing(served, driver):
    tab = Tab(driver, served.url)
    first = tab.node
    tab.click("1 · ant", ".bk-btn")
    tab.wait_for(lambda tab: tab.node != first)
    assert rows_of(served.labels) == [(first, "ant")]  # In the file before the page has changed.
    second = tab.node
    tab.press("2")
    tab.wait_for(lambda tab: tab.node != second)
    assert rows_of(served.labels) == [(first, "ant"), (second, "<i>bee</i>")]
    third = tab.node
    tab.press("s")
    tab.wait_for(lambda tab: tab.node != third)
    assert rows_of(served.labels)[-1] == (third, "")
    tab.press("u")
    tab.wait_for(lambda tab: tab.node == third)
    tab.click("Undo", ".bk-btn")
    tab.wait_for(lambda tab: tab.node == second)
    assert rows_of(served.labels) == [(first, "ant")]

    # Typing in a field is no key; a new class is a label.
    field = tab.field("a new class")
    field.send_keys("wasp 1 us")
    assert (tab.node, len(rows_of(served.labels))) == (second, 1)
    field.send_keys(Keys.ENTER)
    tab.wait_for(lambda tab: tab.node != second)
    assert rows_of(served.labels)[-1] == (second, "wasp 1 us")
    assert "4 · wasp 1 us" in tab.text

    # A name is asked for by a click on it, or by typing it.
    tab.click(first, "[data-node]")
    tab.wait_for(lambda tab: tab.node == first)
    assert "Its label is ant" in tab.text
    tab.press("3")
    tab.wait_for(lambda tab: tab.node != first)
    assert dict(rows_of(served.labels))[first] == "cat"
    tab.field("another node").send_keys("n59", Keys.ENTER)
    tab.wait_for(lambda tab: tab.node == "n59")
    tab.field("another node").send_keys("nobody", Keys.ENTER)
    tab.wait_for("no node is called 'nobody'")

    # A fit and its guesses come by themselves.
    tab.wait_for("the guesses are up to date")
    assert "present guess" in tab.text
    assert "Fitting" not in tab.text
    assert tab.errors() == []
    said = served.stop()
    assert served.process.returncode == 0
    assert f"go on with: gckm fit model.pt --features {served.folder}" in said
    assert f"--labels {served.labels}" in said


def test_names_are_text(served, driver):
    tab = Tab(driver, served.url)
    tab.field("another node").send_keys(NAMES[0], Keys.ENTER)
    tab.wait_for(lambda tab: tab.node == NAMES[0])
    assert COLUMNS[0] in tab.text
    tab.click("2 · <i>bee</i>", ".bk-btn")
    tab.wait_for(lambda tab: tab.node != NAMES[0])
    assert rows_of(served.labels) == [(NAMES[0], "<i>bee</i>")]
    assert "<i>bee</i>" in tab.text
    assert driver.execute_script("return window.hacked") is None

    driver.switch_to.new_window("tab")
    root, token = served.url.rsplit("/", 1)
    for wrong in (root, f"{root}/{'0' * len(token)}"):
        driver.get(wrong)
        assert driver.execute_script("return window.Bokeh === undefined")
        assert token not in driver.page_source


def test_two_tabs_and_a_killed_server(served, driver, folder):
    one, two = Tab(driver, served.url), Tab(driver, served.url)
    assert one.node == two.node
    node, seen = one.node, two.revision
    one.press("1")
    two.wait_for(lambda tab: tab.node != node)  # Without doing anything in it.
    assert "1 of 60 nodes have a label" in two.text
    assert one.node == two.node

    # A click in the second tab that was made before it knew: refused, and said in that tab.
    for action, value in (("label", "cat"), ("skip", ""), ("undo", "")):
        two.send(action, value, seen, time.time())
        two.wait_for("this answer was not used")
    assert "was not used" not in one.text
    assert rows_of(served.labels) == [(node, "ant")]
    two.press("2")
    one.wait_for("2 of 60 nodes have a label")
    before = rows_of(served.labels)
    assert before[1][1] == "<i>bee</i>"

    helpers = psutil.Process(served.process.pid).children(recursive=True)
    assert helpers
    served.stop(signal.SIGKILL)
    assert psutil.wait_procs(helpers, timeout=30)[1] == []  # What fitted for it ends, too.
    again = Served(folder)
    try:
        tab = Tab(driver, again.url)
        assert again.url != served.url
        assert "2 of 60 nodes have a label" in tab.text
        tab.press("u")
        tab.wait_for("1 of 60 nodes have a label")
        assert rows_of(served.labels) == before[:1]
    finally:
        again.stop()


def test_many_classes_are_chosen_by_name(folder, driver):
    (folder / "x.labelled.csv").unlink(missing_ok=True)
    served = Served(folder, "--classes", *(f"kind {number}" for number in range(40)))
    try:
        tab = Tab(driver, served.url)
        node = tab.node
        tab.press("1")  # Means nothing here.
        field = tab.field("any class")
        field.send_keys("kind 37")
        tab.wait_for(lambda tab: driver.switch_to.window(tab.handle) or field.get_attribute("value") == "kind 37")
        field.send_keys(Keys.ENTER)
        tab.wait_for(lambda tab: tab.node != node)
        assert rows_of(served.labels) == [(node, "kind 37")]
    finally:
        served.stop()
