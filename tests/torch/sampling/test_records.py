"""Records of a sampler: the burn-in, chains that are alive, and temperatures follow from them."""

import numpy as np
import pytest

from heatbath.torch.sampling.records import SampleRecord, diagnose, parts_off_temperature

CHAINS, STEPS = 4, 400


def make_records(drift_until=0, kinetic=1.0, broken_chain=None, seed=0):
    """Return records of independent draws at every step.

    Predictions of the chains differ by their number up to the step `drift_until`, and the kinetic temperature
    is `kinetic` times the right one.
    """
    rng = np.random.default_rng(seed)
    records = {}
    for step in range(1, STEPS + 1):
        outputs = rng.standard_normal((CHAINS, 10, 1))
        if step <= drift_until:
            outputs += 10.0 * np.arange(CHAINS)[:, None, None]
        if step == STEPS and broken_chain is not None:
            outputs[broken_chain] = np.nan
        temperatures = 1 + 0.05 * rng.standard_normal((1, 2, CHAINS))
        temperatures[:, 0] *= kinetic
        records[step] = SampleRecord(outputs, temperatures, np.zeros(0))
    return records


@pytest.mark.parametrize(("drift_until", "burn_in"), [(0, 50), (100, 50), (150, 100), (300, 200), (390, 200)])
def test_the_burn_in_is_the_shortest_after_which_chains_agree(drift_until, burn_in):
    """An eighth, a quarter, or else half of the steps. R-hat forgives a seventh of steps that disagree."""
    diagnosis = diagnose(make_records(drift_until), STEPS, CHAINS, ["all"])
    assert diagnosis.burn_in == burn_in
    assert diagnosis.chains_agree == (burn_in < 200)


def test_at_a_wrong_kinetic_temperature_the_burn_in_is_half_of_the_steps():
    diagnosis = diagnose(make_records(kinetic=1.3), STEPS, CHAINS, ["all"])
    assert diagnosis.burn_in == STEPS // 2
    assert diagnosis.temperatures["all"].kinetic.value == pytest.approx(1.3, abs=0.02)
    assert list(parts_off_temperature(diagnosis.temperatures, "kinetic")) == ["all"]
    assert not parts_off_temperature(diagnosis.temperatures, "configurational")


def test_a_chain_that_is_not_finite_is_left_out():
    diagnosis = diagnose(make_records(broken_chain=2), STEPS, CHAINS, ["all"])
    assert diagnosis.alive.tolist() == [True, True, False, True]
    assert diagnosis.has_converged


def test_too_few_samples_or_chains_tell_nothing():
    records = {step: record for step, record in make_records().items() if step > STEPS - 3}
    diagnosis = diagnose(records, STEPS, CHAINS, ["all"])
    assert diagnosis.convergence is None
    assert not diagnosis.has_converged
    assert diagnose({}, 0, CHAINS, ["all"]).temperatures == {}
