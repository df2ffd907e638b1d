"""Runs: resumed as if they had never stopped; changes on the way; what they say of themselves."""

import numpy as np
import pytest

import heatbath as hb
from heatbath.methods.schedules import Linear, Piecewise, SimulatedTempering
from heatbath.runs.grid import change_coefficients, is_same_until
from tests.runs import SMALL, SPIRALS, Interrupting, differences, same_bits

PARTITIONS = {
    "AdLaLa": hb.AdLaLa(),
    "AdLAdL by tensor": hb.Partition(hb.AdaptiveLangevin(1e-4, 0.01, 0.1, thermostat="tensor"), 0.1),
    "LOL": hb.LOL(),
    "at the kick": hb.Partition(hb.Langevin(0.5, 1e-3, word="ABOBA"), 0.1),
    "several gradients": hb.Partition(hb.Langevin(0.5, 1e-3, word="BAOBA"), 0.1),
    "scheduled": hb.AdLaLa(h=Linear(0.2, 0.05, 150), tau=Piecewise([1e-4, 1e-3], [90])),
    "tempered": hb.Partition(hb.Langevin(0.5, SimulatedTempering([1e-3, 1e-2, 1e-1], every=7)), 0.1),
    "Adam": hb.Partition({"hidden": hb.Adam(), "output": hb.SGD()}, 0.01),
    "Momentum": hb.Partition(hb.Momentum(0.9), 0.05),
    "SGLD": hb.Partition(hb.SGLD(0.02), 0.1),
}


def thermal_run(partition, steps=160, record=8, **options):
    settings = {"batch": 20, "chains": 3, "seed": 4, "momenta": "thermal", **options}
    return hb.train(SPIRALS, SMALL, partition, steps, record=record, **settings)


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("partition", PARTITIONS.values(), ids=PARTITIONS)
def test_a_resumed_run_is_the_run_that_never_stopped(partition, shuffled, tmp_path):
    whole = thermal_run(partition, shuffled=shuffled)
    half = thermal_run(partition, steps=80, record=4, shuffled=shuffled)
    assert differences(half.resume(80), whole) == []
    half.save(tmp_path / "half.nc")
    thrice = hb.load(tmp_path / "half.nc").resume(20, record=1)
    thrice.save(tmp_path / "half.nc")
    thrice = hb.load(tmp_path / "half.nc").resume(60, record=3)
    assert differences(thrice, whole) == []
    assert half.step == 80  # a resume leaves the run it came from alone


@pytest.mark.parametrize("name", ["theta", "p", "second", "xi_now", "rung"])
def test_everything_in_the_state_matters(name):
    """A control: with any of it changed, a resumed run is another."""
    partition = {"second": "Adam", "rung": "tempered"}.get(name, "AdLaLa")
    half = thermal_run(PARTITIONS[partition], steps=80, record=4)
    altered = half.data.copy(deep=True)
    altered[name] = (altered[name] + 1) % 3 if name == "rung" else altered[name] + 1e-3
    other = hb.Run(half.plan, half.step, altered).resume(80)
    assert "theta" in differences(other, half.resume(80))


@pytest.mark.parametrize("rung", [-1, 3, 10**9])
def test_a_rung_that_is_not_on_the_ladder_is_refused(rung):
    """The compiled code would read beyond the ladder."""
    half = thermal_run(PARTITIONS["tempered"], steps=80, record=4)
    altered = half.data.assign(rung=half.data["rung"] * 0 + rung)
    with pytest.raises(
        ValueError, match="a chain is on a rung that the ladder of 3 temperatures does not have"
    ):
        hb.Run(half.plan, half.step, altered).resume(80)


def test_resume_in_float64_with_the_word_as_written_and_a_given_start(tmp_path):
    options = {
        "dtype": "float64",
        "rotated": False,
        "start": np.random.default_rng(0).standard_normal((3, 81)),
    }
    partition = hb.Partition(hb.Langevin(0.5, 1e-3), 0.1)
    thermal_run(partition, steps=80, record=4, **options).save(tmp_path / "run.nc")
    loaded = hb.load(tmp_path / "run.nc")
    assert differences(loaded.resume(80), thermal_run(partition, **options)) == []
    assert differences(loaded.replay(), thermal_run(partition, steps=80, record=4, **options)) == []


def test_a_dead_chain_stays_dead_and_is_reported_once():
    start = np.tile(SMALL.start(2, 1, [0], 1), (3, 1))
    start[1, 60:] = 3e38
    with pytest.warns(RuntimeWarning, match="diverged"):
        run = thermal_run(hb.Partition(hb.SGD(), 0.1), steps=80, record=4, start=start)
    with pytest.warns(RuntimeWarning, match="diverged"):
        whole = thermal_run(hb.Partition(hb.SGD(), 0.1), start=start)
    assert differences(run.resume(80), whole) == []  # warnings are errors here: none comes


def test_records_of_a_longer_run():
    run = thermal_run(hb.LOL(), steps=100, record=[0, 30])
    longer = run.resume(100, record=[150])
    assert longer.data["step"].values.tolist() == [0, 30, 100, 150, 200]
    assert run.resume(50).data["step"].values.tolist() == [0, 30, 100, 150]
    every_third = thermal_run(hb.LOL(), steps=80, record=8, losses_every=3).resume(60, record=6)
    seen = every_third.data["step"].values[np.isfinite(every_third.loss("test")[0])]
    assert seen.tolist() == [30, 60, 80, 90, 120, 140]  # and where it stopped


def test_resuming_a_finished_run_needs_a_number_of_steps():
    with pytest.raises(ValueError, match=r"all 160 steps are made: give the number of further ones"):
        thermal_run(hb.LOL()).resume()
    with pytest.raises(ValueError, match="steps must be a whole number >= 1"):
        thermal_run(hb.LOL()).resume(0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_mean_temperature_of_tensors_does_not_depend_on_the_number_of_records(dtype):
    partition = PARTITIONS["AdLAdL by tensor"]
    options = {"batch": 20, "chains": 3, "dtype": dtype}
    network = hb.MLP((6, 4))
    whole = hb.train(SPIRALS, network, partition, 30, record=3, **options)
    half = hb.train(SPIRALS, network, partition, 10, record=1, **options)
    assert differences(half.resume(20, record=2), whole) == []


def test_what_is_left_of_an_interrupted_run_may_be_recorded_otherwise_or_cut_short():
    options = {"chains": 1, "record": 10, "samples": 10, "burn_in": 2500}
    with pytest.warns(RuntimeWarning, match="interrupted"):
        part = hb.train(SPIRALS, SMALL, hb.LOL(), 3000, 20, progress=Interrupting(1), **options)
    assert part.step < 100
    assert len(part.resume(record=30).data["step"]) == 30
    shorter = part.resume(100)  # ends before the burn-in does
    assert shorter.step == part.step + 100
    assert shorter.data.sizes["sample"] == 0
    assert shorter.resume(2900).data.sizes["sample"] > 0


def test_records_that_are_past_or_too_late_are_refused():
    run = thermal_run(hb.LOL(), steps=100, record=[0, 30])
    for step in (50, 100, 201):
        with pytest.raises(ValueError, match=r"record: a step must be a whole number >= 101 and < 201"):
            run.resume(100, record=[step])


# Changes on the way


def three_changes(word):
    """Return a run with three changes of coefficients, and the partition with the same schedule."""

    def partition(h, tau, gamma):
        adaptive = hb.AdaptiveLangevin(tau, 0.01, 0.1)
        return hb.Partition({"hidden": adaptive, "output": hb.Langevin(gamma, tau, word)}, h)

    run = thermal_run(partition(0.1, 1e-4, 0.1), steps=40, record=2)
    run = run.resume(40, partition(0.05, 1e-4, 0.1), record=2)
    run = run.resume(40, partition(0.05, 1e-3, float("inf")), record=2)
    late = 1 if word == "ABOBA" else 0
    planned_partition = partition(
        Piecewise([0.1, 0.05, 0.2], [40 + late, 120 + late]),
        Piecewise([1e-4, 1e-3, Linear(1e-3, 0.0, 160)], [80 + late, 120 + late]),
        Piecewise([0.1, float("inf"), 2.0], [80 + late, 120 + late]),
    )
    return run.resume(40, partition(0.2, Linear(1e-3, 0.0, 160), 2.0), record=2), planned_partition


@pytest.mark.parametrize("word", ["BAOAB", "OBABO", "ABOBA"])
def test_a_history_with_three_changes_is_replayed_from_its_file_alone(word, tmp_path):
    run, planned_partition = three_changes(word)
    assert run.partition == planned_partition
    run.save(tmp_path / "run.nc")
    loaded = hb.load(tmp_path / "run.nc")
    assert loaded.partition == planned_partition
    assert differences(loaded, run) == []
    assert differences(loaded.replay(threads=1), run) == []
    assert differences(thermal_run(planned_partition), run) == []
    unchanged = thermal_run(hb.Partition(dict(loaded.partition.methods), 0.1))
    assert not same_bits(unchanged, run)


def test_a_change_leaves_the_past_alone_and_acts_at_once():
    before = thermal_run(hb.LOL(), steps=80, record=range(81), weights=True)
    after = before.resume(2, hb.LOL(h=0.05), record=[81, 82])
    went_on = before.resume(2, record=[81, 82])
    np.testing.assert_array_equal(after.weights()[:, :81], before.weights())
    assert (after.weights()[:, 81] != went_on.weights()[:, 81]).any()


def test_changes_that_meet_are_joined():
    first = change_coefficients(hb.LOL(h=0.1), hb.LOL(h=0.2), 50)
    assert first.h == Piecewise([0.1, 0.2], [50])
    assert change_coefficients(first, hb.LOL(h=0.3), 50).h == Piecewise([0.1, 0.3], [50])
    assert change_coefficients(first, hb.LOL(h=0.2), 70) == first  # nothing new
    assert change_coefficients(first, first, 70) == first
    assert change_coefficients(hb.LOL(h=0.1), hb.LOL(h=0.2), 0).h == 0.2
    planned = Piecewise([0.1, 0.2, 0.3], [50, 500])
    assert change_coefficients(hb.LOL(h=planned), hb.LOL(h=0.4), 70).h == Piecewise([0.1, 0.2, 0.4], [50, 70])
    assert is_same_until(hb.LOL(h=0.1), first, 50)
    assert not is_same_until(hb.LOL(h=0.1), first, 51)
    assert not is_same_until(hb.LOL(h=0.1), hb.LOL(h=0.2), 0)
    assert not is_same_until(hb.LOL(), hb.AdLaLa(), 0)
    assert change_coefficients(hb.LOL(h=0.4), hb.LOL(h=planned), 70).h == Piecewise(
        [0.4, 0.2, 0.3], [70, 500]
    )


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (hb.LOL(), hb.AdLaLa(), "part 'hidden' continues as Langevin, got AdaptiveLangevin"),
        (hb.LOL(), hb.Partition(hb.Langevin(1.0, 0.1), 0.1), "a run continues with the parts it has"),
        (
            hb.Partition(hb.Langevin(1.0, 0.1), 0.1),
            hb.Partition(hb.Langevin(1.0, 0.1, "OBABO"), 0.1),
            "part 'all': word is 'BAOAB' and cannot change, got 'OBABO': only coefficients may change",
        ),
        (hb.LOL(), hb.LOL(tau=[1e-4, 1e-3]), "cannot become an axis"),
        (hb.LOL(tau=[1e-4, 1e-3]), hb.LOL(tau=[1e-4, 1e-3, 1e-2]), "this axis has 2 values, got 3"),
        (
            hb.Partition(hb.Langevin(1.0, SimulatedTempering([0.1, 0.2])), 0.1),
            hb.Partition(hb.Langevin(1.0, 0.1), 0.1),
            "a ladder cannot be changed",
        ),
        (
            hb.AdLaLa(tau=[1e-4, 1e-3]),
            hb.AdLaLa(tau=[1e-4, 1e-3], tau_output=[1e-4, 1e-2]),
            "a sweep continues with the axes it has, tau; got hidden.tau, output.tau",
        ),
    ],
)
def test_what_is_more_than_a_change_of_coefficients_is_refused(before, after, message):
    with pytest.raises(ValueError, match=message):
        change_coefficients(before, after, 50)


def test_a_change_must_be_a_partition():
    with pytest.raises(TypeError, match="partition must be a Partition"):
        thermal_run(hb.LOL()).resume(10, hb.Langevin(1.0, 0.1))


# What a run says of itself


def test_the_text_of_a_run_describes_it_and_its_last_losses():
    text = repr(thermal_run(hb.LOL(), dtype="float64"))
    for piece in ("Run: step 160, batch 20, seed 4, float64", "spirals, binary, 200 training and 100 test",
                  "2-20-1, relu, 81 parameters", "hidden: Langevin(gamma=0.01", "h: 0.1",
                  "chains   3\n"):  # fmt: skip
        assert piece in text
    run = hb.compare(SPIRALS, SMALL, {"warm": hb.LOL(), "Adam": PARTITIONS["Adam"]}, 40, chains=2, record=1)
    mean = float(run.select(method="Adam").accuracy("test").mean())
    assert (
        f"Adam: loss {float(run.select(method='Adam').loss('test').mean()):.4g}, accuracy {mean:.1%}"
        in repr(run)
    )
    assert "2 at each of 2 points (method)" in repr(run)
    nothing_yet = hb.Run(run.plan, 0, run.data.isel(record=slice(0, 0)))
    assert "loss" not in repr(nothing_yet)


def test_a_run_with_chains_that_diverged_says_how_many():
    start = np.tile(SMALL.start(2, 1, [0], 1), (3, 1))
    start[1, 60:] = 3e38
    with pytest.warns(hb.DivergedWarning):
        run = thermal_run(hb.Partition(hb.SGD(), 0.1), start=start)
    assert "chains   3, 1 diverged" in repr(run)
    assert f"loss {float(run.loss('test')[[0, 2], -1].mean()):.4g}" in repr(run)


def test_a_run_without_test_examples_shows_the_training_loss():
    problem = hb.datasets.from_arrays(SPIRALS.X_train[0], SPIRALS.X_train[0, :, 0], test_share=0.0)
    run = hb.train(problem, SMALL, hb.LOL(), 20, chains=2)
    assert f"train    loss {float(run.loss('train')[:, -1].mean()):.4g} (at step 20" in repr(run)
    assert "accuracy" not in repr(run)
