"""Pictures of which columns matter, and how predictions depend on them."""

import numpy as np
import pytest

from heatbath import evaluation, plotting
from heatbath.diagnostics.statistics import Measured
from heatbath.evaluation import Dependence, Importance
from tests.evaluation.runs import trained
from tests.plotting.pictures import labelled_lines, ticks


def test_the_most_important_columns_are_drawn_with_their_intervals():
    found = [Importance(f"c{i}", Measured(1.0 / (i + 1), 0.0, 2.0 / (i + 1))) for i in range(20)]
    ax = plotting.column_importance(found, "what", most=5)
    assert ticks(ax.yaxis) == ["c0", "c1", "c2", "c3", "c4"]
    assert [bar.get_width() for bar in ax.patches] == [one.rise.value for one in found[:5]]
    assert ax.get_xlabel() == "what"


def test_a_dependence_is_a_line_with_a_band_or_dots_for_categories():
    (effect,) = evaluation.dependence(trained("binary"), ["x1"])
    ax = plotting.dependence(effect, ["b"], "probability")
    np.testing.assert_allclose(ax.get_lines()[0].get_xydata()[:, 1], effect.mean[:, 0])
    assert ax.get_ylabel() == "probability"
    several = np.arange(6.0).reshape(3, 2)
    named = Dependence("city", None, ("a", "b", "c"), several, several - 1, several + 1, np.empty(0))
    ax = plotting.dependence(named, ["first", "second"])
    assert ticks(ax.xaxis) == ["a", "b", "c"]
    assert list(labelled_lines(ax)) == ["first", "second"]


def test_other_types_than_importances_and_dependences_are_refused():
    with pytest.raises(TypeError, match=r"what importance\(run\) returns"):
        plotting.column_importance([])
    with pytest.raises(TypeError, match=r"what dependence\(run, columns\) returns"):
        plotting.dependence("x1", ["a"])
