"""Choose the examples that chains see at each step, as a function of a seed and the step.

Chains see all examples, or each chain has its own batches. Where the data are tensors, every chain goes
through shuffled epochs of its own; examples left over at the end of an epoch, fewer than a batch, are not
seen in it. Of a loader the chains take batches in turn, without those shorter than the first, and what the
loader draws at random in an epoch is a function of the seed and the epoch. The turns rotate, so that every
chain sees all batches of a loader that has the same batches in every epoch: otherwise each would sample the
posterior of the same few of them, as if they were all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from heatbath.torch.data import (
    CHUNK_SIZE,
    Data,
    check_batch,
    is_pair,
    preserve_random_state,
    seed_generators,
)


class ChainBatches:
    """Training examples for chains: tensors (x, y), or a loader, which is iterated once to count them.

    Parameters
    ----------
    data
        Tensors (x, y), or a loader of such pairs that can be iterated repeatedly.
    batch
        Number of examples that a chain sees at a step, where data are tensors; None for all.
    chains
        Number of chains.
    seed
        Seed of the order of the examples.
    device
        Device that the examples are moved to.

    Attributes
    ----------
    n
        Number of examples.
    batch
        Number of examples that a chain sees at a step.
    batches_per_epoch
        Number of complete batches in an epoch.
    separate
        True if each chain has its own batches; otherwise all chains see all examples.
    """

    def __init__(self, data: Data, batch: int | None, chains: int, seed: int, device: torch.device) -> None:
        """Count the examples, and move those that are tensors to the device."""
        self.data, self.chains, self.seed, self.device = data, chains, seed, device
        if not is_pair(data):
            sizes = [len(x) for x, _ in self.iterate_all()]
            if not sizes:
                raise ValueError("the loader has no batches")
            self.n, self.batch = sum(sizes), sizes[0]
            self.batches_per_epoch = sum(size == self.batch for size in sizes)
            if len(sizes) == 1:  # all examples in one batch, as tensors
                self.data = next(iter(self.iterate_all()))

        if is_pair(self.data):
            x, y = self.data
            self.data = self._pair = x.to(device), y.to(device)
            self.n = len(x)
            self.batch = self.n if batch is None else min(batch, self.n)
            self.batches_per_epoch = self.n // self.batch

        self.separate = self.batch < self.n
        self._orders: dict[int, tuple[int, Tensor]] = {}  # by chain: the epoch and its order of examples
        self._reading: tuple[int, Iterator[tuple[Tensor, Tensor]]] | None = None  # next number, its batches

    def iterate_all(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield all examples once, in chunks or batches; the state of random generators doesn't change."""
        if is_pair(self.data):
            yield from zip(*(torch.split(tensor, CHUNK_SIZE) for tensor in self.data), strict=True)
            return
        with preserve_random_state(self.data):
            for batch in self.data:
                x, y = check_batch(batch)
                yield x.to(self.device), y.to(self.device)

    def at_step(self, step: int) -> tuple[Tensor, Tensor]:
        """Return inputs and targets of a step: (chains, examples, ...) with separate batches."""
        if not self.separate:
            return self._pair
        if not is_pair(self.data):
            pairs = [self._read_batch(step * self.chains + turn) for turn in range(self.chains)]
            pairs = [pairs[turn] for turn in assign_turns(step, self.chains, self.batches_per_epoch)]
            return torch.stack([x for x, _ in pairs]), torch.stack([y for _, y in pairs])
        x, y = self._pair
        rows = torch.stack([self._rows(chain, step) for chain in range(self.chains)]).to(self.device)
        return x[rows], y[rows]

    def _rows(self, chain: int, step: int) -> Tensor:
        """Return the indices of the examples that a chain sees at a step."""
        epoch, position = divmod(step, self.batches_per_epoch)
        if chain not in self._orders or self._orders[chain][0] != epoch:
            number = np.random.SeedSequence((self.seed, chain, epoch)).generate_state(1, np.uint64)[0]
            generator = torch.Generator().manual_seed(int(number) % 2**63)
            self._orders[chain] = epoch, torch.randperm(self.n, generator=generator)
        order = self._orders[chain][1]
        return order[position * self.batch : (position + 1) * self.batch]

    def _read_batch(self, number: int) -> tuple[Tensor, Tensor]:
        """Return a batch of the loader, inputs and targets, by its number over all epochs.

        Batches shorter than the first don't count. The next number continues the present pass over the
        loader; any other one starts its epoch at the first batch.
        """
        if self._reading is None or self._reading[0] != number or number % self.batches_per_epoch == 0:
            epoch, position = divmod(number, self.batches_per_epoch)
            self._reading = number - position, self._iterate_epoch(epoch)

        while True:
            following, batches = self._reading
            pair = next(batches, None)
            if pair is None:
                raise RuntimeError(
                    f"the loader gave {following % self.batches_per_epoch} batches of {self.batch} examples "
                    f"in an epoch, and {self.batches_per_epoch} when they were counted: it must give the "
                    "same number every time"
                )
            self._reading = following + 1, batches
            if following == number:
                return pair

    def _iterate_epoch(self, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the complete batches of an epoch, in an order that depends on seed and epoch only."""
        with preserve_random_state(self.data):  # the loader draws its order when asked for the first batch
            seed_generators(self.seed, epoch, self.data)
            batches = iter(self.data)
            batch = next(batches, None)
        while batch is not None:
            x, y = check_batch(batch)
            if len(x) == self.batch:
                yield x.to(self.device), y.to(self.device)
            batch = next(batches, None)


def assign_turns(step: int, chains: int, batches_per_epoch: int) -> list[int]:
    """Return for each chain which of the batches that a loader gives at a step it takes.

    After batches_per_epoch / gcd(chains, batches_per_epoch) steps the same batches come in the same order
    again, and then each chain takes the turn of the next one.
    """
    shift = step // (batches_per_epoch // math.gcd(chains, batches_per_epoch))
    return [(chain + shift) % chains for chain in range(chains)]
