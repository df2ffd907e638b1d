"""Distributions of weights and biases: over time on two and four turns, and over 100 runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import xarray as xr

from heatbath.datasets import spirals
from heatbath.diagnostics.statistics import bootstrap, student
from heatbath.methods import SGD, SGLD, Adam
from heatbath.methods.partition import Partition
from heatbath.methods.presets import LOL
from heatbath.models.dense import MLP
from heatbath.paper.claims import FAILS, HOLDS, IN_PART, Claim, Finding, above, agrees, all_of, below
from heatbath.paper.experiment import Experiment, Settings, Tell
from heatbath.paper.figures import box, whole
from heatbath.paper.interpretations import readings, readings_table
from heatbath.paper.side_by_side import Array, adlala, by_axes, final, method_names, scores, side_by_side
from heatbath.plotting.style import (
    PAGE_WIDTH,
    SMALL_SIZE,
    add_legend,
    label_axes,
    line_style,
    panels,
    set_log_scale,
)
from heatbath.runs.run import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Init: TypeAlias = Literal["torch", "gaussian", "zeros"]
EXCITED = 0.05  # five standard deviations of the start N(0, 0.01²)
NEAR_ZERO = 0.05
FINE, WIDE = np.linspace(-4, 4, 161), np.linspace(-10, 10, 81)  # bins of the distributions
SMALL_START = (
    "Starts are N(0, 0.01²), one of the two that the paper names: with torch's, no weight is near zero."
)


def over_time_methods(gamma: float, **reading: Any) -> dict[str, Partition]:
    """The four methods of the figures over time; `reading` are options of AdLaLa's adaptive part."""
    return {
        "SGD": Partition(SGD(), 0.2),
        "Adam": Partition(Adam(), 0.005),
        "SGLD": Partition(SGLD(0.01), 0.1),
        "AdLaLa": adlala(0.25, gamma, **reading),
    }


def distributions(run: Run, units: int, bins: Array) -> xr.DataArray:
    """The share of hidden weights and biases in each bin, all runs together, by method and record."""
    weights = by_axes(run, run.weights())
    counts = [
        [
            [np.histogram(weights.values[m, :, r, span], bins)[0] for r in range(weights.sizes["record"])]
            for span in (slice(0, 2 * units), slice(2 * units, 3 * units))
        ]
        for m in range(weights.sizes["method"])
    ]
    sizes = np.array([2 * units, units])[:, None, None] * weights.sizes["run"]
    return xr.DataArray(
        np.array(counts) / sizes,
        dims=("method", "kind", "record", "bin"),
        coords={"kind": ["weights", "biases"], "bin": (bins[1:] + bins[:-1]) / 2},
    )


def share(run: Run, units: int, test: Any) -> xr.DataArray:
    """The share of hidden weights and biases of which something is true, by method, run and record."""
    hidden = by_axes(run, run.weights()).isel(parameter=slice(0, 3 * units))
    shares: xr.DataArray = test(hidden).mean("parameter")
    return shares


def variants(
    s: Settings, tell: Tell, make: Callable[..., dict[str, Partition]]
) -> dict[str, Callable[[], Run]]:
    """The methods that `make` makes, under each reading of what the paper leaves open."""

    def reading(
        p: float = 0.5,
        init: Init = s.init,
        shuffled: bool = False,
        share: int = 1,
        kinds: Any = None,
        **options: Any,
    ) -> Callable[[], Run]:
        chosen = Settings(**vars(s) | {"runs": s.reading_runs, "batch": share * s.batch})
        problem = spirals(s.turns, n_train=s.points, n_test=s.points, p=p, draws=s.reading_runs)
        network = MLP((s.units,), init=init)
        return lambda: side_by_side(
            chosen, tell, problem, kinds or make(**options), network, record=1, shuffled=shuffled
        )

    louder = make() | {"SGLD": Partition(SGLD(s.sgld / np.sqrt(0.1)), 0.1)}
    return {
        "as run here": reading(),
        "torch's start": reading(init="torch"),
        "shuffled epochs": reading(shuffled=True),
        "batches twice as large": reading(share=2),
        "ξ per tensor": reading(thermostat="tensor"),
        "C with ε": reading(friction="sde"),
        "mean of p² in E": reading(kinetic="mean"),
        "p = 1": reading(p=1.0),
        "SGLD adds σR, not σ√h R": reading(kinds=louder),
    }


def run_over_time(s: Settings, tell: Tell) -> xr.Dataset:
    """The four methods with records at the paper's steps."""
    problem = spirals(s.turns, n_train=s.points, n_test=s.points, draws=s.runs)
    make = partial(over_time_methods, s.gamma)
    network = MLP((s.units,), init=s.init)
    run = side_by_side(s, tell, problem, make(), network, record=[0, *s.at], weights=True)
    results = scores(run) | {
        "histogram": distributions(run, s.units, FINE),
        "excited": share(run, s.units, lambda w: abs(w) > EXCITED),
    }
    results["readings"] = readings(variants(s, tell, make), PAPER[s.turns])
    return xr.Dataset(results)


PAPER = {
    2: {"SGD": 0.96, "Adam": 0.99, "SGLD": 0.74, "AdLaLa": 0.99},
    4: {"SGD": 0.58, "Adam": 0.67, "SGLD": 0.54, "AdLaLa": 0.80},
}


def accuracy_claims(paper: Mapping[str, float], single: bool, when: str) -> tuple[Claim, ...]:
    """One claim for every accuracy that the paper gives."""
    return tuple(
        Claim(
            f"{name}: test accuracy {when}",
            lambda data, name=name, value=value: agrees(final(data, method=name), value, single),  # type: ignore[misc]
            f"{100 * value:.4g} %",
        )
        for name, value in paper.items()
    )


def more_excited(data: xr.Dataset) -> Finding:
    """The share of hidden parameters beyond five standard deviations of the start, at the first record."""
    at = data["excited"].isel(record=1)
    shares = {m: at.sel({"method": m}).values for m in method_names(data)}
    text = ", ".join(f"{name} {student(x).percent()}" for name, x in shares.items())
    pairs = [
        student(shares[hot] - 2 * shares[cold]) for hot in ("SGLD", "AdLaLa") for cold in ("SGD", "Adam")
    ]
    return Finding(f"{text} beyond 0.05", all_of(*map(above, pairs)))


def draw_over_time(data: xr.Dataset, s: Settings) -> Figure:
    """Distributions of weights and biases of every method, at the records."""
    methods = method_names(data)
    axes = panels(2, len(methods), height=0.62 * PAGE_WIDTH)
    for row, kind in enumerate(("weights", "biases")):
        for column, method in enumerate(methods):
            ax = axes[row * len(methods) + column]
            draw_histogram(
                ax,
                data["histogram"].sel({"method": method, "kind": kind}).isel(record=slice(1, None)),
                data["step"].values[1:],
            )
            accuracy = student(final(data, method=method))
            title = f"{method}: {100 * accuracy.value:.1f} %" if row == 0 else ""
            ax.set_title(title, fontsize=SMALL_SIZE)
            label_axes(ax, "weights" if row == 0 else "biases", "share per bin" if column == 0 else "")
    handles, labels = axes[0].get_legend_handles_labels()
    figure = whole(axes)
    figure.legend(
        handles, labels, loc="outside lower center", ncols=len(labels), fontsize=SMALL_SIZE, frameon=False
    )
    return figure


def draw_histogram(ax: Axes, counts: xr.DataArray, steps: Any) -> None:
    """Outlines of histograms, one for each record, on a logarithmic axis."""
    edges = draw_edges(counts)
    for place, (shares, step) in enumerate(zip(counts.values, steps, strict=True)):
        ax.stairs(shares, edges, label=f"step {int(step):,}", linewidth=1.1, **line_style(place))
    set_log_scale(ax, bottom=1e-5)
    ax.set_xlim(-3, 3)


def draw_edges(counts: xr.DataArray) -> Any:
    """The edges of evenly spaced bins."""
    middle = counts["bin"].values
    half = (middle[1] - middle[0]) / 2
    return np.append(middle - half, middle[-1] + half)


def over_time(turns: int, gamma: float, name: str) -> Experiment:
    """The experiment on a spiral."""
    return Experiment(
        name=name,
        title=f"Weights and biases over time: the {turns}-turn spiral",
        settings={
            "turns": turns,
            "gamma": gamma,
            "units": 500,
            "points": 1000,
            "steps": 10_000,
            "batch": 20,
            "runs": 20,
            "reading_runs": 10,
            "seed": 0,
            "init": "gaussian",
            "at": (50, 1000, 10_000),
            "sgld": 0.01,
        },
        quick={
            "units": 20,
            "points": 200,
            "steps": 200,
            "runs": 2,
            "reading_runs": 2,
            "at": (50, 100, 200),
            "batch": 4,
        },
        run=run_over_time,
        draw=draw_over_time,
        claims=(
            *accuracy_claims(PAPER[turns], True, "at step 10,000"),
            Claim(
                "At step 50 the sampling methods have excited far more parameters than SGD and Adam (twice)",
                more_excited,
            ),
        ),
        tables=lambda data: [readings_table(data, PAPER[turns])],
        notes=SMALL_START + " The paper shows one run.",
    )


TWO_TURNS = over_time(2, 0.5, "weights-2turn")
FOUR_TURNS = over_time(4, 0.1, "weights-4turn")

# Over 100 runs

MEANS = {"SGD": 0.79, "Adam": 0.837, "SGLD": 0.78, "AdLaLa, γ = 0.5": 0.934, "AdLaLa, γ = 10": 0.855}


def hundred(**reading: Any) -> dict[str, Partition]:
    """The methods of the figure over many runs, and LOL of its text with the paper's rule of thumb."""
    return {
        "SGD": Partition(SGD(), 0.1),
        "Adam": Partition(Adam(), 0.005),
        "SGLD": Partition(SGLD(0.1), 0.1),
        "AdLaLa, γ = 0.5": adlala(0.25, 0.5, **reading),
        "AdLaLa, γ = 10": adlala(0.25, 10.0, **reading),
        "LOL": LOL(h=0.25),
    }


def run_hundred(s: Settings, tell: Tell) -> xr.Dataset:
    """All methods, and the parameters at the end."""
    problem = spirals(2, n_train=s.points, n_test=s.points, draws=s.runs)
    run = side_by_side(s, tell, problem, hundred(), MLP((s.units,), init=s.init), record=1, weights=True)
    results = scores(run) | {
        "histogram": distributions(run, s.units, WIDE),
        "near_zero": share(run, s.units, lambda w: abs(w) < NEAR_ZERO),
    }
    results["readings"] = readings(variants(s, tell, hundred), MEANS)
    return xr.Dataset(results)


def many_near_zero(data: xr.Dataset) -> Finding:
    """The share of hidden weights and biases below 0.05 in size: optimisers against samplers."""
    at = data["near_zero"].isel(record=-1)
    shares = {name: at.sel({"method": name}).values for name in ("SGD", "Adam", "SGLD", "AdLaLa, γ = 0.5")}
    text = ", ".join(f"{name} {student(x).percent()}" for name, x in shares.items())
    pairs = [
        student(shares[cold] - shares[hot]) for cold in ("SGD", "Adam") for hot in ("SGLD", "AdLaLa, γ = 0.5")
    ]
    return Finding(f"{text} below 0.05", all_of(*map(above, pairs)))


def gap(values: Array) -> float:
    """From the worst to the best run, in points."""
    return float(100 * (values.max() - values.min()))


def gap_of(method: str, paper: float) -> Any:
    """Whether the gap is the paper's: within a quarter of it, or in part within a half."""

    def check(data: xr.Dataset) -> Finding:
        points = gap(final(data, method=method))
        distance = abs(points - paper) / paper
        verdict = HOLDS if distance <= 0.25 else IN_PART if distance <= 0.5 else FAILS
        return Finding(f"{points:.1f} points", verdict)

    return check


def smaller_gap(data: xr.Dataset) -> Finding:
    """The range that holds 95 % of the runs: AdLaLa's against LOL's and Adam's."""

    def spread(values: Array) -> float:
        return float(np.subtract(*np.percentile(100 * values, [97.5, 2.5])))

    ours = final(data, method="AdLaLa, γ = 0.5")
    others = {name: final(data, method=name) for name in ("Adam", "LOL")}
    text = ", ".join(f"{name} {spread(x):.1f}" for name, x in {"AdLaLa": ours, **others}.items())
    verdicts = [below(bootstrap(lambda a, b: spread(a) - spread(b), ours, x), 0.0) for x in others.values()]
    return Finding(f"{text} points hold 95 % of the runs", all_of(*verdicts))


def draw_runs(data: xr.Dataset, s: Settings) -> Figure:
    """Distributions at the end over all runs, and the accuracies."""
    methods = method_names(data)
    axes = panels(1, 3, height=0.5 * PAGE_WIDTH)
    for ax, kind in zip(axes, ("weights", "biases"), strict=False):
        for place, method in enumerate(methods):
            counts = data["histogram"].sel({"method": method, "kind": kind}).isel(record=-1)
            ax.stairs(counts.values, draw_edges(counts), label=method, linewidth=1.1, **line_style(place))
        set_log_scale(ax, bottom=1e-5)
        label_axes(ax, kind, "share per bin")
    add_legend(axes[0])
    box(axes[2], {m: final(data, method=m) for m in methods})
    return whole(axes)


HUNDRED_RUNS = Experiment(
    name="weights-100runs",
    title="Weights and biases over 100 runs: the 2-turn spiral",
    settings={
        "turns": 2,
        "units": 20,
        "points": 500,
        "steps": 10_000,
        "batch": 25,
        "runs": 100,
        "reading_runs": 50,
        "seed": 0,
        "init": "gaussian",
        "sgld": 0.1,
    },
    quick={"points": 100, "steps": 200, "runs": 4, "reading_runs": 2},
    run=run_hundred,
    draw=draw_runs,
    claims=(
        *accuracy_claims(MEANS, False, "mean over runs"),
        Claim("SGD and Adam leave many weights and biases near zero, SGLD and AdLaLa do not", many_near_zero),
        Claim("Worst-to-best gap of Adam", gap_of("Adam", 35.0), "35 points"),
        Claim("Worst-to-best gap of LOL", gap_of("LOL", 10.0), "10 points"),
        Claim("AdLaLa varies even less than LOL and Adam", smaller_gap, "even less variation"),
    ),
    tables=lambda data: [readings_table(data, MEANS)],
    notes=SMALL_START + " LOL's coefficients are those of the robustness study.",
)
