"""The search: all candidates in one ensemble, halved again and again, the better ones going on."""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from heatbath._internal.checks import SHARE, choice, real, whole
from heatbath._internal.warnings import DivergedWarning, StaleNoiseWarning
from heatbath.datasets import Problem
from heatbath.datasets.problem import Floats
from heatbath.datasets.tasks import TASKS, each_class
from heatbath.models.dense import MLP
from heatbath.runs.distributed.pools import chosen_pool
from heatbath.runs.launch import check_manner, simulate
from heatbath.runs.plan import Plan, make_plan
from heatbath.runs.progress import Progress
from heatbath.runs.run import Run
from heatbath.runs.simulation import warn_of_stale_noise
from heatbath.tuning.optuna import Asked, batches, checked
from heatbath.tuning.search_space import Candidate, Family, Searched, families
from heatbath.tuning.trials import (
    RESERVES,
    RUNGS,
    Trial,
    TuningResult,
    in_round,
    ranked,
    reserves,
    rounds,
    warn_of_edges,
)

if TYPE_CHECKING:
    import optuna
from heatbath.evaluation.metrics import losses
from heatbath.tuning.halving import FACTOR, Rung, check_outcome, ladder

LOOKS = 50  # networks of each chain whose predictions are averaged, in the second half of a rung
RECORDS = 10  # and at which single networks are looked at
AGAIN, MORE = 20, 5  # one in so many is run again in the end, with so many times as many chains


def tune(
    problem: Problem,
    network: MLP,
    methods: Searched | Sequence[Searched] | Mapping[str, Searched],
    steps: int = 20_000,
    batch: int | None = None,
    chains: int = 2,
    *,
    candidates: int = 128,
    by: Literal["loss", "accuracy"] = "loss",
    validation: float = 0.2,
    seed: int = 0,
    dtype: Literal["float32", "float64"] = "float32",
    shuffled: bool = False,
    threads: int | None = None,
    progress: Callable[[Progress], None] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    every: float = 60.0,
    study: optuna.Study | None = None,
    executor: object = None,
) -> TuningResult:
    """Coefficients with which a method serves a problem well, found by trying many.

    `methods` is one, several in a list, or several by name in a dict; each is

    - a preset or a method, or its name (`hb.AdLaLa`, `hb.Adam`, "LOL"), which has ranges to search in;
    - in a dict, arguments for the one that its name says: `{"AdLaLa": {"h": hb.between(0.1, 1.0), "sigma":
      0.01}, "Adam": {}}` has ranges and values in place of its own ranges; `found.wider` is one, too;
    - a partition with ranges, `hb.AdLaLa(h=hb.between(0.02, 0.5), tau=1e-4)`; all else stays as it is. Parts
      that are given the same range share its value.

    Half of the `candidates` of each method fill its ranges evenly (a quasi-random design), the other half are
    near the best of these. All of them make an eighth of the `steps`, with `chains` chains each, in one
    ensemble; the better half of each method goes on to a quarter, and so on, to the end. The best, one in
    twenty, are then run again with five times as many chains, from other starts, which decides between them.
    (Fewer than 16 candidates fill the ranges, and the first decision counts.) A candidate of which a chain
    diverges is out, and costs nothing more; where all that came to the end are out, the next best are run to
    the end, three times if need be. What is found has come to the end, or a method has no best (`without`
    says why). `SearchEdgeWarning` warns of best values at an end of their range: search again, in
    `found.wider`.

    They are judged `by` the loss or the accuracy of averaged predictions, over the second half of the steps
    that were made since the last time, for examples that a chain does not see: `validation` is the share of
    the training examples that is set aside, others for each chain. Test examples play no part.

    - `checkpoint`: a folder with the state of the search, as in `train`: the same call with one that is there
      continues from it.
    - `seed`: the same gives the same answer on any number of threads.
    - `study`: a study of Optuna (`heatbath[optuna]`) chooses the candidates of one method, 16 at a time,
      which are halved among themselves, and none is run again. It is told the score at every rung; those that
      do not come to the end are pruned trials. A share near 1 such as β₁ is its parameter "1 - beta1". It has
      no checkpoint.
    - `executor`: as in `sweep`, for the candidates of each rung.
    - for the others see `train`; a `Progress` counts the steps of all chains together. Ctrl-C ends the search
      with what is known after the last rung, if there is one.

    >>> import heatbath as hb
    >>> problem = hb.datasets.spirals(turns=1, n_train=100, n_test=20)
    >>> method = hb.AdLaLa(h=hb.between(0.02, 0.5), tau=hb.between(1e-6, 1e-3))
    >>> found = hb.tune(problem, hb.MLP((10,)), method, steps=800, candidates=8)
    >>> found.partition == found.run.partition, sorted(found.importance["partition"])
    (True, ['h', 'tau'])
    """
    check_manner(threads, progress, checkpoint, every)
    search = prepare(
        problem, network, methods, steps, batch, chains, candidates=candidates, by=by, validation=validation,
        study=study, seed=seed, dtype=dtype, shuffled=shuffled,
    )  # fmt: skip
    if study is not None and checkpoint is not None:
        raise ValueError(
            "a study keeps its own state: leave out checkpoint, and give it a storage of Optuna's"
        )
    folder = None if checkpoint is None else Path(checkpoint)
    if folder is not None and folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"the checkpoint of a search is a folder, and {folder} is a file")
    manner = dict(threads=threads, every=every, pool=chosen_pool(executor))
    found = replace(search, manner=manner, checkpoint=folder).run(progress)
    warn_of_edges(found)
    return found


def prepare(
    problem: Problem,
    network: MLP,
    methods: Searched | Sequence[Searched] | Mapping[str, Searched],
    steps: int,
    batch: int | None,
    chains: int,
    *,
    candidates: int,
    by: Literal["loss", "accuracy"],
    validation: float,
    study: optuna.Study | None = None,
    **settings: Any,
) -> HalvingSearch:
    """What `tune` carries out; all that is wrong is refused."""
    given = families(methods)
    wrong = _wrong(problem, by, validation)
    if wrong:
        raise ValueError(f"tune: {'; '.join(wrong)}")
    steps = whole(
        f"steps (of which the first of {RUNGS} rungs has an eighth)", steps, low=FACTOR ** (RUNGS - 1)
    )
    candidates = whole("candidates", candidates, low=1, high=2**16)
    seed = whole("seed", settings["seed"], low=0, high=2**64 - 8)  # others follow from it
    sets, chosen = held_out(problem, validation, whole("chains", chains, low=1), seed)
    return HalvingSearch(
        problem=problem,
        sets=sets,
        chosen=chosen,
        network=network,
        families=given,
        counts=rounds(candidates) if study is None else batches(candidates),
        steps=steps,
        by=by,
        validation=validation,
        settings=dict(batch=batch, chains=chains, **settings),
        study=None if study is None else checked(study, given, by),
    )


def _wrong(problem: object, by: object, validation: object) -> list[str]:
    """All that is wrong with what is judged, and by what."""
    if not isinstance(problem, Problem):
        raise TypeError(f"problem must be a Problem, got {problem!r}")
    choice("by", by, ("loss", "accuracy"))
    share = real("validation", validation, SHARE)
    wrong = []
    if problem.draws > 1:
        wrong.append(f"it needs one data set, and the problem has {problem.draws}: make it with draws=1")
    rows = problem.X_train.shape[1]
    if share == 0 or rows < 2:
        wrong.append(
            f"there are no validation data: of {rows} training examples a share between 0 and 1 is set aside "
            f"to judge by, got validation={validation!r}"
        )
    if by == "accuracy" and not TASKS[problem.task].classes:
        wrong.append(f"{problem.task!r} has no accuracy: take by='loss'")
    return wrong


def held_out(problem: Problem, share: float, folds: int, seed: int) -> tuple[Problem, NDArray[np.int64]]:
    """Data sets side by side, one for each chain, in which other training examples are set aside as the test
    examples; and which these are, (folds, examples).

    They are taken evenly over the classes, or over the values of the first target, and one after another, so
    that no example is set aside again before all have been.
    """
    rows = problem.X_train.shape[1]
    count = min(max(1, round(share * rows)), rows - 1)
    shuffled = np.random.default_rng(np.random.SeedSequence((seed, rows))).permutation(rows)
    order = shuffled[np.argsort(problem.Y_train[0, shuffled, 0], kind="stable")]
    apart = rows / count
    first = np.arange(folds) * max(1.0, apart / folds) % apart
    chosen = order[((np.arange(count) * apart + first[:, None]) % rows).astype(np.int64)]
    rest = np.array([np.setdiff1d(np.arange(rows), fold) for fold in chosen])
    X, Y, weights = problem.X_train[0], problem.Y_train[0], problem.weights_train
    sets = replace(
        problem,
        name=f"{problem.name}, validation",
        X_train=X[rest],
        Y_train=Y[rest],
        X_test=X[chosen],
        Y_test=Y[chosen],
        weights_train=None if weights is None else weights[0][rest],
        weights_test=None if weights is None else weights[0][chosen],
        recipe=None,
    )
    return sets, chosen


@dataclass(frozen=True, eq=False)
class HalvingSearch:
    """A search that was prepared."""

    problem: Problem
    sets: Problem  # whose test examples are those for validation, others for each chain
    chosen: NDArray[np.int64]  # which these are
    network: MLP
    families: list[Family]
    counts: list[int]  # candidates of each method in each round
    steps: int
    by: Literal["loss", "accuracy"]
    validation: float
    settings: dict[str, Any]
    manner: dict[str, Any] = field(default_factory=dict)
    checkpoint: Path | None = None
    study: Asked | None = None

    def first_plan(self) -> Plan:
        """The plan of all candidates on the first rung."""
        return self._plan(self._tried(0, {}), ladder(self.steps, self.counts[0])[0].steps)

    def run(self, progress: Callable[[Progress], None] | None) -> TuningResult:
        """Search in the whole ranges, then near the best that were found, and decide between the best.
        Others that compute are given the data once."""
        with self.manner.get("pool") or nullcontext():
            return self._run(progress)

    def _run(self, progress: Callable[[Progress], None] | None) -> TuningResult:
        if self.checkpoint is not None:
            os.makedirs(self.checkpoint, exist_ok=True)
        trials: dict[str, Trial] = {}
        lasts: list[Run] = []
        finished = True
        counted = _Counted(progress, self._work())
        for number, count in enumerate(self.counts):
            tried = self._tried(number, trials)
            if not tried:  # no method has a range
                break
            try:
                last, finished = self._halve(number, ladder(self.steps, count), tried, trials, counted)
            finally:
                if self.study is not None:
                    self.study.tell([trials[name] for name in tried], self.steps)
            lasts += [] if last is None else [last]
            if not finished:
                break
        if finished:
            again, finished = self._run_again(trials, counted)
            lasts += again
        found = TuningResult(self.families, list(trials.values()), self.by, lasts, finished=finished)
        if not finished and not found.best:
            raise KeyboardInterrupt
        check_outcome(found, self.steps)
        return found

    @property
    def _confirms(self) -> bool:
        """Whether the best are run again."""
        return len(self.counts) > 1 and self.study is None

    def _tried(self, number: int, trials: dict[str, Trial]) -> dict[str, Candidate]:
        """The candidates of a round, by name."""
        if self.study is not None:
            return {one.name: one for one in self.study.ask(self.families[0], self.counts[number])}
        seed = self.settings["seed"]
        some = [in_round(number, self.counts, family, trials, self.by, seed) for family in self.families]
        return {one.name: one for own in some for one in own}

    def _run_again(self, trials: dict[str, Trial], counted: _Counted) -> tuple[list[Run], bool]:
        """The best of each method again, with more chains, which decides between them; or, without a last
        comparison, those that take the place of finalists that diverged. Their runs, and whether nobody
        stopped them."""
        search, goal = self, RUNGS
        if self._confirms:
            chains, seed = MORE * self.settings["chains"], self.settings["seed"] + len(self.counts)
            sets, chosen = held_out(self.problem, self.validation, chains, seed)
            settings = self.settings | {"chains": chains, "seed": seed}
            search, goal = replace(self, sets=sets, chosen=chosen, settings=settings), RUNGS + 1
        runs: list[Run] = []
        for number in range(RESERVES if self.study is None else 0):  # a study asks for others itself
            some = [reserves(trials, f, self.by, goal, self._confirmed(f)) for f in self.families]
            going = {one.name: one.candidate for own in some for one in own}
            if not going:
                break
            label = f"again-{number}.nc" if number or not self._confirms else "confirmed.nc"
            file = None if self.checkpoint is None else self.checkpoint / label
            work = self.steps * len(going) * search.settings["chains"]
            counted.work = max(counted.work, counted.past + work)
            try:
                run = search._climb(None, going, Rung(self.steps, len(going)), file, counted)
            except KeyboardInterrupt:
                return runs, False
            counted.past += work
            if run is None:
                trials |= {name: trials[name].lost(goal, self.steps) for name in going}
                continue
            runs.append(run)
            for name, scores in judged(run, search.chosen).items():
                trials[name] = replace(trials[name], rung=goal, steps=self.steps, **scores)
        return runs, True

    def _confirmed(self, family: Family) -> int:
        return max(2, sum(self.counts) // AGAIN) if family.ranges else 1

    def _halve(
        self,
        number: int,
        rungs: list[Rung],
        tried: dict[str, Candidate],
        trials: dict[str, Trial],
        counted: _Counted,
    ) -> tuple[Run | None, bool]:
        """The run of those that came to the last rung, or as far as it came (None if to none), and whether
        nobody stopped it."""
        trials |= {name: Trial(candidate) for name, candidate in tried.items()}
        going, run, last, before = list(tried), None, None, 0
        for place, rung in enumerate(rungs, start=1):
            file = None if self.checkpoint is None else self.checkpoint / f"round-{number + 1}-{place}.nc"
            try:
                run = self._climb(run, {name: tried[name] for name in going}, rung, file, counted)
            except KeyboardInterrupt:
                return last, False
            if run is None:
                trials |= {name: trials[name].lost(place, rung.steps) for name in going}
                counted.past += (rung.steps - before) * len(going) * int(self.settings["chains"])
                return last, True
            last = run
            for name, scores in judged(run, self.chosen).items():
                trials[name] = replace(trials[name], rung=place, steps=rung.steps, **scores)
            if self.study is not None:
                self.study.report(trials[name] for name in going)
            counted.past += (rung.steps - before) * len(run.theta)
            before = rung.steps
            if place == len(rungs):
                return last, True
            here = {name: trials[name] for name in going}
            better = [ranked(here, family, self.by)[: rungs[place].size] for family in self.families]
            going = [trial.name for some in better for trial in some if not trial.diverged]
            if not going:
                return last, True
        return last, True

    def _climb(
        self, run: Run | None, going: dict[str, Candidate], rung: Rung, file: Path | None, counted: _Counted
    ) -> Run | None:
        """The run of the candidates that go on, at the end of a rung; None if all their chains diverge.
        Ctrl-C, which ends a run before that, is passed on."""
        before = 0 if run is None else run.step
        length = rung.steps - before
        chains = len(going) * int(self.settings["chains"])
        if run is None:
            plan = self._plan(going, length)
        else:
            looks, thin, records = _looks(length, rung.steps)
            run = run.with_methods(list(going)).on_other_examples(
                self.sets, length, looks, thin, batch=run.plan.batch
            )
            plan = run.plan.extended(run.step, length, records)
        if not counted.past:
            warn_of_stale_noise(plan, self.steps)
        manner = {**self.manner, "progress": counted.of(before, chains), "checkpoint": file}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DivergedWarning)
            warnings.simplefilter("ignore", StaleNoiseWarning)  # of the whole search there was one
            try:
                climbed = simulate(plan, run, **manner)
            except FloatingPointError:
                return None
            except ValueError as error:  # the plan is right, so that it is the file
                raise ValueError(
                    f"{self.checkpoint} holds another search, or is damaged: call tune as it was called to "
                    f"continue it, or with another folder; {error}"
                ) from None
        if not climbed.finished:
            raise KeyboardInterrupt
        return climbed

    def _plan(self, going: dict[str, Candidate], length: int) -> Plan:
        """The plan of a first rung."""
        looks, thin, records = _looks(length, length)
        problem = self.problem
        return make_plan(
            self.sets, self.network, {name: one.made for name, one in going.items()}, length,
            call="compare", record=records, average=problem.X_train[0] * problem.scale + problem.shift,
            burn_in=length - looks * thin, thin=thin, **self.settings,
        )  # fmt: skip

    def _work(self) -> int:
        """The steps of all chains, if none diverges."""
        searched = [family for family in self.families if family.ranges]
        alone = len(self.families) - len(searched)
        work = 0
        for number, count in enumerate(self.counts):
            rungs = ladder(self.steps, count)
            lengths = np.diff([0, *(rung.steps for rung in rungs)])
            sizes = [len(searched) * rung.size + (alone if number == 0 else 0) for rung in rungs]
            work += int(lengths @ np.array(sizes))
        if self._confirms:
            work += MORE * self.steps * sum(map(self._confirmed, self.families))
        return work * int(self.settings["chains"])


def _looks(length: int, end: int) -> tuple[int, int, list[int]]:
    """Of a rung: how many networks are averaged, how many steps apart, and the steps of the records."""
    looks = min(LOOKS, length)
    records = sorted({end - length * k // (2 * RECORDS) for k in range(RECORDS)})
    return looks, max(1, length // (2 * looks)), records


class _Counted:
    """Progress in the steps of all chains, those that were made before included."""

    def __init__(self, progress: Callable[[Progress], None] | None, work: int) -> None:
        self.progress, self.work, self.past = progress, work, 0
        self.first, self.begin = (
            -1,
            math.nan,
        )  # where this process began, and when, known with the first slice

    def of(self, before: int, chains: int) -> Callable[[Progress], None]:
        """What a run of so many chains tells of itself, that begins where others ended before."""

        def tell(now: Progress) -> None:
            if self.first < 0:
                self.first = self.past + (now.first - before) * chains
                self.begin = time.perf_counter() - now.seconds  # without compilation
            if self.progress is not None:
                step, seconds = self.past + (now.step - before) * chains, time.perf_counter() - self.begin
                told = replace(
                    now, step=step, steps=self.work, seconds=seconds, first=self.first, finding=True
                )
                self.progress(told)

        return tell


def judged(run: Run, chosen: NDArray[np.int64]) -> dict[str, dict[str, Any]]:
    """What the predictions of each candidate of a comparison are worth, and the single networks.

    The loss is the mean over the test examples of every chain, in units of the standardised targets.
    """
    problem, chains = run.problem, run.plan.chains
    names = list(run.plan.named)
    means = run.averages()["mean"].values
    if problem.task == "regression":
        means = (means - problem.target_shift) / problem.target_scale
    draw = np.arange(len(means)) % chains
    means, y = means[np.arange(len(means))[:, None], chosen[draw]], problem.Y_test[draw]
    weights = problem.relative_weights("test")
    known = np.ones(means.shape[:2]) if weights is None else weights[draw]
    columns: dict[str, Floats] = {
        "loss": losses(problem.task, means, y),
        "accuracy": np.full(means.shape[:2], math.nan),
    }
    if TASKS[problem.task].classes:
        columns["accuracy"] = np.asarray(each_class(means).argmax(axis=-1) == y[..., 0], np.float64)
    scores = {key: (values * known).mean(axis=1) for key, values in columns.items()}
    for name in ("loss", "accuracy"):
        scores[f"single_{name}"] = run.data[name].sel(split="test").values[:, -RECORDS:].mean(axis=1)
    by_candidate = {key: values.reshape(len(names), chains).mean(axis=1) for key, values in scores.items()}
    lost = [bool(chains.any()) for chains in (run.died >= 0).reshape(len(names), chains)]
    return {
        name: {
            "diverged": lost[i],
            **{key: math.nan if lost[i] else float(values[i]) for key, values in by_candidate.items()},
        }
        for i, name in enumerate(names)
    }
