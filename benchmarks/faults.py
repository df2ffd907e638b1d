"""Runs that lose a worker or their driver by SIGKILL: all end with the same bits, and nothing is made twice.

A sweep of 4 x 64 chains of AdLaLa on spirals (20 hidden units, 6,000 steps), in blocks that are cut after a
quarter of a second, is computed by two workers of Dask, of Ray, and of `concurrent.futures`. Each run has a
number, which says what is killed (a worker, or the driver), after which part of the work, and how much later.
Where the driver is lost, and where an executor cannot do without the worker (`concurrent.futures`), the same
call is made again. At the end the file must be the one of the run in one process, bit for bit.

Workers note each block that they begin and make, the driver each that it has stored. A block that is begun
after its steps were stored is one `made twice`; `lost` is what was made and not stored, as parts of all.

    python benchmarks/faults.py [--runs 30] [--engines dask ray processes] [--results FILE]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import multiprocessing
import os
import random
import re
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import xarray as xr
from texts import in_markdown

import heatbath as hb
from heatbath.runs.distributed import pools, scheduler
from heatbath.runs.distributed.block import FinishedBlock, Task
from heatbath.runs.distributed.store import Store
from heatbath.runs.distributed.worker import compute

STEPS, CHAINS, TAUS = 6_000, 64, [1e-6, 1e-5, 1e-4, 1e-3]
TOTAL = STEPS * CHAINS * len(TAUS)
SECONDS = 0.25  # of a block
WORKERS = 2
PATIENCE = 600.0  # seconds for a run
ENGINES = ("dask", "ray", "processes")
DRIVERS = multiprocessing.get_context(
    "forkserver"
)  # of a process that has imported heatbath, and done nothing
RESULTS = Path(__file__).parent / "results" / "faults.json"


class Piece(NamedTuple):
    """Some chains over some steps, and when they were begun or stored, in nanoseconds."""

    first: int
    stop: int
    begin: int
    end: int
    time: int

    @property
    def work(self) -> int:
        """Steps of all chains."""
        return (self.stop - self.first) * (self.end - self.begin)

    def has(self, chain: int, step: int) -> bool:
        """Whether this step of this chain is a part of it."""
        return self.first <= chain < self.stop and self.begin <= step < self.end


def sweep(**options: Any) -> hb.Run:
    """Run the sweep, with the given executor."""
    problem = hb.datasets.spirals(n_train=200, n_test=50)
    methods = hb.AdLaLa(tau=TAUS)
    return hb.sweep(problem, hb.MLP((20,)), methods, STEPS, 20, CHAINS, record=5, samples=3, **options)


# in a driver, and in its workers


def note(log: str, kind: str, *numbers: int) -> None:
    """Write a line to the log, whole: several processes do."""
    line = " ".join(map(str, (kind, *numbers))) + "\n"
    place = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(place, line.encode())
    os.close(place)


def noted(log: str, engine: str, task: Task, *others: Any) -> FinishedBlock:
    """Compute a block, after noting that it is begun; and then how far it came."""
    note(log, "begun", task.first, task.stop, task.step, task.until, time.time_ns())
    block = (pools._compute_with_ray if engine == "ray" else compute)(task, *others)
    note(log, "made", task.first, task.stop, task.step, block.about.end, time.time_ns())
    return block


def note_stored(log: str, path: Path) -> None:
    """Note a block that is in the folder."""
    first, stop, begin, end = map(int, re.findall(r"\d+", path.name))
    note(log, "stored", first, stop, begin, end, path.stat().st_mtime_ns)


@contextmanager
def workers_of(engine: str, address: str) -> Iterator[Any]:
    """Yield what a driver gives for `executor`."""
    if engine == "dask":
        from distributed import Client

        with Client(address) as client:
            yield client
    elif engine == "ray":
        import ray

        ray.init(address=address, log_to_driver=False, logging_level="error")
        yield ray
        ray.shutdown()
    else:
        with ProcessPoolExecutor(WORKERS, multiprocessing.get_context("fork")) as executor:
            yield executor


def drive(engine: str, address: str, log: str, path: str, text: str, environment: dict[str, str]) -> None:
    """Call the sweep once as a driver, with short blocks that are noted; its output goes to `text`.

    `environment` is that of the cluster, in which Ray has left the token that lets others in.
    """
    os.environ.update(environment)
    place = os.open(text, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(place, 1)
    os.dup2(place, 2)
    scheduler.SECONDS = SECONDS
    own = partial(noted, log, engine)
    if engine == "ray":  # which takes nothing but functions
        pools._compute_with_ray = lambda *given: own(*given)  # type: ignore[assignment]
    else:
        pools.compute = own  # type: ignore[assignment]
    add = Store.add

    def kept(store: Store, block: FinishedBlock) -> None:
        add(store, block)
        assert store.folder is not None
        note_stored(log, store.folder / block.about.name)

    Store.add = kept  # type: ignore[method-assign]
    for there in Path(f"{path}.blocks").glob("chains-*.nc"):
        note_stored(log, there)  # by a driver that had no time to note it
    with workers_of(engine, address) as executor:
        sweep(executor=executor, checkpoint=path, every=SECONDS)


# outside


class Trial:
    """One run of a sweep, in a folder of its own, whose workers are these."""

    def __init__(self, engine: str, address: str, workers: Callable[[int], list[int]], folder: Path) -> None:
        self.engine, self.address, self.workers = engine, address, workers
        self.log, self.path, self.text = folder / "log", folder / "sweep.nc", folder / "text"

    def start(self) -> ForkServerProcess:
        """Call the sweep in a process of its own."""
        known = {name: value for name, value in os.environ.items() if name.startswith("RAY_")}
        given = (self.engine, self.address, str(self.log), str(self.path), str(self.text), known)
        driver = DRIVERS.Process(target=importlib.import_module("faults").drive, args=given)
        driver.start()
        return driver

    def pieces(self, kind: str) -> list[Piece]:
        """Return the blocks that were begun, made or stored; one noted by two drivers counts once."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        pieces = [Piece(*map(int, line.split()[1:])) for line in lines if line.startswith(f"{kind} ")]
        return list({piece[:4]: piece for piece in pieces}.values()) if kind == "stored" else pieces

    def kill(self, victim: str, part: float, later: float, chance: random.Random) -> bool:
        """Kill one process when this part of the work is done; False where the run had ended before."""
        driver, patience = self.start(), time.monotonic() + PATIENCE
        while not self.pieces("begun") or sum(p.work for p in self.pieces("stored")) < part * TOTAL:
            if driver.exitcode is not None:
                break
            if time.monotonic() > patience:
                raise TimeoutError(f"nothing goes on: {self.tail()}")
            time.sleep(0.05)
        time.sleep(later)
        known = [driver.pid] if victim == "driver" else self.workers(driver.pid)
        if driver.exitcode is not None or not known:
            self.ended(driver)
            return False
        family = psutil.Process(driver.pid).children(recursive=True)
        try:
            os.kill(chance.choice(sorted(known)), signal.SIGKILL)
            if victim == "driver" or self.engine == "processes":
                driver.join(PATIENCE)
                driver = self.start()
            self.ended(driver)
        finally:  # workers of `concurrent.futures` do not notice that the driver is gone
            for orphan in family:
                if orphan.is_running():
                    orphan.kill()
        return True

    def ended(self, driver: ForkServerProcess) -> None:
        """Wait for a driver to end as it should."""
        driver.join(PATIENCE)
        if driver.exitcode != 0:
            driver.kill()
            raise RuntimeError(f"the driver ended with {driver.exitcode}: {self.tail()}")

    def tail(self) -> str:
        """Return the end of the driver's output."""
        return self.text.read_text(errors="replace")[-2000:] if self.text.exists() else ""

    def made_again(self) -> list[Piece]:
        """Return the blocks that were begun after their steps had been stored."""
        stored = self.pieces("stored")
        return [
            one
            for one in self.pieces("begun")
            if any(other.time < one.time and other.has(one.first, one.begin) for other in stored)
        ]

    def is_whole(self) -> bool:
        """Whether all chains were stored, each step once, and nothing but the file is left."""
        work = sum(piece.work for piece in self.pieces("stored"))
        return work == TOTAL and not Path(f"{self.path}.blocks").exists()

    def result(self, whole: xr.Dataset) -> dict[str, Any]:
        """How it ended."""
        begun, made, stored = map(self.pieces, ("begun", "made", "stored"))
        return {
            "identical": hb.load(self.path).data.identical(whole), "once": self.is_whole(),
            "begun": len(begun), "stored": len(stored), "made twice": len(self.made_again()),
            "lost": sum(piece.work for piece in made) / TOTAL - 1.0,
        }  # fmt: skip


@contextmanager
def cluster(engine: str) -> Iterator[tuple[str, Callable[[int], list[int]]]]:
    """Start workers; yield their address, and a function that lists their processes, given the driver's."""
    if engine == "dask":
        from distributed import LocalCluster

        with LocalCluster(
            n_workers=WORKERS, threads_per_worker=1, dashboard_address=None, host="127.0.0.1", silence_logs=50
        ) as local:
            yield (
                local.scheduler_address,
                lambda _: [nanny.pid for nanny in local.workers.values() if nanny.pid],
            )
    elif engine == "ray":
        import ray

        ray.init(num_cpus=WORKERS, include_dashboard=False, log_to_driver=False, logging_level="error")
        me = psutil.Process()
        yield ray.get_runtime_context().gcs_address, lambda _: _called(me, "ray::")
        ray.shutdown()
    else:
        yield "", lambda driver: [child.pid for child in psutil.Process(driver).children()]


def _called(parent: psutil.Process, name: str) -> list[int]:
    """Return the computing processes below a process whose title begins with a name.

    Ray's agents are left alone: without one it gives up the whole node, and here there is only one.
    """
    found = []
    for child in parent.children(recursive=True):
        try:
            title = child.cmdline()[:1]
        except psutil.Error:  # it has just ended
            continue
        if title and title[0].startswith(name) and not title[0].endswith(("IDLE", "Agent")):
            found.append(child.pid)
    return found


def runs_of(engine: str, count: int, whole: xr.Dataset) -> Iterator[dict[str, Any]]:
    """So many runs, each of which loses something."""
    with cluster(engine) as (address, workers), tempfile.TemporaryDirectory() as place:
        for number in range(count):
            chance = random.Random(f"{engine} {number}")
            victim = "worker" if (number + (engine == "ray")) % 2 else "driver"
            part, later = chance.uniform(0.0, 0.9), chance.uniform(0.0, SECONDS)
            for attempt in range(9):
                folder = Path(place) / f"{number}-{attempt}"
                folder.mkdir()
                begin = time.perf_counter()
                trial = Trial(engine, address, workers, folder)
                if trial.kill(victim, part, later, chance):
                    break
                part /= 2  # the run had ended before
            else:
                raise RuntimeError(f"{engine}: nothing could be killed: {trial.tail()}")
            seconds = time.perf_counter() - begin
            yield {"victim": victim, "after": part, "seconds": seconds} | trial.result(whole)


def table(known: dict[str, Any]) -> str:
    """How runs ended that lost something."""
    rows = []
    for name, runs in known.items():
        victims = [sum(run["victim"] == victim for run in runs) for victim in ("worker", "driver")]
        same = sum(run["identical"] and run["once"] for run in runs)
        lost = statistics.mean(max(run["lost"], 0.0) for run in runs)
        twice = sum(run["made twice"] for run in runs)
        stored = sum(run["stored"] for run in runs)
        rows.append(
            [name, *map(str, victims), f"{same} of {len(runs)}", f"{stored:,}", str(twice), f"{lost:.1%}"]
        )
    head = ["workers", "lost a worker", "lost the driver", "same bits", "blocks stored"]
    return in_markdown([*head, "of these computed again", "computed in vain"], rows)


def main() -> None:
    """Kill, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=ENGINES)
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args()
    # workers find this module under its own name
    path = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    DRIVERS.set_forkserver_preload(["faults"])
    whole = sweep().data
    results = json.loads(given.results.read_text()) if given.results.exists() else {}
    for engine in given.engines:
        name = "distributed" if engine == "dask" else engine
        if engine != "processes" and importlib.util.find_spec(name) is None:
            print(f"{engine}: not installed")
            continue
        runs = []
        for run in runs_of(engine, given.runs, whole):
            runs.append(run)
            print(
                f"{engine:10}" + "  ".join(f"{key} {_shown(value)}" for key, value in run.items()), flush=True
            )
        good = sum(run["identical"] and run["once"] and not run["made twice"] for run in runs)
        print(
            f"{engine}: {good} of {len(runs)} runs ended with the same bits, nothing made twice", flush=True
        )
        results[engine] = runs
        given.results.write_text(json.dumps(results, indent=1) + "\n")
    if any(
        not run["identical"] or not run["once"] or run["made twice"] for r in results.values() for run in r
    ):
        raise SystemExit("some runs ended otherwise")


def _shown(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
