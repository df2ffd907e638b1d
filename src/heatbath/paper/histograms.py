"""Compare distributions of weights and biases: over time on two and four turns, and over 100 runs."""

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
from heatbath.paper.claims import (
    FAILS,
    HOLDS,
    IN_PART,
    Claim,
    Finding,
    combine_verdicts,
    compare_with_paper,
    judge_above,
    judge_below,
)
from heatbath.paper.experiment import Experiment, ProgressCallback, Settings
from heatbath.paper.figures import draw_all_runs, figure_of
from heatbath.paper.interpretations import interpretation_accuracies, interpretations_table
from heatbath.paper.side_by_side import (
    Array,
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
from heatbath.runs.run import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Init: TypeAlias = Literal["torch", "gaussian", "zeros"]
EXCITED = 0.05  # size above which a parameter counts as excited: five standard deviations of N(0, 0.01²)
NEAR_ZERO = 0.05  # size below which a parameter counts as near zero
FINE_BINS = np.linspace(-4, 4, 161)  # edges for distributions over time
WIDE_BINS = np.linspace(-10, 10, 81)  # edges for distributions over 100 runs
SMALL_START_NOTE = (
    "Starts are N(0, 0.01²), one of the two starts in the paper; with torch's start, no weight is near zero."
)


def methods_over_time(gamma: float, **options: Any) -> dict[str, Partition]:
    """Return the four methods of the figures over time; `options` are passed to AdLaLa's adaptive part."""
    return {
        "SGD": Partition(SGD(), 0.2),
        "Adam": Partition(Adam(), 0.005),
        "SGLD": Partition(SGLD(0.01), 0.1),
        "AdLaLa": adlala(0.25, gamma, **options),
    }


def parameter_histograms(run: Run, units: int, bins: Array) -> xr.DataArray:
    """Return the fraction of hidden weights and biases in each bin, over all runs, by method and record.

    Parameters
    ----------
    run : Run
        A comparison with recorded parameters.
    units : int
        Number of hidden units.
    bins : array
        Edges of the bins.
    """
    weights = unstack_chains(run, run.weights())
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


def parameter_fraction(
    run: Run, units: int, predicate: Callable[[xr.DataArray], xr.DataArray]
) -> xr.DataArray:
    """Return the fraction of hidden parameters for which a predicate is true, by method, run and record."""
    hidden = unstack_chains(run, run.weights()).isel(parameter=slice(0, 3 * units))
    return predicate(hidden).mean("parameter")


def interpretation_runs(
    settings: Settings, progress: ProgressCallback, make_methods: Callable[..., dict[str, Partition]]
) -> dict[str, Callable[[], Run]]:
    """Return functions that train methods under each interpretation of what the paper leaves open.

    `make_methods` returns the methods; it takes options of AdLaLa's adaptive part.
    """

    def interpretation(
        p: float = 0.5,
        init: Init = settings.init,
        shuffled: bool = False,
        batch_factor: int = 1,
        methods: dict[str, Partition] | None = None,
        **options: Any,
    ) -> Callable[[], Run]:
        batch = batch_factor * settings.batch
        chosen = with_settings(settings, runs=settings.reading_runs, batch=batch)
        problem = spirals(
            settings.turns, n_train=settings.points, n_test=settings.points, p=p, draws=settings.reading_runs
        )
        network = MLP((settings.units,), init=init)
        return lambda: train_side_by_side(
            chosen,
            progress,
            problem,
            methods or make_methods(**options),
            network,
            record=1,
            shuffled=shuffled,
        )

    noisier_sgld = make_methods() | {"SGLD": Partition(SGLD(settings.sgld / np.sqrt(0.1)), 0.1)}
    return {
        "as run here": interpretation(),
        "torch's start": interpretation(init="torch"),
        "shuffled epochs": interpretation(shuffled=True),
        "batches twice as large": interpretation(batch_factor=2),
        "ξ per tensor": interpretation(thermostat="tensor"),
        "C with ε": interpretation(friction="sde"),
        "mean of p² in E": interpretation(kinetic="mean"),
        "p = 1": interpretation(p=1.0),
        "SGLD adds σR, not σ√h R": interpretation(methods=noisier_sgld),
    }


def run_over_time(settings: Settings, progress: ProgressCallback) -> xr.Dataset:
    """Train the four methods, with records at the paper's steps."""
    problem = spirals_of(settings, settings.turns)
    make_methods = partial(methods_over_time, settings.gamma)
    network = network_of(settings)
    run = train_side_by_side(
        settings, progress, problem, make_methods(), network, record=[0, *settings.at], weights=True
    )
    results = scores_by_axes(run) | {
        "histogram": parameter_histograms(run, settings.units, FINE_BINS),
        "excited": parameter_fraction(run, settings.units, lambda w: abs(w) > EXCITED),
    }
    results["readings"] = interpretation_accuracies(
        interpretation_runs(settings, progress, make_methods), PAPER[settings.turns]
    )
    return xr.Dataset(results)


PAPER = {  # accuracies at step 10,000 by number of turns
    2: {"SGD": 0.96, "Adam": 0.99, "SGLD": 0.74, "AdLaLa": 0.99},
    4: {"SGD": 0.58, "Adam": 0.67, "SGLD": 0.54, "AdLaLa": 0.80},
}


def accuracy_claims(paper: Mapping[str, float], single: bool, when: str) -> tuple[Claim, ...]:
    """Return a claim for every accuracy in the paper; `single` means that it is of a single run."""
    return tuple(
        Claim(
            f"{name}: test accuracy {when}",
            lambda data, name=name, value=value: compare_with_paper(
                final_values(data, method=name), value, single
            ),  # type: ignore[misc]
            f"{100 * value:.4g} %",
        )
        for name, value in paper.items()
    )


def judge_excitation(data: xr.Dataset) -> Finding:
    """Judge whether samplers excite twice as many hidden parameters as optimisers by the first record."""
    excited = data["excited"].isel(record=1)
    fractions = {m: excited.sel({"method": m}).values for m in method_names(data)}
    text = ", ".join(f"{name} {student(x).percent()}" for name, x in fractions.items())
    differences = [
        student(fractions[sampler] - 2 * fractions[optimiser])
        for sampler in ("SGLD", "AdLaLa")
        for optimiser in ("SGD", "Adam")
    ]
    return Finding(f"{text} beyond 0.05", combine_verdicts(*map(judge_above, differences)))


def draw_over_time(data: xr.Dataset, settings: Settings) -> Figure:
    """Draw distributions of weights and biases of every method at the records."""
    methods = method_names(data)
    axes = style.panels(2, len(methods), height=0.62 * style.PAGE_WIDTH)
    for row, kind in enumerate(("weights", "biases")):
        for column, method in enumerate(methods):
            ax = axes[row * len(methods) + column]
            draw_histogram(
                ax,
                data["histogram"].sel({"method": method, "kind": kind}).isel(record=slice(1, None)),
                data["step"].values[1:],
            )
            accuracy = student(final_values(data, method=method))
            title = f"{method}: {100 * accuracy.value:.1f} %" if row == 0 else ""
            ax.set_title(title, fontsize=style.SMALL_SIZE)
            style.label_axes(ax, "weights" if row == 0 else "biases", "share per bin" if column == 0 else "")
    handles, labels = axes[0].get_legend_handles_labels()
    figure = figure_of(axes)
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=len(labels),
        fontsize=style.SMALL_SIZE,
        frameon=False,
    )
    return figure


def draw_histogram(ax: Axes, counts: xr.DataArray, steps: Any) -> None:
    """Draw outlines of histograms, one for each record, on a logarithmic axis."""
    edges = draw_edges(counts)
    for index, (fractions, step) in enumerate(zip(counts.values, steps, strict=True)):
        ax.stairs(fractions, edges, label=f"step {int(step):,}", linewidth=1.1, **style.line_style(index))
    style.set_log_scale(ax, bottom=1e-5)
    ax.set_xlim(-3, 3)


def draw_edges(counts: xr.DataArray) -> Any:
    """Return the edges of evenly spaced bins from their centres, the coordinate `bin`."""
    centres = counts["bin"].values
    half_width = (centres[1] - centres[0]) / 2
    return np.append(centres - half_width, centres[-1] + half_width)


def experiment_over_time(turns: int, gamma: float, name: str) -> Experiment:
    """Return the experiment on a spiral; `gamma` is the friction of AdLaLa's output layer."""
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
                judge_excitation,
            ),
        ),
        tables=lambda data: [interpretations_table(data, PAPER[turns])],
        notes=SMALL_START_NOTE + " The paper shows one run.",
    )


TWO_TURNS = experiment_over_time(2, 0.5, "weights-2turn")
FOUR_TURNS = experiment_over_time(4, 0.1, "weights-4turn")

# Over 100 runs

PAPER_MEANS = {"SGD": 0.79, "Adam": 0.837, "SGLD": 0.78, "AdLaLa, γ = 0.5": 0.934, "AdLaLa, γ = 10": 0.855}


def methods_over_runs(**options: Any) -> dict[str, Partition]:
    """Return the methods of the figure over 100 runs, and LOL from the paper's text with its rule of thumb.

    `options` are passed to AdLaLa's adaptive part.
    """
    return {
        "SGD": Partition(SGD(), 0.1),
        "Adam": Partition(Adam(), 0.005),
        "SGLD": Partition(SGLD(0.1), 0.1),
        "AdLaLa, γ = 0.5": adlala(0.25, 0.5, **options),
        "AdLaLa, γ = 10": adlala(0.25, 10.0, **options),
        "LOL": LOL(h=0.25),
    }


def run_hundred(settings: Settings, progress: ProgressCallback) -> xr.Dataset:
    """Train all methods; return scores and the parameters at the end."""
    problem = spirals_of(settings, 2)
    run = train_side_by_side(
        settings, progress, problem, methods_over_runs(), network_of(settings), record=1, weights=True
    )
    results = scores_by_axes(run) | {
        "histogram": parameter_histograms(run, settings.units, WIDE_BINS),
        "near_zero": parameter_fraction(run, settings.units, lambda w: abs(w) < NEAR_ZERO),
    }
    results["readings"] = interpretation_accuracies(
        interpretation_runs(settings, progress, methods_over_runs), PAPER_MEANS
    )
    return xr.Dataset(results)


def judge_near_zero(data: xr.Dataset) -> Finding:
    """Judge whether optimisers leave more hidden weights and biases below 0.05 in size than samplers."""
    near_zero = data["near_zero"].isel(record=-1)
    fractions = {
        name: near_zero.sel({"method": name}).values for name in ("SGD", "Adam", "SGLD", "AdLaLa, γ = 0.5")
    }
    text = ", ".join(f"{name} {student(x).percent()}" for name, x in fractions.items())
    differences = [
        student(fractions[optimiser] - fractions[sampler])
        for optimiser in ("SGD", "Adam")
        for sampler in ("SGLD", "AdLaLa, γ = 0.5")
    ]
    return Finding(f"{text} below 0.05", combine_verdicts(*map(judge_above, differences)))


def gap(values: Array) -> float:
    """Return the difference between the best and the worst run, in points."""
    return float(100 * (values.max() - values.min()))


def judge_gap(method: str, paper: float) -> Callable[[xr.Dataset], Finding]:
    """Return a check that a method's gap is the paper's within a quarter, or in part within a half."""

    def check(data: xr.Dataset) -> Finding:
        points = gap(final_values(data, method=method))
        distance = abs(points - paper) / paper
        verdict = HOLDS if distance <= 0.25 else IN_PART if distance <= 0.5 else FAILS
        return Finding(f"{points:.1f} points", verdict)

    return check


def judge_smaller_gap(data: xr.Dataset) -> Finding:
    """Judge whether the range of 95 % of the runs is smaller for AdLaLa than for LOL and Adam."""

    def spread(values: Array) -> float:
        """Return the width of the range that holds 95 % of the runs, in points."""
        return float(np.subtract(*np.percentile(100 * values, [97.5, 2.5])))

    ours = final_values(data, method="AdLaLa, γ = 0.5")
    rivals = {name: final_values(data, method=name) for name in ("Adam", "LOL")}
    text = ", ".join(f"{name} {spread(x):.1f}" for name, x in {"AdLaLa": ours, **rivals}.items())
    verdicts = [
        judge_below(bootstrap(lambda a, b: spread(a) - spread(b), ours, x), 0.0) for x in rivals.values()
    ]
    return Finding(f"{text} points hold 95 % of the runs", combine_verdicts(*verdicts))


def draw_runs(data: xr.Dataset, settings: Settings) -> Figure:
    """Draw distributions at the end over all runs, and the accuracies."""
    methods = method_names(data)
    axes = style.panels(1, 3, height=0.5 * style.PAGE_WIDTH)
    for ax, kind in zip(axes, ("weights", "biases"), strict=False):
        for index, method in enumerate(methods):
            counts = data["histogram"].sel({"method": method, "kind": kind}).isel(record=-1)
            ax.stairs(
                counts.values, draw_edges(counts), label=method, linewidth=1.1, **style.line_style(index)
            )
        style.set_log_scale(ax, bottom=1e-5)
        style.label_axes(ax, kind, "share per bin")
    style.add_legend(axes[0])
    draw_all_runs(axes[2], {m: final_values(data, method=m) for m in methods})
    return figure_of(axes)


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
        *accuracy_claims(PAPER_MEANS, False, "mean over runs"),
        Claim(
            "SGD and Adam leave many weights and biases near zero, SGLD and AdLaLa do not", judge_near_zero
        ),
        Claim("Worst-to-best gap of Adam", judge_gap("Adam", 35.0), "35 points"),
        Claim("Worst-to-best gap of LOL", judge_gap("LOL", 10.0), "10 points"),
        Claim("AdLaLa varies even less than LOL and Adam", judge_smaller_gap, "even less variation"),
    ),
    tables=lambda data: [interpretations_table(data, PAPER_MEANS)],
    notes=SMALL_START_NOTE + " LOL's coefficients are those of the robustness study.",
)
