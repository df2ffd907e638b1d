"""What the page on raw tables says is what was measured."""

import importlib.util
import json
from pathlib import Path

import pytest

HOME = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def tables():
    """Return the benchmark as a module."""
    spec = importlib.util.spec_from_file_location("tables", HOME / "benchmarks" / "tables.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def results():
    return json.loads((HOME / "benchmarks" / "results" / "tables.json").read_text())


def test_the_page_is_made_of_the_results(tables, results):
    splits = len(results["churn"])
    ordered = {name: results[name] for name in tables.SETS}
    assert tables.page(ordered, splits) == (HOME / "docs" / "mixed.md").read_text()


def test_on_none_of_eight_tables_a_constant_is_better(tables, results):
    assert set(results) == set(tables.SETS)
    assert len(tables.SETS) == 8
    for name, measured in results.items():
        rows = list(measured.values())
        assert len(rows) >= 5, name
        assert tables.is_no_worse(rows, tables.CONSTANT), name
        worse = [{**row, tables.OURS: {"score": 2 * row[tables.CONSTANT]["score"]}} for row in rows]
        assert not tables.is_no_worse(worse, tables.CONSTANT)  # it would be seen


def test_the_large_tables_are_trained_on_with_nothing_but_their_target(tables, monkeypatch):
    asked = []

    def note(arguments):
        asked.append(arguments)
        raise InterruptedError

    monkeypatch.setattr(tables, "LARGE", {"small": tables.SETS["diabetes"]})
    monkeypatch.setattr(tables, "alone", note)
    with pytest.raises(InterruptedError):
        tables.measure_large("small")
    assert [word for word in asked[0] if word.startswith("--")] == ["--data", "--target", "--out"]
