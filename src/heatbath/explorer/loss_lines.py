"""Compute losses on lines in parameter space: from start to end of each run, and between both runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from heatbath.analysis import landscape
from heatbath.datasets.problem import Floats
from heatbath.explorer.messages import round_for_display
from heatbath.explorer.settings import PageSettings

POINT_COUNTS = (61, 31, 13)  # points on a line, finest first; each includes both ends, at 0 and 1
MAX_COST = 3e9  # parameters x examples x points: about a second on one core


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
    problem, network = settings.problem, settings.network
    examples = problem.X_train.shape[1] + problem.X_test.shape[1]
    cost = 3 * examples * network.parameters(2, 1)
    count = next((count for count in POINT_COUNTS if count * cost <= MAX_COST), POINT_COUNTS[-1])
    positions = np.linspace(-0.25, 1.25, count)

    ends = {name: run.end[chain] for name, run in states.items()}
    starts = {name: run.start[chain].astype(ends[name].dtype) for name, run in states.items()}
    lines = {
        "start-A": (starts["A"], ends["A"]),
        "start-B": (starts["B"], ends["B"]),
        "A-B": (ends["A"], ends["B"]),
    }

    splits: list[Literal["train", "test"]] = ["train", "test"] if problem.X_test.size else ["train"]
    message: dict[str, Any] = {}
    for name, (first, second) in lines.items():
        message[name] = {"at": [round_for_display(position) for position in positions]}
        for split in splits:
            line = landscape.line(problem, network, first, second, positions, split, threads=1)
            message[name][split] = [round_for_display(float(loss)) for loss in line["loss"].values]
    return message
