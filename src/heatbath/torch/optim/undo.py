"""Undo an optimiser step that raised."""

from __future__ import annotations

from torch import Tensor
from torch.optim import Optimizer

from heatbath.torch.optim.state import StepTensors
from heatbath.torch.optim.step_parts import StepPart


class Undo:
    """The groups and tensors of an optimiser before a step, for a closure that raises in its middle.

    Parameters
    ----------
    optimizer : Optimizer
        The optimiser that is about to make a step, whose groups are copied.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        self.groups = [dict(group) for group in optimizer.param_groups]
        self.stepped_before = {id(parameter) for parameter, state in optimizer.state.items() if state}
        self.units: list[StepTensors] = []
        self.copies: list[Tensor] = []

    def copy_tensors(self, parts: list[StepPart]) -> None:
        """Copy θ, p and second moments of these parts, all tensors that the step will change."""
        self.units = [unit for part in parts for unit in part.stacked_units]
        self.copies = [tensor.clone() for tensor in self._tensors()]

    def restore(self) -> None:
        """Undo the step: restore tensors and groups, and delete states that were made for a first step."""
        for tensor, copy in zip(self._tensors(), self.copies, strict=True):
            tensor.copy_(copy)
        for unit in self.units:
            unit.write_back()
            for parameter in unit.parameters:
                if id(parameter) not in self.stepped_before:
                    self.optimizer.state.pop(parameter, None)
        for group, saved in zip(self.optimizer.param_groups, self.groups, strict=True):
            group.update(saved)

    def _tensors(self) -> list[Tensor]:
        return [tensor for unit in self.units for tensor in (*unit.theta, *unit.p, *unit.second)]
