"""Helpers for tests of runs."""

import os
import signal

import numpy as np

import heatbath as hb

SPIRALS = hb.datasets.spirals(n_train=200, n_test=100)
SMALL = hb.MLP((20,))


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
