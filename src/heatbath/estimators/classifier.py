"""The classifier."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets

from heatbath.datasets.problem import Floats
from heatbath.estimators.base import FitExamples, Thermodynamic, check_weights


@dataclass(kw_only=True, eq=False, repr=False)
class ThermodynamicClassifier(ClassifierMixin, Thermodynamic):  # type: ignore[misc]
    """Two classes or more, by the mean probabilities of many sampled networks.

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
    - `class_weight`: None, "balanced" (in inverse proportion to the classes' sizes) or a dict of weights.

    Sample weights and class weights are multiplied, and say how often each example counts, in the loss, in
    the scale of the features and in a posterior: 2 is as two of it, 0 leaves it out.

    Fitted, it has `classes_`, `n_features_in_`, `feature_names_in_` (of a table with names), `n_iter_`, the
    steps made, `loss_curve_`, the training loss on the way as a mean over the chains, and `run_`, the `Run`.
    """

    class_weight: Literal["balanced"] | Mapping[Any, float] | None = None

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Train on X (examples, features) of the classes y (examples,)."""
        continues = self._continues
        inputs, y, weights = self._checked(X, y, sample_weight, reset=not continues, ensure_min_samples=2)
        check_classification_targets(y)
        classes: NDArray[Any] = self.classes_ if continues else np.unique(y)
        weights = weights * self._class_weights(y, classes)
        check_weights(weights)
        weighted = np.unique(y[weights > 0])
        if len(weighted) < 2:
            raise ValueError(
                "examples of two classes or more with a positive weight are needed, got one class, "
                f"{weighted}"
            )
        if not continues:
            self.__dict__.pop("run_", None)  # if this fit fails, there is none
            self.classes_: NDArray[Any] = classes
        return self._learn(inputs, y, weights, continues, bool(self.early_stopping), table=X)

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Learn from more examples: continue on the latest `window` of these and all before, those of `fit`
        among them. The first call needs all `classes` that there will be.

        Their posterior is sampled, with n as many as there are. Unless `steps` are given, a call makes the
        share of the steps of a fit that its examples have in the window, and two for each sample at least.
        Data are scaled anew when they have other means (by half a standard deviation) or spreads (by 1.5
        times), and parameters change so that the networks say the same. When the window has twice the
        examples with which stepsize and prior were found, both are found anew, from where the networks are.
        `Drift` warns when the loss of examples before they are learned (`prequential_loss_`) has risen, and
        all examples before that are forgotten.
        """
        continues = hasattr(self, "run_")
        X, y, weights = self._checked(X, y, sample_weight, reset=not continues)
        check_classification_targets(y)
        self._check_partial()
        if self.class_weight == "balanced":
            raise ValueError(
                "class_weight='balanced' needs all data at once: give partial_fit a dict of weights instead"
            )
        if not continues:
            if classes is None:
                raise ValueError("the first call of partial_fit needs classes=, all that there will be")
            self.classes_ = np.unique(np.asarray(classes))
            if len(self.classes_) < 2:
                raise ValueError(f"classes must be two or more, got {self.classes_}")
        elif classes is not None and not np.array_equal(np.unique(np.asarray(classes)), self.classes_):
            raise ValueError(f"classes must stay those of the first call, {self.classes_}; got {classes}")
        weights = weights * self._class_weights(y, self.classes_)
        return self._learn(X, y, weights, continues, early_stopping=False, partial=True)

    def _class_weights(self, y: NDArray[Any], classes: NDArray[Any]) -> Floats:
        """The weight of every example by its class; classes that a dict does not name have 1."""
        if not isinstance(self.class_weight, dict):
            return np.asarray(compute_sample_weight(self.class_weight, y), np.float64)
        if unknown := [name for name in self.class_weight if name not in classes]:
            raise ValueError(f"class_weight names the classes {unknown}, and there are {classes}")
        weights = np.ones(len(y))
        for name, weight in self.class_weight.items():
            weights[y == name] = weight
        return weights

    def _learn(
        self,
        X: Floats,
        y: NDArray[Any],
        weights: Floats,
        continues: bool,
        early_stopping: bool,
        partial: bool = False,
        table: object = None,
    ) -> Self:
        if not (known := np.isin(y, self.classes_)).all():
            raise ValueError(
                f"y has the classes {np.unique(y[~known])}, which the run does not know: it continues with "
                f"{self.classes_}; fit anew with warm_start=False"
            )
        Y = np.searchsorted(self.classes_, y).astype(np.float64)[:, None]
        task: Literal["binary", "classes"] = "binary" if len(self.classes_) == 2 else "classes"
        names = [str(name) for name in self.classes_]
        return self._sample(
            FitExamples(X, Y, weights, task, names, table), continues, early_stopping, partial
        )

    def predict_proba(self, X: ArrayLike) -> Floats:
        """The mean probability of each class, (examples, classes)."""
        mean = self._prediction(X).mean
        return np.hstack([1 - mean, mean]) if len(self.classes_) == 2 else mean

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The class with the largest mean probability."""
        best = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[best])
