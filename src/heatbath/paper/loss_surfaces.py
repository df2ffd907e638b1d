"""Compute the test loss on the surface through a start and two minima: MNIST and the 2-turn spiral."""

from __future__ import annotations

import numpy as np
import xarray as xr

from heatbath import plotting
from heatbath.analysis.landscape import saddle, surface
from heatbath.datasets import Problem, mnist, spirals
from heatbath.diagnostics.statistics import student
from heatbath.methods.partition import Partition
from heatbath.models.dense import MLP
from heatbath.paper.claims import Claim, Finding, judge_above, judge_below
from heatbath.paper.experiment import Experiment, ProgressCallback, Settings
from heatbath.paper.side_by_side import adlala, train_side_by_side, with_settings
from heatbath.plotting import style
from heatbath.plotting.style import Axes

MIN_RISE = 0.05  # fraction of the loss at the start below which a rise doesn't count


def train_and_cut(
    settings: Settings, progress: ProgressCallback, problem: Problem, network: MLP, method: Partition
) -> xr.DataArray:
    """Train two runs from every start; return the test loss on the surfaces through starts and ends.

    Parameters
    ----------
    settings : Settings
        Sizes and seed; `starts`, the number of starts; `grid`, the number of points on a side of a surface.
    progress : callable or None
        Called with the progress of the training.
    problem, network, method : Problem, MLP and Partition
        What to train, and how.

    Returns
    -------
    DataArray (run, alpha, beta)
        Losses: at α = 0 of the start, at (1, 1) and (1, 0) of the ends of the two runs.
    """
    theta_start = network.start(problem.inputs, problem.outputs, range(settings.starts), settings.seed)
    twice = with_settings(settings, runs=2 * settings.starts)
    starts = np.repeat(theta_start, 2, axis=0)
    run = train_side_by_side(twice, progress, problem, method, network, record=1, start=starts)
    grid = np.linspace(0, 1, settings.grid)
    theta_start = theta_start.astype(run.theta.dtype)
    loss = surface(problem, network, theta_start, run.theta[::2], run.theta[1::2], grid, grid)["loss"]
    return loss.rename(chain="run")


def run(settings: Settings, progress: ProgressCallback) -> xr.Dataset:
    """Train on MNIST and on the 2-turn spiral; return the losses on their surfaces, `mnist` and `spiral`."""
    mnist_sizes = {name: getattr(settings, f"mnist_{name}") for name in ("steps", "batch", "starts")}
    mnist_settings = with_settings(settings, **mnist_sizes)
    digits = train_and_cut(mnist_settings, progress, mnist(), MLP((settings.units,)), settings.mnist)
    # One data set for all starts, because two chains share each start
    problem = spirals(2, n_train=settings.points, n_test=settings.points)
    spiral = train_and_cut(settings, progress, problem, MLP((20,)), settings.spiral)
    return xr.Dataset({"mnist": digits.rename(run="mnist_run"), "spiral": spiral})


def judge_monotone(data: xr.Dataset) -> Finding:
    """Judge whether the loss on MNIST rises by less than 5 % on all rays from the start."""
    rays = data["mnist"].transpose("mnist_run", "beta", "alpha").values
    lowest = np.minimum.accumulate(rays, axis=-1)
    rise = student(((rays - lowest).max(axis=(1, 2))) / rays[:, 0, 0])
    return Finding(f"largest rise {rise.percent()} of the loss at the start", judge_below(rise, MIN_RISE))


def judge_saddles(data: xr.Dataset) -> Finding:
    """Judge whether the lowest pass is above both minima by more than 5 % of the loss at the start."""
    heights = saddle(data["spiral"])["height"].values
    start_losses = data["spiral"].isel(alpha=0, beta=0).values
    share = student(heights / start_losses)
    frequency = float(np.mean(heights > MIN_RISE * start_losses))
    text = f"in {100 * frequency:.0f} % of the planes; height {share.percent()} of the loss at the start"
    return Finding(text, judge_above(share, MIN_RISE))


def draw(data: xr.Dataset, settings: Settings) -> Axes:
    """Draw the loss on a surface for MNIST and for the spiral."""
    axes = style.panels(1, 2, height=0.46 * style.PAGE_WIDTH)
    ends = {r"start ($\alpha = 0$)": (0.0, 0.5), r"$\theta_{f,1}$": (1.0, 1.0), r"$\theta_{f,2}$": (1.0, 0.0)}
    for ax, name, title in zip(axes, ("mnist", "spiral"), ("MNIST", "2-turn spiral"), strict=True):
        dimension = "mnist_run" if name == "mnist" else "run"
        plotting.surface(data[name].isel({dimension: 0}).rename("test loss"), ends, ax=ax)
        ax.set_title(title, fontsize=style.SMALL_SIZE)
    return axes[0]


EXPERIMENT = Experiment(
    name="surface",
    title="The test loss on a surface through two minima",
    settings={
        "units": 100,
        "mnist_steps": 6_000,
        "mnist_batch": 128,
        "mnist_starts": 2,
        "steps": 20_000,
        "batch": 25,
        "points": 500,
        "starts": 12,
        "grid": 41,
        "seed": 0,
        "mnist": adlala(0.1, 1.0, tau=1e-6, sigma=1e-3),
        "spiral": adlala(0.25, 0.5),
    },
    quick={
        "units": 10,
        "mnist_steps": 20,
        "mnist_starts": 2,
        "steps": 200,
        "points": 100,
        "starts": 2,
        "grid": 5,
    },
    run=run,
    draw=draw,
    claims=(
        Claim("MNIST: a monotonic decline from the start to the ends", judge_monotone, "consistent"),
        Claim("2-turn spiral: saddle points in the plane", judge_saddles, "frequently"),
    ),
    notes=(
        "The two minima are the ends of two runs of AdLaLa from one start with different noise and "
        "mini-batches; the paper gives neither method nor settings. MNIST as for the line, 6,000 steps, "
        "two starts; the spiral as for the line, twelve starts, one data set."
    ),
)
