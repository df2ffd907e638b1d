"""What runs are worth, beside simple predictions, and which of several is best."""

from dataclasses import replace

import numpy as np
import pytest

import heatbath as hb
from heatbath import evaluation
from heatbath.evaluation.evaluate import mean_loss
from tests.evaluation.runs import SGD, churn, examples_for_test, problem, trained


@pytest.mark.parametrize("task", ["binary", "classes", "regression", "counts", "two"])
def test_the_averaged_prediction_is_what_predict_says_and_single_networks_are_means_over_chains(task):
    run = trained(task)
    X, y = examples_for_test(run)
    answer = evaluation.judge(run)
    np.testing.assert_allclose(answer.forecast.mean, run.predict(X).mean)
    np.testing.assert_allclose(answer.forecast.y, y)
    each = run.outputs(X)
    if task in ("binary", "classes"):
        guesses = [said[:, 0] > 0.5 if task == "binary" else said.argmax(axis=1) for said in each]
        assert answer.single["accuracy"].value == pytest.approx(np.mean([g == y[:, 0] for g in guesses]))
        assert answer.single["accuracy"].value == pytest.approx(run.accuracy("test")[:, -1].mean())
    else:
        end = "_y1" if task == "two" else ""
        errors = np.sqrt(np.mean((each[..., 0] - y[:, 0]) ** 2, axis=1))
        assert answer.single[f"rmse{end}"].value == pytest.approx(errors.mean())
        together = np.sqrt(np.mean((run.predict(X).mean[:, 0] - y[:, 0]) ** 2))
        assert answer.averaged[f"rmse{end}"].value == pytest.approx(together)
        low, high = run.calibration().interval(run.predictive(X), 0.9)
        inside = np.mean((low <= y) & (y <= high), axis=0)[0]
        assert answer.averaged[f"coverage{end}"].value == pytest.approx(inside)
        density = run.predictive(X).log_density(y)[:, 0].mean()
        assert answer.averaged[f"log_score{end}"].value == pytest.approx(-density)


def test_without_a_posterior_nothing_is_said_of_intervals():
    run = hb.train(problem("regression"), hb.MLP((8,)), SGD, 60, 10, chains=3)
    assert list(evaluation.judge(run).averaged) == ["r2", "rmse", "mae"]


def test_the_best_is_chosen_by_half_of_the_test_examples_and_the_other_half_tells():
    own = hb.datasets.spirals(n_train=60, n_test=50)
    run = hb.sweep(own, hb.MLP((8,)), hb.LOL(h=0.1, tau=[0.0, 1e-3, 1.0]), steps=60, batch=10, chains=3)
    on = evaluation.examples_of(run)
    choice = evaluation.choose(run, on)
    assert choice.fair
    assert sorted([*choice.choose, *choice.tell]) == list(range(50))
    assert len(choice.choose) == len(choice.tell) == 25
    labels = own.Y_test[0, choice.choose, 0]
    assert 0.2 < labels.mean() < 0.8  # though they alternate
    for place, (point, _) in enumerate(run.plan.points):
        p = run.select(**point).predict(own.X_test[0, choice.choose]).mean[:, 0]
        loss = -np.log(np.where(labels == 1, p, 1 - p)).mean()
        assert choice.losses[place] == pytest.approx(loss)
    assert choice.best == np.argmin(choice.losses)
    few = evaluation.choose(run, on.some(np.arange(3)))
    assert not few.fair
    assert len(few.choose) == 3


def test_what_tells_has_no_part_in_the_choice():
    """The labels of the other half are turned round, and the choice stays; of the same half, it changes."""
    from dataclasses import replace

    own = hb.datasets.spirals(n_train=60, n_test=50)
    run = hb.sweep(own, hb.MLP((8,)), hb.LOL(h=0.1, tau=[0.0, 1e-3, 1.0]), steps=60, batch=10, chains=3)
    on = evaluation.examples_of(run)
    choice = evaluation.choose(run, on)
    for part, same in (("tell", True), ("choose", False)):
        y = on.y.copy()
        y[getattr(choice, part)] = 1 - y[getattr(choice, part)]
        assert (evaluation.choose(run, replace(on, y=y)).losses == choice.losses) is same


def test_without_test_examples_the_training_examples_are_judged_and_chains_with_other_data_are_not():
    own = problem("binary", test_share=0)
    run = hb.train(own, hb.MLP((8,)), SGD, 60, 10, chains=3)
    on = evaluation.judge(run).examples
    assert (on.split, len(on), on.of) == ("train", 80, 80)
    several = hb.datasets.spirals(n_train=20, n_test=10, draws=2)
    run = hb.train(several, hb.MLP((8,)), SGD, 60, 10, chains=2)
    assert evaluation.examples_of(run) is None
    with pytest.raises(ValueError, match="different data sets"):
        evaluation.judge(run)


def test_a_difference_is_paired():
    run = trained("regression")
    answer = evaluation.judge(run)
    on, said = answer.examples, answer.forecast
    (_, other) = evaluation.baselines(on)["constant"]
    found = evaluation.difference(on, other, said)
    assert found.value == pytest.approx(mean_loss(on, other.mean) - mean_loss(on, said.mean))
    assert evaluation.difference(on, said, said) == (0.0, 0.0, 0.0)


def test_class_factors_are_in_files_and_must_be_one_for_each_class(tmp_path):
    run = hb.train(churn(class_weight="balanced"), hb.MLP((4,)), SGD, 5, 10, chains=2)
    run.save(tmp_path / "run.nc")
    assert hb.load(tmp_path / "run.nc").problem.class_factors == run.problem.class_factors
    assert len(run.problem.class_factors) == 2
    for wrong in ((1.0,), (1.0, -1.0)):
        with pytest.raises(ValueError, match="class_factors"):
            replace(run.problem, class_factors=wrong)
    with pytest.raises(ValueError, match="class_factors must be one for each"):
        replace(run.problem, weights_train=None)
