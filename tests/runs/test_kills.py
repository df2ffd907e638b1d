"""Kill -9: a killed run continues as if nothing had happened; `python -m tests.runs.kills 200` for more."""

import pytest

from tests.runs.kills import kill_and_resume


@pytest.mark.slow
def test_killed_runs_end_bit_for_bit_as_the_undisturbed_one():
    report = kill_and_resume(4, seed=1)
    assert report["wrong"] == []
    assert min(report["resumed at"]) > 0
