"""Streams of examples: prequential log loss, of each batch before it is learned.

Two classes of points in ten dimensions, of which the first three tell (the sign of x1 x2 + sin 2x3), a tenth
of the labels drawn at random. Three streams of 6,000 examples in batches of 40:

- stationary;
- abrupt: after 3,000 examples the classes are those of three other dimensions;
- gradual: the three dimensions that tell turn into three others over the whole stream.

All have 50 hidden units (SGDClassifier is linear):

- `Stream` with LaLa (h = 0.5, γ = 0.3, prior 1, window 2,000, four steps with each batch), whose predictions
  are averaged over the latest 20 states; and the same that never forgets, and on fresh examples only, with
  one step;
- torch's Adam in a `Stream` (lr 0.04), four steps on the same window, its last network and averaged as
  above, or one step on fresh examples;
- scikit-learn's MLPClassifier.partial_fit (Adam, lr 0.001) and SGDClassifier(loss="log_loss").partial_fit;
- ThermodynamicClassifier.partial_fit (window 2,000, refine 0.1) in calls of 400 examples, judged by the
  batches between.

The coefficients of LaLa and Adam are the best of six and of four on a stationary stream of another seed; the
others are their defaults. Means over seeds with Student's 95 % interval.

    python benchmarks/streams.py [--seeds 5] [--results FILE]

What is in the file of results (benchmarks/results/streams.json) is not computed again: delete it to measure
anew.
"""

import argparse
import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import SGDClassifier
from sklearn.neural_network import MLPClassifier
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

import heatbath as hb
from heatbath import torch as ht
from heatbath._internal import atomic_write
from heatbath.diagnostics.drift import FALSE_ALARMS
from heatbath.diagnostics.statistics import student

RESULTS = Path(__file__).parent / "results"
BATCH, TOTAL, INPUTS, WINDOW, STEPS, CALL = 40, 6000, 10, 2000, 4, 400
STREAMS = ("stationary", "abrupt", "gradual")
TINY = 1e-12
Array = NDArray[np.float64]
Batch = tuple[Array, Array]
Learner = Callable[[Iterator[Batch]], list[float]]


def batches(kind: str, seed: int) -> Iterator[Batch]:
    """Return the stream."""
    rng = np.random.default_rng(seed)
    for first in range(0, TOTAL, BATCH):
        X = rng.standard_normal((BATCH, INPUTS))
        seen = X[:, 3:6] if kind == "abrupt" and first >= TOTAL // 2 else X[:, :3]
        if kind == "gradual":
            angle = np.pi / 2 * first / TOTAL
            seen = np.cos(angle) * X[:, :3] + np.sin(angle) * X[:, 3:6]
        y = seen[:, 0] * seen[:, 1] + np.sin(2 * seen[:, 2]) > 0
        anyhow = rng.random(BATCH) < 0.1
        yield X, np.where(anyhow, rng.random(BATCH) < 0.5, y).astype(float)


def log_loss(p: Array, y: Array) -> float:
    """Return the mean of -log of the probability of the class."""
    return float(-np.log(np.maximum(np.where(y > 0.5, p, 1 - p), TINY)).mean())


def network(seed: int) -> nn.Module:
    """Fifty hidden units."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(INPUTS, 50), nn.ReLU(), nn.Linear(50, 1))


def stream(seed: int, sampled: bool, averaged: bool, fresh: bool = False, forget: bool = True) -> Learner:
    """Return the losses of a torch model in a `Stream`, with LaLa or with Adam."""
    model = network(seed)
    optimizer: torch.optim.Optimizer = torch.optim.Adam(model.parameters(), lr=0.04)
    if sampled:
        posterior = ht.LossPosterior("binary_cross_entropy_with_logits", n=1)
        optimizer = ht.LaLa(model, lr=0.5, gamma=0.3, posterior=posterior, seed=seed)
    learner = ht.Stream(
        model, optimizer, binary_cross_entropy_with_logits, window=WINDOW, batch="fresh" if fresh else None,
        steps=1 if fresh else STEPS, forget=forget, samples=20 if averaged else 0,
        false_alarms=FALSE_ALARMS if forget else np.inf,
    )  # fmt: skip

    def learn(source: Iterator[Batch]) -> list[float]:
        losses = []
        for X, y in source:
            x = torch.tensor(X, dtype=torch.float32)
            if learner.samples:
                said = ht.predict(model, learner.samples, x, task="binary").mean.numpy()
            else:
                with torch.no_grad():
                    said = torch.sigmoid(model(x)).numpy()
            losses.append(log_loss(said[:, 0], y))
            learner.learn(x, torch.tensor(y[:, None], dtype=torch.float32))
        return losses

    return learn


def scikit_learn(model: MLPClassifier | SGDClassifier | hb.ThermodynamicClassifier, calls: int) -> Learner:
    """Return the losses of an estimator with partial_fit, which starts without data."""

    def learn(source: Iterator[Batch]) -> list[float]:
        losses, waiting, begun = [], [], False
        for X, y in source:
            said = model.predict_proba(X)[:, 1] if begun else np.full(len(y), 0.5)
            losses.append(log_loss(said, y))
            waiting.append((X, y))
            if len(waiting) * BATCH >= calls:
                model.partial_fit(*map(np.concatenate, zip(*waiting, strict=True)), classes=[0.0, 1.0])
                waiting, begun = [], True
        return losses

    return learn


METHODS: dict[str, Callable[[int], Learner]] = {
    "LaLa, window": lambda seed: stream(seed, True, True),
    "LaLa, window, never forgets": lambda seed: stream(seed, True, True, forget=False),
    "LaLa, fresh": lambda seed: stream(seed, True, True, fresh=True),
    "Adam, window": lambda seed: stream(seed, False, False),
    "Adam, window, averaged": lambda seed: stream(seed, False, True),
    "Adam, fresh": lambda seed: stream(seed, False, False, fresh=True),
    "MLPClassifier": lambda seed: scikit_learn(MLPClassifier((50,), random_state=seed), BATCH),
    "SGDClassifier": lambda seed: scikit_learn(SGDClassifier(loss="log_loss", random_state=seed), BATCH),
    "ThermodynamicClassifier": lambda seed: scikit_learn(
        hb.ThermodynamicClassifier(random_state=seed, window=WINDOW, refine=0.1, threads=1), CALL
    ),
}


def table(known: dict[str, float]) -> str:
    """Of all that is in the results."""
    lines = [f"| | runs | {' | '.join(STREAMS)} |", "|" + " --- |" * (len(STREAMS) + 2)]
    for name in METHODS:
        runs = [[v for key, v in known.items() if key.startswith(f"{kind}: {name}: ")] for kind in STREAMS]
        (count,) = set(map(len, runs))
        cells = " | ".join(student(one).text(digits=3) for one in runs)
        lines.append(f"| {name} | {count} | {cells} |")
    return "\n".join(lines)


def main() -> None:
    """Measure what is missing, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--results", type=Path, default=RESULTS / "streams.json")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    known = json.loads(options.results.read_text()) if options.results.exists() else {}
    for seed in range(options.seeds):
        for name, make in METHODS.items():
            for kind in STREAMS:
                key = f"{kind}: {name}: {seed}"
                if key not in known:
                    known[key] = float(np.mean(make(seed)(batches(kind, 1000 + seed))))
                    atomic_write.write(options.results, json.dumps(known, indent=1) + "\n")
                    print(f"{key}: {known[key]:.4f}", flush=True)
    print(table(known))


if __name__ == "__main__":
    main()
