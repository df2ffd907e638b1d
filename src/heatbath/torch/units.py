"""Units: the tensors of a param group that share a ξ, as a step finds them."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from heatbath.torch.recipes import Recipe


@dataclass
class Unit:
    """θ, momenta, gradients and (for Adam) second moments of the tensors that have a gradient.

    `first` are the positions of their first elements in the numbering of the noise, `rows` the rows of
    coefficients: 0 for a tensor's first step, 1 later. `kinetic` is p·p where it was last read.
    """

    recipe: Recipe
    theta: list[Tensor]
    p: list[Tensor]
    gradient: list[Tensor]
    second: list[Tensor]
    first: list[int]
    rows: list[int]
    xi: float
    root_tau: float
    seed: int
    step: int
    kinetic: float = -1.0

    @property
    def size(self) -> int:
        """How many parameters are stepped."""
        return sum(tensor.numel() for tensor in self.theta)

    def with_row(self, row: int) -> Unit:
        """The same with only the tensors of one row."""
        chosen = [i for i, own in enumerate(self.rows) if own == row]
        if len(chosen) == len(self.rows):
            return self

        def pick(values: list[Tensor]) -> list[Tensor]:
            return [values[i] for i in chosen] if values else []

        return Unit(
            self.recipe, pick(self.theta), pick(self.p), pick(self.gradient), pick(self.second),
            [self.first[i] for i in chosen], [row] * len(chosen), self.xi, self.root_tau, self.seed,
            self.step,
        )  # fmt: skip
