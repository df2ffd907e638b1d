"""Maps over coefficients: the driving noise of AdLaLa, and the temperature of LOL."""

from __future__ import annotations

import numpy as np
import xarray as xr

from heatbath.datasets import Problem, spirals
from heatbath.experiments import planes
from heatbath.experiments.base import (
    FAILS,
    HOLDS,
    IN_PART,
    Claim,
    Experiment,
    Finding,
    Settings,
    Tell,
    above,
    below,
    mean,
)
from heatbath.experiments.common import complete, final, scores
from heatbath.networks import Dense
from heatbath.presets import LOL, AdLaLa
from heatbath.training import sweep

GOOD = 0.9  # a share of the best excess over chance
CHANCE = 0.55  # no better than chance, up to the noise of the runs


def four_turns(s: Settings) -> Problem:
    """The spirals."""
    return spirals(4, n_train=s.points, n_test=s.points, draws=s.runs)


def run_noise(s: Settings, tell: Tell) -> xr.Dataset:
    """AdLaLa over τ₁ and σ_A."""
    method = AdLaLa(h=0.1, tau=list(s.taus), sigma=list(s.sigmas), epsilon=0.1, gamma=0.03, tau_output=1e-8)
    made = complete(
        sweep(
            four_turns(s),
            Dense((s.units,), init=s.init),
            method,
            steps=s.steps,
            batch=s.points // 50,
            repeats=s.runs,
            record=1,
            progress=tell,
            seed=s.seed,
        )
    )
    found = {name: values.isel(record=-1, drop=True) for name, values in scores(made).items()}
    return xr.Dataset(
        {
            name: values.rename({"tau": "tau1"}) if "tau" in values.dims else values
            for name, values in found.items()
        }
    )


def chance_without(data: xr.Dataset) -> Finding:
    """The best accuracy over τ₁ among the weakest noises."""
    weak = [sigma for sigma in data["sigma"].values if sigma < 1e-3]
    best = max(
        (mean(final(data, tau1=t, sigma=x)) for t in data["tau1"].values for x in weak), key=lambda m: m.value
    )
    return Finding(f"at most {best.percent()} for σ_A below 1e-3", below(best, CHANCE))


def band(data: xr.Dataset) -> Finding:
    """Where, at the best τ₁, the excess over chance is above nine tenths of the best."""
    table = data["accuracy"].mean("run")
    row = table.isel(tau1=int(table.max("sigma").values.argmax()))
    good = [
        float(x) for x in row["sigma"].values[row.values - 0.5 >= GOOD * (float(row.max()) - 0.5)] if x > 0
    ]
    width = float(np.log10(max(good) / min(good))) if good else 0.0
    best = float(row["sigma"].values[int(row.values.argmax())])
    told = f"σ_A from {min(good, default=0):g} to {max(good, default=0):g} at the best τ₁; "
    told += f"best {100 * float(row.max()):.1f} % at {best:g}"
    return Finding(told, HOLDS if width >= 0.99 else IN_PART if width > 0.3 else FAILS)


def agnostic(data: xr.Dataset) -> Finding:
    """The range over τ₁ up to 1e-4 of the accuracy at the best σ_A."""
    table = data["accuracy"].mean("run")
    sigma = float(table["sigma"].values[int(table.max("tau1").values.argmax())])
    cold = table.sel(sigma=sigma).where(table["tau1"] <= 1.01e-4, drop=True)
    width = float(cold.max() - cold.min())
    told = f"{100 * width:.1f} points between τ₁ = {float(cold['tau1'].min()):g} and 1e-4 at σ_A = {sigma:g}"
    return Finding(told, HOLDS if width <= 0.03 else IN_PART if width <= 0.1 else FAILS)


def too_hot(data: xr.Dataset) -> Finding:
    """The hottest τ₁ against the best, each at its best σ_A."""
    table = data["accuracy"].mean("run")
    hot = table.isel(tau1=-1)
    own = mean(data["accuracy"].isel(tau1=-1).sel(sigma=float(hot["sigma"].values[int(hot.values.argmax())])))
    best = float(table.max())
    told = f"{own.percent()} at τ₁ = {float(table['tau1'][-1]):g}, best {100 * best:.1f} %"
    return Finding(told, below(own, 0.5 + 0.5 * (best - 0.5)))


DRIVING_NOISE = Experiment(
    name="driving-noise",
    title="The role of the driving noise σ_A in AdLaLa",
    settings={
        "units": 100,
        "points": 1000,
        "steps": 50_000,
        "runs": 10,
        "seed": 0,
        "init": "gaussian",
        "taus": (1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2),
        "sigmas": (0.0, 1e-4, 5e-4, 1e-3, 4e-3, 1e-2, 4e-2, 1e-1, 4e-1),
    },
    quick={"units": 10, "points": 200, "steps": 200, "runs": 2},
    run=run_noise,
    draw=lambda data, s: planes.driving_noise(data),
    claims=(
        Claim(
            "Without σ_A, or with σ_A below 1e-3, no better than chance",
            chance_without,
            "no better than random",
        ),
        Claim("A band of σ_A an order of magnitude wide works", band, "near 100 % at σ_A = 0.04"),
        Claim("It is agnostic to τ₁ while that is small", agnostic),
        Claim("Too hot fails", too_hot),
    ),
    notes="The start is N(0, 0.01²), as for the classifiers of the same problem.",
)


def run_lol(s: Settings, tell: Tell) -> xr.Dataset:
    """LOL over τ₁."""
    made = complete(
        sweep(
            four_turns(s),
            Dense((s.units,), init=s.init),
            LOL(h=0.8, gamma=1.0, tau=list(s.taus)),
            steps=s.steps,
            batch=s.points // 50,
            repeats=s.runs,
            record=2,
            progress=tell,
            seed=s.seed,
        )
    )
    return xr.Dataset(scores(made) | planes.maps(made, {"tau": [s.taus[0], *s.taus[-5:]]}))


def best_tau(data: xr.Dataset) -> float:
    """The temperature with the highest mean accuracy."""
    return float(max(data["tau"].values, key=lambda tau: final(data, tau=tau).mean()))


def rises_to_best(data: xr.Dataset) -> Finding:
    """The best temperature against none."""
    best = best_tau(data)
    gain = mean(final(data, tau=best) - final(data, tau=0.0))
    told = (
        f"best at τ = {best:g}: {mean(final(data, tau=best)).percent()}; {gain.told(100)} points above τ = 0"
    )
    return Finding(told, above(gain) if best > 0 else FAILS)


def then_falls(data: xr.Dataset) -> Finding:
    """The best temperature against the hottest."""
    best, hot = best_tau(data), float(data["tau"].values.max())
    loss = mean(final(data, tau=best) - final(data, tau=hot))
    told = f"{mean(final(data, tau=hot)).percent()} at τ = {hot:g}, {loss.told(100)} points below the best"
    return Finding(told, above(loss) if best < hot else FAILS)


def unusable(data: xr.Dataset) -> Finding:
    """The accuracy at τ = 1e-3."""
    found = mean(final(data, tau=1e-3))
    return Finding(found.percent(), below(found, 0.6))


LOL_TEMPERATURE = Experiment(
    name="lol-temperature",
    title="LOL at several temperatures",
    settings={
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
    draw=lambda data, s: planes.temperature(data, four_turns(s), square=True),
    claims=(
        Claim("Accuracy rises with τ to a best value", rises_to_best, "best at τ = 1e-5"),
        Claim("Beyond it accuracy falls", then_falls),
        Claim("Unusable at τ = 1e-3", unusable, "unusable"),
    ),
    notes="γ₁ = 1, h = 0.8 on the 4-turn spiral.",
)
