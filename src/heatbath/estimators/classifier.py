"""Classifier with the interface of scikit-learn."""

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
from heatbath.datasets.tasks import each_class
from heatbath.estimators.base import Thermodynamic
from heatbath.estimators.examples import FitExamples, check_weights


@dataclass(kw_only=True, eq=False, repr=False)
class ThermodynamicClassifier(ClassifierMixin, Thermodynamic):  # type: ignore[misc]
    """Classify by the mean probabilities of many networks sampled from their posterior.

    The product of sample weight and class weight is how often an example counts, in the loss, in the scale of
    the features and in the posterior: weight 2 is the same as two copies, weight 0 leaves it out.

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

    class_weight
        **Classes.** None, "balanced" (inversely proportional to the sizes of the classes) or a dict of
        weights.

    Attributes
    ----------
    classes_
        The classes, sorted.
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
    >>> y = np.where(X[:, 0] > 0, "right", "left")
    >>> classifier = hb.ThermodynamicClassifier(hidden=(5,), prior=1.0, steps=200, chains=2, random_state=0)
    >>> classifier.fit(X, y).predict([[-0.9], [0.9]]).tolist()
    ['left', 'right']
    >>> classifier.predict_proba([[-0.9], [0.9]]).shape
    (2, 2)
    """

    class_weight: Literal["balanced"] | Mapping[Any, float] | None = None

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Train on examples, and return the classifier.

        Parameters
        ----------
        X
            Features, (examples, features).
        y
            Classes, (examples,).
        sample_weight
            How often each example counts, (examples,).
        """
        continues = self._continues()
        inputs, y, weights = self._checked(X, y, sample_weight, reset=not continues, ensure_min_samples=2)
        check_classification_targets(y)
        classes: NDArray[Any] = self.classes_ if continues else np.unique(y)
        weights = weights * self._class_weights(y, classes)
        check_weights(weights)
        present = np.unique(y[weights > 0])
        if len(present) < 2:
            raise ValueError(
                f"examples of two classes or more with a positive weight are needed, got one class, {present}"
            )
        if not continues:
            self.__dict__.pop("run_", None)  # if this fit fails, there is none
            self.classes_: NDArray[Any] = classes
        return self._learn(inputs, y, weights, table=X)

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
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
            Classes, (examples,).
        classes
            All classes that will ever occur. Needed in the first call.
        sample_weight
            How often each example counts, (examples,).
        """
        continues = self._continues(partial=True)
        inputs, y, weights = self._checked(X, y, sample_weight, reset=not continues)
        check_classification_targets(y)
        self._check_partial()
        if self.class_weight == "balanced":
            raise ValueError(
                "class_weight='balanced' needs all data at once: give partial_fit a dict of weights instead"
            )
        if continues:
            self._check_same_classes(classes)
        else:
            self._set_classes(classes)
        weights = weights * self._class_weights(y, self.classes_)
        return self._learn(inputs, y, weights, partial=True)

    def _set_classes(self, classes: ArrayLike | None) -> None:
        """Store the classes in the first call of `partial_fit`, which must name two or more."""
        if classes is None:
            raise ValueError("the first call of partial_fit needs classes=, all that will ever occur")
        self.classes_ = np.unique(np.asarray(classes))
        if len(self.classes_) < 2:
            raise ValueError(f"classes must be two or more, got {self.classes_}")

    def _check_same_classes(self, classes: ArrayLike | None) -> None:
        """Refuse classes in a later call of `partial_fit` that aren't those of the first call."""
        if classes is not None and not np.array_equal(np.unique(np.asarray(classes)), self.classes_):
            raise ValueError(f"classes must stay those of the first call, {self.classes_}; got {classes}")

    def _class_weights(self, y: NDArray[Any], classes: NDArray[Any]) -> Floats:
        """Return the weight of every example by its class, (examples,).

        Classes that a dict doesn't name have weight 1; one that names an unknown class is refused.
        """
        if not isinstance(self.class_weight, dict):
            return np.asarray(compute_sample_weight(self.class_weight, y), np.float64)
        unknown = [name for name in self.class_weight if name not in classes]
        if unknown:
            raise ValueError(f"class_weight names the classes {unknown}, and there are {classes}")
        weights = np.ones(len(y))
        for name, weight in self.class_weight.items():
            weights[y == name] = weight
        return weights

    def _learn(
        self, X: Floats, y: NDArray[Any], weights: Floats, partial: bool = False, table: object = None
    ) -> Self:
        """Train on checked examples, and return the classifier.

        Parameters
        ----------
        X, y, weights
            Features, classes and weights of the examples.
        partial
            True for `partial_fit`.
        table
            The user's table, if the features encode one.
        """
        is_known = np.isin(y, self.classes_)
        if not is_known.all():
            raise ValueError(
                f"y has the classes {np.unique(y[~is_known])}, which the run does not know: it continues "
                f"with {self.classes_}; fit anew with warm_start=False"
            )
        Y = np.searchsorted(self.classes_, y).astype(np.float64)[:, None]
        task: Literal["binary", "classes"] = "binary" if len(self.classes_) == 2 else "classes"
        names = [str(name) for name in self.classes_]
        examples = FitExamples(X, Y, weights, task, names, table)
        return self._fit_examples(examples, partial)

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Return the mean probability of each class, (examples, classes)."""
        return each_class(self._prediction(X).mean)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the class with the largest mean probability, (examples,)."""
        best = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[best])
