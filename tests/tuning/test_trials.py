"""What the trials of a search say: the best, what matters, and edges of ranges."""

from dataclasses import replace

import pytest

import heatbath as hb
from heatbath.tuning.search_space import Candidate, families, points
from heatbath.tuning.trials import RUNGS, Trial


def test_candidates_that_were_never_judged_say_nothing_of_what_matters_and_of_edges():
    (family,) = families({"late": hb.Partition(hb.Adam(beta1=hb.between(0.1, 0.2)), hb.between(1e-3, 1e-2))})
    some = [Trial(one, 1, 50, loss=one.values["h"]) for one in points(family, 16, seed=0)]
    begun = [Trial(replace(one, name=f"{one.name} b")) for one in points(family, 64, seed=1)]
    told = [hb.TuningResult([family], trials, "loss", [], finished=False) for trials in (some, some + begun)]
    assert told[0].importance == told[1].importance
    assert told[0].edges == told[1].edges
    assert told[0].importance["late"]["h"] > 0.8
    assert hb.TuningResult([family], begun, "loss", [], finished=False).importance == {}


def test_too_few_candidates_or_equal_ones_do_not_tell_what_matters():
    """There is no warning, and no value is NaN."""
    (family,) = families({"SGLD": hb.Partition(hb.SGLD(hb.between(1e-4, 1e-2)), hb.between(0.1, 1.0))})
    for count in range(1, 10):
        tried = [Trial(one, RUNGS, 8, loss=one.values["h"]) for one in points(family, count, seed=0)]
        assert ("SGLD" in hb.TuningResult([family], tried, "loss", []).importance) == (count >= 8)
    same = [replace(trial, loss=0.5) for trial in tried]
    assert hb.TuningResult([family], same, "loss", []).importance == {}


def test_nothing_lies_beyond_zero():
    (family,) = families({"Adam": hb.Partition(hb.Adam(hb.between(0.0, 0.5)), 0.01)})
    for sign, expected in ((1, {}), (-1, {"Adam": {"beta1": 0.5}})):
        tried = [Trial(one, RUNGS, 8, loss=sign * one.values["beta1"]) for one in points(family, 64, seed=0)]
        assert hb.TuningResult([family], tried, "loss", []).edges == expected


def make_result(losses, finished=True, **fields):
    """Return a search of one coefficient, with these losses for evenly spaced, falling h."""
    (family,) = families({"SGD": hb.Partition(hb.SGD(), hb.between(0.01, 1.0))})
    span = len(losses) - 1
    trials = [
        Trial(Candidate(f"SGD {i}", family, {"h": family.ranges["h"].at(1 - i / span)}), RUNGS, 8, loss=loss)
        for i, loss in enumerate(losses)
    ]
    return hb.TuningResult(
        [family], [replace(trial, **fields) for trial in trials], "loss", [], finished=finished
    )


def test_trials_are_ranked_by_how_far_they_came_and_then_by_their_scores():
    (candidate,) = points(families("SGD")[0], 1, seed=0)
    early, late = Trial(candidate, 1, loss=0.1), Trial(candidate, 2, loss=0.9)
    lost, unknown = Trial(candidate, 4, 800, diverged=True), Trial(candidate, 2)
    assert sorted([lost, early, unknown, late], key=lambda trial: trial.worth("loss")) == [
        late,
        unknown,
        early,
        lost,
    ]
    exact, sloppy = Trial(candidate, 2, loss=0.9, accuracy=0.8), Trial(candidate, 2, loss=0.1, accuracy=0.7)
    assert exact.worth("accuracy") < sloppy.worth("accuracy")
    assert sloppy.worth("loss") < exact.worth("loss")


def test_best_values_at_an_end_of_the_range_are_an_edge_and_others_are_not():
    at_the_end = make_result([float(i) for i in range(40)])
    assert at_the_end.edges == {"SGD": {"h": 1.0}}
    assert at_the_end.wider["SGD"]["h"] == at_the_end.families[0].ranges["h"].beyond(1.0)
    inside = make_result([abs(i - 20.0) for i in range(40)])
    assert inside.edges == {}
    best_inside = make_result([-1.0 if i == 20 else float(i) for i in range(40)])
    assert best_inside.edges == {}  # though all other good ones are at the end


def test_a_method_without_a_best_says_why():
    assert make_result([1.0, 2.0], diverged=True).without == {"SGD": "every candidate diverged"}
    assert make_result([1.0, 2.0], finished=False, rung=0).without == {
        "SGD": "no candidate has been judged yet"
    }
    assert make_result([1.0, 2.0]).without == {}


def test_the_table_has_the_best_first_with_its_coefficients():
    table = make_result([3.0, 1.0, 2.0]).table
    assert table.loss.tolist() == [1.0, 2.0, 3.0]
    assert table.best.tolist() == [True, False, False]
    assert list(table.columns)[:3] == ["method", "best", "rung"]
    assert table.h.iloc[0] == pytest.approx(0.1)
