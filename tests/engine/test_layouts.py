"""Memory for vectors, and sums over them, in both layouts."""

import numba
import numpy as np
import pytest

from heatbath.engine.layouts import add_partial_sums, aligned_address, reserve, vector_count
from heatbath.engine.simd import BYTES, lane_count, pointer_to
from tests.engine.probes import layouts

KINDS = [np.float32, np.float64]


@numba.njit
def _measure(layout, partial_sums, totals):
    add_partial_sums(layout, pointer_to(partial_sums), pointer_to(totals))
    _, after_one = reserve(1024, 1, pointer_to(partial_sums))
    _, after_none = reserve(1024, 0, pointer_to(partial_sums))
    return after_one, after_none, vector_count(layout, 17, pointer_to(partial_sums))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("in_group", [0, 1])
def test_sums_rows_and_memory_are_counted_in_whole_vectors(kind, in_group):
    layout, lanes = layouts(kind)[in_group], lane_count(kind)
    generator = np.random.default_rng(1)
    partial_sums = generator.standard_normal((lanes, lanes)).astype(kind)  # (partial sum, lane)
    totals = np.ones(lanes)
    after_one, after_none, vectors = _measure(layout, partial_sums.ravel(), totals)
    assert (after_one - 1024, after_none - 1024) == (BYTES, 0)
    assert vectors == (17 if in_group else -(-17 // lanes))

    sums = partial_sums if in_group else partial_sums[:1].T
    while len(sums) > 1:  # halves are added to halves
        sums = sums[: len(sums) // 2] + sums[len(sums) // 2 :]
    assert totals[: sums.size].tolist() == (1 + sums[0].astype(float)).tolist()
    assert (totals[sums.size :] == 1).all()


def test_memory_is_aligned_at_the_first_vector_in_it():
    memory = np.zeros(3 * BYTES, np.uint8)
    for start in (0, 1, BYTES - 1):
        part = memory[start:]
        address = aligned_address.py_func(part)
        assert address % BYTES == 0
        assert 0 <= address - part.ctypes.data < BYTES
