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
from heatbath.methods import Method
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
        sizes = []
        for unit in units:
            sizes.append([gradient.abs().sum() for gradient in unit.gradients])
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

        if "xi" in group:
            self._write_frictions()

    def _write_frictions(self) -> None:
        """Write ξ of all units into the group: a number, or lists over chains, over tensors, or both."""
        group = self.group
        for unit in self.units:
            if self.program.has_friction_per_tensor:
                frictions_of_tensors = group["xi"][unit.chain] if group["chains"] else group["xi"]
                frictions_of_tensors[unit.index] = unit.xi
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
        self._is_numbered = False  # whether the following hold for later steps, too
        self._first_elements: list[list[int]] = []  # of each group, in the numbering of the noise
        self._shards: list[list[Shard | None]] = []

    def members(self, groups: Sequence[ParamGroup], index: int) -> list[Tensor]:
        """Return the parameters of a group in all processes."""
        return groups[index]["params"] if self.wrapper is None else self.wrapper.members(index)

    def collect(self, groups: Sequence[ParamGroup], states: States) -> list[StepPart]:
        """Return the parts that move in this step: those whose program has operations.

        Their elements are numbered before by `number_elements`. No parameter moves yet, but groups and states
        are changed: coefficients on schedules get their values in this step, and states are prepared for it.

        Parameters
        ----------
        groups : sequence of ParamGroup
            The groups of the optimiser.
        states : mapping of Tensor to ParameterState
            The states of the parameters in the optimiser.
        """
        parts = []
        for index, group in enumerate(groups):
            if group["schedules"]:
                param_groups.apply_schedules(group)
            chain_groups = param_groups.groups_of_chains(group)
            first_group = chain_groups[0]
            group_program = self.program_of(index, 0, first_group)
            if not len(group_program.program.encoded):
                continue
            units = self._units(index, groups, first_group, group_program, states)
            is_compiled = _is_compiled(group, units)
            chains = [ChainOfPart(group["chain"], first_group, group_program.values.current, units)]
            if group["chains"]:
                chains += self._further_chains(index, chain_groups, group_program, units)
                units = [unit for chain in chains for unit in chain.units]
            parts.append(StepPart(index, group, group_program.program, chains, units, is_compiled))
        return parts

    def _further_chains(
        self,
        index: int,
        chain_groups: Sequence[ParamGroup],
        group_program: GroupProgram,
        units: list[StepTensors],
    ) -> list[ChainOfPart]:
        """Return the chains of a part after the first one.

        Parameters
        ----------
        index : int
            Position of the group.
        chain_groups : sequence of ParamGroup
            The group as each of its chains sees it.
        group_program : GroupProgram
            The program and the coefficients of the first chain.
        units : list of StepTensors
            The tensors of the first chain.
        """
        chains = []
        chain_program = group_program
        for k, group in enumerate(chain_groups[1:], start=1):
            if "noise" in group:  # each chain has its own, and coefficients that depend on it
                chain_program = self.program_of(index, k, group)
            table = chain_program.coefficients
            units_of_chain = [_unit_of_chain(unit, group, table, k) for unit in units]
            coefficients = chain_program.values.current
            chains.append(ChainOfPart(group["chain"] + k, group, coefficients, units_of_chain))
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

        program = _checked_program(group, values, cached)
        previous = values.by_name(values.previous)
        current = values.by_name(values.current)
        coefficients = program.coefficients(previous, current, values.maximize)
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
        states : mapping of Tensor to ParameterState
            The states of the parameters in the optimiser, which are changed.

        Returns
        -------
        list of StepTensors
            One unit for each ξ: a tensor each with a friction per tensor, otherwise all tensors in one.
        """
        per_tensor = group_program.program.has_friction_per_tensor
        keeps_second = group_program.program.method.keeps_second
        units: list[StepTensors] = []
        for i, member in enumerate(self.members(groups, index)):
            if member.grad is None or not member.numel():
                continue
            shard = self._shards[index][i]
            if self.wrapper is not None and shard is not None and not shard.runs:
                parameter, state = self.wrapper.stand_in(member, group["step"])
            else:
                parameter, state = member, states[member]
            prepare_state(parameter, state, keeps_second=keeps_second)

            if not units or per_tensor:
                unit = StepTensors(
                    group_program.program,
                    group_program.coefficients,
                    _friction_at(group, i, group_program.program),
                    param_groups.root_of_temperature(group),
                    group["seed"],
                    group["step"],
                    chain_number=group["chain"],
                    chain_count=param_groups.chain_count(group),
                    index=i,
                )
                units.append(unit)
            units[-1].add(parameter, state, self._first_elements[index][i], shard)
        return units

    def number_elements(self, groups: Sequence[ParamGroup]) -> None:
        """Give the elements (of one chain) of all groups their positions in the numbering of the noise.

        The numbering is kept for later steps, unless there are lazy parameters, which have no elements yet.

        Raises
        ------
        RuntimeError
            If parameters are sharded in a way that cannot be stepped.
        """
        if self._is_numbered:
            return

        self._shards = self._find_shards(groups)
        self._first_elements = []
        has_lazy = False
        position = 0
        for index, group in enumerate(groups):
            first_elements = []
            for parameter in self.members(groups, index):
                first_elements.append(position)
                if is_lazy(parameter):
                    has_lazy = True
                else:
                    position += parameter.numel() // param_groups.chain_count(group)
            self._first_elements.append(first_elements)
        self._is_numbered = not has_lazy

    def _find_shards(self, groups: Sequence[ParamGroup]) -> list[list[Shard | None]]:
        """Return the blocks of each group's parameters in this process; refuse what cannot be stepped."""
        if seeds.process_count() > 1:
            parameters = [parameter for group in groups for parameter in group["params"]]
            sharding.check_not_replaced(self.original_ids, parameters)

        shards_of_groups: list[list[Shard | None]] = []
        for index, group in enumerate(groups):
            if self.wrapper is None:
                shards = list(map(sharding.shard_of, group["params"]))
            else:
                in_this_process = set(group["params"])
                members = self.wrapper.members(index)
                shards = [self.wrapper.shard_of(p, p in in_this_process) for p in members]
            shards_of_groups.append(shards)
        is_sharded = sharding.check_one_mesh([shard for shards in shards_of_groups for shard in shards])
        if is_sharded and any(map(param_groups.tempering_ladder, groups)):
            raise RuntimeError(
                "simulated tempering of sharded parameters is not supported: use another schedule"
            )
        return shards_of_groups

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
                    key = unit.theta[0].dtype, unit.seed, unit.step
                    compiled.setdefault(key, []).append(unit)
                else:
                    plain.append(unit)
        if plain:
            torch_step.run(plain, stage, draw)
        for units in compiled.values():
            self.compiled_step.run(units, stage)


def _checked_program(group: ParamGroup, values: GroupValues, cached: GroupProgram | None) -> StepProgram:
    """Return the program of a group (of one chain) whose values have changed, and check the values.

    Parameters
    ----------
    group : ParamGroup
        The group as the chain sees it.
    values : GroupValues
        Its values.
    cached : GroupProgram or None
        Its program before the change, which is returned if coefficients alone have changed.
    """
    if cached is None or cached.values[:2] != values[:2]:  # the method or a choice, such as the word
        return step_program(_checked_method(group))

    if cached.values.current[1:] == values.current[1:] == values.previous[1:]:  # all but the stepsize
        real("lr", values.current[0], NON_NEGATIVE)
    else:
        _checked_method(group)
    return cached.program


def _checked_method(group: ParamGroup) -> Method:
    """Return the method of a group (of one chain), whose values and coefficients are checked."""
    param_groups.check_group(group)
    return param_groups.build_method(group)


def _friction_at(group: ParamGroup, i: int, program: StepProgram) -> float:
    """Return ξ at parameter `i` of a group (of one chain): its own, or that of all; 0 without ξ."""
    xi: float = group["xi"][i] if program.has_friction_per_tensor else group.get("xi", 0.0)
    return xi


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
    has_own_temperature = "rung" in group
    return replace(
        unit,
        xi=_friction_at(group, unit.index, unit.program),
        root_tau=param_groups.root_of_temperature(group) if has_own_temperature else unit.root_tau,
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
    dtype = units[0].theta[0].dtype  # of all tensors of the group
    for unit in units:
        if can_be_compiled(unit, dtype):
            continue
        if group["fused"]:
            raise RuntimeError(
                "fused=True needs parameters and gradients on the CPU, contiguous, float32 or float64, "
                "of one type in each group; with fused=None it is used where that is possible"
            )
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
    gradient_count = max([1, *[part.program.gradients for part in parts]])
    feature = ""
    if gradient_count > 1:
        feature = f"a word that needs {gradient_count} gradients per step"
    elif any([part.program.is_tempered for part in parts]):
        feature = "simulated tempering"
    if feature and closure is None and any([part.group["lr"] != 0 for part in parts]):
        raise RuntimeError(
            f"{feature} needs step(closure), with a function that clears the gradients, computes the loss, "
            "calls backward() and returns the loss"
        )

    if gradient_count > 1 and len({part.program.encoded.tobytes() for part in parts}) > 1:
        raise RuntimeError("a word that needs several gradients per step must be shared by all groups")
