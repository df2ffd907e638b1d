"""Equipartition: the kinetic temperature of every part beside its τ, and what explains the difference."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from heatbath import plotting
from heatbath.datasets import spirals
from heatbath.diagnostics import adaptive_friction, gradient_heating, gradient_noise, kinetic_heating
from heatbath.diagnostics.statistics import Measured, student
from heatbath.methods import AdaptiveLangevin, Langevin
from heatbath.methods.partition import Part, Partition
from heatbath.methods.presets import LOL, AdLAdL, LaLa
from heatbath.models.dense import MLP
from heatbath.paper.claims import FAILS, IN_PART, Claim, Finding, all_of, within
from heatbath.paper.experiment import Experiment, ReportTable, Settings, Tell
from heatbath.paper.figures import whole
from heatbath.paper.side_by_side import adlala, complete
from heatbath.plotting.style import PAGE_WIDTH, panels
from heatbath.runs.run import Run
from heatbath.training.train import train

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXPLANATION = (
    "Kinetic temperature p·p/N where the thermostat reads it (before O, at E), over the second half. "
    "White gradient noise of variance s² heats the momenta of a Langevin part before O to τ + h²s²/(1 - a²), "
    "a = exp(-γh), and its positions to τ + (h²s²/4) coth(γh/2), both in the limit of small h²k; the paper's "
    "τ + hs²/(2γ) is the limit of small γh. An adaptive part takes the heat out by its friction, γ_eff = "
    "(hs² + σ²)/(2τ) for small h, so that its temperature is τ. What is left is heat flow between parts at "
    "unequal temperatures, curvature, and noise that is not white or was larger on the way than at the end"
)
CONTROLLED = 1.5  # approximately controlled: within this factor of τ; in part within three times it


def run(s: Settings, tell: Tell) -> xr.Dataset:
    """Every method, its temperatures over the second half, and the noise of its gradients at the end."""
    problem = spirals(2, n_train=s.points, n_test=s.points, draws=s.runs)
    parts = []
    for name, method in s.methods.items():
        trained = complete(
            train(
                problem,
                MLP((s.units,), init=s.init),
                method,
                steps=s.steps,
                batch=s.batch,
                chains=s.runs,
                record=s.records,
                progress=tell,
                seed=s.seed,
                losses_every=s.records,
            )
        )
        parts += [_part(name, trained, part) for part in trained.plan.parts()]
    return xr.concat(parts, dim="part")


def _part(name: str, run: Run, part: Part) -> xr.Dataset:
    """A part's temperature over the second half by run, and what gradient noise explains of it."""
    later = run.data["step"].values > run.step // 2
    method: Any = part.method
    h, tau = float(run.partition.h), float(method.tau)  # type: ignore[arg-type, union-attr]
    noise = float(gradient_noise(run).sel(part=part.name).mean("chain"))
    adaptive = isinstance(method, AdaptiveLangevin)
    if adaptive:
        friction = float(run.xi(part.name).isel(record=later).mean())
        explained = adaptive_friction(h, tau, float(method.sigma), noise)
    else:
        friction = float(method.gamma)
        explained = tau + kinetic_heating(h, friction, noise)
    positions = math.nan if adaptive else tau + gradient_heating(h, friction, noise)
    columns = {"tau": tau, "gradient_noise": noise, "friction": friction, "explained": explained}
    columns["positions"] = positions
    heat = run.data["temperature"].sel(part=part.name).isel(record=later).mean("record")
    return xr.Dataset(
        {"temperature": ("run", heat.values), "adaptive": int(adaptive), **columns},
        coords={"part": f"{name}: {part.name}"},
    )


def ratio(data: xr.Dataset, part: str) -> Measured:
    """The temperature of a part over its τ, over the runs that have not diverged."""
    chosen = data.sel(part=part)
    values = chosen["temperature"].values
    return student(values[np.isfinite(values)] / float(chosen["tau"]))


def judged(over_tau: Measured) -> str:
    """Whether a ratio is near 1; in part, up to three times as far."""
    verdict = within(over_tau, CONTROLLED)
    return IN_PART if verdict == FAILS and within(over_tau, 3 * CONTROLLED) != FAILS else verdict


def controlled(method: str) -> Claim:
    """The claim for the parts of a method that have a temperature."""

    def check(data: xr.Dataset) -> Finding:
        parts = [str(p) for p in data["part"].values if str(p).startswith(f"{method}:")]
        ratios = {part: ratio(data, part) for part in parts if float(data["tau"].sel(part=part)) > 0}
        text = "; ".join(f"{part.partition(': ')[2]} {x.text(digits=2)} τ" for part, x in ratios.items())
        return Finding(text, all_of(*map(judged, ratios.values())))

    return Claim(f"{method}: the squared momenta are approximately controlled by τ", check, "approximately")


def explanation(data: xr.Dataset) -> list[ReportTable]:
    """Temperatures, and what gradient noise explains."""
    rows = []
    for part in map(str, data["part"].values):
        row = data.sel(part=part)
        tau = float(row["tau"])
        values = row["temperature"].values
        heat = student(values[np.isfinite(values)])
        explained = (
            f"γ_eff = {float(row['explained']):.3g}" if row["adaptive"] else f"{float(row['explained']):.2e}"
        )
        positions = "" if row["adaptive"] else f"{float(row['positions']):.2e}"
        rows.append(
            (
                part,
                f"{tau:.0e}",
                f"{heat.value:.2e} ({heat.low:.2e} to {heat.high:.2e})",
                f"{heat.value / tau:.2f}" if tau else "",
                f"{float(row['gradient_noise']):.2e}",
                f"{float(row['friction']):.3g}",
                explained,
                positions,
            )
        )
    return [
        ReportTable(
            EXPLANATION,
            (
                "part",
                "τ",
                "temperature",
                "over τ",
                "s² at the end",
                "friction γ or mean ξ",
                "explained by gradient noise",
                "of positions",
            ),
            tuple(rows),
        )
    ]


def draw(data: xr.Dataset, s: Settings) -> Figure:
    """The temperature of every part over its τ."""
    warm = data.isel(part=np.flatnonzero(data["tau"].values > 0))
    rows = []
    for part in map(str, warm["part"].values):
        over_tau = ratio(warm, part)
        rows.append(plotting.Score(part, over_tau.value, (over_tau.low, over_tau.high)))
    axes = panels(1, 1, width=0.8 * PAGE_WIDTH, height=1.2 + 0.26 * len(rows))
    plotting.scores(rows, "kinetic temperature / τ", ax=axes[0])
    axes[0].axvline(1.0, color="black", linewidth=0.8, linestyle=":")
    axes[0].set_xscale("log")
    return whole(axes)


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
    claims=(controlled("AdLaLa"), controlled("LOL")),
    tables=explanation,
    notes=("The paper's LOL has τ₂ = 0; here it is 1e-4, so that its output layer has a temperature, too."),
)
