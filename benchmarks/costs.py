"""What else costs time or memory: records, the first call, many chains. AdLaLa, 100 units, one run.

- Steps and chains: the time for ten times as many, over ten times the time.
- Records: what they add to the time, once per 100 steps without losses, once per 1000 with them.
- Samples: what it adds to keep θ once per 100 steps, and to average 1000 outputs over the last 1000 steps.
- A sweep of 12 points and 10 repeats, over 120 chains of one point in one call; and over 120 calls.
- A checkpoint: the time to write one of 10 chains, and to load it.
- A call: the time of a call of one step, and the memory of 1,000 chains with 500 hidden units.
- A new process: from its start to the end of its first call, with compiled code in the cache and without.
"""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import heatbath as hb

PROBLEM = hb.datasets.spirals(turns=4)
FIRST = """
import heatbath as hb
hb.train(hb.datasets.spirals(), hb.Dense((100,)), hb.AdLaLa(), 10, 20, record=1)
"""


def train(steps: int = 20_000, chains: int = 1, hidden: int = 100, **options: object) -> None:
    """A run whose time is taken."""
    hb.train(PROBLEM, hb.Dense((hidden,)), hb.AdLaLa(), steps, 20, chains, **{"record": 1, **options})


SIGMAS, TAUS = [0.0, 1e-3, 1e-2, 4e-2], [1e-5, 1e-4, 1e-3]


def sweep() -> None:
    """A grid of 12 points with 10 repeats."""
    grid = hb.AdLaLa(sigma=SIGMAS, tau=TAUS)
    hb.sweep(PROBLEM, hb.Dense((100,)), grid, 2_000, 20, chains=10, record=10)


def one_by_one() -> None:
    """As many chains, in a call each, all of them on all cores."""
    for _ in range(120):
        train(2_000, record=10)


def medians(runs: dict[str, Callable[[], None]], repeats: int = 7) -> dict[str, float]:
    """Median seconds of interleaved repeats."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            begin = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - begin)
    return {name: statistics.median(times) for name, times in seconds.items()}


def new_process(cache: str) -> float:
    """Seconds of a new process that trains for ten steps."""
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", FIRST], check=True, env={**os.environ, "HEATBATH_CACHE": cache})
    return time.perf_counter() - begin


def main() -> None:
    """Print the ratios."""
    train(10)
    took = medians(
        {
            "steps": lambda: train(2_000),
            "10 x steps": lambda: train(20_000),
            "chains": lambda: train(2_000, chains=10),
            "10 x chains": lambda: train(2_000, chains=100),
        }
    )
    print(f"10 x the steps  {took['10 x steps'] / took['steps'] / 10:6.2f} of 10 x the time")
    print(f"10 x the chains {took['10 x chains'] / took['chains'] / 10:6.2f} of 10 x the time")
    for chains in (1, 32):
        took = medians(
            {
                "none": lambda chains=chains: train(chains=chains),
                "states": lambda chains=chains: train(
                    chains=chains, record=200, weights=True, losses_every=1000
                ),
                "losses": lambda chains=chains: train(chains=chains, record=20),
            }
        )
        for name, told in (("states", "T, ξ and weights, once per 100"), ("losses", "losses, once per 1000")):
            print(f"{told:<32} steps, {chains:>2} chains: {100 * (took[name] / took['none'] - 1):+5.1f} %")
    average = PROBLEM.X_test[0]
    took = medians(
        {
            "none": lambda: train(chains=10),
            "samples": lambda: train(chains=10, samples=200),
            "average": lambda: train(chains=10, average=average, burn_in=19_000),
        }
    )
    for name, told in (("samples", "θ kept once per 100"), ("average", "outputs averaged, last 1000")):
        print(f"{told:<32} steps, 10 chains: {100 * (took[name] / took['none'] - 1):+5.1f} %")
    took = medians({"sweep": sweep, "chains": lambda: train(2_000, chains=120, record=10)})
    print(f"a sweep of 12 x 10 chains: {took['sweep'] / took['chains']:.2f} of 120 chains of one point")
    took = medians({"sweep": sweep, "alone": one_by_one}, repeats=3)
    print(f"                           {took['sweep'] / took['alone']:.2f} of 120 calls for one chain each")
    run = hb.train(PROBLEM, hb.Dense((100,)), hb.AdLaLa(), 1000, 20, chains=10)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/run.nc"
        took = medians({"save": lambda: run.save(path), "load": lambda: hb.load(path)}, repeats=15)
    print(f"a checkpoint: {1000 * took['save']:.0f} ms to write, {1000 * took['load']:.0f} ms to load")
    fixed = medians({"call": lambda: train(1)}, repeats=30)["call"]
    print(f"a call of one step: {1000 * fixed:.1f} ms")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    train(20, chains=1000, hidden=500)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(f"1,000 chains of 500 units: {grown:.0f} MB more at the most")
    with tempfile.TemporaryDirectory() as cache:
        print(f"a new process, nothing compiled yet: {new_process(cache):.1f} s", end="")
        print(f"; the next one: {new_process(cache):.1f} s")


if __name__ == "__main__":
    main()
