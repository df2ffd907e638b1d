"""Which runs diagnostics take: any, or those with one method for all their chains."""

from __future__ import annotations

from heatbath.results import Run


def check_run(run: object) -> None:
    """Refuse what is not a run."""
    if not isinstance(run, Run):
        raise TypeError(f"run must be a Run, as train and load give it, got {run!r}")


def check_single(run: Run) -> None:
    """Refuse what is not a run with one method for all its chains."""
    check_run(run)
    if len(run.plan.points) > 1:
        axes = ", ".join(run.plan.axes)
        raise ValueError(
            f"the chains of this run differ in {axes}: choose one point, as in run.select({axes}=...)"
        )
