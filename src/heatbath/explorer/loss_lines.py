"""Compute losses on lines in parameter space: from start to end of each run, and between both runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from heatbath.analysis import landscape
from heatbath.datasets.problem import Floats
from heatbath.explorer.messages import round_for_display
from heatbath.explorer.settings import PageSettings

POINT_COUNTS = (61, 31, 13)  # points on a line, finest first; each includes both ends, at 0 and 1
LINE_ENDS = (-0.25, 1.25)  # positions; the networks are at 0 and 1
LINE_COUNT = 3
MAX_COST = 3e9  # parameters x examples x points: about a second on one core


Split: TypeAlias = Literal["train", "test"]


class RunStates(NamedTuple):
    """Parameters of all chains of a run, (chain, parameter): at its start and now."""

    start: Floats
    end: Floats


def losses_on_lines(settings: PageSettings, states: Mapping[str, RunStates], chain: int) -> dict[str, Any]:
    """Return losses on the lines between the starts and ends of both runs.

    Lines have fewer points where networks and data are large.

    Parameters
    ----------
    settings : PageSettings
        Problem and network of both runs.
    states : mapping from run name to RunStates
        Parameters of runs "A" and "B".
    chain : int
        Index of the chain whose parameters are the ends of the lines.

    Returns
    -------
    dict
        By line ("start-A", "start-B", "A-B"): positions `at`, where 0 and 1 are its ends, and losses by
        split.
    """
    positions = np.linspace(*LINE_ENDS, _point_count(settings))
    shown_positions = [round_for_display(position) for position in positions]
    ends = {name: run.end[chain] for name, run in states.items()}
    starts = {name: run.start[chain].astype(ends[name].dtype) for name, run in states.items()}
    lines = {
        "start-A": (starts["A"], ends["A"]),
        "start-B": (starts["B"], ends["B"]),
        "A-B": (ends["A"], ends["B"]),
    }

    problem = settings.problem
    splits: tuple[Split, ...] = ("train", "test") if problem.X_test.size else ("train",)
    losses_by_line: dict[str, Any] = {}
    for name, (theta_a, theta_b) in lines.items():
        losses_by_line[name] = {"at": shown_positions}
        for split in splits:
            line = landscape.line(problem, settings.network, theta_a, theta_b, positions, split, threads=1)
            losses = line["loss"].values.tolist()
            losses_by_line[name][split] = [round_for_display(loss) for loss in losses]
    return losses_by_line


def _point_count(settings: PageSettings) -> int:
    """Return the largest of POINT_COUNTS that doesn't cost more than MAX_COST, or else the smallest."""
    problem = settings.problem
    examples = problem.X_train.shape[1] + problem.X_test.shape[1]
    cost_per_point = LINE_COUNT * examples * settings.network.parameters(2, 1)
    for point_count in POINT_COUNTS:
        if point_count * cost_per_point <= MAX_COST:
            return point_count
    return POINT_COUNTS[-1]
