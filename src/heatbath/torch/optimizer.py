"""The optimiser: a method for each param group, to the letter a `torch.optim.Optimizer`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from heatbath.checks import whole
from heatbath.diagnostics import Blocks, Estimate
from heatbath.engine.program import GRADIENT, TEMPER
from heatbath.methods import Adam, Frozen
from heatbath.torch import plain, tempering, values
from heatbath.torch.fused import Fused, can_be_fused
from heatbath.torch.recipes import Recipe, check_closure, recipe
from heatbath.torch.units import Unit

HALF = (torch.float16, torch.bfloat16)
WORDING = ("word", "friction", "thermostat", "kinetic", "kind")  # what a recipe depends on beside numbers


class Partitioned(Optimizer):
    """A method for each param group: `Partitioned([{"params": ..., "method": Langevin(...)}, ...], lr)`.

    A step closes the step of the word that is under way and opens the next, both with the gradient at hand
    (see `splitting.Rotation`); a parameter's first step has nothing to close. Of a word that is seen at the
    kick, the parameters given are taken for those at the kick. Words that need several gradients, and
    simulated tempering, need `step(closure)`; for tempering the closure returns the loss of all data.

    - `lr`: the stepsize h, a number or one of our schedules; schedulers of torch may change it.
    - `seed`: of the noise, which is a function of (seed, step, element): torch's generators are not touched.
    - `fused`: compiled code on the CPU (float32, float64, contiguous). None: wherever possible.
    - `maximize`: climb instead of descending.

    Groups hold plain values: the name of the method, its coefficients, which may be changed at any time, ξ
    and the number of steps. Momenta of parameters in half precision are in float32, with a float32 copy of
    the parameter beside them.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any,
        *,
        seed: int = 0,
        fused: bool | None = None,
        maximize: bool = False,
    ) -> None:
        if not isinstance(fused, bool | None):
            raise TypeError(f"fused must be True, False or None, got {fused!r}")
        if not isinstance(maximize, bool):
            raise TypeError(f"maximize must be True or False, got {maximize!r}")
        self._forget()
        self.forget_past()
        seed = whole("seed", seed, low=0, high=2**64)
        super().__init__(params, {"lr": lr, "seed": seed, "fused": fused, "maximize": maximize})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a part: a dict with "params" and "method"; it has a ξ of its own."""
        if not isinstance(param_group, dict) or "method" not in param_group:
            given = ", ".join(map(repr, param_group)) if isinstance(param_group, dict) else repr(param_group)
            raise ValueError(
                'every group needs "params" and a "method", as in {"params": layer.parameters(), "method": '
                f"heatbath.Langevin(gamma=1.0, tau=1e-5)}}; got {given}"
            )
        if param_group.get("differentiable"):
            raise ValueError("differentiable=True is not supported: steps are made in place")
        made = values.to_values(param_group["method"], param_group.get("lr", self.defaults["lr"]))
        steps = max((group["step"] for group in self.param_groups), default=0)
        super().add_param_group(param_group | made | {"step": steps})
        group = self.param_groups[-1]
        if group.get("thermostat") == "tensor":
            group["xi"] = [group["xi"]] * len(group["params"])
        self._forget()

    def __repr__(self) -> str:
        lines = []
        for group in self.param_groups:
            count = sum(parameter.numel() for parameter in group["params"])
            shown = {
                key: group["schedules"].get(key, group[key]) for key in values.coefficients(group["method"])
            }
            told = ", ".join(
                f"{key}={value}" for key, value in shown.items() if key != "weight_decay" or value
            )
            name = ": ".join(str(group[key]) for key in ("part", "name") if key in group)
            lines.append(
                f"  {name or 'part'}: {group['method']}({told}), {count} parameters, lr={group['lr']}"
            )
        return "\n".join([f"{type(self).__name__}(", *lines, ")"])

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._forget()
        self.forget_past()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As in torch; the float32 momenta and copies of half-precision parameters stay float32."""
        super().load_state_dict(state_dict)
        saved = [index for group in state_dict["param_groups"] for index in group["params"]]
        own = [parameter for group in self.param_groups for parameter in group["params"]]
        for index, parameter in zip(saved, own, strict=True):
            for name, value in state_dict["state"].get(index, {}).items():
                if parameter.dtype in HALF and isinstance(value, Tensor):
                    self.state[parameter][name] = value.to(parameter.device, torch.float32, copy=True)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Make a step with the gradients at hand, or with those that the closure makes."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        groups = [group for group in self.param_groups if group["method"] != Frozen.__name__]
        for group in groups:
            values.follow_schedules(group)
        recipes = [self._recipe(group) for group in groups]
        check_closure(recipes, closure)
        parts = [self._units(group, own) for group, own in zip(groups, recipes, strict=True)]
        move = tempering.move(groups, recipes, loss)
        taken = False  # the first gradient is at hand
        for stage in range(max((len(own.stages) for own in recipes), default=0)):
            begins = [own.stages[stage].begins if stage < len(own.stages) else None for own in recipes]
            if GRADIENT in begins:
                if taken:
                    assert closure is not None
                    with torch.enable_grad():
                        closure()
                    self._renew(groups, parts)
                taken = True
            for group, units, begin in zip(groups, parts, begins, strict=True):
                if begin == TEMPER and move:
                    tempering.carry_out(move, group, units)
            self._advance(groups, parts, stage)
        for group, units in zip(groups, parts, strict=True):
            self._finish(group, units)
            self._note(group, units)
        return loss

    def temperature(self) -> dict[str, Estimate]:
        """The kinetic temperature p·p/N of every part, where its thermostat reads it, since `forget_past`.

        A mean over steps with its standard error, correlation taken into account: compare it with τ.
        """
        return {self._label(group): blocks[0].estimate() for group, blocks in self._read()}

    def friction(self) -> dict[str, Estimate]:
        """The mean friction of every part: ξ where it is adaptive, γ elsewhere."""
        return {
            self._label(group): blocks[1].estimate()
            if "xi" in group
            else Estimate(float(group.get("gamma", math.nan)), 0.0)
            for group, blocks in self._read()
        }

    def gradient_noise(self) -> dict[str, Estimate]:
        """The variance of the noise of the gradient that an adaptive part has found, per parameter.

        In the limit of small stepsizes the mean of ξ is (h s² + σ²)/(2τ), with the friction of the map.
        """
        found = {}
        for group, blocks in self._read():
            if "xi" in group:
                scale = group["epsilon"] if group["friction"] == "sde" else 1.0
                mean, error = blocks[1].estimate()
                h, tau = group["lr"], group["tau"]
                found[self._label(group)] = Estimate(
                    (2 * tau * scale * mean - group["sigma"] ** 2) / h, 2 * tau * scale * error / h
                )
        return found

    def forget_past(self) -> None:
        """Begin the means of `temperature`, `friction` and `gradient_noise` anew, after a burn-in."""
        self._past: dict[int, tuple[Blocks, Blocks]] = {}

    # A step in pieces

    def _read(self) -> list[tuple[dict[str, Any], tuple[Blocks, Blocks]]]:
        """The groups whose temperature has been read, with what was noted."""
        return [(group, self._past[i]) for i, group in enumerate(self.param_groups) if i in self._past]

    def _label(self, group: dict[str, Any]) -> str:
        place = next(i for i, other in enumerate(self.param_groups) if other is group)
        return str(group.get("name", group.get("part", place)))

    def _note(self, group: dict[str, Any], units: list[Unit]) -> None:
        """Add this step to the means."""
        if not units or min(unit.kinetic for unit in units) < 0:
            return
        place = next(i for i, other in enumerate(self.param_groups) if other is group)
        heat, friction = self._past.setdefault(place, (Blocks(), Blocks()))
        size = sum(unit.size for unit in units)
        heat.add(sum(unit.kinetic for unit in units) / size)
        friction.add(sum(unit.xi * unit.size for unit in units) / size)

    def _forget(self) -> None:
        """Forget all that is only kept to save time."""
        self._fused = Fused()
        self._recipes: dict[int, tuple[Any, Recipe]] = {}
        self._places: dict[int, list[int]] = {}

    def _recipe(self, group: dict[str, Any]) -> Recipe:
        now = values.current(group)
        before = now if group["previous"] is None else tuple(group["previous"])
        ladder = group["schedules"].get("tau")
        key = group["method"], now, before, group["maximize"], str(ladder), *map(group.get, WORDING)
        known = self._recipes.get(id(group))
        if known is None or known[0] != key:
            changing = values.to_partition(group, before, now)
            steady = changing if before == now else values.to_partition(group, now, now)
            known = self._recipes[id(group)] = key, recipe(changing, steady, group["maximize"])
        return known[1]

    def _units(self, group: dict[str, Any], own: Recipe) -> list[Unit]:
        """The tensors of a group that have a gradient, one unit for each ξ."""
        places = self._first_elements(group)
        ladder = values.ladder(group)
        root = math.sqrt(ladder.ladder[group["rung"]]) if ladder else 1.0
        per_tensor = group.get("thermostat") == "tensor"
        made: list[Unit] = []
        for i, parameter in enumerate(group["params"]):
            if parameter.grad is None or not parameter.numel():
                continue
            state = self.state[parameter]
            if not state:
                _start(group, parameter, state)
            if not made or per_tensor:
                xi = group["xi"][i] if per_tensor else group.get("xi", 0.0)
                made.append(Unit(own, [], [], [], [], [], [], xi, root, group["seed"], group["step"]))
            unit = made[-1]
            unit.theta.append(state.get("copy", parameter))
            unit.p.append(state["momentum"])
            unit.gradient.append(_gradient(parameter))
            if "second" in state:
                unit.second.append(state["second"])
            unit.first.append(places[i])
            unit.rows.append(min(state["step"], 1))
        return made

    def _first_elements(self, group: dict[str, Any]) -> list[int]:
        """Where the tensors of a group begin in the numbering of the noise: over all groups, in order."""
        if not self._places:
            position = 0
            for other in self.param_groups:
                self._places[id(other)] = []
                for parameter in other["params"]:
                    self._places[id(other)].append(position)
                    position += parameter.numel()
        return self._places[id(group)]

    def _renew(self, groups: list[dict[str, Any]], parts: list[list[Unit]]) -> None:
        """Take the gradients that a closure has made in the middle of a step."""
        for group, units in zip(groups, parts, strict=True):
            stepped = [p for p in group["params"] if p.numel() and self.state[p]]
            if any(p.grad is None for p in stepped):
                raise RuntimeError("the closure must make the same gradients every time within a step")
            gradients = iter(map(_gradient, stepped))
            for unit in units:
                unit.gradient = [next(gradients) for _ in unit.theta]

    def _advance(self, groups: list[dict[str, Any]], parts: list[list[Unit]], stage: int) -> None:
        """The passes of a stage, in compiled code where that is possible."""
        compiled: dict[torch.dtype, list[Unit]] = {}
        for group, units in zip(groups, parts, strict=True):
            kinds = {tensor.dtype for unit in units for tensor in unit.theta}
            able = len(kinds) == 1 and all(
                can_be_fused(tensor)
                for unit in units
                for tensors in (unit.theta, unit.p, unit.gradient)
                for tensor in tensors
            )
            if group["fused"] and units and not able:
                raise RuntimeError(
                    "fused=True needs parameters and gradients on the CPU, contiguous, float32 or float64, "
                    "of one type in each group; with fused=None it is used where that is possible"
                )
            if group["fused"] is not False and able:
                compiled.setdefault(kinds.pop(), []).extend(units)
            else:
                for unit in units:
                    plain.run(unit, stage, self._noise)
        for together in compiled.values():
            self._fused.run(together, stage)

    _noise = staticmethod(plain.drawn)

    def _finish(self, group: dict[str, Any], units: list[Unit]) -> None:
        """Note what the step has left, and tell autograd that the parameters have changed."""
        group["previous"] = list(values.current(group))
        group["step"] += 1
        stepped = [i for i, p in enumerate(group["params"]) if p.grad is not None and p.numel()]
        for i in stepped:
            parameter = group["params"][i]
            state = self.state[parameter]
            state["step"] += 1
            if "copy" in state:
                parameter.copy_(state["copy"])
        if group.get("thermostat") == "tensor":
            for i, unit in zip(stepped, units, strict=True):
                group["xi"][i] = unit.xi
        elif "xi" in group and units:
            group["xi"] = units[0].xi
        if stepped:
            torch.autograd.graph.increment_version([group["params"][i] for i in stepped])


def _start(group: dict[str, Any], parameter: Tensor, state: dict[str, Any]) -> None:
    """The state of a parameter before its first step."""
    kind = torch.float32 if parameter.dtype in HALF else parameter.dtype
    state["step"] = 0
    state["momentum"] = torch.zeros_like(parameter, dtype=kind)
    if parameter.dtype in HALF:
        state["copy"] = parameter.detach().to(kind, copy=True)
    if group["method"] == Adam.__name__:
        state["second"] = torch.zeros_like(parameter, dtype=kind)


def _gradient(parameter: Tensor) -> Tensor:
    gradient = parameter.grad
    assert gradient is not None
    if gradient.is_sparse or gradient.is_complex():
        kind = "sparse" if gradient.is_sparse else "complex"
        raise RuntimeError(f"{kind} gradients are not supported: use dense gradients of real parameters")
    return gradient.float() if parameter.dtype in HALF else gradient
