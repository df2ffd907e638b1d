"""The loss on the line from the start to where a method ended: MNIST and spirals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from heatbath import plotting
from heatbath.analysis.landscape import barrier, line
from heatbath.datasets import Problem, mnist, spirals
from heatbath.diagnostics.statistics import student
from heatbath.methods import Adam
from heatbath.methods.partition import Partition
from heatbath.models.dense import MLP
from heatbath.paper.claims import Claim, Finding, above, all_of, below, in_range, within
from heatbath.paper.experiment import Experiment, ReportTable, Settings, Tell
from heatbath.paper.figures import box, by_method, whole
from heatbath.paper.side_by_side import adlala, by_axes, final, method_names, scores, side_by_side
from heatbath.plotting.style import PAGE_WIDTH, SMALL_SIZE, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NONE = 0.05  # a barrier below this share of the loss at the start is none
SPIRAL_METHODS = {"AdLaLa": adlala(0.25, 0.5), "Adam": Partition(Adam(), 0.005)}


def curves(
    s: Settings,
    tell: Tell,
    problem: Problem,
    network: MLP,
    methods: Mapping[str, Partition],
    **options: Any,
) -> xr.Dataset:
    """Train from the same starts, and the test loss on the lines from there to the ends."""
    run = side_by_side(s, tell, problem, methods, network, record=1, **options)
    start = network.start(problem.inputs, problem.outputs, run.data["repeat"].values, s.seed)
    alphas = np.linspace(0, 1, s.alphas)
    draws = run.data["draw"].values
    loss = line(problem, network, start.astype(run.theta.dtype), run.theta, alphas, draw=draws)["loss"]
    theta = by_axes(run, run.data["theta"])
    moved = by_axes(run, xr.DataArray(run.theta - start, dims=("chain", "parameter")))
    first, second = theta.values
    lengths = np.linalg.norm(moved.values, axis=-1)
    return xr.Dataset(
        {
            name: values.isel(record=-1, drop=True, missing_dims="ignore")
            for name, values in scores(run).items()
        }
        | {
            "line": by_axes(run, loss),
            "apart": ("run", np.linalg.norm(first - second, axis=-1) / lengths.mean(axis=0)),
        }
    )


def heights(data: xr.Dataset, method: str, **labels: Any) -> Any:
    """The barriers of a method's runs, as shares of the loss at the start."""
    curves = data["line"].sel({"method": method, **labels})
    return barrier(curves)["height"].values / curves.isel(alpha=0).values


def no_barrier(problem: str) -> Callable[[xr.Dataset], Finding]:
    """Whether both methods go downhill all the way."""

    def check(data: xr.Dataset) -> Finding:
        shares = {m: student(heights(data, m, problem=problem)) for m in method_names(data)}
        text = "; ".join(f"{m} {height.percent()}" for m, height in shares.items())
        return Finding(
            f"height over the loss at the start: {text}", all_of(*(below(h, NONE) for h in shares.values()))
        )

    return check


def other_minima(data: xr.Dataset) -> Finding:
    """How far the ends are apart, in units of the way from the start."""
    apart = student(data["apart"].sel(problem="MNIST"))
    return Finding(f"{apart.text(digits=2)} of the way from the start", above(apart, 0.1))


def like_loss(data: xr.Dataset) -> Finding:
    """The ratio of the test losses."""
    ours = [final(data, "loss", problem="MNIST", method=m) for m in ("AdLaLa", "Adam")]
    ratio = student(ours[0] / ours[1])
    losses = " and ".join(
        f"{m} {student(loss).text(digits=3)}" for m, loss in zip(("AdLaLa", "Adam"), ours, strict=True)
    )
    return Finding(f"{losses}; ratio {ratio.text(digits=2)}", within(ratio, 1.5))


def run_mnist(s: Settings, tell: Tell) -> xr.Dataset:
    """MNIST and the spiral with one turn."""
    digits = curves(s, tell, mnist(), MLP((s.units,), init=s.init), s.methods)
    small = Settings(**vars(s) | {"steps": s.spiral_steps, "batch": s.spiral_batch})
    problem = spirals(1, n_train=s.points, n_test=s.points, draws=s.runs)
    spiral = curves(small, tell, problem, MLP((20,), init=s.init), s.spiral_methods)
    return xr.concat(
        [digits, spiral], dim=xr.DataArray(["MNIST", "1-turn spiral"], dims="problem", name="problem")
    )


def accuracies(data: xr.Dataset) -> list[ReportTable]:
    """The test accuracy of both methods on both problems."""
    methods = method_names(data)
    rows = tuple(
        (str(name), *(student(final(data, problem=name, method=m)).percent() for m in methods))
        for name in data["problem"].values
    )
    return [ReportTable("Test accuracy at the end", ("problem", *methods), rows)]


def draw(data: xr.Dataset, s: Settings) -> Figure:
    """The loss on lines, a picture for each problem; of a single one, the accuracies beside it."""
    problems = data["problem"].values if "problem" in data.dims else [None]
    axes = panels(1, max(2, len(problems)), height=0.5 * PAGE_WIDTH)
    for ax, problem in zip(axes, problems, strict=False):
        chosen = data if problem is None else data.sel(problem=problem)
        plotting.line(by_method(chosen, "line"), ax=ax)
        ax.set(ylabel="test loss", title="" if problem is None else problem)
        ax.title.set_fontsize(SMALL_SIZE)
    if problems[0] is None:
        box(axes[1], {m: final(data, method=m) for m in method_names(data)})
    return whole(axes)


LINE_MNIST = Experiment(
    name="line-mnist",
    title="The loss on a line: MNIST and the 1-turn spiral",
    settings={
        "units": 100,
        "steps": 12_000,
        "batch": 128,
        "runs": 4,
        "seed": 0,
        "init": "torch",
        "alphas": 51,
        "methods": {"AdLaLa": adlala(0.1, 1.0, tau=1e-6, sigma=1e-3), "Adam": Partition(Adam(), 0.001)},
        "spiral_methods": SPIRAL_METHODS,
        "spiral_steps": 20_000,
        "spiral_batch": 25,
        "points": 500,
    },
    quick={"units": 10, "steps": 30, "runs": 2, "alphas": 5, "spiral_steps": 200, "points": 100},
    run=run_mnist,
    tables=accuracies,
    draw=draw,
    claims=(
        Claim("No barrier on MNIST", no_barrier("MNIST"), "no evidence of a loss-barrier"),
        Claim(
            "No barrier on the 1-turn spiral", no_barrier("1-turn spiral"), "no evidence of a loss-barrier"
        ),
        Claim("AdLaLa and Adam converge to different minima", other_minima),
        Claim("Their final test loss is similar", like_loss, "similar"),
    ),
    notes=(
        "The paper gives no settings here. MNIST: batches of 128, 12,000 steps, and coefficients with "
        "which both methods pass 97 % test accuracy; the spiral: 20 units, 500 examples, 5 % batches, "
        "coefficients as for two turns. Torch's start."
    ),
)


def run_spiral(s: Settings, tell: Tell) -> xr.Dataset:
    """The spiral with two turns."""
    problem = spirals(2, n_train=s.points, n_test=s.points, draws=s.runs)
    return curves(s, tell, problem, MLP((s.units,), init=s.init), s.methods)


def a_barrier(data: xr.Dataset) -> Finding:
    """In how many runs of each method there is one; typically: in more than half."""
    texts, verdicts = [], []
    for method in method_names(data):
        each = heights(data, method)
        share = student(each > NONE)
        texts.append(f"{method} in {share.percent()} of the runs, mean height {100 * each.mean():.1f} %")
        verdicts.append(above(share, 0.5))
    return Finding("; ".join(texts) + " of the loss at the start", all_of(*verdicts))


def higher_for_adlala(data: xr.Dataset) -> Finding:
    """The difference of the barriers from the same start."""
    difference = student(heights(data, "AdLaLa") - heights(data, "Adam"))
    return Finding(f"higher by {difference.percent()} of the loss at the start", above(difference))


LINE_SPIRAL = Experiment(
    name="line-spiral",
    title="The loss on a line: the 2-turn spiral",
    settings={
        "methods": SPIRAL_METHODS,
        "units": 20,
        "points": 500,
        "steps": 20_000,
        "batch": 25,
        "runs": 20,
        "seed": 0,
        "init": "torch",
        "alphas": 101,
    },
    quick={"points": 100, "steps": 300, "runs": 2, "alphas": 11},
    run=run_spiral,
    draw=draw,
    claims=(
        Claim("There is typically a barrier between the start and the end", a_barrier, "typically"),
        Claim("It is higher towards AdLaLa's minimum", higher_for_adlala),
        Claim(
            "AdLaLa's test accuracy",
            lambda data: in_range(final(data, method="AdLaLa"), 0.98, 0.99),
            "98 to 99 %",
        ),
        Claim(
            "Adam's test accuracy",
            lambda data: in_range(final(data, method="Adam"), 0.91, 0.94),
            "91 to 94 %",
        ),
    ),
    notes=(
        "20 starts, two in the paper, each with its own data. Start and coefficients are not given: "
        "torch's start, and the coefficients of the same network over 100 runs."
    ),
)
