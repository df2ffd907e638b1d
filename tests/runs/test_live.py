"""A live run equals the run that `train` makes, bit for bit, whatever is changed while it runs."""

import numpy as np
import pytest

import heatbath as hb
from heatbath.methods.schedules import Exponential, Piecewise
from heatbath.runs.continuation import plan_differences

PROBLEM = hb.datasets.spirals(n_train=60, n_test=30)
NETWORK = hb.MLP((6,))


def seen_at_kick(h, tau, gamma=0.5):
    hidden = hb.AdaptiveLangevin(tau, 0.02, 0.1, word="ABCDEDCBA")
    return hb.Partition({"hidden": hidden, "output": hb.Langevin(gamma, tau, "ABOBA")}, h)


MADE = {
    "seen at the end": lambda h, tau: hb.AdLaLa(h=h, tau=tau),
    "seen at the kick": seen_at_kick,
    "two gradients": lambda h, tau: hb.Partition(hb.Langevin(0.3, tau, "ABAOABA"), h),
    "Adam": lambda h, tau: hb.Partition(hb.Adam(beta1=0.5 + tau), h / 50),
}


def assert_same_runs(one, two):
    assert set(one.data.variables) == set(two.data.variables)
    for name in one.data.variables:
        a, b = one.data[name].values, two.data[name].values
        assert np.array_equal(a, b, equal_nan=a.dtype.kind == "f"), name
    assert plan_differences(one.plan, two.plan) == []


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
@pytest.mark.parametrize("chains", [3, 16])
def test_a_run_with_changes_equals_the_one_that_train_makes_bit_for_bit(make, chains):
    options = {"batch": 7, "chains": chains, "seed": 5, "momenta": "thermal"}
    live = hb.LiveRun(PROBLEM, NETWORK, make(0.1, 1e-3), **options)
    live.change(make(0.1, 2e-3))  # before the first step
    noted = []
    for steps, h, tau in (
        (37, 0.1, 2e-3),
        (1, 0.2, 2e-3),
        (1, 0.2, 5e-3),
        (60, 0.15, 5e-3),
        (101, 0.15, 1e-4),
    ):
        live.change(make(h, tau))
        live.advance(steps)
        live.note()
        noted.append(live.step)
    live.advance(23)
    run = live.run()
    expected = hb.train(PROBLEM, NETWORK, run.partition, 223, record=noted, **options)
    assert_same_runs(run, expected)
    assert isinstance(run.partition.h, Piecewise)
    # the control: one change a step later makes another run
    late = Piecewise(run.partition.h.values, [n + 1 for n in run.partition.h.steps])
    other = hb.train(PROBLEM, NETWORK, run.partition.at_stepsize(late), 223, record=noted, **options)
    assert not np.array_equal(run.theta, other.theta)


def test_a_network_that_needs_blas_gives_the_same_run():
    network = hb.MLP((128, 128))
    live = hb.LiveRun(PROBLEM, network, hb.AdLaLa(h=0.1), 7, 2)
    live.advance(10)
    live.change(hb.AdLaLa(h=0.2))
    live.advance(10)
    assert np.isfinite(live.look([[0.0, 1.0]], gradients=True).outputs).all()
    assert np.array_equal(live.theta, hb.train(PROBLEM, network, live.partition, 20, 7, 2).theta)


def test_a_change_is_recorded_as_resume_records_it():
    for make in MADE.values():
        live = hb.LiveRun(PROBLEM, NETWORK, make(0.1, 1e-3), 7)
        live.advance(40)
        live.change(make(0.12, 1e-3))
        live.advance(30)
        resumed = hb.train(PROBLEM, NETWORK, make(0.1, 1e-3), 40, 7).resume(30, make(0.12, 1e-3))
        assert live.partition == resumed.partition
        assert np.array_equal(live.theta, resumed.theta)


def test_given_schedules_are_followed():
    falling = hb.AdLaLa(tau=Exponential(1e-3, 1e-5, 100), h=Piecewise([0.1, 0.2], [50]))
    live = hb.LiveRun(PROBLEM, NETWORK, falling, 7, 2)
    for steps in (20, 29, 1, 1, 60):
        live.advance(steps)
    assert np.array_equal(live.theta, hb.train(PROBLEM, NETWORK, falling, 111, 7, 2).theta)
    live.change(hb.AdLaLa(tau=Exponential(1e-2, 1e-5, 400), h=0.1))
    live.advance(50)
    assert np.array_equal(live.theta, hb.train(PROBLEM, NETWORK, live.partition, 161, 7, 2).theta)


def test_a_live_run_can_be_saved_resumed_and_replayed(tmp_path):
    live = hb.LiveRun(PROBLEM, NETWORK, seen_at_kick(0.1, 1e-3), 7, 3, seed=2)
    live.advance(50)
    live.change(seen_at_kick(0.2, 1e-3))
    live.advance(50)
    live.run().save(tmp_path / "run.nc")
    loaded = hb.load(tmp_path / "run.nc")
    assert_same_runs(loaded.replay(), live.run())
    live.advance(30)  # goes on as if nobody had looked
    assert np.array_equal(loaded.resume(30).theta, live.theta)


def test_a_live_run_without_steps_is_a_valid_run(tmp_path):
    live = hb.LiveRun(PROBLEM, NETWORK, hb.AdLaLa(), 7, 2)
    live.run().save(tmp_path / "run.nc")
    live.advance(10)
    assert np.array_equal(hb.load(tmp_path / "run.nc").resume(10).theta, live.theta)


def test_a_snapshot_agrees_with_the_run_and_changes_nothing():
    live = hb.LiveRun(PROBLEM, NETWORK, hb.AdLaLa(), 7, 3)
    live.advance(200)
    X = np.random.default_rng(0).normal(size=(300, 2))
    before = live.theta
    seen = live.look(X, gradients=True, histogram=(-2.0, 2.0, 10))
    assert np.array_equal(live.theta, before)
    run = hb.train(PROBLEM, NETWORK, hb.AdLaLa(), 200, 7, 3, record=1, histogram=(-2.0, 2.0, 10), samples=1)
    np.testing.assert_allclose(seen.outputs, run.outputs(X), atol=2e-6)
    assert np.array_equal(seen.loss[:, 1], run.loss("test")[:, 0])
    assert np.array_equal(seen.accuracy[:, 0], run.accuracy("train")[:, 0])
    for part in ("hidden", "output"):
        assert np.array_equal(seen.temperature[part], run.temperature(part)[:, 0])
        assert np.array_equal(seen.histogram[part], run.data["histogram"].sel(part=part)[:, 0])
        virial = hb.diagnostics.configurational(run).sel(part=part)["temperature"].item()
        assert seen.configurational[part].mean() == pytest.approx(virial, rel=1e-3)
    assert np.array_equal(seen.xi["hidden"], run.xi("hidden")[:, 0])
    again = live.look(X[:5])  # other inputs than before
    assert np.array_equal(again.outputs, seen.outputs[:, :5])
    assert live.look().outputs.shape == (3, 0, 1)


def test_a_snapshot_of_a_regression_is_in_the_units_of_the_data():
    x = np.linspace(-1, 1, 40)
    problem = hb.datasets.from_arrays(x[:, None], 50 + 9 * x, task="regression", standardise=True)
    sampling = hb.LaLa(h=0.1, gamma=1.0, posterior=hb.Posterior())
    live = hb.LiveRun(problem, NETWORK, sampling, 32, 2)
    live.advance(300)
    run = live.run()
    np.testing.assert_allclose(live.look([[0.0], [0.5]]).outputs, run.outputs([[0.0], [0.5]]), rtol=1e-5)
    assert np.array_equal(run.theta, hb.train(problem, NETWORK, sampling, 300, 32, 2).theta)


def test_steps_limited_by_time_are_the_same_steps():
    live = hb.LiveRun(PROBLEM, NETWORK, hb.AdLaLa(), 7, 2)
    made = live.advance_for(0.01)
    made += live.advance_for(10, most=5)
    assert made == live.step >= 6
    live._seconds_per_step = 1e9  # as if steps took years
    assert live.advance_for(1e-9) == 1
    made += 1
    assert np.array_equal(live.theta, hb.train(PROBLEM, NETWORK, hb.AdLaLa(), made, 7, 2).theta)


@pytest.mark.filterwarnings("ignore::heatbath.DivergedWarning")
def test_a_diverged_chain_is_marked_and_the_others_continue():
    start = np.random.default_rng(1).normal(size=(3, 25))
    start[1] *= 1e25
    live = hb.LiveRun(PROBLEM, NETWORK, hb.Partition(hb.SGD(), 0.1), 7, 3, start=start)
    live.advance(20)
    assert live.died[1] >= 0
    assert (live.died[[0, 2]] == -1).all()
    assert live.diverged_part(1) == "all"
    seen = live.note()
    assert seen.alive.tolist() == [True, False, True]
    assert np.isnan(seen.loss[1]).all()
    assert np.isfinite(live.look([[0.0, 0.0]]).outputs[[0, 2]]).all()
    expected = hb.train(PROBLEM, NETWORK, live.partition, 20, 7, 3, start=start, record=1)
    assert_same_runs(live.run(), expected)


def test_rewind_goes_back_to_a_good_state_and_replay_is_exact(monkeypatch):
    monkeypatch.setattr("heatbath.runs.live.SAVING_INTERVAL", 0.0)  # every call of advance leaves a state
    live = hb.LiveRun(PROBLEM, NETWORK, hb.AdLaLa(h=0.1), 7, 2)
    live.advance(50)
    live.change(hb.AdLaLa(h=0.15))  # where a state is left: it stays
    for _ in range(3):
        live.advance(10)
    live.note()
    live.change(hb.AdLaLa(h=1e4))
    live.advance(500)
    live.advance(500)
    assert (live.died >= 0).all()
    step = live.rewind()
    assert step == live.step == 50  # the oldest of four states that are kept: 50, 60, 70, 80
    assert (live.died == -1).all()
    assert live.partition.h == Piecewise((0.1, 0.15), (50,))
    live.change(hb.AdLaLa(h=0.05))
    live.advance(25)
    run = live.run()
    assert_same_runs(run, hb.train(PROBLEM, NETWORK, run.partition, 75, 7, 2, record=1))
    assert_same_runs(run, run.replay())


def test_a_change_after_a_rewind_belongs_to_the_restored_state():
    live = hb.LiveRun(PROBLEM, NETWORK, hb.AdLaLa(h=0.1), 7, 2)
    live.advance(40)
    live._seconds_since_saving = 1.0  # as if that had taken a while
    for _ in range(4):
        live.advance(10)
        live._seconds_since_saving = 1.0
    live.change(hb.AdLaLa(h=1e4))
    live.advance(500)
    step = live.rewind()
    live.change(hb.AdLaLa(h=0.2))
    live.advance(10)
    assert live.rewind() == step
    assert live.partition.h == Piecewise((0.1, 0.2), (step,))
    live.advance(20)
    assert np.array_equal(live.theta, hb.train(PROBLEM, NETWORK, live.partition, live.step, 7, 2).theta)


def test_live_runs_refuse_what_train_refuses():
    with pytest.raises(ValueError, match="train needs one value of tau"):
        hb.LiveRun(PROBLEM, NETWORK, hb.AdLaLa(tau=[1e-4, 1e-3]))
    live = hb.LiveRun(PROBLEM, NETWORK, hb.AdLaLa(), 7)
    live.advance(3)
    with pytest.raises(ValueError, match="word is 'BACDEDCAB' and cannot change"):
        live.change(hb.AdLaLa(word="BAFEFAB"))
    with pytest.raises(ValueError, match=r"X must be \(examples, 2 features\)"):
        live.look([[1.0]])
    before = live.partition
    with pytest.raises(ValueError, match="continues with the parts it has"):
        live.change(hb.Partition(hb.Adam(), 0.1))
    assert live.partition is before
