"""Define an experiment: its settings, a function that runs it, claims, a picture and tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, TypeAlias

import xarray as xr

from heatbath.paper.claims import Claim
from heatbath.plotting.style import Axes, Figure
from heatbath.runs.progress import Progress

ProgressCallback: TypeAlias = Callable[[Progress], None] | None  # called with the progress of a run
Settings: TypeAlias = SimpleNamespace


@dataclass(frozen=True)
class ReportTable:
    """A table of the report: its title, and rows with one text for each column."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Experiment:
    """One of the paper's experiments.

    Functions that are only needed for drawing have names that begin with draw: if one of them changes,
    results stay valid and aren't computed again (see `runner.fingerprint`).

    Attributes
    ----------
    name, title : str
        Short name on the command line, and title in the report.
    settings : mapping
        Settings of a full run.
    quick : mapping
        Settings that differ in a quick run.
    run : callable
        Computes a data set from the settings. Claims, picture and tables use nothing else.
    draw : callable
        Draws the picture from the data set and the settings, and returns it or one of its panels.
    claims : tuple of Claim
        The paper's claims.
    tables : callable
        Returns the tables of the report for a data set.
    notes : str
        Choices where the paper gives no setting, and their reasons.
    """

    name: str
    title: str
    settings: Mapping[str, Any]
    quick: Mapping[str, Any]
    run: Callable[[Settings, ProgressCallback], xr.Dataset]
    draw: Callable[[xr.Dataset, Settings], Figure | Axes]
    claims: tuple[Claim, ...] = ()
    tables: Callable[[xr.Dataset], list[ReportTable]] = field(default=lambda data: [])
    notes: str = ""

    def settings_for(self, quick: bool) -> dict[str, Any]:
        """Return the settings of a full or a quick run."""
        unknown = set(self.quick) - set(self.settings)
        if unknown:
            raise ValueError(f"{self.name}: there is no setting {', '.join(sorted(unknown))}")
        return dict(self.settings) | (dict(self.quick) if quick else {})
