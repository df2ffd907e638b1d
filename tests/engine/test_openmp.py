"""Loops on the threads of torch's OpenMP."""

import ctypes
import sys

import numba
import numpy as np
import pytest

from heatbath.engine.openmp import for_each, parallel_region
from tests.optional import optional

torch = optional("torch")
openmp = pytest.mark.skipif(
    not (sys.platform == "linux" and torch.backends.openmp.is_available()), reason="torch has no OpenMP here"
)


@numba.njit
def _count_one(i, done, bad):
    if i == bad:
        raise OverflowError("bad")
    done[i] += 1


@numba.njit(nogil=True)
def _count(region, threads, done, bad):
    for_each(region, threads, len(done), _count_one, (done, bad))


REGIONS = [pytest.param(lambda: 0, id="alone"), pytest.param(parallel_region, id="openmp", marks=openmp)]


@pytest.mark.parametrize("region", REGIONS)
@pytest.mark.parametrize(("count", "threads"), [(0, 2), (1, 3), (1000, 1), (1000, 7)])
def test_a_loop_does_everything_once_on_any_number_of_threads(region, count, threads):
    done = np.zeros(count, int)
    _count(region(), threads, done, -1)
    assert (done == 1).all()


@pytest.mark.parametrize("region", REGIONS)
def test_an_exception_in_any_thread_reaches_the_caller_and_the_next_loop_is_whole(region):
    for bad in (0, 500, 999):
        done = np.zeros(1000, int)
        with pytest.raises(OverflowError, match="bad"):
            _count(region(), 3, done, bad)
        assert done[bad] == 0
    done = np.zeros(1000, int)
    _count(region(), 3, done, -1)
    assert done.all()


@openmp
def test_no_two_threads_take_the_same_turn():
    library = ctypes.CDLL(None)
    meet, who = library.GOMP_barrier, library.omp_get_thread_num
    meet.argtypes, meet.restype, who.argtypes, who.restype = [], None, [], ctypes.c_int

    @numba.njit
    def take_turn(i, turns):
        if i < 2:
            meet()  # so that each thread has one of them, and both run through the rest side by side
        turns[who()] += 1

    @numba.njit(nogil=True)
    def take_all(region, count, turns):
        for_each(region, 2, count, take_turn, (turns,))

    turns = np.zeros(2, int)
    take_all(parallel_region(), 10_000_000, turns)
    assert turns.all()
    assert turns.sum() == 10_000_000


@openmp
def test_the_threads_of_a_region_are_as_many_as_asked_for_and_work_at_the_same_time():
    library = ctypes.CDLL(None)
    meet, who = library.GOMP_barrier, library.pthread_self
    meet.argtypes, meet.restype, who.argtypes, who.restype = [], None, [], ctypes.c_size_t

    @numba.njit
    def note(i, names):
        meet()  # waits for all threads of the region, so each has one i
        names[i] = who()

    @numba.njit(nogil=True)
    def run(region, names):
        for_each(region, len(names), len(names), note, (names,))

    for region, threads in ((parallel_region(), 3), (0, 1)):
        names = np.zeros(3, np.uint64)
        run(region, names)
        assert len(set(names.tolist())) == threads
