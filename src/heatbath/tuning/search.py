"""`tune` on the engine: all candidates of a rung train in one ensemble, and the better half continues."""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from heatbath._internal.checks import SHARE, choice, real, whole
from heatbath._internal.warnings import DivergedWarning, StaleNoiseWarning
from heatbath.datasets import Problem
from heatbath.datasets.problem import Floats
from heatbath.datasets.tasks import TASKS, each_class
from heatbath.evaluation.metrics import losses
from heatbath.models.dense import MLP
from heatbath.runs.continuation import extend_plan, sample_again
from heatbath.runs.distributed.pools import chosen_pool
from heatbath.runs.launch import check_execution, simulate
from heatbath.runs.plan import Plan, make_plan
from heatbath.runs.progress import Progress
from heatbath.runs.run import Run
from heatbath.runs.simulation import warn_of_stale_noise
from heatbath.tuning.halving import (
    FACTOR,
    FINAL,
    Rung,
    SuccessiveHalving,
    check_outcome,
    finalist_count,
    ladder,
    planned_steps,
    propose_candidates,
    round_sizes,
)
from heatbath.tuning.optuna import Asked, batches, checked
from heatbath.tuning.search_space import Candidate, Family, Searched, families
from heatbath.tuning.trials import RUNGS, Trial, TuningResult, warn_of_edges

if TYPE_CHECKING:
    import optuna

LARGEST_SEED = 2**64 - 8  # later rounds add small numbers to it
AVERAGED = 50  # networks of each chain whose predictions are averaged, in the second half of a rung
RECORDS = 10  # records on which the scores of single networks are averaged, in the second half of a rung


def tune(  # noqa: PLR0913 # options by keyword
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
    """Search the coefficients of one or several methods that suit a problem best.

    Half of the candidates of each method fill its ranges evenly (a quasi-random design), the other half lie
    near the best of these. All candidates train for an eighth of the `steps`, in one ensemble; the better
    half of each method goes on to a quarter, and so on to the end. The best 5 % are then run again with five
    times as many chains from other starts, which decides between them. Fewer than 16 candidates fill the
    ranges, and the first decision counts.

    A candidate drops out when one of its chains diverges. If all that came to the end have dropped out, the
    next best are run to the end, up to three times. A method may end without a best candidate;
    `TuningResult.without` has the reason. `SearchEdgeWarning` warns of best values at an end of their range:
    search again in `TuningResult.wider`.

    Parameters
    ----------
    problem, network
        **What to search.** The data and the network.
    methods
        One method, a list of methods, or methods by name. A method is

        - a preset or method, or its name (`hb.AdLaLa`, `hb.Adam`, "LOL"), with its default ranges;
        - in a dict, arguments for the one with this name: ranges and values that replace the default ranges,
          as in `{"AdLaLa": {"h": hb.between(0.1, 1.0), "sigma": 0.01}, "Adam": {}}`;
        - a partition with ranges, `hb.AdLaLa(h=hb.between(0.02, 0.5), tau=1e-4)`. Parts with the same range
          object share its value.
    by
        Rank by the "loss" or the "accuracy" of averaged predictions for validation examples, over the second
        half of the steps since the last ranking.
    validation
        Share of the training examples to set aside for validation, other ones for each chain. Test examples
        are never used.

    steps, batch, chains
        **How long.** Steps of a candidate that comes to the end, its batch size and its number of chains; see
        `train`.
    candidates
        Number of candidates of each method.

    seed, dtype, shuffled
        **How to run.** As in `train`. The result doesn't depend on the number of threads.
    threads, executor
        Threads, and an executor for the candidates of each rung as in `sweep`.
    progress
        As in `train`; it counts the steps of all chains together. Ctrl-C ends the search with the results of
        the last rung.
    checkpoint, every
        Folder for the state of the search, and seconds between two writes. The same call continues it.
    study
        A study of Optuna (`heatbath[optuna]`) that chooses the candidates of one method, 16 at a time. They
        are halved among themselves, and none is run again. The study gets the score at every rung; candidates
        that don't come to the end are pruned trials. A coefficient near 1 such as β₁ is its parameter
        "1 - beta1". It can't be combined with `checkpoint`.

    Returns
    -------
    TuningResult
        The best partition, its run, and all candidates with their scores.

    Examples
    --------
    >>> import heatbath as hb
    >>> problem = hb.datasets.spirals(turns=1, n_train=100, n_test=20)
    >>> method = hb.AdLaLa(h=hb.between(0.02, 0.5), tau=hb.between(1e-6, 1e-3))
    >>> found = hb.tune(problem, hb.MLP((10,)), method, steps=800, candidates=8)
    >>> found.partition == found.run.partition, sorted(found.importance["partition"])
    (True, ['h', 'tau'])
    """
    check_execution(threads, progress, checkpoint, every)
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
    execution = dict(threads=threads, every=every, pool=chosen_pool(executor))
    search = replace(search, execution=execution, checkpoint=folder)
    result = search.run(progress)
    warn_of_edges(result)
    return result


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
    """Check the arguments of `tune` and return the search that they describe, which has not begun.

    Parameters
    ----------
    problem, network, methods, steps, batch, chains, candidates, by, validation, study
        As in `tune`.
    settings
        `seed`, `dtype` and `shuffled` for the runs of all candidates.
    """
    searched = families(methods)
    problems = _problems_of_judging(problem, by, validation)
    if problems:
        raise ValueError(f"tune: {'; '.join(problems)}")
    steps = whole(
        f"steps (of which the first of {RUNGS} rungs has an eighth)", steps, low=FACTOR ** (RUNGS - 1)
    )
    candidates = whole("candidates", candidates, low=1, high=2**16)
    seed = whole("seed", settings["seed"], low=0, high=LARGEST_SEED)
    asked = None if study is None else checked(study, searched, by)
    return HalvingSearch(
        problem=problem,
        split=held_out(problem, validation, whole("chains", chains, low=1), seed),
        network=network,
        families=searched,
        counts=round_sizes(candidates) if asked is None else batches(candidates),
        steps=steps,
        by=by,
        validation=validation,
        settings=dict(batch=batch, chains=chains, **settings),
        study=asked,
    )


def _problems_of_judging(problem: object, by: object, validation: object) -> list[str]:
    """Return the reasons why candidates can't be judged, in words; none if they can.

    Parameters are those of `tune`. A value of the wrong type raises TypeError or ValueError at once.
    """
    if not isinstance(problem, Problem):
        raise TypeError(f"problem must be a Problem, got {problem!r}")
    choice("by", by, ("loss", "accuracy"))
    share = real("validation", validation, SHARE)
    problems = []
    if problem.draws > 1:
        problems.append(f"it needs one data set, and the problem has {problem.draws}: make it with draws=1")
    rows = problem.X_train.shape[1]
    if share == 0 or rows < 2:
        problems.append(
            f"there are no validation data: of {rows} training examples a share between 0 and 1 is set aside "
            f"to judge by, got validation={validation!r}"
        )
    if by == "accuracy" and not TASKS[problem.task].classes:
        problems.append(f"{problem.task!r} has no accuracy: take by='loss'")
    return problems


class ValidationSplit(NamedTuple):
    """Training examples that are set aside to judge candidates by.

    Parameters
    ----------
    problem
        One data set for each chain; its test examples are those for validation.
    rows
        Indices of these examples among the training examples of the user's problem, (chains, examples).
    """

    problem: Problem
    rows: NDArray[np.int64]


def held_out(problem: Problem, share: float, chains: int, seed: int) -> ValidationSplit:
    """Set a share of the training examples aside, other ones for each chain.

    Validation examples are evenly spaced over the classes, or over the values of the first target. Chains
    take different ones in turn, so that no example is set aside twice before all have been.

    Parameters
    ----------
    problem
        The user's problem.
    share
        Share of the training examples to set aside.
    chains
        Number of chains.
    seed
        Seed of the shuffling among equal targets.
    """
    rows = _validation_rows(problem, share, chains, seed)
    example_numbers = np.arange(problem.X_train.shape[1])
    training_rows = np.array([np.setdiff1d(example_numbers, chain_rows) for chain_rows in rows])
    X = problem.X_train[0]
    Y = problem.Y_train[0]
    training_weights = validation_weights = None
    if problem.weights_train is not None:
        training_weights = problem.weights_train[0][training_rows]
        validation_weights = problem.weights_train[0][rows]
    split = replace(
        problem,
        name=f"{problem.name}, validation",
        X_train=X[training_rows],
        Y_train=Y[training_rows],
        X_test=X[rows],
        Y_test=Y[rows],
        weights_train=training_weights,
        weights_test=validation_weights,
        recipe=None,
    )
    return ValidationSplit(split, rows)


def _validation_rows(problem: Problem, share: float, chains: int, seed: int) -> NDArray[np.int64]:
    """Return the indices of each chain's validation examples, (chains, examples); see `held_out`."""
    example_count = problem.X_train.shape[1]
    held_out_count = min(max(1, round(share * example_count)), example_count - 1)
    generator = np.random.default_rng(np.random.SeedSequence((seed, example_count)))
    shuffled = generator.permutation(example_count)
    sorted_by_target = shuffled[np.argsort(problem.Y_train[0, shuffled, 0], kind="stable")]

    spacing = example_count / held_out_count
    chain_offsets = np.arange(chains) * max(1.0, spacing / chains) % spacing
    positions = (np.arange(held_out_count) * spacing + chain_offsets[:, None]) % example_count
    return np.asarray(sorted_by_target[positions.astype(np.int64)])


@dataclass(frozen=True, eq=False)
class HalvingSearch:
    """A search that has been checked and can be run.

    Parameters
    ----------
    problem
        The user's problem.
    split
        Its examples for training and validation.
    network, families, steps, by, validation
        As in `tune`; a family for each method.
    counts
        Candidates of each method in each round.
    settings
        Arguments of `make_plan` that all candidates share.
    execution
        Arguments of `simulate` that don't change results: `threads`, `every`, `pool`.
    checkpoint
        A folder for the state of the search.
    study
        The study of Optuna that proposes candidates, if there is one.
    """

    problem: Problem
    split: ValidationSplit
    network: MLP
    families: list[Family]
    counts: list[int]
    steps: int
    by: Literal["loss", "accuracy"]
    validation: float
    settings: dict[str, Any]
    execution: dict[str, Any] = field(default_factory=dict)
    checkpoint: Path | None = None
    study: Asked | None = None

    @property
    def chains(self) -> int:
        """Chains of each candidate."""
        return int(self.settings["chains"])

    @property
    def runs_finalists(self) -> bool:
        """True if the best are run again with more chains, which decides between them."""
        return len(self.counts) > 1 and self.study is None

    def first_plan(self) -> Plan:
        """Return the plan of all candidates on the first rung."""
        return self.plan(self._propose(0, {}), ladder(self.steps, self.counts[0])[0].steps)

    def plan(self, candidates: Sequence[Candidate], length: int) -> Plan:
        """Return the plan of candidates from their start, for `length` steps."""
        schedule = _RungSchedule.of(length, length)
        partitions = {candidate.name: candidate.made for candidate in candidates}
        raw_inputs = self.problem.X_train[0] * self.problem.scale + self.problem.shift
        return make_plan(
            self.split.problem, self.network, partitions, length, call="compare", record=schedule.records,
            average=raw_inputs,
            burn_in=length - schedule.samples * schedule.thin, thin=schedule.thin, **self.settings,
        )  # fmt: skip

    def with_fresh_chains(self) -> HalvingSearch:
        """Return the search of the finalists: more chains, another seed, other validation examples."""
        chains = FINAL.chains * self.chains
        seed = self.settings["seed"] + len(self.counts)
        split = held_out(self.problem, self.validation, chains, seed)
        return replace(self, split=split, settings=self.settings | {"chains": chains, "seed": seed})

    def run(self, progress: Callable[[Progress], None] | None) -> TuningResult:
        """Search, and return what was tried; `progress` counts the steps of all chains.

        A pool of workers is given the data once.
        """
        with self.execution.get("pool") or nullcontext():
            return self._run(progress)

    def _run(self, progress: Callable[[Progress], None] | None) -> TuningResult:
        """Search with the pool open; see `run`.

        Raises
        ------
        KeyboardInterrupt
            If Ctrl-C ends the search before any candidate has been judged.
        FloatingPointError
            If the search ends without a best candidate.
        """
        if self.checkpoint is not None:
            os.makedirs(self.checkpoint, exist_ok=True)
        trainer = EnsembleTrainer(self, _SearchProgress(progress, self._planned_chain_steps()))
        halving = SuccessiveHalving(trainer, self.families, self.steps, self.by)
        try:
            for round_number, candidate_count in enumerate(self.counts):
                self._run_round(halving, round_number, candidate_count)
            if self.study is None:  # a study replaces diverged candidates itself
                last_rung = RUNGS + 1 if self.runs_finalists else RUNGS
                halving.run_finalists(finalist_count(sum(self.counts)), last_rung)
            is_finished = True
        except KeyboardInterrupt:
            is_finished = False

        trials = list(halving.trials.values())
        result = TuningResult(self.families, trials, self.by, trainer.runs, finished=is_finished)
        if not is_finished and not result.best:
            raise KeyboardInterrupt
        check_outcome(result, self.steps)
        return result

    def _run_round(self, halving: SuccessiveHalving, number: int, count: int) -> None:
        """Train the candidates of a round; a study is told how they ended, whatever happens."""
        candidates = self._propose(number, halving.trials)
        try:
            halving.run_round(candidates, count)
        finally:
            if self.study is not None:
                self.study.tell([halving.trials[candidate.name] for candidate in candidates], self.steps)

    def _propose(self, number: int, trials: dict[str, Trial]) -> list[Candidate]:
        """Return the candidates of round `number`, of all methods; none if no method has a range."""
        if self.study is not None:
            return self.study.ask(self.families[0], self.counts[number])
        return propose_candidates(number, self.counts, self.families, trials, self.by, self.settings["seed"])

    def _planned_chain_steps(self) -> int:
        """Return the steps of all chains in the whole search, if none diverges."""
        steps = planned_steps(self.families, self.counts, self.steps)
        if self.runs_finalists:
            with_ranges = len([family for family in self.families if family.ranges])
            without_ranges = len(self.families) - with_ranges  # each has one candidate
            finalists = with_ranges * finalist_count(sum(self.counts)) + without_ranges
            steps += FINAL.chains * self.steps * finalists
        return steps * self.chains


@dataclass(eq=False)
class EnsembleTrainer:
    """Train all candidates of a rung in one ensemble: the engine's `CandidateTrainer`.

    Parameters
    ----------
    search
        The search, with its settings.
    progress
        Counts the steps of all chains.
    runs
        The run of those that came furthest in each round, and those of the finalists.
    """

    search: HalvingSearch
    progress: _SearchProgress
    runs: list[Run] = field(default_factory=list)
    _round: int = 0
    _run: Run | None = None  # of the candidates that are under way

    def train(self, candidates: Sequence[Candidate], rung: Rung, number: int) -> list[Trial]:
        """Continue candidates to the end of a rung, and return their scores.

        The first rung (`number` 1) starts a new round. The run of the round's latest rung replaces the one
        before in `runs`.
        """
        starts_round = number == 1
        if starts_round:
            self._round += 1
            self._run = None
        new_steps = rung.steps - self._steps_done
        run = self._simulate(self.search, candidates, rung.steps, f"round-{self._round}-{number}.nc")
        self.progress.add(new_steps * len(candidates) * self.search.chains)
        if run is not None:
            earlier_runs = self.runs if starts_round else self.runs[:-1]
            self.runs = [*earlier_runs, run]
            self._run = run
        trials = score_candidates(candidates, run, self.search.split.rows)
        if self.search.study is not None:
            self.search.study.report(replace(trial, steps=rung.steps) for trial in trials)
        return trials

    def train_again(self, candidates: Sequence[Candidate], attempt: int) -> list[Trial]:
        """Train finalists from a new start to the end, and return their scores.

        If no last comparison is planned, they replace finalists that diverged, with the same chains.
        """
        search = self.search
        file = f"again-{attempt}.nc"
        if search.runs_finalists:
            search = search.with_fresh_chains()
            if attempt == 0:
                file = "confirmed.nc"
        self._run = None
        chain_steps = search.steps * len(candidates) * search.chains
        self.progress.expect(chain_steps)
        run = self._simulate(search, candidates, search.steps, file)
        self.progress.add(chain_steps)
        if run is not None:
            self.runs = [*self.runs, run]
        return score_candidates(candidates, run, search.split.rows)

    def drop(self, losers: Sequence[Trial]) -> None:
        """Do nothing: the next rung's ensemble only has the candidates that go on."""

    def _simulate(
        self, search: HalvingSearch, candidates: Sequence[Candidate], end: int, file: str
    ) -> Run | None:
        """Run candidates on to step `end`, from where they stand or from the checkpoint in `file`.

        Return None if all their chains diverge. Ctrl-C raises KeyboardInterrupt.
        """
        former = None
        if self._run is None:
            plan = search.plan(candidates, end)
        else:
            length = end - self._run.step
            schedule = _RungSchedule.of(length, end)
            candidates_run = self._run.with_methods([candidate.name for candidate in candidates])
            former = sample_again(candidates_run, length, schedule.samples, schedule.thin)
            plan = extend_plan(former.plan, self._run.step, length, schedule.records)
        if self.progress.is_new:
            warn_of_stale_noise(plan, search.steps)
        report = self.progress.of_run(self._steps_done, len(candidates) * search.chains)
        execution = {**search.execution, "progress": report}
        checkpoint = None if search.checkpoint is None else search.checkpoint / file
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DivergedWarning)
            warnings.simplefilter("ignore", StaleNoiseWarning)  # there was one for the whole search
            try:
                run = simulate(plan, former, checkpoint=checkpoint, **execution)
            except FloatingPointError:
                return None
            except ValueError as error:  # the plan has been checked, so it's the file
                raise ValueError(
                    f"{search.checkpoint} holds another search, or is damaged: call tune as it was called to "
                    f"continue it, or with another folder; {error}"
                ) from None
        if not run.finished:
            raise KeyboardInterrupt
        return run

    @property
    def _steps_done(self) -> int:
        """Steps that the candidates under way have made."""
        return 0 if self._run is None else self._run.step


class _RungSchedule(NamedTuple):
    """Samples and records of a rung.

    Parameters
    ----------
    samples
        Networks of each chain whose predictions are averaged.
    thin
        Steps between them.
    records
        Steps at which single networks are judged.
    """

    samples: int
    thin: int
    records: list[int]

    @classmethod
    def of(cls, length: int, end: int) -> _RungSchedule:
        """Return the schedule for the second half of a rung of `length` steps that ends at step `end`."""
        samples = min(AVERAGED, length)
        records = sorted({end - length * record // (2 * RECORDS) for record in range(RECORDS)})
        return cls(samples, max(1, length // (2 * samples)), records)


class _SearchProgress:
    """Count the steps of all chains of a search, including those from before it was continued.

    Parameters
    ----------
    progress
        The user's function, or None.
    total
        Steps of all chains in the whole search.
    """

    def __init__(self, progress: Callable[[Progress], None] | None, total: int) -> None:
        self._progress = progress
        self._total = total
        self._done = 0
        self._first: int | None = None  # chain steps when this process started, from the first report
        self._began = math.nan  # the time of that start, without compilation

    @property
    def is_new(self) -> bool:
        """True until a rung has been completed."""
        return not self._done

    def add(self, chain_steps: int) -> None:
        """Count the steps of a rung that is complete."""
        self._done += chain_steps

    def expect(self, chain_steps: int) -> None:
        """Allow for this many steps to come, if the total doesn't already."""
        self._total = max(self._total, self._done + chain_steps)

    def of_run(self, first_step: int, chains: int) -> Callable[[Progress], None]:
        """Return the `progress` of a run of `chains` chains that continues from `first_step`.

        It passes on what the run reports, in steps of all chains of the search.
        """

        def report(progress: Progress) -> None:
            """Convert the progress of the run to that of the search, and pass it to the user."""
            if self._first is None:
                self._first = self._done + (progress.first - first_step) * chains
                self._began = time.perf_counter() - progress.seconds
            if self._progress is None:
                return
            search_progress = replace(
                progress,
                step=self._done + (progress.step - first_step) * chains,
                steps=self._total,
                seconds=time.perf_counter() - self._began,
                first=self._first,
                finding=True,
            )
            self._progress(search_progress)

        return report


def score_candidates(
    candidates: Sequence[Candidate], run: Run | None, rows: NDArray[np.int64]
) -> list[Trial]:
    """Score the averaged predictions of candidates, and their single networks; return a trial for each.

    Parameters
    ----------
    candidates
        Candidates that the run has trained.
    run
        A comparison that averages outputs at all training examples of the user's problem; None if all of its
        chains diverged.
    rows
        The validation examples among these, (chains, examples).

    Returns
    -------
    Trials without their rungs. Losses are means over the validation examples of every chain, in units of the
    standardised targets; scores are NaN if one of the chains diverged.
    """
    if run is None:
        return [Trial(candidate, diverged=True) for candidate in candidates]
    names = list(run.plan.named)
    by_candidate = (len(names), run.plan.chains)
    chain_scores = _scores_of_averages(run, rows)
    for measure in ("loss", "accuracy"):
        recorded = run.data[measure].sel(split="test").values
        chain_scores[f"single_{measure}"] = recorded[:, -RECORDS:].mean(axis=1)
    means = {score: scores.reshape(by_candidate).mean(axis=1) for score, scores in chain_scores.items()}
    has_diverged = np.any((run.died >= 0).reshape(by_candidate), axis=1)

    trials = []
    for candidate in candidates:
        number = names.index(candidate.name)
        scores: dict[str, Any] = {"diverged": True}
        if not has_diverged[number]:
            scores = {score: float(score_means[number]) for score, score_means in means.items()}
        trials.append(Trial(candidate, **scores))
    return trials


def _scores_of_averages(run: Run, rows: NDArray[np.int64]) -> dict[str, Floats]:
    """Return loss and accuracy of each chain's averaged prediction, (chains of all candidates,).

    Parameters are those of `score_candidates`. A chain is judged by its own validation examples; the accuracy
    is NaN unless targets are classes.
    """
    problem = run.problem
    averages = run.averages()["mean"].values
    if problem.task == "regression":
        averages = (averages - problem.target_shift) / problem.target_scale
    chains = np.arange(len(averages))
    draws = chains % run.plan.chains
    means = averages[chains[:, None], rows[draws]]
    targets = problem.Y_test[draws]

    test_weights = problem.relative_weights("test")
    weights = np.ones(means.shape[:2]) if test_weights is None else test_weights[draws]
    accuracy = np.full(means.shape[:2], math.nan)
    if TASKS[problem.task].classes:
        accuracy = np.asarray(each_class(means).argmax(axis=-1) == targets[..., 0], np.float64)
    loss = losses(problem.task, means, targets)
    return {"loss": (loss * weights).mean(axis=1), "accuracy": (accuracy * weights).mean(axis=1)}
