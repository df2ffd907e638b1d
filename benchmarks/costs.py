"""What else costs time or memory, in ratios. AdLaLa, 100 hidden units, batch 20, unless it says otherwise.

Calls of `hb.train`, medians of interleaved repeats:

- Steps and chains: the time for ten times as many, over ten times the time.
- Records: what they add to the time, once per 100 steps without losses, once per 1000 with them.
- Samples: what it adds to keep θ once per 100 steps, and to average 1000 outputs over the last 1000 steps.
- A sweep of 12 points and 10 repeats, over 120 chains of one point in one call; and over 120 calls.
- A checkpoint: the time to write one of 10 chains, and to load it.
- A call: the time of a call of one step.
- Memory: the most that a new process holds (on Linux) in which 1,000 chains with 500 hidden units are
  trained, and by how much they raise it over what a few small chains need; against the engine before.

Calls of `Ensemble.advance`, on all cores unless it says otherwise:

- Adam against SGD, at 2-64-64-1 on spirals: the time of a step early and late in a run. Late in it, moments
  of gradients that are zero have decayed to denormal numbers, on which processors are slow. That the engine
  before was slowed by them shows that they are there.
- Any number of chains and steps: the time per chain and step of calls that make few steps or many, over that
  of 256 chains and 1000 steps.
- Groups: how many chains computed alone take as long as a group, on one core: what a layout is chosen by.
- Groups partly filled: the time of a step of 1 to 33 chains, alone, in groups, and as the engine chooses; and
  the number of chains from which on groups were faster.

The time to the first result is in `start.py`.
"""

import contextlib
import dataclasses
import statistics
import tempfile
import time
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

from versions import Engine, Version, earlier
from work import Case

import heatbath as hb

PROBLEM = hb.datasets.spirals(turns=4)
MEMORY = """
import heatbath as hb

def peak():
    with open("/proc/self/status") as file:  # getrusage would tell the peak of the process that started it
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) / 1024

def train(chains, hidden):
    hb.train(hb.datasets.spirals(), hb.MLP((hidden,)), hb.AdLaLa(), 20, 20, chains, record=1)

train(1, 10)
train(32, 10)
before = peak()
train(1000, 500)
print(before, peak())
"""
NETWORKS = {(2, 20, 1): 1000, (2, 100, 1): 500, (2, 500, 1): 100}  # and how many steps a call makes
Key = TypeVar("Key", bound=Hashable)


def train(steps: int = 20_000, chains: int = 1, **options: object) -> None:
    """Return a call to time: one run."""
    hb.train(PROBLEM, hb.MLP((100,)), hb.AdLaLa(), steps, 20, chains, **{"record": 1, **options})


SIGMAS, TAUS = [0.0, 1e-3, 1e-2, 4e-2], [1e-5, 1e-4, 1e-3]


def sweep() -> None:
    """Return a call to time: a grid of 12 points with 10 repeats."""
    grid = hb.AdLaLa(sigma=SIGMAS, tau=TAUS)
    hb.sweep(PROBLEM, hb.MLP((100,)), grid, 2_000, 20, chains=10, record=10)


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


def calls() -> None:
    """Measure what calls of `hb.train` cost."""
    for chains in (1, 32):  # compiled apart
        train(10, chains)
    took = medians(
        {
            "steps": lambda: train(10_000),
            "10 x steps": lambda: train(100_000),
            "chains": lambda: train(2_000, chains=32),
            "10 x chains": lambda: train(2_000, chains=320),
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
    run = hb.train(PROBLEM, hb.MLP((100,)), hb.AdLaLa(), 1000, 20, chains=10)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/run.nc"
        took = medians({"save": lambda: run.save(path), "load": lambda: hb.load(path)}, repeats=15)
    print(f"a checkpoint: {1000 * took['save']:.0f} ms to write, {1000 * took['load']:.0f} ms to load")
    fixed = medians({"call": lambda: train(1)}, repeats=30)["call"]
    print(f"a call of one step: {1000 * fixed:.1f} ms")


def memory(version: Version) -> tuple[float, float]:
    """Megabytes that a process holds at the most, and what 1,000 chains add to it."""
    version.run(MEMORY)  # compiles, which takes memory too
    few, many = map(float, version.run(MEMORY).split())
    return many, many - few


def steps(process: Engine, cases: Mapping[Key, Case], repeats: int = 5) -> dict[Key, float]:
    """Microseconds of a step of all chains, medians over calls in interleaved repeats, without the first."""
    times: dict[Key, list[float]] = {name: [] for name in cases}
    for _ in range(repeats):
        for name, case in cases.items():
            pairs = list(zip(process.seconds(case), case.steps, strict=True))
            times[name] += [1e6 * seconds / steps for seconds, steps in pairs[1:]]
    return {name: statistics.median(values) for name, values in times.items()}


def denormal(process: Engine, chains: int, name: str, repeats: int = 3) -> None:
    """Print the time of Adam over that of SGD, early and late."""
    for activation in ("relu", "tanh"):
        early: dict[str, list[float]] = {"SGD": [], "Adam": []}
        late: dict[str, list[float]] = {"SGD": [], "Adam": []}
        process.seconds(Case((2, 64, 64, 1), 20, chains, (10,)))  # compiles
        for _ in range(repeats):
            for method in early:
                case = Case((2, 64, 64, 1), 20, chains, (1000, 19_000, *[1000] * 3), method, activation)
                first, _, *last = process.seconds(dataclasses.replace(case, data="spirals"))
                early[method].append(first)
                late[method] += last
        ratios = [statistics.median(x["Adam"]) / statistics.median(x["SGD"]) for x in (early, late)]
        told = f"Adam over SGD, {activation}, {chains:>2} chains, {name}:"
        print(f"{told:<48}{ratios[0]:.2f} in the first 1,000 steps, {ratios[1]:.2f} after 20,000")


def linear(process: Engine) -> None:
    """Print the time per chain and step of calls of few steps and of many, for any number of chains."""
    chains, lengths = (1, 16, 32, 64, 256, 1024), (1, 10, 100, 1000)
    cases = {
        (n, length): Case((2, 100, 1), 20, n, (20, *[length] * (20 if length < 1000 else 2)))
        for n in chains
        for length in lengths
    }
    took = {(n, length): time / n for (n, length), time in steps(process, cases).items()}
    unit = took[256, 1000]
    print("\ntime per chain and step, in that of 256 chains and calls of 1000 steps; calls of")
    print(" " * 12 + "".join(f"{length:>7} steps" for length in lengths))
    for n in chains:
        print(f"{n:>5} chains" + "".join(f"{took[n, length] / unit:>13.2f}" for length in lengths))


def group_costs(process: Engine) -> None:
    """Print how many chains alone take as long as a group, on one core."""
    print("\na group takes as long as so many chains alone, on one core")
    for dtype in ("float32", "float64"):
        for method in ("AdLaLa", "SGD", "Adam"):
            shown = []
            for sizes, length in {**NETWORKS, (2, 64, 64, 1): 100}.items():
                case = Case(sizes, 20, 1, (10, *[length] * 3), method, threads=1, dtype=dtype)
                cases = {layout: dataclasses.replace(case, layout=layout) for layout in ("alone", "group")}
                took = steps(process, cases, 3)
                shown.append(f"{'-'.join(map(str, sizes))} {took['group'] / took['alone']:5.2f}")
            print(f"  {method:<7}{dtype}:  " + "   ".join(shown))


def partly_filled(process: Engine) -> None:
    """Print the time of a step of 1 to 33 chains in each layout."""
    layouts, counts = ("alone", "group", None), range(1, 34)
    cases = {
        (sizes, n, layout): Case(sizes, 20, n, (10, *[length] * 3), layout=layout)
        for sizes, length in NETWORKS.items()
        for n in counts
        for layout in layouts
    }
    took = steps(process, cases, 3)
    print("\nmicroseconds of a step of all chains: alone, in groups, and as the engine chooses")
    print("chains" + "".join(f"{'-'.join(map(str, sizes)):>27}" for sizes in NETWORKS))
    for n in counts:
        times = [took[sizes, n, layout] for sizes in NETWORKS for layout in layouts]
        print(f"{n:>6}" + "".join(f"{time:>9.2f}" for time in times))
    for sizes in NETWORKS:
        slower = [n for n in counts if took[sizes, n, "group"] >= took[sizes, n, "alone"]]
        least = max(slower, default=0) + 1
        text = f"from {least} chains on" if least in counts else "for none of these"
        print(f"{'-'.join(map(str, sizes))}: groups were faster {text}")


def main() -> None:
    """Print everything."""
    calls()
    with contextlib.ExitStack() as stack:
        version = stack.enter_context(earlier())
        total, added = memory(Version())
        print(f"1,000 chains of 500 units: {total:.0f} MB at the most, {added:.0f} MB of it for them", end="")
        if version:
            others = memory(version)
            print(f"; {total / others[0]:.2f} and {added / others[1]:.2f} of the engine before", end="")
        print()
        ours = stack.enter_context(Engine(Version()))
        for chains in (1, 16):
            denormal(ours, chains, "engine")
        if version:
            denormal(stack.enter_context(Engine(version)), 1, "engine before")
        linear(ours)
        group_costs(ours)
        partly_filled(ours)


if __name__ == "__main__":
    main()
