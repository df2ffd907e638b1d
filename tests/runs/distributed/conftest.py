"""Fixtures of tests of blocks."""

from concurrent.futures import ThreadPoolExecutor

import pytest

import heatbath as hb
from heatbath.runs.distributed.scheduler import BlockSizes
from tests.runs.distributed import GRID, NETWORK, SIZES


@pytest.fixture(scope="session")
def problem():
    return hb.datasets.spirals(n_train=40, n_test=20)


@pytest.fixture(scope="session")
def alone(problem):
    return hb.sweep(problem, NETWORK, GRID, **SIZES)


@pytest.fixture
def cut(monkeypatch):
    """Return a function that sets the number of chains of every block."""

    def into(size):
        monkeypatch.setattr(BlockSizes, "chains", lambda self, left: size)

    return into


@pytest.fixture
def threads():
    with ThreadPoolExecutor(2) as executor:
        yield executor
