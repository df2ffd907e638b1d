"""The optimiser: a method for each param group, to the letter a `torch.optim.Optimizer`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from heatbath.checks import NON_NEGATIVE, real, whole
from heatbath.engine.program import GRADIENT, TEMPER
from heatbath.methods import coefficients, find_method
from heatbath.schedules import Value
from heatbath.statistics import Estimate
from heatbath.torch import posteriors, tempering, unfused, values
from heatbath.torch.fused import Fused, can_be_fused
from heatbath.torch.observations import Observations
from heatbath.torch.posteriors import Posterior
from heatbath.torch.recipes import Recipe, Table, check_closure, recipe
from heatbath.torch.units import HALF, TENSORS, Unit, is_lazy, prepare


class Cooked(NamedTuple):
    """The recipe of a group with its coefficients, and what they were made from."""

    wording: tuple[Any, ...]
    values: tuple[Any, ...]
    recipe: Recipe
    table: Table


@dataclass
class Part:
    """A group in a step: its recipe, its units, and whether compiled code steps it."""

    place: int
    group: dict[str, Any]
    recipe: Recipe
    units: list[Unit]
    fused: bool


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
    - `posterior`: sets the temperatures and priors of all groups, see `Posterior`.

    Groups hold plain values: the name of the method, its coefficients, ξ and the number of steps.
    Coefficients and the word may be changed at any time; those on a schedule follow it, until it is taken out
    of `group["schedules"]`. A group may have coefficients of its own beside its method's:
    `{"params": ..., "method": ..., "weight_decay": 0.1}`. A parameter without a gradient is skipped; when it
    has one again, its last step is closed with the coefficients of its group's last step. Momenta of
    parameters in half precision are in float32, with a float32 copy of the parameter beside them.
    """

    def __init__(
        self,
        params: Iterable[dict[str, Any]],
        lr: Value,
        *,
        seed: int = 0,
        fused: bool | None = None,
        maximize: bool = False,
        posterior: Posterior | None = None,
    ) -> None:
        self._forget()
        self.forget_past()
        options = {"lr": lr, "seed": seed, "fused": fused, "maximize": maximize}
        _check_options(options)
        posteriors.check(posterior)
        if posterior is not None:
            groups = [_checked_group(group) for group in params]
            params = posteriors.settle(posterior, groups, list(map(values.method_of, groups)))
        super().__init__(params, options)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a part: a dict with "params" and "method"; it has a ξ of its own."""
        _checked_group(param_group)
        if param_group.get("differentiable"):
            raise ValueError("differentiable=True is not supported: steps are made in place")
        _check_options(self.defaults | param_group)
        new_group = values.to_values(param_group, param_group.get("lr", self.defaults["lr"]))
        steps = max((group["step"] for group in self.param_groups), default=0)
        shared = self.param_groups[0] if self.param_groups else {}
        noise = {key: shared[key] for key in ("noise", "draws", "drawn") if key in shared}
        new_group = param_group | new_group | {"step": steps} | noise
        tempering.check_ladders([*self.param_groups, new_group])
        super().add_param_group(new_group)
        group = self.param_groups[-1]
        if values.per_tensor(group):
            group["xi"] = [group["xi"]] * len(group["params"])
        self._forget()

    def __repr__(self) -> str:
        lines = []
        for group in self.param_groups:
            lazy = any(map(is_lazy, group["params"]))
            count = "?" if lazy else sum(parameter.numel() for parameter in group["params"])
            shown = {
                key: group["schedules"].get(key, group[key])
                for key in coefficients(find_method(group["method"]))
            }
            text = ", ".join(
                f"{key}={value}" for key, value in shown.items() if key != "weight_decay" or value
            )
            name = ": ".join(str(group[key]) for key in ("part", "name") if key in group)
            noise = f", noise={group['noise']:g}" if "noise" in group else ""
            lines.append(
                f"  {name or 'part'}: {group['method']}({text}), {count} parameters, lr={group['lr']}{noise}"
            )
        return "\n".join([f"{type(self).__name__}(", *lines, ")"])

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._forget()
        self.forget_past()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As in torch; the float32 momenta and copies of half-precision parameters stay float32."""
        if not all("method" in group for group in state_dict["param_groups"]):
            raise ValueError("this is the state of another kind of optimiser: its groups have no 'method'")
        saved = [index for group in state_dict["param_groups"] for index in group["params"]]
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        for index, parameter in zip(saved, parameters, strict=False):
            for name, value in state_dict["state"].get(index, {}).items():
                if name in TENSORS and not is_lazy(parameter) and value.shape != parameter.shape:
                    raise ValueError(
                        f"the {name} of parameter {index} has shape {tuple(value.shape)}, and the parameter "
                        f"has {tuple(parameter.shape)}: this is the state of another model"
                    )
        super().load_state_dict(state_dict)
        for index, parameter in zip(saved, parameters, strict=True):
            for name, value in state_dict["state"].get(index, {}).items():
                if parameter.dtype in HALF and isinstance(value, Tensor):
                    self.state[parameter][name] = value.to(parameter.device, torch.float32, copy=True)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Make a step with the gradients at hand, or with those that the closure makes.

        In a compiled function it runs as it is, outside of the compiled regions.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        parts = self._parts()
        recipes = [part.recipe for part in parts]
        check_closure(recipes, closure)
        move = tempering.move([part.group for part in parts], recipes, loss)
        taken = False  # the first gradient is at hand
        for stage in range(max((len(each.stages) for each in recipes), default=0)):
            begins = [each.stages[stage].begins if stage < len(each.stages) else None for each in recipes]
            if GRADIENT in begins:
                if taken:
                    assert closure is not None
                    units = [unit for part in parts for unit in part.units]
                    for unit in units:
                        unit.publish()
                    with torch.enable_grad():
                        closure()
                    for unit in units:
                        unit.renew_gradients()
                taken = True
            for part, begin in zip(parts, begins, strict=True):
                if begin == TEMPER and move:
                    tempering.carry_out(move, part.group, part.units)
            self._advance(parts, stage)
        for part in parts:
            self._finish(part)
            self._observations.note(part.place, part.group, part.units)
        posteriors.check_drawn(self.param_groups[0])
        return loss

    @property
    def noise(self) -> float:
        """The variance of the data around the model's values, as it was last drawn."""
        self._check_noise()
        return float(self.param_groups[0]["noise"])

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    @torch.no_grad()
    def draw_noise(
        self, residuals: Tensor | Iterable[Tensor], weights: Tensor | Iterable[Tensor] | None = None
    ) -> float:
        """Draw the variance of the data from its law given the model as it is, and go on with it.

        `residuals` are those of all training examples, what is true less what the model says: a tensor, or
        one for each batch, such as `(model(x) - y for x, y in loader)`. `weights` are those of the examples,
        where they have some: a tensor, or one for each batch. How often does not change the law.
        """
        self._check_noise()
        posteriors.check_words(values.to_method(group, values.current(group)) for group in self.param_groups)
        variance = posteriors.draw(self.param_groups[0], residuals, weights)
        for group in self.param_groups:
            group["noise"] = variance
            group["drawn"] += 1
        return variance

    def temperature(self) -> dict[str, Estimate]:
        """The kinetic temperature p·p/N of every part, where its thermostat reads it, since `forget_past`.

        A mean over steps with its standard error, correlation taken into account: compare it with τ. Copies
        of the optimiser begin anew.
        """
        return self._observations.means("temperature", self.param_groups)

    def friction(self) -> dict[str, Estimate]:
        """The mean friction of every part: ξ where it is adaptive, γ elsewhere."""
        return self._observations.means("friction", self.param_groups)

    def gradient_noise(self) -> dict[str, Estimate]:
        """The variance of the noise of the gradient that an adaptive part has found, per parameter.

        In the limit of small stepsizes the mean of ξ is (h s² + σ²)/(2τ), with the friction of the map.
        """
        return self._observations.means("gradient noise", self.param_groups)

    def forget_past(self) -> None:
        """Begin the means of `temperature`, `friction` and `gradient_noise` anew, after a burn-in."""
        self._observations = Observations()

    def _check_noise(self) -> None:
        if "noise" not in self.param_groups[0]:
            raise ValueError(
                "no noise is drawn here: that needs posterior=Posterior('mse_loss', n) with noise='sampled'"
            )

    # A step in pieces

    def _forget(self) -> None:
        """Forget all that is only kept to save time."""
        self._fused = Fused()
        self._cooked: dict[int, Cooked] = {}
        self._places: list[list[int]] = []

    def _parts(self) -> list[Part]:
        """The groups that move, with all that the step needs of them; nothing has moved yet."""
        parts = []
        for place, group in enumerate(self.param_groups):
            values.follow_schedules(group)
            cooked = self._cook(place, group)
            if not len(cooked.recipe.encoded):
                continue
            units = self._units(group, cooked, self._first_elements()[place])
            parts.append(Part(place, group, cooked.recipe, units, _fuses(group, units)))
        return parts

    def _cook(self, place: int, group: dict[str, Any]) -> Cooked:
        """The recipe of a group and its coefficients, which are made anew only where they have changed."""
        now = values.current(group)
        before = now if group["previous"] is None else tuple(group["previous"])
        wording, key = values.wording(group), (now, before, group["maximize"])
        known = self._cooked.get(place)
        if known is not None and known.wording != wording:
            known = None
        if known is not None and known.values == key:
            return known
        if known is not None and known.values[0][1:] == now[1:] == before[1:]:  # a scheduler at work
            real("lr", now[0], NON_NEGATIVE)
            chosen = known.recipe
        else:
            values.check(group)
            method = values.to_method(group, now)
            chosen = recipe(method) if known is None else known.recipe
        table = chosen.table(values.named(group, before), values.named(group, now), group["maximize"])
        self._cooked[place] = Cooked(wording, key, chosen, table)
        return self._cooked[place]

    def _units(self, group: dict[str, Any], cooked: Cooked, places: list[int]) -> list[Unit]:
        """The tensors of a group that have a gradient, one unit for each ξ."""
        ladder = values.ladder(group)
        root = math.sqrt(ladder.ladder[group["rung"]]) if ladder else 1.0
        per_tensor = values.per_tensor(group)
        units: list[Unit] = []
        for i, parameter in enumerate(group["params"]):
            if parameter.grad is None or not parameter.numel():
                continue
            state = self.state[parameter]
            prepare(group, parameter, state)
            if not units or per_tensor:
                xi = group["xi"][i] if per_tensor else group.get("xi", 0.0)
                units.append(Unit(cooked.recipe, cooked.table, xi, root, group["seed"], group["step"]))
            units[-1].add(group, parameter, state, places[i])
        return units

    def _first_elements(self) -> list[list[int]]:
        """Where the tensors of the groups begin in the numbering of the noise: over all groups, in order."""
        if self._places:
            return self._places
        position, lazy = 0, False
        places: list[list[int]] = []
        for group in self.param_groups:
            places.append([])
            for parameter in group["params"]:
                places[-1].append(position)
                lazy |= is_lazy(parameter)
                position += 0 if is_lazy(parameter) else parameter.numel()
        self._places = [] if lazy else places
        return places

    def _advance(self, parts: list[Part], stage: int) -> None:
        """The passes of a stage."""
        together: dict[Any, list[Unit]] = {}
        for part in parts:
            for unit in part.units:
                if part.fused:
                    together.setdefault((unit.theta[0].dtype, unit.seed, unit.step), []).append(unit)
                else:
                    unfused.run(unit, stage, self._noise)
        for units in together.values():
            self._fused.run(units, stage)

    _noise = staticmethod(unfused.drawn)

    def _finish(self, part: Part) -> None:
        """Note what the step has left."""
        group = part.group
        group["previous"] = list(values.current(group))
        group["step"] += 1
        for unit in part.units:
            unit.publish()
            for parameter in unit.parameters:
                self.state[parameter]["step"] += 1
        if values.per_tensor(group):
            place = {id(parameter): i for i, parameter in enumerate(group["params"])}
            for unit in part.units:
                group["xi"][place[id(unit.parameters[0])]] = unit.xi
        elif "xi" in group and part.units:
            group["xi"] = part.units[0].xi


def _checked_group(group: Any) -> dict[str, Any]:
    """A group that has a method."""
    if not isinstance(group, dict) or "method" not in group:
        given = ", ".join(map(repr, group)) if isinstance(group, dict) else repr(group)
        raise ValueError(
            'every group needs "params" and a "method", as in {"params": layer.parameters(), "method": '
            f"heatbath.Langevin(gamma=1.0, tau=1e-5)}}; got {given}"
        )
    return group


def _check_options(options: dict[str, Any]) -> None:
    """Refuse a seed or a switch that is none."""
    whole("seed", options["seed"], low=0, high=2**64)
    if not isinstance(options["fused"], bool | None):
        raise TypeError(f"fused must be True, False or None, got {options['fused']!r}")
    if not isinstance(options["maximize"], bool):
        raise TypeError(f"maximize must be True or False, got {options['maximize']!r}")


def _fuses(group: dict[str, Any], units: list[Unit]) -> bool:
    """Whether compiled code steps a group."""
    if group["fused"] is False or not units:
        return False
    kind = units[0].theta[0].dtype
    able = all(
        can_be_fused(theta, kind) and all(can_be_fused(t, kind) and t.shape == theta.shape for t in others)
        for unit in units
        for theta, *others in zip(
            unit.theta, unit.p, unit.gradient, *filter(None, [unit.second]), strict=True
        )
    )
    if group["fused"] and not able:
        raise RuntimeError(
            "fused=True needs parameters and gradients on the CPU, contiguous, float32 or float64, "
            "of one type in each group; with fused=None it is used where that is possible"
        )
    return able
