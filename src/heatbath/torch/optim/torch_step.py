"""A step in plain torch operations: for any device, type and layout.

The noise on the CPU is that of compiled code, number by number (`fused.normals`). Other devices have torch's
generators, which are Philox with a key of 64 bits (CUDA, XPU, MPS). A generator is keyed anew for each CHUNK
elements of a parameter, so that a shard draws the numbers of its place in the whole; see `key`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import torch
from torch import Tensor

from heatbath.methods.operations import ADAM, DESCEND, READ, THERMOSTAT, A, B, C, F, S
from heatbath.torch.optim.numba_step import normals
from heatbath.torch.optim.sharding import Shard, whole_sums
from heatbath.torch.optim.state import StepTensors
from heatbath.torch.optim.step_program import StepPass

CHUNK = 2**20  # elements of a parameter that a generator draws at a time
PLACES, STEPS = 38, 26  # bits of a key for the element and for the step

Noise = Callable[..., list[Tensor]]  # of tensors, as `drawn`


def drawn(
    like: list[Tensor],
    seed: int,
    step: int,
    use: int,
    first: list[int],
    chain: int = 0,
    shards: Sequence[Shard | None] | None = None,
) -> list[Tensor]:
    """Standard normal numbers for tensors: a function of where they are used. `first` are the numbers of
    their first elements, and `shards` say where the elements lie in parameters that are not all here."""
    places = [None] * len(like) if shards is None else shards
    numbers: list[Tensor] = [torch.empty(0)] * len(like)
    here = [i for i, tensor in enumerate(like) if tensor.is_cpu]
    some = normals([like[i] for i in here], seed, step, use, [first[i] for i in here], chain,
                   [places[i] for i in here])  # fmt: skip
    for i, own in zip(here, some, strict=True):
        numbers[i] = own
    base = _base(seed, use, chain)
    for i in set(range(len(like))) - set(here):
        numbers[i] = by_chunks(like[i], base, step, first[i], places[i])
    return numbers


@lru_cache(maxsize=256)
def _base(seed: int, use: int, chain: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed} {use} {chain}".encode()).digest()[:8], "little")


def key(base: int, step: int, place: int) -> int:
    """The key of a generator that draws from an element on, at a step.

    Of one use of the noise in one chain no two have the same, up to 2^38 elements; steps count modulo 2^26,
    so that 67 million steps later numbers come again. Of different uses, chains or seeds, keys lie on top of
    one another only where 64 bits of a hash agree in all but those of the steps and elements that there are:
    for a million steps of a billion parameters (in 1000 chunks) by chance once in 10^9 pairs.
    """
    address: int = step % 2**STEPS << PLACES | place % 2**PLACES
    return base ^ address


def by_chunks(like: Tensor, base: int, step: int, first: int, shard: Shard | None) -> Tensor:
    """Numbers for a parameter, or for the block of it that is here: chunks of the whole, as far as needed."""
    size = like.numel() if shard is None else math.prod(shard.shape)
    runs = [(0, 0, size)] if shard is None else shard.runs
    if not runs or not size:
        return torch.empty_like(like)
    generator = torch.Generator(like.device)
    begin, end = runs[0][1] // CHUNK, -(-(runs[-1][1] + runs[-1][2]) // CHUNK)
    line = like.new_empty(min(end * CHUNK, size) - begin * CHUNK)
    for k, chunk in enumerate(torch.split(line, CHUNK), begin):
        chunk.normal_(generator=generator.manual_seed(key(base, step, first + k * CHUNK)))
    if len(runs) == 1 and runs[0][2] == len(line):
        return line.reshape(like.shape)
    parts = [line[place - begin * CHUNK : place - begin * CHUNK + length] for _, place, length in runs]
    return torch.cat(parts).reshape(like.shape)


def run(units: list[StepTensors], stage: int, noise: Noise) -> None:
    """All passes of a stage. After each, p·p of all units is added up over the processes at once."""
    passes = [unit.recipe.stages[stage].passes if stage < len(unit.recipe.stages) else () for unit in units]
    owns = [unit.alone() for unit in units]
    alike = [own.alike() for own in owns]
    for k in range(max(map(len, passes), default=0)):
        moving = [i for i, of_unit in enumerate(passes) if k < len(of_unit)]
        reading = []
        for i in moving:
            one = passes[i][k]
            for group in alike[i]:
                group.xi = units[i].xi
                run_pass(one, group, noise)
            if READ in units[i].recipe.encoded[one.first : one.stop, 0]:
                reading.append(i)
        for i, kinetic in zip(reading, _sums_of_squares([owns[i] for i in reading]), strict=True):
            units[i].kinetic = kinetic
        for i in moving:
            for place in range(passes[i][k].stop, passes[i][k].end):
                _move_friction(units[i], place, noise)


def run_pass(one: StepPass, unit: StepTensors, noise: Noise) -> None:
    """The operations of a pass on tensors that share a row and a step."""
    for place in range(one.first, one.stop):
        kind, use, offset = unit.recipe.encoded[place].tolist()
        c = unit.table[unit.rows[0], place].tolist()
        step = unit.steps[0] + offset
        if kind == READ:  # at the end, of all tensors
            continue
        amplitude = _amplitude(kind, c, unit) if use >= 0 else 0.0
        R = _noise_of(unit, step, use, noise) if amplitude != 0 else []
        _act(kind, c, unit, R, amplitude)


def _noise_of(unit: StepTensors, step: int, use: int, noise: Noise) -> list[Tensor]:
    """Numbers for the tensors of a unit; those of a shard are the ones it would have in the whole."""
    address = unit.p, unit.seed, step, use, unit.first, unit.number
    return noise(*address, unit.shards) if unit.sharded else noise(*address)


def _move_friction(unit: StepTensors, place: int, noise: Noise) -> None:
    """An operation on ξ, with the coefficients of the tensor that was stepped most often."""
    kind, use, offset = unit.recipe.encoded[place].tolist()
    c = unit.table[max(unit.rows), place].tolist()
    if kind == THERMOSTAT:
        target = c[1] if c[1] >= 0 else unit.root_tau**2
        share = 1.0 / unit.size if c[2] > 0 else 1.0
        unit.xi += c[0] * share * (unit.kinetic - unit.size * target)
    else:
        one = [torch.zeros(1, dtype=torch.float64)]
        (R,) = noise(one, unit.seed, unit.steps[0] + offset, use, unit.first[:1], unit.number)
        unit.xi = c[0] * unit.xi + c[1] * (c[2] if c[2] >= 0 else unit.root_tau) * float(R)


def _amplitude(kind: int, c: list[float], unit: StepTensors) -> float:
    """What the noise of an operation is multiplied by."""
    if kind == S:
        return c[1] * (c[2] if c[2] >= 0 else unit.root_tau)
    if kind == F:
        x = 2.0 * c[0] * unit.xi
        return c[1] * math.sqrt(-math.expm1(-x) / x if x != 0 else 1.0)
    return c[2]  # of DESCEND


def _act(kind: int, c: list[float], unit: StepTensors, R: list[Tensor], amplitude: float) -> None:
    theta, p, g = unit.theta, unit.p, unit.gradient
    if kind == A:
        torch._foreach_add_(theta, p, alpha=c[0])
    elif kind == B:
        if c[0] != 0:
            torch._foreach_add_(p, g, alpha=c[0])
        if c[1] != 0:
            torch._foreach_add_(p, theta, alpha=-c[1])
    elif kind in (S, C, F):
        factor = c[0] if kind == S else math.exp(-c[0] * unit.xi)
        if factor != 1:
            torch._foreach_mul_(p, factor)
        if R:
            torch._foreach_add_(p, R, alpha=amplitude)
    elif kind == DESCEND:
        if c[1] != 0:
            torch._foreach_mul_(theta, 1.0 - c[1])
        torch._foreach_add_(theta, g, alpha=c[0])
        if R:
            torch._foreach_add_(theta, R, alpha=amplitude)
    elif kind == ADAM:
        _adam(unit, c)
    else:
        raise AssertionError(f"no operation {kind}")


def _adam(unit: StepTensors, c: list[float]) -> None:
    rate, beta1, beta2, eps, decay, forgetting = c
    count = unit.steps[0] + 1
    unbias1, unbias2 = 1 - beta1**count, 1 - forgetting**count
    torch._foreach_mul_(unit.p, beta1)
    torch._foreach_add_(unit.p, unit.gradient, alpha=1 - beta1)
    torch._foreach_mul_(unit.second, beta2)
    torch._foreach_addcmul_(unit.second, unit.gradient, unit.gradient, value=1 - beta2)
    root = torch._foreach_sqrt(torch._foreach_div(unit.second, unbias2))
    torch._foreach_add_(root, eps)
    if decay != 0:
        torch._foreach_mul_(unit.theta, 1.0 - decay)
    torch._foreach_addcdiv_(unit.theta, unit.p, root, value=rate / unbias1)


def _sums_of_squares(units: list[StepTensors]) -> list[float]:
    """p·p of whole tensors of each unit, in double across them."""
    norms = [torch._foreach_norm(unit.p) for unit in units]
    squares = [[norm.double().square() for norm in of_unit] for of_unit in norms]
    return whole_sums(squares, [unit.shards for unit in units])
