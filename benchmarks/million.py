"""A sweep of one million chains on 1,000 cores: what it moves, writes and joins, and what breaks first.

Measured are, on this computer: the chain-steps that a core makes; the bytes of a block; what the driver does
for each block (the real one, with 1,000 workers that are not there and give blocks at once, so that nothing
but the driver takes time), for more and more blocks; and what joining, saving and opening them takes. From
these costs follow the numbers of the sweep, on paper and by a simulation of the driver and its workers, event
by event: two blocks for each worker are asked for, and the driver, one at a time, receives a block over its
network, keeps it and asks for another.

The chains are of AdLaLa on spirals (100 hidden units, batches of 20), with 20 records and the last state, and
also with 20 sampled networks of each.

    python benchmarks/million.py [--chains 1000000] [--cores 1000] [--steps 20000 1000000] [--measured FILE]

With `--measured benchmarks/results/million.json` nothing is measured, and its costs are taken.
"""

from __future__ import annotations

import argparse
import heapq
import json
import pickle
import re
import statistics
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from texts import duration, in_markdown, short

import heatbath as hb
from heatbath.runs.distributed import store as store_module
from heatbath.runs.distributed.block import About, FinishedBlock, SharedPlan, Task
from heatbath.runs.distributed.pools import AHEAD, Pool
from heatbath.runs.distributed.scheduler import SECONDS, BlockScheduler
from heatbath.runs.distributed.store import Store, about_block
from heatbath.runs.distributed.worker import compute
from heatbath.runs.file import read_arrays
from heatbath.runs.plan import Plan, make_plan

RECORDS, SAMPLES, BATCH = 20, 20, 20
SHORT = 100  # steps of the chains with which the driver is measured: as many results, made sooner
UNIT = 16  # chains of a block at least, as computers with AVX-512 have it
MEMORY = 16e9
NETWORK = 1.25e9  # bytes a second that reach the driver: 10 Gbit/s
RESULTS = Path(__file__).parent / "results" / "million.json"


def plan_of(chains: int, steps: int, samples: int | None = None, hidden: tuple[int, ...] = (100,)) -> Plan:
    """Return the plan of the sweep, with another network if one is given."""
    problem = hb.datasets.spirals(turns=4)
    methods = hb.AdLaLa(h=0.25, tau=[1e-6, 1e-5, 1e-4, 1e-3])
    return make_plan(
        problem, hb.MLP(hidden), methods, steps, BATCH, chains // 4, record=RECORDS, samples=samples
    )


def images(chains: int, steps: int) -> Plan:
    """Return a plan with as many inputs and classes as handwritten digits have, on random data."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((200, 784)), rng.integers(0, 10, 200)
    problem = hb.datasets.from_arrays(x, y, task="classes")
    return make_plan(problem, hb.MLP((100,)), hb.AdLaLa(h=0.05), steps, BATCH, chains, record=1)


SPEEDS: dict[str, tuple[Callable[[int, int], Plan], int]] = {  # networks, and how many steps are timed
    "2-20-1": (lambda chains, steps: plan_of(chains, steps, hidden=(20,)), 4000),
    "2-100-1": (plan_of, 2000),
    "2-50-50-1": (lambda chains, steps: plan_of(chains, steps, hidden=(50, 50)), 500),
    "784-100-10": (images, 50),
}


def speed(make: Callable[[int, int], Plan], steps: int, chains: int = 64) -> float:
    """Chain-steps that a core makes in a second of its own: that of other processes is not counted."""
    plan = make(chains, steps)
    shared = SharedPlan.of_plan(plan)
    taken = []
    for _ in range(6):
        begin = time.process_time()
        compute(Task(shared.digest, (), 0, chains, steps), shared.content)
        taken.append(time.process_time() - begin)
    return chains * steps / statistics.median(taken[1:])


class Absent(Executor):
    """Workers that only pretend to compute.

    A block is there at once, one for each look of the driver, and says that it took as long as a real one.
    """

    def __init__(self, shared: SharedPlan, workers: int, seconds: float) -> None:
        self._max_workers, self._seconds = workers, seconds  # of a chain
        self._shared = shared
        self._pending: deque[tuple[Future[FinishedBlock], FinishedBlock]] = deque()
        self._turns = threading.Semaphore(0)
        self.made = cache(self._make)
        self.blocks = self.bytes = self.asked = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _make(self, chains: int) -> FinishedBlock:
        return compute(Task(self._shared.digest, (), 0, chains, SHORT), self._shared.content)

    def submit(self, function: Any, /, task: Task, *others: Any) -> Future[FinishedBlock]:  # type: ignore[override]
        """Return a block of as many chains, under the name of the one that is asked for."""
        self.asked += len(pickle.dumps(task))
        block = self.made(task.stop - task.first)
        seconds = self._seconds * (task.stop - task.first)
        about = block.about._replace(first=task.first, stop=task.stop, seconds=seconds, compiled=0.0)
        self.blocks += 1
        self.bytes += len(block.content)
        future: Future[FinishedBlock] = Future()
        self._pending.append((future, block._replace(about=about)))
        return future

    def looked(self, _: hb.Progress) -> None:
        """Let the next block come, since the driver has taken the last one."""
        self._turns.release()

    def _serve(self) -> None:
        while True:
            self._turns.acquire()
            if self._pending:
                future, block = self._pending.popleft()
                future.set_result(block)


_read_about = about_block


def _about(path: Path) -> About:
    """Return the description of a block with the name of its file: blocks of `Absent` are copies."""
    first, stop, begin, end = map(int, re.findall(r"\d+", path.name))
    return _read_about(path)._replace(first=first, stop=stop, begin=begin, end=end)


def _check_content(about: About, content: bytes) -> None:
    """Read the content of a block as the driver does; here it is a copy of another's."""
    read_arrays(content, [], about.name)


def driver(chains: int, workers: int, seconds: float, join: bool) -> dict[str, float]:
    """Measure the driver of a sweep whose chains take some seconds each, in one thread of a core."""
    plan = plan_of(chains, SHORT)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "blocks"
        store = Store(plan, folder)
        absent = Absent(store.shared, workers, seconds)
        for size in range(UNIT, 9 * UNIT, UNIT):  # those that will be asked for, mostly
            absent.made(size)
        with Pool(absent) as pool, patch.object(store_module, "_check_content", _check_content):
            own, wall = time.process_time(), time.perf_counter()
            BlockScheduler(pool, store, 1, 60.0).run(absent.looked)
            own, wall = time.process_time() - own, time.perf_counter() - wall
        result = {
            "chains": chains, "blocks": absent.blocks, "bytes": absent.bytes,
            "driver": own / absent.blocks, "driver_wall": wall / absent.blocks,
            "asked": absent.asked / absent.blocks,
        }  # fmt: skip
        begin = time.process_time()
        with patch.object(store_module, "about_block", _about):
            Store(plan, folder).lazy()
        result["open"] = (time.process_time() - begin) / absent.blocks
        if join:
            begin = time.process_time()
            data = store.joined()
            result["join"] = (time.process_time() - begin) / absent.bytes
            run = hb.Run(plan, SHORT, data)
            wall = time.perf_counter()
            run.save(Path(place) / "run.nc")
            result["save"] = (time.perf_counter() - wall) / absent.bytes
            result["file"] = (Path(place) / "run.nc").stat().st_size / chains
            result["memory"] = data.nbytes / chains
    return result


def bytes_of(samples: int | None) -> tuple[float, float]:
    """Of a block: its own, and those of each chain."""
    plan = plan_of(256, SHORT, samples)
    shared = SharedPlan.of_plan(plan)
    small, large = (
        len(compute(Task(shared.digest, (), 0, chains, SHORT), shared.content).content)
        for chains in (UNIT, 256)
    )
    each = (large - small) / (256 - UNIT)
    return small - UNIT * each, each


def measure(chains: list[int], workers: int) -> dict[str, Any]:
    """Measure the costs."""
    speeds = {}
    for name, (make, steps) in SPEEDS.items():
        speeds[name] = speed(make, steps)
        print(f"{name}: {3600 * speeds[name]:.3g} chain-steps of a core in an hour", flush=True)
    fast = speeds["2-100-1"]
    costs: dict[str, Any] = {"speeds": speeds, "speed": fast, "drivers": []}
    for count in chains:
        about = driver(count, workers, 20_000 / fast, join=count == min(chains))
        costs["drivers"].append(about)
        print(
            f"{about['blocks']} blocks: {1000 * about['driver']:.2f} ms of the driver each "
            f"({1000 * about['driver_wall']:.2f} with what it waits for), {1000 * about['open']:.2f} to open",
            flush=True,
        )
    for name, samples in (("state", None), ("samples", SAMPLES)):
        own, each = bytes_of(samples)
        costs[name] = {"block": own, "chain": each}
    costs["plan"] = sum(map(len, SharedPlan.of_plan(plan_of(1_000_000, 20_000)).content.values()))
    return costs


def simulated(chains: int, cores: int, steps: int, costs: dict[str, Any], kind: str) -> dict[str, float]:
    """Simulate the sweep, event by event, with the block sizes of the scheduler."""
    size, taking, each = costs[kind], costs["drivers"][-1]["driver_wall"], steps / costs["speed"]
    fit = max(SECONDS, 2 * cores * taking) / each
    left, free, busy, taken = chains, 0.0, 0.0, 0
    workers = [0.0] * cores  # when each has done all that it was given
    under_way: list[tuple[float, int]] = []  # blocks: when they are done, and how many chains they have

    def ask(now: float) -> None:
        nonlocal left
        share = min(fit if taken else UNIT, -(-left // cores))
        own = min(left, max(UNIT, int(share) // UNIT * UNIT))
        left -= own
        done = max(now, workers[0]) + own * each
        heapq.heapreplace(workers, done)
        heapq.heappush(under_way, (done, own))

    while left and len(under_way) < AHEAD * cores:
        ask(0.0)
    while under_way:
        done, own = heapq.heappop(under_way)
        service = taking + (size["block"] + own * size["chain"]) / NETWORK
        free, busy, taken = max(free, done) + service, busy + service, taken + 1
        if left:
            ask(free)
    bare = chains * each / cores
    return {"seconds": free, "bare": bare, "share": bare / free, "blocks": taken, "driver": busy / free}


def on_paper(chains: int, cores: int, steps: int, costs: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return what the sweep needs as shares of what there is; a share above 1 breaks."""
    own, size = costs["drivers"][-1], costs[kind]
    joined = next(about for about in reversed(costs["drivers"]) if "join" in about)
    seconds = chains * steps / costs["speed"] / cores
    chains_each = max(UNIT, int(SECONDS * costs["speed"] / steps) // UNIT * UNIT)
    blocks = -(-chains // chains_each)
    back = blocks * size["block"] + chains * size["chain"]
    return {
        "core_hours": seconds * cores / 3600, "seconds": seconds, "blocks": blocks,
        "to_workers": cores * costs["plan"] + blocks * own["asked"], "back": back,
        "join": back * joined["join"], "save": back * joined["save"], "open": blocks * own["open"],
        "needs": {
            "the driver's time, at blocks of 4 s": blocks * own["driver_wall"] / seconds,
            "its network (10 Gbit/s)": back / NETWORK / seconds,
            "its memory (16 GB), if all is joined": back / MEMORY,
            "the time of joining and saving, beside that of computing": (
                back * (joined["join"] + joined["save"]) / seconds
            ),
        },
        "simulated": simulated(chains, cores, steps, costs, kind),
    }  # fmt: skip


def speeds_table(known: dict[str, Any]) -> str:
    """How many chain-steps a core makes, and what that is in a night."""
    rows = [
        [network, f"{short(3600 * speed / 1e6)} million", short(8 * 10 * 3600 * speed / 100_000)]
        for network, speed in known["costs"]["speeds"].items()
    ]
    return in_markdown(
        [
            "network",
            "chain-steps of a core in an hour",
            "chains of 100,000 steps in ten hours on eight cores",
        ],
        rows,
    )


def sweeps_table(known: dict[str, Any]) -> str:
    """Print what a sweep of a million chains needs."""
    sweeps = known["sweeps"]
    titles = {"state": "records", "samples": "records and 20 samples"}

    def row(name: str, text: Callable[[dict[str, Any]], str]) -> list[str]:
        return [name, *(text(sweep) for sweep in sweeps)]

    rows = [
        row("core hours", lambda s: short(s["core_hours"])),
        row("at the cores' bare speed", lambda s: duration(s["seconds"])),
        row("in the simulation", lambda s: duration(s["simulated"]["seconds"])),
        row("of that the driver is busy", lambda s: f"{s['simulated']['driver']:.0%}"),
        row("blocks", lambda s: f"{s['simulated']['blocks']:,}"),
        row("to the workers", lambda s: f"{short(s['to_workers'] / 1e9)} GB"),
        row("back, and on the disk", lambda s: f"{short(s['back'] / 1e9)} GB"),
        row("to join all in memory, and save that", lambda s: duration(s["join"] + s["save"])),
        row("to open the folder instead", lambda s: duration(s["open"])),
    ]
    for need in sweeps[0]["needs"]:
        rows.append([f"part of {need}", *(f"{sweep['needs'][need]:.2f}" for sweep in sweeps)])
    head = [f"{sweep['steps']:,} steps, {titles[sweep['kind']]}" for sweep in sweeps]
    return in_markdown(["", *head], rows)


TABLES = {"costs": speeds_table, "sweeps": sweeps_table}


def main() -> None:
    """Measure, compute, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--chains", type=int, default=1_000_000)
    parser.add_argument("--cores", type=int, default=1000)
    parser.add_argument("--steps", type=int, nargs="+", default=[20_000, 1_000_000])
    parser.add_argument("--drivers", type=int, nargs="+", default=[32_000, 200_000, 1_000_000])
    parser.add_argument("--measured", type=Path, help="a file of results whose costs are taken")
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args()
    if given.measured:
        costs = json.loads(given.measured.read_text())["costs"]
    else:
        costs = measure(given.drivers, given.cores)
    results: dict[str, Any] = {"chains": given.chains, "cores": given.cores, "costs": costs, "sweeps": []}
    for steps in given.steps:
        for kind in ("state", "samples"):
            about = {"steps": steps, "kind": kind} | on_paper(given.chains, given.cores, steps, costs, kind)
            results["sweeps"].append(about)
            run = about["simulated"]
            print(
                f"{given.chains:,} chains of {steps:,} steps on {given.cores:,} cores, {kind}: "
                f"{about['core_hours']:,.0f} core hours, {about['seconds']:,.0f} s\n"
                f"  {about['blocks']:,} blocks, {about['back'] / 1e9:,.1f} GB back, "
                f"{about['to_workers'] / 1e9:,.2f} GB to workers; joined in {about['join']:,.0f} s and saved "
                f"in {about['save']:,.0f} s, or opened in {about['open']:,.0f} s\n"
                f"  simulated: {run['seconds']:,.0f} s, {run['share']:.0%} of the bare speed, "
                f"{run['blocks']:,} blocks, the driver busy for {run['driver']:.0%} of it"
            )
            for need, part in sorted(about["needs"].items(), key=lambda pair: -pair[1]):
                print(f"  {part:8.2f} of {need}")
    given.results.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
