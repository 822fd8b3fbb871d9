"""A headless browser for tests of pages; they are skipped where there is none."""

import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")
# Nothing of the browser's own goes over the network, so what the log has comes from the page.
_OPTIONS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-default-browser-check",
    "--hide-scrollbars", "--disable-extensions", "--window-size=1280,1400",
    "--disable-features=OptimizationHints,MediaRouter",
)  # fmt: skip


class Browser:
    """A page in Chromium; whatever this lacks, the ``driver`` of Selenium has."""

    def __init__(self, driver: Any, downloads: Path) -> None:
        self.driver, self.downloads = driver, downloads

    def show(self, address: str | Path, width: int = 1280, height: int = 900, *, dark: bool = False) -> None:
        """Load a page in a window of this size, in a light or dark scheme."""
        address = address.resolve().as_uri() if isinstance(address, Path) else address
        self.command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", features=[scheme])
        self.driver.get_log("browser"), self.driver.get_log("performance")  # Of the last page.
        self.driver.get(address)

    def command(self, name: str, **parameters: Any) -> Any:
        """A command of the DevTools protocol."""
        return self.driver.execute_cdp_cmd(name, parameters)

    def run(self, script: str, *arguments: Any) -> Any:
        """The value that JavaScript returns."""
        return self.driver.execute_script(script, *arguments)

    def wait(self, condition: str, seconds: float = 15.0) -> Any:
        """Wait until a JavaScript expression is true."""
        from selenium.webdriver.support.ui import WebDriverWait

        return WebDriverWait(self.driver, seconds, 0.05).until(lambda _: self.run(f"return {condition}"))

    def errors(self) -> list[str]:
        """What the page wrote to the console as warnings and errors."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("WARNING", "SEVERE")]

    def requests(self) -> list[str]:
        """What the page asked for, but not the page itself, data inside it, or the browser."""
        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        found = [m["params"] for m in messages if m["method"] == "Network.requestWillBeSent"]
        addresses = [one["request"]["url"] for one in found if one.get("type") != "Document"]
        return [address for address in addresses if not address.startswith(("data:", "blob:", "chrome:"))]

    def overflow(self) -> int:
        """By how many pixels the page is wider than the window."""
        return int(self.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth"))

    def picture(self, path: Path) -> None:
        """Save a picture of the whole page."""
        height = self.run("return document.documentElement.scrollHeight")
        width = self.run("return document.documentElement.clientWidth")
        self.command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        self.driver.save_screenshot(str(path))


@contextlib.contextmanager
def open_browser(folder: Path) -> Iterator[Browser]:
    """A browser whose profile and downloads are in a folder."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for option in (*_OPTIONS, f"--user-data-dir={folder / 'profile'}"):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    downloads = folder / "downloads"
    downloads.mkdir(parents=True)
    options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    try:
        driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(downloads)})
        yield Browser(driver, downloads)
    finally:
        driver.quit()


def require_browser() -> None:
    """Skip a test where there is no browser to run it in."""
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("no chromium and chromedriver: pages are not tested in a browser")
    pytest.importorskip("selenium", reason="no selenium: pages are not tested in a browser")


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all tests of a process."""
    require_browser()
    with open_browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened
