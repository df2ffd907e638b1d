"""Every warning class of the library, and `warn`, which warns at the line of the user's code."""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass


from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass


from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass


from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass


from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass


from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass


class DivergedWarning(RuntimeWarning):
    """Some chains are no longer finite, and have been stopped; the others continue."""


class StaleNoiseWarning(RuntimeWarning):
    """A run is too short for the noise of the data to be drawn: it stays as it starts."""


class InterruptedWarning(RuntimeWarning):
    """Ctrl-C has ended a run before its last step: what it returns can be resumed."""


def warn(message: str | Warning, kind: type[Warning] = RuntimeWarning) -> None:
    """Warn at the line outside this package that has begun the run, through however many calls."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "heatbath":
        frame, level = frame.f_back, level + 1
    warnings.warn(message, kind, stacklevel=level)


class OffTemperatureWarning(RuntimeWarning):
    """A run is not at the temperature that it should have: it samples another law."""


class NotConvergedWarning(RuntimeWarning):
    """The chains of a sampler do not agree yet, or have too few independent samples: it should go on."""


class UnstableThermostatWarning(RuntimeWarning):
    """The stepsize times the frequency of a thermostat has come to 2 or more: ξ will swing without bound."""


class WorseThanSingleWarning(RuntimeWarning):
    """What samples say together is worse than what the single network says, by more than chance."""


class StaleStatisticsWarning(RuntimeWarning):
    """Samples whose batch norms have running means over other parameters than theirs."""


class SearchEdgeWarning(UserWarning):
    """The best values of a coefficient lie at an end of its range: better ones may lie beyond."""


class UnforeseenDataWarning(RuntimeWarning):
    """New data have what training did not have: they are read, and should be looked at."""


class CoarseStepsWarning(UserWarning):
    """The steps are near the edge of stability: h²k/4 was above one half, k being a curvature that was met.

    Up to there the law is nearly right. From there on chains may make excursions that are rare and large:
    they raise the coefficient, and neither its interval nor the temperatures have to show it.
    """


class UntrackedWarning(RuntimeWarning):
    """A tracker cannot be written: the run goes on without it."""


class DifferentBitsWarning(RuntimeWarning):
    """Blocks were computed on computers or with versions that may round otherwise."""
