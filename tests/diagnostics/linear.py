"""Problems and runs whose laws are known."""

import numpy as np

import heatbath as hb


def rows(n, inputs=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, inputs))
    return X, X @ rng.standard_normal((inputs, 1)) + 0.3 * rng.standard_normal((n, 1))


QUADRATIC = hb.datasets.from_arrays(*rows(40), task="regression", test_share=0.0)


LINEAR = hb.MLP(())


def run_on_quadratic(tau, h=0.3, decay=0.2, gamma=1.0, steps=20_000, **options):
    """Train a linear model on all its data, so that the loss is quadratic and has no gradient noise.

    Its minimum is away from 0.
    """
    partition = hb.Partition(hb.Langevin(gamma, tau, weight_decay=decay), h)
    settings = {"chains": 8, "record": 500, "dtype": "float64", "seed": 1, "batch": 40} | options
    return hb.train(QUADRATIC, LINEAR, partition, steps, **settings)


def interval_holds(table, name, value, width=1.0):
    """Return True if the interval of a row, scaled by `width`, holds a value."""
    row = table.sel({next(iter(table.sizes)): name})
    half = width * (float(row["high"]) - float(row["low"])) / 2
    return abs(float(row["temperature"]) - value) < half


def problem_of(task, n=6, seed=0):
    X, Y = rows(n, seed=seed)
    if task == "regression":
        return hb.datasets.from_arrays(X, np.hstack([Y, Y**2]), task=task, test_share=0.0)
    if task == "counts":
        counts = np.floor(np.hstack([Y**2, X[:, :1] ** 2]))
        return hb.datasets.from_arrays(X, counts, task=task, test_share=0.0)
    classes = 2 if task == "binary" else 3
    return hb.datasets.from_arrays(X, np.arange(n) % classes, task=task, test_share=0.0)
