"""The test loss on the surface through a start and two minima: MNIST and the 2-turn spiral."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from heatbath import plotting
from heatbath.analysis.landscape import saddle, surface
from heatbath.datasets import Problem, mnist, spirals
from heatbath.diagnostics.statistics import student
from heatbath.methods.partition import Partition
from heatbath.models.dense import MLP
from heatbath.paper.claims import Claim, Finding, above, below
from heatbath.paper.experiment import Experiment, Settings, Tell
from heatbath.paper.figures import whole
from heatbath.paper.side_by_side import adlala, complete
from heatbath.plotting.style import PAGE_WIDTH, SMALL_SIZE, panels
from heatbath.training.train import train

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NONE = 0.05  # a rise below this share of the loss at the start is none


def planes(
    s: Settings,
    tell: Tell,
    problem: Problem,
    network: MLP,
    method: Partition,
    steps: int,
    batch: int,
    starts: int,
) -> xr.DataArray:
    """For every start two runs of the method from there, and the loss on the surface that they span."""
    begin = network.start(problem.inputs, problem.outputs, range(starts), s.seed)
    run = complete(
        train(
            problem,
            network,
            method,
            steps=steps,
            batch=batch,
            chains=2 * starts,
            record=1,
            seed=s.seed,
            progress=tell,
            start=np.repeat(begin, 2, axis=0),
        )
    )
    grid = np.linspace(0, 1, s.grid)
    begin = begin.astype(run.theta.dtype)
    loss = surface(problem, network, begin, run.theta[::2], run.theta[1::2], grid, grid)["loss"]
    return loss.rename(chain="run")


def run(s: Settings, tell: Tell) -> xr.Dataset:
    """Both problems."""
    digits = planes(s, tell, mnist(), MLP((s.units,)), s.mnist, s.mnist_steps, s.mnist_batch, s.mnist_starts)
    problem = spirals(2, n_train=s.points, n_test=s.points)  # one for all starts, as two chains share each
    spiral = planes(s, tell, problem, MLP((20,)), s.spiral, s.steps, s.batch, s.starts)
    return xr.Dataset({"mnist": digits.rename(run="mnist_run"), "spiral": spiral})


def monotone(data: xr.Dataset) -> Finding:
    """How far the loss ever rises on a ray from the start, on MNIST."""
    rays = data["mnist"].transpose("mnist_run", "beta", "alpha").values
    lowest = np.minimum.accumulate(rays, axis=-1)
    rise = student(((rays - lowest).max(axis=(1, 2))) / rays[:, 0, 0])
    return Finding(f"largest rise {rise.percent()} of the loss at the start", below(rise, NONE))


def saddles(data: xr.Dataset) -> Finding:
    """The lowest pass between the two minima in the plane, above the higher of them."""
    passes = saddle(data["spiral"])["height"].values
    share = student(passes / data["spiral"].isel(alpha=0, beta=0).values)
    many = float(np.mean(passes > NONE * data["spiral"].isel(alpha=0, beta=0).values))
    text = f"in {100 * many:.0f} % of the planes; height {share.percent()} of the loss at the start"
    return Finding(text, above(share, NONE))


def draw(data: xr.Dataset, s: Settings) -> Figure:
    """The loss on a surface, for MNIST and for the spiral."""
    axes = panels(1, 2, height=0.46 * PAGE_WIDTH)
    ends = {r"start ($\alpha = 0$)": (0.0, 0.5), r"$\theta_{f,1}$": (1.0, 1.0), r"$\theta_{f,2}$": (1.0, 0.0)}
    for ax, name, title in zip(axes, ("mnist", "spiral"), ("MNIST", "2-turn spiral"), strict=True):
        dimension = "mnist_run" if name == "mnist" else "run"
        plotting.surface(data[name].isel({dimension: 0}).rename("test loss"), ends, ax=ax)
        ax.set_title(title, fontsize=SMALL_SIZE)
    return whole(axes)


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
        Claim("MNIST: a monotonic decline from the start to the ends", monotone, "consistent"),
        Claim("2-turn spiral: saddle points in the plane", saddles, "frequently"),
    ),
    notes=(
        "Two minima are two runs of AdLaLa from one start with other noise and mini-batches; the paper "
        "does not say which method, nor gives settings. MNIST as for the line, 6,000 steps, two starts; "
        "the spiral as for the line, twelve starts, one data set."
    ),
)
