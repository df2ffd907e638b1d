"""What the steps of an optimiser work on: for each param group its program, coefficients and tensors.

The tensors are looked up at every step. Programs and coefficients are kept, and made again where any value
of the group that they depend on has changed.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from heatbath._internal.checks import NON_NEGATIVE, real
from heatbath.methods.schedules import at, from_plain
from heatbath.torch.optim import param_groups, seeds, sharding, stability, torch_step
from heatbath.torch.optim.numba_step import CompiledStep, can_be_compiled
from heatbath.torch.optim.param_groups import GroupValues, ParameterState, ParamGroup
from heatbath.torch.optim.sharding import Shard, WrapperShards
from heatbath.torch.optim.state import StepTensors, is_lazy, prepare_state
from heatbath.torch.optim.step_program import StepProgram, Table, step_program

States = MutableMapping[Tensor, ParameterState]  # of parameters, as an optimiser has them


class GroupProgram(NamedTuple):
    """The program of a group (of one chain) with its coefficients, and the values they were made from."""

    values: GroupValues
    program: StepProgram
    coefficients: Table


class ChainOfPart(NamedTuple):
    """One chain of a part: its number in the noise, its view of the group, its coefficients and tensors."""

    number: int
    group: ParamGroup
    coefficients: tuple[float, ...]
    units: list[StepTensors]


@dataclass
class StepPart:
    """A param group in one step.

    `units` are the tensors of all its chains, one unit for each ξ; those of the first chain have the tensors
    with all chains in them. `compiled` tells whether compiled code steps them.
    """

    index: int
    group: ParamGroup
    program: StepProgram
    chains: list[ChainOfPart]
    units: list[StepTensors]
    compiled: bool

    @property
    def stacked_units(self) -> list[StepTensors]:
        """The tensors of the first chain, which belong to all chains."""
        return self.chains[0].units

    def only_prepares(self) -> bool:
        """Return whether this step only makes the states of the parameters, as for a checkpoint to load.

        torch.distributed.checkpoint makes such a step before the first one, at lr = 0 and with gradients of
        0. A step at lr = 0 on a schedule that begins at 0 is a true step.
        """
        group = self.group
        if group["step"] or group["lr"] != 0:
            return False
        units = self.stacked_units
        if not units or units[0].theta[0].is_meta:
            return False
        if "lr" in group["schedules"] and at(from_plain(group["schedules"]["lr"]), 0) == 0:
            return False
        sizes = [[gradient.abs().sum() for gradient in unit.gradients] for unit in units]
        return not any(sharding.complete_sums(sizes, [unit.shards for unit in units]))

    def finish(self) -> None:
        """Write the results of the step into the group, the parameters and their states.

        The group gets the coefficients of this step as "previous", the number of steps, and ξ.
        """
        group = self.group
        if "noise" in group and group["chains"]:
            group["previous"] = [list(chain.coefficients) for chain in self.chains]
        else:
            group["previous"] = list(self.chains[0].coefficients)
        group["step"] += 1

        for unit in self.stacked_units:
            unit.write_back()
            for state in unit.states:
                state["step"] += 1

        if "xi" not in group:
            return
        for unit in self.units:
            if self.program.has_friction_per_tensor:
                frictions = group["xi"][unit.chain] if group["chains"] else group["xi"]
                frictions[unit.index] = unit.xi
            elif group["chains"]:
                group["xi"][unit.chain] = unit.xi
            else:
                group["xi"] = unit.xi


class StepParts:
    """Makes the parts of each step, and keeps what is the same from step to step.

    Parameters
    ----------
    wrapper : WrapperShards or None
        Where a wrapper has divided the parameters over processes.
    original_ids : list of int
        Ids of the parameters that the optimiser was made with.
    """

    def __init__(self, wrapper: WrapperShards | None, original_ids: list[int]) -> None:
        self.wrapper = wrapper
        self.original_ids = original_ids
        self.programs: dict[tuple[int, int], GroupProgram] = {}  # by group and chain
        self.compiled_step = CompiledStep()
        self._warned: set[tuple[int, int]] = set()  # of thermostats that have become unstable
        self._first_elements: list[list[int]] = []
        self._shards: list[list[Shard | None]] = []

    def members(self, groups: Sequence[ParamGroup], index: int) -> list[Tensor]:
        """Return the parameters of a group in all processes."""
        return groups[index]["params"] if self.wrapper is None else self.wrapper.members(index)

    def collect(
        self, groups: Sequence[ParamGroup], states: States, first_elements: list[list[int]]
    ) -> list[StepPart]:
        """Return the parts that move in this step: those whose program has operations.

        No parameter moves yet, but groups and states are changed: coefficients on schedules get their values
        in this step, and states are prepared for it.

        Parameters
        ----------
        groups : sequence of ParamGroup
            The groups of the optimiser.
        states : mapping of Tensor to ParameterState
            The states of the parameters in the optimiser.
        first_elements : list of lists of int
            Positions in the numbering of the noise, from `number_elements`.
        """
        parts = []
        for index, group in enumerate(groups):
            if group["schedules"]:
                param_groups.apply_schedules(group)
            first_group = param_groups.group_of_chain(group, 0)
            group_program = self.program_of(index, 0, first_group)
            if not len(group_program.program.encoded):
                continue
            units = self._units(index, groups, first_group, group_program, first_elements[index], states)
            chains = [ChainOfPart(group["chain"], first_group, group_program.values.current, units)]
            if group["chains"]:
                chains += self._further_chains(index, group, group_program, units)
                units = [unit for chain in chains for unit in chain.units]
            compiled = _is_compiled(group, chains[0].units)
            parts.append(StepPart(index, group, group_program.program, chains, units, compiled))
        return parts

    def _further_chains(
        self, index: int, group: ParamGroup, group_program: GroupProgram, units: list[StepTensors]
    ) -> list[ChainOfPart]:
        """Return the chains of a part after the first one.

        Parameters
        ----------
        index : int
            Position of the group.
        group : ParamGroup
            The group with the values of all chains.
        group_program : GroupProgram
            The program and the coefficients of the first chain.
        units : list of StepTensors
            The tensors of the first chain.
        """
        chains = []
        for k in range(1, param_groups.chain_count(group)):
            group_of_chain = param_groups.group_of_chain(group, k)
            if "noise" in group:  # each chain has its own, and coefficients that depend on it
                group_program = self.program_of(index, k, group_of_chain)
            units_of_chain = [
                _unit_of_chain(unit, group_of_chain, group_program.coefficients, k) for unit in units
            ]
            number = group["chain"] + k
            chains.append(ChainOfPart(number, group_of_chain, group_program.values.current, units_of_chain))
        return chains

    def program_of(self, index: int, chain: int, group: ParamGroup) -> GroupProgram:
        """Return the program of a group with its coefficients; reuse what its values have not changed.

        Parameters
        ----------
        index, chain : int
            Position of the group, and of one of its chains.
        group : ParamGroup
            The group as that chain sees it.

        Raises
        ------
        TypeError, ValueError
            If a value was set that a step cannot use.
        """
        values = param_groups.read_values(group)
        cached = self.programs.get((index, chain))
        if cached is not None and cached.values == values:
            return cached
        if cached is not None and cached.values[:2] != values[:2]:
            cached = None  # its method or a choice, such as the word, has changed: another program

        previous, current = values.previous, values.current
        if cached is not None and cached.values.current[1:] == current[1:] == previous[1:]:
            real("lr", current[0], NON_NEGATIVE)  # nothing but the stepsize has changed
            program = cached.program
        else:
            param_groups.check_group(group)
            method = param_groups.build_method(group)  # also checks the coefficients
            program = step_program(method) if cached is None else cached.program

        coefficients = program.coefficients(
            values.by_name(previous), values.by_name(current), values.maximize
        )
        self.programs[index, chain] = GroupProgram(values, program, coefficients)
        if (index, chain) not in self._warned and stability.warn_if_unstable(group, program.method):
            self._warned.add((index, chain))
        return self.programs[index, chain]

    def _units(
        self,
        index: int,
        groups: Sequence[ParamGroup],
        group: ParamGroup,
        group_program: GroupProgram,
        first_elements: list[int],
        states: States,
    ) -> list[StepTensors]:
        """Collect the tensors of a group that have a gradient, with prepared states, for its first chain.

        Parameters
        ----------
        index : int
            Position of the group.
        groups : sequence of ParamGroup
            The groups of the optimiser.
        group : ParamGroup
            The group at `index` as its first chain sees it.
        group_program : GroupProgram
            Its program and coefficients.
        first_elements : list of int
            Positions of its parameters in the numbering of the noise.
        states : mapping of Tensor to ParameterState
            The states of the parameters in the optimiser, which are changed.

        Returns
        -------
        list of StepTensors
            One unit for each ξ: a tensor each with a friction per tensor, otherwise all tensors in one.
        """
        root_tau = param_groups.root_of_temperature(group)
        per_tensor = group_program.program.has_friction_per_tensor
        keeps_second = group_program.program.method.keeps_second
        units: list[StepTensors] = []
        for i, parameter in enumerate(self.members(groups, index)):
            shard = self._shards[index][i]
            if parameter.grad is None or not parameter.numel():
                continue
            if self.wrapper is not None and shard is not None and not shard.runs:
                parameter, state = self.wrapper.stand_in(parameter, group["step"])
            else:
                state = states[parameter]
            prepare_state(parameter, state, keeps_second=keeps_second)

            if not units or per_tensor:
                unit = StepTensors(
                    group_program.program,
                    group_program.coefficients,
                    group["xi"][i] if per_tensor else group.get("xi", 0.0),
                    root_tau,
                    group["seed"],
                    group["step"],
                    chain_number=group["chain"],
                    chain_count=group["chains"] or 1,
                    index=i,
                )
                units.append(unit)
            unit.add(parameter, state, first_elements[i], shard)
        return units

    def number_elements(self, groups: Sequence[ParamGroup]) -> list[list[int]]:
        """Return for each group the positions of its tensors' first elements in the numbering of the noise.

        Elements (of one chain) are numbered over all groups in order. The numbering is kept for later steps,
        unless there are lazy parameters, which have no elements yet.

        Raises
        ------
        RuntimeError
            If parameters are sharded in a way that cannot be stepped.
        """
        if self._first_elements:
            return self._first_elements

        if seeds.process_count() > 1:
            parameters = [parameter for group in groups for parameter in group["params"]]
            sharding.check_not_replaced(self.original_ids, parameters)
        self._shards = [self._shards_of(groups, index) for index in range(len(groups))]
        is_sharded = sharding.check_one_mesh([shard for shards in self._shards for shard in shards])
        if is_sharded and any(map(param_groups.tempering_ladder, groups)):
            raise RuntimeError(
                "simulated tempering of sharded parameters is not supported: use another schedule"
            )

        position, any_lazy = 0, False
        first_elements: list[list[int]] = []
        for index, group in enumerate(groups):
            first_elements.append([])
            for parameter in self.members(groups, index):
                first_elements[-1].append(position)
                if is_lazy(parameter):
                    any_lazy = True
                else:
                    position += parameter.numel() // param_groups.chain_count(group)
        self._first_elements = [] if any_lazy else first_elements
        return first_elements

    def _shards_of(self, groups: Sequence[ParamGroup], index: int) -> list[Shard | None]:
        """Return the blocks of a group's parameters in this process, None for those that are whole here."""
        params = groups[index]["params"]
        if self.wrapper is None:
            return list(map(sharding.shard_of, params))
        in_this_process = set(params)
        return [self.wrapper.shard_of(p, p in in_this_process) for p in self.wrapper.members(index)]

    def run_stage(self, parts: list[StepPart], stage: int, draw: torch_step.DrawNormals) -> None:
        """Run the passes of a stage on all parts, in place, in compiled code where that is possible.

        Parameters
        ----------
        parts : list of StepPart
            The parts that move.
        stage : int
            Position of the stage in the programs.
        draw : callable
            Draws the noise of plain torch operations, as `torch_step.draw_normals`.
        """
        compiled: dict[tuple[torch.dtype, int, int], list[StepTensors]] = {}  # by type, seed and step
        plain: list[StepTensors] = []
        for part in parts:
            for unit in part.units:
                if unit.theta[0].is_meta:  # there is nothing to move
                    continue
                if part.compiled:
                    compiled.setdefault((unit.theta[0].dtype, unit.seed, unit.step), []).append(unit)
                else:
                    plain.append(unit)
        if plain:
            torch_step.run(plain, stage, draw)
        for units in compiled.values():
            self.compiled_step.run(units, stage)


def _unit_of_chain(unit: StepTensors, group: ParamGroup, coefficients: Table, chain: int) -> StepTensors:
    """Return a copy of a unit of the first chain for another chain, with its ξ and coefficients.

    Parameters
    ----------
    unit : StepTensors
        Tensors of the first chain, stacked with those of all chains.
    group : ParamGroup
        The group as the other chain sees it.
    coefficients : Table
        The other chain's table of coefficients.
    chain : int
        Position of the other chain among those of the group.
    """
    xi = group.get("xi", 0.0)
    return replace(
        unit,
        xi=xi[unit.index] if isinstance(xi, list) else xi,
        root_tau=param_groups.root_of_temperature(group),
        table=coefficients,
        chain_number=group["chain"] + chain,
        chain=chain,
    )


def _is_compiled(group: ParamGroup, units: list[StepTensors]) -> bool:
    """Return whether compiled code steps a group with these tensors of its first chain.

    Raises
    ------
    RuntimeError
        If the group has fused=True and compiled code cannot step it.
    """
    if group["fused"] is False or not units:
        return False
    able = _fit_compiled_code(units)
    if group["fused"] and not able:
        raise RuntimeError(
            "fused=True needs parameters and gradients on the CPU, contiguous, float32 or float64, "
            "of one type in each group; with fused=None it is used where that is possible"
        )
    return able


def _fit_compiled_code(units: list[StepTensors]) -> bool:
    """Return whether compiled code can step all tensors, which must have the first tensor's type."""
    dtype = units[0].theta[0].dtype
    for unit in units:
        for tensors in filter(None, (unit.theta, unit.p, unit.gradients, unit.second)):
            if not can_be_compiled(tensors, unit.theta, dtype):
                return False
    return True


def check_closure(parts: list[StepPart], closure: object) -> None:
    """Refuse a step of these parts that needs a closure and has none.

    Raises
    ------
    RuntimeError
        If parts move with several gradients per step, or with tempering, and there is no closure; or if a
        word of several gradients is not shared by all parts.
    """
    gradients, is_tempered, moves = 1, False, False
    for part in parts:
        gradients = max(gradients, part.program.gradients)
        is_tempered = is_tempered or part.program.is_tempered
        moves = moves or bool(part.group["lr"] != 0)

    if closure is None and moves and (gradients > 1 or is_tempered):
        feature = (
            f"a word that needs {gradients} gradients per step" if gradients > 1 else "simulated tempering"
        )
        raise RuntimeError(
            f"{feature} needs step(closure), with a function that clears the gradients, computes the loss, "
            "calls backward() and returns the loss"
        )
    if gradients > 1 and len({part.program.encoded.tobytes() for part in parts}) > 1:
        raise RuntimeError("a word that needs several gradients per step must be shared by all groups")
