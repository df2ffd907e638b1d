"""Fixtures of the tests of reports."""

import pytest

from heatbath import plotting


@pytest.fixture
def unsaved_pictures(monkeypatch, tmp_path):
    """Draw pictures without writing them, since that takes longest, and return a folder."""
    monkeypatch.setattr(plotting, "save", lambda _, path: (path, path))
    return tmp_path
