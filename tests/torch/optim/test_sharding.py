"""Parameters of which a process has a part: runs of elements, sums over processes, and steps of a block."""

import math

import pytest
import torch

import heatbath.torch as ht
from heatbath.torch.optim import torch_step
from heatbath.torch.optim.numba_step import CompiledStep
from heatbath.torch.optim.sharding import Shard, complete_sums
from heatbath.torch.optim.state import StepTensors
from tests.torch.optim.models import BLOCKS


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_of_a_parameter_is_stepped_as_it_is_in_the_whole(name, fused):
    """Longer than the pieces and chunks in which numbers are made, without any other process."""
    shape, size, offset = BLOCKS[name]
    optimizer = ht.Langevin([torch.nn.Parameter(torch.zeros(3))], 0.1, 1.0, 1.0, seed=5)
    known = optimizer._parts.program_of(0, 0, optimizer.param_groups[0])
    cut = tuple(slice(o, o + n) for o, n in zip(offset, size, strict=True))

    def stepped(shard):
        theta, p, gradient = (torch.zeros(shard.size, dtype=torch.float64) for _ in range(3))
        unit = StepTensors(
            known.program, known.coefficients, 0.0, 1.0, 5, 7,
            parameters=[theta], theta=[theta], p=[p], gradients=[gradient], first_elements=[1234], rows=[1],
            steps=[7], shards=[shard], sharded=True, size=math.prod(shape),
        )  # fmt: skip
        if fused:
            CompiledStep().run([unit], 0)
        else:
            torch_step.run([unit], 0, torch_step.draw_normals)
        return theta, p

    whole = stepped(Shard(shape, shape, (0,) * len(shape), ()))
    part = stepped(Shard(shape, size, offset, ()))
    assert all(map(torch.equal, part, (tensor[cut] for tensor in whole)))
    assert whole[0].unique().numel() == whole[0].numel()


def test_runs_of_a_block_are_numbered_as_in_the_whole():
    rows = Shard((4, 3), (2, 3), (1, 0), ())
    columns = Shard((3, 4), (3, 2), (0, 1), ())
    assert rows.runs == [(0, 3, 6)]  # whole rows are one run
    assert columns.runs == [(0, 1, 2), (2, 5, 2), (4, 9, 2)]
    assert Shard((4, 3), (0, 3), (4, 0), ()).runs == []


@pytest.mark.parametrize("name", BLOCKS)
def test_runs_of_a_block_have_its_elements_in_order(name):
    shape, size, offset = BLOCKS[name]
    cut = tuple(slice(o, o + n) for o, n in zip(offset, size, strict=True))
    elements = torch.arange(math.prod(shape)).reshape(shape)[cut].flatten().tolist()
    runs = Shard(shape, size, offset, ()).runs
    assert [e for _, in_whole, length in runs for e in range(in_whole, in_whole + length)] == elements
    assert [in_block for in_block, _, _ in runs] == [
        sum(length for _, _, length in runs[:k]) for k in range(len(runs))
    ]


def test_sums_of_whole_tensors_are_rounded_once_and_nan_where_infinities_cancel():
    terms = [torch.tensor(value, dtype=torch.float64) for value in (1e16, 1.0, -1e16)]
    assert complete_sums([terms], [[None] * 3]) == [1.0]
    infinite = [torch.tensor(math.inf), torch.tensor(-math.inf)]
    assert math.isnan(complete_sums([infinite], [[None] * 2])[0])
