"""Sections of the loss: on the lines from the start to the end of each run, and between the two."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from heatbath.analysis import landscape
from heatbath.explorer.messages import short
from heatbath.explorer.settings import PageSettings

FINEST, COARSER = 61, (31, 13)  # points on a line, with both of its ends among them
COST = 3e9  # parameters x examples x points: about a second on one core


def losses_between(
    settings: PageSettings, states: Mapping[str, tuple[Any, Any]], chain: int
) -> dict[str, Any]:
    """Losses on lines, of one chain; `states` are the first and the last θ of each run.

    There are fewer points where networks and data are large.
    """
    problem, network = settings.problem, settings.network
    examples = problem.X_train.shape[1] + problem.X_test.shape[1]
    cost = 3 * examples * network.parameters(2, 1)
    finest = next((count for count in (FINEST, *COARSER) if count * cost <= COST), COARSER[-1])
    at = np.linspace(-0.25, 1.25, finest)
    ends = {name: last[chain] for name, (_, last) in states.items()}
    first = {name: start[chain].astype(ends[name].dtype) for name, (start, _) in states.items()}
    pairs = {
        "start-A": (first["A"], ends["A"]),
        "start-B": (first["B"], ends["B"]),
        "A-B": (ends["A"], ends["B"]),
    }
    splits: list[Literal["train", "test"]] = ["train", "test"] if problem.X_test.size else ["train"]
    found = {}
    for name, (one, two) in pairs.items():
        losses = {
            split: landscape.line(problem, network, one, two, at, split, threads=1)["loss"].values
            for split in splits
        }
        found[name] = {"at": [short(a) for a in at]}
        found[name] |= {split: [short(float(v)) for v in values] for split, values in losses.items()}
    return found
