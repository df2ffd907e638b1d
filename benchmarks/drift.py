"""How seldom the false alarms of `heatbath.diagnostics.drift.Watch` are, and how soon a rise is told.

Series that do not change: independent values of two laws (normal, and the third power of exponential ones),
and autoregressive ones with coefficients of 0.5, 0.9 and 0.98. Until the first alarm at a bound of 1,000, 30
times the bound at most: the mean over 30 series ± its standard error. By the theorem it is at least the bound
where values are independent and none is forgotten; else this is all that is known.

Then series of 400 independent normal values that rise by 1, 2 or 4 of their standard deviations: how many
values later it is told at the bound of 10,000 that is the default, the 5 %, 50 % and 95 % quantiles of 100.

    python benchmarks/drift.py [--results FILE]

What is in the file of results (benchmarks/results/drift.json) is not computed again: delete it to measure
anew.
"""

import argparse
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from heatbath._internal import atomic_write
from heatbath.diagnostics.drift import Watch

RESULTS = Path(__file__).parent / "results"
RUNS, BOUND, LONGEST = 30, 1000, 30
RISES, RISEN, BEFORE = (1.0, 2.0, 4.0), 100, 400

Series = Callable[[np.random.Generator], Iterator[float]]


def normal(rng: np.random.Generator) -> Iterator[float]:
    """Independent values."""
    while True:
        yield float(rng.standard_normal())


def skewed(rng: np.random.Generator) -> Iterator[float]:
    """Independent values with a long tail."""
    while True:
        yield float(rng.exponential() ** 3)


def autoregressive(phi: float) -> Series:
    """Values that are correlated in time."""

    def series(rng: np.random.Generator) -> Iterator[float]:
        value = float(rng.standard_normal())
        while True:
            value = phi * value + math.sqrt(1 - phi**2) * float(rng.standard_normal())
            yield value

    return series


SERIES: dict[str, Series] = {
    "normal": normal,
    "exponential, cubed": skewed,
    "autoregressive, 0.5": autoregressive(0.5),
    "autoregressive, 0.9": autoregressive(0.9),
    "autoregressive, 0.98": autoregressive(0.98),
}


def until_alarm(series: Series, seed: int) -> int:
    """How many values there are before the first alarm."""
    watch, values = Watch("x", BOUND), series(np.random.default_rng(seed))
    for count in range(1, LONGEST * BOUND):
        if watch.add(next(values)):
            return count
    return LONGEST * BOUND


def until_told(rise: float, seed: int) -> int:
    """How many values after a rise it is told."""
    rng = np.random.default_rng(seed)
    watch = Watch("x")
    for value in rng.standard_normal(BEFORE):
        watch.add(value)
    return next(n for n in range(1, 10_000) if watch.add(rng.normal(rise, 1.0)))


def measure(name: str) -> list[int]:
    """Return the run lengths of a series, or the delays until a rise is noticed."""
    if name in SERIES:
        return [until_alarm(SERIES[name], seed) for seed in range(RUNS)]
    return [until_told(float(name.removeprefix("rise ")), seed) for seed in range(RISEN)]


def table(known: dict[str, list[int]]) -> str:
    """Of all that is in the results."""
    lines = [f"| does not change | values until a false alarm (bound {BOUND:,}) |", "| --- | --- |"]
    for name in SERIES:
        values = np.array(known[name])
        lines.append(
            f"| {name} | {values.mean():,.0f} ± {values.std(ddof=1) / math.sqrt(len(values)):,.0f} |"
        )
    lines += ["", "| rises, in standard deviations | told after, 5 % to 95 % (median) |", "| --- | --- |"]
    for rise in RISES:
        low, middle, high = np.quantile(known[f"rise {rise:g}"], [0.05, 0.5, 0.95])
        lines.append(f"| {rise:g} | {low:.0f} to {high:.0f} ({middle:.0f}) |")
    return "\n".join(lines)


def main() -> None:
    """Measure what is not known yet, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS / "drift.json")
    given = parser.parse_args()
    known: dict[str, Any] = json.loads(given.results.read_text()) if given.results.exists() else {}
    for name in (*SERIES, *(f"rise {rise:g}" for rise in RISES)):
        if name not in known:
            known[name] = measure(name)
            atomic_write.write(given.results, json.dumps(known) + "\n")
            print(name, np.mean(known[name]), flush=True)
    print(table(known))


if __name__ == "__main__":
    main()
