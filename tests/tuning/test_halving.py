"""Rounds, rungs and finalists of a search, with trainers that only pretend to train."""

import numpy as np

import heatbath as hb
from heatbath.tuning.halving import SuccessiveHalving, finalist_count, ladder, planned_steps, round_sizes
from heatbath.tuning.search_space import Candidate, families
from heatbath.tuning.trials import RUNGS, Trial


def test_rungs_halve():
    assert ladder(1000, 20) == [(125, 20), (250, 10), (500, 5), (1000, 3)]
    assert [rung.size for rung in ladder(8, 1)] == [1, 1, 1, 1]


class PretendedTrainer:
    """A trainer that gives candidates fixed losses, infinite for divergence, and notes the requests."""

    def __init__(self, losses):
        self.losses, self.trained, self.again, self.dropped = losses, [], [], []

    def _trial(self, candidate):
        loss = self.losses[candidate.name]
        return Trial(candidate, diverged=True) if loss == np.inf else Trial(candidate, loss=loss)

    def train(self, candidates, rung, number):
        self.trained.append((rung.steps, [candidate.name for candidate in candidates]))
        return map(self._trial, candidates)

    def train_again(self, candidates, attempt):
        self.again.append([candidate.name for candidate in candidates])
        return map(self._trial, candidates)

    def drop(self, losers):
        self.dropped += [trial.name for trial in losers]


def make_search(losses):
    (family,) = families(hb.Partition(hb.SGD(), hb.between(0.01, 0.1)))
    candidates = [Candidate(name, family, {"h": 0.05}) for name in losses]
    trainer = PretendedTrainer(losses)
    return SuccessiveHalving(trainer, [family], 800, "loss"), candidates, trainer


def test_the_better_half_goes_on_to_twice_the_steps():
    search, candidates, trainer = make_search({"a": 3.0, "b": 1.0, "c": 4.0, "d": 2.0})
    search.run_round(candidates, 4)
    assert trainer.trained == [(100, ["a", "b", "c", "d"]), (200, ["b", "d"]), (400, ["b"]), (800, ["b"])]
    assert {name: trial.rung for name, trial in search.trials.items()} == {"a": 1, "b": 4, "c": 1, "d": 2}
    assert sorted(trainer.dropped) == ["a", "b", "c", "d"]


def test_diverged_candidates_leave_their_places_to_others():
    search, candidates, trainer = make_search({"a": np.inf, "b": 5.0, "c": np.inf, "d": np.inf})
    search.run_round(candidates, 4)
    assert trainer.trained[1] == (200, ["b"])
    assert search.trials["a"].diverged


def test_finalists_are_run_again_and_the_next_best_replace_those_that_diverge():
    losses = {"a": 3.0, "b": 1.0, "c": 4.0, "d": 2.0}
    search, candidates, trainer = make_search(losses)
    search.run_round(candidates, 4)
    losses["b"] = losses["d"] = np.inf
    search.run_finalists(2, RUNGS + 1)
    assert trainer.again == [["b", "d"], ["a", "c"]]
    assert search.trials["a"].rung == RUNGS + 1


def test_a_search_with_few_candidates_has_one_round_and_two_finalists():
    assert round_sizes(15) == [15]
    assert round_sizes(17) == [9, 8]
    assert (finalist_count(10), finalist_count(100)) == (2, 5)


def test_planned_steps_count_every_rung_of_every_round():
    searched = families({"a": hb.SGD, "b": hb.Partition(hb.SGD(), 0.1)})
    # of "a", 4 candidates make 100 steps, 2 another 100, 1 another 200 and 400; "b" is one candidate
    assert planned_steps(searched, [4], 800) == (4 + 2) * 100 + 200 + 400 + 800
