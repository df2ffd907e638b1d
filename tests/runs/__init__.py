"""Helpers for tests of runs."""

import os
import signal

import numpy as np

import heatbath as hb

SPIRALS = hb.datasets.spirals(n_train=200, n_test=100)
SMALL = hb.MLP((20,))


class Interrupting:
    """A progress that presses Ctrl-C at its nth call."""

    def __init__(self, nth):
        self.left = nth

    def __call__(self, now):
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGINT)


def same_bits(one, two):
    """Whether two runs have the same data, bit for bit, and the same names for it."""
    return not differences(one, two)


def differences(one, two):
    """The names of the data in which two runs differ; NaN is equal to NaN."""
    names = one.data.variables.keys() | two.data.variables.keys()
    return sorted(name for name in names if not _equal(one.data, two.data, name))


def _equal(one, two, name):
    if name not in one.variables or name not in two.variables:
        return False
    a, b = one[name], two[name]
    if a.dims != b.dims or a.shape != b.shape:
        return False
    if a.dtype.kind in "OU":
        return a.values.astype(str).tolist() == b.values.astype(str).tolist()
    return a.dtype == b.dtype and np.array_equal(a.values, b.values, equal_nan=a.dtype.kind == "f")
