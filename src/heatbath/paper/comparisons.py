"""Compare AdLaLa and LOL with SGD, SGLD and Adam on the 4-turn spiral and on trigonometric data."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import xarray as xr

from heatbath.datasets import Problem, trigonometric
from heatbath.diagnostics.statistics import bootstrap, student
from heatbath.methods import SGLD, Adam
from heatbath.methods.partition import Partition
from heatbath.methods.presets import LOL
from heatbath.paper.claims import (
    Claim,
    Finding,
    combine_strictly,
    combine_verdicts,
    compare_runs,
    compare_with_paper,
    judge_above,
    judge_below,
)
from heatbath.paper.experiment import Experiment, ProgressCallback, Settings
from heatbath.paper.figures import draw_accuracy_and_loss, draw_means
from heatbath.paper.interpretations import interpretation_accuracies, interpretations_table
from heatbath.paper.side_by_side import (
    Array,
    adlala,
    final_values,
    method_names,
    scores_by_axes,
    spirals_of,
    train_side_by_side,
    with_settings,
)
from heatbath.plotting import style
from heatbath.plotting.style import Axes
from heatbath.runs.run import Run

# The 4-turn spiral, where all methods but AdLaLa are tuned


def run_tuned(settings: Settings, progress: ProgressCallback) -> xr.Dataset:
    """Train AdLaLa with fixed coefficients, and SGLD and Adam with several, on the 4-turn spiral.

    Parameters
    ----------
    settings : Settings
        Sizes and seed; `adlala`, a partition; `sigmas` and `stepsizes` of SGLD, `adam_stepsizes` of Adam.
    progress : callable or None
        Called with the progress of the training.

    Returns
    -------
    Dataset
        Scores by method, run and record. The names of methods contain their coefficients.
    """
    methods = {"AdLaLa": settings.adlala}
    for sigma, h in product(settings.sigmas, settings.stepsizes):
        methods[f"SGLD σ={sigma:g} h={h:g}"] = Partition(SGLD(sigma), h)
    for h in settings.adam_stepsizes:
        methods[f"Adam h={h:g}"] = Partition(Adam(), h)

    run = train_side_by_side(settings, progress, spirals_of(settings, 4), methods, record=settings.records)
    return xr.Dataset(scores_by_axes(run))


def best_setting(data: xr.Dataset, kind: str) -> str:
    """Return the setting of a method, "SGLD" or "Adam", with the highest mean accuracy."""
    return max(settings_of(data, kind), key=lambda name: final_values(data, method=name).mean())


def settings_of(data: xr.Dataset, beginning: str) -> list[str]:
    """Return the names of methods that begin with a text, such as "Adam" or "SGLD σ=0.1 "."""
    return [name for name in method_names(data) if name.startswith(beginning)]


def compare_methods(data: xr.Dataset, first: str, second: str) -> Finding:
    """Judge whether one method ends with a higher accuracy than another."""
    return compare_runs(final_values(data, method=first), final_values(data, method=second))


def judge_against_best(kind: str) -> Callable[[xr.Dataset], Finding]:
    """Return a check that AdLaLa beats the best setting of a method, "SGLD" or "Adam"."""

    def check(data: xr.Dataset) -> Finding:
        """Compare AdLaLa with the setting that has the highest mean accuracy."""
        best = best_setting(data, kind)
        comparison = compare_methods(data, "AdLaLa", best)
        return Finding(f"AdLaLa against the best, {best}: {comparison.ours}", comparison.verdict)

    return check


def draw_tuned(data: xr.Dataset, settings: Settings) -> Axes:
    """Draw the accuracy over the stepsize, of SGLD on the left and of Adam on the right.

    AdLaLa's mean and interval are a horizontal line and band in both. `data` is what `run_tuned` returns.
    """
    axes = style.panels(1, 2, height=0.5 * style.PAGE_WIDTH)
    for ax in axes:
        ax.set_xscale("log")

    sigmas = dict.fromkeys(name.split()[1] for name in settings_of(data, "SGLD"))  # such as "σ=0.1"
    for index, sigma in enumerate(sigmas):
        draw_points(axes[0], data, settings_of(data, f"SGLD {sigma} "), sigma.replace("=", " = "), index)
    draw_points(axes[1], data, settings_of(data, "Adam"), "Adam", 0)

    adlala_mean = student(final_values(data, method="AdLaLa"))
    for ax in axes:
        ax.axhspan(adlala_mean.low, adlala_mean.high, color="0.85", zorder=0)
        ax.axhline(adlala_mean.value, color="black", linestyle=":", label="AdLaLa")
        style.label_axes(ax, "stepsize $h$", "test accuracy")
        style.format_percent(ax.yaxis)
        style.add_legend(ax)
    return axes[0]


def draw_points(ax: Axes, data: xr.Dataset, names: list[str], label: str, index: int) -> None:
    """Draw the mean accuracies of settings with intervals over the stepsize, which is part of their names.

    `names` are methods in `data`; `label` and `index` decide the legend's entry and the colour.
    """
    h = [float(name.rpartition("h=")[2]) for name in names]
    ax.set_xticks(h, [f"{value:g}" for value in h], minor=False)
    ax.set_xticks([], minor=True)
    runs = [final_values(data, method=name) for name in names]
    draw_means(ax, h, runs, fmt="o", ms=3.5, label=label, linewidth=1.1, **style.line_style(index))


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
        Claim(
            "No setting of SGD or SGLD beats AdLaLa",
            judge_against_best("SGLD"),
            "AdLaLa consistently outperforms",
        ),
        Claim(
            "No setting of Adam beats AdLaLa", judge_against_best("Adam"), "AdLaLa consistently outperforms"
        ),
    ),
    notes=(
        "The paper gives neither steps, ranges of h, start nor number of runs: 20,000 steps, h until it "
        "got worse, torch's start, ten runs. Accuracy after so many steps stands for its rate of "
        "convergence."
    ),
)

# Trigonometric data


def run_trigonometric(settings: Settings, progress: ProgressCallback) -> xr.Dataset:
    """Train all methods on trigonometric data; return scores by method, run and record.

    Where `settings.reading_runs` isn't 0, `readings` has Adam's accuracies under other interpretations.
    """
    problem = trigonometric_of(settings, settings.runs)
    run = train_side_by_side(settings, progress, problem, settings.methods, record=settings.records)
    results = scores_by_axes(run)
    if settings.reading_runs:
        results["readings"] = interpretation_accuracies(interpretation_runs(settings, progress), HARD_PAPER)
    return xr.Dataset(results)


def trigonometric_of(settings: Settings, draws: int) -> Problem:
    """Draw trigonometric data: `settings.points` training and test examples in each of several data sets."""
    return trigonometric(settings.a, n_train=settings.points, n_test=settings.points, draws=draws)


def steps_to_accuracy(data: xr.Dataset, method: str) -> Array:
    """Return the step of each run's first record with 90 % accuracy, or infinity if there is none."""
    is_reached = data["accuracy"].sel({"method": method}).values >= 0.9  # (run, record)
    first_steps = data["step"].values.astype(float)[is_reached.argmax(axis=1)]
    return np.where(is_reached.any(axis=1), first_steps, np.inf)


def judge_speed(method: str, min_ratio: float) -> Callable[[xr.Dataset], Finding]:
    """Return a check that Adam takes at least `min_ratio` times as many steps to 90 % as a method.

    Steps are medians over runs.
    """

    def check(data: xr.Dataset) -> Finding:
        """Judge the ratio of the median steps to 90 %, Adam's over the method's."""
        ours = steps_to_accuracy(data, method)
        adam = steps_to_accuracy(data, "Adam")
        with np.errstate(invalid="ignore"):  # infinity over infinity, where no run arrives
            ratio = bootstrap(lambda a, b: float(np.median(b) / np.median(a)), ours, adam)
        text = f"median {np.median(ours):,.0f} steps, Adam {np.median(adam):,.0f}: {ratio.text()} times as "
        text += f"many; {np.isinf(ours).sum()} and {np.isinf(adam).sum()} of {len(ours)} runs never arrive"
        return Finding(text, combine_verdicts(judge_above(ratio, 1.0), judge_above(ratio, min_ratio)))

    return check


def best_stepsize(data: xr.Dataset) -> Finding:
    """Judge whether Adam's accuracy is highest at the paper's best h, not at half or twice that."""
    best = final_values(data, method="Adam")
    texts = [f"{student(best).percent()} at h = 0.01"]
    verdicts = []
    for h in ("0.005", "0.02"):
        accuracies = final_values(data, method=f"Adam, h = {h}")
        texts.append(f"{student(accuracies).percent()} at {h}")
        verdicts.append(judge_above(student(best - accuracies)))
    return Finding(", ".join(texts), combine_strictly(*verdicts))


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
    draw=lambda data, settings: draw_accuracy_and_loss(data),
    claims=(
        Claim(
            "Adam takes almost three times as many steps as AdLaLa to 90 % test accuracy",
            judge_speed("AdLaLa", 2.0),
            "almost 3 times",
        ),
        Claim("LOL is faster than Adam, too", judge_speed("LOL", 1.0), "outperforms"),
        Claim("Adam's best stepsize is 0.01", best_stepsize, "0.01"),
    ),
    notes=(
        "Adam at the paper's best h, 0.01, and at half and twice that. The paper doesn't give the start, "
        "the steps and the runs: torch's start, 40,000 and 20."
    ),
)

HARD_PAPER = {"Adam": 0.73}


def hard_methods() -> dict[str, Partition]:
    """Return the methods for the harder problem; Adam's h is the paper's best on the easier problem."""
    return {
        "AdLaLa": adlala(0.1, 5.0, sigma=0.001),
        "LOL": LOL(h=0.1, gamma=0.01, tau=1e-3),
        "Adam": Partition(Adam(), 0.01),
        "SGLD": Partition(SGLD(0.01), 0.1),
    }


def interpretation_runs(settings: Settings, progress: ProgressCallback) -> dict[str, Any]:
    """Return functions that train Adam under each interpretation of what the paper leaves open.

    The paper gives a value for Adam only, so that interpretations of the thermostat don't matter here.
    """
    fewer_runs = with_settings(settings, runs=settings.reading_runs)
    interpretations: dict[str, dict[str, Any]] = {
        "as run here": {},
        "N(0, 0.01²) at the start": {"init": "gaussian"},
        "shuffled epochs": {"shuffled": True},
        "2 % batches": {"batch": max(1, int(0.4 * settings.batch))},  # in place of 5 %
        "Adam at h = 0.005": {"h": 0.005},
    }
    return {
        name: partial(train_adam, fewer_runs, progress, **options)
        for name, options in interpretations.items()
    }


def train_adam(
    settings: Settings, progress: ProgressCallback, *, h: float = 0.01, shuffled: bool = False, **changes: Any
) -> Run:
    """Train Adam on trigonometric data, with a record at the last step only.

    Parameters
    ----------
    settings : Settings
        Sizes and seed of the experiment.
    progress : callable or None
        Called with the progress of the training.
    h : float, optional
        Stepsize (default 0.01).
    shuffled : bool, optional
        Take mini-batches from shuffled epochs (default False: each is drawn afresh).
    **changes
        Settings to replace, such as `init` or `batch`.
    """
    settings = with_settings(settings, **changes)
    problem = trigonometric_of(settings, settings.runs)
    adam = {"Adam": Partition(Adam(), h)}
    return train_side_by_side(settings, progress, problem, adam, record=1, shuffled=shuffled)


def judge_stalling(data: xr.Dataset) -> Finding:
    """Judge whether Adam gains less than a point after 40 % of the steps."""
    accuracy = data["accuracy"].sel({"method": "Adam"})
    steps = data["step"].values
    early_record = np.searchsorted(steps, 0.4 * steps[-1])
    gain = student(accuracy.isel(record=-1) - accuracy.isel(record=early_record))
    return Finding(f"{gain.text(100)} points gained after", judge_below(gain, 0.01))


def judge_against_adam(method: str) -> Callable[[xr.Dataset], Finding]:
    """Return a check that a method ends above Adam."""
    return lambda data: compare_methods(data, method, "Adam")


def judge_sgld(data: xr.Dataset) -> Finding:
    """Judge whether SGLD ends below Adam, LOL and AdLaLa."""
    sgld = final_values(data, method="SGLD")
    gaps = {name: student(final_values(data, method=name) - sgld) for name in ("Adam", "LOL", "AdLaLa")}
    text = ", ".join(f"{name} {points.text(100)} points above" for name, points in gaps.items())
    return Finding(f"{student(sgld).percent()}; {text}", combine_verdicts(*map(judge_above, gaps.values())))


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
    draw=lambda data, settings: draw_accuracy_and_loss(data),
    claims=(
        Claim(
            "Adam's maximum test accuracy in 100,000 steps",
            lambda data: compare_with_paper(
                data["accuracy"].sel({"method": "Adam"}).max("record"), 0.73, False
            ),
            "around 73 %",
        ),
        Claim("Adam's progress halts after 40,000 steps", judge_stalling, "halts completely"),
        Claim("LOL passes Adam", judge_against_adam("LOL")),
        Claim("AdLaLa passes Adam", judge_against_adam("AdLaLa")),
        Claim("SGLD cannot compete with Adam, LOL and AdLaLa", judge_sgld, "not able to compete at all"),
    ),
    tables=lambda data: [interpretations_table(data, HARD_PAPER)] if "readings" in data else [],
    notes=(
        "The paper doesn't give Adam's h, the start and the batches: 0.01, which it calls best on the "
        "easier problem, torch's start, and 5 %."
    ),
)
