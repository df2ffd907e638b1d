"""`Progress`: what a `progress=` function is called with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from heatbath.runs.run import Run


@dataclass(frozen=True)
class Progress:
    """How far a run has come: what `progress` is called with, about ten times a second.

    `loss` and `accuracy` are means over the chains on the test examples (on those for training, if there are
    no others) at the last record, and `temperature` their mean kinetic temperature by part, now. `first` is
    the step at which this call began. Short runs that find something for the run say `finding`. A run that
    finds its length tells at the end of each round after which it goes on what it is by then, `run`.
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
        """Seconds to go."""
        return (self.steps - self.step) / self.speed if self.speed > 0 else float("inf")
