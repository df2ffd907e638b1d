"""Checks of new param groups and of the options that all optimisers have."""

from __future__ import annotations

from heatbath._internal.checks import shown, whole
from heatbath.torch.optim.param_groups import NewGroup, PlainValues

REPLACED = {"frequency": "epsilon", "damping": "sigma"}  # coefficients, and those they take the place of
UNSUPPORTED = {  # options of torch's optimisers, with the reason
    "capturable": "a step reads numbers on the host, which a graph cannot capture",
    "differentiable": "steps change parameters in place",
}


def check_has_method(group: NewGroup) -> NewGroup:
    """Return a new group unchanged, if it is a dict with a method; refuse anything else."""
    if isinstance(group, dict) and "method" in group:
        return group
    received = ", ".join(map(repr, group)) if isinstance(group, dict) else shown(group)
    raise ValueError(
        'every group needs "params" and a "method", as in {"params": layer.parameters(), "method": '
        f"heatbath.Langevin(gamma=1.0, tau=1e-5)}}; got {received}"
    )


def check_options(options: PlainValues) -> None:
    """Refuse a seed, a chain or a switch with a wrong value, and features of torch that are not supported.

    Parameters
    ----------
    options : dict
        Values of seed, chain, chains, fused, maximize, foreach, capturable and differentiable.

    Raises
    ------
    TypeError
        If a switch is not a truth value.
    ValueError
        If a number is out of its range, or if capturable or differentiable is true.
    RuntimeError
        If both fused and foreach are true.
    """
    whole("seed", options["seed"], low=0, high=2**64)
    whole("chain", options["chain"], low=0, high=2**32 - (options["chains"] or 1))
    for name in ("fused", "foreach"):
        if not isinstance(options[name], bool | None):
            raise TypeError(f"{name} must be True, False or None, got {shown(options[name])}")
    if not isinstance(options["maximize"], bool):
        raise TypeError(f"maximize must be True or False, got {shown(options['maximize'])}")
    if options["fused"] and options["foreach"]:
        raise RuntimeError("`fused` and `foreach` cannot be `True` together: leave foreach out")
    for name, reason in UNSUPPORTED.items():
        if options[name]:
            raise ValueError(f"{name}=True is not supported: {reason}")
