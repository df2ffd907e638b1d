"""The scikit-learn estimators: scikit-learn's own checks, and what else they claim."""

import inspect
import pickle
import re
from functools import partial

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils.estimator_checks import (
    check_sample_weight_equivalence_on_dense_data,
    parametrize_with_checks,
)

import heatbath as hb
from heatbath.training.train import train
from tests.estimators.small import BOTH, OWN, TWO, VALUES, X, Y, classifier, regressor

WINE = load_wine(return_X_y=True)


ROUNDING = "float32's rounding grows to some 1e-6 over the steps, and the check has room for 1e-7; see below"


@parametrize_with_checks(
    [
        hb.ThermodynamicClassifier(method=OWN, steps=40, chains=2, samples=4),
        hb.ThermodynamicRegressor(method=OWN, steps=40, chains=2, samples=4),
        hb.ThermodynamicClassifier(refine=0.05),
        hb.ThermodynamicRegressor(refine=0.05),
    ],
    expected_failed_checks=lambda estimator: {"check_sample_weight_equivalence_on_dense_data": ROUNDING},
)
@pytest.mark.filterwarnings("ignore::heatbath.OffTemperatureWarning")  # of very short runs
def test_scikit_learn_s_own_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize(("rows", "steps"), [(50, 200), (700, 700), (20_100, 20_000)])
def test_there_is_a_step_for_each_datum_within_bounds(rows, steps):
    data = np.arange(rows)[:, None]
    fitted = classifier(hidden=(1,), chains=1, samples=1, batch=1, steps=None).fit(data, np.arange(rows) % 2)
    assert fitted.n_iter_ == steps


@BOTH
def test_predictions_are_means_over_samples_and_chains(make, y):
    fitted = make().fit(X, y)
    said = fitted.run_.outputs(X, samples=True)
    assert said.shape[:2] == (2, 4)
    mean = said.mean(axis=(0, 1))
    if make is regressor:
        np.testing.assert_allclose(fitted.predict(X), mean[:, 0], rtol=1e-10)
        values, spread = fitted.predict(X, return_std=True)
        np.testing.assert_allclose(values, mean[:, 0], rtol=1e-10)
        np.testing.assert_allclose(spread, said.std(axis=(0, 1))[:, 0], rtol=1e-7)
        assert (spread > 0).all()
    else:
        probabilities = fitted.predict_proba(X)
        np.testing.assert_allclose(probabilities[:, -1], mean[:, -1], rtol=1e-10)
        np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-12)
        np.testing.assert_array_equal(fitted.predict(X), probabilities.argmax(axis=1))


def test_samples_are_spread_over_the_second_half_of_the_steps_and_are_one_a_step_at_most():
    assert classifier().fit(X, Y).run_.data["sample_step"].values.tolist() == [25, 30, 35, 40]
    assert classifier(steps=5).fit(X, Y).run_.data["sample_step"].values.tolist() == [3, 4, 5]


def test_a_table_with_names_keeps_them():
    table = pd.DataFrame(X, columns=list("vwxyz"))
    fitted = classifier().fit(table, Y)
    assert fitted.feature_names_in_.tolist() == list("vwxyz")
    assert fitted.run_.problem.features == tuple("vwxyz")
    np.testing.assert_array_equal(fitted.predict_proba(table), classifier().fit(X, Y).predict_proba(X))
    with pytest.raises(ValueError, match="feature names should match"):
        fitted.predict(table[["z", "y", "x", "w", "v"]])


def test_features_are_scaled_unless_asked_not_to_be():
    scaled, raw = regressor().fit(X, VALUES).run_.problem, regressor(scale=False, steps=1).fit(X, VALUES)
    np.testing.assert_allclose(scaled.X_train[0].mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(scaled.X_train[0].std(axis=0), 1)
    np.testing.assert_array_equal(raw.run_.problem.X_train[0], X)
    np.testing.assert_allclose(raw.run_.problem.Y_train.std(), 1)


def test_loss_curve_is_the_mean_over_the_chains_of_the_training_loss():
    fitted = classifier().fit(X, Y)
    np.testing.assert_allclose(fitted.loss_curve_, fitted.run_.loss("train").values.mean(axis=0))
    assert len(fitted.loss_curve_) == 10
    assert fitted.loss_curve_[-1] < fitted.loss_curve_[0]


# weights


def make_short(make, posterior):
    """Make an estimator with full batches and so few steps that rounding doesn't grow."""
    return make(steps=4, batch=1000, method=hb.LaLa(0.1, 1.0, posterior=posterior))


@pytest.mark.parametrize("temperature", [1.0, 0.3])
@pytest.mark.parametrize(("make", "noise"), [(classifier, "sampled"), (regressor, 0.5)])
def test_scikit_learn_s_check_of_weights_passes_where_rounding_is_not_amplified(make, noise, temperature):
    estimator = make_short(make, hb.Posterior(noise=noise, temperature=temperature))
    check_sample_weight_equivalence_on_dense_data(type(estimator).__name__, estimator)


@pytest.mark.parametrize("make", [classifier, regressor])
def test_rounding_is_all_that_keeps_longer_runs_from_passing_it(make, monkeypatch):
    estimator, name = make(batch=1000, method=hb.AdLaLa(h=0.3)), make.__name__
    with pytest.raises(AssertionError, match="not equivalent"):
        check_sample_weight_equivalence_on_dense_data(name, estimator)
    monkeypatch.setattr("heatbath.estimators.base.train", partial(train, dtype="float64"))
    check_sample_weight_equivalence_on_dense_data(name, estimator)


@BOTH
def test_a_weight_of_0_leaves_a_datum_out_and_2_counts_it_twice(make, y):
    weights = np.arange(90) % 3
    options = {"batch": 1000, "steps": 20}  # all data in every batch: later, rounding is amplified
    weighted = make(**options).fit(X, y, sample_weight=weights)
    rows = np.repeat(np.arange(90), weights)
    repeated, plain = make(**options).fit(X[rows], y[rows]), make(**options).fit(X, y)
    np.testing.assert_allclose(weighted.run_.theta, repeated.run_.theta, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(weighted.loss_curve_, repeated.loss_curve_, rtol=1e-4)
    assert not np.allclose(weighted.run_.theta, plain.run_.theta, rtol=1e-3, atol=1e-5)
    kept = make().fit(X, y, sample_weight=np.arange(90) < 80)
    np.testing.assert_array_equal(kept.run_.theta, make().fit(X[:80], y[:80]).run_.theta)


@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_weights_are_not_scaled_and_set_the_temperature_of_a_posterior(temperature):
    method = hb.LaLa(0.1, 1.0, posterior=hb.Posterior(temperature=temperature))
    for total, given in (
        (90, {}),
        (90, {"class_weight": "balanced"}),
        (45, {"class_weight": dict.fromkeys(range(3), 0.5)}),
    ):
        (part, *_) = classifier(method=method, **given).fit(X, Y).run_.plan.parts()
        assert part.method.tau == pytest.approx(temperature / total)
    (part, *_) = (
        regressor(method=method, steps=50).fit(X, VALUES, sample_weight=np.arange(90)).run_.plan.parts()
    )
    assert part.method.tau == pytest.approx(temperature / (89 * 45))


def test_validation_data_have_their_weights():
    weights = 1.0 + np.arange(90)
    problem = regressor(early_stopping=True).fit(X, 7 * weights, sample_weight=weights).run_.problem
    for targets, w in ((problem.Y_train, problem.weights_train), (problem.Y_test, problem.weights_test)):
        np.testing.assert_allclose(targets[..., 0] * problem.target_scale + problem.target_shift, 7 * w)


# going on


@BOTH
def test_partial_fit_goes_on_bit_for_bit_as_one_longer_run_and_drops_older_samples(make, y):
    method = hb.AdLaLa(h=0.1, tau=3e-3)
    options = {} if make is regressor else {"classes": np.unique(y)}
    parts = make(method=method, window=90).partial_fit(X, y, **options).partial_fit(X, y)
    whole = make(method=method, steps=80).fit(X, y)
    for name in ("theta", "p", "xi_now"):
        np.testing.assert_array_equal(parts.run_.data[name], whole.run_.data[name])
    assert parts.n_iter_ == 80
    assert parts.run_.data["sample_step"].values.tolist() == [65, 70, 75, 80]
    assert len(parts.loss_curve_) == 20
    warm = make(method=method, warm_start=True).fit(X, y).fit(X, y)
    np.testing.assert_array_equal(warm.run_.theta, whole.run_.theta)
    np.testing.assert_array_equal(warm.predict(X), parts.predict(X))
    anew = make(method=method).fit(X, y).fit(X, y)
    assert anew.n_iter_ == 40


def test_partial_fit_learns_from_data_that_come_in_parts():
    fitted = classifier(steps=20, window=3)
    for rows in np.array_split(np.argsort(X[:, 1]), 30):  # three data at a time
        for _ in range(3):
            fitted.partial_fit(X[rows], Y[rows], classes=[0, 1, 2])
    assert fitted.n_iter_ == 90 * 20
    assert fitted.run_.problem.X_train.shape == (1, 3, 5)
    assert len(fitted.run_.data["sample_step"]) == 4
    mixed = classifier(steps=100, scale=False, window=30)
    order = np.random.default_rng(0).permutation(90)
    for rows in [*np.array_split(order, 3)] * 5:
        mixed.partial_fit(X[rows] / 10, Y[rows], classes=[0, 1, 2])
    assert mixed.score(X / 10, Y) > 0.75
    np.testing.assert_array_equal(mixed.run_.problem.X_train[0], X[rows] / 10)


def test_a_run_that_went_on_can_be_saved_and_loaded(tmp_path):
    fitted = classifier().fit(X, Y).partial_fit(X[:50], Y[:50])
    fitted.run_.save(tmp_path / "run.nc")
    loaded = hb.load(tmp_path / "run.nc")
    np.testing.assert_array_equal(loaded.outputs(X, samples=True), fitted.run_.outputs(X, samples=True))


def test_coefficients_may_change_when_a_run_goes_on_but_not_the_network():
    fitted = classifier(method=hb.AdLaLa(tau=1e-4), warm_start=True).fit(X, Y)
    fitted.set_params(method=hb.AdLaLa(tau=1e-2)).fit(X, Y)
    tau = fitted.run_.partition.methods["hidden"].tau
    assert (tau(39), tau(40)) == (1e-4, 1e-2)
    for changed in ({"hidden": (9,)}, {"chains": 3}, {"activation": "tanh"}):
        with pytest.raises(ValueError, match="a run continues with its network and chains"):
            clone(fitted).fit(X, Y).set_params(**changed).fit(X, Y)


# early stopping


@BOTH
def test_early_stopping_ends_when_the_validation_loss_no_longer_falls(make, y):
    options = {"early_stopping": True, "validation_fraction": 0.2, "n_iter_no_change": 3, "tol": 0.01}
    fitted = make(steps=4000, samples=20, hidden=(50,), **options).fit(X, y)
    assert fitted.run_.problem.X_train.shape[1:] == (72, 5)
    assert fitted.run_.problem.X_test.shape[1:] == (18, 5)
    assert fitted.n_iter_ < 4000
    losses = fitted.run_.loss("test").values.mean(axis=0)
    assert len(losses) == fitted.n_iter_ / 100
    stalled = [all(losses[i - 2 : i + 1] > losses[: i - 2].min() - 0.01) for i in range(3, len(losses))]
    assert stalled.index(True) == len(stalled) - 1
    patient = make(steps=430, **(options | {"n_iter_no_change": 50})).fit(X, y)
    assert patient.n_iter_ == 430  # 8 looks every 53 steps, and the rest


def test_early_stopping_averages_over_the_latest_samples_and_counts_anew_in_a_warm_start():
    options = {"early_stopping": True, "n_iter_no_change": 5, "tol": 0.1, "warm_start": True}
    fitted = classifier(steps=800, **options).fit(X, Y)
    steps = fitted.n_iter_
    assert 600 <= steps < 800  # a look every 100 steps
    latest = fitted.run_.outputs(X, samples=True)[:, -4:].mean(axis=(0, 1))
    assert fitted.run_.data.sizes["sample"] > 4
    np.testing.assert_allclose(fitted.predict_proba(X), latest, rtol=1e-10)
    fitted.fit(X, Y)
    assert fitted.n_iter_ >= steps + 600
    assert fitted.run_.data["sample_step"].values[0] == steps + 100


# parameters


def test_the_method_is_the_one_given():
    method = hb.Partition({"hidden": hb.Langevin(1.0, 1e-3, weight_decay=0.1), "output": hb.Frozen()}, 0.1)
    assert classifier(method=method).fit(X, Y).run_.partition == method
    for given in ({"prior": 2.0}, {"temperature": 0.5}):
        with pytest.raises(ValueError, match="a method of your own has its own posterior"):
            classifier(method=method, **given).fit(X, Y)
    with pytest.raises(ValueError, match="noise: a method of your own"):
        regressor(method=method, noise=0.1).fit(X, VALUES)


def test_a_network_without_hidden_layers_is_linear():
    fitted = regressor(hidden=(), steps=1000, method=hb.Partition(OWN.methods["output"], 0.3)).fit(X, VALUES)
    assert fitted.score(X, VALUES) > 0.97
    np.testing.assert_allclose(
        fitted.predict(X[:1] + X[1:2] - X[2:3]), fitted.predict(X[:3]) @ [1, 1, -1], rtol=1e-6
    )


@BOTH
def test_results_follow_the_random_state_and_nothing_else(make, y):
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    first, same, other = (make(random_state=seed).fit(X, y).run_.theta for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, same)
    assert np.any(first != other)
    anew = [make(random_state=None).fit(X, y).run_.theta for _ in range(2)]
    assert np.any(anew[0] != anew[1])
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002
    np.testing.assert_array_equal(make(threads=1, random_state=1).fit(X, y).run_.theta, first)


def test_progress_is_printed_only_if_asked_for(capsys):
    classifier().fit(X, Y)
    assert capsys.readouterr().out == ""
    classifier(verbose=True).fit(X, Y)
    assert re.search(r"step 40 of 40, loss \d\.\d+\n", capsys.readouterr().out)


# in use


def test_threads_are_one_within_parallel_calls(monkeypatch):
    monkeypatch.delenv("HEATBATH_THREADS", raising=False)
    assert classifier()._threads() is None
    assert classifier(threads=3)._threads() == 3
    for backend in ("threading", "loky"):
        with joblib.parallel_config(backend=backend):
            asked = joblib.Parallel(n_jobs=2)(joblib.delayed(classifier()._threads)() for _ in range(2))
        assert asked == [1, 1]
    monkeypatch.setenv("HEATBATH_THREADS", "2")
    assert joblib.Parallel(n_jobs=2, backend="threading")([joblib.delayed(classifier()._threads)()]) == [None]


def test_grid_searches_over_pipelines_give_the_same_in_parallel():
    pipeline = make_pipeline(MinMaxScaler(), classifier())
    grid = {"thermodynamicclassifier__method": [OWN, OWN.at_stepsize(1e-5)]}
    alone, parallel = (GridSearchCV(pipeline, grid, cv=3, n_jobs=n).fit(X, Y) for n in (None, 2))
    np.testing.assert_array_equal(
        alone.cv_results_["mean_test_score"], parallel.cv_results_["mean_test_score"]
    )
    assert alone.best_params_ == {"thermodynamicclassifier__method": OWN}
    np.testing.assert_array_equal(alone.predict_proba(X), parallel.predict_proba(X))


@BOTH
def test_pickles_predict_the_same_and_clones_are_not_fitted(make, y, tmp_path):
    fitted = make().fit(X, y)
    joblib.dump(fitted, tmp_path / "model")
    for copy in (pickle.loads(pickle.dumps(fitted)), joblib.load(tmp_path / "model")):
        np.testing.assert_array_equal(copy.predict(X), fitted.predict(X))
        np.testing.assert_array_equal(copy.fit(X, y).run_.theta, fitted.run_.theta)
    fresh = clone(fitted)
    assert fresh.get_params() == fitted.get_params()
    with pytest.raises(NotFittedError):
        fresh.predict(X)


# errors


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"steps": -1}, "steps must be a whole number >= 1, got -1"),
        ({"steps": 2.5}, "steps must be a whole number >= 1, got 2.5"),
        ({"batch": 0}, "batch must be a whole number >= 1, got 0"),
        ({"chains": 0}, "chains must be a whole number >= 1, got 0"),
        ({"samples": 0}, "samples must be a whole number >= 1, got 0"),
        ({"threads": 0}, "threads must be a whole number >= 1, got 0"),
        ({"hidden": 100}, "hidden must be a list of layer sizes such as"),
        ({"activation": "gelu"}, "activation must be one of 'relu', 'tanh', 'identity', got 'gelu'"),
        ({"method": "adam"}, r"method must be a Partition such as AdLaLa\(\), or None; got 'adam'"),
        ({"method": hb.AdLaLa(tau=[1e-4, 1e-3])}, "one value of tau: several are the axes of a sweep"),
        ({"method": None, "prior": -1.0}, "prior must be > 0 and finite, got -1"),
        ({"method": None, "temperature": 0.0}, "temperature must be > 0 and finite, got 0"),
        ({"refine": 0.0}, "refine must be > 0 and finite, got 0"),
        ({"early_stopping": True, "validation_fraction": 0.0}, "validation_fraction must be > 0 and < 1"),
        ({"early_stopping": True, "n_iter_no_change": 0}, "n_iter_no_change must be a whole number >= 1"),
        ({"early_stopping": True, "tol": -1}, "tol must be >= 0 and finite, got -1"),
    ],
)
@BOTH
def test_parameters_that_make_no_sense_are_refused(make, y, given, told):
    with pytest.raises((ValueError, TypeError), match=told):
        make(**given).fit(X, y)


def test_data_that_make_no_sense_are_refused():
    holes = X.copy()
    holes[3, 1] = np.nan
    fitted = classifier().fit(X, Y)
    for bad, told in [
        (lambda: classifier().fit(X, np.zeros(90)), r"two classes or more .* got one class, \[0"),
        (lambda: classifier().fit(X, Y, sample_weight=Y == 0), "got one class"),
        (lambda: classifier().fit(X, VALUES), "Unknown label type"),
        (lambda: classifier().fit(holes, Y), "contains NaN"),
        (lambda: classifier().fit([["a"], ["b"]], [0, 1]), "could not convert string to float"),
        (lambda: classifier().fit(X, Y, sample_weight=-np.ones(90)), "weights .* must be >= 0"),
        (lambda: regressor().fit(X, VALUES, sample_weight=-np.ones(90)), "weights .* must be >= 0"),
        (lambda: regressor().fit(X, VALUES, sample_weight=np.zeros(90)), "weight"),
        (lambda: classifier(class_weight={0: -1, 1: 1, 2: 1}).fit(X, Y), "they are from -1 to 1"),
        (lambda: classifier(class_weight="equal").fit(X, Y), "class_weight"),
        (lambda: fitted.predict(X[:, :3]), "X has 3 features, but ThermodynamicClassifier is expecting 5"),
        (lambda: classifier().partial_fit(X, Y), "needs classes="),
        (lambda: classifier().partial_fit(X, Y, classes=[1]), "classes must be two or more"),
        (lambda: classifier().partial_fit(X, Y, classes=[0, 1]), r"y has the classes \[2\]"),
        (lambda: classifier().fit(X, Y).partial_fit(X, Y, classes=[0, 1]), "classes must stay"),
        (
            lambda: classifier(class_weight="balanced").partial_fit(X, Y, classes=[0, 1, 2]),
            "all data at once",
        ),
        (lambda: classifier(early_stopping=True).partial_fit(X, Y, classes=[0, 1, 2]), "set early_stopping="),
        (lambda: regressor(early_stopping=True).partial_fit(X, VALUES), "set early_stopping="),
        (lambda: classifier(warm_start=True).fit(X, TWO).fit(X, Y), r"y has the classes \[2\]"),
        (
            lambda: regressor(warm_start=True).fit(X, VALUES).fit(X, VALUES[:, None]),
            r"y must be \('examples',\), got \(90, 1\)",
        ),
    ]:
        with pytest.raises(ValueError, match=told):
            bad()


def test_after_a_fit_that_failed_there_is_none():
    X, y = np.random.default_rng(0).standard_normal((60, 2)), np.repeat(["a", "b", "c"], 20)
    for made, target in ((hb.ThermodynamicClassifier, y), (hb.ThermodynamicRegressor, X[:, 0])):
        estimator = made(method=OWN, steps=20, chains=1, samples=2).fit(X, target)
        with pytest.raises(ValueError, match="steps"):
            estimator.set_params(steps=-1).fit(X, target)
        with pytest.raises(NotFittedError):
            estimator.predict(X)


def sections(kind):
    """The sections of a docstring in NumPy's style, by title: the text on each name in it."""
    parts = re.split(r"\n\n(\w+)\n-+\n", inspect.cleandoc(kind.__doc__))
    entries = {}
    for title, part in zip(parts[1::2], parts[2::2], strict=True):
        found = re.findall(r"^(\w.*)\n((?:    .*(?:\n|$))+)", part, flags=re.MULTILINE)
        entries[title] = {name: text for names, text in found for name in names.split(", ")}
    return entries


@pytest.mark.parametrize("kind", [hb.ThermodynamicClassifier, hb.ThermodynamicRegressor])
def test_help_says_what_every_parameter_means(kind):
    assert list(sections(kind)) == ["Parameters", "Attributes", "Examples"]
    described = sections(kind)["Parameters"]
    assert set(described) == set(kind().get_params())
    assert all(len(text.split()) > 3 for text in described.values())
    assert str(inspect.signature(kind)).count("=") == len(kind().get_params())


@pytest.mark.parametrize("kind", [hb.ThermodynamicClassifier, hb.ThermodynamicRegressor])
def test_help_names_the_attributes_of_a_fitted_estimator(kind):
    X = pd.DataFrame({"x": VALUES, "y": VALUES**2})
    fitted = kind(method=OWN, steps=20, chains=1, samples=2, encode=True).fit(X, np.sign(VALUES))
    public = {name for name in vars(fitted) if name.endswith("_") and not name.startswith("_")}
    assert public <= set(sections(kind)["Attributes"])
    assert all(hasattr(fitted, name) for name in sections(kind)["Attributes"])


def test_both_estimators_say_the_same_of_the_parameters_they_share():
    classifier, regressor = (
        sections(k)["Parameters"] for k in (hb.ThermodynamicClassifier, hb.ThermodynamicRegressor)
    )
    shared = set(classifier) & set(regressor)
    assert len(shared) >= 20
    assert {name: classifier[name] for name in shared} == {name: regressor[name] for name in shared}
