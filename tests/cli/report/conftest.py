"""Fixtures of the tests of reports."""

import pytest

from heatbath import plotting


@pytest.fixture
def unsaved(monkeypatch, tmp_path):
    """A folder for pictures that are made, but not written, which takes longest."""
    monkeypatch.setattr(plotting, "save", lambda _, path: (path, path))
    return tmp_path
