"""ARCHITECTURE.md says which packages there are and which modules five calls pass through."""

import re
from pathlib import Path

import pytest

from tests.optional import is_installed
from tests.test_layers import LAYERS, MODULES
from tests.walks import WALKS, entered_modules

PAGE = (Path(__file__).parent.parent / "ARCHITECTURE.md").read_text(encoding="utf-8")


def modules_on_page(title):
    """Return the modules in the section of a walk."""
    (section,) = re.findall(rf"^### {re.escape(title)}\n(.*?)(?=^### |\Z)", PAGE, re.M | re.S)
    return {name for name in re.findall(r"`([a-z_.]+)`", section) if name in MODULES}


def test_the_table_lists_the_packages_in_the_order_of_their_layers():
    assert re.findall(r"^\| `(\w+)` \|", PAGE, re.M) == [name for name in LAYERS if name != "__main__"]


@pytest.mark.slow
@pytest.mark.parametrize("title", WALKS)
def test_a_walk_passes_through_the_modules_on_the_page(title):
    if title == "A torch step" and not is_installed("torch"):
        pytest.skip("torch is not installed")
    call = WALKS[title]()
    entered, listed = set(entered_modules(call)), modules_on_page(title)
    assert sorted(entered - listed) == []  # entered, but not on the page
    assert sorted(listed - entered) == []  # on the page, but not entered


def test_a_module_that_is_missing_is_noticed():
    """The control: a module is found in its own section and in no other."""
    assert "runs.plan" in modules_on_page("Train and save")
    assert "cli.commands" not in modules_on_page("Train and save")
