"""`Progress`: what a `progress=` function is called with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from heatbath.runs.run import Run


@dataclass(frozen=True)
class Progress:
    """How far a run has come: `progress=` functions are called with one about ten times a second.

    Attributes
    ----------
    step, steps : int
        The number of steps made, and of all steps.
    seconds : float
        The time since this call began.
    loss, accuracy : float
        Means over the chains on the test examples (on the training examples if there are none) at the last
        record.
    temperature : dict
        The current kinetic temperature by part, a mean over the chains.
    first : int
        The step at which this call began.
    finding : bool
        True in short runs that find something for the run itself.
    run : Run or None
        The run so far, at the end of each round after which a run that finds its length continues.

    Examples
    --------
    >>> import heatbath as hb
    >>> problem = hb.datasets.spirals(n_train=50, n_test=20)
    >>> seen = []
    >>> run = hb.train(problem, hb.MLP((5,)), hb.AdLaLa(), steps=100, record=1, progress=seen.append)
    >>> seen[-1].step, seen[-1].steps
    (100, 100)
    """

    step: int
    steps: int
    seconds: float
    loss: float
    temperature: dict[str, float]
    first: int = 0
    accuracy: float = float("nan")
    finding: bool = False
    run: Run | None = None

    @property
    def speed(self) -> float:
        """Steps per second."""
        return (self.step - self.first) / self.seconds if self.seconds > 0 else 0.0

    @property
    def left(self) -> float:
        """Seconds until the last step, at the present speed."""
        return (self.steps - self.step) / self.speed if self.speed > 0 else float("inf")
