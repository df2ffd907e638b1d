import pytest

import heatbath as hb
from tests.explorer.pages import Page


@pytest.fixture(scope="session")
def served():
    with hb.explore(browser=False) as server:
        yield server


@pytest.fixture
def page(served):
    with Page(served) as page:
        yield page
