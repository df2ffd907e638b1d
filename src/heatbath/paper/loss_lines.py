"""Compute the loss on the line from the start to the end of training: MNIST and spirals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr

from heatbath import plotting
from heatbath.analysis.landscape import barrier, line
from heatbath.datasets import Problem, mnist
from heatbath.diagnostics.statistics import student
from heatbath.methods import Adam
from heatbath.methods.partition import Partition
from heatbath.models.dense import MLP
from heatbath.paper.claims import (
    Claim,
    Finding,
    combine_verdicts,
    compare_with_range,
    judge_above,
    judge_below,
    judge_within,
)
from heatbath.paper.experiment import Experiment, ProgressCallback, ReportTable, Settings
from heatbath.paper.figures import draw_all_runs, traces_by_method
from heatbath.paper.side_by_side import (
    adlala,
    final_values,
    method_names,
    network_of,
    scores_by_axes,
    spirals_of,
    train_side_by_side,
    unstack_chains,
    with_settings,
)
from heatbath.plotting import style
from heatbath.plotting.style import Axes
from heatbath.runs.grid import Methods

MIN_BARRIER = 0.05  # fraction of the loss at the start below which a barrier doesn't count
SPIRAL_METHODS = {"AdLaLa": adlala(0.25, 0.5), "Adam": Partition(Adam(), 0.005)}


def train_and_cut(
    settings: Settings, progress: ProgressCallback, problem: Problem, network: MLP, methods: Methods
) -> xr.Dataset:
    """Train two methods from the same starts, and cut the test loss along lines from start to end.

    Parameters
    ----------
    settings : Settings
        Sizes and seed; `alphas` is the number of points on a line.
    progress : callable or None
        Called with the progress of the training.
    problem, network : Problem and MLP
        What to train.
    methods : mapping from name to Partition
        The two methods.

    Returns
    -------
    Dataset
        Final scores by method and run; `line`, the test loss (method, run, alpha); and `apart`, by run, the
        distance between the ends of the two methods in units of their mean distance to the start.
    """
    run = train_side_by_side(settings, progress, problem, methods, network, record=1)
    start = network.start(problem.inputs, problem.outputs, run.data["repeat"].values, settings.seed)
    alphas = np.linspace(0, 1, settings.alphas)
    draws = run.data["draw"].values
    loss = line(problem, network, start.astype(run.theta.dtype), run.theta, alphas, draw=draws)["loss"]

    first_end, second_end = unstack_chains(run, run.data["theta"]).values  # each (run, parameter)
    moved = unstack_chains(run, xr.DataArray(run.theta - start, dims=("chain", "parameter")))
    lengths = np.linalg.norm(moved.values, axis=-1)  # (method, run)
    apart = np.linalg.norm(first_end - second_end, axis=-1) / lengths.mean(axis=0)

    scores = xr.Dataset(scores_by_axes(run)).isel(record=-1, drop=True)
    return scores.assign(line=unstack_chains(run, loss), apart=("run", apart))


def barrier_heights(data: xr.Dataset, method: str, **labels: Any) -> Any:
    """Return the barriers of a method's runs as fractions of the loss at the start.

    `labels` select along other dimensions of the lines, such as the problem.
    """
    curves = data["line"].sel({"method": method, **labels})
    return barrier(curves)["height"].values / curves.isel(alpha=0).values


def judge_no_barrier(problem: str) -> Callable[[xr.Dataset], Finding]:
    """Return a check that neither method has a barrier on its line."""

    def check(data: xr.Dataset) -> Finding:
        """Judge whether the mean height of each method's barriers is below MIN_BARRIER."""
        heights = {m: student(barrier_heights(data, m, problem=problem)) for m in method_names(data)}
        text = "; ".join(f"{method} {height.percent()}" for method, height in heights.items())
        verdicts = [judge_below(height, MIN_BARRIER) for height in heights.values()]
        return Finding(f"height over the loss at the start: {text}", combine_verdicts(*verdicts))

    return check


def judge_distance(data: xr.Dataset) -> Finding:
    """Judge whether the ends are apart by more than a tenth of the way from the start."""
    apart = student(data["apart"].sel(problem="MNIST"))
    return Finding(f"{apart.text(digits=2)} of the way from the start", judge_above(apart, 0.1))


def judge_similar_loss(data: xr.Dataset) -> Finding:
    """Judge whether the test losses differ by less than a factor of 1.5."""
    losses = {m: final_values(data, "loss", problem="MNIST", method=m) for m in ("AdLaLa", "Adam")}
    ratio = student(losses["AdLaLa"] / losses["Adam"])
    text = " and ".join(f"{method} {student(loss).text(digits=3)}" for method, loss in losses.items())
    return Finding(f"{text}; ratio {ratio.text(digits=2)}", judge_within(ratio, 1.5))


def run_mnist(settings: Settings, progress: ProgressCallback) -> xr.Dataset:
    """Train on MNIST and on the spiral with one turn; return scores and lines by problem, method and run."""
    digits = train_and_cut(settings, progress, mnist(), network_of(settings), settings.methods)
    small = with_settings(settings, steps=settings.spiral_steps, batch=settings.spiral_batch)
    problem = spirals_of(settings, 1)
    spiral = train_and_cut(small, progress, problem, MLP((20,), init=settings.init), settings.spiral_methods)
    names = xr.DataArray(["MNIST", "1-turn spiral"], dims="problem", name="problem")
    return xr.concat([digits, spiral], dim=names)


def accuracy_table(data: xr.Dataset) -> list[ReportTable]:
    """Return the table of test accuracies of both methods on both problems."""
    methods = method_names(data)
    rows = []
    for problem in data["problem"].values:
        accuracies = [student(final_values(data, problem=problem, method=method)) for method in methods]
        rows.append((str(problem), *(accuracy.percent() for accuracy in accuracies)))
    return [ReportTable("Test accuracy at the end", ("problem", *methods), tuple(rows))]


def draw(data: xr.Dataset, settings: Settings) -> Axes:
    """Draw the loss on lines for each problem; for a single problem, draw the accuracies beside it."""
    has_problems = "problem" in data.dims
    problems = data["problem"].values if has_problems else [""]
    axes = style.panels(1, max(2, len(problems)), height=0.5 * style.PAGE_WIDTH)
    for ax, problem in zip(axes, problems, strict=False):
        results = data.sel(problem=problem) if has_problems else data
        plotting.line(traces_by_method(results, "line"), ax=ax)
        ax.set(ylabel="test loss", title=problem)
        ax.title.set_fontsize(style.SMALL_SIZE)
    if not has_problems:
        draw_all_runs(axes[1], {method: final_values(data, method=method) for method in method_names(data)})
    return axes[0]


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
    tables=accuracy_table,
    draw=draw,
    claims=(
        Claim("No barrier on MNIST", judge_no_barrier("MNIST"), "no evidence of a loss-barrier"),
        Claim(
            "No barrier on the 1-turn spiral",
            judge_no_barrier("1-turn spiral"),
            "no evidence of a loss-barrier",
        ),
        Claim("AdLaLa and Adam converge to different minima", judge_distance),
        Claim("Their final test loss is similar", judge_similar_loss, "similar"),
    ),
    notes=(
        "The paper gives no settings here. MNIST: batches of 128, 12,000 steps, and coefficients with "
        "which both methods pass 97 % test accuracy; the spiral: 20 units, 500 examples, 5 % batches, "
        "coefficients as for two turns. Torch's start."
    ),
)


def run_spiral(settings: Settings, progress: ProgressCallback) -> xr.Dataset:
    """Train on the spiral with two turns; return what `train_and_cut` returns."""
    problem = spirals_of(settings, 2)
    return train_and_cut(settings, progress, problem, network_of(settings), settings.methods)


def judge_barrier_frequency(data: xr.Dataset) -> Finding:
    """Judge whether more than half of the runs of each method have a barrier."""
    texts = []
    verdicts = []
    for method in method_names(data):
        heights = barrier_heights(data, method)
        share = student(heights > MIN_BARRIER)
        texts.append(f"{method} in {share.percent()} of the runs, mean height {100 * heights.mean():.1f} %")
        verdicts.append(judge_above(share, 0.5))
    return Finding("; ".join(texts) + " of the loss at the start", combine_verdicts(*verdicts))


def judge_higher_barrier(data: xr.Dataset) -> Finding:
    """Judge whether AdLaLa's barrier is higher than Adam's from the same start."""
    difference = student(barrier_heights(data, "AdLaLa") - barrier_heights(data, "Adam"))
    return Finding(f"higher by {difference.percent()} of the loss at the start", judge_above(difference))


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
        Claim(
            "There is typically a barrier between the start and the end", judge_barrier_frequency, "typically"
        ),
        Claim("It is higher towards AdLaLa's minimum", judge_higher_barrier),
        Claim(
            "AdLaLa's test accuracy",
            lambda data: compare_with_range(final_values(data, method="AdLaLa"), 0.98, 0.99),
            "98 to 99 %",
        ),
        Claim(
            "Adam's test accuracy",
            lambda data: compare_with_range(final_values(data, method="Adam"), 0.91, 0.94),
            "91 to 94 %",
        ),
    ),
    notes=(
        "20 starts, two in the paper, each with its own data. Start and coefficients are not given: "
        "torch's start, and the coefficients of the same network over 100 runs."
    ),
)
