"""What a search over runs has found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from heatbath.partition import Partition
from heatbath.runs.run import Run
from heatbath.tuning.trials import Trials


@dataclass(frozen=True, eq=False, repr=False)
class Tuned(Trials):
    """What `tune` has found: the best `partition`, and all that was tried.

    `lasts` are the runs of those that came furthest in each round of the search and, in the end, of those
    that were run again: comparisons on the training examples without those for validation. `run` is that of
    the best.
    """

    lasts: Sequence[Run]

    @property
    def partition(self) -> Partition:
        """The best partition of all."""
        return self.partitions[self.winner]

    @property
    def partitions(self) -> dict[str, Partition]:
        """The best partition of each method, by name: what `compare` takes."""
        return {name: trial.candidate.made for name, trial in self.best.items()}

    @property
    def run(self) -> Run:
        """The run of the best, as far as it came."""
        name = self.best[self.winner].name
        for last in reversed(self.lasts):
            if name in last.plan.named:
                return last.select(method=name)
        raise ValueError(
            f"the run of {name} was not kept: it had been dropped, those that were better have diverged, and "
            "Ctrl-C ended the search. Train with its partition, or search again"
        )
