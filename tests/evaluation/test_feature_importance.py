"""Which columns matter, and how."""

import numpy as np
import pandas as pd
import pytest

import heatbath as hb
from heatbath import evaluation
from heatbath.evaluation import feature_importance
from heatbath.runs.run import Run
from tests.evaluation.runs import SGD, table, trained


def linear_run(weights, task="regression"):
    """Return a run of linear networks with known outputs: a chain for each row of weights."""
    X, targets = table(200)
    own = hb.datasets.from_arrays(X, targets[task], task=task, standardise=True)
    run = hb.train(own, hb.MLP(()), SGD, 1, 10, chains=len(weights))
    theta = np.hstack([np.asarray(weights, np.float32), np.zeros((len(weights), 1), np.float32)])
    return Run(run.plan, run.step, run.data.assign(theta=(("chain", "parameter"), theta)))


def test_the_importance_of_a_column_is_what_exchanging_it_costs_and_0_where_it_has_no_weight(monkeypatch):
    """For a linear network the cost is exact, with the same permutations.

    It is w² times the mean square of two examples' difference, plus the effect on the residuals.
    """
    monkeypatch.setattr(feature_importance, "SHUFFLES", 200)
    run = linear_run([[0.8, 0.5, 0.0]] * 2)
    on = evaluation.examples_of(run)
    found = {one.column: one.rise for one in evaluation.importance(run)}
    assert list(found) == ["x1", "x2", "x3"]
    assert found["x3"] == (0.0, 0.0, 0.0)
    scale = run.problem.target_scale[0]
    for place, (name, weight) in enumerate({"x1": 0.8, "x2": 0.5}.items()):
        x, y = on.x[:, place], on.y[:, 0]
        residual = y - run.predict(on.raw).mean[:, 0]
        spread = weight * scale * (x - x.mean())
        exact = (2 * np.mean(spread**2) + 2 * np.mean(residual * spread)) / y.var()
        assert found[name].value == pytest.approx(exact, rel=0.05)
        assert found[name].low < exact < found[name].high


def test_importance_is_of_the_averaged_prediction_as_predict_gives_it():
    """Networks that contradict one another: alone each depends on the column, together they do not."""
    run = linear_run([[0.7, 0.6, 0.0], [0.7, -0.6, 0.0]])
    found = {one.column: one.rise.value for one in evaluation.importance(run)}
    assert found["x2"] == pytest.approx(0.0, abs=1e-12)
    assert found["x1"] > 0.5


@pytest.mark.parametrize("task", ["binary", "classes", "regression"])
def test_a_dependence_is_the_mean_prediction_with_the_column_set(task):
    run = trained(task)
    on = evaluation.examples_of(run)
    (found,) = evaluation.dependence(run, ["x2"])
    assert len(found.values) == feature_importance.GRID
    for place in (0, 12, -1):
        X = on.raw
        X[:, 1] = found.values[place]
        each = run.outputs(X).mean(axis=1)  # chain x output
        np.testing.assert_allclose(found.mean[place], each.mean(axis=0))
        np.testing.assert_allclose(found.low[place], np.quantile(each, 0.05, axis=0))
        np.testing.assert_allclose(found.high[place], np.quantile(each, 0.95, axis=0))
    with pytest.raises(ValueError, match=r"there is no column 'x9'; there are x1, x2, x3"):
        evaluation.dependence(run, ["x9"])


def test_the_first_layer_is_kept_and_the_rest_is_the_network():
    """Of deep networks and of none, with samples: what a networks says is what predict says."""
    X, targets = table()
    own = hb.datasets.from_arrays(X, targets["binary"], task="binary", standardise=True)
    for hidden in ((), (8, 8)):
        run = hb.train(own, hb.MLP(hidden), SGD, 60, 10, chains=3, samples=4)
        on = evaluation.examples_of(run)
        networks = feature_importance._NetworkSubset(run, on, 48)
        np.testing.assert_allclose(networks.mean_prediction(), run.predict(on.raw).mean, atol=1e-12)


def test_columns_of_a_table_are_as_the_user_has_them():
    rng = np.random.default_rng(0)
    rows = 200
    city, member = rng.choice(["Bern", "Oslo", "Rome"], rows), rng.choice(["no", "yes"], rows)
    age = rng.integers(18, 80, rows).astype(object)
    y = np.where(city == "Oslo", 3.0, 0.0) + rng.standard_normal(rows)
    age[rng.random(rows) < 0.2] = None
    day = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, rows), unit="D")
    frame = pd.DataFrame(
        {"city": city, "member": member, "age": age, "day": day.strftime("%Y-%m-%d"), "size": y}
    )
    own = hb.datasets.from_table(frame, "size")
    run = hb.train(own, hb.MLP((8,)), SGD, 300, 10, chains=3)
    names = [one.column for one in evaluation.importance(run)]
    assert names[0] == "city"
    assert set(names) == {"city", "member", "age", "day"}
    found = {one.column: one for one in evaluation.dependence(run, names)}
    assert found["city"].labels == ("Bern", "Oslo", "Rome")
    assert found["city"].mean[:, 0].argmax() == 1
    assert found["member"].labels == ("no", "yes")
    assert 18 <= found["age"].values.min() < found["age"].values.max() < 80
    assert 2020 <= found["day"].values.min() < found["day"].values.max() < 2022.5
    raw = frame.drop(columns="size").assign(city="Oslo")
    rows = evaluation.examples_of(run)
    X = rows.raw
    X[:, feature_importance.column_features(own)["city"]] = [0.0, 1.0, 0.0]
    np.testing.assert_allclose(found["city"].mean[1, 0], run.predict(X).mean.mean(), rtol=1e-9)
    assert run.predict(raw).mean.shape == (200, 1)
