"""Runs that are continued until a rule says that they are done, and the rule for validation losses."""

from typing import NamedTuple

import numpy as np
import pytest

from heatbath.training.early_stopping import Patience, continue_run


class PretendedRun(NamedTuple):
    steps: int
    finished: bool = True


def test_a_run_is_extended_until_no_steps_are_missing():
    doubled = continue_run(
        PretendedRun(3),
        lambda run: run.steps if run.steps < 20 else 0,
        lambda run, n: PretendedRun(run.steps + n),
    )
    assert doubled == PretendedRun(24)


def test_an_interrupted_run_is_not_extended():
    stopped = continue_run(PretendedRun(3), lambda run: 2, lambda run, n: PretendedRun(run.steps + n, False))
    assert stopped == PretendedRun(5, False)


@pytest.mark.parametrize(
    ("losses", "is_spent"),
    [
        ([3.0, 2.0, 1.0], False),
        ([3.0, 2.0, 2.5], False),
        ([3.0, 2.0, 2.5, 2.5], True),  # no fall for two records
        ([3.0, 2.0, 1.95, 1.91], True),  # falls below the tolerance don't count
        ([1.0, 1.0], False),
        ([1.0, 1.0, 1.0], True),
    ],
)
def test_patience_ends_when_the_loss_has_not_fallen_for_some_records(losses, is_spent):
    assert Patience(records=2, tolerance=0.1).is_spent(np.array(losses)) is is_spent


def test_patience_refuses_what_the_estimators_call_tol_and_n_iter_no_change():
    with pytest.raises(ValueError, match="tol must be >= 0"):
        Patience(records=2, tolerance=-1.0)
    with pytest.raises(ValueError, match="n_iter_no_change must be a whole number >= 1"):
        Patience(records=0, tolerance=0.1)
