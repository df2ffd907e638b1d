"""Distributions of parameters, judged on made-up results."""

import numpy as np
import pytest

import heatbath as hb
from heatbath.paper import histograms
from heatbath.paper.histograms import PAPER
from tests.paper.made_up import check_every_claim, hundred, near_zero, pair, weights

MEANS = (0.79, 0.837, 0.78, 0.934, 0.855)


def test_every_claim_about_a_hundred_runs_can_hold_and_fail():
    check_every_claim(
        "weights-100runs",
        *((hundred(MEANS), hundred(tuple(m - 0.2 for m in MEANS))) for _ in MEANS),
        (near_zero(), near_zero(SGD=0.05, Adam=0.05)),
        (hundred(spread={"Adam": 0.35}), hundred(spread={"Adam": 0.05})),
        (hundred(spread={"LOL": 0.1}), hundred(spread={"LOL": 0.5})),
        (hundred(spread={"Adam": 0.35, "LOL": 0.1}), hundred(spread={"AdLaLa, γ = 0.5": 0.5})),
    )


@pytest.mark.parametrize(("name", "turns"), [("weights-2turn", 2), ("weights-4turn", 4)])
def test_every_claim_about_distributions_over_time_can_hold_and_fail(name, turns):
    excited = {"SGD": 0.1, "Adam": 0.2, "SGLD": 0.9, "AdLaLa": 0.9}
    check_every_claim(
        name,
        *((pair(**{name: value}), pair(**{name: value - 0.2})) for name, value in PAPER[turns].items()),
        (weights(excited=excited), weights(excited=excited | {"SGD": 0.9, "Adam": 0.9})),
    )


def test_histograms_count_weights_and_biases_of_all_runs_by_record():
    run = hb.compare(
        hb.datasets.spirals(n_train=20, n_test=20), hb.MLP((3,)), {"SGD": hb.Partition(hb.SGD(), 0.1)},
        steps=4, batch=5, chains=2, record=[2, 4], weights=True,
    )  # fmt: skip
    bins = np.array([-10.0, 0.0, 10.0])
    fractions = histograms.parameter_histograms(run, 3, bins)
    assert fractions.dims == ("method", "kind", "record", "bin")
    hidden = run.weights().values[:, 1]  # (chain, parameter) at the last record
    for kind, theta in (("weights", hidden[:, :6]), ("biases", hidden[:, 6:9])):
        expected = [np.mean(theta < 0), np.mean(theta >= 0)]
        np.testing.assert_allclose(fractions.sel(kind=kind).isel(method=0, record=1), expected)
