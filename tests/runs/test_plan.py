"""Plans: what is refused before anything runs, defaults, and what a plan says of itself."""

from dataclasses import fields
from inspect import signature

import numpy as np
import pytest

import heatbath as hb
from heatbath.cli.plans import prepare_run
from heatbath.cli.settings import merge_settings
from heatbath.runs.continuation import plan_differences
from heatbath.runs.plan import BATCH, Plan, RunSettings, make_plan
from tests.runs import SMALL, SPIRALS

# Defaults


def test_the_batch_has_one_default_in_python_and_on_the_command_line():
    """32, or all training examples where there are fewer; estimators ask `heatbath.training.defaults`."""
    few = hb.datasets.spirals(n_train=7, n_test=5)
    for problem, expected in ((SPIRALS, 32), (few, 7)):
        options = {"steps": 3, "record": 1}
        plans = [
            make_plan(problem, SMALL, hb.LOL(), 3),
            hb.train(problem, SMALL, hb.LOL(), **options).plan,
            hb.sweep(problem, SMALL, hb.LOL(tau=[0.0, 0.1]), **options).plan,
            hb.compare(problem, SMALL, {"LOL": hb.LOL()}, **options).plan,
            prepare_run(
                "train", merge_settings({}, {"problem": problem.recipe, "method": {"name": "lol"}}, [])
            )[0],
        ]
        assert [plan.batch for plan in plans] == [expected] * 5
    assert BATCH == 32


def test_the_batch_may_be_all_examples():
    sampling = hb.Partition(hb.Langevin(1.0, 1e-3), 0.1)
    assert make_plan(SPIRALS, SMALL, hb.LOL(), 3, "all").batch == SPIRALS.X_train.shape[1]
    full = hb.train(SPIRALS, SMALL, sampling, 3, SPIRALS.X_train.shape[1], record=1)
    np.testing.assert_array_equal(hb.train(SPIRALS, SMALL, sampling, 3, "all", record=1).theta, full.theta)
    settings = {"problem": SPIRALS.recipe, "method": {"name": "lol"}, "training": {"batch": "all"}}
    assert prepare_run("train", merge_settings({}, settings, []))[0].batch == SPIRALS.X_train.shape[1]
    with pytest.raises(ValueError, match="batch must be a whole number, 'all', or None for 32; got 'half'"):
        make_plan(SPIRALS, SMALL, hb.LOL(), 3, "half")


def test_training_and_plans_have_the_same_defaults():
    plan, train = (signature(function).parameters for function in (make_plan, hb.train))
    assert all(plan[name].default == train[name].default for name in ("batch", "chains"))
    settings = {setting.name: setting.default for setting in fields(RunSettings)}
    assert len(settings) == 14
    assert {name: train[name].default for name in settings} == settings


def test_chains_is_how_many_there_are_for_each_point_and_total_is_all_of_them():
    grid = hb.AdLaLa(sigma=[0.0, 0.01], tau=[1e-5, 1e-4, 1e-3])
    assert (make_plan(SPIRALS, SMALL, hb.LOL(), 3, chains=5).total) == 5
    assert make_plan(SPIRALS, SMALL, grid, 3, chains=5).total == 30
    assert make_plan(SPIRALS, SMALL, {"a": hb.LOL(), "b": hb.AdLaLa()}, 3, chains=5).total == 10


# Bad input


def test_a_sweep_that_does_not_fit_in_memory_is_refused_with_its_size():
    wide = hb.MLP((10_000, 10_000))
    taus = list(np.geomspace(1e-6, 1e-3, 100))
    with pytest.raises(
        MemoryError, match=r"10000 chains of 100\d+ parameters .* need .* GB, most of it for theta"
    ):
        hb.sweep(SPIRALS, wide, hb.AdLaLa(tau=taus), 100, 20, chains=100)
    millions = {name: list(np.linspace(0.1, 1.0, 300)) for name in ("h", "sigma", "epsilon")}
    with pytest.raises(MemoryError, match=r"27000000000 chains"):  # at once: the grid is not made first
        hb.sweep(SPIRALS, wide, hb.AdLaLa(**millions), 100, 20, chains=1000)
    with pytest.raises(MemoryError, match=r"most of it for samples"):
        hb.train(SPIRALS, hb.MLP((1000,)), hb.AdLaLa(), 10**8, 20, samples=10**8)


def test_a_number_of_records_that_cannot_be_listed_is_refused():
    with pytest.raises(MemoryError, match="1,000,000,000,000 records do not fit in memory"):
        make_plan(SPIRALS, SMALL, hb.LOL(), 10**12, record=10**12)


# Plans as values


def test_a_plan_survives_the_way_to_plain_values_and_back():
    start = np.random.default_rng(0).standard_normal((4, 81))
    partitions = {"a": hb.AdLaLa(), "b": hb.LOL(tau=hb.schedules.Linear(1e-3, 0.0, 5))}
    plan = make_plan(
        SPIRALS, SMALL, partitions, 10, 5, 2, start=start, samples=3, histogram=(-1, 1, 4), shuffled=True
    )
    again = Plan.from_plain(plan.plain, {"start": plan.start}, None)
    assert plan_differences(plan, again) == []


def test_the_text_of_a_plan_describes_the_run():
    text = repr(make_plan(SPIRALS, SMALL, hb.AdLaLa(tau=[1e-5, 1e-4]), 5000, 20, 3, samples=10, seed=7))
    for piece in ("5,000 steps, batch 20, seed 7, float32", "spirals, binary, 200 training and 100 test",
                  "2-20-1, relu, 81 parameters", "hidden: AdaptiveLangevin(tau=(1e-05, 0.0001)", "h: 0.15",
                  "3 at each of 2 points (tau)", "100 records, 10 samples of each chain"):  # fmt: skip
        assert piece in text
    assert "chains   3\n" in repr(make_plan(SPIRALS, SMALL, hb.LOL(), 10, chains=3)) + "\n"
