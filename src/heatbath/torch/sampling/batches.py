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
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from heatbath.torch.data import (
    Data,
    is_pair,
    iterate_batches,
    iterate_chunks,
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
        self.data = data
        self.chains = chains
        self.seed = seed
        self.device = device
        if not is_pair(self.data):
            self._count_batches()
        if is_pair(self.data):
            self._take_tensors(self.data, batch)

        self.separate = self.batch < self.n
        self._orders: dict[int, tuple[int, Tensor]] = {}  # by chain: the epoch and its order of examples
        self._unread: Iterator[tuple[Tensor, Tensor]] = iter(())  # batches of the present epoch of a loader
        self._next_number = -1  # of the first of these over all epochs

    def _count_batches(self) -> None:
        """Count the examples of a loader; all examples in one batch become the data, as tensors."""
        sizes = [len(x) for x, _ in self.iterate_all()]
        if not sizes:
            raise ValueError("the loader has no batches")
        self.n = sum(sizes)
        self.batch = sizes[0]
        self.batches_per_epoch = sizes.count(self.batch)
        if len(sizes) == 1:
            self.data = next(iter(self.iterate_all()))

    def _take_tensors(self, pair: tuple[Tensor, Tensor], batch: int | None) -> None:
        """Move tensors (x, y) to the device; `batch` examples are to be in a batch, None for all."""
        x, y = pair
        self._pair = x.to(self.device), y.to(self.device)
        self.data = self._pair
        self.n = len(x)
        self.batch = self.n if batch is None else min(batch, self.n)
        self.batches_per_epoch = self.n // self.batch

    def iterate_all(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield all examples once, in chunks or batches; the state of random generators doesn't change."""
        if is_pair(self.data):
            yield from iterate_chunks(self.data)
            return
        with preserve_random_state(self.data):
            yield from iterate_batches(self.data, self.device)

    def at_step(self, step: int) -> tuple[Tensor, Tensor]:
        """Return inputs and targets of a step: (chains, examples, ...) with separate batches."""
        if not self.separate:
            return self._pair
        if is_pair(self.data):
            x, y = self._pair
            rows = torch.stack([self._rows(chain, step) for chain in range(self.chains)]).to(self.device)
            return x[rows], y[rows]

        first_number = step * self.chains
        pairs = [self._read_batch(first_number + turn) for turn in range(self.chains)]
        return stack_in_turns(pairs, step, self.batches_per_epoch)

    def _rows(self, chain: int, step: int) -> Tensor:
        """Return the indices of the examples that a chain sees at a step."""
        epoch, position = divmod(step, self.batches_per_epoch)
        if chain not in self._orders or self._orders[chain][0] != epoch:
            chain_seed = np.random.SeedSequence((self.seed, chain, epoch)).generate_state(1, np.uint64)[0]
            generator = torch.Generator().manual_seed(int(chain_seed) % 2**63)
            self._orders[chain] = epoch, torch.randperm(self.n, generator=generator)
        _, order = self._orders[chain]
        start = position * self.batch
        return order[start : start + self.batch]

    def _read_batch(self, number: int) -> tuple[Tensor, Tensor]:
        """Return a batch of the loader, inputs and targets, by its number over all epochs.

        Batches shorter than the first don't count. The next number continues the present pass over the
        loader; any other one starts its epoch at the first batch.
        """
        epoch, position = divmod(number, self.batches_per_epoch)
        if position == 0 or number != self._next_number:
            self._unread = self._iterate_epoch(epoch)
            self._next_number = number - position

        while True:
            pair = next(self._unread, None)
            if pair is None:
                count = self._next_number % self.batches_per_epoch
                raise RuntimeError(
                    f"the loader gave {count} batches of {self.batch} examples in an epoch, and "
                    f"{self.batches_per_epoch} when they were counted: it must give the same number every "
                    "time"
                )
            self._next_number += 1
            if self._next_number > number:
                return pair

    def _iterate_epoch(self, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the complete batches of an epoch, in an order that depends on seed and epoch only."""
        with preserve_random_state(self.data):  # the loader draws its order when asked for the first batch
            seed_generators(self.seed, epoch, self.data)
            batches = iterate_batches(self.data, self.device)
            pair = next(batches, None)
        while pair is not None:
            if len(pair[0]) == self.batch:
                yield pair
            pair = next(batches, None)


def stack_in_turns(
    pairs: Sequence[tuple[Tensor, Tensor]], step: int, batches_per_epoch: int
) -> tuple[Tensor, Tensor]:
    """Return the batches that a loader gives at a step, stacked in the order in which chains take them.

    After batches_per_epoch / gcd(chains, batches_per_epoch) steps the same batches come in the same order
    again, and then each chain takes the turn of the next one.
    """
    chains = len(pairs)
    steps_per_shift = batches_per_epoch // math.gcd(chains, batches_per_epoch)
    shift = step // steps_per_shift
    pairs_of_chains = [pairs[(chain + shift) % chains] for chain in range(chains)]
    inputs, targets = zip(*pairs_of_chains, strict=True)
    return torch.stack(inputs), torch.stack(targets)
