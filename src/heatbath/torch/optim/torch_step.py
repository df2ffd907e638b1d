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

import torch
from torch import Tensor

from heatbath.methods.operations import ADAM, DESCEND, READ, THERMOSTAT, A, B, C, F, S
from heatbath.torch.optim.numba_step import draw_normals_on_cpu
from heatbath.torch.optim.sharding import Shard, complete_sums
from heatbath.torch.optim.state import StepTensors
from heatbath.torch.optim.step_program import StepPass

CHUNK = 2**20  # elements of a parameter that a generator draws with one key
ELEMENT_BITS, STEP_BITS = 38, 26  # bits of a key for the first element and for the step

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
    tensors, positions = [like[i] for i in on_cpu], [first[i] for i in on_cpu]
    shards_on_cpu = [shards[i] for i in on_cpu]
    drawn_on_cpu = draw_normals_on_cpu(tensors, seed, step, stream_slot, positions, chain, shards_on_cpu)
    numbers = dict(zip(on_cpu, drawn_on_cpu, strict=True))

    base = base_of_keys(seed, stream_slot, chain)
    for i, tensor in enumerate(like):
        if i not in numbers:
            numbers[i] = draw_by_chunks(tensor, base, step, first[i], shards[i])
    return [numbers[i] for i in range(len(like))]


@lru_cache(maxsize=256)
def base_of_keys(seed: int, stream_slot: int, chain: int) -> int:
    """Return the 64 bits in which the keys of one use of the noise in one chain differ from others."""
    return int.from_bytes(hashlib.sha256(f"{seed} {stream_slot} {chain}".encode()).digest()[:8], "little")


def generator_key(base: int, step: int, element: int) -> int:
    """Return the key of a generator that draws for the elements from `element` on, at a step.

    No two keys of one use of the noise in one chain are equal, up to 2^38 elements; steps count modulo 2^26,
    so that numbers repeat after 67 million steps. Keys of different uses, chains or seeds are equal only
    where 64 bits of a hash agree in all bits that steps and elements don't reach: for a million steps of a
    billion parameters (in 1000 chunks) by chance once in 10^9 pairs.
    """
    address: int = step % 2**STEP_BITS << ELEMENT_BITS | element % 2**ELEMENT_BITS
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
    size = like.numel() if shard is None else math.prod(shard.shape)
    runs = [(0, 0, size)] if shard is None else shard.runs
    if not runs or not size:
        return torch.empty_like(like)

    generator = torch.Generator(like.device)
    (_, first_in_whole, _), (_, last_start, last_length) = runs[0], runs[-1]
    first_chunk = first_in_whole // CHUNK
    stop_chunk = -(-(last_start + last_length) // CHUNK)  # rounded up
    flat = like.new_empty(min(stop_chunk * CHUNK, size) - first_chunk * CHUNK)
    for k, chunk in enumerate(torch.split(flat, CHUNK), first_chunk):
        chunk.normal_(generator=generator.manual_seed(generator_key(base, step, first + k * CHUNK)))

    if len(runs) == 1 and runs[0][2] == len(flat):
        return flat.reshape(like.shape)
    starts = [(in_whole - first_chunk * CHUNK, length) for _, in_whole, length in runs]
    return torch.cat([flat[start : start + length] for start, length in starts]).reshape(like.shape)


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
    passes = [unit.program.passes(stage) for unit in units]
    unstacked = [unit.unstacked() for unit in units]
    divided = [unit.split_by_row() for unit in unstacked]
    for k in range(max(map(len, passes), default=0)):
        stepped = [i for i, passes_of_unit in enumerate(passes) if k < len(passes_of_unit)]
        reading = []
        for i in stepped:
            step_pass = passes[i][k]
            for tensors in divided[i]:
                tensors.xi = units[i].xi
                run_pass(step_pass, tensors, draw)
            if READ in units[i].program.encoded[step_pass.first : step_pass.stop, 0]:
                reading.append(i)

        for i, kinetic in zip(reading, _sums_of_squares([unstacked[i] for i in reading]), strict=True):
            units[i].kinetic = kinetic
        for i in stepped:
            for operation in range(passes[i][k].stop, passes[i][k].end):
                _update_friction(units[i], operation, draw)


def run_pass(step_pass: StepPass, unit: StepTensors, draw: DrawNormals) -> None:
    """Run the operations of a pass on θ and p of a unit, in place.

    All of its tensors have the same row of the table and the same step (see `StepTensors.split_by_row`).
    """
    for operation in range(step_pass.first, step_pass.stop):
        kind, stream_slot, offset = unit.program.encoded[operation].tolist()
        c = unit.table[unit.rows[0], operation].tolist()
        if kind == READ:  # at the end of the pass, over all tensors
            continue
        amplitude = _noise_amplitude(kind, c, unit) if stream_slot >= 0 else 0.0
        R = _draw_for(unit, unit.steps[0] + offset, stream_slot, draw) if amplitude != 0 else []
        _act(kind, c, unit, R, amplitude)


def _draw_for(unit: StepTensors, step: int, stream_slot: int, draw: DrawNormals) -> list[Tensor]:
    """Draw normal numbers for the tensors of a unit, for shards those of their positions in the whole."""
    address = unit.p, unit.seed, step, stream_slot, unit.first_elements, unit.chain_number
    return draw(*address, unit.shards) if unit.sharded else draw(*address)


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

    scalar, step = [torch.zeros(1, dtype=torch.float64)], unit.steps[0] + offset
    (R,) = draw(scalar, unit.seed, step, stream_slot, unit.first_elements[:1], unit.chain_number)
    root_tau = c[2] if c[2] >= 0 else unit.root_tau
    unit.xi = c[0] * unit.xi + c[1] * root_tau * float(R)


def _noise_amplitude(kind: int, c: list[float], unit: StepTensors) -> float:
    """Return the factor of the noise R in an operation of this kind with coefficients c."""
    if kind == S:
        return c[1] * (c[2] if c[2] >= 0 else unit.root_tau)
    if kind == F:
        x = 2.0 * c[0] * unit.xi
        return c[1] * math.sqrt(-math.expm1(-x) / x if x != 0 else 1.0)
    return c[2]  # of DESCEND


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
    theta, p, g = unit.theta, unit.p, unit.gradients
    if kind == A:  # θ += c₀ p
        torch._foreach_add_(theta, p, alpha=c[0])
    elif kind == B:  # p += c₀ g - c₁ θ, the last term from the prior
        if c[0] != 0:
            torch._foreach_add_(p, g, alpha=c[0])
        if c[1] != 0:
            torch._foreach_add_(p, theta, alpha=-c[1])
    elif kind in (S, C, F):  # p = c₀ p + amplitude R, or exp(-c₀ ξ) in place of c₀
        factor = c[0] if kind == S else math.exp(-c[0] * unit.xi)
        if factor != 1:
            torch._foreach_mul_(p, factor)
        if R:
            torch._foreach_add_(p, R, alpha=amplitude)
    elif kind == DESCEND:  # θ = (1 - c₁) θ + c₀ g + amplitude R
        if c[1] != 0:
            torch._foreach_mul_(theta, 1.0 - c[1])
        torch._foreach_add_(theta, g, alpha=c[0])
        if R:
            torch._foreach_add_(theta, R, alpha=amplitude)
    elif kind == ADAM:
        _act_adam(unit, c)
    else:
        raise AssertionError(f"no operation {kind}")


def _act_adam(unit: StepTensors, c: list[float]) -> None:
    """Make a step of Adam on a unit, in place: on θ, the first moments p and the second moments s.

    At a tensor's n-th step it is θ += rate p/(1 - β₁ⁿ) / (√(s/(1 - bⁿ)) + ε) - decay θ, with the coefficients
    c = (rate, β₁, β₂, ε, decay, b). The rate is negative for descending.
    """
    rate, beta1, beta2, eps, decay, beta2_of_bias = c
    count = unit.steps[0] + 1
    unbias1, unbias2 = 1 - beta1**count, 1 - beta2_of_bias**count

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
    norms = [torch._foreach_norm(unit.p) for unit in units]
    squares = [[norm.double().square() for norm in norms_of_unit] for norms_of_unit in norms]
    return complete_sums(squares, [unit.shards for unit in units])
