"""Compare the kinetic temperature of every part with its τ, and explain the difference by gradient noise.

Letters: τ is the temperature of a part, p its momenta, N its number of parameters, ξ the friction of its
thermostat, γ its friction, s² the variance of the gradient noise.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import xarray as xr

from heatbath import plotting
from heatbath.diagnostics import adaptive_friction, gradient_heating, gradient_noise, kinetic_heating
from heatbath.diagnostics.statistics import Measured, student
from heatbath.methods import AdaptiveLangevin, Langevin
from heatbath.methods.partition import Part, Partition
from heatbath.methods.presets import LOL, AdLAdL, LaLa
from heatbath.paper.claims import Claim, Finding, combine_verdicts, judge_near
from heatbath.paper.experiment import Experiment, ProgressCallback, ReportTable, Settings
from heatbath.paper.side_by_side import adlala, spirals_of, train_side_by_side
from heatbath.plotting import style
from heatbath.plotting.style import Axes
from heatbath.runs.run import Run

EXPLANATION = (
    "Kinetic temperature p·p/N where the thermostat reads it (before O, at E), over the second half. "
    "White gradient noise of variance s² heats the momenta of a Langevin part before O to τ + h²s²/(1 - a²), "
    "a = exp(-γh), and its positions to τ + (h²s²/4) coth(γh/2), both in the limit of small h²k; the paper's "
    "τ + hs²/(2γ) is the limit of small γh. An adaptive part takes the heat out by its friction, γ_eff = "
    "(hs² + σ²)/(2τ) for small h, so that its temperature is τ. The rest of the difference comes from heat "
    "flow between parts at unequal temperatures, from curvature, and from noise that is not white or was "
    "larger during the run than at its end"
)
EXPLANATION_COLUMNS = (
    "part",
    "τ",
    "temperature",
    "over τ",
    "s² at the end",
    "friction γ or mean ξ",
    "explained by gradient noise",
    "of positions",
)
MAX_RATIO = 1.5  # temperature over τ of a part that is controlled; three times that counts in part


def run(settings: Settings, progress: ProgressCallback) -> xr.Dataset:
    """Train every method; return temperatures over the second half and the final gradient noise, by part.

    `settings` has sizes and `methods`, partitions by name; `progress` is called with the progress of each
    training.
    """
    problem = spirals_of(settings, 2)
    records: dict[str, Any] = {"record": settings.records, "losses_every": settings.records}
    parts = []
    for name, method in settings.methods.items():
        trained = train_side_by_side(settings, progress, problem, method, **records)
        parts += [_part_temperature(name, trained, part) for part in trained.plan.parts()]
    return xr.concat(parts, dim="part")


def _part_temperature(name: str, run: Run, part: Part) -> xr.Dataset:
    """Return a part's kinetic temperature over the second half of a run, and what gradient noise explains.

    Parameters
    ----------
    name : str
        Name of the method, for the label of the part.
    run : Run
        A run with recorded temperatures.
    part : Part
        A part of it, with Langevin or Adaptive Langevin dynamics.

    Returns
    -------
    Dataset
        `temperature` by run, as a mean over records. For the part: `tau`; `gradient_noise`, its variance at
        the end; `friction`, γ or the mean ξ; `explained`, the temperature (Langevin) or the friction
        (adaptive) that gradient noise explains; `positions`, the temperature of the positions that it
        explains (Langevin only, else NaN); and `adaptive`, 1 for an adaptive part.
    """
    in_second_half = run.data["step"].values > run.step // 2
    temperature = run.data["temperature"].sel(part=part.name).isel(record=in_second_half).mean("record")
    method: Any = part.method
    h = float(run.partition.h)  # type: ignore[arg-type, union-attr]
    tau = float(method.tau)
    noise = float(gradient_noise(run).sel(part=part.name).mean("chain"))

    is_adaptive = isinstance(method, AdaptiveLangevin)
    if is_adaptive:
        friction = float(run.xi(part.name).isel(record=in_second_half).mean())
        explained = adaptive_friction(h, tau, float(method.sigma), noise)
        positions = math.nan
    else:
        friction = float(method.gamma)
        explained = tau + kinetic_heating(h, friction, noise)
        positions = tau + gradient_heating(h, friction, noise)

    return xr.Dataset(
        {
            "temperature": ("run", temperature.values),
            "adaptive": int(is_adaptive),
            "tau": tau,
            "gradient_noise": noise,
            "friction": friction,
            "explained": explained,
            "positions": positions,
        },
        coords={"part": f"{name}: {part.name}"},
    )


def temperature_ratio(data: xr.Dataset, part: str) -> Measured:
    """Return the mean ratio of a part's temperature to its τ, over the runs that have not diverged."""
    of_part = data.sel(part=part)
    temperatures = of_part["temperature"].values
    return student(temperatures[np.isfinite(temperatures)] / float(of_part["tau"]))


def judge_ratio(over_tau: Measured) -> str:
    """Return the verdict that a ratio is near 1; in part, up to three times that factor."""
    return judge_near(over_tau, MAX_RATIO, 3 * MAX_RATIO)


def temperature_claim(method: str) -> Claim:
    """Return the claim that the parts of a method with τ > 0 are near their temperature."""

    def check(data: xr.Dataset) -> Finding:
        """Judge the ratio of temperature to τ of each part whose label begins with the method's name."""
        parts = [str(part) for part in data["part"].values if str(part).startswith(f"{method}:")]
        warm = [part for part in parts if float(data["tau"].sel(part=part)) > 0]
        ratios = {part: temperature_ratio(data, part) for part in warm}
        text = "; ".join(f"{part.partition(': ')[2]} {x.text(digits=2)} τ" for part, x in ratios.items())
        return Finding(text, combine_verdicts(*map(judge_ratio, ratios.values())))

    return Claim(f"{method}: the squared momenta are approximately controlled by τ", check, "approximately")


def explanation_table(data: xr.Dataset) -> list[ReportTable]:
    """Return the table of temperatures and of what gradient noise explains, alone in a list."""
    rows = (_explanation_row(data.sel(part=part)) for part in data["part"].values)
    return [ReportTable(EXPLANATION, EXPLANATION_COLUMNS, tuple(rows))]


def _explanation_row(data: xr.Dataset) -> tuple[str, ...]:
    """Return the texts of one part's row, in the order of EXPLANATION_COLUMNS.

    `data` is what `_part_temperature` returns. Runs that have diverged don't count.
    """
    temperatures = data["temperature"].values
    mean = student(temperatures[np.isfinite(temperatures)])
    tau = float(data["tau"])
    explained = float(data["explained"])
    if data["adaptive"]:
        explained_text = f"γ_eff = {explained:.3g}"
        positions_text = ""
    else:
        explained_text = f"{explained:.2e}"
        positions_text = f"{float(data['positions']):.2e}"
    return (
        str(data["part"].values),
        f"{tau:.0e}",
        f"{mean.value:.2e} ({mean.low:.2e} to {mean.high:.2e})",
        f"{mean.value / tau:.2f}" if tau else "",
        f"{float(data['gradient_noise']):.2e}",
        f"{float(data['friction']):.3g}",
        explained_text,
        positions_text,
    )


def draw(data: xr.Dataset, settings: Settings) -> Axes:
    """Draw the ratio of temperature to τ of every part with τ > 0, with its 95 % interval."""
    warm = data.isel(part=np.flatnonzero(data["tau"].values > 0))
    rows = []
    for part in map(str, warm["part"].values):
        ratio, low, high = temperature_ratio(warm, part)
        rows.append(plotting.Score(part, ratio, (low, high)))
    axes = style.panels(1, 1, width=0.8 * style.PAGE_WIDTH, height=1.2 + 0.26 * len(rows))
    plotting.scores(rows, "kinetic temperature / τ", ax=axes[0])
    axes[0].axvline(1.0, color="black", linewidth=0.8, linestyle=":")
    axes[0].set_xscale("log")
    return axes[0]


EXPERIMENT = Experiment(
    name="equipartition",
    title="Equipartition: kinetic temperatures beside τ",
    settings={
        "units": 20,
        "points": 500,
        "batch": 25,
        "steps": 40_000,
        "runs": 10,
        "seed": 0,
        "init": "torch",
        "records": 2000,
        "methods": {
            "Langevin": Partition(Langevin(1.0, 1e-4), 0.1),
            "LaLa": LaLa(0.1, 0.5, 1e-4, 2.0, 1e-5),
            "LOL": LOL(h=0.1, gamma=0.01, tau=1e-3),
            "LOL, τ₂ = 1e-4": LOL(h=0.1, gamma=0.01, tau=1e-3, tau_output=1e-4),
            "AdLaLa": adlala(0.25, 0.5),
            "AdLAdL": AdLAdL(h=0.1),
            "AdLaLa, τ₂ = 1e-6": adlala(0.25, 0.5, tau_output=1e-6),
        },
    },
    quick={"points": 100, "batch": 5, "steps": 400, "runs": 2, "records": 40},
    run=run,
    draw=draw,
    claims=(temperature_claim("AdLaLa"), temperature_claim("LOL")),
    tables=explanation_table,
    notes=(
        "The paper's LOL has τ₂ = 0; here it is 1e-4, so that its output layer has a temperature as well."
    ),
)
