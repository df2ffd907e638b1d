"""Pictures to test with, and what can be read off them."""

import warnings
from functools import cache

import numpy as np
import xarray as xr

import heatbath as hb
from heatbath import evaluation, plotting
from tests.evaluation.runs import trained
from tests.runs import SMALL, SPIRALS

METHODS = {
    "AdLaLa": hb.AdLaLa(h=0.2, tau=1e-3, tau_output=1e-4),
    "LOL": hb.LOL(h=0.2),
    "Adam": hb.Partition(hb.Adam(), h=0.005),
}


@cache
def three_methods():
    """Return runs of three methods on the spirals."""
    plan = {"steps": 60, "batch": 20, "chains": 3, "record": 6, "losses_every": 2, "weights": True}
    return hb.compare(SPIRALS, SMALL, METHODS, **plan)


@cache
def sweep():
    grid = hb.AdLaLa(h=0.2, tau=[1e-4, 1e-3], sigma=[0, 1e-3, 4e-2])
    plan = {"steps": 40, "batch": 20, "chains": 2, "record": 2, "histogram": (-1, 1, 20)}
    return hb.sweep(SPIRALS, SMALL, grid, **plan)


@cache
def regression_run(**posterior):
    """Return a run on a sine curve, with samples of the posterior."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (80, 1))
    y = 20 + 5 * np.sin(2 * x[:, 0]) + 1.5 * rng.standard_normal(80)
    problem = hb.datasets.from_arrays(x[:50], y[:50], x[50:], y[50:], task="regression", standardise=True)
    sampling = hb.LaLa(h=0.2, gamma=1.0, posterior=hb.Posterior(**posterior))
    return hb.train(problem, hb.MLP((6,), "tanh"), sampling, 3000, 50, 3, samples=50, burn_in=1500)


@cache
def tuned(by="accuracy"):
    methods = {
        "AdLaLa": hb.AdLaLa,
        "LOL": hb.LOL(h=hb.between(0.1, 1e9), gamma=0.1, tau=hb.between(1e-5, 1e-3)),  # some diverge
        "Adam": hb.Partition(hb.Adam(), h=hb.between(1e-3, 0.1)),
    }
    with warnings.catch_warnings():  # of which a test is told only if it is the first to ask
        warnings.simplefilter("ignore", hb.SearchEdgeWarning)
        return hb.tune(SPIRALS, SMALL, methods, 80, 20, candidates=12, by=by)


@cache
def judgement(task):
    """Return the forecasts of a run and of a linear model on the test examples."""
    answer = evaluation.judge(trained(task))
    return {"": answer.forecast, "linear": list(evaluation.baselines(answer.examples).values())[-1][1]}


def on_line(values, alpha=(0.0, 0.25, 0.5, 0.75, 1.0)):
    """Return losses on a line as `heatbath` has them."""
    dims = ("pair", "alpha")[2 - np.ndim(values) :]
    return xr.DataArray(values, dims=dims, coords={"alpha": list(alpha), "split": "test"}, name="loss")


def on_surface(function):
    """Return losses on a surface, from a function of alpha and beta."""
    alpha, beta = np.linspace(-1, 2, 31), np.linspace(0, 1, 21)
    values = function(alpha[:, None], beta[None, :])
    return xr.DataArray(values, dims=("alpha", "beta"), coords={"alpha": alpha, "beta": beta}, name="loss")


def forecasts(count=400, seed=0):
    """Return probabilities of an event, and outcomes that are rarer than these say."""
    rng = np.random.default_rng(seed)
    said = rng.random(count)
    return said, (rng.random(count) < said**1.5).astype(float)


SCORES = [
    plotting.Score("Adam", 0.84, (0.80, 0.88), 0.837),
    plotting.Score("AdLaLa, γ = 0.5", 0.93, (0.92, 0.94), (0.98, 0.99)),
    plotting.Score("LOL", 0.9, (0.85, 0.95)),
]


PICTURES = {
    "data": lambda ax: plotting.data(SPIRALS, ax=ax),
    "classifier": lambda ax: plotting.classifier(SPIRALS, three_methods(), chain=0, ax=ax),
    "uncertainty": lambda ax: plotting.uncertainty(SPIRALS, three_methods().select(method="LOL"), ax=ax),
    "curves": lambda ax: plotting.curves(three_methods(), ax=ax),
    "loss": lambda ax: plotting.curves(three_methods().loss("train"), band="range", log=True, ax=ax),
    "sweep": lambda ax: plotting.curves(sweep(), band="std", ax=ax),
    "temperatures": lambda ax: plotting.temperatures(three_methods().select(method="AdLaLa"), ax=ax),
    "distributions": lambda ax: plotting.distributions(
        plotting.parameters(three_methods(), "layer1")[:, [0, -1]], ax=ax
    ),
    "line": lambda ax: plotting.line(on_line([0.1, 1.0, 1.3, 0.9, 0.2]), ax=ax),
    "lines": lambda ax: plotting.line(
        {n: on_line([[0.1, 1.0, 1.3, 0.9, 0.2], [0.1, 0.6, 2, 1, 0.3]]) for n in ("Adam to AdLaLa", "LOL")},
        log=True,
        ax=ax,
    ),
    "surface": lambda ax: plotting.surface(
        on_surface(lambda a, b: 0.1 + a**2 + b), {"start": (0, 0), "Adam": (2, 1)}, log=True, ax=ax
    ),
    "heat_map": lambda ax: plotting.heat_map(sweep(), ax=ax),
    "scores": lambda ax: plotting.scores(SCORES, "test accuracy", percent=True, ax=ax),
    "search": lambda ax: plotting.search(tuned(), ax=ax),
    "search by loss": lambda ax: plotting.search(tuned("loss"), ax=ax),
    "search_map": lambda ax: plotting.search_map(tuned(), "LOL", ax=ax),
    "search_map by loss": lambda ax: plotting.search_map(tuned("loss"), "AdLaLa", ax=ax),
    "importance": lambda ax: plotting.importance(tuned(), ax=ax),
    "regression": lambda ax: plotting.regression(regression_run(), ax=ax),
    "coverage": lambda ax: plotting.coverage(regression_run(), ax=ax),
    "uniformity": lambda ax: plotting.uniformity({"a": forecasts()[0], "b": forecasts()[0] ** 2}, ax=ax),
    "roc": lambda ax: plotting.roc(judgement("binary"), ax=ax),
    "roc of classes": lambda ax: plotting.roc(judgement("classes")[""], ax=ax),
    "calibration": lambda ax: plotting.calibration(judgement("classes"), ax=ax),
    "confusion": lambda ax: plotting.confusion(judgement("classes")[""], ax=ax),
    "predicted": lambda ax: plotting.predicted(judgement("regression")[""], ax=ax),
    "column_importance": lambda ax: plotting.column_importance(evaluation.importance(trained("two")), ax=ax),
    "dependence": lambda ax: plotting.dependence(
        evaluation.dependence(trained("two"), ["x1"])[0], "uv", ax=ax
    ),
    "reliability": lambda ax: plotting.reliability({"Adam": forecasts()[0]}, forecasts()[1], ax=ax),
}


def labelled_lines(ax):
    """Return the lines of an axis that have a label, by label."""
    return {line.get_label(): line for line in ax.get_lines() if not line.get_label().startswith("_")}


def ticks(axis):
    axis.axes.figure.figure.draw_without_rendering()
    return [label.get_text() for label in axis.get_ticklabels()]
