"""Helpers for tests of blocks: a small sweep, an executor, and a problem without a recipe."""

from concurrent.futures import Executor, Future

import numpy as np

import heatbath as hb
from heatbath.runs.distributed.scheduler import BlockSizes

NETWORK = hb.MLP((5,))
GRID = hb.AdLaLa(h=0.25, sigma=[0.0, 1e-2], tau=[1e-5, 1e-3])
SIZES = dict(steps=60, chains=7, record=4, samples=3, histogram=(-3, 3, 4), average=[[0.5, 1.0]])


class AtOnce(Executor):
    """An executor that runs tasks at once, in this thread, and counts them."""

    def __init__(self, fails=lambda number: None):
        self.tasks, self.fails = [], fails

    def submit(self, function, task, *arguments):
        future = Future()
        self.tasks.append(range(task.first, task.stop))
        try:
            self.fails(len(self.tasks))
            future.set_result(function(task, *arguments))
        except Exception as error:
            future.set_exception(error)
        return future


def limit_steps(monkeypatch, steps):
    """Limit the number of steps of every block."""
    monkeypatch.setattr(BlockSizes, "until", lambda self, chains, step: min(step + steps, self.plan.steps))


def own_data():
    """Return a problem of arrays, which has no recipe."""
    x = np.random.default_rng(0).normal(size=(40, 2))
    return hb.datasets.from_arrays(x, (x[:, 0] > 0).astype(int), task="binary")
