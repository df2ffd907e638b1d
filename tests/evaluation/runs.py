"""Runs to be judged: small ones, made once."""

from functools import cache

import numpy as np

import heatbath as hb

SGD = hb.Partition(hb.SGD(), 0.1)
POSTERIOR = hb.LaLa(h=0.1, gamma=1.0, posterior=hb.Posterior())
METHOD = {"binary": SGD, "classes": SGD, "regression": POSTERIOR, "counts": SGD, "two": POSTERIOR}


def table(rows=80, seed=0):
    """Return inputs, and targets of every task; only the first two of three columns matter."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, 3)) * [1.0, 10.0, 3.0]
    line = X[:, 0] + 0.05 * X[:, 1]
    values = 100 + 20 * line + 2 * rng.standard_normal(rows)
    return X, {
        "binary": (line + 0.3 * rng.standard_normal(rows) > 0).astype(int),
        "classes": np.digitize(line, [-0.6, 0.6]),
        "regression": values,
        "counts": rng.poisson(np.exp(0.5 + 0.5 * line)),
        "two": np.column_stack([values, -values / 100]),
    }


def problem(task, **options):
    X, targets = table()
    kind = "regression" if task == "two" else task
    return hb.datasets.from_arrays(X, targets[task], task=kind, standardise=True, **options)


@cache
def trained(task, **options):
    return hb.train(problem(task), hb.MLP((8,)), METHOD[task], 60, 10, chains=3, **options)


def examples_for_test(run):
    """Return the test examples in the units of the data."""
    own = run.problem
    X = own.X_test[0] * own.scale + own.shift
    return X, own.Y_test[0] * own.target_scale + own.target_shift


def churn(**options):
    """Return a problem of two classes, one of them rare, whose rows have different weights."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 2))
    y = np.where(X[:, 0] + 0.5 * rng.standard_normal(400) > 1.9, "yes", "no")
    weights = rng.choice([0.5, 1.0, 3.0], 400)
    return hb.datasets.from_arrays(X, y, standardise=True, weights=weights, **options)
