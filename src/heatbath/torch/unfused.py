"""A step in plain torch operations: for any device, type and layout."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable

import torch
from torch import Tensor

from heatbath.operations import ADAM, DESCEND, READ, THERMOSTAT, A, B, C, F, S
from heatbath.torch.recipes import Pass
from heatbath.torch.shards import Shard, whole_sum
from heatbath.torch.units import Unit

CHUNK = 2**14  # elements of a sharded parameter whose numbers are drawn at a time

Noise = Callable[[list[Tensor], int, int, int, list[int], int], list[Tensor]]


def drawn(
    like: list[Tensor], seed: int, step: int, use: int, first: list[int], chain: int = 0
) -> list[Tensor]:
    """Standard normal numbers for tensors: a function of where they are used.

    Generators on the CPU look at 32 bits of their seed: it counts the steps from a number that is scrambled
    from all else, so that no two steps have the same.
    """
    chosen = f" {chain}" if chain else ""
    address = hashlib.sha256(f"{seed} {use} {first[0]}{chosen}".encode()).digest()
    start = (int.from_bytes(address[:8], "little") + step) % 2**63
    generators = {device: torch.Generator(device) for device in {tensor.device for tensor in like}}
    for generator in generators.values():
        generator.manual_seed(start)
    return [torch.empty_like(t).normal_(generator=generators[t.device]) for t in like]


def run(unit: Unit, stage: int, noise: Noise) -> None:
    """All passes of a stage."""
    passes = unit.recipe.stages[stage].passes if stage < len(unit.recipe.stages) else ()
    own = unit.alone()
    alike = own.alike()
    for one in passes:
        for group in alike:
            group.xi = unit.xi
        for group in alike:
            run_pass(one, group, noise)
        if READ in unit.recipe.encoded[one.first : one.stop, 0]:
            unit.kinetic = _sum_of_squares(own)
        for place in range(one.stop, one.end):
            _move_friction(unit, place, noise)


def run_pass(one: Pass, unit: Unit, noise: Noise) -> None:
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


def _noise_of(unit: Unit, step: int, use: int, noise: Noise) -> list[Tensor]:
    """Numbers for the tensors of a unit; those of a shard are the ones it would have in the whole."""
    if not unit.sharded:
        return noise(unit.p, unit.seed, step, use, unit.first, unit.number)
    return [
        noise([p], unit.seed, step, use, [first], unit.number)[0]
        if shard is None
        else _drawn_for(shard, p, unit.seed, step, use, first, unit.number)
        for p, first, shard in zip(unit.p, unit.first, unit.shards, strict=True)
    ]


def _drawn_for(shard: Shard, like: Tensor, seed: int, step: int, use: int, first: int, chain: int) -> Tensor:
    """Numbers for the block of a parameter that is here: drawn by chunks of the whole, as far as needed."""
    runs = shard.runs
    if not runs:
        return torch.empty_like(like)
    begin, end = runs[0][1] // CHUNK, (runs[-1][1] + runs[-1][2] - 1) // CHUNK + 1
    chunk = like.new_empty(CHUNK)
    numbers = [drawn([chunk], seed, step, use, [first + k * CHUNK], chain)[0] for k in range(begin, end)]
    line = torch.cat(numbers)
    parts = [line[place - begin * CHUNK : place - begin * CHUNK + length] for _, place, length in runs]
    return torch.cat(parts).reshape(like.shape)


def _move_friction(unit: Unit, place: int, noise: Noise) -> None:
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


def _amplitude(kind: int, c: list[float], unit: Unit) -> float:
    """What the noise of an operation is multiplied by."""
    if kind == S:
        return c[1] * (c[2] if c[2] >= 0 else unit.root_tau)
    if kind == F:
        x = 2.0 * c[0] * unit.xi
        return c[1] * math.sqrt(-math.expm1(-x) / x if x != 0 else 1.0)
    return c[2]  # of DESCEND


def _act(kind: int, c: list[float], unit: Unit, R: list[Tensor], amplitude: float) -> None:
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


def _adam(unit: Unit, c: list[float]) -> None:
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


def _sum_of_squares(unit: Unit) -> float:
    """p·p of whole tensors, in double across them."""
    norms = torch._foreach_norm(unit.p)
    return whole_sum([norm.double().square() for norm in norms], unit.shards)
