"""The regressor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, overload

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin

from heatbath._internal.checks import choice
from heatbath.datasets.problem import Floats
from heatbath.estimators.base import FitExamples, Thermodynamic
from heatbath.methods.posterior import Posterior
from heatbath.prediction import Mixture
from heatbath.training.defaults import posterior_of

DEGREES = 4.0  # of freedom of Student's law


@dataclass(kw_only=True, eq=False, repr=False)
class ThermodynamicRegressor(RegressorMixin, Thermodynamic):  # type: ignore[misc]
    """One or several values, as the mean of many networks sampled from their posterior.

    - `hidden`, `activation`: the sizes of the hidden layers and what follows each, as in `Dense`.
    - `prior`: the standard deviation of the parameters before anything is known; "auto" finds that of each
      layer, see `evidence` (with fewer than 360 steps it is 1, with early stopping 0.5); a number, one for
      each layer, or "fan_in", see `Posterior`.
    - `temperature`: 1 for the posterior, below it for a cold one.
    - `refine`: how many times the usual work may be done, for those who would wait longer for better.
    - `method`: a `Partition` of your own in place of Langevin dynamics that sample the posterior; its `prior`
      and `temperature` are its own, too.
    - `steps`: None for as many as it takes until the predictions have converged, up to some thousands (see
      `heatbath.training.defaults`; `run_.found` tells). With a method of your own: one for each example,
      but at least
      200 and at most 20,000.
    - `batch`: examples in a mini-batch, or all if there are fewer; None for all of them, as long as that is
      affordable, and for 32 with a method of your own.
    - `chains`, `samples`: predictions are averages over `samples` networks of each of `chains` chains, spread
      over the second half of the steps (at most one a step); None for 8 chains, fewer for large tables, and
      4 with a method of your own.
    - `scale`: give every feature mean 0 and variance 1 over the training examples.
    - `window`: how many of the latest examples `partial_fit` learns from, those of earlier calls among them.
    - `encode`: take tables with columns of any kind: text, dates, truth values, missing cells. A
      `TableEncoder` learns what they are, and is `encoder_` then.
    - `early_stopping`: set `validation_fraction` of the examples aside and look at their loss, the mean over
      the chains, every time a sample is taken, from the start on. Training ends when it has not fallen by
      `tol` for `n_iter_no_change` looks; predictions average over the latest `samples` samples.
    - `warm_start`: `fit` continues from where the last one ended, as `partial_fit` does.
    - `random_state`: None for other numbers each time; a whole number is the `seed` of `train`.
    - `threads`: None for HEATBATH_THREADS, or one within joblib's parallel calls, or all cores. It does not
      change the results.
    - `verbose`: print the steps and the loss on the way.
    - `noise`: the standard deviation of the data around the truth, in their units, one for each target, or
      "sampled", where it is found together with the networks; or "network", where it may be another at every
      place, and the network says that, too (the prior "auto" is then 0.5).
    - `likelihood`: "normal" noise; "student" for noise with outliers, of Student's law with 4 degrees of
      freedom; "poisson" for counts, whole numbers from 0 on, which have no `noise` of their own.

    The targets are scaled to mean 0 and variance 1 inside, but for counts. Sample weights say how often each
    example counts, in the loss, in the scale of features and targets and in a posterior: 2 is as two of it, 0
    leaves it out.

    Fitted, it has `n_features_in_`, `feature_names_in_` (of a table with names), `n_iter_`, the steps made,
    `loss_curve_`, the training loss on the way as a mean over the chains, and `run_`, the `Run`.
    """

    noise: float | Sequence[float] | Literal["sampled", "network"] = "sampled"
    likelihood: Literal["normal", "student", "poisson"] = "normal"

    _of_posterior: ClassVar[tuple[str, ...]] = ("prior", "temperature", "noise")

    def _posterior(self) -> Posterior:
        degrees = DEGREES if self.likelihood == "student" else None
        return posterior_of(self.prior, self.noise, self.temperature, degrees)

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Train on X (examples, features) with the values y, (examples,) or (examples, targets)."""
        return self._learn(X, y, sample_weight, self._continues, bool(self.early_stopping), fewest=2)

    def partial_fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Learn from more examples: continue on the latest `window` of these and all before, those of `fit`
        among them.

        Their posterior is sampled, with n as many as there are. Unless `steps` are given, a call makes the
        share of the steps of a fit that its examples have in the window, and two for each sample at least.
        Data are scaled anew when they have other means (by half a standard deviation) or spreads (by 1.5
        times), and parameters change so that the networks say the same. When the window has twice the
        examples with which stepsize and prior were found, both are found anew, from where the networks are.
        `Drift` warns when the loss of examples before they are learned (`prequential_loss_`) has risen, and
        all examples before that are forgotten.
        """
        self._check_partial()
        continues = hasattr(self, "run_")
        return self._learn(X, y, sample_weight, continues, early_stopping=False, fewest=1, partial=True)

    def _learn(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        continues: bool,
        early_stopping: bool,
        fewest: int,
        partial: bool = False,
    ) -> Self:
        inputs, y, weights = self._checked(
            X, y, sample_weight, not continues, multi_output=True, y_numeric=True, ensure_min_samples=fewest
        )
        if continues and y.shape[1:] != self._shape:
            raise ValueError(
                "a run continues with the targets it has: y must be "
                f"{('examples', *self._shape)}, got {y.shape}"
            )
        if not continues:
            self.__dict__.pop("run_", None)  # if this fit fails, there is none
        self._shape: tuple[int, ...] = y.shape[1:]
        Y = np.asarray(y, np.float64).reshape(len(y), -1)
        names = ["y"] if Y.shape[1] == 1 else [f"y{i}" for i in range(1, Y.shape[1] + 1)]
        choice("likelihood", self.likelihood, ("normal", "student", "poisson"))
        if self.method is not None and self.likelihood == "student":
            raise ValueError(
                "likelihood: a method of your own has its own posterior, such as Posterior(degrees=4.0); "
                "leave 'student' out"
            )
        task: Literal["counts", "regression"] = "counts" if self.likelihood == "poisson" else "regression"
        return self._sample(
            FitExamples(inputs, Y, weights, task, names, X), continues, early_stopping, partial
        )

    @overload
    def predict(self, X: ArrayLike, return_std: Literal[False] = False) -> Floats: ...
    @overload
    def predict(self, X: ArrayLike, return_std: Literal[True]) -> tuple[Floats, Floats]: ...
    def predict(self, X: ArrayLike, return_std: bool = False) -> Floats | tuple[Floats, Floats]:
        """The mean over the networks, and with `return_std` the standard deviation of new data.

        A method of your own without a posterior does not know the noise of the data: then it is that of the
        networks.
        """
        prediction = self._prediction(X)
        mean, spread = (v.reshape(-1, *self._shape) for v in (prediction.mean, prediction.sd))
        return (mean, spread) if return_std else mean

    def predict_interval(self, X: ArrayLike, coverage: float = 0.9) -> tuple[Floats, Floats]:
        """The lower and upper ends between which this share of new data lies, each as `predict`.

        They are calibrated by the training examples, each left out (see `prediction.calibration`), where the
        noise is normal; those of the posterior alone are `run_.predictive(X).interval(coverage)`. A method of
        your own needs a posterior, which knows the noise of the data.
        """
        law = self._law(X)
        low, high = self.run_.calibration(self.samples).interval(law, coverage)
        return low.reshape(-1, *self._shape), high.reshape(-1, *self._shape)

    def predict_quantiles(self, X: ArrayLike, quantiles: ArrayLike) -> Floats:
        """The values below which these shares of new data lie: for each of them as `predict`.

        They are calibrated as those of `predict_interval`.
        """
        law = self._law(X)
        values = self.run_.calibration(self.samples).quantiles(law, quantiles)
        return values.reshape(len(values), -1, *self._shape)

    def _law(self, X: ArrayLike) -> Mixture:
        """The law of new data."""
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
