"""Undo an optimiser step that raised."""

from __future__ import annotations

from torch import Tensor
from torch.optim import Optimizer

from heatbath.torch.optim.state import StepTensors
from heatbath.torch.optim.step_parts import StepPart


class Undo:
    """What an optimiser was like before a step that a closure may break off in the middle."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        self.groups = [dict(group) for group in optimizer.param_groups]
        self.known = {id(parameter) for parameter, state in optimizer.state.items() if state}
        self.units: list[StepTensors] = []
        self.copies: list[Tensor] = []

    def keep(self, parts: list[StepPart]) -> None:
        """Copy all that the step will change."""
        self.units = [unit for part in parts for unit in part.units if unit.is_first]  # which has all chains
        self.copies = [tensor.clone() for tensor in self._tensors()]

    def put_back(self) -> None:
        """Make everything as it was; what was made for a parameter's first step is taken away."""
        for tensor, copy in zip(self._tensors(), self.copies, strict=True):
            tensor.copy_(copy)
        for unit in self.units:
            unit.publish()
            for parameter in unit.parameters:
                if id(parameter) not in self.known:
                    self.optimizer.state.pop(parameter, None)
        for group, before in zip(self.optimizer.param_groups, self.groups, strict=True):
            group.update(before)

    def _tensors(self) -> list[Tensor]:
        return [tensor for unit in self.units for tensor in (*unit.theta, *unit.p, *unit.second)]
