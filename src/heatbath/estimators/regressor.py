"""The regressor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Self, overload

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin

from heatbath.datasets.problem import Floats
from heatbath.estimators.base import Thermodynamic


@dataclass(kw_only=True, eq=False, repr=False)
class ThermodynamicRegressor(RegressorMixin, Thermodynamic):  # type: ignore[misc]
    """One or several values, as the mean of many sampled networks that minimise squared errors.

    For the parameters see `estimators.base.Thermodynamic`. The targets are always scaled to mean 0 and
    variance 1 inside. Sample weights decide how often each datum stands in the training set, see
    `estimators.weights`: exactly for whole multiples of the smallest weight.

    Fitted, it has `n_features_in_`, `feature_names_in_` (of a table with names), `n_iter_`, the steps made,
    `loss_curve_`, the training loss on the way as a mean over the chains, and `run_`, the `Run`.
    """

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Train on the data X (data, features) with the values y, (data,) or (data, targets)."""
        return self._learn(X, y, sample_weight, self._goes_on, bool(self.early_stopping), fewest=2)

    def partial_fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Go on from where the run stands, `steps` more steps, on these data.

        θ, p and ξ go on as they are, and features and targets are scaled as in the first call. Predictions
        are of the samples of the latest call.
        """
        self._check_partial()
        return self._learn(X, y, sample_weight, hasattr(self, "run_"), early_stopping=False, fewest=1)

    def _learn(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        goes_on: bool,
        early_stopping: bool,
        fewest: int,
    ) -> Self:
        X, y, weights = self._checked(
            X, y, sample_weight, not goes_on, multi_output=True, y_numeric=True, ensure_min_samples=fewest
        )
        if goes_on and y.shape[1:] != self._shape:
            raise ValueError(
                f"a run goes on with the targets it has: y must be {('data', *self._shape)}, got {y.shape}"
            )
        if not goes_on:
            self.__dict__.pop("run_", None)  # if this fit fails, there is none
        self._shape: tuple[int, ...] = y.shape[1:]
        Y = np.asarray(y, np.float64).reshape(len(y), -1)
        names = ["y"] if Y.shape[1] == 1 else [f"y{i}" for i in range(1, Y.shape[1] + 1)]
        return self._sample(X, Y, weights, "regression", names, goes_on, early_stopping)

    @overload
    def predict(self, X: ArrayLike, return_std: Literal[False] = False) -> Floats: ...
    @overload
    def predict(self, X: ArrayLike, return_std: Literal[True]) -> tuple[Floats, Floats]: ...
    def predict(self, X: ArrayLike, return_std: bool = False) -> Floats | tuple[Floats, Floats]:
        """The mean over the networks, and with `return_std` their standard deviation.

        That is how far the networks differ, and not the noise of the data, which comes on top.
        """
        said = self._prediction(X)
        mean, spread = (v.reshape(-1, *self._shape) for v in (said.mean, np.sqrt(said.variance)))
        return (mean, spread) if return_std else mean

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
