"""What a run found out by itself: its stepsize, how hot that is, its prior, and how long it had to be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from heatbath._internal.checks import POSITIVE, choice, real, reals, store, whole

Ended = Literal["converged", "budget", ""]


@dataclass(frozen=True)
class Found:
    """What `train` found for h="auto", steps="auto" or a posterior with prior="auto".

    - `tried`: stepsizes, and the temperature of each as a share of τ; NaN where a chain diverged.
    - `temperature`, `error`: that of the run's own samples and its standard error, as shares of τ.
    - `restarts`: how often it began anew at a smaller stepsize since it was far too hot.
    - `ended`: why it made as many steps as it did: "converged", or the "budget" was spent; "" where the
      number was given.
    - `rhat`, `ess`: the worst R-hat of the predictions and their median effective sample size; NaN where the
      number of steps was given.
    - `priors`: the standard deviations of the prior, one for each layer: those at first, and after every
      round in which others were found; the last are those of the run. Empty where the prior was given.
    - `begun`: where the prior was found, a checksum of the start that was given, if one was.
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
        rungs = []
        for h, temperature in self.tried:
            rungs.append((real("found: h", h, POSITIVE), _number("found: a temperature", temperature)))
        store(self, tried=tuple(rungs))
        for name in ("temperature", "error", "rhat", "ess"):
            store(self, **{name: _number(f"found: {name}", getattr(self, name))})
        store(self, restarts=whole("found: restarts", self.restarts, low=0))
        store(self, priors=tuple(reals("found: a prior", layers, POSITIVE) for layers in self.priors))
        choice("found: ended", self.ended, get_args(Ended))
        if not isinstance(self.begun, str):
            raise TypeError(f"found: begun must be text, got {self.begun!r}")

    def plain(self) -> dict[str, Any]:
        """As plain values, None for NaN: `Found(**values)` is this again."""
        values = {name: _plain(value) for name, value in asdict(self).items()}
        tried = [[h, _plain(temperature)] for h, temperature in self.tried]
        return values | {"tried": tried, "priors": [list(layers) for layers in self.priors]}

    def without_results(self) -> Found:
        """Return what stays true when the run continues: the stepsizes and priors that were tried."""
        return Found(self.tried, restarts=self.restarts, priors=self.priors, begun=self.begun)

    def summary(self) -> str:
        """In words."""
        lines = []
        if self.tried:
            lines.append(f"h was tried at {', '.join(f'{h:.3g}' for h, _ in self.tried)}")
        if self.priors:
            sought = (
                "" if len(self.priors) > 1 else ", as at first (too few steps, or too hot, to find others)"
            )
            deviations = ", ".join(f"{deviation:.3g}" for deviation in self.priors[-1])
            lines.append(f"prior: standard deviations {deviations}{sought}")
        if math.isfinite(self.temperature):
            lines.append(f"temperature: {self.temperature:.2f} ± {self.error:.2f} of τ")
        if self.ended:
            why = "the predictions converged"
            if self.ended != "converged":
                why = "the budget was spent before the predictions converged; refine allows more"
            lines.append(f"steps: {why} (R-hat {self.rhat:.3f}, ESS {self.ess:.0f})")
        return "\n".join(lines)


def _number(label: str, given: float | None) -> float:
    """A number that may be unknown, which is NaN, or None in a file."""
    if given is None or (isinstance(given, float) and not math.isfinite(given)):
        return math.nan
    return real(label, given)


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value
