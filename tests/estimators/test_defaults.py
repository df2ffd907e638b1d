"""What the estimators do where nothing is said: the posterior, by the size of the table; and their files."""

import json
import math

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_wine
from sklearn.metrics import log_loss, r2_score
from sklearn.model_selection import cross_val_predict

import heatbath as hb
from heatbath.diagnostics.statistics import Estimate
from heatbath.estimators import files
from heatbath.runs import file
from heatbath.training import prior
from heatbath.training.budget import FIT, size_for
from heatbath.training.stepsize import is_right

pytestmark = pytest.mark.filterwarnings("ignore::heatbath.OffTemperatureWarning")  # of very short runs
WINE, DIABETES = load_wine(return_X_y=True), load_diabetes(return_X_y=True)


def noisy_sine(n=80, seed=0):
    generator = np.random.default_rng(seed)
    x = generator.uniform(-3, 3, (n, 1))
    return x, 5 + 2 * np.sin(x[:, 0]) + 0.3 * generator.standard_normal(n)


@pytest.fixture(scope="module")
def sine():
    return hb.ThermodynamicRegressor(random_state=0, refine=0.5).fit(*noisy_sine())


@pytest.fixture(scope="module")
def wine():
    return hb.ThermodynamicClassifier(random_state=0, refine=0.2).fit(*WINE)


def test_defaults_are_good_for_small_tables():
    proba = cross_val_predict(
        hb.ThermodynamicClassifier(random_state=0, refine=0.25), *WINE, cv=3, method="predict_proba"
    )
    assert log_loss(WINE[1], proba) < 0.15
    said = cross_val_predict(hb.ThermodynamicRegressor(random_state=0, refine=0.25), *DIABETES, cv=3)
    assert r2_score(DIABETES[1], said) > 0.45


def test_it_samples_the_posterior_at_its_temperature_with_full_gradients(sine):
    run = sine.run_
    assert run.partition.posterior == hb.Posterior(prior=run.found.priors[-1])
    assert 1 < len(run.found.priors) <= 1 + prior.RULE.rounds  # rounds that are too hot find none
    assert run.plan.batch == 80
    assert run.plan.chains == 8
    estimate = Estimate(run.found.temperature, run.found.error)
    assert abs(estimate.value - 1) < 5 * estimate.error < 1.5  # of 8 chains: one in a thousand seeds is not
    assert run.found.ended in ("converged", "budget")
    assert is_right(estimate) or run.found.ended == "budget"
    assert sine.n_iter_ <= FIT.steps * 0.5


def test_the_spread_is_that_of_new_data_and_intervals_hold_what_they_say(sine):
    X, y = noisy_sine(2000, seed=1)
    mean, spread = sine.predict(X, return_std=True)
    assert np.sqrt(np.mean((mean - y) ** 2)) == pytest.approx(0.3, rel=0.25)
    assert np.mean(spread) == pytest.approx(0.32, rel=0.25)
    for coverage in (0.5, 0.9):
        low, high = sine.predict_interval(X, coverage)
        assert np.mean((low < y) & (y < high)) == pytest.approx(coverage, abs=0.07)
    lower, middle, upper = sine.predict_quantiles(X, [0.05, 0.5, 0.95])
    np.testing.assert_allclose(lower, sine.predict_interval(X)[0], rtol=1e-6)
    assert np.mean(y < middle) == pytest.approx(0.5, abs=0.1)
    assert (upper > middle).all()


def test_sampled_networks_are_those_that_are_averaged(sine, wine):
    X = noisy_sine()[0]
    said = sine.sample_posterior(X)
    assert said.shape == (8 * 25, 80, 1)
    np.testing.assert_allclose(said.mean(axis=0)[:, 0], sine.predict(X))
    each = wine.sample_posterior(WINE[0])
    np.testing.assert_allclose(each.mean(axis=0), wine.predict_proba(WINE[0]), rtol=1e-6)


def test_parameters_of_the_posterior_are_those_given():
    X, y = noisy_sine(30)
    given = {"prior": [1.0, 0.2], "temperature": 0.3, "noise": 0.3, "steps": 60, "random_state": 0}
    fitted = hb.ThermodynamicRegressor(**given).fit(X, y)
    assert fitted.run_.partition.posterior == hb.Posterior([1.0, 0.2], 0.3, 0.3)
    assert fitted.n_iter_ == 60
    classes = hb.ThermodynamicClassifier(temperature=0.5, steps=60, chains=2, batch=10).fit(X, y > 5)
    assert classes.run_.partition.posterior == hb.Posterior((1.0, 1.0), temperature=0.5)
    assert (classes.run_.plan.batch, classes.run_.plan.chains) == (10, 2)


@pytest.mark.parametrize("given", [{"chains": 1}, {"samples": 1}, {"samples": 3, "chains": 2}])
def test_one_chain_or_few_samples_do(given):
    fitted = hb.ThermodynamicRegressor(refine=0.1, random_state=0, **given).fit(*noisy_sine())
    assert fitted.score(*noisy_sine()) > 0.8


def test_mini_batches_have_their_own_friction():
    X, y = noisy_sine()
    given = {"steps": 200, "chains": 2, "random_state": 0}
    frictions = {
        batch: hb.ThermodynamicRegressor(batch=batch, **given).fit(X, y).run_.partition.methods["all"].gamma
        for batch in (None, 10)
    }
    assert frictions == {None: 0.5, 10: 1.0}


def test_sizes_go_from_full_gradients_of_many_chains_to_few_and_to_batches():
    small, large, huge = size_for(300, 400), size_for(40_000, 600), size_for(10**7, 1000)
    assert (small.chains, small.batch, small.steps) == (8, 300, FIT.steps)
    assert (large.chains, large.batch) == (4, 40_000)
    assert FIT.fewest_steps <= large.steps < FIT.steps
    assert huge.batch < 10**7
    assert huge.chains * huge.batch * 1000 * huge.steps <= FIT.work / 2  # what is found before takes as long
    for size, parameters in ((small, 400), (large, 600), (huge, 1000)):
        assert size.chains * size.batch * parameters * size.steps <= 1.01 * FIT.work
    assert size_for(300, 400, 2.0).steps == 2 * FIT.steps
    assert 1 <= size_for(10**9, 10**6).batch < 100
    sizes = [size_for(300, 400, refine) for refine in (1e-5, 0.01, 0.06, 0.1, 1.0, 4.0)]
    assert [size.steps for size in sizes] == sorted(size.steps for size in sizes)
    assert [size.warm for size in sizes] == sorted(size.warm for size in sizes)
    assert size_for(40_000, 600, 4.0).chains > large.chains


def test_a_fit_goes_on_from_the_stepsize_that_was_found():
    X, y = noisy_sine(40)
    fitted = hb.ThermodynamicRegressor(steps=100, chains=4, warm_start=True, random_state=0).fit(X, y)
    h, before = fitted.run_.partition.h, fitted.run_.theta
    fitted.fit(X, y)
    assert fitted.n_iter_ == 200
    assert fitted.run_.partition.h == h
    assert (fitted.run_.theta != before).any()
    fitted.partial_fit(X[:20], y[:20])
    assert fitted.run_.plan.batch == 60  # with those of the fit
    assert fitted.n_iter_ == 300


def test_early_stopping_finds_a_stepsize_first():
    X, y = noisy_sine(60)
    fitted = hb.ThermodynamicRegressor(
        steps=1000, samples=10, chains=4, early_stopping=True, n_iter_no_change=3, random_state=0
    ).fit(X, y)
    assert fitted.run_.found.tried
    assert fitted.n_iter_ <= 1000


# files


def is_same(one, other):
    """Whether two values are the same, and of the same types, down to those that they hold."""
    if type(one) is not type(other):
        return False
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(is_same, one, other))
    if isinstance(one, dict):
        return is_same(list(one.items()), list(other.items()))
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and is_same(one.tolist(), other.tolist())
    return bool(one == other) or (one != one and other != other)


def same_after_a_file(fitted, X, path):
    fitted.save(path)
    again = type(fitted).load(path)
    assert is_same(again.predict(X), fitted.predict(X))
    assert is_same(again.get_params(), fitted.get_params())
    learned = {name: value for name, value in vars(fitted).items() if name.startswith("_") or name[-1] == "_"}
    for name, value in learned.items():
        assert name == "run_" or is_same(getattr(again, name), value), name
    assert set(vars(again)) == set(vars(fitted))
    return again


def test_an_estimator_is_the_same_after_a_file(sine, wine, tmp_path):
    X = noisy_sine()[0]
    again = same_after_a_file(sine, X, tmp_path / "sine.nc")
    np.testing.assert_array_equal(again.predict_interval(X), sine.predict_interval(X))
    same_after_a_file(wine, WINE[0], tmp_path / "wine.nc")
    assert hb.load(tmp_path / "wine.nc").step == wine.n_iter_
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame(WINE[0][:, :2], columns=["acid", "ash"])
    names = np.array(["a", "b", "c"], object)[WINE[1]]
    own = hb.ThermodynamicClassifier(
        method=hb.AdLaLa(h=0.2), hidden=[5], steps=60, class_weight={"a": 2.0}, random_state=np.int64(0)
    ).fit(table, names)
    again = same_after_a_file(own, table, tmp_path / "own.nc")
    assert again.classes_.tolist() == ["a", "b", "c"]
    assert again.feature_names_in_.tolist() == ["acid", "ash"]
    np.testing.assert_array_equal(again.fit(table, names).run_.theta, own.run_.theta)


def test_files_that_are_not_an_estimator_of_this_kind_are_refused(wine, tmp_path):
    path = tmp_path / "wine.nc"
    wine.save(path)
    with pytest.raises(ValueError, match="it is a ThermodynamicClassifier, and this is Thermo"):
        hb.ThermodynamicRegressor.load(path)
    wine.run_.save(tmp_path / "run.nc")
    with pytest.raises(ValueError, match="has a run, and no estimator"):
        hb.ThermodynamicClassifier.load(tmp_path / "run.nc")
    good = json.loads(file.read(path).attrs["estimator"])
    for wrong in (
        "nonsense",
        json.dumps({"kind": "ThermodynamicClassifier"}),
        json.dumps(good | {"settings": good["settings"] | {"evil": 1}}),
        json.dumps(good | {"learned": {"classes_": {"array": ["x"], "type": "O"}}}),
        json.dumps([1, 2]),
    ):
        file.write(tmp_path / "bad.nc", file.read(path).assign_attrs(estimator=wrong))
        with pytest.raises(ValueError, match="is not an estimator that can be read"):
            hb.ThermodynamicClassifier.load(tmp_path / "bad.nc")
    unusual = clone(wine)
    unusual.__dict__.update(run_=wine.run_, hidden={1, 2})
    with pytest.raises(TypeError, match="hidden cannot be written"):
        unusual.save(tmp_path / "other.nc")
    assert not (tmp_path / "other.nc").exists()


@pytest.mark.parametrize(
    "value",
    [
        None, True, 7, 2**70, 0.1, math.inf, math.nan, "text", "\ud800é", (), [], (1, [2, (3.0,)], None),
        {"a": 1, 2: (0.5,), (1, "b"): [True]}, np.float64(0.1), np.float32(0.1), np.int8(3), np.bool_(True),
        np.str_("ab"), np.arange(3), np.array([[0.1, 0.2]], ">f4"), np.array(["a", "b"], "<U7"),
        np.array(0.5), np.array([True, False]), np.array([2**64 - 1], np.uint64), np.empty((0, 2)),
        np.array(["a", "b"], object), np.array([False, 1, 2.0, "x", None], object),
        np.array([np.int64(1), np.str_("b"), (1, 2)], object),
    ],
)  # fmt: skip
def test_values_are_the_same_after_a_file_in_type_too(value):
    again = files._value("it", json.loads(json.dumps(files._plain("it", value))))
    assert is_same(again, value)


@pytest.mark.parametrize(
    "value",
    [
        1j, {1, 2}, b"x", range(3), object(), np.complex128(1), np.datetime64("2020-01-01"),
        np.longdouble(0.1), np.array([b"x"]), np.array([["a"]], object), np.array([1j, 2], object),
        np.ma.masked_array([1, 2], [True, False]), [1, {2}], {"a": b"x"},
        np.zeros(1, [("a", float)]), np.array(["x"], "<U10001"),
    ],
)  # fmt: skip
def test_values_that_a_file_cannot_restore_are_refused_by_name_when_they_are_saved(value):
    with pytest.raises(TypeError, match=r"(?s)it cannot be written to a file, got .* of type .*: use"):
        files._plain("it", value)


@pytest.mark.parametrize(
    "learned",
    [
        {"classes_": np.array([0, 1])},
        {"classes_": np.array([0, 1, 3])},
        {"classes_": np.array([0, 2, 1])},
        {"classes_": np.array([0, 1, 2, 3])},
        {"classes_": [0, 1, 2]},
        {"classes_": np.array([[0], [1], [2]])},
        {"classes_": np.arange(3), "feature_names_in_": np.array(["a", "b"], object)},
        {"classes_": np.arange(3), "feature_names_in_": np.array(["a"] * 12, object)},
    ],
)
def test_classes_and_features_that_are_not_those_of_a_run_do_not_fit(wine, learned):
    with pytest.raises(ValueError, match=f"(?s){list(learned)[-1]} is .*, and its run is of Problem"):
        files._check(learned, wine.run_)


def test_classes_and_features_that_are_those_of_a_run_fit(wine):
    files._check({"classes_": np.arange(3)}, wine.run_)
    files._check({"classes_": np.array(["0", "1", "2"], object)}, wine.run_)
    for names in ([f"x{i}" for i in range(1, 14)], ["twice"] * 13):
        files._check({"classes_": np.arange(3), "feature_names_in_": np.array(names, object)}, wine.run_)
    assert files._are_classes(np.array([9, 10]), ("9", "10"))
    assert not files._are_classes(np.array(["9", "10"]), ("9", "10"))  # as text, 10 comes first


def test_targets_that_are_not_those_of_a_run_do_not_fit(sine):
    for shape in ((2,), (1, 1), [], 1):
        with pytest.raises(ValueError, match=r"_shape is .*, and its run is of Problem"):
            files._check({"_shape": shape}, sine.run_)
    for shape in ((), (1,)):
        files._check({"_shape": shape}, sine.run_)


def test_a_file_whose_classes_are_not_those_of_its_run_is_refused(wine, tmp_path):
    wine.save(tmp_path / "wine.nc")
    packed = file.read(tmp_path / "wine.nc")
    text = json.loads(packed.attrs["estimator"])
    text["learned"]["classes_"] = files._plain("classes_", np.array([0, 1]))
    file.write(tmp_path / "other.nc", packed.assign_attrs(estimator=json.dumps(text)))
    with pytest.raises(ValueError, match=r"can be read: classes_ is array\(\[0, 1\]\), and its run is of"):
        hb.ThermodynamicClassifier.load(tmp_path / "other.nc")


def test_what_runs_of_another_task_learned_is_refused(sine, wine, tmp_path):
    for fitted, other in ((sine, wine), (wine, sine)):
        fitted.save(tmp_path / "one.nc")
        text = file.read(tmp_path / "one.nc").attrs["estimator"]
        file.write(tmp_path / "two.nc", other.run_.to_xarray().assign_attrs(estimator=text))
        with pytest.raises(ValueError, match=r"is not an estimator that can be read: '(classes_|_shape)'"):
            type(fitted).load(tmp_path / "two.nc")


# likelihoods


def test_noise_that_the_network_says_follows_the_place():
    generator = np.random.default_rng(0)
    x = generator.uniform(-2, 2, (400, 1))
    y = x[:, 0] + np.where(x[:, 0] > 0, 1.0, 0.1) * generator.standard_normal(400)
    fitted = hb.ThermodynamicRegressor(noise="network", random_state=0).fit(x, y)
    _, spread = fitted.predict([[-1.0], [1.0]], return_std=True)
    assert spread == pytest.approx([0.1, 1.0], rel=0.35)


def test_student_s_noise_is_not_led_astray_by_outliers():
    generator = np.random.default_rng(0)
    x = generator.uniform(-2, 2, (200, 1))
    y = x[:, 0] + 0.1 * generator.standard_normal(200)
    y[:10] += 20
    said = {
        likelihood: hb.ThermodynamicRegressor(likelihood=likelihood, refine=0.25, random_state=0)
        .fit(x, y)
        .predict_interval([[1.0]], 0.5)
        for likelihood in ("normal", "student")
    }
    widths = {name: float(high[0] - low[0]) for name, (low, high) in said.items()}
    assert widths["student"] < 0.5 < widths["normal"]


def test_counts_have_rates_and_intervals_that_are_counts():
    generator = np.random.default_rng(0)
    x = generator.uniform(-1, 1, (300, 1))
    y = generator.poisson(np.exp(1 + x[:, 0]))
    fitted = hb.ThermodynamicRegressor(likelihood="poisson", refine=0.25, random_state=0).fit(x, y)
    rates = fitted.predict([[-1.0], [0.0], [1.0]])
    assert rates == pytest.approx(np.exp([0.0, 1.0, 2.0]), rel=0.3)
    low, high = fitted.predict_interval(x)
    assert (low == low.round()).all()
    assert np.mean((low <= y) & (y <= high)) > 0.88
    _, spread = fitted.predict([[1.0]], return_std=True)
    assert spread[0] == pytest.approx(np.sqrt(rates[2]), rel=0.2)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"likelihood": "gamma"}, "likelihood must be one of 'normal', 'student', 'poisson', got 'gamma'"),
        ({"likelihood": "poisson", "noise": 0.1}, "noise is for a regression"),
        ({"likelihood": "student", "noise": "network"}, "network"),
        ({"noise": "loud"}, "noise must be"),
    ],
)
def test_likelihoods_that_make_no_sense_are_refused(given, told):
    with pytest.raises(ValueError, match=told):
        hb.ThermodynamicRegressor(**given).fit([[0.0], [1.0], [2.0]], [0, 1, 2])
    with pytest.raises(ValueError, match="whole numbers"):
        hb.ThermodynamicRegressor(likelihood="poisson").fit([[0.0], [1.0]], [0.5, 1.0])
