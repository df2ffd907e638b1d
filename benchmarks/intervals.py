"""How often the interval of `heatbath.torch.llc` has the truth in it, and what it is warned of.

Runs of four chains each. They are taken from one call with many chains, as chains do not know of each other,
and data are few rows that have the loss of all of them (but for a constant), so that it takes minutes only:

- the linear regression of benchmarks/llc.py with localisation 100, and without but 4 % too hot (lr = 0.5, 50
  steps and 400 draws);
- the regression of reduced rank with the defaults (lr = 0.1, 500 steps and 1000 draws), and with 2,000 draws
  after 500 steps at lr = 0.3 and 0.4. The truth is that of benchmarks/reduced_rank.py.

"By the mean": intervals of the mean and its error alone that have the truth in them; "covered": those of
`llc`; "warned": temperatures that are off, or coarse steps; "missed in silence": neither covered nor warned.
Of 8 runs at lr = 0.3 and of as many at 0.4, in calls of their own, how many `CoarseStepsWarning` warns of.

    python benchmarks/intervals.py [--results FILE]
"""

import argparse
import json
import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from llc import Problem, linear, loss_of, reduced_rank
from torch import Tensor

import heatbath.torch as ht
from heatbath._internal import atomic_write
from heatbath.diagnostics import statistics

RESULTS = Path(__file__).parent / "results"
RUNS, CHAINS, CALLS = 64, 4, 8
ROUNDING = 1e-6  # a corrected value of a quadratic loss is exact, and so its interval has no width
LONG = {"burn_in": 500, "draws": 2000}

Result = dict[str, Any]


def hot(chains: ht.Chains, tau: float) -> torch.optim.Optimizer:
    """Langevin dynamics, 4 % too hot."""
    return ht.Langevin(chains, 0.5, 1.0, 1.04 * tau, seed=1)


CASES: dict[str, tuple[Callable[[], Problem], dict[str, Any]]] = {
    "linear, g = 100": (lambda: linear(1000, 100.0), {"lr": 0.5, "burn_in": 50, "draws": 400, "seed": 1}),
    "linear, 4 % too hot": (lambda: linear(1000), {"sampler": hot, "burn_in": 50, "draws": 400}),
    "reduced rank, defaults": (reduced_rank, {"seed": 1}),
    "reduced rank, lr = 0.3": (reduced_rank, {"lr": 0.3, "seed": 1, **LONG}),
    "reduced rank, lr = 0.4": (reduced_rank, {"lr": 0.4, "seed": 1, **LONG}),
}
COARSE = ("reduced rank, lr = 0.3", "reduced rank, lr = 0.4")


def few_rows(problem: Problem) -> tuple[Tensor, Tensor]:
    """As many rows as inputs, whose loss is that of all data but for a constant."""
    x, y = (tensor.double() for tensor in problem.data)
    q, r = torch.linalg.qr(x)
    scale = math.sqrt(x.shape[1] / len(x))
    return scale * r, scale * q.T @ y


def called(problem: Problem, chains: int, options: dict[str, Any]) -> tuple[ht.LearningCoefficient, bool]:
    """Return the result of `llc`, and whether it gave a `CoarseStepsWarning`."""
    data = few_rows(problem)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = ht.llc(
            problem.model.double(), loss_of, data, beta=problem.nbeta / len(data[0]), chains=chains,
            localization=problem.g, **options,
        )  # fmt: skip
    return found, any(issubclass(one.category, ht.CoarseStepsWarning) for one in caught)


def measure(name: str) -> Result:
    """Count over the runs of a case."""
    make, options = CASES[name]
    problem = make()
    whole, _ = called(problem, RUNS * CHAINS, options)
    by_mean = covered = warned = silent = 0
    values = []
    for trace, heat in zip(*(np.split(a, RUNS) for a in (whole.trace, whole.heat)), strict=True):
        heats = {"configurational": statistics.mean(heat)}
        run = replace(whole, trace=trace, heat=heat, temperatures=heats)
        least, most = statistics.mean(trace).interval
        low, high = run.interval
        inside = low - ROUNDING < problem.exact < high + ROUNDING
        by_mean += least < problem.exact < most
        covered += inside
        warned += bool(run.off)
        silent += not inside and not run.off
        values.append(run.value)
    found = {
        "exact": problem.exact, "runs": RUNS, "mean": float(np.mean(values)),
        "error": float(np.std(values, ddof=1) / math.sqrt(RUNS)), "by the mean": by_mean, "covered": covered,
        "off": warned, "missed in silence": silent,
    }  # fmt: skip
    if name in COARSE:
        seeds = range(100, 100 + CALLS)
        found["calls"] = CALLS
        found["coarse"] = sum(called(problem, CHAINS, options | {"seed": seed})[1] for seed in seeds)
    return found


def table(known: dict[str, Result]) -> str:
    """Of all that is in the results."""
    lines = [
        "| | truth | mean over runs | runs | by the mean | covered | temperatures off | missed in silence "
        "| `CoarseStepsWarning` |",
        "|" + " --- |" * 9,
    ]
    for name, found in known.items():
        counts = " | ".join(
            str(found[k]) for k in ("runs", "by the mean", "covered", "off", "missed in silence")
        )
        coarse = f"{found['coarse']} of {found['calls']}" if "coarse" in found else ""
        lines.append(
            f"| {name} | {found['exact']:.2f} | {found['mean']:.3f} ± {found['error']:.3f} "
            f"| {counts} | {coarse} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure what is not known yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS / "intervals.json")
    given = parser.parse_args()
    torch.set_num_threads(1)
    known: dict[str, Result] = json.loads(given.results.read_text()) if given.results.exists() else {}
    for name in CASES:
        if name not in known:
            known[name] = measure(name)
            atomic_write.write(given.results, json.dumps(known, indent=1) + "\n")
            print(name, known[name], flush=True)
    print(table(known))


if __name__ == "__main__":
    main()
