"""Compare distributions of weights and biases: over time on two and four turns, and over 100 runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import xarray as xr

from heatbath.diagnostics.statistics import bootstrap, student
from heatbath.methods import SGD, SGLD, Adam
from heatbath.methods.partition import Partition
from heatbath.methods.presets import LOL
from heatbath.paper.claims import (
    Claim,
    Finding,
    combine_verdicts,
    compare_with_paper,
    judge_above,
    judge_below,
    judge_distance,
)
from heatbath.paper.experiment import Experiment, ProgressCallback, Settings
from heatbath.paper.figures import draw_all_runs
from heatbath.paper.interpretations import interpretation_accuracies, interpretations_table
from heatbath.paper.side_by_side import (
    Array,
    adlala,
    final_values,
    method_names,
    scores_by_axes,
    spirals_of,
    train_side_by_side,
    unstack_chains,
    with_settings,
)
from heatbath.plotting import style
from heatbath.plotting.distributions import edges_around
from heatbath.plotting.style import Axes, Figure
from heatbath.runs.run import Run

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
        A comparison with recorded parameters, of networks with two inputs and one hidden layer.
    units : int
        Number of hidden units.
    bins : array
        Edges of the bins.

    Returns
    -------
    DataArray (method, kind, record, bin)
        `kind` is "weights" or "biases", and `bin` has the centres of the bins.
    """
    by_run = unstack_chains(run, run.weights())
    theta = by_run.transpose("method", "record", "run", "parameter").values
    spans = {"weights": slice(0, 2 * units), "biases": slice(2 * units, 3 * units)}
    fractions = np.empty((len(theta), len(spans), theta.shape[1], len(bins) - 1))
    for method, record in np.ndindex(theta.shape[:2]):
        for kind, span in enumerate(spans.values()):
            parameters = theta[method, record, :, span]
            counts, _ = np.histogram(parameters, bins)
            fractions[method, kind, record] = counts / parameters.size

    centres = (bins[1:] + bins[:-1]) / 2
    dimensions = ("method", "kind", "record", "bin")
    return xr.DataArray(fractions, dims=dimensions, coords={"kind": list(spans), "bin": centres})


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

    Parameters
    ----------
    settings : Settings
        Settings of the experiment; `reading_runs` is the number of runs under each interpretation.
    progress : callable or None
        Called with the progress of each training.
    make_methods : callable
        Returns the methods by name; it takes options of AdLaLa's adaptive part.
    """
    fewer_runs = with_settings(settings, runs=settings.reading_runs)
    usual = make_methods()
    noisier_sgld = {"SGLD": Partition(SGLD(settings.sgld / np.sqrt(0.1)), 0.1)}

    def training(methods: Mapping[str, Partition], **options: Any) -> Callable[[], Run]:
        """Return a function that trains these methods, with some options of `train_spiral`."""
        return partial(train_spiral, fewer_runs, progress, methods, **options)

    return {
        "as run here": training(usual),
        "torch's start": training(usual, init="torch"),
        "shuffled epochs": training(usual, shuffled=True),
        "batches twice as large": training(usual, batch=2 * settings.batch),
        "ξ per tensor": training(make_methods(thermostat="tensor")),
        "C with ε": training(make_methods(friction="sde")),
        "mean of p² in E": training(make_methods(kinetic="mean")),
        "p = 1": training(usual, p=1.0),
        "SGLD adds σR, not σ√h R": training(usual | noisier_sgld),
    }


def train_spiral(
    settings: Settings,
    progress: ProgressCallback,
    methods: Mapping[str, Partition],
    *,
    p: float = 0.5,
    shuffled: bool = False,
    **changes: Any,
) -> Run:
    """Train methods on the spiral with `settings.turns` turns, with a record at the last step only.

    Parameters
    ----------
    settings : Settings
        Settings of the experiment.
    progress : callable or None
        Called with the progress of the training.
    methods : mapping from name to Partition
        The methods.
    p : float, optional
        Exponent of the spiral (default 0.5).
    shuffled : bool, optional
        Take mini-batches from shuffled epochs (default False: each is drawn afresh).
    **changes
        Settings to replace, such as `init` or `batch`.
    """
    settings = with_settings(settings, **changes)
    problem = spirals_of(settings, settings.turns, p=p)
    return train_side_by_side(settings, progress, problem, methods, record=1, shuffled=shuffled)


def run_over_time(settings: Settings, progress: ProgressCallback) -> xr.Dataset:
    """Train the four methods on a spiral, with records at the start and at the paper's steps.

    Parameters
    ----------
    settings : Settings
        Sizes and seed; `turns` of the spiral; `gamma`, the friction of AdLaLa's output layer; `at`, the steps
        to record.
    progress : callable or None
        Called with the progress of each training.

    Returns
    -------
    Dataset
        By method and record: scores, `histogram` of the hidden parameters, and `excited`, the fraction of
        them that are larger than EXCITED. `readings` has accuracies under other interpretations.
    """
    make_methods = partial(methods_over_time, settings.gamma)
    run = train_with_weights(settings, progress, make_methods(), [0, *settings.at])
    results = scores_by_axes(run) | {
        "histogram": parameter_histograms(run, settings.units, FINE_BINS),
        "excited": parameter_fraction(run, settings.units, lambda theta: abs(theta) > EXCITED),
    }
    trainings = interpretation_runs(settings, progress, make_methods)
    results["readings"] = interpretation_accuracies(trainings, PAPER[settings.turns])
    return xr.Dataset(results)


def train_with_weights(
    settings: Settings, progress: ProgressCallback, methods: Mapping[str, Partition], record: int | list[int]
) -> Run:
    """Train methods on the spiral with `settings.turns` turns, and record their parameters."""
    problem = spirals_of(settings, settings.turns)
    return train_side_by_side(settings, progress, problem, methods, record=record, weights=True)


PAPER = {  # accuracies at step 10,000 by number of turns
    2: {"SGD": 0.96, "Adam": 0.99, "SGLD": 0.74, "AdLaLa": 0.99},
    4: {"SGD": 0.58, "Adam": 0.67, "SGLD": 0.54, "AdLaLa": 0.80},
}


def accuracy_claims(paper: Mapping[str, float], single: bool, when: str) -> tuple[Claim, ...]:
    """Return a claim for every accuracy in the paper.

    Parameters
    ----------
    paper : mapping from method to float
        Accuracies in the paper.
    single : bool
        True if these are of a single run, False if they are means.
    when : str
        When or over what they were measured, for the text of the claim.
    """

    def claim(method: str, value: float) -> Claim:
        """Return the claim about one method, with the paper's value."""

        def check(data: xr.Dataset) -> Finding:
            """Compare the final accuracies of the method's runs with the paper's value."""
            return compare_with_paper(final_values(data, method=method), value, single)

        return Claim(f"{method}: test accuracy {when}", check, f"{100 * value:.4g} %")

    return tuple(claim(method, value) for method, value in paper.items())


def judge_excitation(data: xr.Dataset) -> Finding:
    """Judge whether samplers excite twice as many hidden parameters as optimisers by the first record."""
    excited = data["excited"].isel(record=1)
    fractions = {method: excited.sel({"method": method}).values for method in method_names(data)}
    text = ", ".join(f"{method} {student(runs).percent()}" for method, runs in fractions.items())
    pairs = product(("SGLD", "AdLaLa"), ("SGD", "Adam"))
    differences = [student(fractions[sampler] - 2 * fractions[optimiser]) for sampler, optimiser in pairs]
    return Finding(f"{text} beyond 0.05", combine_verdicts(*map(judge_above, differences)))


def draw_over_time(data: xr.Dataset, settings: Settings) -> Figure:
    """Draw the distributions of weights and biases, in two rows with a column for each method.

    `data` is what `run_over_time` returns. There is a line for each record after the start; titles have the
    mean accuracy of a method at the end.
    """
    methods = method_names(data)
    axes = style.panels(2, len(methods), height=0.62 * style.PAGE_WIDTH)
    later_histograms = data["histogram"].isel(record=slice(1, None))
    step_labels = [f"step {int(step):,}" for step in data["step"].values[1:]]
    for ax, (kind, method) in zip(axes, product(("weights", "biases"), methods), strict=True):
        draw_histograms(ax, later_histograms.sel({"method": method, "kind": kind}), step_labels)
        ax.set_xlim(-3, 3)
        y_label = "share per bin" if method == methods[0] else ""
        style.label_axes(ax, kind, y_label)

    for ax, method in zip(axes, methods, strict=False):
        accuracy = student(final_values(data, method=method)).value
        ax.set_title(f"{method}: {100 * accuracy:.1f} %", fontsize=style.SMALL_SIZE)

    handles, labels = axes[0].get_legend_handles_labels()
    options: dict[str, Any] = {"fontsize": style.SMALL_SIZE, "frameon": False}
    figure = axes[0].figure.figure
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), **options)
    return figure


def draw_histograms(ax: Axes, fractions: xr.DataArray, labels: list[str]) -> None:
    """Draw outlines of histograms (label, bin) on a logarithmic axis."""
    edges = edges_around(fractions["bin"].values)
    for index, (shares, label) in enumerate(zip(fractions.values, labels, strict=True)):
        ax.stairs(shares, edges, label=label, linewidth=1.1, **style.line_style(index))
    style.set_log_scale(ax, bottom=1e-5)


def experiment_over_time(turns: int, gamma: float, name: str) -> Experiment:
    """Return the experiment that compares distributions of parameters over time on a spiral.

    Parameters
    ----------
    turns : int
        Number of turns of the spiral, 2 or 4.
    gamma : float
        Friction of AdLaLa's output layer.
    name : str
        Name of the experiment on the command line.
    """
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
    """Train all methods on the 2-turn spiral and record the parameters at the end.

    Parameters
    ----------
    settings : Settings
        Sizes and seed.
    progress : callable or None
        Called with the progress of each training.

    Returns
    -------
    Dataset
        By method: scores, `histogram` of the hidden parameters, and `near_zero`, the fraction of them that
        are smaller than NEAR_ZERO. `readings` has accuracies under other interpretations.
    """
    run = train_with_weights(settings, progress, methods_over_runs(), record=1)
    results = scores_by_axes(run) | {
        "histogram": parameter_histograms(run, settings.units, WIDE_BINS),
        "near_zero": parameter_fraction(run, settings.units, lambda theta: abs(theta) < NEAR_ZERO),
    }
    trainings = interpretation_runs(settings, progress, methods_over_runs)
    results["readings"] = interpretation_accuracies(trainings, PAPER_MEANS)
    return xr.Dataset(results)


def judge_near_zero(data: xr.Dataset) -> Finding:
    """Judge whether optimisers leave more hidden weights and biases below 0.05 in size than samplers."""
    optimisers = ("SGD", "Adam")
    samplers = ("SGLD", "AdLaLa, γ = 0.5")
    fractions = {m: final_values(data, "near_zero", method=m) for m in (*optimisers, *samplers)}
    text = ", ".join(f"{method} {student(runs).percent()}" for method, runs in fractions.items())
    pairs = product(optimisers, samplers)
    differences = [student(fractions[optimiser] - fractions[sampler]) for optimiser, sampler in pairs]
    return Finding(f"{text} below 0.05", combine_verdicts(*map(judge_above, differences)))


def gap(values: Array) -> float:
    """Return the difference between the best and the worst run, in points."""
    return float(100 * (values.max() - values.min()))


def judge_gap(method: str, paper: float) -> Callable[[xr.Dataset], Finding]:
    """Return a check that a method's gap is the paper's within a quarter, or in part within a half."""

    def check(data: xr.Dataset) -> Finding:
        """Judge the relative distance of the gap to the paper's."""
        points = gap(final_values(data, method=method))
        distance = abs(points - paper) / paper
        return Finding(f"{points:.1f} points", judge_distance(distance, 0.25, partial=0.5))

    return check


def judge_smaller_gap(data: xr.Dataset) -> Finding:
    """Judge whether the range of 95 % of the runs is smaller for AdLaLa than for LOL and Adam.

    Differences of ranges have intervals from resampled runs.
    """

    def spread(values: Array) -> float:
        """Return the width of the range that holds 95 % of the runs, in points."""
        return float(np.subtract(*np.percentile(100 * values, [97.5, 2.5])))

    def difference(first: Array, second: Array) -> float:
        """Return how much wider that range is for the first runs than for the second."""
        return spread(first) - spread(second)

    ours = final_values(data, method="AdLaLa, γ = 0.5")
    rivals = {name: final_values(data, method=name) for name in ("Adam", "LOL")}
    text = ", ".join(f"{name} {spread(runs):.1f}" for name, runs in {"AdLaLa": ours, **rivals}.items())
    verdicts = [judge_below(bootstrap(difference, ours, runs), 0.0) for runs in rivals.values()]
    return Finding(f"{text} points hold 95 % of the runs", combine_verdicts(*verdicts))


def draw_runs(data: xr.Dataset, settings: Settings) -> Axes:
    """Draw the distributions of weights and of biases at the end, by method, and the accuracies of all runs.

    `data` is what `run_hundred` returns.
    """
    methods = method_names(data)
    axes = style.panels(1, 3, height=0.5 * style.PAGE_WIDTH)
    final = data["histogram"].isel(record=-1)
    for ax, kind in zip(axes, ("weights", "biases"), strict=False):
        draw_histograms(ax, final.sel(kind=kind).transpose("method", "bin"), methods)
        style.label_axes(ax, kind, "share per bin")
    style.add_legend(axes[0])
    draw_all_runs(axes[2], {method: final_values(data, method=method) for method in methods})
    return axes[0]


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
