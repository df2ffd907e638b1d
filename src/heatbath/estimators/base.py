"""What the classifier and the regressor share: parameters, training, averages over the samples."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from numbers import Integral
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from joblib.parallel import get_active_backend
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state, check_X_y
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from heatbath._internal.checks import NON_NEGATIVE, POSITIVE, Interval, real, whole
from heatbath._internal.warnings import UnforeseenDataWarning, warn
from heatbath.datasets import Problem
from heatbath.datasets.problem import Floats, standard
from heatbath.datasets.tables import TableEncoder
from heatbath.datasets.tables.encoder import as_frame
from heatbath.datasets.tasks import TASKS, Task
from heatbath.diagnostics.drift import SETTLED
from heatbath.diagnostics.statistics import BlockAverage, Estimate
from heatbath.estimators import files
from heatbath.estimators.online import Past, frictions, is_far
from heatbath.methods.partition import Partition
from heatbath.methods.posterior import Posterior, Prior
from heatbath.models.dense import MLP
from heatbath.prediction import Prediction
from heatbath.runs import grid
from heatbath.runs.continuation import replace_examples
from heatbath.runs.progress import Progress
from heatbath.runs.run import Run
from heatbath.training import defaults
from heatbath.training.budget import FEWEST_CHAINS, HIDDEN, RECORDS, SAMPLES, Size, given_size, in_second_half
from heatbath.training.train import Manner, train

TINY = 1e-12  # of a probability: a loss is finite
WINDOW = 10_000  # examples that partial_fit remembers
LEAST = 2  # steps of partial_fit for each sample, at least
FEWEST, MOST = 200, 20_000  # steps of a method of the user's own where none are given: one for each example


class FitExamples(NamedTuple):
    """What is learned from: inputs, targets (examples, columns) and weights, what the targets mean, and their
    names; and the table that the inputs are made of, if they are encoded."""

    X: Floats
    Y: Floats
    weights: Floats
    task: Task
    targets: Sequence[str]
    table: Any = None

    def at(self, rows: NDArray[np.int64] | slice) -> FitExamples:
        """Some of them."""
        return self._replace(X=self.X[rows], Y=self.Y[rows], weights=self.weights[rows])

    def after(self, old: Problem, count: int) -> FitExamples:
        """The latest training examples of a problem, so many, and then these."""
        rows = slice(old.X_train.shape[1] - count, None)
        weights = np.ones(count) if old.weights_train is None else old.weights_train[0, rows]
        return self._replace(
            X=np.concatenate([old.X_train[0, rows] * old.scale + old.shift, self.X]),
            Y=np.concatenate([old.Y_train[0, rows] * old.target_scale + old.target_shift, self.Y]),
            weights=np.concatenate([weights, self.weights]),
        )


@dataclass(kw_only=True, eq=False, repr=False)
class Thermodynamic(BaseEstimator):  # type: ignore[misc]
    """What both estimators have: parameters, training and averages. Each says what its parameters mean."""

    hidden: Sequence[int] = HIDDEN
    activation: Literal["relu", "tanh", "identity"] = "relu"
    prior: Prior = "auto"
    temperature: float = 1.0
    refine: float = 1.0
    method: Partition | None = None
    steps: int | None = None
    batch: int | None = None
    chains: int | None = None
    samples: int = SAMPLES
    scale: bool = True
    encode: bool = False
    window: int = WINDOW
    early_stopping: bool = False
    validation_fraction: float = 0.1
    n_iter_no_change: int = 10
    tol: float = 1e-4
    warm_start: bool = False
    random_state: Any = None
    threads: int | None = None
    verbose: bool = False

    @property
    def _continues(self) -> bool:
        return bool(self.warm_start) and hasattr(self, "run_")

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "run_")

    def _check_partial(self) -> None:
        if self.early_stopping:
            raise ValueError("partial_fit makes all its steps: set early_stopping=False, or call fit")

    def _checked(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, reset: bool, **options: Any
    ) -> tuple[Floats, NDArray[Any], Floats]:
        """The examples and their weights, checked by scikit-learn."""
        if self.encode:
            table = as_frame(X)
            weights = np.asarray(_check_sample_weight(sample_weight, table, dtype=np.float64))
            if reset:
                check_weights(weights)
                self.encoder_ = TableEncoder().fit(table[weights > 0])
                validate_data(self, X, reset=True, skip_check_array=True)
            inputs, targets = check_X_y(self.encoder_.transform(X), y, dtype=np.float64, **options)
            return inputs, targets, weights
        inputs, targets = validate_data(self, X, y, reset=reset, dtype=np.float64, **options)
        return inputs, targets, np.asarray(_check_sample_weight(sample_weight, inputs, dtype=np.float64))

    def _inputs(self, X: ArrayLike) -> Floats:
        """New examples, encoded or checked."""
        check_is_fitted(self)
        if self.encode:
            return self.encoder_.transform(X)
        return np.asarray(validate_data(self, X, reset=False, dtype=np.float64))

    def _sample(
        self, examples: FitExamples, continues: bool, early_stopping: bool, partial: bool = False
    ) -> Self:
        """Train from the start, or continue where the run stands, on examples; `partial` on these and those
        before them that are in the window."""
        check_weights(examples.weights)
        before = self.run_ if continues else None
        seed = _seed(self.random_state)
        kept = np.flatnonzero(examples.weights > 0)
        if partial:
            return self._go_on(examples.at(kept), before, seed)
        self.__dict__.pop("_past", None)
        aside = kept[:0]
        if early_stopping:
            share = real("validation_fraction", self.validation_fraction, Interval(0.0, 1.0, open=True))
            classes = examples.Y[kept, 0] if TASKS[examples.task].classes else None
            kept, aside = train_test_split(kept, test_size=share, random_state=seed, stratify=classes)
            if self.encode and before is None:
                examples = self._encoded_by(examples, kept)
        problem = self._problem(examples, [kept, aside], before)
        self._keep(self._run(problem, seed, before, early_stopping))
        return self

    def _encoded_by(self, examples: FitExamples, rows: NDArray[np.int64]) -> FitExamples:
        """Encoded by what the columns of these rows are: those that judge have no part in it."""
        self.encoder_ = TableEncoder().fit(as_frame(examples.table).iloc[np.sort(rows)])
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", UnforeseenDataWarning
            )  # what only the others have is what they are for
            return examples._replace(X=self.encoder_.transform(examples.table))

    def _go_on(self, examples: FitExamples, before: Run | None, seed: int) -> Self:
        """Judge the networks by new examples, and then learn from the latest of all."""
        most, size = whole("window", self.window, low=1), len(examples.X)
        past = self._past if before is not None and hasattr(self, "_past") else Past()
        drift, count = None, 0
        if before is not None:
            count = before.problem.X_train.shape[1]
            past.begun = past.begun or count  # those of a fit, or of a file
            drift = past.judge(self._losses(before, examples.X, examples.Y), examples.weights)
            latest = sum(list(past.sizes)[-drift.since + 1 :]) if drift and drift.since > 1 else 0
            kept = past.still(count) if drift is None else min(latest, count)
            examples = examples.after(before.problem, kept)
        examples = examples.at(slice(-most, None))
        total = len(examples.X)
        every = [np.arange(total), np.arange(0)]
        problem = self._problem(examples, every, before)
        if before is not None and is_far(problem, bool(self.scale)):
            problem = self._problem(examples, every, None)
        grown = total >= 2 * past.begun or drift is not None
        try:
            if before is not None and grown and self.method is None:
                run = self._begin_anew(problem, seed, before)
            else:
                run = self._run(problem, seed, before, early_stopping=False, share=min(1.0, size / total))
        except FloatingPointError:  # the networks are too far from what there is now: others begin
            if before is None:
                raise
            problem = self._problem(examples, every, None)
            run, grown = self._run(problem, seed, None, early_stopping=False), True
        past.begun = total if before is None or grown else past.begun
        past.count(size, drift)
        settled = before is not None and not grown and abs(total - count) < SETTLED * total
        drift = past.feel(frictions(run), settled) if drift is None else drift
        self._past: Past = past
        self._keep(run)
        if drift is not None:
            warn(drift)
        return self

    @property
    def prequential_loss_(self) -> Estimate:
        """The mean over calls of `partial_fit` of the loss of their examples before they were learned, and
        its standard error: -log of the probability of the class, the squared error in units of the targets'
        variance, or of a count -log of its probability, but for a constant."""
        check_is_fitted(self)
        return self._past.losses.estimate() if hasattr(self, "_past") else BlockAverage().estimate()

    def _losses(self, run: Run, X: Floats, Y: Floats) -> Floats:
        """The loss of each example by what the samples say together."""
        said = run.predict(X, over="samples", latest=self.samples).mean
        if run.problem.task == "regression":
            return np.asarray(np.square((Y - said) / run.problem.target_scale).mean(axis=1))
        if run.problem.task == "counts":
            return np.asarray((said - Y * np.log(np.maximum(said, TINY))).sum(axis=1))
        if run.problem.task == "binary":
            said = np.hstack([1 - said, said])
        return np.asarray(-np.log(np.maximum(said[np.arange(len(Y)), Y[:, 0].astype(int)], TINY)))

    def _begin_anew(self, problem: Problem, seed: int, before: Run) -> Run:
        """A run from where the networks are, with a stepsize and a prior of what there is by now."""
        network = MLP(self.hidden, self.activation)
        self._check_same(before, network)
        arguments = self._arguments(problem)
        alive = replace_examples(before, problem, arguments["batch"]).theta[before.died < 0]
        arguments["chains"], arguments["warm"] = before.plan.chains, 0
        start = np.resize(alive, before.theta.shape)
        progress = _tell if self.verbose else None
        return train(
            problem, network, **arguments, seed=seed, start=start, threads=self._threads(), progress=progress
        )

    def _keep(self, run: Run) -> None:
        """What there is after a run."""
        self.run_: Run = run
        self.n_iter_ = run.step
        self.loss_curve_ = run.loss("train").mean("chain").values.tolist()

    def _problem(self, examples: FitExamples, parts: list[NDArray[np.int64]], before: Run | None) -> Problem:
        """The rows for training and validation, scaled as before, or by those for training."""
        X, Y, weights, task, targets, _ = examples
        weighted = [None if (weights[rows] == 1).all() else weights[None, rows] for rows in parts]
        if before is not None:
            old = before.problem
            scales = (old.shift, old.scale, old.target_shift, old.target_scale)
        else:
            w = None if weighted[0] is None else weighted[0][0]
            scales = (
                *standard(X[parts[0]], w, bool(self.scale)),
                *standard(Y[parts[0]], w, task == "regression"),
            )
        X, Y = (X - scales[0]) / scales[1], (Y - scales[2]) / scales[3]
        (X_train, Y_train), (X_test, Y_test) = ((X[None, rows], Y[None, rows]) for rows in parts)
        encoder = self.encoder_ if self.encode else None
        given = getattr(self, "feature_names_in_", ()) if encoder is None else encoder.get_feature_names_out()
        names = [str(name) for name in given]
        if len(set(names)) < X.shape[1]:
            names = [f"x{i}" for i in range(1, X.shape[1] + 1)]
        return Problem(
            "data", task, X_train, Y_train, X_test, Y_test, tuple(names), tuple(targets), *scales,
            weights_train=weighted[0], weights_test=weighted[1], encoder=encoder,
        )  # fmt: skip

    def _run(
        self, problem: Problem, seed: int, before: Run | None, early_stopping: bool, share: float = 1.0
    ) -> Run:
        """The run after its steps (or fewer), with its samples. Of steps that are not given it makes a share,
        and goes on with the method as it is."""
        network, arguments = MLP(self.hidden, self.activation), self._arguments(problem)
        manner: Manner = {"threads": self._threads(), "progress": _tell if self.verbose else None}
        if before is None and not early_stopping:
            return train(problem, network, **arguments, seed=seed, **manner)
        method = arguments["partition"]
        if early_stopping and method.finds_prior:
            method = method.at_prior(defaults.UNSOUGHT)
        steps: int = arguments.get("budget", arguments["steps"])  # type: ignore[assignment]
        if share < 1 and self.steps is None:
            steps = max(LEAST * whole("samples", self.samples, low=1), int(steps * share))
        samples, thin = in_second_half(steps, arguments["samples"])
        stride, count = (thin, 1) if early_stopping else (steps, samples)
        record = 1 if early_stopping else RECORDS
        if before is None:
            run = train(
                problem, network, method, stride, arguments["batch"], arguments["chains"],
                seed=seed, record=record, samples=count, thin=thin, warm=arguments["warm"],
                momenta=arguments["momenta"], **manner,
            )  # fmt: skip
        else:
            self._check_same(before, network)
            if share < 1 and self.method is None:
                assert isinstance(before.partition, Partition)
                method = grid.latest_coefficients(before.partition)
            if method.finds_stepsize:
                method = method.at_stepsize(before.plan.points[0].partition.h)
            former = before.plan.points[0].partition.posterior
            if method.finds_prior and former is not None:
                method = method.at_prior(former.prior)
            moved = before.on_other_examples(problem, stride, count, thin, arguments["batch"])
            run = moved.resume(stride, method, record=record, **manner)
        end = run.step - stride + steps
        first = len(run.data["step"]) - 1
        while early_stopping and run.finished and run.step < end and not self._stalled(run, first):
            run = run.resume(min(stride, end - run.step), record=1, **manner)
        return run

    def _arguments(self, problem: Problem) -> defaults.Arguments:
        """Those of `train`: for the method given, or those that suit the data."""
        given = {"steps": self.steps, "batch": self.batch, "chains": self.chains}
        refine = real("refine", self.refine, POSITIVE)
        if self.method is None:
            network = MLP(self.hidden, self.activation)
            posterior = self._posterior()
            return defaults.arguments(
                problem, network, posterior, refine=refine, samples=self.samples, **given
            )
        self._check_method()
        rows = problem.X_train.shape[1]
        size = Size(FEWEST_CHAINS, min(32, rows), max(1, int(min(max(rows, FEWEST), MOST) * refine)))
        size = given_size(size, rows, **given)
        samples, thin = in_second_half(size.steps, whole("samples", self.samples, low=1))
        return {
            "partition": self.method, "steps": size.steps, "batch": size.batch, "chains": size.chains,
            "samples": samples, "thin": thin, "record": RECORDS, "momenta": "zero", "warm": 0,
        }  # fmt: skip

    def _stalled(self, run: Run, first: int) -> bool:
        """Whether the validation loss, from record `first` on, has stopped falling."""
        tol = real("tol", self.tol, NON_NEGATIVE)
        patience = whole("n_iter_no_change", self.n_iter_no_change, low=1)
        losses = run.loss("test").mean("chain").values[first:]
        best = np.minimum.accumulate(losses)
        falls = [0, *(i for i, (old, new) in enumerate(pairwise(best), start=1) if new < old - tol)]
        return len(losses) - 1 - falls[-1] >= patience

    def _check_same(self, before: Run, network: MLP) -> None:
        chains = before.plan.chains if self.chains is None else self.chains
        new, old = (network, chains), (before.network, before.plan.chains)
        if new != old:
            raise ValueError(
                f"a run continues with its network and chains, {old[0]!r} and {old[1]}; got {new[0]!r} "
                f"and {new[1]}: fit anew with warm_start=False"
            )

    def _check_method(self) -> None:
        """Refuse a method that is none, and what is said of a posterior beside that of the method."""
        if not isinstance(self.method, Partition):
            raise TypeError(f"method must be a Partition such as AdLaLa(), or None; got {self.method!r}")
        usual = {field.name: field.default for field in fields(self)}
        if own := [name for name in self._of_posterior if getattr(self, name) != usual[name]]:
            raise ValueError(
                f"{', '.join(own)}: a method of your own has its own posterior, such as "
                "method=LaLa(h=0.2, gamma=1.0, posterior=Posterior(prior=0.5)); leave them out"
            )

    _of_posterior: ClassVar[tuple[str, ...]] = ("prior", "temperature")

    def _posterior(self) -> Posterior:
        return defaults.posterior_of(self.prior, temperature=self.temperature)

    def _threads(self) -> int | None:
        if self.threads is not None or "HEATBATH_THREADS" in os.environ:
            return self.threads
        backend, _ = get_active_backend()
        return 1 if backend.nesting_level else None

    def sample_posterior(self, X: ArrayLike) -> Floats:
        """What every sampled network says of X, (networks, examples, outputs), in the units of the data.

        The outputs are the values of a regression, the probability of the second of two classes, or of each
        of several. Their mean is what `predict` or `predict_proba` has; the noise of the data is not in them.
        """
        X = self._inputs(X)
        said = self.run_.outputs(X, samples=True)[self.run_.died < 0, -self.samples :]
        return np.asarray(said.reshape(-1, *said.shape[2:]))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted estimator to a file, with its run, without pickle: `load` reads it.

        A `random_state` that is not a number is left out.
        """
        check_is_fitted(self)
        files.save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """The fitted estimator in a file that `save` wrote. Nothing in the file is executed."""
        return files.load(cls, path)

    def _prediction(self, X: ArrayLike) -> Prediction[Floats]:
        """What the latest samples say together."""
        X = self._inputs(X)
        return self.run_.predict(X, over="samples", latest=self.samples)


def _seed(random_state: object) -> int:
    """A seed: a whole number as it is, as `train` takes it; NumPy's global generator is not touched."""
    if isinstance(random_state, Integral):
        check_random_state(random_state)  # refuses what scikit-learn refuses
        return int(random_state)
    if random_state is None:
        return int(np.random.default_rng().integers(2**31))
    return int(check_random_state(random_state).randint(2**31 - 1))


def check_weights(weights: Floats) -> None:
    """Refuse weights below 0, and none above it."""
    if (weights < 0).any() or not weights.any():
        raise ValueError(
            "weights (of samples times classes) must be >= 0, and positive for some examples; they are from "
            f"{weights.min():g} to {weights.max():g}"
        )


def _tell(progress: Progress) -> None:
    loss = f", loss {progress.loss:.4g}" if np.isfinite(progress.loss) else ""
    print(f"step {progress.step} of {progress.steps}{loss}")
