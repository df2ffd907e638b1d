"""Searches whose candidates a study of Optuna chooses."""

import logging
import sys

import pytest

import heatbath as hb
from tests.runs import SMALL, SPIRALS, Interrupting

pytestmark = pytest.mark.filterwarnings("ignore::heatbath.SearchEdgeWarning")  # searches here are very short

optuna = pytest.importorskip("optuna")
COMPLETE, PRUNED, FAIL = (getattr(optuna.trial.TrialState, name) for name in ("COMPLETE", "PRUNED", "FAIL"))


@pytest.fixture(autouse=True)
def silence_optuna():
    """Silence Optuna's own messages about a new study."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    yield
    optuna.logging.set_verbosity(before)


def study_of(direction="minimize", seed=3):
    return optuna.create_study(direction=direction, sampler=optuna.samplers.TPESampler(seed=seed))


def tuned(study, method="adam", **options):
    given = {"steps": 80, "batch": 20, "candidates": 20} | options
    return hb.tune(SPIRALS, SMALL, method, **given, study=study)


def values_of(found):
    return [trial.candidate.values for trial in found.trials]


def test_the_study_has_every_candidate_and_the_scores_at_every_rung(caplog):
    study = study_of("maximize")
    with caplog.at_level(logging.INFO):
        found = tuned(study, by="accuracy")
    assert caplog.records == []
    assert len(study.trials) == len(found.trials) == 20
    for trial, told in zip(found.trials, study.trials, strict=True):
        assert trial.name == f"Adam {told.number}"
        assert list(told.intermediate_values)[-1] == trial.steps
        assert list(told.intermediate_values) == [10, 20, 40, 80][: trial.rung]
        assert told.value == told.intermediate_values[trial.steps] == trial.accuracy
        assert told.state == (COMPLETE if trial.steps == 80 else PRUNED)
    states = [trial.state for trial in study.trials]
    assert states[:16].count(COMPLETE) == 2  # of 16, 8, 4, 2
    assert states[16:].count(COMPLETE) == 1  # of 4, 2, 1, 1
    assert study.best_value == found.best["Adam"].accuracy


def test_candidates_are_those_that_were_asked_for_and_within_their_ranges():
    study = study_of()
    found = tuned(study, candidates=3)
    for values, told in zip(values_of(found), study.trials, strict=True):
        assert set(told.params) == {"h", "1 - beta1", "1 - beta2"}
        assert told.params["h"] == values["h"]
        assert values["beta1"] == 1 - told.params["1 - beta1"]
        for name, searched in hb.Adam.searched.items():
            assert searched.low - 1e-12 <= values[name] <= searched.high + 1e-12
    assert found.partition == found.run.partition


def test_the_same_seed_gives_the_same_answer_and_another_another_one():
    first, again, other = (tuned(study_of(seed=seed)) for seed in (3, 3, 4))
    assert values_of(first) == values_of(again)
    assert [trial.loss for trial in first.trials] == [trial.loss for trial in again.trials]
    assert values_of(first) != values_of(other)


def test_a_batch_is_told_before_the_next_is_asked_for(monkeypatch):
    study, finished = study_of(), []
    ask = study.ask

    def noting(distributions):
        finished.append(sum(trial.state.is_finished() for trial in study.trials))
        return ask(distributions)

    monkeypatch.setattr(study, "ask", noting)
    tuned(study, candidates=34)
    assert finished == [0] * 16 + [16] * 16 + [32] * 2


def test_a_study_goes_on_in_another_call():
    study = study_of()
    tuned(study, candidates=4)
    found = tuned(study, candidates=4)
    assert [trial.name for trial in found.trials] == [f"Adam {number}" for number in range(4, 8)]
    assert len(study.trials) == 8


@pytest.mark.parametrize(
    ("method", "words"),
    [
        (
            "sgd",
            r"with h \(float, logarithmic\), 1 - beta1 .*, and this one has h \(float, logarithmic\): take a",
        ),
        (
            hb.Partition(hb.Adam(), hb.between(0.001, 0.1, "linear")),
            r"and this one has h \(float\): take a new",
        ),
    ],
)
def test_a_study_of_other_parameters_is_refused_and_left_as_it_is(method, words):
    study = study_of()
    tuned(study, candidates=2)
    with pytest.raises(ValueError, match=words):
        tuned(study, method)
    assert len(study.trials) == 2
    tuned(study, hb.Partition(hb.Adam(*[hb.between(0.8, 0.9, "complement")] * 2), hb.between(1e-3, 2e-3)))


def test_an_error_while_asking_leaves_no_trial_under_way(monkeypatch):
    study, asked = study_of(), []
    ask = study.ask

    def failing(distributions):
        asked.append(distributions)
        if len(asked) == 3:
            raise RuntimeError("no more")
        return ask(distributions)

    monkeypatch.setattr(study, "ask", failing)
    with pytest.raises(RuntimeError, match="no more"):
        tuned(study)
    assert [trial.state for trial in study.trials] == [FAIL, FAIL]


def test_those_that_diverge_are_pruned_without_a_value():
    study = study_of()
    found = tuned(study, hb.LOL(h=hb.between(0.1, 1e9)), candidates=12)
    lost = [told for trial, told in zip(found.trials, study.trials, strict=True) if trial.diverged]
    assert lost
    assert {told.state for told in lost} == {PRUNED}
    assert any(told.value is None for told in lost)


def test_ctrl_c_leaves_no_trial_under_way():
    study = study_of()
    with pytest.warns(hb.InterruptedWarning), pytest.raises(KeyboardInterrupt):
        tuned(study, progress=Interrupting(1))
    assert {trial.state for trial in study.trials} == {FAIL}
    assert len(study.trials) == 16


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        (
            {"study": "tpe"},
            TypeError,
            r"study must be a study of Optuna, as optuna.create_study\(\) makes it",
        ),
        (
            {"by": "accuracy"},
            ValueError,
            r"by='accuracy' needs create_study\(direction='maximize'\), got mini",
        ),
        ({"method": ["adam", "lol"]}, ValueError, "coefficients of one method with ranges, got Adam, LOL"),
        ({"method": hb.LOL()}, ValueError, "coefficients of one method with ranges, got partition"),
        ({"checkpoint": "x"}, ValueError, "a study keeps its own state: leave out checkpoint"),
    ],
)
def test_what_a_study_cannot_do_is_refused(options, error, words):
    study = study_of()
    with pytest.raises(error, match=words):
        tuned(**{"study": study, **options})
    assert study.trials == []


def test_without_optuna_the_extra_is_named(monkeypatch):
    study = study_of()
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ModuleNotFoundError, match=r"an extra: pip install 'heatbath\[optuna\]'"):
        tuned(study)
