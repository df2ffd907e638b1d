"""Torch modules on images, a table and text: averaged samples against Adam, SGD and an ensemble of Adams.

- images: MNIST, 58,000 for training, two convolutions and a hidden layer;
- table: 3,000 rows of 20 columns in three classes, drawn from the probabilities of a random network; two
  hidden layers;
- text: 6,000 characters of a Markov source of order two over twelve letters, the next from the four before;
  an embedding and a hidden layer.

Of the table and the text the log loss of the true probabilities is known: nothing can be below it but by
chance. 2,000 examples are for validation and 10,000 for the test; batches are of 64. All methods are tuned
alike, by `heatbath.torch.tune` with 16 candidates and the default ranges (those of SGD: lr from 0.001 to 1,
momentum from 0.5 to 0.99), and make the same number of gradients:

- AdLaLa, Adam and SGD with momentum and a cosine schedule: one run, of which the last network is judged, and
  the prediction averaged over 20 samples of its second half;
- four Adams: each has a quarter of the steps, for which it is tuned, and their predictions are averaged;
- Adam, then Sampler: Adam as it was tuned for half of the gradients, and a `heatbath.torch.Sampler` around
  what it came to for the other half, four chains at once, with nothing chosen; what it needs to find its
  stepsize is counted. T is that of the posterior, 1, or the best of 1, 0.3, 0.1 and 0.03 by the validation
  examples, in one run each. `lr` and R-hat are what it found and how far it came, in the first run.

Accuracy, log loss and expected calibration error (15 bins) on the test examples; means over runs with other
starts and batches ± the standard error. Seconds are of one core (processor time of a run, on a machine that
was also busy otherwise).

    python benchmarks/modules.py [--task images] [--seeds 5] [--results FILE] [--page FILE]

MNIST is read as `heatbath.datasets.mnist` does. What is in the file of results
(benchmarks/results/modules.json) is not computed again: delete it to measure anew.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import heatbath as hb
from heatbath import torch as ht
from heatbath._internal import atomic_write
from heatbath.evaluation import metrics

BATCH, APART, TESTED, CANDIDATES, SAMPLES, MEMBERS = 64, 2000, 10_000, 16, 20, 4
COLD = (1.0, 0.3, 0.1, 0.03)
PIECE = 8  # steps of a sampler at a time: where it finds its stepsize, more gradients are made than steps
RESULTS = Path(__file__).parent / "results"
COLUMNS = {"accuracy": metrics.accuracy, "log loss": metrics.log_score, "ECE": metrics.calibration_error}
SGD = {"lr": hb.between(1e-3, 1.0), "mu": hb.between(0.5, 0.99, "complement")}
SAMPLED = {"Adam, then Sampler": False, "Adam, then Sampler, T chosen": True}
Make = Callable[..., torch.optim.Optimizer]
Parts = dict[str, tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Task:
    """Examples for training, validation and the test, a network for them, and the steps of a run.

    `floor` is the log loss of the true probabilities on the test examples.
    """

    examples: Parts
    network: Callable[[], nn.Module]
    steps: int
    floor: float | None = None


def images() -> Task:
    """MNIST with two convolutions and a hidden layer."""
    problem = hb.datasets.mnist()

    def tensors(X: np.ndarray, y: np.ndarray) -> tuple[Tensor, Tensor]:
        return torch.tensor(X, dtype=torch.float32).reshape(-1, 1, 28, 28), torch.tensor(y[:, 0]).long()

    X, y = tensors(problem.X_train[0], problem.Y_train[0])
    order = torch.randperm(len(X), generator=torch.Generator().manual_seed(0))
    apart, rest = order[:APART], order[APART:]
    test = tensors(problem.X_test[0], problem.Y_test[0])
    parts = {"training": (X[rest], y[rest]), "validation": (X[apart], y[apart]), "test": test}
    return Task(parts, _convolutional, 2336)


def _convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, stride=2), nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 6 * 6, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


def table() -> Task:
    """Three classes, whose logits are those of a random network of 20 columns."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000 + APART + TESTED, 20))
    hidden = np.tanh(X @ rng.standard_normal((20, 10)) / np.sqrt(20) * 2)
    logits = 2.5 * hidden @ rng.standard_normal((10, 3))
    y, floor = _drawn(logits, rng)
    return Task(_parted(torch.tensor(X, dtype=torch.float32), y, 3000), _dense, 2048, floor)


def _dense() -> nn.Module:
    return nn.Sequential(
        nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3)
    )  # fmt: skip


def text() -> Task:
    """Characters of a Markov source of order two, the next from the four before."""
    rng = np.random.default_rng(0)
    letters, before = 12, 4
    logits = 1.5 * rng.standard_normal((letters, letters, letters))
    length = 6000 + APART + TESTED + before
    likely = np.exp(logits)
    likely /= likely.sum(axis=-1, keepdims=True)
    written = [0, 1]
    for share in rng.random(length - 2):
        written.append(int(np.searchsorted(likely[written[-2], written[-1]].cumsum(), share)))
    characters = np.minimum(np.array(written), letters - 1)
    windows = np.lib.stride_tricks.sliding_window_view(characters, before + 1)
    X, y = torch.tensor(windows[:, :-1].copy()), torch.tensor(windows[:, -1].copy())
    true = likely[windows[-TESTED:, -3], windows[-TESTED:, -2]]
    floor = float(-np.log(true[np.arange(TESTED), windows[-TESTED:, -1]]).mean())
    return Task(_parted(X, y, 6000), _language, 2048, floor)


def _language() -> nn.Module:
    return nn.Sequential(
        nn.Embedding(12, 8), nn.Flatten(), nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 12)
    )  # fmt: skip


def _drawn(logits: np.ndarray, rng: np.random.Generator) -> tuple[Tensor, float]:
    """Classes drawn from their probabilities, and the log loss of these on the test examples."""
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    y = (rng.random((len(p), 1)) > p.cumsum(axis=1)[:, :-1]).sum(axis=1)
    floor = -np.log(p[np.arange(len(p)), y])[-TESTED:].mean()
    return torch.tensor(y), float(floor)


def _parted(X: Tensor, y: Tensor, training: int) -> Parts:
    ends = {"training": slice(0, training), "validation": slice(training, training + APART)}
    ends["test"] = slice(training + APART, training + APART + TESTED)
    return {name: (X[rows], y[rows]) for name, rows in ends.items()}


@cache
def task_of(name: str) -> Task:
    """Return a task by name."""
    return TASKS[name]()


TASKS: dict[str, Callable[[], Task]] = {"images": images, "table": table, "text": text}


def with_cosine(steps: int) -> Make:
    """Return a maker of SGD with momentum, whose stepsize falls to 0 along half a cosine."""

    def sgd(model: nn.Module, lr: float, mu: float) -> torch.optim.Optimizer:
        return ht.Momentum(model, lr=hb.schedules.Cyclical(lr / (1 - mu), 0.0, steps), mu=mu, kind=2)

    return sgd


def methods(steps: int) -> dict[str, tuple[Make, dict[str, Any], int]]:
    """Return for each method its optimiser, the ranges to search, and the steps of a run."""
    return {
        "AdLaLa": (ht.AdLaLa, {}, steps),
        "Adam": (ht.Adam, {}, steps),
        "SGD, cosine": (with_cosine(steps), SGD, steps),
        "four Adams": (ht.Adam, {}, steps // MEMBERS),
    }


def batches(task: Task, steps: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Of shuffled epochs."""
    X, y = task.examples["training"]
    generator = torch.Generator().manual_seed(seed)
    order = torch.empty(0, dtype=torch.int64)
    for _ in range(steps):
        if len(order) < BATCH:
            order = torch.randperm(len(X), generator=generator)
        chosen, order = order[:BATCH], order[BATCH:]
        yield X[chosen], y[chosen]


def trained(
    task: Task, make: Make, arguments: dict[str, float], steps: int, seed: int
) -> tuple[nn.Module, ht.Samples]:
    """Train a model; return it with samples of the second half."""
    torch.manual_seed(seed)
    model = task.network()
    optimizer = make(model, **arguments)
    samples = ht.Samples(model, burn_in=steps // 2, thin=max(1, steps // 2 // SAMPLES), most=2 * SAMPLES)
    for x, y in batches(task, steps, seed):
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
        samples.take()
    return model, samples


def judged(task: Task, model: nn.Module, states: Any) -> list[float]:
    """Accuracy, log loss and calibration error of the prediction that is averaged over states."""
    X, y = task.examples["test"]
    said = ht.predict(model, list(states), list(X.split(1000)), task="classes").mean
    return [score(said, y) for score in COLUMNS.values()]


def sampled(task: Task, model: nn.Module, gradients: int, temperature: float, seed: int) -> ht.Sampler:
    """Sample around a model until a number of gradients is spent, those of trials included."""
    sampler = ht.Sampler(
        model, "cross_entropy", task.examples["training"], batch=BATCH, temperature=temperature, seed=seed
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ht.NotConvergedWarning)
        warnings.simplefilter("ignore", hb.OffTemperatureWarning)
        while sampler.gradients + PIECE * sampler.settings.chains <= gradients:
            sampler.run(steps=PIECE)
    return sampler


def measure(
    task: Task, name: str, arguments: dict[str, float], steps: int, seed: int
) -> dict[str, list[float]]:
    """Return the rows of a method in the table, for one seed."""
    if name in SAMPLED:
        adam = {key: value for key, value in arguments.items() if key != "temperature"}
        model, _ = trained(task, ht.Adam, adam, steps // 2, seed)
        sampler = sampled(task, model, steps // 2, arguments["temperature"], seed)
        X, y = task.examples["test"]
        said = sampler.predict(X).mean
        agreed = sampler.convergence
        found = [sampler.lr, agreed.rhat if agreed else np.nan, sampler.gradients + steps // 2]
        return {name: [*(score(said, y) for score in COLUMNS.values()), *found]}
    make, _, length = methods(steps)[name]
    if name == "four Adams":
        members = [trained(task, make, arguments, length, MEMBERS * seed + i)[0] for i in range(MEMBERS)]
        return {name: judged(task, members[0], (member.state_dict() for member in members))}
    own = {"seed": seed} if make is ht.AdLaLa else {}
    model, samples = trained(task, make, arguments | own, length, seed)
    return {
        name: judged(task, model, [model.state_dict()]),
        f"{name}, averaged": judged(task, model, samples),
    }


def found(task: Task, name: str, known: dict[str, Any]) -> dict[str, Any]:
    """Tune a method on validation data; return what was found and the seconds."""
    begin = time.process_time()
    data, validation = task.examples["training"], task.examples["validation"]
    if name in SAMPLED:
        arguments = dict(known["tuned"]["Adam"]["arguments"])
        scored = {1.0: 0.0}
        if SAMPLED[name]:
            model, _ = trained(task, ht.Adam, arguments, task.steps // 2, seed=100)
            for T in COLD:
                said = sampled(task, model, task.steps // 2, T, seed=100).predict(validation[0]).mean
                scored[T] = metrics.log_score(said, validation[1])
        best = min(scored, key=scored.__getitem__)
        return {
            "arguments": arguments | {"temperature": best},
            "edges": {},
            "seconds": time.process_time() - begin,
        }
    make, searched, length = methods(task.steps)[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hb.SearchEdgeWarning)  # what lies at an end is in the results
        tuned = ht.tune(
            task.network, data, {make: searched}, length, BATCH, candidates=CANDIDATES, validation=validation
        )
    (method,) = tuned.arguments
    return {
        "arguments": tuned.arguments[method],
        "edges": tuned.edges.get(method, {}),
        "seconds": time.process_time() - begin,
    }


def with_error(values: np.ndarray, digits: int) -> str:
    """Return a mean ± its standard error."""
    error = f" ± {values.std(ddof=1) / np.sqrt(len(values)):.{digits}f}" if len(values) > 1 else ""
    return f"{values.mean():.{digits}f}{error}"


def rows_of(name: str, known: dict[str, Any]) -> str:
    """Return the table of a task from the results."""
    floor = known.get("floor")
    below = "" if floor is None else f" (floor {floor:.4f})"
    lines = [
        f"| {name}, {known['steps']:,} gradients | accuracy, % | log loss{below} | ECE | runs | found |",
        "|" + " --- |" * 6,
    ]
    for method, runs in known["runs"].items():
        for row in next(iter(runs.values())):
            values = np.array([rows[row] for rows in runs.values()])
            cells = (with_error(100 * values[:, 0], 2), *(with_error(values[:, i], 4) for i in (1, 2)))
            arguments = known["tuned"][method]["arguments"] if row == method else {}
            if method in SAMPLED:
                arguments = {"T": arguments["temperature"], "lr": values[0, 3], "R-hat": values[0, 4]}
            text = ", ".join(f"{key}={value:.3g}" for key, value in arguments.items())
            lines.append(f"| {row} | {' | '.join(cells)} | {len(values)} | {text} |")
    return "\n".join(lines)


def table(known: dict[str, Any]) -> str:
    """Return the tables of all tasks."""
    return "\n\n".join(rows_of(name, own) for name, own in known.items())


def main() -> None:
    """Measure what is not known yet, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--task", choices=TASKS, action="append")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--results", type=Path, default=RESULTS / "modules.json")
    parser.add_argument("--page", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    results: dict[str, Any] = json.loads(given.results.read_text()) if given.results.exists() else {}
    for name in given.task or TASKS:
        task = task_of(name)
        known = results.setdefault(name, {"steps": task.steps, "floor": task.floor, "tuned": {}, "runs": {}})
        for method in (*methods(task.steps), *SAMPLED):
            if method not in known["tuned"]:
                known["tuned"][method] = found(task, method, known)
                atomic_write.write(given.results, json.dumps(results, indent=1))
            print(name, method, known["tuned"][method], flush=True)
            runs, arguments = known["runs"].setdefault(method, {}), known["tuned"][method]["arguments"]
            for seed in map(str, range(given.seeds)):
                if seed not in runs:
                    begin = time.process_time()
                    runs[seed] = measure(task, method, arguments, task.steps, int(seed))
                    known.setdefault("seconds", {}).setdefault(method, {})[seed] = time.process_time() - begin
                    atomic_write.write(given.results, json.dumps(results, indent=1))
                print(name, method, seed, runs[seed], flush=True)
    print(table(results))
    if given.page:
        explained = str(__doc__).partition("\n\n    python")[0]
        mark = "<!-- benchmarks/modules.py -->"
        text = f"{explained}\n\n{mark}\n\n{table(results)}\n\n<!-- end -->"
        atomic_write.write(given.page, f"# Modules\n\nBy `make tables`.\n\n{text}\n")


if __name__ == "__main__":
    main()
