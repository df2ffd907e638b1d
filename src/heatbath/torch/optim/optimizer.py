"""The optimiser `Partitioned`: a method for each param group, as a `torch.optim.Optimizer`."""

from __future__ import annotations

import math
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from copy import deepcopy
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import StateDict

from heatbath._internal.checks import POSITIVE, real, shown
from heatbath._internal.warnings import DivergedWarning, warn
from heatbath.diagnostics.statistics import Estimate
from heatbath.engine.program import GRADIENT, TEMPER
from heatbath.methods import Method, coefficients, find_method
from heatbath.methods.schedules import Value
from heatbath.torch.optim import param_groups, seeds, sharding, simulated_tempering, stability, torch_step
from heatbath.torch.optim import posterior as posteriors
from heatbath.torch.optim.chains import with_chains, with_stacked_parameters
from heatbath.torch.optim.layers import CallOrder
from heatbath.torch.optim.options import check_has_method, check_options
from heatbath.torch.optim.param_groups import NewGroup, ParamGroup
from heatbath.torch.optim.posterior import LossPosterior
from heatbath.torch.optim.sharding import WrapperShards
from heatbath.torch.optim.state import HALF, NOT_READ, TENSORS, StepTensors, is_lazy
from heatbath.torch.optim.step_parts import StepPart, StepParts, check_closure
from heatbath.torch.optim.temperature import (
    Observations,
    Temperature,
    labels,
    mean_of_chains,
    part_and_name,
)
from heatbath.torch.optim.undo import Undo

if TYPE_CHECKING:
    from torch.distributed.optim import ZeroRedundancyOptimizer

Closure = Callable[[], Any]  # clears the gradients, computes the loss, calls backward() and returns the loss

FINITE_CHECK_EVERY = 8  # steps between looks for chains whose θ is not finite, where p·p is not read
MOST_IN_WARNING = 5  # diverged chains that a warning names
NOISE_KEYS = ("n", "heat", "noise", "draws", "drawn")  # of a posterior, the same in all groups


class Partitioned(Optimizer):
    """An optimiser with a method for each param group.

    It is made as `Partitioned([{"params": ..., "method": Langevin(...)}, ...], lr)`.

    A step closes the step of the word that is under way and opens the next, both with the gradient at hand
    (see `splitting.Rotation`); a parameter's first step has nothing to close. Of a word that is seen at the
    kick, the given parameters are taken for those at the kick. Words that need several gradients, and
    simulated tempering, need `step(closure)`; for tempering the closure returns the loss of all data.

    Parameters
    ----------
    params : iterable of dict
        Param groups with "params" and "method", a `heatbath` method. A group may have coefficients of its own
        beside its method's: `{"params": ..., "method": ..., "weight_decay": 0.1}`. The parameters of a
        `Chains` are many chains, each of which moves as it would alone with its number: see there.
    lr : float, Tensor or schedule
        The stepsize h: a number, a tensor of one element, or a schedule of heatbath. Schedulers of torch may
        change it.
    seed : int, optional
        Seed of the noise, which is a function of (seed, step, element): torch's generators are not touched.
        Without a seed it is made of the seed of torch's generator and of the number of optimisers made
        before, so that each has noise of its own; processes that train one model together take the seed of
        the first process at their first step.
    fused : bool, optional
        Whether compiled code steps CPU tensors (float32, float64, contiguous). None: wherever possible.
    maximize : bool, default False
        Climb instead of descending.
    posterior : LossPosterior, optional
        Sets the temperatures and priors of all groups.
    foreach, capturable, differentiable : bool
        Options of torch, for frameworks that pass them. `foreach` changes nothing, and the others are
        refused where they are True.
    chain : int, default 0
        A number in the noise, so that several optimisers with one seed are independent.

    Notes
    -----
    Groups hold plain values: the name of the method, its coefficients, ξ and the number of steps.
    Coefficients and the word may be changed at any time; those on a schedule follow it, until it is taken out
    of `group["schedules"]`. A parameter without a gradient is skipped; when it has one again, its last step
    is closed with the coefficients of its group's last step. Momenta of parameters in half precision are in
    float32, with a float32 copy of the parameter beside them.

    Examples
    --------
    >>> import torch
    >>> import heatbath as hb
    >>> from heatbath.torch import Partitioned
    >>> hidden, output = torch.nn.Linear(2, 5), torch.nn.Linear(5, 1)
    >>> groups = [
    ...     {"params": hidden.parameters(), "method": hb.AdaptiveLangevin(tau=1e-4)},
    ...     {"params": output.parameters(), "method": hb.Langevin(gamma=0.5, tau=1e-4)},
    ... ]
    >>> optimizer = Partitioned(groups, lr=0.1)
    >>> output(hidden(torch.ones(3, 2)).tanh()).square().mean().backward()
    >>> optimizer.step()
    >>> [group["method"] for group in optimizer.param_groups]
    ['AdaptiveLangevin', 'Langevin']
    """

    param_groups: list[ParamGroup]  # type: ignore[assignment]  # torch has dicts of anything

    _seeds_compared = False  # whether the seeds are known to be those of the same parameters in all processes
    _call_order: CallOrder | None = None  # of a module whose last layer was taken for the output layer
    _wrapper: WrapperShards | None = None  # where a wrapper has divided the parameters over processes
    _draw_normals = staticmethod(torch_step.draw_normals)

    def __init__(
        self,
        params: Iterable[NewGroup],
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
        """Check the options, set a posterior's temperatures and priors, and make the param groups."""
        self._original_ids: list[int] = []  # of all parameters that groups were made with
        self._diverged: dict[int, tuple[int, str]] = {}
        self._parts = StepParts(None, self._original_ids)
        self.forget_past()
        options = {
            "lr": lr,
            "seed": seeds.new_seed() if seed is None else seed,
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
        posteriors.check_posterior(posterior)
        groups = list(map(with_chains, params))
        if posterior is not None:
            groups = [check_has_method(group) for group in groups]
            methods = list(map(param_groups.method_of_new_group, groups))
            groups = posteriors.groups_with_posterior(posterior, groups, methods)
        super().__init__(map(with_stacked_parameters, groups), options)
        stability.check_stable(self.param_groups)

    def sharded_by(self, wrapper: ZeroRedundancyOptimizer) -> None:
        """Tell an optimiser within torch's `ZeroRedundancyOptimizer` which parameters the whole model has.

        The wrapper gives each process some of the parameters. Call this before the first step, and before a
        state is loaded; without it the first step refuses parameters that differ between processes.

        Parameters
        ----------
        wrapper : ZeroRedundancyOptimizer
            The optimiser that has made this one as its `optim`. Its groups are the parts.

        Raises
        ------
        RuntimeError
            If the groups of the wrapper are not those of this optimiser, if there are chains or DTensors, or
            if a step was made already.

        Examples
        --------
        optimizer = ZeroRedundancyOptimizer(model.parameters(), Langevin, lr=0.1, gamma=1.0, tau=1e-4)
        optimizer.optim.sharded_by(optimizer)
        """
        if getattr(wrapper, "optim", None) is not self:
            raise TypeError(
                "sharded_by takes the ZeroRedundancyOptimizer that has made this optimiser, got "
                f"{shown(wrapper)}: call optimizer.optim.sharded_by(optimizer)"
            )
        if any(group["step"] for group in self.param_groups):
            raise RuntimeError("sharded_by must be called before the first step and before a state is loaded")

        shards = WrapperShards(wrapper)
        shards.check(self.param_groups)
        self._wrapper = shards
        self._parts = StepParts(shards, self._original_ids)
        for index, group in enumerate(self.param_groups):
            if param_groups.has_friction_per_tensor(group):
                group["xi"] = group["xi"][:1] * len(shards.members(index))
                wrapper.param_groups[index]["xi"] = group["xi"]

    def add_param_group(self, param_group: NewGroup) -> None:
        """Add a part: a dict with "params" and "method", as in `params`. It has a ξ of its own.

        Its number of steps, and the noise that a posterior draws, are those of the groups before it.

        Parameters
        ----------
        param_group : dict
            The new group. Coefficients and options beside the method replace those of the method and of the
            optimiser.

        Raises
        ------
        ValueError
            If it has no method, another number of chains, or another ladder of temperatures.
        RuntimeError
            If its parameters are sharded in a way that cannot be stepped; then the group isn't added.
        """
        new_group = with_stacked_parameters(with_chains(check_has_method(param_group)))
        if new_group.get("seed") is None:
            new_group = new_group | {"seed": self.defaults["seed"]}
        else:
            new_group = new_group | {"agreed": True}
        check_options(self.defaults | new_group)
        new_group |= param_groups.plain_values(new_group, new_group.get("lr", self.defaults["lr"]))
        if self.param_groups:
            first_group = param_groups.values_of(self.param_groups[0])
            new_group |= {key: first_group[key] for key in NOISE_KEYS if key in first_group}
            new_group["step"] = max(group["step"] for group in self.param_groups)
        simulated_tempering.check_same_ladder([*self.param_groups, cast(ParamGroup, new_group)])
        self._check_chain_count(new_group.get("chains"))

        super().add_param_group(new_group)
        group = self.param_groups[-1]
        self._repeat_values(group)
        try:
            shards = list(map(sharding.shard_of, group["params"]))  # refuses what cannot be stepped
            if group["chains"] and any(shards):
                raise RuntimeError(sharding.SHARDED_CHAINS)
        except RuntimeError:
            self.param_groups.pop()
            raise
        self._original_ids += map(id, group["params"])
        self._parts = StepParts(self._wrapper, self._original_ids)

    def _check_chain_count(self, count: int | None) -> None:
        """Refuse a new group with another number of chains than the first group."""
        if not self.param_groups:
            return
        first_count = self.param_groups[0]["chains"]
        if count != first_count:
            raise ValueError(
                "all groups must have the same number of chains: the first has "
                f"{first_count or 'none'}, a new one has {count or 'none'}"
            )

    def _repeat_values(self, group: ParamGroup) -> None:
        """Repeat ξ of the last group for each tensor that has its own, and values of chains for each chain.

        The group is changed in place.
        """
        if param_groups.has_friction_per_tensor(group):  # at least one, which `sharded_by` repeats
            index = len(self.param_groups) - 1
            tensor_count = len(self._parts.members(self.param_groups, index))
            group["xi"] = [group["xi"]] * max(tensor_count, 1)
        if not group["chains"]:
            return
        values = param_groups.values_of(group)
        for key in param_groups.VALUES_OF_CHAINS:
            is_copied = key == "noise" and len(self.param_groups) > 1  # from the first group, with its chains
            if key in group and not is_copied:
                values[key] = [deepcopy(values[key]) for _ in range(param_groups.chain_count(group))]

    def __repr__(self) -> str:
        return "\n".join([f"{type(self).__name__}(", *map(_describe_group, self.param_groups), ")"])

    def __getstate__(self) -> StateDict:
        if self._wrapper is not None:
            raise RuntimeError(
                "an optimiser within ZeroRedundancyOptimizer cannot be copied without it: use state_dict()"
            )
        state: StateDict = super().__getstate__()
        return state

    def __setstate__(self, state: StateDict) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            param_groups.fill_missing_keys(group)
        self._original_ids = []
        self._parts = StepParts(self._wrapper, self._original_ids)
        self._diverged = {}
        self.forget_past()

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Load a state as torch does; float32 momenta and copies of half-precision parameters stay float32.

        Keys that a state of an earlier version lacks get their defaults. Hooks are called here and not by
        torch, which rounds the state to half precision: those after the load are to see float32.

        Parameters
        ----------
        state_dict : dict
            The result of `state_dict()` of an optimiser with groups and parameters of the same sizes.

        Raises
        ------
        ValueError
            If it is the state of another kind of optimiser, of another model or of other chains.
        """
        pre_hooks = self._optimizer_load_state_dict_pre_hooks
        post_hooks = self._optimizer_load_state_dict_post_hooks
        state_dict = state_dict.copy()
        for pre_hook in pre_hooks.values():
            changed = pre_hook(self, state_dict)
            if changed is not None:
                state_dict = changed

        saved_states = self._match_states(state_dict)
        try:
            self._optimizer_load_state_dict_pre_hooks = OrderedDict()
            self._optimizer_load_state_dict_post_hooks = OrderedDict()
            super().load_state_dict(state_dict)
        finally:
            self._optimizer_load_state_dict_pre_hooks = pre_hooks
            self._optimizer_load_state_dict_post_hooks = post_hooks
        for parameter, state in saved_states:
            if parameter.dtype not in HALF:
                continue
            for name in state.keys() & TENSORS:
                self.state[parameter][name] = state[name].to(parameter.device, torch.float32, copy=True)

        loaded_seeds = {group["seed"] for group in self.param_groups}
        if len(loaded_seeds) == 1:  # groups that are added later get it, too
            self.defaults |= {"seed": loaded_seeds.pop(), "agreed": self.param_groups[0]["agreed"]}
        for post_hook in post_hooks.values():
            post_hook(self)

    def _match_states(self, state_dict: StateDict) -> list[tuple[Tensor, StateDict]]:
        """Return each parameter with its state in a saved state of the optimiser.

        The list is empty if the numbers of groups or parameters differ, which torch refuses with a message of
        its own.

        Raises
        ------
        ValueError
            If the state is that of another kind of optimiser, of another model or of other chains.
        """
        saved_groups = state_dict["param_groups"]
        if not all("method" in saved_group for saved_group in saved_groups):
            raise ValueError("this is the state of another kind of optimiser: its groups have no 'method'")
        saved_sizes = [len(saved_group["params"]) for saved_group in saved_groups]
        if saved_sizes != [len(group["params"]) for group in self.param_groups]:
            return []

        for saved_group, group in zip(saved_groups, self.param_groups, strict=True):
            _check_chains(saved_group, group)
        matched = []
        for saved_group, group in zip(saved_groups, self.param_groups, strict=True):
            for index, parameter in zip(saved_group["params"], group["params"], strict=True):
                state = state_dict["state"].get(index, {})
                if not is_lazy(parameter):
                    _check_shapes(index, parameter, state)
                matched.append((parameter, state))
        return matched

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    @torch.no_grad()
    def step(self, closure: Closure | None = None) -> Any:
        """Make a step with the present gradients, or with those that the closure computes.

        Schedules, ξ, the number of steps and the means of `temperature` follow. If a closure raises in the
        middle of a step, everything is restored. In a compiled function the step runs outside of the compiled
        regions.

        Parameters
        ----------
        closure : callable, optional
            Clears the gradients, computes the loss, calls `backward()` and returns the loss.

        Returns
        -------
        object
            What the closure returned, None without a closure.

        Raises
        ------
        RuntimeError
            If the method needs a closure and there is none, or if tensors cannot be stepped.
        ValueError, TypeError
            If a group has a value that a step cannot use.
        """
        if closure is None:
            parts = self._collect_parts(None)
            self._observe_before_step(parts)
            self._run_stages(parts, None, None)
            self._finish(parts)
            return None

        with torch.enable_grad():
            loss = closure()
        undo = Undo(self)
        parts = self._collect_parts(closure)
        move = simulated_tempering.propose_and_accept(parts, loss)
        self._observe_before_step(parts)
        if any(part.program.gradients > 1 for part in parts):
            undo.copy_tensors(parts)
        try:
            self._run_stages(parts, move, closure)
        except BaseException:
            undo.restore()
            raise
        self._finish(parts)
        return loss

    def _observe_before_step(self, parts: list[StepPart]) -> None:
        """Add what is measured of parts before their step to the means of every chain."""
        for part in parts:
            for chain in part.chains:
                self._observations[chain.number].add_before_step(part.index, chain.group, chain.units)

    def _collect_parts(self, closure: object) -> list[StepPart]:
        """Return the parts that move in this step, with prepared tensors; refuse what a step cannot do."""
        self._parts.number_elements(self.param_groups)
        self._agree_on_seeds()
        if self._call_order is not None:
            moves = any(group["lr"] != 0 for group in self.param_groups)
            if self._call_order.is_confirmed(moves):
                self._call_order = None
        parts = self._parts.collect(self.param_groups, self.state)
        check_closure(parts, closure)
        moving = [part for part in parts if not part.only_prepares()]
        if self._wrapper is not None and any(part.program.gradients > 1 for part in moving):
            raise RuntimeError(
                "a word of several gradients is not supported within ZeroRedundancyOptimizer, which sends "
                "what was stepped to the other processes only at the end of a step"
            )
        return moving

    def _agree_on_seeds(self) -> None:
        """Give all processes the first process's seeds, unless a user has chosen them.

        Chosen seeds are refused if another process uses them for other parameters.
        """
        if self._seeds_compared and all([group["agreed"] for group in self.param_groups]):
            return
        group_indices = range(len(self.param_groups))
        members = [self._parts.members(self.param_groups, index) for index in group_indices]
        not_agreed = [group for group in self.param_groups if not group["agreed"]]
        if not_agreed:
            seeds.agree(self.param_groups, [parameter for params in members for parameter in params])
            self.defaults |= {"seed": not_agreed[0]["seed"], "agreed": True}
        else:
            seeds.compare(self.param_groups, members)
        self._seeds_compared = True

    def _run_stages(
        self, parts: list[StepPart], move: simulated_tempering.Move | None, closure: Closure | None
    ) -> None:
        """Run the stages of a step, in which the parameters of all parts move together.

        Parameters
        ----------
        parts : list of StepPart
            The parts that move.
        move : Move or None
            An accepted tempering move, applied to the tempered parts before the stage that it opens.
        closure : callable or None
            Computes the gradients before every stage that needs them but the first, which has them already.
        """
        gradient_count = 0
        stages_of_parts = zip_longest(*[part.program.stages for part in parts])
        for number, stages in enumerate(stages_of_parts):
            openings = [None if stage is None else stage.kind for stage in stages]
            if GRADIENT in openings:
                gradient_count += 1
                if gradient_count > 1 and closure is not None:
                    self._compute_gradients(parts, closure)
            if move is not None and TEMPER in openings:
                for part, opening in zip(parts, openings, strict=True):
                    if opening == TEMPER:
                        simulated_tempering.apply_move(move, part)
            self._parts.run_stage(parts, number, self._draw_normals)

    def _compute_gradients(self, parts: list[StepPart], closure: Closure) -> None:
        """Let the closure compute the gradients at the parameters as they are in the middle of a step."""
        for part in parts:
            for unit in part.stacked_units:
                unit.write_back()
        with torch.enable_grad():
            closure()
        for part in parts:
            for unit in part.units:
                unit.renew_gradients()

    def _finish(self, parts: list[StepPart]) -> None:
        """Write a step of parts into their groups and states, and record their means and diverged chains."""
        if self._wrapper is not None and parts:
            self._wrapper.stepped = True
        for part in parts:
            part.finish()
            for chain in part.chains:
                self._observations[chain.number].add_after_step(part.index, chain.group, chain.units)
                if chain.number not in self._diverged and _has_diverged(chain.units):
                    label = labels(self.param_groups)[part.index]
                    self._diverged[chain.number] = part.group["step"] - 1, label
        posteriors.warn_if_never_drawn(self.param_groups[0])

    def _method_of_last_step(self, index: int) -> Method:
        """Return the method of a group at its last step; only its choices are those of the group."""
        return self._parts.programs[index, 0].program.method

    @property
    def noise(self) -> float | list[float]:
        """Variance of the data around the model's values as it was last drawn; with chains a list."""
        self._check_draws_noise()
        noise: float | list[float] = self.param_groups[0]["noise"]
        return list(noise) if isinstance(noise, list) else float(noise)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    @torch.no_grad()
    def draw_noise(
        self, residuals: Tensor | Iterable[Tensor], weights: Tensor | Iterable[Tensor] | None = None
    ) -> float | list[float]:
        """Draw the variance of the data from its law given the model as it is, and go on with it.

        The new variance is written into all groups. How often it is drawn does not change the law that is
        sampled.

        Parameters
        ----------
        residuals : Tensor or iterable of Tensor
            Targets less the model's values, of all training examples: a tensor, or one for each batch, such
            as `(model(x) - y for x, y in loader)`. With chains the chain is their first axis.
        weights : Tensor or iterable of Tensor, optional
            Weights of the examples, where they have some: a tensor, or one for each batch.

        Returns
        -------
        float or list of float
            The variance; with chains one for each. That of a chain that has diverged stays as it is.

        Raises
        ------
        ValueError
            If no noise is to be drawn, or if the residuals are not those of all examples, or not finite.
        """
        self._check_draws_noise()
        self._agree_on_seeds()
        first_groups = [param_groups.group_of_chain(group, 0) for group in self.param_groups]
        posteriors.check_words(map(param_groups.build_method, first_groups))
        drawn = posteriors.draw_variance(self.param_groups[0], residuals, weights)
        for group in self.param_groups:
            group["noise"] = list(drawn) if group["chains"] else drawn[0]
            group["drawn"] += 1
        return self.noise

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    @torch.no_grad()
    def set_examples(self, n: float) -> None:
        """Go on with the posterior of n examples, as when more have arrived or fewer count (see `Stream`).

        Temperatures and priors are multiplied by the previous n over the new one, momenta by its root, and
        adaptive parts keep the law of their thermostats. The law of a noise that is sampled follows.
        """
        n = real("n", n, POSITIVE)
        if not all("n" in group for group in self.param_groups):
            raise ValueError(
                "set_examples needs a posterior with the mean of a loss: make the optimiser with "
                "posterior=LossPosterior(..., n=1) and reduction='mean'"
            )
        for group in self.param_groups:
            factor = posteriors.set_examples_of_group(group, n)
            states = [self.state.get(parameter, {}) for parameter in group["params"]]
            momenta = [state["momentum"] for state in states if "momentum" in state]
            if factor != 1 and momenta:
                torch._foreach_mul_(momenta, factor)

    def _check_draws_noise(self) -> None:
        """Refuse an optimiser whose posterior does not sample the variance of the data."""
        if "noise" not in self.param_groups[0]:
            raise ValueError(
                "no noise is drawn here: that needs posterior=LossPosterior('mse_loss', n) with "
                "noise='sampled'"
            )

    def temperature(self, chain: int | None = None) -> dict[str, Temperature]:
        """Return the mean temperatures of every part since `forget_past`, with standard errors.

        They are the kinetic temperature p·p/N, where the thermostat reads it, and the configurational one
        θ·∇L/N. Compare them with τ; of an adaptive part only the configurational one tells. Errors take
        correlation into account. Copies of the optimiser start without a past.

        Parameters
        ----------
        chain : int, optional
            Number of a chain. Without it the mean over all chains that have not diverged is returned, and
            `DivergedWarning` warns of the others.

        Returns
        -------
        dict of str to Temperature
            By the names of the parts.
        """
        observations = self._observations_of(chain)
        kinetic = self._means("temperature", observations)
        configurational = self._means("configurational", observations)
        return {part: Temperature(*mean, configurational.get(part)) for part, mean in kinetic.items()}

    @property
    def diverged(self) -> dict[int, tuple[int, str]]:
        """Chains that are not finite any more, by their numbers: the step at which it was seen, and the part.

        Their momenta or ξ are not finite. Of several chains with a method whose temperature is not read, such
        as SGLD and Adam, their parameters are not, which is looked for at every eighth step. The other chains
        go on, and means are theirs.
        """
        return dict(self._diverged)

    def friction(self, chain: int | None = None) -> dict[str, Estimate]:
        """Return the mean friction of every part: ξ where it is adaptive, γ elsewhere.

        For `chain` see `temperature`.
        """
        return self._means("friction", self._observations_of(chain))

    def gradient_noise(self, chain: int | None = None) -> dict[str, Estimate]:
        """Return the variance per parameter of the gradient noise that each adaptive part has found.

        In the limit of small stepsizes the mean of ξ is (h s² + σ²)/(2τ), with the friction of the map. For
        `chain` see `temperature`.
        """
        return self._means("gradient noise", self._observations_of(chain))

    def _means(self, series: str, observations: list[Observations]) -> dict[str, Estimate]:
        """Return the means of a series for every part, of a chain or over all."""
        of_chains = [observed.means(series, self.param_groups) for observed in observations]
        parts = of_chains[0] if of_chains else {}
        return {part: mean_of_chains([means[part] for means in of_chains]) for part in parts}

    def _observations_of(self, chain: int | None) -> list[Observations]:
        """Return the observations of a chain, or of all chains with a warning of those that diverged."""
        if chain is not None and self._observations and chain not in self._observations:
            raise ValueError(f"chain must be one of {list(self._observations)}, got {shown(chain)}")
        if chain is None and self._diverged and len(self._observations) > 1:
            diverged_chains = [
                f"{number} (at step {step}, in {part!r})" for number, (step, part) in self._diverged.items()
            ]
            named_chains = ", ".join(diverged_chains[:MOST_IN_WARNING])
            warn(f"chains diverged and are left out: {named_chains}; a smaller lr may help", DivergedWarning)
        return [seen for number, seen in self._observations.items() if chain in (None, number)]

    def forget_past(self) -> None:
        """Start the means of `temperature`, `friction` and `gradient_noise` again, as after a burn-in."""
        self._observations: defaultdict[int, Observations] = defaultdict(Observations)  # by number of chain


def _check_shapes(index: int, parameter: Tensor, state: StateDict) -> None:
    """Refuse the saved state of the parameter at this position if its tensors have another shape."""
    for name in TENSORS:
        if name in state and state[name].shape != parameter.shape:
            raise ValueError(
                f"the {name} of parameter {index} has shape {tuple(state[name].shape)}, and the "
                f"parameter has {tuple(parameter.shape)}: this is the state of another model"
            )


def _has_diverged(units: list[StepTensors]) -> bool:
    """Return whether a chain's tensors in a part are found to be no longer finite.

    Their p·p and ξ show it. Where p·p is never read and other chains go on, θ is looked at, but only at every
    `FINITE_CHECK_EVERY`-th step because that reads all parameters.
    """
    for unit in units:
        if not math.isfinite(unit.kinetic) or not math.isfinite(unit.xi):
            return True
        is_due = unit.chain_count > 1 and unit.step % FINITE_CHECK_EVERY == 0 and not unit.theta[0].is_meta
        if unit.kinetic == NOT_READ and is_due:
            are_finite = [bool(theta.isfinite().all()) for theta in unit.unstacked().theta]
            if not all(are_finite):
                return True
    return False


def _describe_group(group: ParamGroup) -> str:
    """Return a group's line of the optimiser's repr: name, method, size, chains, stepsize and noise."""
    first_group = param_groups.group_of_chain(group, 0)
    idle = param_groups.build_method(first_group).idle
    values = param_groups.values_of(group) | group["schedules"]
    keys = [key for key in coefficients(find_method(group["method"])) if key not in idle]
    coefficient_text = ", ".join(f"{key}={values[key]}" for key in keys)
    name = part_and_name(group) or "part"
    noise = f", noise={first_group['noise']:g}" if "noise" in group else ""
    chains = f" of {group['chains']} chains" if group["chains"] else ""
    size = _describe_size(group["params"])
    return f"  {name}: {group['method']}({coefficient_text}), {size}{chains}, lr={float(group['lr'])}{noise}"


def _describe_size(params: list[Tensor]) -> str:
    """Return the number of parameters, of those that are not frozen, and of tensors, as text."""
    tensors = f" in {len(params)} tensors" if len(params) > 1 else ""
    if any(map(is_lazy, params)):
        return f"? parameters{tensors}"
    size = sum(parameter.numel() for parameter in params)
    free_size = sum(parameter.numel() for parameter in stability.not_frozen(params))
    if free_size < size:
        return f"{free_size} of {size} parameters{tensors}"
    return f"{size} parameters{tensors}"


def _check_chains(saved_group: StateDict, group: ParamGroup) -> None:
    """Refuse a saved group that has another number of chains than a group of this optimiser."""
    saved_count = saved_group.get("chains")
    if saved_count != group["chains"]:
        raise ValueError(
            f"this is the state of {_chains_in_words(saved_count)}, but this optimiser has "
            f"{_chains_in_words(group['chains'])}"
        )


def _chains_in_words(count: int | None) -> str:
    """Return a number of chains as text."""
    return f"{count} chains" if count else "one chain"
