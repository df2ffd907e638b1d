"""Defaults and checks of the options of param groups."""

from __future__ import annotations

import sys
from typing import Any

from heatbath._internal.checks import shown, whole


class Defaults(dict[str, Any]):
    """The options that groups have, unless told. A scheduler that looks for a momentum to cycle is told what
    to do: there is a friction in its place, a mean over steps, or nothing."""

    def __contains__(self, key: object) -> bool:
        if key in ("momentum", "betas") and sys._getframe(1).f_locals.get("cycle_momentum"):
            raise ValueError(
                "these optimisers have no momentum that a scheduler can cycle: pass it cycle_momentum=False"
            )
        return super().__contains__(key)


def checked_group(group: Any) -> dict[str, Any]:
    """A group that has a method."""
    if not isinstance(group, dict) or "method" not in group:
        given = ", ".join(map(repr, group)) if isinstance(group, dict) else shown(group)
        raise ValueError(
            'every group needs "params" and a "method", as in {"params": layer.parameters(), "method": '
            f"heatbath.Langevin(gamma=1.0, tau=1e-5)}}; got {given}"
        )
    return group


def check_options(options: dict[str, Any]) -> None:
    """Refuse a seed or a switch that is none, and what torch's switches ask for and is not there."""
    whole("seed", options["seed"], low=0, high=2**64)
    whole("chain", options["chain"], low=0, high=2**32 - (options["chains"] or 1))
    if not isinstance(options["foreach"], bool | None):
        raise TypeError(f"foreach must be True, False or None, got {shown(options['foreach'])}")
    if options["fused"] and options["foreach"]:
        raise RuntimeError("`fused` and `foreach` cannot be `True` together: leave foreach out")
    if options["capturable"]:
        raise ValueError(
            "capturable=True is not supported: a step reads numbers on the host, so no graph has it"
        )
    if options["differentiable"]:
        raise ValueError("differentiable=True is not supported: steps are made in place")
    if not isinstance(options["fused"], bool | None):
        raise TypeError(f"fused must be True, False or None, got {shown(options['fused'])}")
    if not isinstance(options["maximize"], bool):
        raise TypeError(f"maximize must be True or False, got {shown(options['maximize'])}")
