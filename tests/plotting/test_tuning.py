"""Searches: all candidates, where they lie, and what matters."""

from dataclasses import replace

import matplotlib.colors
import numpy as np
import pytest

import heatbath as hb
from heatbath import plotting
from heatbath.plotting.style import COLOURS
from heatbath.tuning.trials import Trial
from tests.plotting.pictures import ticks, tuned
from tests.runs import SMALL, SPIRALS

pytestmark = pytest.mark.filterwarnings("ignore::heatbath.SearchEdgeWarning")  # searches here are very short


def best_points(ax):
    """Return the places of the points that are drawn in the colour of the best."""
    colour = matplotlib.colors.to_rgb(COLOURS[1])
    chosen = [
        c for c in ax.collections if len(c.get_offsets()) and tuple(c.get_facecolors()[0][:3]) == colour
    ]
    return [tuple(collection.get_offsets()[0]) for collection in chosen]


@pytest.mark.parametrize("by", ["accuracy", "loss"])
def test_a_search_has_a_dot_for_each_candidate_and_a_star_for_the_best(by):
    found = tuned(by)
    ax = plotting.search(found)
    dots = [c for c in ax.collections if len(c.get_offsets())]
    places = np.concatenate([c.get_offsets() for c in dots])
    best = [(getattr(found.best[name], by), row) for row, name in enumerate(("AdLaLa", "LOL", "Adam"))]
    assert best_points(ax) == best
    for row, family in enumerate(found.families):
        own = [t for t in found.trials if t.candidate.family is family and not t.diverged]
        drawn = places[np.abs(places[:, 1] - row) <= 0.3]
        expected = [getattr(trial, by) for trial in own] + [best[row][0]]
        np.testing.assert_allclose(sorted(drawn[:, 0]), sorted(expected))
    lost = sum(trial.diverged for trial in found.trials)
    assert lost > 0
    assert ticks(ax.yaxis) == ["AdLaLa", f"LOL\n({lost} diverged)", "Adam"]
    assert ax.get_xlabel() == f"validation {by}"
    assert ax.get_xscale() == ("linear" if by == "accuracy" else "log")
    legend = [text.get_text() for text in ax.get_legend().get_texts()]
    assert legend == ["10 steps", "20 steps", "40 steps", "80 steps", "best"]


def test_candidates_with_more_steps_are_darker():
    ax = plotting.search(tuned())
    keys = [c for c in ax.collections if c.get_label().endswith("steps")]
    shades = [c.get_facecolors()[0][0] for c in keys]
    assert shades == sorted(shades, reverse=True)
    assert shades[-1] == 0


def test_a_map_has_the_two_most_important_coefficients_and_crosses_for_diverged_candidates():
    found = tuned()
    ax = plotting.search_map(found, "LOL")
    x, y = list(found.importance["LOL"])[:2]
    names = {"h": "$h$", "tau": r"$\tau$"}
    assert (ax.get_xlabel(), ax.get_ylabel()) == (names[x], names[y])
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    own = [trial for trial in found.trials if trial.candidate.family.name == "LOL"]
    crosses = next(c for c in ax.collections if c.get_label() == "diverged")
    where = [[t.candidate.values[x], t.candidate.values[y]] for t in own if t.diverged]
    np.testing.assert_allclose(crosses.get_offsets(), where)
    dots = next(c for c in ax.collections if c.get_array() is not None)
    alive = [t for t in own if not t.diverged]
    np.testing.assert_allclose(dots.get_array(), [t.accuracy for t in alive])
    np.testing.assert_allclose(
        dots.get_offsets(), [[t.candidate.values[x], t.candidate.values[y]] for t in alive]
    )
    best = found.best["LOL"].candidate.values
    assert best_points(ax) == [(best[x], best[y])]
    low, high = hb.between(0.1, 1e9).range()
    ends = ax.get_xlim() if x == "h" else ax.get_ylim()
    assert ends[0] < low
    assert ends[1] > high


def test_the_two_most_important_coefficients_are_the_axes():
    found = replace(tuned())
    vars(found)["importance"] = {"AdLaLa": {"epsilon": 0.6, "h": 0.3, "tau": 0.1}}
    ax = plotting.search_map(found, "AdLaLa")
    assert (ax.get_xlabel(), ax.get_ylabel()) == (r"$\epsilon$", "$h$")


def test_a_map_is_of_the_best_method_unless_one_is_named():
    chosen = tuned().families[:2]
    found = replace(
        tuned(), families=chosen, trials=[t for t in tuned().trials if t.candidate.family in chosen]
    )
    maps = [plotting.search_map(found, name) for name in (None, "AdLaLa", "LOL")]
    first, *others = (best_points(ax) for ax in maps)
    assert [name for name, place in zip(("AdLaLa", "LOL"), others, strict=True) if place == first] == [
        found.winner
    ]


def test_ranges_near_one_are_logarithmic_in_the_distance_to_one_and_a_map_needs_two_coefficients():
    problem = hb.Partition(
        hb.Adam(hb.between(0.5, 0.999, "complement"), hb.between(0.1, 0.9, "linear")), 0.01
    )
    found = hb.tune(SPIRALS, SMALL, problem, 80, 20, candidates=4)
    ax = plotting.search_map(found)
    near = ax.xaxis if ax.get_xlabel() == r"$\beta_1$" else ax.yaxis
    assert ticks(near) == ["0.5", "0.9", "0.99", "0.999"]
    middle = ax.transData.transform([(0.9, 0.9), (0.99, 0.99), (0.999, 0.999)])[:, int(near is ax.yaxis)]
    assert middle[1] - middle[0] == pytest.approx(middle[2] - middle[1])
    with pytest.raises(ValueError, match="a map needs two coefficients that were searched, Adam has 1"):
        plotting.search_map(tuned(), "Adam")


def test_losses_below_zero_have_a_linear_axis():
    found = tuned("loss")
    lower = replace(found, trials=[replace(trial, loss=trial.loss - 1) for trial in found.trials])
    assert plotting.search(lower).get_xscale() == "linear"
    plotting.embed(plotting.search_map(lower, "AdLaLa"))


def is_crowded(axis):
    """Return True if two numbers of an axis overlap, or it has fewer than two."""
    figure = axis.axes.figure
    figure.draw_without_rendering()
    low, high = sorted(axis.get_view_interval())
    labels = [t.label1 for t in axis.get_major_ticks() if low <= t.get_loc() <= high and t.label1.get_text()]
    boxes = [label.get_window_extent() for label in labels]
    return len(boxes) < 2 or any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


@pytest.mark.parametrize(("by", "middle"), [("loss", -3.2), ("accuracy", 0.97)])
def test_the_numbers_of_a_linear_axis_do_not_touch(by, middle):
    found, shifts = tuned(), np.linspace(-0.09, 0.085, 36)
    pairs = zip(found.trials, shifts, strict=True)
    trials = [replace(t, **{by: middle + shift}, diverged=False) for t, shift in pairs]
    ax = plotting.search(replace(found, trials=trials, by=by))
    assert ax.get_xscale() == "linear"
    assert not is_crowded(ax.xaxis)


@pytest.mark.parametrize("first", [hb.between(0.1, 0.1004), hb.between(0.9, 0.9001, "complement")], ids=repr)
def test_narrow_ranges_have_numbers_on_their_axes(first):
    method = {"Adam": hb.Partition(hb.Adam(first, hb.between(0.2, 0.2004)), 0.01)}
    found = hb.tune(SPIRALS, SMALL, method, 8, 20, candidates=4)
    ax = plotting.search_map(found)
    assert not is_crowded(ax.xaxis)
    assert not is_crowded(ax.yaxis)


def test_a_method_without_candidates_at_the_last_rung_has_no_star():
    found = tuned()
    own = [t.candidate.family.name == "Adam" and t.rung == 4 for t in found.trials]
    trials = [
        Trial(t.candidate, 4, 80, diverged=True) if late else t
        for late, t in zip(own, found.trials, strict=True)
    ]
    some = replace(found, trials=trials)
    assert "Adam" in some.without
    ax = plotting.search(some)
    assert [row for _, row in best_points(ax)] == [0, 1]
    assert ticks(ax.yaxis)[2] == "Adam\n(none at the end)"
    assert best_points(plotting.search_map(some, "AdLaLa"))


def test_after_ctrl_c_candidates_that_have_not_begun_are_left_out():
    found = tuned()
    names = {trial.name for trial in found.best.values()}
    begun = [t if t.name in names else replace(t, steps=0, rung=0, diverged=False) for t in found.trials]
    some = replace(found, trials=begun)
    ax = plotting.search(some)
    assert sum(len(c.get_offsets()) for c in ax.collections) == 2 * 3
    plotting.embed(plotting.search_map(some, "AdLaLa"))


def test_importance_is_drawn_as_bars():
    found = tuned()
    ax = plotting.importance(found)
    widths = [bar.get_width() for bar in ax.patches]
    assert widths == [share for shares in found.importance.values() for share in shares.values()]
    assert ticks(ax.yaxis)[-1] == "$h$"
    assert r"$\tau$ (output)" in ticks(ax.yaxis)
    assert [t.get_text() for t in ax.get_legend().get_texts()] == list(found.importance)


@pytest.mark.parametrize("draw", [plotting.search, plotting.search_map, plotting.importance])
def test_other_types_than_searches_are_refused(draw):
    with pytest.raises(TypeError, match="a search is needed, as tune returns it; got str"):
        draw("x")


def test_unknown_methods_and_searches_without_importance_are_refused():
    with pytest.raises(
        ValueError, match="there is no method 'SGD' in this search; accepted: 'AdLaLa', 'LOL'"
    ):
        plotting.search_map(tuned(), "SGD")
    fixed = hb.tune(SPIRALS, SMALL, hb.Partition(hb.Adam(), h=0.01), 80, 20)
    with pytest.raises(ValueError, match="needs a method with at least eight candidates"):
        plotting.importance(fixed)
