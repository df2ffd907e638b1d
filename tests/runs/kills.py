"""Runs killed with SIGKILL at random moments, and resumed: do they end as if nothing had happened?

    python -m tests.runs.kills 200

Each run is a process of its own that writes a checkpoint after every call of compiled code. It is killed once
to three times, every other time while it has the file open that is to become the checkpoint, and then
continues from its file: by `load(...).resume()`, or by the same call again.
"""

import os
import random
import signal
import sys
import tempfile
import time
import warnings
from pathlib import Path

import heatbath as hb
from tests.runs import differences

PROBLEM = hb.datasets.spirals(n_train=200, n_test=100)
METHODS = {"AdLaLa": hb.AdLaLa(), "Adam": hb.Partition(hb.Adam(), 0.005)}


def whole(checkpoint=None, every=0.0):
    """The run, undisturbed; one thread, since it is called in forked processes."""
    return hb.compare(
        PROBLEM, hb.Dense((20,)), METHODS, 60_000, 20, chains=2, threads=1, record=range(0, 60_001, 2000),
        losses_every=3, samples=20, average=PROBLEM.X_test[0], checkpoint=checkpoint, every=every,
    )  # fmt: skip


def kill_one(path, seconds, chance):
    """Start the run or continue it, and kill it after a part of its usual time: was it writing?"""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads, which do nothing here
        child = os.fork()
    if child == 0:
        try:
            run = hb.load(path) if path.exists() else whole(path)
            run.finished or run.resume(checkpoint=path, every=0.0)
        finally:  # whatever happens, the child is no second copy of the tests
            os._exit(0)
    time.sleep(chance.uniform(0.0, seconds))
    part = path.with_name(f".{path.name}.{child}.part")
    if chance.random() < 0.5:
        patience = time.perf_counter() + 1.0
        while not part.exists() and time.perf_counter() < patience:
            pass
        time.sleep(chance.uniform(0.0, 0.002))
    os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    return killed, killed and part.exists()


def kill_and_resume(count, seed=0):
    """So many runs: how many were killed, how often while writing, and which did not end as they should."""
    chance = random.Random(seed)
    undisturbed = whole()
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        whole(Path(folder) / "timed.nc")
        seconds = time.perf_counter() - begin
        killed, writing, wrong, steps = 0, 0, [], []
        for number in range(count):
            path = Path(folder) / f"{number}.nc"
            hits = [kill_one(path, seconds / 2, chance) for _ in range(chance.randint(1, 3))]
            killed += any(hit for hit, _ in hits)
            writing += any(mid for _, mid in hits)
            steps.append(hb.load(path).step if path.exists() else 0)
            again = hb.load(path) if number % 2 and path.exists() else None
            run = whole(path) if again is None else again if again.finished else again.resume()
            wrong += [(number, differences(run, undisturbed))] if differences(run, undisturbed) else []
    return {"runs": count, "killed": killed, "while writing": writing, "wrong": wrong, "resumed at": steps}


if __name__ == "__main__":
    print(kill_and_resume(int(sys.argv[1])))
