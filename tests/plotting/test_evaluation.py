"""Pictures of forecasts, and of what they are made of."""

import numpy as np
import pytest
from sklearn import metrics

from heatbath import plotting
from heatbath.evaluation import Forecast
from tests.plotting.pictures import judgement, labelled_lines, ticks


def rare_event(count=2000):
    """Return forecasts and outcomes of an event of some 5 %, with calibrated probabilities."""
    rng = np.random.default_rng(0)
    p = rng.beta(1, 19, count)
    y = (rng.random(count) < p).astype(float)
    return Forecast("binary", ("no", "$ & yes"), y[:, None], p[:, None])


def test_a_roc_curve_equals_scikit_learns_and_is_labelled_with_its_area():
    said = judgement("binary")
    ax = plotting.roc(said)
    lines = labelled_lines(ax)
    for (label, one), (name, line) in zip(said.items(), lines.items(), strict=True):
        wrong, right, _ = metrics.roc_curve(one.labels, one.mean[:, 0])
        np.testing.assert_allclose(line.get_xydata(), np.column_stack([wrong, right]))
        area = metrics.roc_auc_score(one.labels, one.mean[:, 0])
        assert name == f"{label}, AUC {area:.3f}".removeprefix(", ")
    classes = judgement("classes")[""]
    assert [label.partition(",")[0] for label in labelled_lines(plotting.roc(classes))] == list(
        classes.targets
    )
    with pytest.raises(ValueError, match="all of one"):
        plotting.roc(Forecast("binary", ("a", "b"), np.ones((4, 1)), np.full((4, 1), 0.5)))


def test_rare_events_have_bins_of_equally_many_examples_and_zoomed_axes():
    said = rare_event()
    ax = plotting.calibration(said)
    (line,) = labelled_lines(ax).values()
    p, rate = line.get_xydata().T
    edges = np.quantile(said.mean[:, 0], np.linspace(0, 1, 11))
    assert len(p) == 10
    for place in range(10):
        inside = (said.mean[:, 0] > edges[place]) & (said.mean[:, 0] <= edges[place + 1])
        if place:
            assert rate[place] == pytest.approx(said.labels[inside].mean())
            assert p[place] == pytest.approx(said.mean[inside, 0].mean())
    assert ax.get_xlim()[1] < 0.4
    assert ax.get_xlabel() == r"predicted probability of \$ & yes"


def test_calibration_in_bins_of_equal_width_has_the_points_of_a_reliability_diagram():
    forecast = rare_event()
    (line,) = labelled_lines(plotting.calibration(forecast, bins=5)).values()
    (expected,) = labelled_lines(plotting.reliability(forecast.mean[:, 0], forecast.labels, bins=5)).values()
    np.testing.assert_array_equal(line.get_xydata(), expected.get_xydata())
    with pytest.raises(ValueError, match="bins must be a whole number >= 1"):
        plotting.calibration(forecast, bins=0)


def test_a_confusion_matrix_has_the_counts_and_shortens_long_names():
    said = judgement("classes")[""]
    ax = plotting.confusion(said)
    expected = metrics.confusion_matrix(said.labels, said.mean.argmax(axis=1), labels=[0, 1, 2])
    assert [t.get_text() for t in ax.texts] == [str(n) if n else "·" for n in expected.ravel()]
    long = Forecast("binary", ("a" * 40, "b"), said.y.clip(max=1), said.mean[:, :1])
    assert ticks(plotting.confusion(long).yaxis)[0] == "a" * 13 + "…"


def test_predictions_outside_their_intervals_have_another_colour_and_all_are_counted():
    y = np.linspace(0, 1e6, 500)[:, None]
    high = np.where(np.arange(500)[:, None] % 5 == 0, y - 5, y + 10)
    said = Forecast("regression", ("price",), y, y + 50, y - 10, high)
    ax = plotting.predicted(said)
    labels = ax.get_legend_handles_labels()[1]
    assert labels == ["in its interval (400 of 500)", "outside (100 of 500)"]
    assert sum(len(dots.get_offsets()) for dots in ax.collections if len(dots.get_offsets())) >= 150
    assert ticks(ax.xaxis)[1:3] == ["0", "250k"]
    bare = plotting.predicted(Forecast("regression", ("price",), y, y + 50))
    assert bare.get_legend() is None


def test_other_types_than_forecasts_are_refused():
    with pytest.raises(TypeError, match="a Forecast is needed"):
        plotting.roc(np.ones(3))
    with pytest.raises(ValueError, match="this picture is of classes"):
        plotting.calibration(judgement("regression"))
