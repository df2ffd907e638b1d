"""Sections of the loss: on the lines from the start to the end of each run, and between the two."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from heatbath import landscape
from heatbath.explorer.messages import short
from heatbath.explorer.page_settings import Settings

AT = np.linspace(-0.25, 1.25, 61)


def losses_between(settings: Settings, states: Mapping[str, tuple[Any, Any]], chain: int) -> dict[str, Any]:
    """Losses on lines, of one chain; `states` are the first and the last θ of each run."""
    problem, network = settings.problem, settings.network
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
            split: landscape.line(problem, network, one, two, AT, split, threads=1)["loss"].values
            for split in splits
        }
        found[name] = {"at": [short(a) for a in AT]}
        found[name] |= {split: [short(float(v)) for v in values] for split, values in losses.items()}
    return found
