"""Regressor with the interface of scikit-learn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, overload

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin

from heatbath._internal.checks import choice
from heatbath.datasets.problem import Floats
from heatbath.estimators.base import Thermodynamic
from heatbath.estimators.examples import FitExamples
from heatbath.methods.posterior import Posterior
from heatbath.prediction import Mixture
from heatbath.training.defaults import posterior_of

DEGREES = 4.0  # degrees of freedom of Student's distribution


@dataclass(kw_only=True, eq=False, repr=False)
class ThermodynamicRegressor(RegressorMixin, Thermodynamic):  # type: ignore[misc]
    """Predict one or several values as the mean of many networks sampled from their posterior.

    Targets are scaled to mean 0 and variance 1 internally, except counts. A sample weight is how often an
    example counts, in the loss, in the scale of features and targets and in the posterior: weight 2 is the
    same as two copies, weight 0 leaves it out.

    Parameters
    ----------
    hidden, activation
        **What to fit.** Sizes of the hidden layers, and their activation function.
    prior
        Prior standard deviation of the parameters. "auto" finds one for each layer (1 in fits of fewer than
        360 steps, 0.5 with early stopping); a number, one for each layer, or "fan_in" fix it, see
        `Posterior`.
    temperature
        1 samples the posterior, below 1 a cold posterior.
    method
        Your own `Partition` instead of Langevin dynamics that sample the posterior. It has its own `prior`
        and `temperature`.

    refine
        **How long.** Factor on the usual amount of work: larger takes longer and fits better.
    steps
        None trains until the predictions have converged, up to a few thousand steps; `run_.found` has the
        details. With your own method, None means one step per example, at least 200 and at most 20,000.
    batch
        Examples in a mini-batch, or all if there are fewer. None takes all examples where that is affordable,
        and 32 with your own method.
    chains, samples
        Predictions average `samples` networks of each of `chains` chains, spread over the second half of the
        steps (at most one per step). None for 8 chains, fewer for large tables, and 4 with your own method.
    early_stopping, validation_fraction, tol, n_iter_no_change
        Set `validation_fraction` of the examples aside and check their loss, averaged over chains, at every
        sample from the start. Training ends when it has not fallen by `tol` for `n_iter_no_change` checks;
        predictions average the latest `samples` samples.

    scale
        **The data.** Give every feature mean 0 and variance 1 over the training examples.
    encode
        Accept tables with columns of any kind: text, dates, truth values, missing cells. A `TableEncoder`
        encodes them and becomes `encoder_`.
    window
        Number of latest examples that `partial_fit` learns from, including those of earlier calls.
    warm_start
        `fit` continues where the last fit ended, as `partial_fit` does.

    random_state
        **How to run.** None for different results each time; a whole number is the `seed` of `train`.
    threads
        None for HEATBATH_THREADS, or one within joblib's parallel calls, or all cores. Results don't depend
        on it.
    verbose
        Print the steps and the loss during the fit.

    noise
        **Noise of the data.** Standard deviation of the data around the true values, in their units, one for
        each target. "sampled" finds it together with the networks. "network" lets it depend on the features:
        the network predicts it, too (the prior "auto" is then 0.5).
    likelihood
        "normal" noise; "student" for noise with outliers (Student's distribution with 4 degrees of freedom);
        "poisson" for counts, whole numbers from 0, which have no `noise`.

    Attributes
    ----------
    n_features_in_, feature_names_in_
        Number of features, and their names if the table has names.
    n_iter_
        Steps so far.
    loss_curve_
        Training loss over time, averaged over chains.
    run_
        The `Run`, with the samples.
    encoder_
        The `TableEncoder`, with `encode=True`.

    Examples
    --------
    >>> import heatbath as hb
    >>> X = np.linspace(-1, 1, 40)[:, None]
    >>> regressor = hb.ThermodynamicRegressor(hidden=(5,), prior=1.0, steps=200, chains=2, random_state=0)
    >>> mean, deviation = regressor.fit(X, 3 * X[:, 0]).predict([[-0.9], [0.9]], return_std=True)
    >>> bool(mean[0] < 0 < mean[1] and (deviation > 0).all())
    True
    """

    noise: float | Sequence[float] | Literal["sampled", "network"] = "sampled"
    likelihood: Literal["normal", "student", "poisson"] = "normal"

    _posterior_parameters: ClassVar[tuple[str, ...]] = ("prior", "temperature", "noise")

    def _posterior(self) -> Posterior:
        """Return the posterior of the default method."""
        degrees = DEGREES if self.likelihood == "student" else None
        return posterior_of(self.prior, self.noise, self.temperature, degrees)

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Train on examples, and return the regressor.

        Parameters
        ----------
        X
            Features, (examples, features).
        y
            Targets, (examples,) or (examples, targets).
        sample_weight
            How often each example counts, (examples,).
        """
        return self._learn(X, y, sample_weight)

    def partial_fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Learn from more examples: continue on the latest `window` examples of all calls, `fit` included.

        The networks sample the posterior of the examples in the window.

        - Steps: unless `steps` is given, a call makes the share of a fit's steps that its examples have in
          the window, at least two per sample.
        - Scales: data are scaled again when a mean has moved by half a standard deviation, or a standard
          deviation by a factor of 1.5. The networks keep their predictions.
        - Search: when the window has twice the examples of the last search, stepsize and prior are searched
          again, starting from the present networks.
        - Drift: when the loss of examples before they are learned (`prequential_loss_`) has risen, a
          `DriftWarning` says so, and all earlier examples are forgotten.

        Parameters
        ----------
        X
            Features, (examples, features).
        y
            Targets, (examples,) or (examples, targets).
        sample_weight
            How often each example counts, (examples,).
        """
        self._check_partial()
        return self._learn(X, y, sample_weight, partial=True)

    def _learn(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, partial: bool = False
    ) -> Self:
        """Check examples, train on them, and return the regressor.

        Parameters
        ----------
        X, y, sample_weight
            As in `fit`.
        partial
            True for `partial_fit`, which accepts a single example.
        """
        continues = self._continues(partial)
        fewest = 1 if partial else 2
        inputs, targets, weights = self._checked(
            X, y, sample_weight, not continues, multi_output=True, y_numeric=True, ensure_min_samples=fewest
        )
        if continues and targets.shape[1:] != self._shape:
            raise ValueError(
                "a run continues with the targets it has: y must be "
                f"{('examples', *self._shape)}, got {targets.shape}"
            )
        if not continues:
            self.__dict__.pop("run_", None)  # if this fit fails, there is none

        self._shape: tuple[int, ...] = targets.shape[1:]
        Y = np.asarray(targets, np.float64).reshape(len(targets), -1)
        target_names = ["y"]
        if Y.shape[1] != 1:
            target_names = [f"y{number}" for number in range(1, Y.shape[1] + 1)]

        choice("likelihood", self.likelihood, ("normal", "student", "poisson"))
        if self.method is not None and self.likelihood == "student":
            raise ValueError(
                "likelihood: a method of your own has its own posterior, such as Posterior(degrees=4.0); "
                "leave 'student' out"
            )
        task: Literal["counts", "regression"] = "counts" if self.likelihood == "poisson" else "regression"
        examples = FitExamples(inputs, Y, weights, task, target_names, X)
        return self._fit_examples(examples, partial)

    @overload
    def predict(self, X: ArrayLike, return_std: Literal[False] = False) -> Floats: ...
    @overload
    def predict(self, X: ArrayLike, return_std: Literal[True]) -> tuple[Floats, Floats]: ...
    def predict(self, X: ArrayLike, return_std: bool = False) -> Floats | tuple[Floats, Floats]:
        """Return the mean over the networks, and with `return_std` the standard deviation of new data.

        Parameters
        ----------
        X
            Features, (examples, features).
        return_std
            True to return the standard deviation, too. It includes the noise of the data, unless your own
            method has no posterior and doesn't know the noise.

        Returns
        -------
        ndarray or tuple of ndarray
            Means, and standard deviations, in the shape of the targets.
        """
        prediction = self._prediction(X)
        mean = prediction.mean.reshape(-1, *self._shape)
        return (mean, prediction.sd.reshape(-1, *self._shape)) if return_std else mean

    def predict_interval(self, X: ArrayLike, coverage: float = 0.9) -> tuple[Floats, Floats]:
        """Return the lower and upper ends of the intervals that contain a fraction of new data.

        If the noise is normal, intervals are calibrated with the training examples, each left out in turn
        (see `prediction.calibration`). For the intervals of the posterior alone, call
        `run_.predictive(X).interval(coverage)`.

        Parameters
        ----------
        X
            Features, (examples, features).
        coverage
            Fraction of new data in the interval.

        Returns
        -------
        tuple of ndarray
            Lower and upper ends, in the shape of the targets.

        Raises
        ------
        ValueError
            If your own method has no posterior, and so doesn't know the noise of the data.
        """
        predictive = self._predictive(X)
        low, high = self.run_.calibration(self.samples).interval(predictive, coverage)
        return low.reshape(-1, *self._shape), high.reshape(-1, *self._shape)

    def predict_quantiles(self, X: ArrayLike, quantiles: ArrayLike) -> Floats:
        """Return quantiles of new data, (quantiles, examples), with targets last if there are several.

        `quantiles` are fractions from 0 to 1. They are calibrated as in `predict_interval`.
        """
        predictive = self._predictive(X)
        values = self.run_.calibration(self.samples).quantiles(predictive, quantiles)
        return values.reshape(len(values), -1, *self._shape)

    def _predictive(self, X: ArrayLike) -> Mixture:
        """Return the predictive distribution of new data; refuse a method that doesn't know their noise."""
        X = self._inputs(X)
        if self.run_.plan.points[0].partition.posterior is None and self.likelihood != "poisson":
            raise ValueError(
                "intervals are of new data, whose noise this method does not know: fit with a posterior, "
                "such as method=LaLa(h=0.2, gamma=1.0, posterior=Posterior())"
            )
        return self.run_.predictive(X, latest=self.samples)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
