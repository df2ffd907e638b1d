"""What chains see at each step, as a function of a seed and the step: all examples, or batches of their own.

Of tensors every chain goes through shuffled epochs of its own; what is left over at the end of one, fewer
examples than a batch, is not seen in it. Of a loader the chains take batches in turn, those that are shorter
than the first left out, and what it draws at random in an epoch is a function of the seed and the epoch. The
turns change, so that every chain comes to all batches of a loader that has the same ones in every epoch: with
some of them alone it would sample the posterior of these, as if they were all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from heatbath.torch.data import AT_ONCE, as_before, checked, is_pair, set_seed


class Epochs:
    """The examples of chains: tensors (x, y), or a loader, which is gone through once to count them.

    `n` is how many there are, `batch` how many a chain sees at a step, and `own` whether each chain has a
    batch of its own; otherwise all see all of them.
    """

    def __init__(self, data: Any, batch: int | None, chains: int, seed: int, device: torch.device) -> None:
        self.data, self.chains, self.seed, self.device = data, chains, seed, device
        if not is_pair(data):
            sizes = [len(x) for x, _ in self.all()]
            if not sizes:
                raise ValueError("the loader has no batches")
            self.n, self.batch = sum(sizes), sizes[0]
            self.length = sum(size == self.batch for size in sizes)  # batches of an epoch
            if len(sizes) == 1:  # it has all examples in one
                self.data = next(iter(self.all()))
        if is_pair(self.data):
            self.data = tuple(tensor.to(device) for tensor in self.data)
            self.n = len(self.data[0])
            self.batch = self.n if batch is None else min(batch, self.n)
            self.length = self.n // self.batch
        self.own = self.batch < self.n
        self._orders: dict[int, tuple[int, Tensor]] = {}  # of each chain, the epoch and its order
        self._open: tuple[int, Iterator[Any]] | None = None  # the next batch of the loader, and the rest

    def all(self) -> Iterator[tuple[Tensor, Tensor]]:
        """All examples once, some at a time; random generators are left as they were."""
        if is_pair(self.data):
            yield from zip(*(torch.split(tensor, AT_ONCE) for tensor in self.data), strict=True)
            return
        with as_before(self.data):
            for given in self.data:
                x, y = checked(given)
                yield x.to(self.device), y.to(self.device)

    def at(self, step: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets at a step: (chains, examples, ...) where chains have their `own`."""
        if not self.own:
            x, y = self.data
            return x, y
        if not is_pair(self.data):
            given = [self._from_loader(step * self.chains + place) for place in range(self.chains)]
            pairs = [given[place] for place in turns(step, self.chains, self.length)]
            return torch.stack([x for x, _ in pairs]), torch.stack([y for _, y in pairs])
        rows = torch.stack([self._rows(chain, step) for chain in range(self.chains)]).to(self.device)
        return self.data[0][rows], self.data[1][rows]

    def _rows(self, chain: int, step: int) -> Tensor:
        epoch, place = divmod(step, self.length)
        known, order = self._orders.get(chain, (-1, torch.empty(0)))
        if known != epoch:
            number = np.random.SeedSequence((self.seed, chain, epoch)).generate_state(1, np.uint64)[0]
            generator = torch.Generator().manual_seed(int(number) % 2**63)
            order = torch.randperm(self.n, generator=generator)
            self._orders[chain] = epoch, order
        return order[place * self.batch : (place + 1) * self.batch]

    def _from_loader(self, number: int) -> tuple[Tensor, Tensor]:
        """The batch with this number, those that are too short not counted."""
        if self._open is None or self._open[0] != number or number % self.length == 0:
            epoch, place = divmod(number, self.length)
            self._open = number - place, self._epoch(epoch)
        while True:
            following, batches = self._open
            pair = next(batches, None)
            if pair is None:
                raise RuntimeError(
                    f"the loader gave {following % self.length} batches of {self.batch} examples in an "
                    f"epoch, and {self.length} when they were counted: it must give as many every time"
                )
            self._open = following + 1, batches
            if following == number:
                x, y = pair
                return x, y

    def _epoch(self, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        with as_before(self.data):  # it draws its order when it is asked for the first batch
            set_seed(self.seed, epoch, self.data)
            batches = iter(self.data)
            given = next(batches, None)
        while given is not None:
            x, y = checked(given)
            if len(x) == self.batch:
                yield x.to(self.device), y.to(self.device)
            given = next(batches, None)


def turns(step: int, chains: int, length: int) -> list[int]:
    """Which of the batches that a loader gives at a step each chain takes; `length`: of them in an epoch.

    After length/gcd(chains, length) steps the same batches come in the same places again, and each chain
    takes the place of the next one.
    """
    shift = step // (length // math.gcd(chains, length))
    return [(chain + shift) % chains for chain in range(chains)]
