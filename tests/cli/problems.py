"""Make problems that a constant predicts best, and a control."""

import numpy as np

import heatbath as hb
from heatbath.datasets import from_arrays
from heatbath.runs.plan import make_plan


def make_noise_problem(task, seed=0, test_share=0.2, n=200):
    """Return a problem whose targets cannot be predicted."""
    rng = np.random.default_rng(seed)
    y = rng.poisson(3.0, n) if task == "counts" else rng.standard_normal(n) * 4 + 7
    y = {"binary": y > 9, "classes": np.digitize(y, [5, 9]).astype(str)}.get(task, y)
    weights = rng.uniform(0.5, 2.0, n)
    X = rng.standard_normal((n, 3))
    if task == "two values":  # of which the second is explained
        task, y = "regression", np.column_stack([y, X[:, 0]])
    return from_arrays(X, y, task=task, standardise=True, weights=weights, test_share=test_share, seed=seed)


def make_separable_problem(seed, n=200):
    """Return the control: a problem of two classes that a line divides."""
    X = np.random.default_rng(seed).standard_normal((n, 3))
    return from_arrays(X, X[:, 0] > 0, standardise=True, test_share=0.5, seed=seed)


def plan_for(problem, **options):
    return make_plan(problem, hb.MLP((8,)), hb.Partition(hb.Adam(), 0.05), **{"steps": 300} | options)
