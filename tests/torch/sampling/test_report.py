"""Reports of a sampler: scores of the averaged prediction beside those of the single network."""

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import heatbath.torch as ht
from heatbath.evaluation import metrics
from heatbath.torch.sampling.report import NoiseVariances, Report
from tests.torch.sampling.models import QUIET, class_examples, make_network, make_sampler


@QUIET
@pytest.mark.parametrize("loss", ["cross_entropy", "binary_cross_entropy_with_logits"])
def test_a_report_has_the_scores_of_scikit_learn(loss):
    x, y = class_examples(80)
    binary = loss.startswith("binary")
    model = make_network(1 if binary else 2)
    sampler = make_sampler((x, y[:, None] if binary else y), model, loss).run(steps=40)
    report = sampler.report(x, y)
    with torch.no_grad():
        alone = model(x).double()
    alone = torch.cat([-alone, alone], dim=1).mul(0.5).softmax(1) if binary else alone.softmax(1)
    together = sampler.predict(x).mean
    together = torch.cat([1 - together, together], dim=1) if binary else together
    for found, p in ((report.averaged, together.numpy()), (report.single, alone.numpy())):
        assert found["log_loss"].value == pytest.approx(log_loss(y, p))
        assert found["accuracy"].value == pytest.approx(accuracy_score(y, p.argmax(axis=1)))
        times = 1 if binary else 2
        assert found["brier"].value == pytest.approx(times * brier_score_loss(y, p[:, 1]))
        assert found["calibration_error"].value == pytest.approx(metrics.calibration_error(p, y))
        assert found["accuracy"].low < found["accuracy"].value < found["accuracy"].high
    gap = report.averaged["log_loss"].value - report.single["log_loss"].value
    assert report.difference.value == pytest.approx(gap)
    assert "calibration error" in repr(report)
    legend = [text.get_text() for text in report.plot().get_legend().get_texts()]
    assert [text.partition(" (")[0] for text in legend] == ["averaged", "single"]
    loader = DataLoader(TensorDataset(x, y), 30)
    assert repr(sampler.report(loader)) == repr(report)


@QUIET
def test_a_report_warns_if_the_average_is_worse_than_the_single_network():
    x, y = class_examples(200)
    model = make_network()
    fit = torch.optim.Adam(model.parameters(), 0.05)
    for _ in range(100):
        fit.zero_grad()
        F.cross_entropy(model(x), y).backward()
        fit.step()
    hot = make_sampler((x, y), model, temperature=100.0, lr=0.4).run(steps=60)
    with pytest.warns(ht.WorseThanSingleWarning, match="temperature=0.1"):
        report = hot.report(x, y)
    assert report.difference.low > 0
    assert "worse" in repr(report)
    cold = make_sampler((x, y), model, temperature=1e-4).run(steps=20)
    assert abs(cold.report(x, y).difference.value) < 0.01  # and does not warn


@QUIET
def test_a_report_refuses_targets_that_do_not_fit():
    x, y = class_examples()
    sampler = make_sampler()
    with pytest.raises(ValueError, match="no samples yet"):
        sampler.predict(x)
    sampler.run(steps=5)
    with pytest.raises(ValueError, match="targets are needed"):
        sampler.report(x)
    with pytest.raises(ValueError, match="as many targets as inputs"):
        sampler.report(x, y[:3])
    with pytest.raises(ValueError, match="indices of classes"):
        sampler.report(x, y + 7)


def regression_report(noise):
    """Return the report of two networks with outputs 0 and 2 for four targets of 1; the single one has 1."""
    values = np.array([0.0, 2.0])[:, None, None] * np.ones((2, 4, 1))
    return Report.of_values("regression", np.ones(4), values, torch.ones(4, 1), noise)


def test_without_a_law_of_the_data_half_squared_errors_are_compared():
    report = regression_report(None)
    assert report.forecasts["averaged"].log_density is None
    assert report.difference.value == 0.0


def test_a_mixture_has_the_density_of_its_networks_and_the_single_network_its_own():
    """Averaged: mean of N(0, s²) and N(2, s²) at 1, with density φ(1/s)/s; single: φ(0)/8, which is worse."""
    report = regression_report(NoiseVariances(np.array([0.25, 0.25]), 64.0))
    normaliser = 0.5 * np.log(2 * np.pi)
    averaged, single = normaliser + np.log(0.5) + 2.0, normaliser + np.log(8.0)
    np.testing.assert_allclose(-report.forecasts["averaged"].log_density, averaged)
    np.testing.assert_allclose(-report.forecasts["single"].log_density, single)


def test_one_variance_for_all_networks_is_the_same_as_one_for_each():
    each, shared = (NoiseVariances(np.full(count, 0.25), 64.0) for count in (2, 1))
    assert repr(regression_report(each)) == repr(regression_report(shared))


def test_targets_of_another_shape_than_the_outputs_are_refused():
    with pytest.raises(ValueError, match=r"targets of shape \(3, 1\) and outputs of shape \(4, 1\)"):
        Report.of_values("regression", np.ones(3), np.ones((2, 4, 1)), torch.ones(4, 1), None)
    with pytest.raises(ValueError, match="got 4 predictions and 3 targets"):
        Report.of_classes("binary", np.ones(3), torch.ones(4, 1), torch.ones(4, 1))
