"""Samples and running averages."""

from dataclasses import replace

import numpy as np
import pytest

import heatbath as hb
from heatbath.runs.dataset import check_data, results, sizes
from tests.runs import SMALL, SPIRALS, differences, short_run

X = SPIRALS.X_test[0, :7]


def test_samples_are_the_parameters_at_their_steps_and_the_burn_in_is_not_among_them():
    run = short_run(samples=5, burn_in=70, record=range(0, 121), weights=True, losses_every=200)
    assert run.data["sample_step"].values.tolist() == [80, 90, 100, 110, 120]
    for i, step in enumerate([80, 90, 100, 110, 120]):
        np.testing.assert_array_equal(run.data["samples"][:, i], run.weights().isel(record=step))
    assert run.data["samples"].dims == ("chain", "sample", "parameter")


def test_taking_samples_and_averages_does_not_change_the_run():
    plain, sampled = short_run(), short_run(samples=60, average=X)
    np.testing.assert_array_equal(plain.theta, sampled.theta)
    np.testing.assert_array_equal(plain.loss("test"), sampled.loss("test"))


def test_samples_and_averages_continue_after_a_resume_as_if_it_had_never_stopped():
    whole = short_run(samples=12, burn_in=60, average=X, record=[85, 120])
    cut = short_run(steps=85, samples=5, burn_in=60, average=X, record=1)
    assert cut.plan.thin == whole.plan.thin == 5
    assert differences(cut.resume(35, record=[120]), whole) == []


def test_the_error_says_how_to_keep_what_was_not_kept():
    run = short_run()
    with pytest.raises(ValueError, match="train with average=X"):
        run.averages()
    with pytest.raises(ValueError, match="train with samples=N"):
        run.outputs(X, samples=True)
    with pytest.raises(ValueError, match="train with weights=True"):
        run.weights()
    with pytest.raises(ValueError, match=r"average must have shape \(examples, 2\), got \(4, 3\)"):
        short_run(average=np.zeros((4, 3)))


def test_weights_of_a_part():
    run = short_run(weights=True)
    np.testing.assert_array_equal(run.weights("output"), run.weights()[..., 60:])
    np.testing.assert_array_equal(run.weights("hidden"), run.weights()[..., :60])
    with pytest.raises(ValueError, match="there is no part 'layer7': accepted are 'hidden', 'output'"):
        run.weights("layer7")


def test_the_size_that_is_checked_is_the_size_of_the_results():
    """Within a tenth, where the arrays are large enough to matter."""
    options = {"weights": True, "samples": 50, "histogram": (-1.0, 1.0, 200), "average": SPIRALS.X_test[0]}
    run = hb.sweep(SPIRALS, SMALL, hb.AdLaLa(tau=[1e-5, 1e-4]), 100, 20, chains=4, record=50, **options)
    assert sum(sizes(run.plan).values()) == pytest.approx(run.data.nbytes, rel=0.1)
    assert all(sizes(run.plan)[name] == run.data[name].nbytes for name in sizes(run.plan))
    assert sizes(replace(run.plan, chains=8))["samples"] == 2 * sizes(run.plan)["samples"]


EVERYTHING = {"weights": True, "samples": 6, "histogram": (-1.0, 1.0, 4), "average": X}
PLANS = {
    "nothing": (hb.Partition(hb.SGD(), 0.1), {}),
    "thermostats": (hb.AdLaLa(), {}),
    "a second moment": (hb.Partition(hb.Adam(), 0.01), {"weights": True}),
    "everything": (
        hb.Partition({"hidden": hb.AdLaLa().methods["hidden"], "output": hb.Adam()}, 0.01),
        EVERYTHING,
    ),
    "averages": (hb.LOL(), {"average": X}),
}


@pytest.mark.parametrize(("partition", "options"), PLANS.values(), ids=PLANS)
def test_the_table_of_results_says_what_there_is(partition, options):
    """Names, dimensions, lengths and types; and a control: without any of them it is not that run's data."""
    run = hb.train(SPIRALS, SMALL, partition, 12, 20, 2, record=3, **options)
    there = results(run.plan)
    labels = {"chain", "repeat", "draw", "part", "split", "thermostat", "bin"}
    assert {result.name for result in there} == set(map(str, run.data.variables)) - labels
    check_data(run.plan, run.step, run.data)
    for result in there:
        assert run.data[result.name].dims == result.dimensions
        with pytest.raises((ValueError, KeyError), match=result.name):
            check_data(run.plan, run.step, run.data.drop_vars(result.name))


def test_results_of_methods_that_lack_them_are_absent_from_their_chains():
    """ξ is NaN and the second moment 0 where a method has none; selected alone, there is none at all."""
    methods = {"Adam": hb.Partition(hb.Adam(), 0.01), "AdLaLa": hb.AdLaLa()}
    run = hb.compare(SPIRALS, SMALL, methods, 12, 20, 2, record=3)
    assert np.isnan(run.data["xi"].sel(chain=[0, 1])).all()
    assert np.isfinite(run.data["xi"].sel(chain=[2, 3])).all()
    assert (run.data["second"].sel(chain=[2, 3]) == 0).all()
    assert (run.data["second"].sel(chain=[0, 1]) != 0).any()
    assert "xi" not in run.select(method="Adam").data
    assert "second" not in run.select(method="AdLaLa").data


def test_the_temperature_of_a_part_with_several_thermostats_is_the_mean_over_its_parameters():
    """At the first step, before they act, it is that of the same part with one."""
    methods = {
        kind: hb.Partition(hb.AdaptiveLangevin(1e-2, 0.01, 0.1, thermostat=kind), 0.1)
        for kind in ("part", "tensor")
    }
    run = hb.compare(SPIRALS, SMALL, methods, 1, 20, 3, record=1, momenta="thermal", dtype="float64")
    one, each = (run.select(method=kind).temperature("all") for kind in methods)
    np.testing.assert_allclose(each, one, rtol=1e-12)


def test_a_comparison_of_one_thermostat_and_one_for_each_tensor_survives_a_file(tmp_path):
    """The parts have one name and other thermostats."""
    each = hb.Partition(hb.AdaptiveLangevin(1e-4, 0.01, 0.1, thermostat="tensor"), 0.1)
    one = hb.Partition(hb.AdaptiveLangevin(1e-4, 0.01, 0.1), 0.1)
    run = hb.compare(SPIRALS, SMALL, {"one": one, "each": each}, 12, 20, 2, record=3)
    run.save(tmp_path / "run.nc")
    assert differences(hb.load(tmp_path / "run.nc").resume(6), run.resume(6)) == []
