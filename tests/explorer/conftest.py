import math

import pytest

import heatbath as hb
from tests.explorer.pages import Page
from tests.patience import PATIENCE


@pytest.fixture(autouse=True)
def records_may_take_any_time(monkeypatch):
    """Where they take too much of it some are left out, and how many depends on the machine."""
    monkeypatch.setattr("heatbath.explorer.run_stream.FREE_RECORD_SECONDS", math.inf)


@pytest.fixture(scope="module")
def served():
    with hb.explore(browser=False) as server:
        yield server


@pytest.fixture
def lasting(monkeypatch):
    """A server of its own, that waits for pages that are gone, however long they take to come back."""
    monkeypatch.setattr("heatbath.explorer.server.RETURN_SECONDS", PATIENCE)
    with hb.explore(browser=False) as server:
        yield server


@pytest.fixture
def page(served):
    with Page(served) as page:
        yield page
