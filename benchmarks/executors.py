"""What executors cost: the share of the cores' bare speed that a sweep in blocks has, and moving a block.

A sweep of 8,192 chains of AdLaLa on spirals (100 hidden units, 20,000 steps) by two workers of one thread
each, in blocks of some seconds, beside the same sweep in this process with two threads, which is the bare
speed. All are warm: workers are there and have compiled. Medians of interleaved repeats; a share is that of
two times of the same repeat. Then blocks of 0.1, 1 and 10 MB that cost nothing to compute: milliseconds from
asking for one to having it, with as many under way as a driver has.

    python benchmarks/executors.py [--repeats 3] [--chains 8192] [--results FILE]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from texts import in_markdown

import heatbath as hb
from heatbath.runs.distributed.block import FinishedBlock
from heatbath.runs.distributed.pools import _write_new_file
from heatbath.runs.distributed.store import Store

STEPS, WORKERS = 20_000, 2
SIZES = (0.1, 1.0, 10.0)  # MB
MOVED = 200.0  # MB, or this many blocks
RESULTS = Path(__file__).parent / "results" / "executors.json"


def sweep(chains: int, steps: int = STEPS, **options: Any) -> float:
    """Return the seconds that a sweep takes."""
    problem = hb.datasets.spirals(turns=4)
    methods = hb.AdLaLa(h=0.25, tau=[1e-6, 1e-5, 1e-4, 1e-3])
    begin = time.perf_counter()
    hb.sweep(problem, hb.MLP((100,)), methods, steps, 20, chains // 4, record=20, **options)
    return time.perf_counter() - begin


@contextmanager
def processes() -> Iterator[Any]:
    """Of `concurrent.futures`."""
    with ProcessPoolExecutor(WORKERS, multiprocessing.get_context("spawn")) as executor:
        yield executor


@contextmanager
def dask() -> Iterator[Any]:
    """Of Dask."""
    from distributed import Client, LocalCluster

    options = {"dashboard_address": None, "host": "127.0.0.1", "silence_logs": 50}
    with (
        LocalCluster(n_workers=WORKERS, threads_per_worker=1, **options) as cluster,
        Client(cluster) as client,
    ):
        yield client


@contextmanager
def ray() -> Iterator[Any]:
    """Of Ray."""
    import ray as module

    module.init(num_cpus=WORKERS, include_dashboard=False, log_to_driver=False, logging_level="error")
    yield module
    module.shutdown()


ENGINES: dict[str, Callable[[], Any]] = {"processes": processes, "dask": dask, "ray": ray}


def installed() -> list[str]:
    """Return the names of the installed engines."""
    modules = {"processes": "concurrent", "dask": "distributed", "ray": "ray"}
    return [name for name in ENGINES if importlib.util.find_spec(modules[name])]


def block(size: float) -> bytes:
    """Return some MB of random bytes, which cannot be compressed."""
    return os.urandom(int(size * 1e6))


def filed(size: float, folder: Path) -> Path:
    """Write such bytes to a file, as processes on this computer return them."""
    return _write_new_file(folder, block(size))


def moving(engine: str, executor: Any, size: float, folder: Path) -> float:
    """Milliseconds for one of many such blocks, two for each worker under way."""
    if engine == "dask":
        executor = executor.get_executor(pure=False)
    if engine == "ray":
        remote = executor.remote(block)

    def ask() -> Any:
        if engine == "processes":
            return executor.submit(filed, size, folder)
        return remote.remote(size).future() if engine == "ray" else executor.submit(block, size)

    def take(answer: Any) -> None:
        if isinstance(answer, Path):
            answer.read_bytes()
            answer.unlink()

    count = max(20, int(min(200, MOVED / size)))
    for counted in (8, count):  # the first are to warm up
        begin = time.perf_counter()
        under_way = [ask() for _ in range(2 * WORKERS)]
        for number in range(counted):
            take(under_way.pop(0).result())
            if number + 2 * WORKERS < counted:
                under_way.append(ask())
    return 1000 * (time.perf_counter() - begin) / counted


def table(known: dict[str, Any]) -> str:
    """Measure how much of the bare speed executors keep, and what moving a block costs."""
    engines = known["engines"]
    sizes = list(next(iter(engines.values()))["moving_ms"])
    head = [
        "workers",
        "share of the bare speed",
        "blocks of",
        *(f"a block of {float(s):g} MB" for s in sizes),
    ]
    rows = [
        [name, f"{about['share']:.0%}", f"{about['block_seconds']:.1f} s",
         *(f"{about['moving_ms'][size]:.1f} ms" for size in sizes)]
        for name, about in engines.items()
    ]  # fmt: skip
    return in_markdown(head, rows)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--chains", type=int, default=8192)
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args()
    lasted: list[float] = []
    add = Store.add

    def noted(store: Store, one: FinishedBlock) -> None:
        lasted.append(one.about.seconds)
        add(store, one)

    Store.add = noted  # type: ignore[method-assign]
    taken: dict[str, list[float]] = {}
    seconds: dict[str, list[float]] = {}
    first: dict[str, float] = {}
    with ExitStack() as stack:
        pools = {name: stack.enter_context(ENGINES[name]()) for name in installed()}
        sweep(64, 100, threads=WORKERS)
        for name, pool in pools.items():  # workers import heatbath, and compile if nobody has
            first[name] = sweep(64, 100, executor=pool)
        lasted.clear()
        for _ in range(given.repeats):
            taken.setdefault("bare", []).append(sweep(given.chains, threads=WORKERS))
            for name, pool in pools.items():
                taken.setdefault(name, []).append(sweep(given.chains, executor=pool))
                seconds.setdefault(name, []).extend(lasted)
                lasted.clear()
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        moved = {
            name: {str(size): moving(name, pool, size, folder) for size in SIZES}
            for name, pool in pools.items()
        }
    results: dict[str, Any] = {
        "chain_steps": given.chains * STEPS, "workers": WORKERS, "repeats": given.repeats,
        "bare": statistics.median(taken["bare"]), "engines": {},
    }  # fmt: skip
    print(f"bare: {results['bare']:.1f} s")
    print(f"{'':10}{'seconds':>9}{'share':>9}{'blocks':>9}{'of, s':>9}   ms for 0.1, 1, 10 MB")
    for name, times in taken.items():
        if name != "bare":
            shares = [bare / time for bare, time in zip(taken["bare"], times, strict=True)]
            results["engines"][name] = about = {
                "seconds": statistics.median(times), "share": statistics.median(shares), "shares": shares,
                "blocks": len(seconds[name]) / given.repeats, "first_call": first[name],
                "block_seconds": statistics.median(seconds[name]), "moving_ms": moved[name],
            }  # fmt: skip
            numbers = f"{about['seconds']:>9.1f}{about['share']:>9.1%}{about['blocks']:>9.1f}"
            costs = ", ".join(f"{cost:.1f}" for cost in moved[name].values())
            print(f"{name:10}{numbers}{about['block_seconds']:>9.1f}   {costs}", flush=True)
    given.results.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
