"""Steps in plain torch operations: their noise on every device, and the path of compiled code."""

import numpy as np
import pytest
import torch
from torch import nn

import heatbath as hb
import heatbath.torch as ht
from heatbath.torch.optim import torch_step
from heatbath.torch.optim.sharding import Shard
from tests.torch.optim.models import BLOCKS


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_the_plain_way_has_the_numbers_of_the_definition(kind):
    """So that no two addresses share any. Of tensors of any layout, over the edges of tiles and pieces."""
    like = [torch.empty(5, 4000, dtype=kind).T, torch.empty(7, dtype=kind)]
    found = torch_step.draw_normals(like, 5, 2**32 + 7, 3, [9, 20_009], 6)
    assert [numbers.shape for numbers in found] == [tensor.shape for tensor in like]
    flat = np.concatenate([numbers.numpy().ravel() for numbers in found])
    expected = hb.noise.normals(5, hb.noise.NOISE, 3, 6, 2**32 + 7, 9, 20_016)
    np.testing.assert_allclose(flat, expected, rtol=0, atol=1e-6 if kind == torch.float32 else 1e-13)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_both_ways_and_all_layouts_take_the_same_path(kind):
    """In float32 within rounding; of half precision the float32 copies."""
    ends = []
    for fused, order in ((None, "C"), (False, "C"), (False, "F")):
        theta = torch.zeros(30, 40, dtype=kind)
        parameter = nn.Parameter(theta if order == "C" else theta.T.contiguous().T)
        optimizer = ht.AdaptiveLangevin([parameter], 0.1, 0.3, 0.2, 0.1, "BAFEFAB", seed=3, fused=fused)
        for _ in range(5):
            parameter.grad = 0.5 * parameter.detach()
            optimizer.step()
        ends.append(optimizer.state[parameter].get("copy", parameter).detach().contiguous())
    assert ends[0].abs().max() > 0.1
    for other in ends[1:]:
        torch.testing.assert_close(other, ends[0], rtol=0, atol=2e-3 if kind == torch.bfloat16 else 1e-6)


def test_the_keys_of_generators_on_other_devices_never_coincide():
    """Steps and chunks of one use have different keys, whatever the base; steps return after 2^26."""
    places = [first + k * torch_step.CHUNK for first in (0, 7, 300) for k in range(20)]
    for base in (0, 2**64 - 1, torch_step.base_of_keys(5, 1, 2)):
        keys = {torch_step.generator_key(base, step, place) for step in range(500) for place in places}
        assert len(keys) == 500 * len(places)
        assert all(0 <= key < 2**64 for key in keys)
    assert (
        torch_step.generator_key(3, 2**26 + 1, 9)
        == torch_step.generator_key(3, 1, 9)
        != torch_step.generator_key(3, 2, 9)
    )
    assert (
        len(
            {
                torch_step.base_of_keys(seed, use, chain)
                for seed in (0, 1)
                for use in (0, 1)
                for chain in (0, 1)
            }
        )
        == 8
    )


@pytest.mark.parametrize("name", ["rows", "columns", "in the middle", "of a vector", "empty", "a scalar"])
def test_a_generator_draws_for_a_block_what_it_draws_for_the_whole(name, monkeypatch):
    """As on other devices, with chunks that are shorter than the parameter and end in its middle."""
    monkeypatch.setattr(torch_step, "CHUNK", 999)
    shape, size, offset = BLOCKS[name]
    whole = torch_step.draw_by_chunks(torch.empty(shape), 5, 7, 11, None)
    part = torch_step.draw_by_chunks(torch.empty(size), 5, 7, 11, Shard(shape, size, offset, ()))
    cut = tuple(slice(o, o + n) for o, n in zip(offset, size, strict=True))
    assert torch.equal(part, whole[cut])
    assert whole.unique().numel() > 0.99 * whole.numel()  # of so many in float32 a few coincide
