import math

import pytest

import heatbath as hb
from tests.explorer.pages import Page
from tests.patience import PATIENCE


@pytest.fixture(autouse=True)
def records_may_take_any_time(monkeypatch):
    """Lift the time limit of records, which would leave some out on a slow machine."""
    monkeypatch.setattr("heatbath.explorer.run_stream.FREE_RECORD_SECONDS", math.inf)


@pytest.fixture(scope="module")
def served():
    with hb.explore(browser=False) as server:
        yield server


@pytest.fixture
def patient_server(monkeypatch):
    """Return a server that keeps the sessions of pages that are gone, however long they stay away."""
    monkeypatch.setattr("heatbath.explorer.server.RETURN_SECONDS", PATIENCE)
    with hb.explore(browser=False) as server:
        yield server


@pytest.fixture
def page(served):
    with Page(served) as page:
        yield page
