"""Kill runs with SIGKILL at random moments, resume them, and check that they end as if undisturbed.

    python -m tests.runs.kills 200

Each run is a process of its own that writes a checkpoint after every call of compiled code. It is killed at
one of the first of them, every other time when the file that is to become the checkpoint is not in its place;
then up to two times more, at any time, every other time while it has that file open. Then it continues from
its file: by `load(...).resume()`, or by the same call again.
"""

import os
import random
import signal
import sys
import tempfile
import time
from itertools import count
from pathlib import Path

import heatbath as hb
from tests.processes import killed_after_writing, start_copy, was_killed
from tests.runs import differences

PROBLEM = hb.datasets.spirals(n_train=200, n_test=100)
METHODS = {"AdLaLa": hb.AdLaLa(), "Adam": hb.Partition(hb.Adam(), 0.005)}


def full_run(checkpoint=None, every=0.0):
    """Return the undisturbed run, on one thread, since forked processes call this."""
    return hb.compare(
        PROBLEM, hb.MLP((20,)), METHODS, 10_000, 20, chains=2, threads=1, record=range(0, 10_001, 1000),
        losses_every=3, samples=20, average=PROBLEM.X_test[0], checkpoint=checkpoint, every=every,
    )  # fmt: skip


def start_or_continue(path):
    """Start the run, or continue it."""
    run = hb.load(path) if path.exists() else full_run(path)
    run.finished or run.resume(checkpoint=path, every=0.0)


def kill_early(path, chance, midway):
    """Kill the run at a checkpoint after its start: 1, 5, 21, 85 steps, on any machine."""
    last = chance.randint(3, 6)
    numbers = count(1)
    assert killed_after_writing(lambda: start_or_continue(path), lambda _: next(numbers) == last, midway)


def kill_any_time(path, seconds, chance):
    """Kill the run after a part of its usual time, and return True if it was writing then."""
    child = start_copy(lambda: start_or_continue(path))
    time.sleep(chance.uniform(0.0, seconds))
    part = path.with_name(f".{path.name}.{child}.part")
    if chance.random() < 0.5:
        patience = time.perf_counter() + 1.0
        while not part.exists() and time.perf_counter() < patience:
            pass
        time.sleep(chance.uniform(0.0, 0.002))
    os.kill(child, signal.SIGKILL)
    return was_killed(child) and part.exists()


def kill_and_resume(runs, seed=0):
    """Kill and resume a number of runs, and report how often and which did not end as they should."""
    chance = random.Random(seed)
    undisturbed = full_run()
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        full_run(Path(folder) / "timed.nc")
        seconds = time.perf_counter() - begin
        writing, wrong, steps = 0, [], []
        for number in range(runs):
            path = Path(folder) / f"{number}.nc"
            kill_early(path, chance, midway=number % 2 == 0)
            hits = [kill_any_time(path, seconds / 2, chance) for _ in range(chance.randint(0, 2))]
            writing += any(hits) or number % 2 == 0
            steps.append(hb.load(path).step if path.exists() else 0)
            again = hb.load(path) if number % 2 and path.exists() else None
            run = full_run(path) if again is None else again if again.finished else again.resume()
            wrong += [(number, differences(run, undisturbed))] if differences(run, undisturbed) else []
    return {"runs": runs, "while writing": writing, "wrong": wrong, "resumed at": steps}


if __name__ == "__main__":
    print(kill_and_resume(int(sys.argv[1])))
