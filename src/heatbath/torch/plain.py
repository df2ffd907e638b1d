"""A step in plain torch operations: for any device, type and layout."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable

import torch
from torch import Tensor

from heatbath.engine.program import ADAM, DESCEND, READ, A, B, C, F, S
from heatbath.torch.recipes import Pass
from heatbath.torch.units import Unit

Noise = Callable[[Tensor, int, int, int, int], Tensor]


def drawn(like: Tensor, seed: int, step: int, use: int, first: int) -> Tensor:
    """Standard normal numbers for a tensor: a function of where they are used."""
    address = hashlib.sha256(f"{seed} {step} {use} {first}".encode()).digest()
    generator = torch.Generator(like.device)
    generator.manual_seed(int.from_bytes(address[:8], "little", signed=True))
    return torch.empty_like(like).normal_(generator=generator)


def run(unit: Unit, stage: int, noise: Noise) -> None:
    """All passes of a stage."""
    passes = unit.recipe.stages[stage].passes if stage < len(unit.recipe.stages) else ()
    rows = sorted(set(unit.rows))
    for one in passes:
        squares = [run_pass(one, unit.with_row(row), row, noise) for row in rows]
        read = [value for value in squares if value is not None]
        unit.kinetic = sum(read) if read else unit.kinetic
        if one.thermostat >= 0:
            rate, tau, mean = unit.recipe.table[max(rows), one.thermostat, :3].tolist()
            target = tau if tau >= 0 else unit.root_tau**2
            share = 1.0 / unit.size if mean > 0 else 1.0
            unit.xi += rate * share * (unit.kinetic - unit.size * target)


def run_pass(one: Pass, unit: Unit, row: int, noise: Noise) -> float | None:
    """The operations of a pass on tensors that share a row; p·p if it is read."""
    read = None
    for place in range(one.first, one.stop):
        kind, use, offset = unit.recipe.operations[place].tolist()
        c = unit.recipe.table[row, place].tolist()
        step = unit.step + offset
        if kind == READ:
            read = _sum_of_squares(unit.p)
            continue
        amplitude = _amplitude(kind, c, unit) if use >= 0 else 0.0
        R = [
            noise(p, unit.seed, step, use, first) for p, first in zip(unit.p, unit.first, strict=True)
        ] if amplitude != 0 else []  # fmt: skip
        _act(kind, c, unit, R, amplitude)
    return read


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


def _adam(unit: Unit, c: list[float]) -> None:
    rate, beta1, beta2, eps, decay = c[:5]
    torch._foreach_mul_(unit.p, beta1)
    torch._foreach_add_(unit.p, unit.gradient, alpha=1 - beta1)
    torch._foreach_mul_(unit.second, beta2)
    torch._foreach_addcmul_(unit.second, unit.gradient, unit.gradient, value=1 - beta2)
    root = torch._foreach_sqrt(torch._foreach_div(unit.second, 1 - beta2 ** (unit.step + 1)))
    torch._foreach_add_(root, eps)
    if decay != 0:
        torch._foreach_mul_(unit.theta, 1.0 - decay)
    torch._foreach_addcdiv_(unit.theta, unit.p, root, value=rate / (1 - beta1 ** (unit.step + 1)))


def _sum_of_squares(tensors: list[Tensor]) -> float:
    """p·p, in double across tensors."""
    norms = torch._foreach_norm(tensors)
    return float(torch.stack([norm.double().square() for norm in norms]).sum())
