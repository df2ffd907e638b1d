"""Maps over coefficients: the driving noise of AdLaLa, and the temperature of LOL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from heatbath import plotting
from heatbath.datasets import Problem, spirals
from heatbath.diagnostics.statistics import bootstrap, student
from heatbath.methods import AdaptiveLangevin, Langevin
from heatbath.methods.partition import Partition
from heatbath.methods.presets import LOL
from heatbath.paper.claims import FAILS, HOLDS, IN_PART, Claim, Finding, above, all_of, below
from heatbath.paper.experiment import Experiment, ReportTable, Settings, Tell
from heatbath.paper.figures import temperatures, whole
from heatbath.paper.interpretations import by_reading
from heatbath.paper.side_by_side import final, maps, over_grid, scores
from heatbath.plotting.style import PAGE_WIDTH, SMALL_SIZE, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CHANCE = 0.55  # no better than chance, up to the noise of the runs
BETTER = 0.05  # what the driving noise must gain to matter
COLD = 1.01e-4  # up to this τ₁ is small


def four_turns(s: Settings) -> Problem:
    """The spirals."""
    return spirals(4, n_train=s.points, n_test=s.points, draws=s.runs)


def run_noise(s: Settings, tell: Tell) -> xr.Dataset:
    """AdLaLa over τ₁ and σ_A; with fewer runs, under other readings of its adaptive part, too."""
    here = _noise_map(s, tell)
    few = Settings(**vars(s) | {"runs": s.reading_runs})
    accuracies = {"as run here": here["accuracy"].isel(run=slice(s.reading_runs))}
    for name, options in s.readings.items():
        accuracies[name] = _noise_map(few, tell, **options)["accuracy"]
    return here.assign(readings=by_reading(accuracies).rename(run="reading_run"))


def _noise_map(s: Settings, tell: Tell, **options: Any) -> xr.Dataset:
    hidden = AdaptiveLangevin(list(s.taus), list(s.sigmas), s.epsilon, **options)
    method = Partition({"hidden": hidden, "output": Langevin(s.gamma, s.tau_output)}, s.h)
    run = over_grid(s, tell, four_turns(s), method, record=1)
    results = {name: values.squeeze("record") if "record" in values.dims else values
               for name, values in scores(run).items()}  # fmt: skip
    short = {axis: axis.rpartition(".")[2] for axis in run.plan.axes}
    return xr.Dataset(results).rename(short).rename(tau="tau1")


def cold(data: xr.Dataset) -> list[float]:
    """The small τ₁."""
    return [float(tau) for tau in data["tau1"].values if tau <= COLD]


def best_sigma(data: xr.Dataset) -> float:
    """The σ_A with the highest mean accuracy over runs and small τ₁."""
    table = data["accuracy"].sel(tau1=cold(data)).mean(["run", "tau1"])
    return float(table["sigma"].values[int(table.values.argmax())])


def chance_without(data: xr.Dataset) -> Finding:
    """For every small τ₁, the best of the weakest noises."""
    weak = [sigma for sigma in data["sigma"].values if sigma < 1e-3]
    best = {
        tau: max((student(final(data, tau1=tau, sigma=x)) for x in weak), key=lambda m: m.value)
        for tau in cold(data)
    }
    text = ", ".join(f"{mean.percent()} at τ₁ = {tau:g}" for tau, mean in best.items())
    return Finding(f"at most {text}", all_of(*(below(mean, CHANCE) for mean in best.values())))


def band(data: xr.Dataset) -> Finding:
    """For every small τ₁, from which σ_A to which the accuracy is clearly above that without noise."""
    texts, verdicts = [], []
    for tau in cold(data):
        none = final(data, tau1=tau, sigma=0.0)
        gains = {
            float(x): student(final(data, tau1=tau, sigma=x) - none) for x in data["sigma"].values if x > 0
        }
        good = [x for x, gain in gains.items() if above(gain, BETTER) == HOLDS]
        width = float(np.log10(max(good) / min(good))) if good else 0.0
        texts.append(
            f"{min(good):g} to {max(good):g} at τ₁ = {tau:g}" if good else f"nowhere at τ₁ = {tau:g}"
        )
        verdicts.append(HOLDS if width >= 0.99 else IN_PART if width > 0.3 else FAILS)
    sigma = best_sigma(data)
    best = student(data["accuracy"].sel(sigma=sigma, tau1=cold(data)).mean("tau1"))
    return Finding(f"{', '.join(texts)}; best {best.percent()} at σ_A = {sigma:g}", all_of(*verdicts))


def agnostic(data: xr.Dataset) -> Finding:
    """The range over small τ₁ of the accuracy at the best σ_A: at most five points."""
    sigma = best_sigma(data)
    values = data["accuracy"].sel(sigma=sigma, tau1=cold(data)).transpose("run", "tau1").values
    width = bootstrap(lambda x: float(np.ptp(x.mean(axis=0))), values)
    return Finding(f"{width.text(100)} points between them at σ_A = {sigma:g}", below(width, 0.05))


def too_hot(data: xr.Dataset) -> Finding:
    """The fall from small τ₁ to the hottest, at the best σ_A: at least ten points."""
    sigma = best_sigma(data)
    hot = float(data["tau1"].values.max())
    fall = student(
        data["accuracy"].sel(sigma=sigma, tau1=cold(data)).mean("tau1") - final(data, tau1=hot, sigma=sigma)
    )
    return Finding(f"{fall.text(100)} points less at τ₁ = {hot:g}, σ_A = {sigma:g}", above(fall, 0.1))


def noise_readings(data: xr.Dataset) -> list[ReportTable]:
    """What each reading says of each claim."""
    checks = {"chance without": chance_without, "band": band, "agnostic": agnostic, "too hot": too_hot}
    rows = []
    for name in map(str, data["reading"].values):
        chosen = xr.Dataset({"accuracy": data["readings"].sel(reading=name).rename(reading_run="run")})
        sigma = best_sigma(chosen)
        best = student(chosen["accuracy"].sel(sigma=sigma, tau1=cold(chosen)).mean("tau1"))
        verdicts = [check(chosen).verdict for check in checks.values()]
        rows.append((name, f"{best.percent()} at σ_A = {sigma:g}", *verdicts))
    return [
        ReportTable(
            "The claims under other readings of the adaptive part", ("reading", "best", *checks), tuple(rows)
        )
    ]


def draw_noise(data: xr.Dataset, s: Settings) -> Figure:
    """The map over τ₁ and σ_A."""
    table = data["accuracy"].mean("run").transpose("tau1", "sigma")
    axes = panels(1, 1, width=0.8 * PAGE_WIDTH, height=0.5 * PAGE_WIDTH)
    plotting.heat_map(table.rename("accuracy").rename(tau1="tau"), ax=axes[0])
    axes[0].set_ylabel(r"$\tau_1$")
    axes[0].set_title("test accuracy in %, mean over runs", fontsize=SMALL_SIZE)
    return whole(axes)


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
    tables=noise_readings,
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
    notes="The start is N(0, 0.01²), as for the classifiers of the same problem. The grid is ours.",
)


def run_lol(s: Settings, tell: Tell) -> xr.Dataset:
    """LOL over τ₁."""
    run = over_grid(s, tell, four_turns(s), LOL(h=s.h, gamma=s.gamma, tau=list(s.taus)), record=2)
    return xr.Dataset(scores(run) | maps(run, {"tau": [s.taus[0], *s.taus[-5:]]}))


def best_tau(data: xr.Dataset) -> float:
    """The temperature with the highest mean accuracy."""
    return float(max(data["tau"].values, key=lambda tau: final(data, tau=tau).mean()))


def rises_to_best(data: xr.Dataset) -> Finding:
    """The best temperature against none."""
    best = best_tau(data)
    gain = student(final(data, tau=best) - final(data, tau=0.0), of=len(data["tau"]) - 1)
    text = f"best at τ = {best:g}: {student(final(data, tau=best)).percent()}; "
    text += f"{gain.text(100)} points above τ = 0"
    return Finding(text, above(gain) if best > 0 else FAILS)


def then_falls(data: xr.Dataset) -> Finding:
    """The best temperature against the hottest."""
    best, hot = best_tau(data), float(data["tau"].values.max())
    loss = student(final(data, tau=best) - final(data, tau=hot), of=len(data["tau"]) - 1)
    text = f"{student(final(data, tau=hot)).percent()} at τ = {hot:g}, {loss.text(100)} points below the best"
    return Finding(text, above(loss) if best < hot else FAILS)


def unusable(data: xr.Dataset) -> Finding:
    """The accuracy at τ = 1e-3."""
    accuracy = student(final(data, tau=1e-3))
    return Finding(accuracy.percent(), below(accuracy, 0.6))


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
    draw=lambda data, s: temperatures(data, four_turns(s), square=True),
    claims=(
        Claim("Accuracy rises with τ to a best value", rises_to_best, "best at τ = 1e-5"),
        Claim("Beyond it accuracy falls", then_falls),
        Claim("Unusable at τ = 1e-3", unusable, "unusable"),
    ),
    notes="4-turn spiral, 1000 examples, 2 % batches, torch's start, τ₂ = 0, eight runs; maps of the first.",
)
