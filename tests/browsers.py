"""A browser to look at pages with, if there is one."""

import os
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.patience import PATIENCE

SYSTEM = Path("/usr/bin/chromium")
FLAGS = [
    "--no-sandbox",  # the tests may run as root; no page but ours is opened
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@contextmanager
def start_browser():
    """Yield Chromium, the system's or else Playwright's own; skip the test if there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="the tests of pages need playwright")
    with playwright.sync_playwright() as driver:
        try:
            own = driver.chromium.executable_path
            path = str(SYSTEM) if SYSTEM.exists() else own if os.path.exists(own) else None
            if path is None:
                pytest.skip("there is no Chromium: neither /usr/bin/chromium nor playwright's own")
            made = driver.chromium.launch(executable_path=path, args=FLAGS, timeout=1000 * PATIENCE)
        except playwright.Error as error:
            pytest.skip(f"Chromium does not start: {str(error).splitlines()[0]}")
        yield made
        made.close()


def accessibility_violations(page):
    """Return the accessibility faults that axe finds on a page."""
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe-playwright-python is missing"
    )
    found = axe.Axe().run(page).response["violations"]
    return [(one["id"], [node["html"] for node in one["nodes"]][:3]) for one in found]
