"""A convolutional network on MNIST: AdLaLa with averaged samples against Adam, SGD and an ensemble of Adams.

Two convolutions and a hidden layer, 58,000 images for training in batches of 64, 2,000 for validation and the
10,000 of the test. All are tuned alike, by `heatbath.torch.tune` with 16 candidates and the default ranges
(those of SGD: lr from 0.001 to 1, momentum from 0.5 to 0.99), and then make the same number of gradients, as
many as fit into the seconds of a run with Adam:

- AdLaLa, Adam and SGD with momentum and a cosine schedule: one run, of which the last network is judged, and
  the prediction averaged over 20 samples of its second half;
- four Adams: each has a quarter of the steps, for which it is tuned, and their predictions are averaged.

Accuracy, log loss and expected calibration error (15 bins) on the test images; means over runs with other
starts and batches ± the standard error.

    python benchmarks/images.py [--seconds 60] [--seeds 5] [--results FILE] [--page FILE]

MNIST is read as `heatbath.datasets.mnist` does. What is in the file of results
(benchmarks/results/images.json) is not computed again: delete it to measure anew.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import heatbath as hb
from heatbath import torch as ht
from heatbath import writing
from heatbath.prediction import scores

BATCH, APART, CANDIDATES, SAMPLES, MEMBERS = 64, 2000, 16, 20, 4
RESULTS = Path(__file__).parent / "results"
COLUMNS = {"accuracy": scores.accuracy, "log loss": scores.log_score, "ECE": scores.calibration_error}
SGD = {"lr": hb.between(1e-3, 1.0), "mu": hb.between(0.5, 0.99, "complement")}
Make = Callable[..., torch.optim.Optimizer]


@cache
def images() -> dict[str, tuple[Tensor, Tensor]]:
    """Images and digits for training, validation and the test."""
    problem = hb.datasets.mnist()

    def tensors(X: np.ndarray, y: np.ndarray) -> tuple[Tensor, Tensor]:
        return torch.tensor(X, dtype=torch.float32).reshape(-1, 1, 28, 28), torch.tensor(y[:, 0]).long()

    X, y = tensors(problem.X_train[0], problem.Y_train[0])
    order = torch.randperm(len(X), generator=torch.Generator().manual_seed(0))
    apart, rest = order[:APART], order[APART:]
    test = tensors(problem.X_test[0], problem.Y_test[0])
    return {"training": (X[rest], y[rest]), "validation": (X[apart], y[apart]), "test": test}


def network() -> nn.Module:
    """Two convolutions and a hidden layer."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, stride=2), nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 6 * 6, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


def with_cosine(steps: int) -> Make:
    """torch's SGD with momentum, whose stepsize falls to 0 along half a cosine."""

    def sgd(model: nn.Module, lr: float, mu: float) -> torch.optim.Optimizer:
        return ht.Momentum(model, lr=hb.schedules.Cyclical(lr / (1 - mu), 0.0, steps), mu=mu, kind=2)

    return sgd


def methods(steps: int) -> dict[str, tuple[Make, dict[str, Any], int]]:
    """The optimiser, what is searched of it, and the steps of a run, or of each of several."""
    return {
        "AdLaLa": (ht.AdLaLa, {}, steps),
        "Adam": (ht.Adam, {}, steps),
        "SGD, cosine": (with_cosine(steps), SGD, steps),
        "four Adams": (ht.Adam, {}, steps // MEMBERS),
    }


def batches(steps: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Of shuffled epochs."""
    X, y = images()["training"]
    generator = torch.Generator().manual_seed(seed)
    order = torch.empty(0, dtype=torch.int64)
    for _ in range(steps):
        if len(order) < BATCH:
            order = torch.randperm(len(X), generator=generator)
        chosen, order = order[:BATCH], order[BATCH:]
        yield X[chosen], y[chosen]


def trained(make: Make, arguments: dict[str, float], steps: int, seed: int) -> tuple[nn.Module, ht.Samples]:
    """A model after so many steps, and samples of the second half."""
    torch.manual_seed(seed)
    model = network()
    optimizer = make(model, **arguments)
    samples = ht.Samples(model, burn_in=steps // 2, thin=max(1, steps // 2 // SAMPLES), most=2 * SAMPLES)
    for x, y in batches(steps, seed):
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
        samples.take()
    return model, samples


def judged(model: nn.Module, states: Any) -> list[float]:
    """Accuracy, log loss and calibration error of the prediction that is averaged over states."""
    X, y = images()["test"]
    states = list(states)
    said = [ht.predict(model, states, x, task="classes").mean for x in X.split(1000)]
    return [score(torch.cat(said), y) for score in COLUMNS.values()]


def measure(name: str, arguments: dict[str, float], steps: int, seed: int) -> dict[str, list[float]]:
    """The rows of the table that a method has, for one seed."""
    make, _, length = methods(steps)[name]
    if name == "four Adams":
        members = [trained(make, arguments, length, MEMBERS * seed + i)[0] for i in range(MEMBERS)]
        return {name: judged(members[0], (member.state_dict() for member in members))}
    model, samples = trained(make, arguments | ({"seed": seed} if make is ht.AdLaLa else {}), length, seed)
    return {name: judged(model, [model.state_dict()]), f"{name}, averaged": judged(model, samples)}


def steps_in(seconds: float) -> int:
    """How many steps Adam makes in so many seconds, by some that are measured: 8, 16, ... for each member."""
    model = network()
    optimizer, times = ht.Adam(model, lr=1e-3), []
    for x, y in batches(60, 0):
        begin = time.perf_counter()
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
        times.append(time.perf_counter() - begin)
    unit = 8 * MEMBERS
    return max(1, round(seconds / float(np.median(times[20:])) / unit)) * unit


def found(name: str, steps: int) -> dict[str, Any]:
    """What tune finds for a method, and how long it takes."""
    make, searched, length = methods(steps)[name]
    begin = time.perf_counter()
    data, validation = images()["training"], images()["validation"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hb.AtEdge)  # what lies at an end is in the results
        tuned = ht.tune(
            network, data, {make: searched}, length, BATCH, candidates=CANDIDATES, validation=validation
        )
    (method,) = tuned.arguments
    return {
        "arguments": tuned.arguments[method],
        "edges": tuned.edges.get(method, {}),
        "seconds": time.perf_counter() - begin,
    }


def with_error(values: np.ndarray, digits: int) -> str:
    """A mean ± its standard error."""
    error = f" ± {values.std(ddof=1) / np.sqrt(len(values)):.{digits}f}" if len(values) > 1 else ""
    return f"{values.mean():.{digits}f}{error}"


def table(known: dict[str, Any]) -> str:
    """Of all that is in the results."""
    lines = [
        f"| {known['steps']:,} steps | accuracy, % | log loss | ECE | runs | found |",
        "|" + " --- |" * 6,
    ]
    for name, runs in known["runs"].items():
        for row in next(iter(runs.values())):
            values = np.array([rows[row] for rows in runs.values()])
            cells = (with_error(100 * values[:, 0], 2), *(with_error(values[:, i], 4) for i in (1, 2)))
            arguments = known["tuned"][name]["arguments"] if row == name else {}
            text = ", ".join(f"{key}={value:g}" for key, value in arguments.items())
            lines.append(f"| {row} | {' | '.join(cells)} | {len(values)} | {text} |")
    return "\n".join(lines)


def main() -> None:
    """Measure what is not known yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--results", type=Path, default=RESULTS / "images.json")
    parser.add_argument("--page", type=Path)
    given = parser.parse_args()
    known = json.loads(given.results.read_text()) if given.results.exists() else {}
    if not known:
        known = {"seconds": given.seconds, "steps": steps_in(given.seconds), "tuned": {}, "runs": {}}
    if known["seconds"] != given.seconds:
        parser.error(f"{given.results} has runs of {known['seconds']:g} s: delete it, or name another")
    for name in methods(known["steps"]):
        if name not in known["tuned"]:
            known["tuned"][name] = found(name, known["steps"])
            writing.write(given.results, json.dumps(known, indent=1))
        print(name, known["tuned"][name], flush=True)
    for seed in map(str, range(given.seeds)):
        for name in methods(known["steps"]):
            runs = known["runs"].setdefault(name, {})
            if seed not in runs:
                runs[seed] = measure(name, known["tuned"][name]["arguments"], known["steps"], int(seed))
                writing.write(given.results, json.dumps(known, indent=1))
            print(name, seed, runs[seed], flush=True)
    print(table(known))
    if given.page:
        explained = str(__doc__).partition("\n\n    python")[0]
        writing.write(given.page, f"# Images\n\nBy `make tables`.\n\n{explained}\n\n{table(known)}\n")


if __name__ == "__main__":
    main()
