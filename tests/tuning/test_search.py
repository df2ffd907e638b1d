"""Coefficients that are found."""

import os
import signal
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from sklearn.metrics import log_loss

import heatbath as hb
from heatbath.evaluation.metrics import losses
from heatbath.tuning import search
from heatbath.tuning.halving import ROUNDS
from heatbath.tuning.search import held_out, score_candidates
from heatbath.tuning.trials import RUNGS
from tests.processes import run_in_copy

pytestmark = pytest.mark.filterwarnings("ignore::heatbath.SearchEdgeWarning")  # searches here are very short

SPIRALS = hb.datasets.spirals(turns=1, n_train=100, n_test=20)
NETWORK = hb.MLP((10,))
SEARCH = hb.AdLaLa(h=hb.between(0.05, 0.4), tau=hb.between(1e-6, 1e-3))
SETTINGS = {"steps": 400, "batch": 10, "candidates": 16}


def tuned(problem=SPIRALS, methods=SEARCH, **options):
    return hb.tune(problem, NETWORK, methods, **SETTINGS | options)


@pytest.fixture(scope="module")
def found():
    return tuned(methods={"AdLaLa": SEARCH, "SGD": hb.SGD}, by="accuracy", seed=3)


def same(one, two):
    assert [trial.name for trial in one.trials] == [trial.name for trial in two.trials]
    assert one.table.equals(two.table)
    assert one.partition == two.partition
    assert np.array_equal(one.run.theta, two.run.theta)


# What is tried


def test_candidates_do_not_depend_on_other_methods(found):
    alone = tuned(methods={"SGD": hb.SGD}, by="accuracy", seed=3)
    own = found.table[found.table.method == "SGD"][alone.table.columns]
    assert alone.table.equals(own.reset_index(drop=True))
    assert alone.best["SGD"].candidate.values == found.best["SGD"].candidate.values


def test_a_search_has_two_rounds(found):
    own = [trial for trial in found.trials if trial.candidate.family.name == "AdLaLa"]
    assert len(own) == SETTINGS["candidates"] >= ROUNDS.fewest_for_two
    family = own[0].candidate.family
    early = np.array([family.shares(trial.candidate.values) for trial in own[:8]])
    late = np.array([family.shares(trial.candidate.values) for trial in own[8:]])
    ranks = sorted(own[:8], key=lambda trial: trial.worth("accuracy"))[:2]
    centres = np.array([family.shares(trial.candidate.values) for trial in ranks])
    assert np.abs(late - centres[np.arange(8) % 2]).max() < 0.16
    assert np.ptp(early, axis=0).min() > 0.7


def test_a_method_of_one_s_own_needs_ranges_for_what_it_needs():
    @dataclass(frozen=True, repr=False)
    class Own(hb.SGLD):
        needed: float = field(kw_only=True)

    with pytest.raises(
        ValueError, match=r"Own has no range .* for needed: .* Partition\(Own\(needed=between"
    ):
        tuned(methods=Own)


def test_a_search_goes_on_in_the_ranges_that_it_says_are_next():
    options = {"candidates": 16, "steps": 80}
    with pytest.warns(hb.SearchEdgeWarning, match="the best of SGD lie at the end of a range: h at 2.0"):
        found = tuned(methods="SGD", **options)
    again = tuned(methods=found.wider, **options)
    assert again.families[0].ranges == {"h": hb.SGD.searched["h"].beyond(2.0)}
    assert again.best["SGD"].loss < found.best["SGD"].loss


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"AdLaLa": {"zeta": 1.0}}, "AdLaLa has no zeta; accepted: h, tau, sigma"),
        ({"Adam": {"tau": hb.between(0.1, 0.2)}}, "Adam has no tau; accepted: h, beta1, beta2"),
        ({"mine": {"h": 0.1}}, "there is no method 'mine' to tune; accepted: adlala"),
        ({"Adam": {"beta1": hb.between(0.5, 1.5)}}, "beta1 must be >= 0 and < 1"),
        ({"AdLaLa": {"word": hb.between(0.5, 1.5)}}, "a word is a string"),
        ({"AdLaLa": {"friction": hb.between(0.5, 1.5)}}, "friction must be one of"),
        ({"AdLaLa": {"h": hb.between(0.0, 1.5)}}, "h must be > 0"),
        ({"AdLaLa": {"h": [0.1, 0.2]}}, "h: tune looks within ranges"),
    ],
)
def test_arguments_that_a_method_does_not_take_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        tuned(methods=given)


# How they are judged


def test_half_of_the_candidates_go_on_and_the_best_to_the_end(found):
    for method in ("AdLaLa", "SGD"):
        own = found.table[found.table.method == method]
        assert own.rung.value_counts().sort_index().to_dict() == {1: 8, 2: 4, 3: 2, 5: 2}  # of two rounds
        assert own.rung.is_monotonic_decreasing
        for _, group in own.groupby("rung"):
            assert group.accuracy.is_monotonic_decreasing


def test_the_chains_of_the_best_are_what_train_gives(found):
    """Bit for bit: it was never started again."""
    sets, _ = held_out(SPIRALS, 0.2, 2, 3)
    for name, trial in found.best.items():
        alone = hb.train(sets, NETWORK, trial.candidate.made, 400, 10, 2, seed=3, record=1)
        last = next(run for run in found.lasts if trial.name in run.plan.named)
        assert np.array_equal(last.select(method=trial.name).theta, alone.theta), name


def test_the_best_are_run_again_with_more_chains(found):
    sets, chosen = held_out(SPIRALS, 0.2, 10, 3 + 2)
    alone = hb.train(sets, NETWORK, found.partition, 400, 10, 10, seed=3 + 2, record=1)
    assert np.array_equal(found.run.theta, alone.theta)
    best = found.best[found.winner]
    (judged,) = score_candidates([best.candidate], found.lasts[-1], chosen)
    assert best.accuracy == judged.accuracy
    assert set(found.lasts[-1].plan.named) == {t.name for t in found.trials if t.rung == RUNGS + 1}


def test_the_scores_are_those_of_averages_over_the_second_half():
    """Here this is the half of a rung from step 200 to 400, at the examples each chain does not see."""
    found = tuned(candidates=2, seed=1)
    trial = found.best["partition"]
    sets, chosen = held_out(SPIRALS, 0.2, 2, 1)
    X = SPIRALS.X_train[0]
    alone = hb.train(
        sets, NETWORK, found.partition, 400, 10, 2, seed=1, average=X, burn_in=300, thin=2, record=[310, 400]
    )
    means = alone.averages()["mean"].values
    expected = [log_loss(sets.Y_test[k, :, 0], means[k, chosen[k], 0]) for k in range(2)]
    assert trial.loss == pytest.approx(np.mean(expected), rel=1e-5)
    right = [np.mean((means[k, chosen[k], 0] > 0.5) == sets.Y_test[k, :, 0]) for k in range(2)]
    assert trial.accuracy == pytest.approx(np.mean(right))
    assert trial.single_accuracy <= 1
    assert trial.single_loss > 0


def test_losses_of_every_task():
    generator = np.random.default_rng(0)
    p = generator.dirichlet(np.ones(3), 7)
    y = generator.integers(0, 3, (7, 1)).astype(float)
    assert losses("classes", p, y).mean() == pytest.approx(log_loss(y[:, 0], p, labels=[0, 1, 2]))
    assert losses("binary", p[:, :1], np.minimum(y, 1)).mean() == pytest.approx(
        log_loss(np.minimum(y[:, 0], 1), p[:, 0])
    )
    assert losses("regression", np.array([[1.0, 2.0]]), np.array([[0.0, 4.0]])) == pytest.approx([2.5])
    assert losses("counts", np.array([[2.0]]), np.array([[3.0]])) == pytest.approx([2 - 3 * np.log(2)])


def test_impossible_labels_cost_no_infinity():
    assert np.isfinite(losses("binary", np.array([[0.0]]), np.array([[1.0]]))).all()


def test_weights_count():
    generator = np.random.default_rng(1)
    X, y = generator.standard_normal((60, 2)), generator.integers(0, 2, 60)
    weights = generator.uniform(0.1, 3, 60)
    problem = hb.datasets.from_arrays(X, y, test_share=0.0, weights=weights)
    found = tuned(problem, candidates=2, chains=1)
    (last,) = found.lasts
    sets, chosen = held_out(problem, 0.2, 1, 0)
    means = last.averages()["mean"].values[0, chosen[0], 0]
    expected = log_loss(sets.Y_test[0, :, 0], means, sample_weight=sets.weights_test[0])
    (judged,) = score_candidates([found.best[found.winner].candidate], last, chosen)
    assert judged.loss == pytest.approx(expected)


@pytest.mark.parametrize("folds", [1, 2, 4, 5])
def test_every_chain_has_other_validation_examples(folds):
    sets, chosen = held_out(SPIRALS, 0.2, folds, seed=4)
    assert chosen.shape == (folds, 20)
    assert len(np.unique(chosen)) == 20 * folds  # none again before all have been
    for k in range(folds):
        assert np.mean(sets.Y_test[k]) == pytest.approx(0.5, abs=0.06)  # evenly over the classes
        together = np.concatenate([sets.X_train[k], sets.X_test[k]])
        assert np.array_equal(np.unique(together, axis=0), np.unique(SPIRALS.X_train[0], axis=0))
        assert np.array_equal(sets.X_test[k], SPIRALS.X_train[0, chosen[k]])


def test_more_chains_than_folds_begin_again():
    _, chosen = held_out(SPIRALS, 0.5, 7, seed=0)
    assert chosen.shape == (7, 50)
    assert all(len(set(fold)) == 50 for fold in chosen.tolist())


def test_test_examples_play_no_part():
    other = replace(SPIRALS, X_test=SPIRALS.X_test[:, ::-1] + 5, Y_test=1 - SPIRALS.Y_test, recipe=None)
    none = replace(SPIRALS, X_test=SPIRALS.X_test[:, :0], Y_test=SPIRALS.Y_test[:, :0], recipe=None)
    expected = tuned(candidates=4)
    same(tuned(other, candidates=4), expected)
    same(tuned(none, candidates=4), expected)


@pytest.mark.parametrize("task", ["regression", "counts", "classes"])
def test_other_tasks(task):
    generator = np.random.default_rng(2)
    X = generator.standard_normal((80, 2))
    y = {"regression": X @ [1, 2], "counts": generator.poisson(np.exp(X[:, 0])), "classes": X.argmax(axis=1)}
    y["classes"] = (X[:, 0] > 0) + (X[:, 1] > 0)
    problem = hb.datasets.from_arrays(X, y[task], task=task, test_share=0.0)
    found = tuned(problem, hb.SGD, candidates=4)
    assert np.isfinite(found.best["SGD"].loss)
    assert found.best["SGD"].rung == RUNGS
    assert np.isnan(found.table.accuracy).all() == (task != "classes")


# The same again


def test_threads_do_not_matter(found):
    again = tuned(methods={"AdLaLa": SEARCH, "SGD": hb.SGD}, by="accuracy", seed=3, threads=1)
    same(again, found)


def test_seeds_matter(found):
    assert tuned(seed=4).partition != tuned(seed=3).partition


def test_a_search_that_is_killed_continues(tmp_path):
    """kill -9 loses nothing: the same call ends as if nothing had happened."""

    def kill(progress):
        if progress.step > 0.2 * progress.steps:
            os.kill(os.getpid(), signal.SIGKILL)

    killed = run_in_copy(lambda: tuned(progress=kill, checkpoint=tmp_path / "search"))
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    files = sorted(path.name for path in (tmp_path / "search").iterdir())
    assert files == ["round-1-1.nc", "round-1-2.nc", "round-1-3.nc", "round-1-4.nc", "round-2-1.nc"]
    told = []
    again = tuned(checkpoint=tmp_path / "search", progress=told.append)
    same(again, tuned())
    steps = [now.step / now.steps for now in told]
    assert {now.first for now in told} == {2000}  # what was there does not count as speed
    assert min(steps) > 1 / 6  # the first round
    assert steps == sorted(steps)
    assert steps[-1] == 1.0


def test_the_checkpoint_of_another_search_is_left_alone(tmp_path):
    tuned(candidates=2, checkpoint=tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    words = (
        f"{tmp_path} holds another search, or is damaged: call tune as it was called to continue it, or with"
    )
    for options in ({"seed": 1}, {"candidates": 4}, {"steps": 800}, {"chains": 3}, {"validation": 0.3}):
        with pytest.raises(ValueError, match=words):
            tuned(**{"candidates": 2, "checkpoint": tmp_path} | options)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_progress_counts_all_steps():
    told = []
    tuned(progress=told.append)
    work = 2 * 2 * (8 * 50 + 4 * 50 + 2 * 100 + 1 * 200)  # rounds, chains
    work += 2 * 10 * 400  # those that are run again
    assert told[-1].step == told[-1].steps == work
    assert [p.step for p in told] == sorted(p.step for p in told)
    assert told[0].finding
    assert told[0].first == 0


def test_interrupted_it_ends_with_what_is_known():
    def interrupt(share):
        def tell(progress):
            if progress.step >= share * progress.steps and not sent:
                sent.append(True)
                os.kill(os.getpid(), signal.SIGINT)

        return tell

    sent = []
    with pytest.warns(hb.InterruptedWarning):
        found = tuned(progress=interrupt(0.15), steps=4000)
    assert found.partition.h > 0
    assert found.table.rung.max() >= 1
    sent = []
    with pytest.warns(hb.InterruptedWarning), pytest.raises(KeyboardInterrupt):
        tuned(progress=interrupt(0.0), steps=80_000)


def test_others_find_the_same_and_ctrl_c_ends_with_what_they_know():
    with ThreadPoolExecutor(2) as executor:
        same(tuned(candidates=4), tuned(candidates=4, executor=executor))

        def interrupt(progress):
            if progress.step >= 0.5 * progress.steps:  # on the second rung
                raise KeyboardInterrupt

        with pytest.warns(hb.InterruptedWarning):
            found = tuned(candidates=4, progress=interrupt, executor=executor)
    assert not found.finished
    assert found.table.rung.max() >= 1


# What diverges


def test_candidates_that_diverge_are_out():
    wild = hb.Partition(hb.SGD(), hb.between(0.05, 1e9))
    found = tuned(methods={"wild": wild, "tame": hb.Partition(hb.SGD(), hb.between(0.05, 0.2))})
    lost = found.table[found.table.diverged]
    assert len(lost)
    assert (lost.method == "wild").all()
    assert lost.loss.isna().all()
    assert (lost.h > 10).all()
    assert set(found.best) == {"wild", "tame"}
    assert found.best["wild"].candidate.values["h"] < 10


def test_a_method_of_which_all_diverge_has_no_best():
    wild = hb.Partition(hb.SGD(), hb.between(1e8, 1e9))
    found = tuned(methods={"wild": wild, "tame": hb.Partition(hb.SGD(), 0.1)}, candidates=4)
    assert list(found.best) == ["tame"]
    assert found.without == {"wild": "every candidate diverged"}
    assert "every candidate diverged" in repr(found)
    words = r"nothing was found in 400 steps \(partition: every candidate diverged\): search at smaller h"
    with pytest.raises(FloatingPointError, match=words):
        tuned(methods=wild, candidates=4)


def late_diverging(low, high):
    """Return SGD whose weights explode from step 300 on, where h is above 0.002."""
    decay = hb.schedules.Piecewise([0.0, 1e3], [300])
    return hb.Partition(hb.SGD(weight_decay=decay), hb.between(low, high))


def test_where_finalists_diverge_the_next_best_are_run_to_the_end():
    """Larger h are better until they explode: what is found was judged at the last step, by its own run."""
    found = tuned(
        methods={"late": late_diverging(1e-4, 1.0), "as it is": hb.Partition(hb.SGD(), 0.1)}, candidates=8
    )
    best = found.best["late"]
    assert (best.rung, best.steps) == (RUNGS, 400)
    assert best.candidate.values["h"] < 0.002
    lost = found.table[found.table.diverged]
    assert len(lost) == 5
    assert (lost.h > 0.002).all()
    assert lost.loss.isna().all()
    sets, chosen = held_out(SPIRALS, 0.2, 2, 0)
    run = next(run for run in found.lasts if best.name in run.plan.named)
    (judged,) = score_candidates([best.candidate], run, chosen)
    assert best.loss == judged.loss
    alone = hb.train(sets, NETWORK, best.candidate.made, 400, 10, 2, record=1)
    assert np.array_equal(run.select(method=best.name).theta, alone.theta)
    assert found.table[found.table.best].method.tolist() == ["late", "as it is"]
    assert found.table[found.table.best].rung.tolist() == [RUNGS, RUNGS]


@pytest.mark.parametrize("candidates", [12, 16])
def test_a_method_of_which_none_comes_to_the_end_has_no_best_and_says_so(candidates):
    methods = {"late": late_diverging(0.01, 1.0), "as it is": hb.Partition(hb.SGD(), 0.1)}
    found = tuned(methods=methods, candidates=candidates)
    assert list(found.best) == ["as it is"] == [found.winner]
    own = found.table[found.table.method == "late"]
    assert 0 < own.diverged.sum() < candidates  # others were dropped, at an earlier step
    assert not own.best.any()
    words = f"none came to the end: {own.diverged.sum()} of its {candidates} candidates diverged"
    assert words in found.without["late"]
    assert words in repr(found)
    assert "late" not in found.edges
    with pytest.raises(FloatingPointError, match=r"nothing was found .*\(partition: none came to"):
        tuned(methods=late_diverging(0.01, 1.0), candidates=candidates)


def test_what_takes_the_place_of_finalists_is_in_checkpoints_and_progress(tmp_path):
    told = []
    found = tuned(methods=late_diverging(1e-4, 1.0), candidates=8, checkpoint=tmp_path, progress=told.append)
    assert sorted(path.name for path in tmp_path.glob("again*")) == ["again-0.nc", "again-1.nc", "again-2.nc"]
    steps = [now.step for now in told]
    assert steps == sorted(steps)
    assert all(now.step <= now.steps for now in told)
    (tmp_path / "again-2.nc").unlink()
    same(tuned(methods=late_diverging(1e-4, 1.0), candidates=8, checkpoint=tmp_path), found)


def test_the_run_of_what_was_dropped_is_not_there_after_ctrl_c():
    found = tuned(candidates=4)
    dropped = next(trial for trial in found.trials if trial.rung == 1)
    only = replace(found, trials=[dropped], finished=False)
    assert only.partition == dropped.candidate.made
    assert "interrupted" in repr(only)
    with pytest.raises(ValueError, match="was not kept: it had been dropped"):
        _ = only.run


def test_a_round_in_which_the_last_one_diverges_does_not_end_the_search():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(40, 2))
    y = np.column_stack([X[:, 0], np.sin(X[:, 1])])
    problem = hb.datasets.from_arrays(X, y, task="regression", standardise=True)
    for seed in (0, 2):
        found = hb.tune(problem, hb.MLP((5,)), "LOL", steps=80, candidates=16, seed=seed)
        assert found.table.diverged.any()
        assert np.isfinite(found.best["LOL"].loss)


# What is found


def test_what_is_found_can_be_pasted(found):
    names = {name: getattr(hb, name) for name in ("Partition", *hb.methods.known_methods())}
    assert eval(found.code("SGD"), names) == found.partitions["SGD"]
    assert eval(found.code("AdLaLa"), names) == found.partitions["AdLaLa"]
    preset = tuned(methods=hb.LOL, candidates=2)
    assert preset.code().startswith("LOL(h=")
    assert eval(preset.code(), {"LOL": hb.LOL}) == preset.partition


def test_the_best_of_all(found):
    worths = {name: trial.worth("accuracy") for name, trial in found.best.items()}
    assert found.winner == min(worths, key=worths.get)
    assert found.partition == found.partitions[found.winner] == found.run.partition
    assert found.code() in repr(found)


def test_by_loss_and_by_accuracy():
    for by, column, best in (("loss", "loss", min), ("accuracy", "accuracy", max)):
        table = tuned(by=by, seed=5).table
        finalists = table[table.rung == RUNGS + 1]
        assert len(finalists) == 2
        assert finalists[column].iloc[0] == best(finalists[column])


def test_what_matters_is_told():
    """h from much too small to well chosen, and an eps that makes no difference."""
    method = hb.Partition(hb.Adam(eps=hb.between(1e-12, 1e-10)), hb.between(1e-6, 1e-2))
    found = tuned(methods={"Adam": method}, candidates=32)
    assert list(found.importance["Adam"]) == ["h", "eps"]
    assert found.importance["Adam"]["h"] > 0.8
    assert sum(found.importance["Adam"].values()) == pytest.approx(1)


def test_the_end_of_a_range_is_told_and_warned_of_with_what_to_try():
    words = r"the best of Adam lie at the end of a range: h at 0.0001, try between\(1e-08, 0.01\)"
    with pytest.warns(hb.SearchEdgeWarning, match=words) as caught:
        found = tuned(methods={"Adam": hb.Partition(hb.Adam(), hb.between(1e-8, 1e-4))}, candidates=32)
    assert [warning.filename for warning in caught] == [__file__]
    assert found.edges == {"Adam": {"h": 1e-4}}
    assert found.wider == {"Adam": {"h": hb.between(1e-8, 1e-2)}}
    assert "at the end of a range: h at 0.0001, try between(1e-08, 0.01)" in repr(found)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        inside = tuned(methods={"Adam": hb.Partition(hb.Adam(), hb.between(1e-6, 10.0))}, candidates=32)
    assert inside.edges == {}


def test_a_partition_without_ranges_is_one_candidate():
    found = tuned(methods={"as it is": hb.AdLaLa(), "searched": SEARCH})
    own = found.table[found.table.method == "as it is"]
    assert len(own) == 1
    assert own.rung.tolist() == [RUNGS + 1]
    assert found.partitions["as it is"] == hb.AdLaLa()


# Noise that is sampled


def regression():
    generator = np.random.default_rng(0)
    X = generator.standard_normal((60, 2))
    return hb.datasets.from_arrays(X, X @ [1.0, 2.0], task="regression", standardise=True, test_share=0.0)


def sampling(h):
    return hb.LaLa(h, 1.0, posterior=hb.Posterior(prior=1.0))


def test_that_a_search_is_too_short_to_draw_the_noise_is_told_once():
    """The noise is drawn every 50 steps.

    A search of 40 steps has no draw. One of 80 steps has one, though its first rungs end before.
    """
    options = {"candidates": 16, "batch": 48}
    methods = {"a": sampling(hb.between(0.01, 0.1)), "b": sampling(hb.between(0.02, 0.2))}
    with pytest.warns(RuntimeWarning, match="the noise of the data is drawn every 50 steps") as caught:
        tuned(regression(), methods, steps=40, **options)
    kinds = [warning for warning in caught if issubclass(warning.category, RuntimeWarning)]
    assert len(kinds) == 1
    assert "there are only 40: it keeps its first value" in str(kinds[0].message)
    assert kinds[0].filename == __file__
    tuned(regression(), methods, steps=80, **options)


# What is refused


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 7}, r"steps \(of which the first of 4 rungs has an eighth\) must be a whole number >= 8"),
        ({"candidates": 0}, "candidates must be a whole number >= 1"),
        ({"validation": 0.0}, "there are no validation data"),
        ({"validation": 1.0}, "validation must be >= 0 and < 1"),
        ({"by": "beauty"}, "by must be one of 'loss', 'accuracy'"),
        ({"methods": []}, "at least one method"),
        ({"methods": "adlalala"}, "there is no method 'adlalala' to tune; accepted: adlala, lol"),
        ({"methods": [hb.LOL, "lol"]}, "several LOL: give them as a dict"),
        ({"methods": hb.AdLaLa(h="auto")}, "h='auto' is found by train"),
        ({"methods": hb.AdLaLa(h=[0.1, 0.2], tau=hb.between(1e-5, 1e-3))},
         r"h: tune looks within ranges, .* and takes no list; got \(0.1, 0.2\)"),
        ({"chains": 0}, "chains must be a whole number >= 1"),
        ({"problem": hb.datasets.spirals(n_train=10, draws=2)}, "one data set, and the problem has 2"),
        ({"problem": hb.datasets.from_arrays([[1.0], [2.0]], [0.5, 1.0], task="regression", test_share=0.0),
          "by": "accuracy"}, "'regression' has no accuracy"),
        ({"problem": hb.datasets.spirals(n_train=1, n_test=0)}, "no validation data: of 1 training examples"),
    ],
)  # fmt: skip
def test_errors_say_what_is_wrong(options, message):
    with pytest.raises(ValueError, match=message):
        tuned(**options)


@pytest.mark.parametrize("method", [3, None, hb.Langevin(1.0, 1e-4), len, object])
def test_what_is_no_method_is_refused(method):
    with pytest.raises(TypeError, match="a method to tune is a preset such as AdLaLa"):
        tuned(methods=method)


def test_all_problems_are_told_at_once():
    problem = hb.datasets.from_arrays([[1.0], [2.0]], [0.5, 1.0], task="regression", test_share=0.0)
    with pytest.raises(ValueError, match=r"no validation data.*'regression' has no accuracy"):
        tuned(problem, validation=0.0, by="accuracy")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"progress": 3}, "progress must be a function of a Progress, got 3"),
        ({"checkpoint": 3}, "checkpoint must be a path, got 3"),
        ({"threads": "two"}, "threads must be a whole number >= 1"),
        ({"every": "often"}, "every must be a number"),
    ],
)
def test_what_says_how_to_search_is_checked_before_anything_is_done(options, message, monkeypatch, tmp_path):
    monkeypatch.setattr(search, "simulate", None)
    with pytest.raises(TypeError, match=message):
        tuned(**{"checkpoint": tmp_path / "search", **options})
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_no_checkpoint_of_a_search(tmp_path):
    (tmp_path / "run.nc").write_text("")
    with pytest.raises(NotADirectoryError, match=r"the checkpoint of a search is a folder, and .* is a"):
        tuned(checkpoint=tmp_path / "run.nc")


def test_what_is_no_problem_is_refused():
    with pytest.raises(TypeError, match="problem must be a Problem"):
        tuned("spirals")
