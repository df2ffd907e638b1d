"""The methods and partitions by name: one class each, as `torch.optim` has them."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from heatbath import methods
from heatbath.methods import Method, find_method
from heatbath.schedules import from_plain
from heatbath.torch import layers
from heatbath.torch.optimizer import Partitioned


class _Everywhere(Partitioned):
    """One method for all parameters: a module, its parameters, or groups of them (each then a part)."""

    def _spread(self, params: object, method: Method, lr: Any, **options: Any) -> None:
        given = layers.flat(params)
        if not all(isinstance(entry, dict) for entry in given):
            given = [{"params": given}]
        super().__init__([{"method": method, **group} for group in given], lr, **options)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a part; without a "method" it has that of the first part, as it is now."""
        if isinstance(param_group, dict) and "method" not in param_group and self.param_groups:
            param_group = _as_in(self.param_groups[0]) | param_group
        super().add_param_group(param_group)


def _as_in(group: dict[str, Any]) -> dict[str, Any]:
    """The method of a group, with its coefficients as they are now."""
    names = [field.name for field in fields(find_method(group["method"])) if field.name != "xi"]
    plain = {name: group["schedules"].get(name, group[name]) for name in names}
    return {"method": group["method"]} | {
        name: from_plain(value) if isinstance(value, dict) else value for name, value in plain.items()
    }


class Langevin(_Everywhere):
    """dθ = p dt, dp = -∇L dt - γ p dt + sqrt(2γτ) dW: samples exp(-L/τ). See `heatbath.Langevin`."""

    def __init__(
        self, params: Any, lr: Any, gamma: Any, tau: Any, word: str = "BAOAB", weight_decay: Any = 0.0,
        *, seed: int = 0, fused: bool | None = None, maximize: bool = False,
    ) -> None:  # fmt: skip
        method = methods.Langevin(gamma, tau, word, weight_decay)
        self._spread(params, method, lr, seed=seed, fused=fused, maximize=maximize)


class AdaptiveLangevin(_Everywhere):
    """Langevin dynamics whose friction ξ finds itself, whatever noise the gradient has.

    See `heatbath.AdaptiveLangevin`.
    """

    def __init__(
        self, params: Any, lr: Any, tau: Any, sigma: Any, epsilon: Any, word: str = "BACDEDCAB",
        xi: float = 0.1, friction: Any = "map", thermostat: Any = "part", kinetic: Any = "sum",
        weight_decay: Any = 0.0,
        *, seed: int = 0, fused: bool | None = None, maximize: bool = False,
    ) -> None:  # fmt: skip
        method = methods.AdaptiveLangevin(
            tau, sigma, epsilon, word, xi, friction, thermostat, kinetic, weight_decay
        )
        self._spread(params, method, lr, seed=seed, fused=fused, maximize=maximize)


class SGLD(_Everywhere):
    """θ += -h ∇L + σ sqrt(h) R: samples exp(-2L/σ²) to first order in h. See `heatbath.SGLD`."""

    def __init__(
        self, params: Any, lr: Any, sigma: Any, weight_decay: Any = 0.0,
        *, seed: int = 0, fused: bool | None = None, maximize: bool = False,
    ) -> None:  # fmt: skip
        method = methods.SGLD(sigma, weight_decay)
        self._spread(params, method, lr, seed=seed, fused=fused, maximize=maximize)


class _Layered(Partitioned):
    """One method for the hidden layers, each a part of its own, another for the output layer.

    The layers are found in a module (those of its modules that own parameters, in order), in
    `named_parameters()`, or given by `hidden=` and `output=`, or by groups with a "part". `repr` shows them.
    """

    def _split(
        self, model: Any, hidden: Any, output: Any, own: dict[str, Method], lr: Any, **options: Any
    ) -> None:
        groups = layers.split(model, hidden, output)
        super().__init__([{"method": own[group["part"]], **group} for group in groups], lr, **options)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a layer; without a "method", that of the layers with the same "part", as it is now."""
        if isinstance(param_group, dict) and "method" not in param_group and self.param_groups:
            (param_group,) = layers.checked_parts([param_group])
            like = next(group for group in self.param_groups if group["part"] == param_group["part"])
            param_group = _as_in(like) | param_group
        super().add_param_group(param_group)


class LaLa(_Layered):
    """Langevin in layers: other coefficients for the output layer. See `heatbath.LaLa`."""

    def __init__(
        self, model: Any = None, *, lr: Any, gamma: Any, tau: Any, gamma_output: Any = None,
        tau_output: Any = None, hidden: Any = None, output: Any = None, weight_decay: Any = 0.0,
        seed: int = 0, fused: bool | None = None, maximize: bool = False,
    ) -> None:  # fmt: skip
        own: dict[str, Method] = {
            "hidden": methods.Langevin(gamma, tau, weight_decay=weight_decay),
            "output": methods.Langevin(
                gamma if gamma_output is None else gamma_output,
                tau if tau_output is None else tau_output,
                weight_decay=weight_decay,
            ),
        }
        self._split(model, hidden, output, own, lr, seed=seed, fused=fused, maximize=maximize)


class LOL(_Layered):
    """Langevin in the hidden layers, overdamped Langevin in the output layer. See `heatbath.LOL`."""

    def __init__(
        self, model: Any = None, *, lr: Any = 0.1, gamma: Any = 0.01, tau: Any = 1e-3, tau_output: Any = 0.0,
        hidden: Any = None, output: Any = None, weight_decay: Any = 0.0,
        seed: int = 0, fused: bool | None = None, maximize: bool = False,
    ) -> None:  # fmt: skip
        own: dict[str, Method] = {
            "hidden": methods.Langevin(gamma, tau, weight_decay=weight_decay),
            "output": methods.Langevin(float("inf"), tau_output, weight_decay=weight_decay),
        }
        self._split(model, hidden, output, own, lr, seed=seed, fused=fused, maximize=maximize)


class AdLaLa(_Layered):
    """Adaptive Langevin in the hidden layers, Langevin in the output layer. See `heatbath.AdLaLa`."""

    def __init__(
        self, model: Any = None, *, lr: Any = 0.15, tau: Any = 1e-4, sigma: Any = 0.01, epsilon: Any = 0.1,
        gamma: Any = 0.1, tau_output: Any = None, hidden: Any = None, output: Any = None,
        weight_decay: Any = 0.0, seed: int = 0, fused: bool | None = None, maximize: bool = False,
    ) -> None:  # fmt: skip
        own: dict[str, Method] = {
            "hidden": methods.AdaptiveLangevin(tau, sigma, epsilon, weight_decay=weight_decay),
            "output": methods.Langevin(
                gamma, tau if tau_output is None else tau_output, weight_decay=weight_decay
            ),
        }
        self._split(model, hidden, output, own, lr, seed=seed, fused=fused, maximize=maximize)
