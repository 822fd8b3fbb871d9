"""What there is to see and to click in a page of Bokeh's widgets."""

import time

from selenium.common.exceptions import JavascriptException, StaleElementReferenceException
from selenium.webdriver.common.by import By

# Widgets have shadow roots, which selectors do not look into.
_WALK = """
function* walk(root) {
  for (const element of root.querySelectorAll("*")) {
    yield element
    if (element.shadowRoot) yield* walk(element.shadowRoot)
  }
}
const seen = [...walk(document)].filter((element) => element.checkVisibility())
"""
_TEXT = (
    _WALK
    + """
return seen.filter((e) => e.matches(".bk-clearfix, .bk-btn, h1, h2, footer")).map((e) => e.innerText).join("\\n")
"""
)
_FIND = _WALK + "return seen.find((e) => e.matches(arguments[0]) && e.innerText.trim() === arguments[1])"
_FIELD = _WALK + "return seen.find((e) => e.matches('input') && e.placeholder === arguments[0])"
_SEND = """
const models = [...Bokeh.documents[0]._all_models.values()]
models.find((model) => model.type.endsWith("Sent")).content = arguments[0]
"""
_SHOWN = """
const models = [...Bokeh.documents[0]._all_models.values()]
return models.find((model) => model.type.endsWith("Asked")).revision
"""


class Tab:
    """A tab of a browser with the page of a session."""

    def __init__(self, driver, url):
        self.driver = driver
        driver.switch_to.new_window("tab")
        self.handle = driver.current_window_handle
        driver.get(url)
        self.wait_for("Which class is node")

    @property
    def text(self):
        """Everything that can be read on the page."""
        self.driver.switch_to.window(self.handle)
        return self.driver.execute_script(_TEXT)

    @property
    def node(self):
        """The node that is asked for."""
        return self.text.split("Which class is node ")[1].split("?")[0]

    @property
    def revision(self):
        """The revision that the page shows."""
        self.driver.switch_to.window(self.handle)
        return self.driver.execute_script(_SHOWN)

    def wait_for(self, expected, seconds=60):
        """Wait until a text is there, or until something holds of the tab."""
        holds = expected if callable(expected) else lambda tab: expected in tab.text
        end = time.monotonic() + seconds
        while True:
            try:
                if holds(self):
                    return
            except (JavascriptException, StaleElementReferenceException, IndexError):
                pass  # The page is being built.
            assert time.monotonic() < end, f"waited for {expected} in vain; the page says: {self.text}"
            time.sleep(0.05)

    def click(self, text, kind="button"):
        """Click on what has a text."""
        self.driver.switch_to.window(self.handle)
        found = self.driver.execute_script(_FIND, kind, text)
        assert found is not None, f"nothing says {text!r}: {self.text}"
        found.click()

    def press(self, *keys):
        """Press keys while no field has the focus."""
        self.driver.switch_to.window(self.handle)
        self.driver.find_element(By.TAG_NAME, "body").send_keys(*keys)

    def field(self, placeholder):
        """A field to type into."""
        self.driver.switch_to.window(self.handle)
        return self.driver.execute_script(_FIELD, placeholder)

    def send(self, *content):
        """Send what a tab would that has not been told yet of an answer in another one."""
        self.driver.switch_to.window(self.handle)
        self.driver.execute_script(_SEND, list(content))

    def errors(self):
        """What the browser complains of."""
        self.driver.switch_to.window(self.handle)
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]
