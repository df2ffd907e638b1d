"""`ThermodynamicClassifier` as it is on eight sets, against what others are when they are tuned.

Three sets of scikit-learn and five of its generators, in stratified splits of 70 % and 30 %, five of each
where nothing else is said. Beside ours, all on the same splits:

- MLP: scikit-learn's, on standardised features, tuned by log loss in 3 folds of the training data over sizes,
  penalties, learning rates and early stopping;
- boosting: its histogram gradient boosting with default settings, and tuned in the same way over learning
  rates and leaves;
- bde: `sklearn-contrib-bde`, where it can be imported, with its defaults and as in its README (see
  `benchmarks/deep_ensembles.py`), on as many of the splits as were measured; without a ± that is one.

The tables have log loss and accuracy on the 30 %, means over the splits ± the standard error, and the seconds
of a fit: where something is tuned, of one with what was found; those of bde have its compilation in them. The
base rate is what the frequencies of the classes in the training data predict. ✓ marks log losses that ours is
no worse than: the mean of the differences over the splits is at most one standard error of it.

    python benchmarks/classification.py [--sets wine,moons] [--splits 5] [--results classification.json]
        [--page docs/classification.md]

What is in the file of results (benchmarks/results/classification.json) is not computed again: delete it to
measure anew.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import deep_ensembles
import numpy as np
from sklearn.datasets import (
    load_breast_cancer,
    load_digits,
    load_wine,
    make_classification,
    make_gaussian_quantiles,
    make_moons,
)
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import accuracy_score, log_loss
from sklearn.model_selection import GridSearchCV, StratifiedKFold, train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import heatbath as hb
from heatbath._internal import atomic_write


class Set(NamedTuple):
    """Examples and classes, and what is particular about them."""

    load: Callable[[], tuple[np.ndarray, np.ndarray]]
    note: str


# Chosen once, before anything was measured, for what they ask for; each with the seed 0.
SETS = {
    "breast cancer": Set(lambda: load_breast_cancer(return_X_y=True), "569 x 30"),
    "wine": Set(lambda: load_wine(return_X_y=True), "178 x 13, 3 classes"),
    "digits": Set(lambda: load_digits(return_X_y=True), "1797 x 64, 10 classes"),
    "moons": Set(lambda: make_moons(1000, noise=0.3, random_state=0), "1000 x 2, curved and overlapping"),
    "shells": Set(
        lambda: make_gaussian_quantiles(n_samples=1000, n_features=10, n_classes=3, random_state=0),
        "1000 x 10, 3 classes by the distance from the middle",
    ),
    "flipped": Set(
        lambda: make_classification(
            1000,
            20,
            n_informative=5,
            n_redundant=5,
            flip_y=0.3,  # of these labels, drawn anew, one half stays as it was
            random_state=0,
        ),
        "1000 x 20, 15 % of the labels wrong",
    ),
    "rare": Set(
        lambda: make_classification(
            2000, 10, n_informative=5, n_redundant=0, weights=[0.96], flip_y=0, random_state=0
        ),
        "2000 x 10, 4 % of one class",
    ),
    "noisy": Set(
        lambda: make_classification(1000, 60, n_informative=6, n_redundant=14, n_classes=4, random_state=0),
        "1000 x 60, 4 classes, 40 features of noise",
    ),
}
MLP = {
    "mlpclassifier__hidden_layer_sizes": [(50,), (100,)],
    "mlpclassifier__alpha": [1e-4, 1e-2, 1.0],
    "mlpclassifier__learning_rate_init": [1e-3, 1e-2],
    "mlpclassifier__early_stopping": [False, True],
}
BOOSTING = {"learning_rate": [0.03, 0.1], "max_leaf_nodes": [4, 31]}
RESULTS = Path(__file__).parent / "results"
OURS, BASE = "ours", "base rate"


def tuned(model: Any, grid: dict[str, list[Any]], seed: int) -> GridSearchCV:
    """Return an estimator that searches the grid when it is fitted."""
    folds = StratifiedKFold(3, shuffle=True, random_state=seed)
    return GridSearchCV(model, grid, scoring="neg_log_loss", cv=folds)


def models(seed: int) -> dict[str, Any]:
    """All that are compared, not fitted."""
    mlp = make_pipeline(StandardScaler(), MLPClassifier(max_iter=500, random_state=seed))
    boosting = HistGradientBoostingClassifier(random_state=seed)
    ensembles = deep_ensembles.CLASSIFIERS if deep_ensembles.AVAILABLE else {}
    return {
        OURS: hb.ThermodynamicClassifier(random_state=seed),
        BASE: DummyClassifier(strategy="prior"),
        "MLP, tuned": tuned(mlp, MLP, seed),
        "boosting": boosting,
        "boosting, tuned": tuned(boosting, BOOSTING, seed),
        **{name: deep_ensembles.classifier(name, seed) for name in ensembles},
    }


def measure(model: Any, X: np.ndarray, y: np.ndarray, number: int) -> list[float]:
    """Log loss, accuracy and seconds of a fit in one split."""
    train, test, y_train, y_test = train_test_split(X, y, test_size=0.3, stratify=y, random_state=number)
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", hb.OffTemperatureWarning)
        model.fit(train, y_train)
    seconds = getattr(model, "refit_time_", time.perf_counter() - begin)
    said = np.asarray(model.predict_proba(test), np.float64)
    if not np.isfinite(said).all():
        return [np.inf, 0.0, seconds]
    said /= said.sum(axis=1, keepdims=True)  # those of bde are in float32
    labels = np.unique(y)
    return [
        log_loss(y_test, said, labels=labels),
        accuracy_score(y_test, labels[said.argmax(axis=1)]),
        seconds,
    ]


Results = dict[str, dict[int, list[float]]]
"""Log loss, accuracy and seconds of each model, by split."""


def with_error(values: np.ndarray) -> str:
    """Return a mean ± its standard error."""
    error = f" ± {values.std(ddof=1) / np.sqrt(len(values)):.2g}" if len(values) > 1 else ""
    return f"{values.mean():.4g}{error}"


def no_worse(results: Results, other: str) -> bool:
    """Whether the log loss of ours is not above that of the other by more than a standard error."""
    both = sorted(results[OURS].keys() & results[other].keys())
    differences = np.array([results[OURS][k][0] - results[other][k][0] for k in both])
    error = differences.std(ddof=1) / np.sqrt(len(both)) if len(both) > 1 else 0.0
    return bool(differences.mean() <= error)


def tables(found: dict[str, Results]) -> str:
    """Of all that is in the results."""
    names = list(dict.fromkeys(model for results in found.values() for model in results))
    losses, rest = [["set", "", *names, "splits"]], [["set", *names]]
    for name, results in found.items():
        loss, others = dict.fromkeys(names, ""), dict.fromkeys(names, "")
        for model, by_split in results.items():
            values = np.array(list(by_split.values()))
            mark = " ✓" if model != OURS and no_worse(results, model) else ""
            loss[model] = f"{with_error(values[:, 0])}{mark}"
            others[model] = f"{with_error(100 * values[:, 1])} %, {values[:, 2].mean():.1f} s"
        losses.append([name, SETS[name].note, *loss.values(), str(len(results[OURS]))])
        rest.append([name, *others.values()])
    lines = []
    for title, table in (("Log loss", losses), ("Accuracy, and seconds of a fit", rest)):
        rows = [f"| {' | '.join(row)} |" for row in table]
        lines += [f"## {title}", "", rows[0], "|" + " --- |" * len(table[0]), *rows[1:], ""]
    lines += ["## Log losses that ours is no worse than", ""]
    for other in names[1:]:
        verdicts = [no_worse(results, other) for results in found.values() if other in results]
        lines.append(f"- {other}: on {sum(verdicts)} of {len(verdicts)} sets")
    return "\n".join(lines)


def main() -> None:
    """Measure what is not known yet, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--results", type=Path, default=RESULTS / "classification.json")
    parser.add_argument("--page", type=Path)
    given = parser.parse_args()
    if unknown := [name for name in given.sets.split(",") if name not in SETS]:
        parser.error(f"--sets: there are {', '.join(SETS)}; got {', '.join(unknown)}")
    known = json.loads(given.results.read_text()) if given.results.exists() else {}
    for load in (load_wine, load_breast_cancer):  # compiled code is there before times are taken
        hb.ThermodynamicClassifier(random_state=0).fit(*load(return_X_y=True))
    for name in given.sets.split(","):
        X, y = SETS[name].load()
        for number in range(given.splits):
            for model, fresh in models(number).items():
                key = f"{name}/{number}/{model}"
                if key not in known:
                    known[key] = measure(fresh, X, y, number)
                    atomic_write.write(given.results, json.dumps(known))
                print(key, " ".join(f"{value:.4g}" for value in known[key]), flush=True)
    found: dict[str, Results] = {}
    for key, values in sorted(known.items(), key=lambda pair: not pair[0].endswith(f"/{OURS}")):  # ours first
        name, number, model = key.split("/")
        found.setdefault(name, {}).setdefault(model, {})[int(number)] = values
    text = tables({name: found[name] for name in SETS if name in found})
    print(text)
    if given.page:
        explained = str(__doc__).partition("\n\n    python")[0]
        atomic_write.write(given.page, f"# Classification\n\nBy `make tables`.\n\n{explained}\n\n{text}\n")


if __name__ == "__main__":
    main()
