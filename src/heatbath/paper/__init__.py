"""Reproduce the paper's experiments: one for each of its figures, with the claims that it makes."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from heatbath.paper.experiment import Experiment

EXPERIMENTS = {  # module and attribute by name, in the order of the paper
    "temperature": "temperature.EXPERIMENT",
    "data": "example_data.EXPERIMENT",
    "line-mnist": "loss_lines.LINE_MNIST",
    "line-spiral": "loss_lines.LINE_SPIRAL",
    "surface": "loss_surfaces.EXPERIMENT",
    "weights-2turn": "histograms.TWO_TURNS",
    "weights-4turn": "histograms.FOUR_TURNS",
    "weights-100runs": "histograms.HUNDRED_RUNS",
    "classifiers": "classifiers.EXPERIMENT",
    "compare-4turn": "comparisons.TUNED",
    "compare-trig-6": "comparisons.EASY",
    "compare-trig-10": "comparisons.HARD",
    "overfitting": "overfitting.EXPERIMENT",
    "robustness": "robustness.EXPERIMENT",
    "driving-noise": "coefficient_maps.DRIVING_NOISE",
    "lol-temperature": "coefficient_maps.LOL_TEMPERATURE",
    "equipartition": "equipartition.EXPERIMENT",
    "points": "example_effects.EXPERIMENT",
}
NAMES = tuple(EXPERIMENTS)


def find(name: str) -> Experiment:
    """Return the experiment with a name, or raise ValueError with all names."""
    if name not in EXPERIMENTS:
        raise ValueError(f"there is no experiment {name!r}: accepted are {', '.join(NAMES)}")
    module, _, attribute = EXPERIMENTS[name].partition(".")
    experiment: Experiment = getattr(import_module(f"heatbath.paper.{module}"), attribute)
    return experiment
