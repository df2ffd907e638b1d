"""The engine's random numbers are those of the definition, whatever part of a tile is asked for."""

import numpy as np
import pytest

from heatbath.reference import random
from tests.engine.probes import layouts, normals, words


@pytest.mark.parametrize("tile", [0, 1, 4, 2**20, 2**31 + 5])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_tiles_are_the_numbers_of_the_definition(tile, kind):
    seed, slot, chain, step = 2**63 + 12345, 3, 2**31 + 7, 2**39 + 1
    use = random.NOISE << 14 | slot
    for layout in layouts(kind):
        chains = np.arange(chain, chain + layout.lanes)
        where = (slot, chains, step, 256 * tile, 256 * (tile + 1))
        made = words(layout, kind, seed, use, chain, step, tile)
        np.testing.assert_array_equal(made.T, random.bits(seed, random.NOISE, *where))
        expected = random.normals(seed, random.NOISE, *where)
        made = normals(layout, kind, seed, use, chain, step, tile)
        tolerance = 5e-15 if kind == np.float64 else 1e-6  # near its zeros NumPy's cosine is no better
        np.testing.assert_allclose(made.T, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_a_part_of_a_tile_has_the_same_bits_as_the_whole_in_both_layouts(kind):
    alone, group = layouts(kind)
    whole = normals(group, kind, 7, 0, 100, 5, 3)
    for low, high in ((0, 1), (0, 60), (63, 65), (44, 145), (130, 131), (100, 256), (192, 256), (0, 256)):
        for chain in range(0, group.lanes, 5):
            part = normals(alone, kind, 7, 0, 100 + chain, 5, 3, low, high)
            np.testing.assert_array_equal(part[low:high, 0], whole[low:high, chain])
        part = normals(group, kind, 7, 0, 100, 5, 3, low, high)
        np.testing.assert_array_equal(part[low:high], whole[low:high])


def test_float32_numbers_differ_from_the_definition_by_rounding_only():
    """6e-8 rms over a million numbers, and 1e-6 at the most.

    An eighth to a quarter of a turn has steps of 2^-26 turns in float32: that alone is 2e-8 rms.
    """
    (_, group), differences = layouts(np.float32), []
    for tile in range(250):
        exact = random.normals(1, random.NOISE, 0, np.arange(16), 0, 256 * tile, 256 * (tile + 1))
        differences.append(normals(group, np.float32, 1, 0, 0, 0, tile).T - exact)
    differences = np.concatenate(differences)
    assert round(np.sqrt(np.mean(differences**2)), 8) <= 6e-8
    assert np.abs(differences).max() < 1e-6
