"""What an experiment is: settings, a run on the engine, claims with their verdicts, and a picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias

import xarray as xr

from heatbath.paper.claims import Claim
from heatbath.runs.progress import Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Tell: TypeAlias = Callable[[Progress], None] | None
Settings: TypeAlias = SimpleNamespace


@dataclass(frozen=True)
class ReportTable:
    """A table of the report."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Experiment:
    """One row of the paper's experiments.

    `run` makes a data set from the settings, which is all that the claims, the picture and the tables look
    at. `quick` are the settings that differ in a quick run; `notes` says what was chosen where the paper is
    silent, and why. `draw`, and what else only drawing needs, has a name that begins with draw: a change
    there leaves the results as they are, and they are not computed again (see `runner.fingerprint`).
    """

    name: str
    title: str
    settings: Mapping[str, Any]
    quick: Mapping[str, Any]
    run: Callable[[Settings, Tell], xr.Dataset]
    draw: Callable[[xr.Dataset, Settings], Figure]
    claims: tuple[Claim, ...] = ()
    tables: Callable[[xr.Dataset], list[ReportTable]] = field(default=lambda data: [])
    notes: str = ""

    def chosen(self, quick: bool) -> dict[str, Any]:
        """The settings of a run."""
        if unknown := set(self.quick) - set(self.settings):
            raise ValueError(f"{self.name}: there is no setting {', '.join(sorted(unknown))}")
        return dict(self.settings) | (dict(self.quick) if quick else {})
