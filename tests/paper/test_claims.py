"""Claims that can be true or false, and their verdicts."""

from pathlib import Path

import numpy as np
import pytest

from heatbath import paper as experiments
from heatbath.diagnostics.statistics import Measured, student
from heatbath.paper import claims
from heatbath.paper.claims import FAILS, HOLDS, IN_PART


def test_experiments_have_the_names_under_which_they_are_listed():
    assert [experiments.find(name).name for name in experiments.NAMES] == list(experiments.NAMES)
    with pytest.raises(ValueError, match="there is no experiment 'nothing': accepted are temperature, "):
        experiments.find("nothing")


@pytest.mark.parametrize(
    ("measured", "above", "below"),
    [
        (Measured(2.0, 1.5, 2.5), HOLDS, FAILS),
        (Measured(1.2, 0.8, 1.6), IN_PART, IN_PART),
        (Measured(0.8, 0.4, 1.2), IN_PART, IN_PART),
        (Measured(0.5, 0.4, 0.6), FAILS, HOLDS),
        (Measured(np.nan, np.nan, np.nan), FAILS, FAILS),
        (Measured(2.0, np.nan, np.nan), HOLDS, FAILS),
    ],
)
def test_a_limit_within_the_interval_is_passed_in_part(measured, above, below):
    assert claims.judge_above(measured, 1.0) == above
    assert claims.judge_below(measured, 1.0) == below


def test_one_run_of_the_paper_agrees_within_our_range_and_a_mean_within_our_interval():
    values = np.linspace(0.6, 0.8, 50)
    assert claims.compare_with_paper(values, 0.78, single=True).verdict == HOLDS
    assert claims.compare_with_paper(values, 0.76, single=False).verdict == IN_PART
    assert claims.compare_with_paper(values, 0.705, single=False).verdict == HOLDS
    assert claims.compare_with_paper(values, 0.84, single=True).verdict == IN_PART
    assert claims.compare_with_paper(values, 0.9, single=True).verdict == FAILS
    assert claims.compare_with_paper([0.2, 0.9], 0.55, single=False).verdict == IN_PART  # too vague to agree


def test_an_interval_is_wider_for_the_best_of_several():
    """With seven equal ones, the best is taken for better in a twentieth of all cases at most."""
    rng = np.random.default_rng(2)
    hits = 0
    for _ in range(1000):
        runs = rng.standard_normal((8, 7))
        best = runs[:, runs.mean(axis=0).argmax()]
        hits += claims.judge_above(student(best - rng.standard_normal(8), of=7)) == HOLDS
    assert hits / 1000 < 0.05


@pytest.mark.parametrize("name", experiments.NAMES)
def test_quick_settings_replace_settings_that_exist(name):
    experiment = experiments.find(name)
    assert experiment.settings_for(quick=True).keys() == dict(experiment.settings).keys()


def test_the_claims_of_every_experiment_are_tested_on_made_up_results():
    tests = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    with_claims = [name for name in experiments.NAMES if experiments.find(name).claims]
    assert [name for name in with_claims if f'"{name}"' not in tests] == []
