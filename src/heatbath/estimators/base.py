"""Common base of the classifier and the regressor: parameters, training, averages over samples."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, fields
from numbers import Integral
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from joblib.parallel import get_active_backend
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state, check_X_y
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from heatbath._internal.checks import POSITIVE, Interval, real, whole
from heatbath._internal.warnings import UnforeseenDataWarning, warn
from heatbath.datasets import Problem
from heatbath.datasets.problem import Floats
from heatbath.datasets.tables import TableEncoder
from heatbath.datasets.tables.encoder import as_frame
from heatbath.datasets.tasks import TASKS, each_class
from heatbath.diagnostics.drift import SETTLED
from heatbath.diagnostics.statistics import BlockAverage, Estimate
from heatbath.estimators import files
from heatbath.estimators.examples import FitExamples, Rows, Scales, check_weights
from heatbath.estimators.online import OnlineHistory, frictions, is_far
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
from heatbath.training.early_stopping import Patience, continue_run
from heatbath.training.train import ExecutionOptions, train

TINY = 1e-12  # smallest probability in a loss, which keeps it finite
WINDOW = 10_000  # examples that partial_fit remembers
LEAST = 2  # fewest steps of partial_fit per sample
FEWEST, MOST = 200, 20_000  # bounds on the default steps of a user's method, one for each example
NO_ROWS = np.arange(0)


class Round(NamedTuple):
    """A stretch of training: its steps, the samples in it, the steps between samples, and its records."""

    steps: int
    samples: int
    thin: int
    record: int


@dataclass(kw_only=True, eq=False, repr=False)
class Thermodynamic(BaseEstimator):  # type: ignore[misc]
    """Base of both estimators: parameters, training and predictions. Their docstrings describe parameters."""

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

    _posterior_parameters: ClassVar[tuple[str, ...]] = ("prior", "temperature")

    # Using a fitted estimator

    def sample_posterior(self, X: ArrayLike) -> Floats:
        """Return the output of every sampled network, in the units of the data, without the data's noise.

        Parameters
        ----------
        X
            Features, (examples, features).

        Returns
        -------
        ndarray
            Outputs, (networks, examples, outputs): the values of a regression, the probability of the second
            of two classes, or of each of several. Their mean is what `predict` or `predict_proba` returns.
        """
        X = self._inputs(X)
        outputs = self.run_.outputs(X, samples=True)[self.run_.died < 0, -self.samples :]
        return np.asarray(outputs.reshape(-1, *outputs.shape[2:]))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted estimator and its run to a file without pickle; `load` reads it.

        A `random_state` that isn't a number is left out.
        """
        check_is_fitted(self)
        files.save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Return the fitted estimator in a file that `save` wrote. Nothing in the file is executed."""
        return files.load(cls, path)

    @property
    def prequential_loss_(self) -> Estimate:
        """The loss of examples before `partial_fit` learned them: mean over calls, with its standard error.

        The loss is -log of the probability of the class, the squared error in units of the targets' variance,
        or -log of the probability of a count without its constant.
        """
        check_is_fitted(self)
        return self._past.losses.estimate() if hasattr(self, "_past") else BlockAverage().estimate()

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "run_")

    def _prediction(self, X: ArrayLike) -> Prediction[Floats]:
        """Return the average prediction of the latest samples."""
        X = self._inputs(X)
        return self.run_.predict(X, over="samples", latest=self.samples)

    # Checking data and parameters

    def _continues(self, partial: bool = False) -> bool:
        """Return True if `fit`, or `partial_fit` if `partial`, continues the run of the last fit."""
        return (partial or bool(self.warm_start)) and hasattr(self, "run_")

    def _inputs(self, X: ArrayLike) -> Floats:
        """Return the features of new examples as numbers: encoded, or checked by scikit-learn."""
        check_is_fitted(self)
        if self.encode:
            return self.encoder_.transform(X)
        return np.asarray(validate_data(self, X, reset=False, dtype=np.float64))

    def _checked(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, reset: bool, **options: Any
    ) -> tuple[Floats, NDArray[Any], Floats]:
        """Return features, targets and weights of examples, checked by scikit-learn.

        Parameters
        ----------
        X, y, sample_weight
            As in `fit`.
        reset
            True in a first fit: store the names and the number of features, and fit the encoder.
        options
            Further options of scikit-learn's `check_X_y`.
        """
        if not self.encode:
            inputs, targets = validate_data(self, X, y, reset=reset, dtype=np.float64, **options)
            return inputs, targets, np.asarray(_check_sample_weight(sample_weight, inputs, dtype=np.float64))

        table = as_frame(X)
        weights = np.asarray(_check_sample_weight(sample_weight, table, dtype=np.float64))
        if reset:
            check_weights(weights)
            self.encoder_ = TableEncoder().fit(table[weights > 0])
            validate_data(self, X, reset=True, skip_check_array=True)
        inputs, targets = check_X_y(self.encoder_.transform(X), y, dtype=np.float64, **options)
        return inputs, targets, weights

    def _check_partial(self) -> None:
        """Refuse early stopping in `partial_fit`."""
        if self.early_stopping:
            raise ValueError("partial_fit makes all its steps: set early_stopping=False, or call fit")

    def _check_same(self, former: Run) -> None:
        """Refuse to continue a run with another network, or another number of chains."""
        chains = former.plan.chains if self.chains is None else self.chains
        network = self._network()
        if network != former.network or chains != former.plan.chains:
            raise ValueError(
                f"a run continues with its network and chains, {former.network!r} and {former.plan.chains}; "
                f"got {network!r} and {chains}: fit anew with warm_start=False"
            )

    def _check_method(self) -> None:
        """Refuse a method that isn't a partition, and parameters of a posterior beside a method."""
        if not isinstance(self.method, Partition):
            raise TypeError(f"method must be a Partition such as AdLaLa(), or None; got {self.method!r}")
        default = {field.name: field.default for field in fields(self)}
        changed = [name for name in self._posterior_parameters if getattr(self, name) != default[name]]
        if changed:
            raise ValueError(
                f"{', '.join(changed)}: a method of your own has its own posterior, such as "
                "method=LaLa(h=0.2, gamma=1.0, posterior=Posterior(prior=0.5)); leave them out"
            )

    # What to train, and how

    def _network(self) -> MLP:
        """Return the network."""
        return MLP(self.hidden, self.activation)

    def _posterior(self) -> Posterior:
        """Return the posterior of the default method."""
        return defaults.posterior_of(self.prior, temperature=self.temperature)

    def _execution(self) -> ExecutionOptions:
        """Return the options of `train` that don't change results."""
        return {"threads": self._threads(), "progress": _print_progress if self.verbose else None}

    def _threads(self) -> int | None:
        """Return the number of threads: one within joblib's parallel calls, unless the user has set it."""
        if self.threads is not None or "HEATBATH_THREADS" in os.environ:
            return self.threads
        backend, _ = get_active_backend()
        return 1 if backend.nesting_level else None

    def _arguments(self, problem: Problem) -> defaults.TrainArguments:
        """Return the arguments of `train` for a problem.

        They are the defaults for its size, with Langevin dynamics, or those for the user's method. The
        estimator's numbers of steps, chains and examples replace the defaults.
        """
        numbers = {"steps": self.steps, "batch": self.batch, "chains": self.chains}
        refine = real("refine", self.refine, POSITIVE)
        if self.method is None:
            return defaults.arguments(
                problem, self._network(), self._posterior(), refine=refine, samples=self.samples, **numbers
            )

        self._check_method()
        rows = problem.X_train.shape[1]
        steps = max(1, int(min(max(rows, FEWEST), MOST) * refine))
        size = given_size(Size(FEWEST_CHAINS, min(32, rows), steps), rows, **numbers)
        samples, thin = in_second_half(size.steps, whole("samples", self.samples, low=1))
        return {
            "partition": self.method, "steps": size.steps, "batch": size.batch, "chains": size.chains,
            "samples": samples, "thin": thin, "record": RECORDS, "momenta": "zero", "warm": 0,
        }  # fmt: skip

    def _problem(
        self, examples: FitExamples, training: Rows, validation: Rows, former: Run | None
    ) -> Problem:
        """Return the problem of some rows for training and validation.

        It is scaled as the problem of the former run or, without one, by the rows for training.
        """
        scales = examples.scales(training, bool(self.scale)) if former is None else Scales.of(former.problem)
        encoder = self.encoder_ if self.encode else None
        if encoder is None:
            given_names = getattr(self, "feature_names_in_", ())
        else:
            given_names = encoder.get_feature_names_out()

        feature_names = [str(name) for name in given_names]
        feature_count = examples.X.shape[1]
        if len(set(feature_names)) < feature_count:  # no names, or repeated ones
            feature_names = [f"x{number}" for number in range(1, feature_count + 1)]
        return examples.problem(training, validation, scales, feature_names, encoder)

    # Fitting

    def _fit_examples(self, examples: FitExamples, partial: bool = False) -> Self:
        """Train on examples, or continue the run of the last fit if there is one, and store the run.

        Parameters
        ----------
        examples
            All examples; those of weight 0 are left out.
        partial
            True for `partial_fit`: earlier examples in the window count, too.
        """
        check_weights(examples.weights)
        former: Run | None = getattr(self, "run_", None)
        seed = _seed(self.random_state)
        training = np.flatnonzero(examples.weights > 0)
        if partial:
            return self._fit_online(examples.at(training), former, seed)

        self.__dict__.pop("_past", None)
        validation = NO_ROWS
        early_stopping = bool(self.early_stopping)
        if early_stopping:
            share = real("validation_fraction", self.validation_fraction, Interval(0.0, 1.0, open=True))
            classes = examples.Y[training, 0] if TASKS[examples.task].classes else None
            training, validation = train_test_split(
                training, test_size=share, random_state=seed, stratify=classes
            )
        if early_stopping and self.encode and former is None:
            examples = self._encoded_by(examples, training)

        problem = self._problem(examples, training, validation, former)
        run = self._run(problem, seed, former, early_stopping)
        self._store_run(run)
        return self

    def _encoded_by(self, examples: FitExamples, rows: Rows) -> FitExamples:
        """Fit the encoder to some rows, and return all examples encoded by it.

        Validation examples must not influence the encoding.
        """
        self.encoder_ = TableEncoder().fit(as_frame(examples.table).iloc[np.sort(rows)])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnforeseenDataWarning)  # other rows may have unforeseen values
            return examples._replace(X=self.encoder_.transform(examples.table))

    def _fit_online(self, examples: FitExamples, former: Run | None, seed: int) -> Self:
        """Measure the loss of new examples, then learn from the latest examples of all calls.

        Parameters
        ----------
        examples
            The new examples.
        former
            The run to continue; None in the first call.
        seed
            Seed of a run that starts.
        """
        window = whole("window", self.window, low=1)
        new_count = len(examples.X)
        past = OnlineHistory()
        drift = None
        former_count = 0
        if former is not None:
            past = getattr(self, "_past", past)
            former_count = former.problem.X_train.shape[1]
            past.examples_at_start = past.examples_at_start or former_count  # of a fit, or of a file
            losses = self._losses(former, examples.X, examples.Y)
            drift = past.add_losses(losses, examples.weights)
            examples = examples.after(former.problem, past.valid_examples(former_count, drift))
        examples = examples.at(slice(-window, None))
        window_count = len(examples.X)

        has_grown = window_count >= 2 * past.examples_at_start or drift is not None
        new_share = min(1.0, new_count / window_count)
        run, is_new = self._run_online(examples, former, seed, has_grown, new_share)
        has_searched = has_grown or is_new
        if former is None or has_searched:
            past.examples_at_start = window_count
        past.add_call(new_count, drift)

        if drift is None:
            has_similar_count = abs(window_count - former_count) < SETTLED * window_count
            is_settled = former is not None and not has_searched and has_similar_count
            drift = past.add_frictions(frictions(run), is_settled)
        self._past: OnlineHistory = past
        self._store_run(run)
        if drift is not None:
            warn(drift)
        return self

    def _run_online(
        self, examples: FitExamples, former: Run | None, seed: int, has_grown: bool, share: float
    ) -> tuple[Run, bool]:
        """Train on the examples of the window, and return the run, and whether it had to start from scratch.

        Parameters
        ----------
        examples
            All examples in the window.
        former
            The run to continue, or None.
        seed
            Seed of a run that starts.
        has_grown
            True to search stepsize and prior again: there are many more examples, or other ones.
        share
            Share of the new examples in the window, which is that of the steps of a fit.
        """
        rows = np.arange(len(examples.X))
        problem = self._problem(examples, rows, NO_ROWS, former)
        if former is not None and is_far(problem, bool(self.scale)):
            problem = self._problem(examples, rows, NO_ROWS, None)
        try:
            if former is not None and has_grown and self.method is None:
                return self._search_again(problem, seed, former), False
            return self._run(problem, seed, former, early_stopping=False, share=share), False
        except FloatingPointError:  # networks of the former data may be too far from the present ones
            if former is None:
                raise
            problem = self._problem(examples, rows, NO_ROWS, None)
            return self._run(problem, seed, None, early_stopping=False), True

    def _losses(self, run: Run, X: Floats, Y: Floats) -> Floats:
        """Return the loss of the averaged prediction for each example, (examples,)."""
        mean = run.predict(X, over="samples", latest=self.samples).mean
        task = run.problem.task
        if task == "regression":
            return np.asarray(np.square((Y - mean) / run.problem.target_scale).mean(axis=1))
        if task == "counts":
            return np.asarray((mean - Y * np.log(np.maximum(mean, TINY))).sum(axis=1))
        labelled = each_class(mean)[np.arange(len(Y)), Y[:, 0].astype(int)]
        return np.asarray(-np.log(np.maximum(labelled, TINY)))

    def _store_run(self, run: Run) -> None:
        """Set the attributes of a fitted estimator."""
        self.run_: Run = run
        self.n_iter_ = run.step
        self.loss_curve_ = run.loss("train").mean("chain").values.tolist()

    # Training

    def _search_again(self, problem: Problem, seed: int, former: Run) -> Run:
        """Return a new run that starts from the former networks, and searches stepsize and prior again."""
        self._check_same(former)
        arguments = self._arguments(problem)
        alive = replace_examples(former, problem, arguments["batch"]).theta[former.died < 0]
        arguments["chains"] = former.plan.chains
        arguments["warm"] = 0
        start = np.resize(alive, former.theta.shape)  # repeats networks in place of diverged ones
        return train(problem, self._network(), **arguments, seed=seed, start=start, **self._execution())

    def _run(
        self, problem: Problem, seed: int, former: Run | None, early_stopping: bool, share: float = 1.0
    ) -> Run:
        """Train, and return the run with its samples.

        Parameters
        ----------
        problem
            The scaled examples.
        seed
            Seed of a run that starts.
        former
            The run to continue, or None to start.
        early_stopping
            True to look at the validation loss at every sample, and stop when it no longer falls.
        share
            Share of the default steps to make, with the coefficients that the former run has reached.
        """
        arguments = self._arguments(problem)
        if former is None and not early_stopping:
            return train(problem, self._network(), **arguments, seed=seed, **self._execution())

        if early_stopping and arguments["partition"].finds_prior:
            arguments["partition"] = arguments["partition"].at_prior(defaults.UNSOUGHT)
        steps: int = arguments.get("budget", arguments["steps"])  # type: ignore[assignment]
        if share < 1 and self.steps is None:
            steps = max(LEAST * whole("samples", self.samples, low=1), int(steps * share))
        samples, thin = in_second_half(steps, arguments["samples"])
        stretch = Round(thin, 1, thin, 1) if early_stopping else Round(steps, samples, thin, RECORDS)

        if former is None:
            run = train(
                problem, self._network(), arguments["partition"], stretch.steps, arguments["batch"],
                arguments["chains"], seed=seed, record=stretch.record, samples=stretch.samples,
                thin=stretch.thin, warm=arguments["warm"], momenta=arguments["momenta"], **self._execution(),
            )  # fmt: skip
        else:
            run = self._continue_run(former, problem, arguments, stretch, share)
        if not early_stopping:
            return run
        return self._run_until_stalled(run, run.step - thin + steps, thin)

    def _continue_run(
        self, former: Run, problem: Problem, arguments: defaults.TrainArguments, stretch: Round, share: float
    ) -> Run:
        """Continue a run on a problem for a stretch of training, and return it.

        The stepsize and the prior stay those of the former run where the method leaves them to be searched.
        With a `share` below 1, all coefficients of the default method stay where schedules have brought them.
        """
        self._check_same(former)
        method = arguments["partition"]
        if share < 1 and self.method is None:
            assert isinstance(former.partition, Partition)
            method = grid.latest_coefficients(former.partition)
        point = former.plan.points[0].partition
        if method.finds_stepsize:
            method = method.at_stepsize(point.h)
        if method.finds_prior and point.posterior is not None:
            method = method.at_prior(point.posterior.prior)
        moved = former.on_other_examples(
            problem, stretch.steps, stretch.samples, stretch.thin, arguments["batch"]
        )
        return moved.resume(stretch.steps, method, record=stretch.record, **self._execution())

    def _run_until_stalled(self, run: Run, end: int, stride: int) -> Run:
        """Continue a run until its validation loss stops falling, or to step `end`, and return it.

        The loss is checked every `stride` steps, when a sample is taken.
        """
        first_record = len(run.data["step"]) - 1

        def missing_steps(run: Run) -> int:
            if run.step >= end:
                return 0
            losses = run.loss("test").mean("chain").values[first_record:]
            has_stalled = Patience(self.n_iter_no_change, self.tol).is_spent(losses)
            return 0 if has_stalled else min(stride, end - run.step)

        def extend(run: Run, steps: int) -> Run:
            return run.resume(steps, record=1, **self._execution())

        return continue_run(run, missing_steps, extend)


def _seed(random_state: object) -> int:
    """Return the seed of `train` for a random state of scikit-learn.

    A whole number is the seed. NumPy's global generator isn't touched.
    """
    if isinstance(random_state, Integral):
        check_random_state(random_state)  # refuses what scikit-learn refuses
        return int(random_state)
    if random_state is None:
        return int(np.random.default_rng().integers(2**31))
    return int(check_random_state(random_state).randint(2**31 - 1))


def _print_progress(progress: Progress) -> None:
    """Print the steps so far and the loss."""
    loss = f", loss {progress.loss:.4g}" if np.isfinite(progress.loss) else ""
    print(f"step {progress.step} of {progress.steps}{loss}")
