"""Map test accuracy over coefficients: the driving noise of AdLaLa, and the temperature of LOL.

Letters: τ₁ is the temperature of the hidden layers, σ_A (sigma) the strength of the driving noise.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from heatbath import plotting
from heatbath.diagnostics.statistics import bootstrap, student
from heatbath.methods import AdaptiveLangevin, Langevin
from heatbath.methods.partition import Partition
from heatbath.methods.presets import LOL
from heatbath.paper.claims import (
    FAILS,
    HOLDS,
    IN_PART,
    Claim,
    Finding,
    combine_verdicts,
    judge_above,
    judge_below,
)
from heatbath.paper.experiment import Experiment, ProgressCallback, ReportTable, Settings
from heatbath.paper.figures import draw_temperatures
from heatbath.paper.interpretations import stack_interpretations
from heatbath.paper.side_by_side import (
    final_values,
    prediction_maps,
    scores_by_axes,
    spirals_of,
    train_on_grid,
    with_settings,
)
from heatbath.paper.temperature import best_tau, judge_fall
from heatbath.plotting import style
from heatbath.plotting.style import Axes

MAX_CHANCE = 0.55  # accuracy up to which a result counts as chance, given the noise of the runs
MIN_GAIN = 0.05  # accuracy that the driving noise must gain to matter
MAX_SMALL_TAU = 1.01e-4  # up to which τ₁ counts as small
WEAK_SIGMA = 1e-3  # below which the driving noise counts as weak


def run_noise(settings: Settings, progress: ProgressCallback) -> xr.Dataset:
    """Sweep AdLaLa over τ₁ and σ_A; with fewer runs also under other interpretations of its adaptive part."""
    data = _noise_map(settings, progress)
    fewer_runs = with_settings(settings, runs=settings.reading_runs)
    accuracies = {"as run here": data["accuracy"].isel(run=slice(settings.reading_runs))}
    for name, options in settings.readings.items():
        accuracies[name] = _noise_map(fewer_runs, progress, **options)["accuracy"]
    return data.assign(readings=stack_interpretations(accuracies).rename(run="reading_run"))


def _noise_map(settings: Settings, progress: ProgressCallback, **options: Any) -> xr.Dataset:
    """Return final scores of AdLaLa over τ₁ and σ_A; `options` are passed to `AdaptiveLangevin`."""
    hidden = AdaptiveLangevin(list(settings.taus), list(settings.sigmas), settings.epsilon, **options)
    output = Langevin(settings.gamma, settings.tau_output)
    method = Partition({"hidden": hidden, "output": output}, settings.h)
    run = train_on_grid(settings, progress, spirals_of(settings, 4), method, record=1)
    scores = {}
    for name, values in scores_by_axes(run).items():
        scores[name] = values.squeeze("record") if "record" in values.dims else values
    short_names = {axis: axis.rpartition(".")[2] for axis in run.plan.axes}
    return xr.Dataset(scores).rename(short_names).rename(tau="tau1")


def small_taus(data: xr.Dataset) -> list[float]:
    """Return the small values of τ₁."""
    return [float(tau) for tau in data["tau1"].values if tau <= MAX_SMALL_TAU]


def best_sigma(data: xr.Dataset) -> float:
    """Return the σ_A with the highest mean accuracy over runs and small τ₁."""
    table = data["accuracy"].sel(tau1=small_taus(data)).mean(["run", "tau1"])
    return float(table["sigma"].values[int(table.values.argmax())])


def best_accuracy_text(data: xr.Dataset) -> str:
    """Return the mean accuracy over small τ₁ at the best σ_A, with its interval, and this σ_A."""
    sigma = best_sigma(data)
    accuracy = student(data["accuracy"].sel(sigma=sigma, tau1=small_taus(data)).mean("tau1"))
    return f"{accuracy.percent()} at σ_A = {sigma:g}"


def judge_without_noise(data: xr.Dataset) -> Finding:
    """Judge whether AdLaLa is no better than chance with weak noise: its best result for every small τ₁."""
    weak = [sigma for sigma in data["sigma"].values if sigma < WEAK_SIGMA]
    best = {}
    for tau in small_taus(data):
        means = [student(final_values(data, tau1=tau, sigma=sigma)) for sigma in weak]
        best[tau] = max(means, key=lambda mean: mean.value)
    text = ", ".join(f"{mean.percent()} at τ₁ = {tau:g}" for tau, mean in best.items())
    verdicts = [judge_below(mean, MAX_CHANCE) for mean in best.values()]
    return Finding(f"at most {text}", combine_verdicts(*verdicts))


def judge_band(data: xr.Dataset) -> Finding:
    """Judge how wide the band of useful σ_A is for every small τ₁.

    A σ_A is useful if its accuracy is clearly above that without noise. A decade is required; a factor of two
    counts in part.
    """
    bands = {tau: useful_sigmas(data, tau) for tau in small_taus(data)}
    texts = []
    for tau, sigmas in bands.items():
        band = f"{min(sigmas):g} to {max(sigmas):g}" if sigmas else "nowhere"
        texts.append(f"{band} at τ₁ = {tau:g}")
    text = f"{', '.join(texts)}; best {best_accuracy_text(data)}"
    return Finding(text, combine_verdicts(*map(judge_width, bands.values())))


def useful_sigmas(data: xr.Dataset, tau: float) -> list[float]:
    """Return every σ_A > 0 that gains clearly more than MIN_GAIN accuracy over σ_A = 0, at one τ₁."""
    without_noise = final_values(data, tau1=tau, sigma=0.0)
    gains = {
        float(sigma): student(final_values(data, tau1=tau, sigma=sigma) - without_noise)
        for sigma in data["sigma"].values
        if sigma > 0
    }
    return [sigma for sigma, gain in gains.items() if judge_above(gain, MIN_GAIN) == HOLDS]


def judge_width(sigmas: list[float]) -> str:
    """Return the verdict that values of σ_A span a decade, up to rounding; a factor of two counts in part."""
    if not sigmas:
        return FAILS
    decades = float(np.log10(max(sigmas) / min(sigmas)))
    if decades >= 0.99:
        return HOLDS
    return IN_PART if decades > 0.3 else FAILS


def judge_sensitivity(data: xr.Dataset) -> Finding:
    """Judge whether accuracies at the best σ_A differ by at most five points over the small τ₁."""
    sigma = best_sigma(data)
    values = data["accuracy"].sel(sigma=sigma, tau1=small_taus(data)).transpose("run", "tau1").values
    width = bootstrap(lambda x: float(np.ptp(x.mean(axis=0))), values)
    return Finding(f"{width.text(100)} points between them at σ_A = {sigma:g}", judge_below(width, 0.05))


def judge_hottest(data: xr.Dataset) -> Finding:
    """Judge whether accuracy falls by at least ten points from small τ₁ to the largest, at the best σ_A."""
    sigma = best_sigma(data)
    hot = float(data["tau1"].values.max())
    fall = student(
        data["accuracy"].sel(sigma=sigma, tau1=small_taus(data)).mean("tau1")
        - final_values(data, tau1=hot, sigma=sigma)
    )
    return Finding(f"{fall.text(100)} points less at τ₁ = {hot:g}, σ_A = {sigma:g}", judge_above(fall, 0.1))


def noise_interpretations(data: xr.Dataset) -> list[ReportTable]:
    """Return a table with the best accuracy and the verdict on each claim, by interpretation.

    `data` has accuracies in `readings`, as `run_noise` returns them. The table is alone in a list, as reports
    expect it.
    """
    checks = {
        "chance without": judge_without_noise,
        "band": judge_band,
        "agnostic": judge_sensitivity,
        "too hot": judge_hottest,
    }
    rows = []
    for name in map(str, data["reading"].values):
        results = xr.Dataset({"accuracy": data["readings"].sel(reading=name).rename(reading_run="run")})
        verdicts = [check(results).verdict for check in checks.values()]
        rows.append((name, best_accuracy_text(results), *verdicts))
    title = "The claims under other interpretations of the adaptive part"
    return [ReportTable(title, ("interpretation", "best", *checks), tuple(rows))]


def draw_noise(data: xr.Dataset, settings: Settings) -> Axes:
    """Draw the mean test accuracy over runs as a map over τ₁ and σ_A."""
    table = data["accuracy"].mean("run").transpose("tau1", "sigma")
    axes = style.panels(1, 1, width=0.8 * style.PAGE_WIDTH, height=0.5 * style.PAGE_WIDTH)
    plotting.heat_map(table.rename("accuracy").rename(tau1="tau"), ax=axes[0])
    axes[0].set_ylabel(r"$\tau_1$")
    axes[0].set_title("test accuracy in %, mean over runs", fontsize=style.SMALL_SIZE)
    return axes[0]


DRIVING_NOISE = Experiment(
    name="driving-noise",
    title="The role of the driving noise σ_A in AdLaLa",
    settings={
        "h": 0.1,
        "epsilon": 0.1,
        "gamma": 0.03,
        "tau_output": 1e-8,
        "reading_runs": 4,
        "readings": {
            "C with ε": {"friction": "sde"},
            "mean of p² in E": {"kinetic": "mean"},
            "ξ per tensor": {"thermostat": "tensor"},
        },
        "units": 100,
        "points": 1000,
        "steps": 50_000,
        "runs": 10,
        "seed": 0,
        "init": "gaussian",
        "taus": (1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2),
        "sigmas": (0.0, 1e-4, 5e-4, 1e-3, 4e-3, 1e-2, 4e-2, 1e-1, 4e-1),
    },
    quick={"units": 10, "points": 200, "steps": 200, "runs": 2, "reading_runs": 2},
    run=run_noise,
    draw=draw_noise,
    tables=noise_interpretations,
    claims=(
        Claim(
            "Without σ_A, or with σ_A below 1e-3, no better than chance",
            judge_without_noise,
            "no better than random",
        ),
        Claim("A band of σ_A an order of magnitude wide works", judge_band, "near 100 % at σ_A = 0.04"),
        Claim("It is agnostic to τ₁ while that is small", judge_sensitivity),
        Claim("Too hot fails", judge_hottest),
    ),
    notes="The start is N(0, 0.01²), as for the classifiers of the same problem. The grid is our choice.",
)


def run_lol(settings: Settings, progress: ProgressCallback) -> xr.Dataset:
    """Sweep LOL over τ₁; return scores at every τ₁, and maps of the classifier at some of them."""
    method = LOL(h=settings.h, gamma=settings.gamma, tau=list(settings.taus))
    run = train_on_grid(settings, progress, spirals_of(settings, 4), method, record=2)
    mapped_taus = [settings.taus[0], *settings.taus[-5:]]
    return xr.Dataset(scores_by_axes(run) | prediction_maps(run, {"tau": mapped_taus}))


def judge_rise(data: xr.Dataset) -> Finding:
    """Judge whether accuracy at the best temperature is higher than at τ = 0."""
    best = best_tau(data)
    at_best = final_values(data, tau=best)
    gain = student(at_best - final_values(data, tau=0.0), of=len(data["tau"]) - 1)
    text = f"best at τ = {best:g}: {student(at_best).percent()}; {gain.text(100)} points above τ = 0"
    verdict = judge_above(gain) if best > 0 else FAILS
    return Finding(text, verdict)


def judge_hot_failure(data: xr.Dataset) -> Finding:
    """Judge whether accuracy at τ = 1e-3 is below 60 %."""
    accuracy = student(final_values(data, tau=1e-3))
    return Finding(accuracy.percent(), judge_below(accuracy, 0.6))


LOL_TEMPERATURE = Experiment(
    name="lol-temperature",
    title="LOL at several temperatures",
    settings={
        "h": 0.8,
        "gamma": 1.0,
        "units": 200,
        "points": 1000,
        "steps": 50_000,
        "runs": 8,
        "seed": 0,
        "init": "torch",
        "taus": (0.0, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2),
    },
    quick={"units": 10, "points": 200, "steps": 200, "runs": 2},
    run=run_lol,
    draw=lambda data, settings: draw_temperatures(data, spirals_of(settings, 4), square=True),
    claims=(
        Claim("Accuracy rises with τ to a best value", judge_rise, "best at τ = 1e-5"),
        Claim("Beyond it accuracy falls", judge_fall),
        Claim("Unusable at τ = 1e-3", judge_hot_failure, "unusable"),
    ),
    notes="4-turn spiral, 1000 examples, 2 % batches, torch's start, τ₂ = 0, eight runs; maps of the first.",
)
