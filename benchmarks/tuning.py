"""What `hb.tune` finds: methods that all get the same search, then fresh runs; and its regret.

- `spirals`: four spirals of 4 turns with different data, 50,000 steps, 100 units, batches of 20; and
  trigonometric data with a = 10, 100,000 steps, batches of 50. The best of each method, found on the training
  examples, is trained anew in ten chains, the last tenth of the steps cold (`Partition.cooled`), and judged
  on the test examples: means over single networks, with 95 % intervals, and the averaged prediction.
- `tables`: a table with 15 % flipped labels and the 8x8 digits, by the log loss.
- `noise`: the kinetic temperature over τ of Langevin (γ = 1) and Adaptive Langevin by the size of the batch.
- `regret`: on six problems, the test accuracy of what is found with the default number of candidates, and
  with ten times as many.

    python benchmarks/tuning.py [spirals] [tables] [noise] [regret] [--results FILE]

What is in the file of results (benchmarks/results/tuning.json) is not computed again: delete it to measure
anew.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits, make_classification

import heatbath as hb
from heatbath._internal import atomic_write
from heatbath.diagnostics.statistics import student
from heatbath.evaluation import metrics

RESULTS = Path(__file__).parent / "results" / "tuning.json"
METHODS = ("AdLaLa", "LOL", "LaLa", "SGLD", "Adam", "Momentum")
FRESH, COLD, CANDIDATES = 10, 0.9, 128
UNITS = 100


def fresh(problem: Any, partitions: dict[str, Any], steps: int, batch: int) -> dict[str, dict[str, Any]]:
    """Accuracies on the test examples, of every chain and of their averaged prediction."""
    colder = {name: partition.cooled(int(COLD * steps)) for name, partition in partitions.items()}
    X = problem.X_test[0] * problem.scale + problem.shift
    run = hb.compare(
        problem, hb.MLP((UNITS,)), colder, steps, batch, FRESH,
        seed=1000, record=1, average=X, burn_in=steps // 2, thin=max(1, steps // 1000),
    )  # fmt: skip
    found = {}
    for name in partitions:
        one = run.select(method=name)
        chances = one.predict(over="steps").mean
        found[name] = {
            "single": one.accuracy().values[:, -1].tolist(),
            "averaged": metrics.accuracy(chances, problem.Y_test[0]),
            "log_loss": metrics.log_score(chances, problem.Y_test[0]),
        }
    return found


def measure(
    problem: Any, methods: Any, steps: int, batch: int, seed: int, candidates: int, by: Any = "accuracy"
) -> dict[str, Any]:
    """Run a search, and fresh runs with what it found."""
    begin = time.perf_counter()
    tuned = hb.tune(problem, hb.MLP((UNITS,)), methods, steps, batch, candidates=candidates, by=by, seed=seed)
    searched = time.perf_counter() - begin
    found = fresh(problem, tuned.partitions, steps, batch)
    seconds = time.perf_counter() - begin
    codes = {name: {"code": tuned.code(name), **values} for name, values in found.items()}
    return {"searched": searched, "seconds": seconds, "methods": codes}


def table(X: Any, y: Any) -> Any:
    """Split a data set, with a third of the rows for the test."""
    order = np.random.default_rng(0).permutation(len(X))
    train, test = order[len(X) // 3 :], order[: len(X) // 3]
    return hb.datasets.from_arrays(X[train], y[train], X[test], y[test], standardise=True)


def problems() -> dict[str, tuple[Any, int, int]]:
    """Six problems, with their steps and batches."""
    noisy = make_classification(2000, 20, n_informative=8, flip_y=0.15, random_state=5)
    return {
        "spirals, 4 turns": (hb.datasets.spirals(turns=4, seed=21), 50_000, 20),
        "spirals, 2 turns, 200 points": (hb.datasets.spirals(turns=2, n_train=200, seed=22), 20_000, 20),
        "trigonometric, a = 6": (hb.datasets.trigonometric(a=6, seed=23), 20_000, 20),
        "rings": (hb.datasets.rings(seed=24), 20_000, 20),
        "table, 15 % flipped labels": (table(*noisy), 5_000, 32),
        "digits": (table(*load_digits(return_X_y=True)), 2_000, 32),
    }


def heat(batch: int) -> list[float]:
    """Return the kinetic temperature over τ of two methods, at the end of runs on mini-batches."""
    tau, chains = 1e-4, 8
    methods = {
        "Langevin": hb.Partition(hb.Langevin(1.0, tau), 0.2),
        "Adaptive Langevin": hb.Partition(hb.AdaptiveLangevin(tau, sigma=0.01, epsilon=0.1), 0.2),
    }
    problem = hb.datasets.spirals(turns=2, n_train=500)
    run = hb.compare(problem, hb.MLP((20,)), methods, 60_000, batch, chains, record=200)
    late = run.temperature("all").values[:, 100:]
    return [float(part.mean()) / tau for part in late.reshape(2, chains, -1)]


Measured = Callable[..., dict[str, Any]]  # (key, *arguments of `measure`): measured once, then read


def main() -> None:
    """Measure what has no results yet, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", nargs="*", default=list(TABLES))
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    known = json.loads(arguments.results.read_text()) if arguments.results.exists() else {}

    def once(key: str, *options: Any) -> dict[str, Any]:
        if key not in known:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", hb.DivergedWarning)
                known[key] = measure(*options)
            atomic_write.write(arguments.results, json.dumps(known, indent=1))
        return known[key]

    for name in arguments.what:
        TABLES[name](once)


def print_row(*cells: object) -> None:
    """Print a row of a Markdown table at once."""
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def print_spirals(once: Measured) -> None:
    """Print the accuracies of each method on the hard problems in the plane."""
    print_row("problem", *METHODS, "seconds, AdLaLa alone")
    print_row(*["---"] * (len(METHODS) + 2))
    hard = {f"spirals {i}": (hb.datasets.spirals(turns=4, seed=i), 50_000, 20, i) for i in range(1, 5)}
    hard["trigonometric, a = 10"] = (hb.datasets.trigonometric(a=10, seed=5), 100_000, 50, 5)
    for name, (problem, steps, batch, seed) in hard.items():
        found = {
            method: once(f"{name}/{method}", problem, method, steps, batch, seed, CANDIDATES)
            for method in METHODS
        }
        values = [found[method]["methods"].get(method) for method in METHODS]
        cells = [f"{student(np.array(v['single'])).percent()}; {v['averaged']:.1%}" for v in values]
        print_row(name, *cells, f"{found['AdLaLa']['seconds']:.0f}")


def print_tables(once: Measured) -> None:
    """Print the log loss and accuracy of each method on two classifications."""
    print_row("problem: log loss; accuracy", *METHODS)
    print_row(*["---"] * (len(METHODS) + 1))
    for name in ("table, 15 % flipped labels", "digits"):
        cells = []
        for method in METHODS:
            problem, *options = (*problems()[name], 7, CANDIDATES // 2, "loss")
            values = once(f"tables/{name}/{method}", problem, method, *options)["methods"][method]
            cells.append(f"{values['log_loss']:.3f}; {values['averaged']:.1%}")
        print_row(name, *cells)


def print_noise(_: Measured) -> None:
    """Print the temperatures of Langevin and Adaptive Langevin at several batch sizes."""
    print_row("batch of 500", "Langevin", "Adaptive Langevin")
    print_row("---", "---", "---")
    for batch in (5, 20, 100, 500):
        print_row(batch, *(f"{ratio:.2f}" for ratio in heat(batch)))


def print_regret(once: Measured) -> None:
    """Print what ten times as many candidates would gain."""
    print_row("problem", "default", "ten times", "regret, points", "seconds")
    print_row(*["---"] * 5)
    for name, (problem, steps, batch) in problems().items():
        pair = [
            once(f"regret/{name}/{factor}", problem, "AdLaLa", steps, batch, 6, factor * CANDIDATES)
            for factor in (1, 10)
        ]
        default, tenfold = (100 * found["methods"]["AdLaLa"]["averaged"] for found in pair)
        seconds = ", ".join(f"{found['searched']:.0f}" for found in pair)
        print_row(name, f"{default:.1f}", f"{tenfold:.1f}", f"{tenfold - default:.1f}", seconds)


TABLES = {"spirals": print_spirals, "tables": print_tables, "noise": print_noise, "regret": print_regret}

if __name__ == "__main__":
    main()
