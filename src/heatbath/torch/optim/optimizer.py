"""The optimiser: a method for each param group, to the letter a `torch.optim.Optimizer`."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from heatbath._internal.checks import NON_NEGATIVE, POSITIVE, real, shown
from heatbath._internal.warnings import DivergedWarning, warn
from heatbath.diagnostics.statistics import Estimate
from heatbath.engine.program import GRADIENT, TEMPER
from heatbath.methods import coefficients, find_method
from heatbath.methods.schedules import Value
from heatbath.torch.optim import (
    layers,
    param_groups,
    seeds,
    sharding,
    simulated_tempering,
    stability,
    torch_step,
)
from heatbath.torch.optim import posterior as posteriors
from heatbath.torch.optim.chains import recognised, stacked
from heatbath.torch.optim.numba_step import Fused
from heatbath.torch.optim.options import Defaults, check_options, checked_group
from heatbath.torch.optim.posterior import LossPosterior
from heatbath.torch.optim.sharding import Shard
from heatbath.torch.optim.state import HALF, TENSORS, StepTensors, is_lazy, prepare
from heatbath.torch.optim.step_parts import (
    Cooked,
    StepPart,
    by_chain,
    chains_in_words,
    count_chains,
    fuses,
    of_chain,
    only_prepares,
)
from heatbath.torch.optim.step_program import check_closure, recipe
from heatbath.torch.optim.temperature import SELDOM, Observations, Temperature, labels, mean_heat, pooled
from heatbath.torch.optim.undo import Undo


class Partitioned(Optimizer):
    """A method for each param group: `Partitioned([{"params": ..., "method": Langevin(...)}, ...], lr)`.

    A step closes the step of the word that is under way and opens the next, both with the gradient at hand
    (see `splitting.Rotation`); a parameter's first step has nothing to close. Of a word that is seen at the
    kick, the parameters given are taken for those at the kick. Words that need several gradients, and
    simulated tempering, need `step(closure)`; for tempering the closure returns the loss of all data.

    - `lr`: the stepsize h, a number, a tensor of one element, or one of our schedules; schedulers of torch
      may change it.
    - `seed`: of the noise, which is a function of (seed, step, element): torch's generators are not touched.
      None: made of the seed of torch's generator and of how many optimisers there were before, so that each
      has noise of its own; processes that train one model together take that of the first at the first step.
    - `fused`: compiled code on the CPU (float32, float64, contiguous). None: wherever possible.
    - `maximize`: climb instead of descending.
    - `posterior`: sets the temperatures and priors of all groups, see `Posterior`.
    - `foreach`, `capturable`, `differentiable`: those of torch, for frameworks that pass them. `foreach`
      changes nothing here, and the others are refused where they are True.
    - `chain`: a number in the noise, so that several optimisers of one seed are independent.

    The parameters of a `Chains` are many chains, each of which moves as it would alone with its number: see
    there.

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
        seed: int | None = None,
        fused: bool | None = None,
        maximize: bool = False,
        posterior: LossPosterior | None = None,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        chain: int = 0,
    ) -> None:
        self._apart = sharding.maker()
        self._forget()
        self._given: list[int] = []
        self._diverged: dict[int, tuple[int, str]] = {}
        self.forget_past()
        options = {
            "lr": lr,
            "seed": seeds.made() if seed is None else seed,
            "agreed": seed is not None,
            "fused": fused,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": differentiable,
            "chain": chain,
            "chains": None,
        }
        check_options(options)
        posteriors.check(posterior)
        params = recognised(params)
        if posterior is not None:
            groups = [checked_group(group) for group in params]
            params = posteriors.settle(posterior, groups, list(map(param_groups.method_of, groups)))
        params = stacked(params)
        super().__init__(params, Defaults(options))
        if self._apart is not None:
            self._apart.check(self.param_groups)
        stability.check(self.param_groups)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a part: a dict with "params" and "method"; it has a ξ of its own."""
        (param_group,) = stacked(recognised([checked_group(param_group)]))
        own = {"agreed": True} if param_group.get("seed") is not None else {"seed": self.defaults["seed"]}
        param_group = param_group | own
        check_options(self.defaults | param_group)
        new_group = param_groups.to_values(param_group, param_group.get("lr", self.defaults["lr"]))
        steps = max((group["step"] for group in self.param_groups), default=0)
        shared = self.param_groups[0] if self.param_groups else {}
        noise = {key: shared[key] for key in ("n", "heat", "noise", "draws", "drawn") if key in shared}
        new_group = param_group | new_group | {"step": steps} | noise
        simulated_tempering.check_ladders([*self.param_groups, new_group])
        if shared and new_group.get("chains") != shared["chains"]:
            raise ValueError(
                f"all groups have the same chains: {shared['chains'] or 'one'} in the first, "
                f"{new_group.get('chains') or 'one'} in another"
            )
        super().add_param_group(new_group)
        group = self.param_groups[-1]
        if param_groups.per_tensor(group):
            group["xi"] = [group["xi"]] * len(self._members(len(self.param_groups) - 1))
        for key in param_groups.OF_CHAINS if group["chains"] else ():
            if key in group and not (key == "noise" and shared):  # those of the noise are there
                group[key] = [deepcopy(group[key]) for _ in range(group["chains"])]
        for parameter in group["params"]:
            if sharding.shard_of(parameter) is not None and group["chains"]:
                raise RuntimeError(sharding.CHAINS)
        self._given += map(id, group["params"])
        self._forget()

    def __repr__(self) -> str:
        lines = []
        for group in self.param_groups:
            count = count_chains(group["params"])
            shown = {
                key: group["schedules"].get(key, group[key])
                for key in coefficients(find_method(group["method"]))
            }
            idle = param_groups.to_method(group, param_groups.current(param_groups.of_chain(group, 0))).idle
            text = ", ".join(f"{key}={value}" for key, value in shown.items() if key not in idle)
            h = float(group["lr"])
            name = ": ".join(str(group[key]) for key in ("part", "name") if key in group)
            noise = f", noise={param_groups.of_chain(group, 0)['noise']:g}" if "noise" in group else ""
            many = f" of {group['chains']} chains" if group["chains"] else ""
            lines.append(f"  {name or 'part'}: {group['method']}({text}), {count}{many}, lr={h}{noise}")
        return "\n".join([f"{type(self).__name__}(", *lines, ")"])

    def __getstate__(self) -> dict[str, Any]:
        if self._apart is not None:
            raise RuntimeError(
                "an optimiser within ZeroRedundancyOptimizer cannot be copied without it: use state_dict()"
            )
        state: dict[str, Any] = super().__getstate__()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            param_groups.complete(group)
        self._forget()
        self._given = []
        self._diverged = {}
        self.forget_past()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As in torch; the float32 momenta and copies of half-precision parameters stay float32.

        What a state of an earlier version lacks has its default.
        """
        hooks = self._optimizer_load_state_dict_pre_hooks, self._optimizer_load_state_dict_post_hooks
        state_dict = state_dict.copy()
        for before in hooks[0].values():
            changed = before(self, state_dict)
            state_dict = state_dict if changed is None else changed
        saved = self._checked_state(state_dict)
        try:  # hooks after the load are to see the float32 values
            self._optimizer_load_state_dict_pre_hooks = OrderedDict()
            self._optimizer_load_state_dict_post_hooks = OrderedDict()
            super().load_state_dict(state_dict)
        finally:
            self._optimizer_load_state_dict_pre_hooks, self._optimizer_load_state_dict_post_hooks = hooks
        for parameter, state in saved:
            for name in TENSORS:
                if parameter.dtype in HALF and name in state:
                    self.state[parameter][name] = state[name].to(parameter.device, torch.float32, copy=True)
        if len(loaded := {group["seed"] for group in self.param_groups}) == 1:  # that of groups to come
            self.defaults |= {"seed": loaded.pop(), "agreed": self.param_groups[0]["agreed"]}
        for after in hooks[1].values():
            after(self)

    def _checked_state(self, state_dict: dict[str, Any]) -> list[tuple[Tensor, dict[str, Any]]]:
        """The state of every parameter in a state that is of such an optimiser, for such parameters."""
        if not all("method" in group for group in state_dict["param_groups"]):
            raise ValueError("this is the state of another kind of optimiser: its groups have no 'method'")
        sizes = [len(group["params"]) for group in state_dict["param_groups"]]
        if sizes != [len(group["params"]) for group in self.param_groups]:
            return []  # torch will say so
        for group, own in zip(state_dict["param_groups"], self.param_groups, strict=True):
            if group.get("chains") != own["chains"]:
                raise ValueError(
                    f"this is the state of {chains_in_words(group.get('chains'))}, and these are "
                    f"{chains_in_words(own['chains'])}"
                )
        saved = [index for group in state_dict["param_groups"] for index in group["params"]]
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        states = [state_dict["state"].get(index, {}) for index in saved]
        for index, parameter, state in zip(saved, parameters, states, strict=True):
            for name in TENSORS:
                if name in state and not is_lazy(parameter) and state[name].shape != parameter.shape:
                    raise ValueError(
                        f"the {name} of parameter {index} has shape {tuple(state[name].shape)}, and the "
                        f"parameter has {tuple(parameter.shape)}: this is the state of another model"
                    )
        return list(zip(parameters, states, strict=True))

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
        undo = Undo(self) if closure is not None else None
        parts = self._parts()
        recipes = [part.recipe for part in parts]
        check_closure(recipes, closure, moves=any(part.group["lr"] != 0 for part in parts))
        if any(map(only_prepares, parts)):
            parts = [part for part in parts if not only_prepares(part)]
            recipes = [part.recipe for part in parts]
        if self._apart is not None and any(each.gradients > 1 for each in recipes):
            raise RuntimeError(
                "a word of several gradients is not supported within ZeroRedundancyOptimizer, which sends "
                "what was stepped to the other processes at the end of a step only"
            )
        move = (
            simulated_tempering.move([part.group for part in parts], recipes, loss)
            if closure is not None
            else None
        )
        for part in parts:
            for number, group, units in by_chain(part):
                self._observations.setdefault(number, Observations()).look(part.place, group, units)
        if undo is not None and any(each.gradients > 1 for each in recipes):
            undo.keep(parts)
        try:
            self._carry_out(parts, move, closure)
        except BaseException:
            if undo is not None:
                undo.put_back()
            raise
        for part in parts:
            self._finish(part)
            for number, group, units in by_chain(part):
                self._observations[number].note(part.place, group, units)
                if number not in self._diverged and any(map(_is_lost, units)):
                    self._diverged[number] = part.group["step"] - 1, labels(self.param_groups)[part.place]
        posteriors.check_drawn(self.param_groups[0])
        return loss

    def _carry_out(
        self, parts: list[StepPart], move: simulated_tempering.Move | None, closure: Callable[[], Any] | None
    ) -> None:
        """The stages of a step, with a gradient from the closure wherever a further one is needed."""
        recipes = [part.recipe for part in parts]
        taken = False  # the first gradient is at hand
        for stage in range(max((len(each.stages) for each in recipes), default=0)):
            begins = [each.stages[stage].begins if stage < len(each.stages) else None for each in recipes]
            if GRADIENT in begins:
                if taken and closure is not None:
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
                    simulated_tempering.carry_out(move, part.group, part.units)
            self._advance(parts, stage)

    @property
    def noise(self) -> float | list[float]:
        """The variance of the data around the model's values, as it was last drawn; of several chains one of
        each."""
        self._check_noise()
        now: float | list[float] = self.param_groups[0]["noise"]
        return list(now) if isinstance(now, list) else float(now)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    @torch.no_grad()
    def draw_noise(
        self, residuals: Tensor | Iterable[Tensor], weights: Tensor | Iterable[Tensor] | None = None
    ) -> float | list[float]:
        """Draw the variance of the data from its law given the model as it is, and go on with it.

        `residuals` are those of all training examples, what is true less what the model says: a tensor, or
        one for each batch, such as `(model(x) - y for x, y in loader)`. `weights` are those of the examples,
        where they have some: a tensor, or one for each batch. How often does not change the law. Of several
        chains the residuals have the chain as their first axis, and each has a variance of its own; that of a
        chain that diverged stays.
        """
        self._check_noise()
        self._agree()
        first = [param_groups.of_chain(group, 0) for group in self.param_groups]
        posteriors.check_words(param_groups.to_method(group, param_groups.current(group)) for group in first)
        drawn = posteriors.draw(self.param_groups[0], residuals, weights)
        for group in self.param_groups:
            group["noise"] = list(drawn) if group["chains"] else drawn[0]
            group["drawn"] += 1
        return self.noise

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    @torch.no_grad()
    def set_examples(self, n: float) -> None:
        """Go on with the posterior of n examples, where there are more by now, or fewer count: see `Stream`.

        Temperatures and priors are multiplied by the n that there was over the new one, momenta by its root,
        and adaptive parts keep the law of their thermostats. The law of a noise that is sampled follows.
        """
        n = real("n", n, POSITIVE)
        if not all("n" in group for group in self.param_groups):
            raise ValueError(
                "how many examples there are means something to a posterior with the mean of a loss alone: "
                "make the optimiser with posterior=Posterior(..., n=1), and reduction='mean'"
            )
        for group in self.param_groups:
            factor = posteriors.set_examples(group, n)
            states = (self.state.get(parameter, {}) for parameter in group["params"])
            momenta = [state["momentum"] for state in states if "momentum" in state]
            if factor != 1 and momenta:
                torch._foreach_mul_(momenta, factor)

    def temperature(self, chain: int | None = None) -> dict[str, Temperature]:
        """The kinetic temperature p·p/N of every part, where its thermostat reads it, since `forget_past`,
        and the configurational one θ·∇L/N beside it.

        Means over steps with their standard errors, correlation taken into account: compare them with τ; of
        an adaptive part only the configurational one tells. Copies of the optimiser begin anew. Of several
        chains it is the mean over all that have not diverged (`DivergedWarning` warns of the others), or
        that of the one with this number.
        """
        every = [seen.temperatures(self.param_groups) for seen in self._seen(chain)]
        return {part: mean_heat([each[part] for each in every]) for part in (every[0] if every else ())}

    @property
    def diverged(self) -> dict[int, tuple[int, str]]:
        """The chains whose momenta or ξ are not finite any more, by their numbers: the step at which that was
        first seen here, and the part. The others go on, and means are theirs. Of several chains with a method
        whose temperature is not read, such as SGLD and Adam, it is the parameters, at every eighth step."""
        return dict(self._diverged)

    def friction(self, chain: int | None = None) -> dict[str, Estimate]:
        """The mean friction of every part: ξ where it is adaptive, γ elsewhere."""
        return self._means("friction", chain)

    def gradient_noise(self, chain: int | None = None) -> dict[str, Estimate]:
        """The variance of the noise of the gradient that an adaptive part has found, per parameter.

        In the limit of small stepsizes the mean of ξ is (h s² + σ²)/(2τ), with the friction of the map.
        """
        return self._means("gradient noise", chain)

    def _means(self, series: str, chain: int | None) -> dict[str, Estimate]:
        every = [seen.means(series, self.param_groups) for seen in self._seen(chain)]
        return {part: pooled([each[part] for each in every]) for part in (every[0] if every else ())}

    def _seen(self, chain: int | None) -> list[Observations]:
        """What was seen of a chain, or of all."""
        if chain is not None and self._observations and chain not in self._observations:
            raise ValueError(f"chain must be one of {list(self._observations)}, got {shown(chain)}")
        if chain is None and self._diverged and len(self._observations) > 1:
            chains = [f"{k} (at step {step}, in {part!r})" for k, (step, part) in self._diverged.items()]
            some = ", ".join(chains[:5])
            warn(f"chains diverged and are left out: {some}; a smaller lr may help", DivergedWarning)
        return [seen for number, seen in self._observations.items() if chain in (None, number)]

    def forget_past(self) -> None:
        """Begin the means of `temperature`, `friction` and `gradient_noise` anew, after a burn-in."""
        self._observations: dict[int, Observations] = {}  # by the number of the chain

    def _check_noise(self) -> None:
        if "noise" not in self.param_groups[0]:
            raise ValueError(
                "no noise is drawn here: that needs posterior=Posterior('mse_loss', n) with noise='sampled'"
            )

    # A step in pieces

    _compared = False  # whether the seeds are known to be those of the same parameters in all processes
    _order: layers.CallOrder | None = None  # of a module whose last layer was taken for the output layer
    _apart: sharding.Apart | None = None  # where a wrapper has given each process some of the parameters

    def _members(self, place: int) -> list[Tensor]:
        """The parameters of a group, in all processes."""
        members: list[Tensor] = self.param_groups[place]["params"]
        return members if self._apart is None else self._apart.members(place)

    def _forget(self) -> None:
        """Forget all that is only kept to save time."""
        self._fused = Fused()
        self._cooked: dict[tuple[int, int], Cooked] = {}  # by group and chain
        self._swinging: set[tuple[int, int]] = set()  # thermostats of which was said that they are unstable
        self._places: list[list[int]] = []
        self._shards: list[list[Shard | None]] = []

    def _parts(self) -> list[StepPart]:
        """The groups that move, with all that the step needs of them; nothing has moved yet."""
        places = self._first_elements()
        self._agree()
        if self._order is not None and self._order.is_seen(any(g["lr"] != 0 for g in self.param_groups)):
            self._order = None
        parts = []
        for place, group in enumerate(self.param_groups):
            param_groups.follow_schedules(group)
            cooked = self._cook((place, 0), param_groups.of_chain(group, 0))
            if not len(cooked.recipe.encoded):
                continue
            first = self._units(place, param_groups.of_chain(group, 0), cooked, places[place])
            units = list(first)
            for k in range(1, param_groups.chain_count(group)):
                own = param_groups.of_chain(group, k)
                if "noise" in group:
                    cooked = self._cook((place, k), own)
                units += [of_chain(unit, own, cooked, k) for unit in first]
            parts.append(StepPart(place, group, cooked.recipe, units, fuses(group, units)))
        return parts

    def _agree(self) -> None:
        """See that all processes have the same seeds, where they were made here, and that those that were
        given are not those of other parameters elsewhere."""
        if open_groups := [group for group in self.param_groups if not group["agreed"]]:
            every = [p for place in range(len(self.param_groups)) for p in self._members(place)]
            seeds.agree(self.param_groups, every)
            self.defaults |= {"seed": open_groups[0]["seed"], "agreed": True}
        elif not self._compared:
            seeds.compare(self.param_groups, list(map(self._members, range(len(self.param_groups)))))
        self._compared = True

    def _cook(self, place: tuple[int, int], group: dict[str, Any]) -> Cooked:
        """The recipe of a group and its coefficients, which are made anew only where they have changed."""
        now = param_groups.current(group)
        before = now if group["previous"] is None else tuple(group["previous"])
        wording, key = param_groups.wording(group), (now, before, group["maximize"])
        known = self._cooked.get(place)
        if known is not None and known.wording != wording:
            known = None
        if known is not None and known.values == key:
            return known
        if known is not None and known.values[0][1:] == now[1:] == before[1:]:  # a scheduler at work
            real("lr", now[0], NON_NEGATIVE)
            chosen = known.recipe
        else:
            param_groups.check(group)
            method = param_groups.to_method(group, now)
            chosen = recipe(method) if known is None else known.recipe
        table = chosen.table(
            param_groups.named(group, before), param_groups.named(group, now), group["maximize"]
        )
        self._cooked[place] = Cooked(wording, key, chosen, table)
        if place not in self._swinging and stability.warn(group, chosen.method):
            self._swinging.add(place)
        return self._cooked[place]

    def _units(
        self, place: int, group: dict[str, Any], cooked: Cooked, firsts: list[int]
    ) -> list[StepTensors]:
        """The tensors of a group that have a gradient, one unit for each ξ: those of the first chain."""
        ladder = param_groups.ladder(group)
        root = math.sqrt(ladder.ladder[group["rung"]]) if ladder else 1.0
        per_tensor = param_groups.per_tensor(group)
        units: list[StepTensors] = []
        for i, (parameter, shard) in enumerate(zip(self._members(place), self._shards[place], strict=True)):
            if parameter.grad is None or not parameter.numel():
                continue
            if self._apart is not None and shard is not None and not shard.runs:
                parameter, state = self._apart.stand_in(parameter, group["step"])
            else:
                state = self.state[parameter]
            prepare(group, parameter, state)
            if not units or per_tensor:
                xi = group["xi"][i] if per_tensor else group.get("xi", 0.0)
                units.append(StepTensors(cooked.recipe, cooked.table, xi, root, group["seed"], group["step"]))
                units[-1].number, units[-1].chains = group["chain"], param_groups.chain_count(group)
                units[-1].index = i
            units[-1].add(group, parameter, state, firsts[i], shard)
        return units

    def _first_elements(self) -> list[list[int]]:
        """Where the tensors of the groups begin in the numbering of the noise: over all groups, in order."""
        if self._places:
            return self._places
        if seeds.processes() > 1:
            sharding.check_replaced(self._given, [p for group in self.param_groups for p in group["params"]])
        position, lazy = 0, False
        places: list[list[int]] = []
        self._shards = list(map(self._shards_of, range(len(self.param_groups))))
        sharded = sharding.check_groups([shard for group in self._shards for shard in group])
        if sharded and any(map(param_groups.ladder, self.param_groups)):
            raise RuntimeError(
                "simulated tempering of sharded parameters is not supported: use another schedule"
            )
        for place, group in enumerate(self.param_groups):
            places.append([])
            for parameter in self._members(place):
                places[-1].append(position)
                lazy |= is_lazy(parameter)
                position += 0 if is_lazy(parameter) else parameter.numel() // param_groups.chain_count(group)
        self._places = [] if lazy else places
        return places

    def _shards_of(self, place: int) -> list[Shard | None]:
        """Where the parameters of a group lie."""
        if self._apart is None:
            return list(map(sharding.shard_of, self.param_groups[place]["params"]))
        here = set(self.param_groups[place]["params"])
        return [self._apart.shard_of(parameter, parameter in here) for parameter in self._members(place)]

    def _advance(self, parts: list[StepPart], stage: int) -> None:
        """The passes of a stage."""
        together: dict[Any, list[StepTensors]] = {}
        plain: list[StepTensors] = []
        for part in parts:
            for unit in part.units:
                if unit.theta[0].is_meta:  # there is nothing to move
                    continue
                if part.fused:
                    together.setdefault((unit.theta[0].dtype, unit.seed, unit.step), []).append(unit)
                else:
                    plain.append(unit)
        torch_step.run(plain, stage, self._noise)
        for units in together.values():
            self._fused.run(units, stage)

    _noise = staticmethod(torch_step.drawn)

    def _finish(self, part: StepPart) -> None:
        """Note what the step has left."""
        group = part.group
        if "noise" in group and group["chains"]:
            every = (param_groups.of_chain(group, k) for k in range(group["chains"]))
            group["previous"] = [list(param_groups.current(own)) for own in every]
        else:
            group["previous"] = list(param_groups.current(group))
        group["step"] += 1
        for unit in part.units:
            unit.publish()
            for state in unit.states if unit.is_first else ():
                state["step"] += 1
        if self._apart is not None:
            self._apart.moved = True
        if "xi" not in group:
            return
        for unit in part.units:
            if param_groups.per_tensor(group):
                param_groups.of_chain(group, unit.place)["xi"][unit.index] = unit.xi
            elif group["chains"]:
                group["xi"][unit.place] = unit.xi
            else:
                group["xi"] = unit.xi


def _is_lost(unit: StepTensors) -> bool:
    """Whether a chain is seen not to be finite any more: by p·p and ξ, or where p·p is never read by θ
    itself, at every eighth step, if there are others that go on."""
    if unit.kinetic < 0 and unit.chains > 1 and unit.step % SELDOM == 0 and not unit.theta[0].is_meta:
        return not all(bool(theta.isfinite().all()) for theta in unit.alone().theta)
    return not math.isfinite(unit.kinetic) or not math.isfinite(unit.xi)
