"""Checks of the runs that diagnostics are given (`Run` itself is defined further down the layout)."""

from __future__ import annotations

from typing import Any


def check_run(run: Any) -> None:
    """Refuse what is not a run."""
    if not all(hasattr(run, name) for name in ("plan", "data", "predict")):
        raise TypeError(f"run must be a Run, as train and load give it, got {run!r}")


def check_single(run: Any) -> None:
    """Refuse what is not a run with one method for all its chains."""
    check_run(run)
    if len(run.plan.points) > 1:
        axes = ", ".join(run.plan.axes)
        raise ValueError(
            f"the chains of this run differ in {axes}: choose one point, as in run.select({axes}=...)"
        )
