"""AdLaLa and LOL against SGD, SGLD and Adam: the 4-turn spiral and trigonometric data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from heatbath.datasets import spirals, trigonometric
from heatbath.diagnostics.statistics import bootstrap, student
from heatbath.methods import SGLD, Adam
from heatbath.methods.partition import Partition
from heatbath.methods.presets import LOL
from heatbath.models.dense import MLP
from heatbath.paper.claims import Claim, Finding, above, agrees, all_of, below, higher, none_fails
from heatbath.paper.experiment import Experiment, Settings, Tell
from heatbath.paper.figures import curves, means, whole
from heatbath.paper.interpretations import readings, readings_table
from heatbath.paper.side_by_side import Array, adlala, final, method_names, scores, side_by_side
from heatbath.plotting.style import PAGE_WIDTH, add_legend, format_percent, label_axes, line_style, panels
from heatbath.runs.run import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The 4-turn spiral, the others tuned


def run_tuned(s: Settings, tell: Tell) -> xr.Dataset:
    """AdLaLa at its one setting, the others at all of theirs."""
    problem = spirals(4, n_train=s.points, n_test=s.points, draws=s.runs)
    methods = {"AdLaLa": s.adlala}
    methods |= {
        f"SGLD σ={sigma:g} h={h:g}": Partition(SGLD(sigma), h) for sigma in s.sigmas for h in s.stepsizes
    }
    methods |= {f"Adam h={h:g}": Partition(Adam(), h) for h in s.adam_stepsizes}
    run = side_by_side(s, tell, problem, methods, MLP((s.units,), init=s.init), record=s.records)
    return xr.Dataset(scores(run))


def best_of(data: xr.Dataset, kind: str) -> str:
    """The setting of a kind of method that has the highest mean accuracy."""
    names = [name for name in method_names(data) if name.startswith(kind)]
    return max(names, key=lambda name: final(data, method=name).mean())


def beats(kind: str) -> Any:
    """Whether AdLaLa beats the best setting of a kind of method."""

    def check(data: xr.Dataset) -> Finding:
        best = best_of(data, kind)
        against = higher(final(data, method="AdLaLa"), final(data, method=best))
        return Finding(f"AdLaLa against the best, {best}: {against.ours}", against.verdict)

    return check


def draw_tuned(data: xr.Dataset, s: Settings) -> Figure:
    """The accuracy of every setting of the others over its h, and AdLaLa's as a line."""
    axes = panels(1, 2, height=0.5 * PAGE_WIDTH)
    names = method_names(data)
    adlala = student(final(data, method="AdLaLa"))
    sigmas = dict.fromkeys(name.split()[1] for name in names if name.startswith("SGLD"))
    for ax in axes:
        ax.set_xscale("log")
    for place, sigma in enumerate(sigmas):
        settings = [name for name in names if name.startswith(f"SGLD {sigma} ")]
        draw_points(axes[0], data, settings, sigma.replace("=", " = "), place)
    draw_points(axes[1], data, [name for name in names if name.startswith("Adam")], "Adam", 0)
    for ax in axes:
        ax.axhspan(adlala.low, adlala.high, color="0.85", zorder=0)
        ax.axhline(adlala.value, color="black", linestyle=":", label="AdLaLa")
        label_axes(ax, "stepsize $h$", "test accuracy")
        format_percent(ax.yaxis)
        add_legend(ax)
    return whole(axes)


def draw_points(ax: Axes, data: xr.Dataset, names: list[str], label: str, place: int) -> None:
    """Means with their intervals over the h in the names of settings."""
    h = [float(name.rpartition("h=")[2]) for name in names]
    ax.set_xticks(h, [f"{value:g}" for value in h], minor=False)
    ax.set_xticks([], minor=True)
    runs = [final(data, method=name) for name in names]
    means(ax, h, runs, fmt="o", ms=3.5, label=label, linewidth=1.1, **line_style(place))


TUNED = Experiment(
    name="compare-4turn",
    title="The 4-turn spiral: AdLaLa fixed, the others tuned",
    settings={
        "units": 100,
        "points": 1000,
        "batch": 20,
        "steps": 20_000,
        "runs": 10,
        "seed": 0,
        "init": "torch",
        "records": 20,
        "adlala": adlala(0.25, 0.1, epsilon=0.05),
        "sigmas": (0.0, 0.005, 0.01, 0.05, 0.1),
        "stepsizes": (0.05, 0.1, 0.2, 0.4, 0.8),
        "adam_stepsizes": (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05),
    },
    quick={
        "units": 20,
        "points": 200,
        "batch": 4,
        "steps": 200,
        "runs": 2,
        "records": 4,
        "sigmas": (0.0, 0.1),
        "stepsizes": (0.1, 0.4),
        "adam_stepsizes": (0.001, 0.01),
    },
    run=run_tuned,
    draw=draw_tuned,
    claims=(
        Claim("No setting of SGD or SGLD beats AdLaLa", beats("SGLD"), "AdLaLa consistently outperforms"),
        Claim("No setting of Adam beats AdLaLa", beats("Adam"), "AdLaLa consistently outperforms"),
    ),
    notes=(
        "The paper gives neither steps, ranges of h, start nor number of runs: 20,000 steps, h until it "
        "got worse, torch's start, ten runs. Accuracy after so many steps stands for its rate of "
        "convergence."
    ),
)

# Trigonometric data


def run_trigonometric(s: Settings, tell: Tell) -> xr.Dataset:
    """All methods, with the curves."""
    problem = trigonometric(s.a, n_train=s.points, n_test=s.points, draws=s.runs)
    run = side_by_side(s, tell, problem, s.methods, MLP((s.units,), init=s.init), record=s.records)
    results = scores(run)
    if s.reading_runs:
        results["readings"] = readings(variants(s, tell), HARD_PAPER)
    return xr.Dataset(results)


def steps_to(data: xr.Dataset, method: str, accuracy: float = 0.9) -> Array:
    """The step of each run's first record at this accuracy, infinity if there is none."""
    values = data["accuracy"].sel({"method": method}).values
    reached = values >= accuracy
    steps = np.broadcast_to(data["step"].values.astype(float), values.shape)
    return np.where(reached.any(axis=1), steps[np.arange(len(values)), reached.argmax(axis=1)], np.inf)


def faster(method: str, at_least: float) -> Any:
    """How many times as many steps Adam takes to 90 % (medians over runs)."""

    def check(data: xr.Dataset) -> Finding:
        ours, adam = steps_to(data, method), steps_to(data, "Adam")
        with np.errstate(invalid="ignore"):
            ratio = bootstrap(lambda a, b: float(np.median(b) / np.median(a)), ours, adam)
        text = f"median {np.median(ours):,.0f} steps, Adam {np.median(adam):,.0f}: {ratio.text()} times as "
        text += f"many; {np.isinf(ours).sum()} and {np.isinf(adam).sum()} of {len(ours)} runs never arrive"
        return Finding(text, all_of(above(ratio, 1.0), above(ratio, at_least)))

    return check


def best_stepsize(data: xr.Dataset) -> Finding:
    """Adam's final accuracy at the paper's best h against half and twice that."""
    best = final(data, method="Adam")
    others = {h: final(data, method=f"Adam, h = {h}") for h in ("0.005", "0.02")}
    text = f"{student(best).percent()} at h = 0.01, " + ", ".join(
        f"{student(x).percent()} at {h}" for h, x in others.items()
    )
    return Finding(text, none_fails(*(above(student(best - x)) for x in others.values())))


EASY = Experiment(
    name="compare-trig-6",
    title="Trigonometric data, a = 6",
    settings={
        "a": 6,
        "units": 100,
        "points": 1000,
        "batch": 50,
        "steps": 40_000,
        "runs": 20,
        "seed": 0,
        "init": "torch",
        "records": 400,
        "reading_runs": 0,
        "methods": {
            "AdLaLa": adlala(0.2, 10.0, sigma=0.001),
            "LOL": LOL(h=0.1, gamma=0.01, tau=1e-3),
            "Adam": Partition(Adam(), 0.01),
            "Adam, h = 0.005": Partition(Adam(), 0.005),
            "Adam, h = 0.02": Partition(Adam(), 0.02),
        },
    },
    quick={"units": 20, "points": 200, "batch": 10, "steps": 400, "runs": 2, "records": 10},
    run=run_trigonometric,
    draw=lambda data, s: curves(data),
    claims=(
        Claim(
            "Adam takes almost three times as many steps as AdLaLa to 90 % test accuracy",
            faster("AdLaLa", 2.0),
            "almost 3 times",
        ),
        Claim("LOL is faster than Adam, too", faster("LOL", 1.0), "outperforms"),
        Claim("Adam's best stepsize is 0.01", best_stepsize, "0.01"),
    ),
    notes=(
        "Adam at the paper's best h, 0.01, and at half and twice that. Torch's start, 40,000 steps and 20 "
        "runs: not given."
    ),
)

HARD_PAPER = {"Adam": 0.73}


def hard_methods(**reading: Any) -> dict[str, Partition]:
    """The methods of the harder problem; Adam's h is the one that the paper calls best on the easier."""
    return {
        "AdLaLa": adlala(0.1, 5.0, sigma=0.001, **reading),
        "LOL": LOL(h=0.1, gamma=0.01, tau=1e-3),
        "Adam": Partition(Adam(), 0.01),
        "SGLD": Partition(SGLD(0.01), 0.1),
    }


def variants(s: Settings, tell: Tell) -> dict[str, Any]:
    """Readings of what the paper leaves open; Adam, whose value it gives, does not look at the thermostat."""

    def reading(init: Any = s.init, shuffled: bool = False, share: float = 1.0, h: float = 0.01) -> Any:
        chosen = Settings(**vars(s) | {"runs": s.reading_runs, "batch": max(1, int(share * s.batch))})
        problem = trigonometric(s.a, n_train=s.points, n_test=s.points, draws=s.reading_runs)
        adam = {"Adam": Partition(Adam(), h)}
        network = MLP((s.units,), init=init)

        def train() -> Run:
            return side_by_side(chosen, tell, problem, adam, network, record=1, shuffled=shuffled)

        return train

    return {
        "as run here": reading(),
        "N(0, 0.01²) at the start": reading(init="gaussian"),
        "shuffled epochs": reading(shuffled=True),
        "2 % batches": reading(share=0.4),
        "Adam at h = 0.005": reading(h=0.005),
    }


def stalls(data: xr.Dataset) -> Finding:
    """What Adam still gains after 40 % of the steps."""
    values = data["accuracy"].sel({"method": "Adam"})
    early = values.isel(record=np.searchsorted(data["step"].values, 0.4 * data["step"].values[-1]))
    gain = student(values.isel(record=-1) - early)
    return Finding(f"{gain.text(100)} points gained after", below(gain, 0.01))


def passes(method: str) -> Any:
    """Whether a method ends above Adam."""
    return lambda data: higher(final(data, method=method), final(data, method="Adam"))


def no_match(data: xr.Dataset) -> Finding:
    """SGLD at the end against the others."""
    sgld = final(data, method="SGLD")
    gaps = {name: student(final(data, method=name) - sgld) for name in ("Adam", "LOL", "AdLaLa")}
    text = ", ".join(f"{name} {points.text(100)} points above" for name, points in gaps.items())
    return Finding(f"{student(sgld).percent()}; {text}", all_of(*map(above, gaps.values())))


HARD = Experiment(
    name="compare-trig-10",
    title="Trigonometric data, a = 10",
    settings={
        "a": 10,
        "units": 100,
        "points": 1000,
        "batch": 50,
        "steps": 100_000,
        "runs": 20,
        "seed": 0,
        "init": "torch",
        "records": 100,
        "reading_runs": 10,
        "methods": hard_methods(),
    },
    quick={
        "units": 20,
        "points": 200,
        "batch": 10,
        "steps": 400,
        "runs": 2,
        "records": 10,
        "reading_runs": 2,
    },
    run=run_trigonometric,
    draw=lambda data, s: curves(data),
    claims=(
        Claim(
            "Adam's maximum test accuracy in 100,000 steps",
            lambda data: agrees(data["accuracy"].sel({"method": "Adam"}).max("record"), 0.73, False),
            "around 73 %",
        ),
        Claim("Adam's progress halts after 40,000 steps", stalls, "halts completely"),
        Claim("LOL passes Adam", passes("LOL")),
        Claim("AdLaLa passes Adam", passes("AdLaLa")),
        Claim("SGLD cannot compete with Adam, LOL and AdLaLa", no_match, "not able to compete at all"),
    ),
    tables=lambda data: [readings_table(data, HARD_PAPER)] if "readings" in data else [],
    notes=(
        "Adam's h, the start and the batches are not given: 0.01, which the paper calls best on the "
        "easier problem, torch's start, 5 %."
    ),
)
