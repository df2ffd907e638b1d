"""Robustness: the variance of the test accuracy over 100 runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from heatbath import plotting
from heatbath.datasets import spirals
from heatbath.diagnostics.statistics import bootstrap, student
from heatbath.methods import SGD, Adam
from heatbath.methods.partition import Partition
from heatbath.methods.presets import LOL
from heatbath.models.dense import MLP
from heatbath.paper.claims import FAILS, Claim, Finding, above, all_of, below
from heatbath.paper.experiment import Experiment, Settings, Tell
from heatbath.paper.figures import by_method, whole, without_key
from heatbath.paper.side_by_side import Array, adlala, final, scores, side_by_side
from heatbath.plotting.style import PAGE_WIDTH, add_legend, format_steps, label_axes, line_style, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GAUSSIAN, UNIFORM = "Gaussian start", "torch's start"
SAME = 0.02  # a difference of means that is hardly one


def run(s: Settings, tell: Tell) -> xr.Dataset:
    """Methods with one start, then with the other."""
    problem = spirals(2, n_train=s.points, n_test=s.points, draws=s.runs)
    both = {name: s.methods[name] for name in ("Adam", "AdLaLa")}
    small = {name: s.methods[name] for name in ("SGD", "LOL")} | {
        f"{n}, {GAUSSIAN}": m for n, m in both.items()
    }
    torch = {f"{name}, {UNIFORM}": method for name, method in both.items()}
    starts = {MLP((s.units,), init="gaussian"): small, MLP((s.units,), init="torch"): torch}
    by_start = [
        xr.Dataset(scores(side_by_side(s, tell, problem, methods, network, record=s.records)))
        for network, methods in starts.items()
    ]
    return xr.concat(by_start, dim="method")


def spread(values: Array) -> np.float64:
    """The variance over runs, in squared points."""
    return np.float64(np.var(100 * values, ddof=1))


def far_lower(*methods: str) -> Callable[[xr.Dataset], Finding]:
    """The variance of the others over that of some methods: far lower is less than half."""

    def check(data: xr.Dataset) -> Finding:
        texts, verdicts = [], []
        for method in methods:
            ours = final(data, method=method)
            texts.append(f"{method} {spread(ours):.1f} squared points")
            for name in ("SGD", f"Adam, {GAUSSIAN}", f"Adam, {UNIFORM}"):
                with np.errstate(divide="ignore", invalid="ignore"):
                    ratio = bootstrap(lambda a, b: spread(b) / spread(a), ours, final(data, method=name))
                texts.append(f"{name} {ratio.text()} times that")
                verdicts.append(
                    FAILS if above(ratio, 1.0) == FAILS else all_of(above(ratio, 1.0), above(ratio, 2.0))
                )
        return Finding("; ".join(texts), all_of(*verdicts))

    return check


def start_matters(data: xr.Dataset) -> Finding:
    """The difference of the means from the two starts: at most two points for AdLaLa, more for Adam."""
    gaps = {}
    for name in ("Adam", "AdLaLa"):
        points = student(final(data, method=f"{name}, {UNIFORM}") - final(data, method=f"{name}, {GAUSSIAN}"))
        gaps[name] = points if points.value >= 0 else -points
    text = "; ".join(f"{name} {points.text(100)} points" for name, points in gaps.items())
    verdict = all_of(above(gaps["Adam"], SAME), below(gaps["AdLaLa"], SAME))
    return Finding(f"{text} between the starts", verdict)


def draw(data: xr.Dataset, s: Settings) -> Figure:
    """Variance and mean over runs over the steps."""
    axes = panels(1, 2, height=0.55 * PAGE_WIDTH)
    for place, (name, values) in enumerate(by_method(data, "accuracy").items()):
        axes[0].plot(
            data["step"], (100 * values).var("chain", ddof=1), label=name, linewidth=1.3, **line_style(place)
        )
    plotting.curves(by_method(data, "accuracy"), ax=axes[1])
    label_axes(axes[0], "steps", "variance (squared points)")
    format_steps(axes[0].xaxis)
    add_legend(axes[0])
    without_key(axes[1])
    axes[1].set_ylabel("mean test accuracy")
    return whole(axes)


EXPERIMENT = Experiment(
    name="robustness",
    title="Robustness: the variance over 100 runs",
    settings={
        "methods": {
            "SGD": Partition(SGD(), 0.25),
            "Adam": Partition(Adam(), 0.005),
            "LOL": LOL(h=0.25, gamma=0.01, tau=1e-3),
            "AdLaLa": adlala(0.25, 0.5),
        },
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
    draw=draw,
    claims=(
        Claim(
            "The variance over runs of AdLaLa is far lower than that of SGD and Adam",
            far_lower(f"AdLaLa, {GAUSSIAN}", f"AdLaLa, {UNIFORM}"),
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
    notes=("20,000 steps: the paper does not say how many. The Gaussian start is N(0, 0.01²), biases, too."),
)
