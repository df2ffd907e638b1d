"""`Found`: the record of what a run found by itself, such as its stepsize, its prior and its length."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from heatbath._internal.checks import POSITIVE, choice, real, reals, store, whole

Ended = Literal["converged", "budget", ""]

REASONS = {  # why a run has as many steps as it has, in words
    "converged": "the predictions converged",
    "budget": "the budget was spent before the predictions converged; refine allows more",
}


@dataclass(frozen=True)
class Found:
    """What `train` found for h="auto", steps="auto" or a posterior with prior="auto".

    Attributes
    ----------
    tried : sequence of pairs
        The stepsizes that were tried, each with its temperature as a share of τ; NaN if a chain diverged.
    temperature, error : float
        The temperature of the run's own samples and its standard error, as shares of τ.
    ended : str
        Why the run has as many steps as it has: "converged", or "budget" if that was spent; "" if the number
        of steps was given.
    rhat, ess : float
        The worst R-hat of the predictions and their median effective sample size; NaN if the number of steps
        was given.
    restarts : int
        The number of times that the run was started again with a smaller stepsize as it was far too hot.
    priors : sequence of tuples
        The standard deviations of the prior, one for each layer: the first ones, and those after every round
        that found others. The last are those of the run. Empty if the prior was given.
    begun : str
        A checksum of the start that was given, if the prior was found and a start was given.
    """

    tried: Sequence[Sequence[float]] = ()
    temperature: float = math.nan
    error: float = math.nan
    ended: Ended = ""
    rhat: float = math.nan
    ess: float = math.nan
    restarts: int = 0
    priors: Sequence[Sequence[float]] = ()
    begun: str = ""

    def __post_init__(self) -> None:
        """Check all fields, and store numbers as float, NaN for None, and sequences as tuples."""
        trials = tuple(
            (real("found: h", h, POSITIVE), _number_or_nan("found: a temperature", temperature))
            for h, temperature in self.tried
        )
        store(
            self,
            tried=trials,
            temperature=_number_or_nan("found: temperature", self.temperature),
            error=_number_or_nan("found: error", self.error),
            rhat=_number_or_nan("found: rhat", self.rhat),
            ess=_number_or_nan("found: ess", self.ess),
            restarts=whole("found: restarts", self.restarts, low=0),
            priors=tuple(reals("found: a prior", layers, POSITIVE) for layers in self.priors),
        )
        choice("found: ended", self.ended, get_args(Ended))
        if not isinstance(self.begun, str):
            raise TypeError(f"found: begun must be text, got {self.begun!r}")

    def plain(self) -> dict[str, Any]:
        """Return all fields as plain values, with None for NaN; `Found(**values)` restores them."""
        values = {name: _none_if_nan(value) for name, value in asdict(self).items()}
        tried = [[h, _none_if_nan(temperature)] for h, temperature in self.tried]
        return values | {"tried": tried, "priors": [list(layers) for layers in self.priors]}

    def without_results(self) -> Found:
        """Return what stays true when the run continues: the stepsizes and priors that were tried."""
        return Found(self.tried, restarts=self.restarts, priors=self.priors, begun=self.begun)

    def summary(self) -> str:
        """Describe the stepsizes, the prior, the temperature and the length in words, each in a line.

        What is not known has no line.
        """
        lines = []
        if self.tried:
            stepsizes = ", ".join(f"{h:.3g}" for h, _ in self.tried)
            lines.append(f"h was tried at {stepsizes}")

        if self.priors:
            deviations = ", ".join(f"{deviation:.3g}" for deviation in self.priors[-1])
            line = f"prior: standard deviations {deviations}"
            if len(self.priors) == 1:
                line += ", as at first (too few steps, or too hot, to find others)"
            lines.append(line)

        if math.isfinite(self.temperature):
            lines.append(f"temperature: {self.temperature:.2f} ± {self.error:.2f} of τ")

        if self.ended:
            reason = REASONS[self.ended]
            lines.append(f"steps: {reason} (R-hat {self.rhat:.3f}, ESS {self.ess:.0f})")
        return "\n".join(lines)


def _number_or_nan(label: str, value: float | None) -> float:
    """Return a checked number, or NaN for an unknown one, which is NaN in memory and None in a file."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return math.nan
    return real(label, value)


def _none_if_nan(value: object) -> object:
    """Return None for NaN, which JSON does not have, and everything else as it is."""
    return None if isinstance(value, float) and math.isnan(value) else value
