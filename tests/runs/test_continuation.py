"""Plans and runs that are continued: longer, with other coefficients, on other examples, sampled again."""

import numpy as np
import pytest

import heatbath as hb
from heatbath.runs.continuation import change_plan, extend_plan, plan_differences, sample_again
from heatbath.runs.plan import make_plan
from tests.runs import SMALL, SPIRALS, short_run


def test_other_examples_must_be_of_the_kind_that_the_chains_know():
    run = hb.train(SPIRALS, SMALL, hb.LOL(), 10)
    moved = run.on_other_examples(hb.datasets.rings(n_train=20, n_test=5), 9, samples=3, thin=2).plan
    assert (moved.batch, moved.burn_in, moved.thin, moved.records) == (20, 13, 2, run.plan.records)
    X = np.zeros((9, 3))
    for other, wrong in (
        (hb.datasets.from_arrays(X, np.arange(9) % 2), "inputs they have, 2"),
        (hb.datasets.from_arrays(X[:, :2], np.arange(9.0)), "task they have, binary"),
    ):
        with pytest.raises(ValueError, match=f"the chains continue with the {wrong}; got Problem"):
            run.on_other_examples(other, 9, samples=3, thin=2)
    with pytest.raises(TypeError, match="problem must be a Problem, got 3"):
        run.on_other_examples(3, 9, samples=3, thin=2)


def test_a_run_that_is_sampled_again_keeps_its_state_and_its_latest_records(monkeypatch):
    monkeypatch.setattr("heatbath.runs.continuation.MOST_RECORDS", 4)
    run = short_run(samples=5, average=SPIRALS.X_test[0], record=10)
    fresh = sample_again(run, 40, 8, 5)
    np.testing.assert_array_equal(fresh.theta, run.theta)
    assert fresh.plan.records == run.plan.records[-4:] == tuple(fresh.data["step"].values)
    assert fresh.data.sizes["sample"] == 0
    assert not fresh.data["average"].values.any()
    longer = fresh.resume(40)
    assert longer.data["sample_step"].values.tolist() == list(range(125, 161, 5))
    np.testing.assert_array_equal(longer.theta, run.resume(40).theta)


def test_what_differs_between_two_plans_is_named():
    def plan(seed=0, partition=None, **options):
        return make_plan(SPIRALS, SMALL, partition or hb.LOL(), 10, seed=seed, record=2, **options)

    assert plan_differences(plan(), plan()) == []
    assert plan_differences(plan(), plan(seed=1, partition=hb.LOL(h=0.2))) == ["partition", "seed"]
    assert plan_differences(plan(), plan(start=np.zeros(81), shuffled=True)) == ["shuffled", "start"]
    other = make_plan(hb.datasets.rings(n_train=200, n_test=9), SMALL, hb.LOL(), 10, record=2)
    assert plan_differences(plan(), other) == ["problem"]
    later = extend_plan(plan(), 10, 10)
    assert plan_differences(plan(), later) == ["steps", "records", "losses"]
    assert plan_differences(plan(), later, until=10) == []
    changed = change_plan(plan(), hb.LOL(h=0.3), 5)
    assert plan_differences(plan(), changed, until=5) == []
    assert plan_differences(plan(), changed, until=6) == ["partition"]


@pytest.mark.parametrize(
    ("word", "rotated", "step"), [("BAOAB", True, 5), ("ABOBA", True, 6), ("ABOBA", False, 5)]
)
def test_a_change_comes_with_the_next_step_of_a_word_to_begin(word, rotated, step):
    """Where θ is seen at the kick, in the middle of a word, that step is ended as it began."""
    before, after = (hb.Partition(hb.Langevin(0.5, tau, word), 0.1) for tau in (1e-3, 1e-2))
    plan = make_plan(SPIRALS, SMALL, before, 10, record=2, rotated=rotated)
    changed = hb.Langevin(0.5, hb.schedules.Piecewise([1e-3, 1e-2], [step]), word)
    assert change_plan(plan, after, 5).partition == hb.Partition(changed, 0.1)
