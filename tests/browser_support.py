"""A real browser for tests of pages; they are skipped where there is none."""

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

HOME, END, DOWN = "\ue011", "\ue010", "\ue015"
"""Keys."""


@pytest.fixture
def browser() -> Iterator[Any]:
    """Chromium without a screen or a network."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs the extra browser")
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        pytest.skip("needs chromium and its driver")
    options = webdriver.ChromeOptions()
    for word in ("headless", "no-sandbox", "disable-gpu", "disable-background-networking", "window-size=1500,900"):
        options.add_argument(f"--{word}")
    options.binary_location = str(shutil.which("chromium"))
    driver = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
    yield driver
    driver.quit()


def narrow(driver: Any) -> None:
    """A screen as a phone has it, which no window is."""
    sizes = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", sizes)


def press(driver: Any, keys: str) -> str:
    """The line that is chosen when some keys have been pressed."""
    driver.find_element("tag name", "body").send_keys(keys)
    return chosen(driver)


def chosen(driver: Any) -> str:
    """The first two cells of the line that is chosen."""
    cells = driver.find_elements("css selector", "tr[aria-selected=true] td")
    return " ".join(cell.text for cell in cells[:2])


def complaints(driver: Any) -> list[str]:
    """What axe has against the page."""
    axe = pytest.importorskip("axe_core_python.selenium").Axe()
    return [found["id"] for found in axe.run(driver)["violations"]]
