"""Helpers for tests of runs."""

import os
import signal

import numpy as np

import heatbath as hb

SPIRALS = hb.datasets.spirals(n_train=200, n_test=100)
SMALL = hb.MLP((20,))
SHORT = {"steps": 40, "batch": 10, "record": 2, "chains": 2, "seed": 7}


def small_run(**options):
    """Train two chains of AdLaLa for 40 steps, or with other options of `train`."""
    return hb.train(SPIRALS, SMALL, hb.AdLaLa(), **(SHORT | options))


def short_run(partition=None, **options):
    """Train three chains for 120 steps, of AdLaLa or another partition, or with other options of `train`."""
    settings = {"steps": 120, "batch": 20, "chains": 3, "seed": 2, "record": 2, **options}
    return hb.train(SPIRALS, SMALL, partition or hb.AdLaLa(), **settings)


class Interrupting:
    """A progress function that sends Ctrl-C to this process when it is called for the nth time."""

    def __init__(self, nth):
        self.left = nth

    def __call__(self, progress):
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGINT)


def same_bits(first, second):
    """Return True if two runs have the same variables with the same data, bit for bit."""
    return not differences(first, second)


def differences(first, second):
    """Return the names of the variables in which two runs differ; NaN is equal to NaN."""
    names = first.data.variables.keys() | second.data.variables.keys()
    return sorted(name for name in names if not _is_equal(first.data, second.data, name))


def _is_equal(first, second, name):
    """Return True if a variable is in both data sets, with the same dimensions, type and values."""
    if name not in first.variables or name not in second.variables:
        return False
    a, b = first[name], second[name]
    if a.dims != b.dims or a.shape != b.shape:
        return False
    if a.dtype.kind in "OU":
        return a.values.astype(str).tolist() == b.values.astype(str).tolist()
    return a.dtype == b.dtype and np.array_equal(a.values, b.values, equal_nan=a.dtype.kind == "f")
