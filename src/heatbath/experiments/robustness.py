"""Robustness: the variance of the test accuracy over 100 runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from heatbath.datasets import spirals
from heatbath.experiments import pictures
from heatbath.experiments.base import (
    Array,
    Claim,
    Experiment,
    Finding,
    Settings,
    Tell,
    above,
    all_of,
    bootstrap,
    mean,
)
from heatbath.experiments.common import adlala, complete, final, scores
from heatbath.methods import SGD, Adam
from heatbath.networks import Dense
from heatbath.partition import Partition
from heatbath.presets import LOL
from heatbath.training import compare

GAUSSIAN, UNIFORM = "Gaussian start", "torch's start"


def run(s: Settings, tell: Tell) -> xr.Dataset:
    """Methods with one start, then with the other."""
    problem = spirals(2, n_train=s.points, n_test=s.points, draws=s.runs)
    adam, own = Partition(Adam(), 0.005), adlala(0.25, 0.5)
    small = {
        "SGD": Partition(SGD(), 0.25),
        f"Adam, {GAUSSIAN}": adam,
        "LOL": LOL(h=0.25, gamma=0.01, tau=1e-3),
        f"AdLaLa, {GAUSSIAN}": own,
    }
    torch = {f"Adam, {UNIFORM}": adam, f"AdLaLa, {UNIFORM}": own}
    starts = {Dense((s.units,), init="gaussian"): small, Dense((s.units,), init="torch"): torch}
    found = [
        xr.Dataset(
            scores(
                complete(
                    compare(
                        problem,
                        network,
                        methods,
                        steps=s.steps,
                        batch=s.batch,
                        repeats=s.runs,
                        record=s.records,
                        progress=tell,
                        seed=s.seed,
                    )
                )
            )
        )
        for network, methods in starts.items()
    ]
    return xr.concat(found, dim="method")


def spread(values: Array) -> np.float64:
    """The variance over runs, in squared points."""
    return np.float64(np.var(100 * values, ddof=1))


def far_lower(method: str) -> Any:
    """The variance of the others over that of a method: far lower is less than half."""

    def check(data: xr.Dataset) -> Finding:
        own = final(data, method=method)
        others = ["SGD", f"Adam, {GAUSSIAN}", f"Adam, {UNIFORM}"]
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = {
                name: bootstrap(lambda a, b: spread(b) / spread(a), own, final(data, method=name))
                for name in others
            }
        told = ", ".join(f"{name} {ratio.told()} times" for name, ratio in ratios.items())
        verdicts = [all_of(above(ratio, 1.0), above(ratio, 2.0)) for ratio in ratios.values()]
        return Finding(f"variance {spread(own):.1f} squared points; {told} that", all_of(*verdicts))

    return check


def start_matters(data: xr.Dataset) -> Finding:
    """The difference of the means from the two starts, of Adam and of AdLaLa."""
    found = {
        name: abs(
            mean(final(data, method=f"{name}, {UNIFORM}") - final(data, method=f"{name}, {GAUSSIAN}")).value
        )
        for name in ("Adam", "AdLaLa")
    }
    difference = bootstrap(
        lambda a, b, c, d: abs(a.mean() - b.mean()) - abs(c.mean() - d.mean()),
        *(
            final(data, method=f"{name}, {start}")
            for name in ("Adam", "AdLaLa")
            for start in (UNIFORM, GAUSSIAN)
        ),
    )
    told = "; ".join(f"{name} {100 * value:.1f} points" for name, value in found.items())
    return Finding(f"{told} between the starts; more for Adam by {difference.told(100)}", above(difference))


EXPERIMENT = Experiment(
    name="robustness",
    title="Robustness: the variance over 100 runs",
    settings={
        "units": 20,
        "points": 500,
        "batch": 10,
        "steps": 20_000,
        "runs": 100,
        "seed": 0,
        "records": 20,
    },
    quick={"points": 100, "batch": 2, "steps": 200, "runs": 4, "records": 4},
    run=run,
    draw=lambda data, s: pictures.robustness(data),
    claims=(
        Claim(
            "The variance over runs of AdLaLa is far lower than that of SGD and Adam",
            far_lower(f"AdLaLa, {GAUSSIAN}"),
            "much lower",
        ),
        Claim(
            "The variance over runs of LOL is far lower than that of SGD and Adam",
            far_lower("LOL"),
            "much lower",
        ),
        Claim(
            "AdLaLa hardly depends on the start, Adam does", start_matters, "highly dependent, less sensitive"
        ),
    ),
    notes="20,000 steps: the paper does not say how many. The Gaussian start is N(0, 0.01²).",
)
