"""The paper's experiments: one for each of its figures, with the claims that they make."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from heatbath.experiments.experiment import Experiment

PLACES = {  # in the order of the paper
    "temperature": "temperature.EXPERIMENT",
    "data": "typical.EXPERIMENT",
    "line-mnist": "lines.LINE_MNIST",
    "line-spiral": "lines.LINE_SPIRAL",
    "surface": "surface.EXPERIMENT",
    "weights-2turn": "histograms.TWO_TURNS",
    "weights-4turn": "histograms.FOUR_TURNS",
    "weights-100runs": "histograms.HUNDRED_RUNS",
    "classifiers": "classifiers.EXPERIMENT",
    "compare-4turn": "comparisons.TUNED",
    "compare-trig-6": "comparisons.EASY",
    "compare-trig-10": "comparisons.HARD",
    "overfitting": "overfitting.EXPERIMENT",
    "robustness": "robustness.EXPERIMENT",
    "driving-noise": "maps.DRIVING_NOISE",
    "lol-temperature": "maps.LOL_TEMPERATURE",
    "equipartition": "equipartition.EXPERIMENT",
    "points": "points.EXPERIMENT",
}
NAMES = tuple(PLACES)


def find(name: str) -> Experiment:
    """An experiment by its name."""
    if name not in PLACES:
        raise ValueError(f"there is no experiment {name!r}: accepted are {', '.join(NAMES)}")
    module, _, attribute = PLACES[name].partition(".")
    experiment: Experiment = getattr(import_module(f"heatbath.experiments.{module}"), attribute)
    return experiment
