"""What a run found by itself: checked, written as plain values, and described."""

import json
import math

import pytest

from heatbath.runs.adaptation_record import Found

COMPLETE = Found(
    tried=[(0.4, math.nan), (0.2, 1.05)],
    temperature=1.02,
    error=0.03,
    ended="budget",
    rhat=1.3,
    ess=50.0,
    restarts=1,
    priors=[(1.0, 1.0), (0.5, 2.0)],
    begun="abc",
)


def test_plain_values_are_json_and_bring_back_every_field():
    plain = json.loads(json.dumps(COMPLETE.plain(), allow_nan=False))
    restored = Found(**plain)
    assert math.isnan(restored.tried[0][1])
    assert restored.plain() == COMPLETE.plain()
    assert restored.tried[1:] == COMPLETE.tried[1:]
    assert restored.priors == ((1.0, 1.0), (0.5, 2.0))


def test_a_run_that_continues_keeps_what_was_tried_but_no_results():
    kept = COMPLETE.without_results()
    assert (kept.tried, kept.restarts, kept.priors, kept.begun) == (
        COMPLETE.tried, 1, COMPLETE.priors, "abc",
    )  # fmt: skip
    assert math.isnan(kept.temperature)
    assert kept.ended == ""


def test_the_summary_has_a_line_for_everything_that_is_known():
    assert COMPLETE.summary().splitlines() == [
        "h was tried at 0.4, 0.2",
        "prior: standard deviations 0.5, 2",
        "temperature: 1.02 ± 0.03 of τ",
        "steps: the budget was spent before the predictions converged; refine allows more "
        "(R-hat 1.300, ESS 50)",
    ]
    assert "the predictions converged (R-hat" in Found(ended="converged", rhat=1.0, ess=9.0).summary()
    assert (
        Found(priors=[(1.0,)]).summary().endswith("as at first (too few steps, or too hot, to find others)")
    )
    assert Found().summary() == ""


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("tried", [(-0.1, 1.0)], "found: h must be > 0 and finite, got -0.1"),
        ("rhat", "1", "found: rhat must be a number"),
        ("restarts", -1, "found: restarts must be a whole number >= 0, got -1"),
        ("priors", [[0.0]], "found: a prior must be > 0 and finite, got 0.0"),
        ("ended", "now", "found: ended must be one of 'converged', 'budget', ''"),
        ("begun", 3, "found: begun must be text, got 3"),
    ],
)
def test_a_field_that_is_wrong_is_named(field, value, message):
    with pytest.raises((TypeError, ValueError), match=message):
        Found(**{field: value})
