"""A step in plain torch operations: for any device, type and layout.

The noise on the CPU is that of compiled code, number by number (`numba_step.draw_normals_on_cpu`). Other
devices have torch's generators, which are Philox with a key of 64 bits (CUDA, XPU, MPS). A generator gets a
new key for each CHUNK elements of a parameter, so that a shard draws the numbers of its position in the
whole; see `generator_key`.

θ: parameters, p: momenta, g: gradients, ξ: friction, τ: temperature, R: standard normal numbers, c: the
coefficients of an operation.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from heatbath.methods.operations import ADAM, DESCEND, READ, THERMOSTAT, A, B, C, F, S
from heatbath.torch.optim.numba_step import draw_normals_on_cpu
from heatbath.torch.optim.sharding import Shard, complete_sums, runs_of
from heatbath.torch.optim.state import StepTensors
from heatbath.torch.optim.step_program import StepPass

CHUNK = 2**20  # elements of a parameter that a generator draws with one key
ELEMENT_BITS = 38  # bits of a key for the first element
STEP_BITS = 26  # and for the step
BASE_BYTES = 8  # of a key: 64 bits

DrawNormals = Callable[..., list[Tensor]]  # as `draw_normals`


def draw_normals(
    like: list[Tensor],
    seed: int,
    step: int,
    stream_slot: int,
    first: list[int],
    chain: int = 0,
    shards: Sequence[Shard | None] | None = None,
) -> list[Tensor]:
    """Draw standard normal numbers for tensors, as a pure function of the arguments.

    Parameters
    ----------
    like : list of Tensor
        Tensors (of one chain) with the shapes and devices that are needed.
    seed, step, stream_slot, chain : int
        Address of the noise: seed, number of the step, its stream and slot in a step, number of the chain.
    first : list of int
        Positions of the tensors' first elements in the numbering of the noise.
    shards : sequence of Shard or None, optional
        Which elements of the whole parameters the tensors have.

    Returns
    -------
    list of Tensor
        Numbers in the shapes of `like` and on their devices, in float32 or float64 on the CPU.
    """
    shards = [None] * len(like) if shards is None else shards
    on_cpu = [i for i, tensor in enumerate(like) if tensor.is_cpu]
    tensors = [like[i] for i in on_cpu]
    first_on_cpu = [first[i] for i in on_cpu]
    shards_on_cpu = [shards[i] for i in on_cpu]
    drawn_on_cpu = iter(
        draw_normals_on_cpu(tensors, seed, step, stream_slot, first_on_cpu, chain, shards_on_cpu)
    )

    base = base_of_keys(seed, stream_slot, chain)
    drawn = []
    for tensor, first_element, shard in zip(like, first, shards, strict=True):
        if tensor.is_cpu:
            drawn.append(next(drawn_on_cpu))
        else:
            drawn.append(draw_by_chunks(tensor, base, step, first_element, shard))
    return drawn


@lru_cache(maxsize=256)
def base_of_keys(seed: int, stream_slot: int, chain: int) -> int:
    """Return the 64 bits in which the keys of one use of the noise in one chain differ from others."""
    address = hashlib.sha256(f"{seed} {stream_slot} {chain}".encode()).digest()
    return int.from_bytes(address[:BASE_BYTES], "little")


def generator_key(base: int, step: int, element: int) -> int:
    """Return the key of a generator that draws for the elements from `element` on, at a step.

    No two keys of one use of the noise in one chain are equal, up to 2^38 elements; steps count modulo 2^26,
    so that numbers repeat after 67 million steps. Keys of different uses, chains or seeds are equal only
    where 64 bits of a hash agree in all bits that steps and elements don't reach: for a million steps of a
    billion parameters (in 1000 chunks) by chance once in 10^9 pairs.
    """
    step_bits = step % 2**STEP_BITS
    element_bits = element % 2**ELEMENT_BITS
    address: int = step_bits << ELEMENT_BITS | element_bits
    return base ^ address


def draw_by_chunks(like: Tensor, base: int, step: int, first: int, shard: Shard | None) -> Tensor:
    """Draw normal numbers for a parameter, or for its block in this process, by torch's generator.

    The chunks of the whole parameter that the block touches are drawn, and the block's numbers taken out.

    Parameters
    ----------
    like : Tensor
        The parameter or its block.
    base, step : int
        Address of the noise: the result of `base_of_keys`, and the number of the step.
    first : int
        Position of the whole parameter's first element in the numbering of the noise.
    shard : Shard or None
        The block, None for the whole parameter.
    """
    whole_size = like.numel() if shard is None else math.prod(shard.shape)
    runs = runs_of(shard, whole_size)
    if not runs or not whole_size:
        return torch.empty_like(like)

    # Draw the numbers of the whole parameter from `start` to stop - 1: complete chunks, but for its last one.
    first_chunk = runs[0].first_in_whole // CHUNK
    start = first_chunk * CHUNK
    stop_of_runs = runs[-1].first_in_whole + runs[-1].length
    stop = min(math.ceil(stop_of_runs / CHUNK) * CHUNK, whole_size)
    generator = torch.Generator(like.device)
    numbers = like.new_empty(stop - start)
    for k, chunk in enumerate(torch.split(numbers, CHUNK), first_chunk):
        generator.manual_seed(generator_key(base, step, first + k * CHUNK))
        chunk.normal_(generator=generator)

    if len(runs) == 1 and runs[0].length == len(numbers):
        return numbers.reshape(like.shape)
    drawn_runs = []
    for run in runs:
        offset = run.first_in_whole - start
        drawn_runs.append(numbers[offset : offset + run.length])
    return torch.cat(drawn_runs).reshape(like.shape)


class StageUnit(NamedTuple):
    """A unit in a stage: its passes, its tensors with its own chain alone, and these divided by rows."""

    unit: StepTensors
    passes: tuple[StepPass, ...]
    unstacked: StepTensors
    divided: list[StepTensors]

    def reads_kinetic(self, k: int) -> bool:
        """Return whether pass `k` reads p·p."""
        step_pass = self.passes[k]
        return READ in self.unit.program.encoded[step_pass.first : step_pass.stop, 0]


def run(units: list[StepTensors], stage: int, draw: DrawNormals) -> None:
    """Run all passes of a stage on tensors, in place: first the operations on θ and p, then those on ξ.

    Where a pass reads p·p, it is added up over the processes for all units at once.

    Parameters
    ----------
    units : list of StepTensors
        Tensors of all parts and chains, whose ξ and p·p are set, too.
    stage : int
        Position of the stage in the programs of the units.
    draw : callable
        Draws the noise, as `draw_normals`.
    """
    stage_units = []
    for unit in units:
        unstacked = unit.unstacked()
        stage_units.append(StageUnit(unit, unit.program.passes(stage), unstacked, unstacked.split_by_row()))

    pass_count = max((len(stage_unit.passes) for stage_unit in stage_units), default=0)
    for k in range(pass_count):
        moving = [stage_unit for stage_unit in stage_units if k < len(stage_unit.passes)]
        for stage_unit in moving:
            for tensors in stage_unit.divided:
                tensors.xi = stage_unit.unit.xi
                run_pass(stage_unit.passes[k], tensors, draw)

        reading = [stage_unit for stage_unit in moving if stage_unit.reads_kinetic(k)]
        sums_of_squares = _sums_of_squares([stage_unit.unstacked for stage_unit in reading])
        for stage_unit, kinetic in zip(reading, sums_of_squares, strict=True):
            stage_unit.unit.kinetic = kinetic

        for stage_unit in moving:
            step_pass = stage_unit.passes[k]
            for operation in range(step_pass.stop, step_pass.end):
                _update_friction(stage_unit.unit, operation, draw)


def run_pass(step_pass: StepPass, unit: StepTensors, draw: DrawNormals) -> None:
    """Run the operations of a pass on θ and p of a unit, in place.

    All of its tensors have the same row of the table and the same step (see `StepTensors.split_by_row`).
    """
    for operation in range(step_pass.first, step_pass.stop):
        kind, stream_slot, offset = unit.program.encoded[operation].tolist()
        if kind == READ:  # at the end of the pass, over all tensors
            continue

        c = unit.table[unit.rows[0], operation].tolist()
        amplitude = 0.0
        if stream_slot >= 0:
            amplitude = _noise_amplitude(kind, c, unit)
        R: list[Tensor] = []
        if amplitude != 0:
            R = _draw_for(unit, unit.steps[0] + offset, stream_slot, draw)
        _act(kind, c, unit, R, amplitude)


def _draw_for(unit: StepTensors, step: int, stream_slot: int, draw: DrawNormals) -> list[Tensor]:
    """Draw normal numbers for the tensors of a unit, for shards those of their positions in the whole."""
    address = unit.p, unit.seed, step, stream_slot, unit.first_elements, unit.chain_number
    if unit.sharded:
        return draw(*address, unit.shards)
    return draw(*address)


def _update_friction(unit: StepTensors, operation: int, draw: DrawNormals) -> None:
    """Apply an operation to the ξ of a unit, in place.

    THERMOSTAT is ξ += c₀ (p·p - Nτ), divided by N if c₂ > 0, with τ = c₁; FLUCTUATE is ξ = c₀ ξ + c₁ c₂ R. A
    temperature or its root below 0 stands for that of the ladder.

    Parameters
    ----------
    unit : StepTensors
        The tensors that share ξ; the coefficients c are those of the tensor that was stepped most often.
    operation : int
        Position of the operation in the program.
    draw : callable
        Draws R, as `draw_normals`.
    """
    kind, stream_slot, offset = unit.program.encoded[operation].tolist()
    c = unit.table[max(unit.rows), operation].tolist()
    if kind == THERMOSTAT:
        tau = c[1] if c[1] >= 0 else unit.root_tau**2
        weight = 1.0 / unit.size if c[2] > 0 else 1.0
        unit.xi += c[0] * weight * (unit.kinetic - unit.size * tau)
        return

    like = torch.zeros(1, dtype=torch.float64)  # ξ is one number
    step = unit.steps[0] + offset
    (R,) = draw([like], unit.seed, step, stream_slot, unit.first_elements[:1], unit.chain_number)
    unit.xi = c[0] * unit.xi + c[1] * _root_of_temperature(c[2], unit) * float(R)


def _root_of_temperature(root: float, unit: StepTensors) -> float:
    """Return the root of a temperature in a table, or that of the ladder where it is below 0."""
    return root if root >= 0 else unit.root_tau


def _noise_amplitude(kind: int, c: list[float], unit: StepTensors) -> float:
    """Return the factor of the noise R in an operation of this kind with coefficients c."""
    if kind == S:
        return c[1] * _root_of_temperature(c[2], unit)
    if kind == DESCEND:
        return c[2]

    # F has c₁ √φ(x) with φ(x) = (1 - exp(-x))/x, which is 1 at x = 0
    x = 2.0 * c[0] * unit.xi
    phi = -math.expm1(-x) / x if x != 0 else 1.0
    return c[1] * math.sqrt(phi)


def _act(kind: int, c: list[float], unit: StepTensors, R: list[Tensor], amplitude: float) -> None:
    """Apply an operation to the parameters θ and momenta p of a unit, in place.

    Parameters
    ----------
    kind : int
        Kind of the operation: A, B, S, C, F, DESCEND or ADAM.
    c : list of float
        Its coefficients, a row of the table.
    unit : StepTensors
        Tensors with gradients g and friction ξ.
    R : list of Tensor
        Standard normal numbers for each tensor; empty if the operation draws no noise.
    amplitude : float
        The factor of R.
    """
    if kind == A:  # θ += c₀ p
        torch._foreach_add_(unit.theta, unit.p, alpha=c[0])
    elif kind == B:
        _kick(unit, c)
    elif kind == S:
        _scale_momenta(unit, c[0], R, amplitude)
    elif kind in (C, F):
        _scale_momenta(unit, math.exp(-c[0] * unit.xi), R, amplitude)
    elif kind == DESCEND:
        _descend(unit, c, R, amplitude)
    elif kind == ADAM:
        _act_adam(unit, c)
    else:
        raise AssertionError(f"no operation {kind}")


def _kick(unit: StepTensors, c: list[float]) -> None:
    """Add the forces to the momenta, in place: p += c₀ g - c₁ θ, the last term from the prior."""
    if c[0] != 0:
        torch._foreach_add_(unit.p, unit.gradients, alpha=c[0])
    if c[1] != 0:
        torch._foreach_add_(unit.p, unit.theta, alpha=-c[1])


def _scale_momenta(unit: StepTensors, factor: float, R: list[Tensor], amplitude: float) -> None:
    """Scale the momenta and add noise to them, in place: p = factor p + amplitude R."""
    if factor != 1:
        torch._foreach_mul_(unit.p, factor)
    if R:
        torch._foreach_add_(unit.p, R, alpha=amplitude)


def _descend(unit: StepTensors, c: list[float], R: list[Tensor], amplitude: float) -> None:
    """Move the parameters along their gradients, in place: θ = (1 - c₁) θ + c₀ g + amplitude R."""
    if c[1] != 0:
        torch._foreach_mul_(unit.theta, 1.0 - c[1])
    torch._foreach_add_(unit.theta, unit.gradients, alpha=c[0])
    if R:
        torch._foreach_add_(unit.theta, R, alpha=amplitude)


def _act_adam(unit: StepTensors, c: list[float]) -> None:
    """Make a step of Adam on a unit, in place: on θ, the first moments p and the second moments s.

    At a tensor's n-th step it is θ += rate p/(1 - β₁ⁿ) / (√(s/(1 - bⁿ)) + ε) - decay θ, with the coefficients
    c = (rate, β₁, β₂, ε, decay, b). The rate is negative for descending.
    """
    rate, beta1, beta2, eps, decay, beta2_of_bias = c
    count = unit.steps[0] + 1
    unbias1 = 1 - beta1**count
    unbias2 = 1 - beta2_of_bias**count

    # p = β₁ p + (1 - β₁) g, and s = β₂ s + (1 - β₂) g²
    torch._foreach_mul_(unit.p, beta1)
    torch._foreach_add_(unit.p, unit.gradients, alpha=1 - beta1)
    torch._foreach_mul_(unit.second, beta2)
    torch._foreach_addcmul_(unit.second, unit.gradients, unit.gradients, value=1 - beta2)

    root = torch._foreach_sqrt(torch._foreach_div(unit.second, unbias2))
    torch._foreach_add_(root, eps)
    if decay != 0:
        torch._foreach_mul_(unit.theta, 1.0 - decay)
    torch._foreach_addcdiv_(unit.theta, unit.p, root, value=rate / unbias1)


def _sums_of_squares(units: list[StepTensors]) -> list[float]:
    """Return p·p of each unit, over whole tensors even where they are sharded, summed in double precision."""
    squares = []
    for unit in units:
        norms = torch._foreach_norm(unit.p)
        squares.append([norm.double().square() for norm in norms])
    return complete_sums(squares, [unit.shards for unit in units])
