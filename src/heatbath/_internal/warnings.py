"""Define the library's warning classes, and `warn`, which points to the line of the user's code.

`DriftWarning`, which carries the result of a test, is in `diagnostics.drift`.
"""

from __future__ import annotations

import sys
import warnings
from types import FrameType


class DivergedWarning(RuntimeWarning):
    """Some chains are no longer finite and have been stopped; the others continue.

    Examples
    --------
    >>> import warnings
    >>> from heatbath import DivergedWarning
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", DivergedWarning)  # raise it as an exception
    """


class StaleNoiseWarning(RuntimeWarning):
    """A run is too short to draw the noise of the data, which keeps its initial value.

    Examples
    --------
    >>> import warnings
    >>> from heatbath import StaleNoiseWarning
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", StaleNoiseWarning)  # don't show it
    """


class InterruptedWarning(RuntimeWarning):
    """Ctrl-C has ended a run before its last step; the returned run can be resumed.

    Examples
    --------
    >>> import warnings
    >>> from heatbath import InterruptedWarning
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", InterruptedWarning)  # raise it as an exception
    """


class OffTemperatureWarning(RuntimeWarning):
    """A run is not at its intended temperature, so it samples another distribution.

    Examples
    --------
    >>> import warnings
    >>> from heatbath import OffTemperatureWarning
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", OffTemperatureWarning)  # raise it as an exception
    """


class NotConvergedWarning(RuntimeWarning):
    """The chains of a sampler disagree, or have too few independent samples: run more steps.

    Examples
    --------
    >>> import warnings
    >>> from heatbath.torch import NotConvergedWarning
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", NotConvergedWarning)  # raise it as an exception
    """


class UnstableThermostatWarning(RuntimeWarning):
    """The stepsize times the frequency of a thermostat has reached 2, so ξ oscillates without bound.

    Examples
    --------
    >>> import warnings
    >>> from heatbath.torch import UnstableThermostatWarning
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", UnstableThermostatWarning)  # raise it as an exception
    """


class WorseThanSingleWarning(RuntimeWarning):
    """The average over samples predicts worse than the single network, by more than chance.

    Examples
    --------
    >>> import warnings
    >>> from heatbath.torch import WorseThanSingleWarning
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", WorseThanSingleWarning)  # raise it as an exception
    """


class StaleStatisticsWarning(RuntimeWarning):
    """The batch norms of samples have running means that belong to other parameters.

    Examples
    --------
    >>> import warnings
    >>> from heatbath.torch import StaleStatisticsWarning
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", StaleStatisticsWarning)  # raise it as an exception
    """


class SearchEdgeWarning(UserWarning):
    """The best values of a coefficient lie at an end of its range: better ones may lie outside.

    Examples
    --------
    >>> import warnings
    >>> from heatbath import SearchEdgeWarning
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", SearchEdgeWarning)  # don't show it
    """


class UnforeseenDataWarning(RuntimeWarning):
    """New data have something that training data did not have: they are read, but check them."""


class CoarseStepsWarning(UserWarning):
    """The steps are near the edge of stability: h²k/4 was above one half for a curvature k that occurred.

    Up to that point the distribution is nearly right. Above it, chains may make rare and large excursions,
    which raise the coefficient without showing in its interval or in the temperatures.

    Examples
    --------
    >>> import warnings
    >>> from heatbath.torch import CoarseStepsWarning
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", CoarseStepsWarning)  # raise it as an exception
    """


class UntrackedWarning(RuntimeWarning):
    """A tracker cannot be written to; the run continues without it."""


class DifferentBitsWarning(RuntimeWarning):
    """Blocks were computed on computers or with versions that may round differently."""


def warn(message: str | Warning, kind: type[Warning] = RuntimeWarning) -> None:
    """Issue a warning at the line outside of heatbath and torch that has called it, directly or indirectly.

    Calls of optimisers and modules pass through functions of torch.
    """
    frame = sys._getframe(1)  # of the caller
    level = 2  # its number, counted from the call of `warnings.warn`
    while frame.f_back is not None and _top_package(frame) in ("heatbath", "torch"):
        frame = frame.f_back
        level += 1
    warnings.warn(message, kind, stacklevel=level)


def _top_package(frame: FrameType) -> str:
    """Return the name of the package, without subpackages, in which the code of a frame stands."""
    module: str = frame.f_globals.get("__name__", "")
    return module.partition(".")[0]
