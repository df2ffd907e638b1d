"""Blocks: some chains of a plan over some of its steps, computed anywhere, and joined to the run they are of.

A chain's arithmetic is its own, and every random number has an address: so a block has the bits that its
chains would have among all others, on any computer with the same instructions and the same versions. Where
these differ that is said (`DifferentBitsWarning`), and a block that another heatbath has computed is refused.

A block is a sealed NetCDF file: it is there whole or not at all, with a checksum, whoever is killed. So a
folder of blocks is a run that can be larger than memory. (One file with an unlimited dimension has a single
writer, and is lost with him; of many arrays in pieces, as Zarr has them, a writer that is killed leaves some
new and some old, and nothing tells.)
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from threading import RLock
from typing import Any, NamedTuple

import xarray as xr
from numpy.typing import NDArray

from heatbath.methods import module_of
from heatbath.runs import file
from heatbath.runs.dataset import (
    state_names,
)
from heatbath.runs.plan import Plan
from heatbath.runs.simulation import Loss

KEPT = 2  # plans that a worker keeps, with their data
NAME = "chains-{}-{}-steps-{}-{}.nc"


class BlocksError(RuntimeError):
    """Blocks cannot be computed, or not now."""


class Stopped(RuntimeError):
    """A block was not finished, since nobody waits for it any more."""


class Shared(NamedTuple):
    """What all blocks of a plan have in common: its pieces as sealed files, by their checksums, the second
    with the user's data (`file.pieces`); what it is called; and the modules that define its methods, where
    they are not heatbath's own. Plans with the same data have that piece in common."""

    content: dict[str, bytes]
    digest: str
    modules: tuple[str, ...]

    @classmethod
    def of(cls, plan: Plan, digest: str | None = None) -> Shared:
        """That of a plan, which has a name or is called by its pieces. This process knows the plan from now
        on."""
        pieces = [file.sealed(piece) for piece in file.pieces(plan)]
        content = {hashlib.sha256(piece).hexdigest(): piece for piece in pieces}
        kinds = {type(m) for partition in plan.named.values() for m in partition.methods.values()}
        modules = sorted({module for kind in kinds if (module := module_of(kind)) is not None})
        digest = digest or hashlib.sha256("".join(content).encode()).hexdigest()
        keep_plan(digest, CachedPlan(plan, list(content)[1:]))
        return cls(content, digest, tuple(modules))


@dataclass(frozen=True)
class Task:
    """What a worker is asked for: the chains `first` to `stop` - 1, from the start or from their `state` at
    `step`, to step `until`, or as far as they come in so many `seconds`."""

    digest: str
    modules: tuple[str, ...]
    first: int
    stop: int
    until: int
    step: int = 0
    state: bytes | None = None
    seconds: float = 60.0
    threads: int = 1


class CachedPlan(NamedTuple):
    """A plan that this process has been given, and the checksum of its data, if they are a piece."""

    plan: Plan
    data: list[str]


known_plans: OrderedDict[str, CachedPlan] = OrderedDict()  # the latest last
reading = RLock()  # a worker may have several threads


def sealed_block(data: xr.Dataset, about: About) -> bytes:
    """The bytes of the file of a block."""
    attributes = {"heatbath_format": file.FORMAT, "heatbath_version": version("heatbath")}
    return file.sealed(data.assign_attrs(attributes | {"block": json.dumps(about)}))


def sealed_state(plan: Plan, data: xr.Dataset) -> bytes:
    """The state from which chains go on, as the bytes of a sealed file."""
    own = file.in_order(data[state_names(plan)])
    return file.sealed(own.assign_attrs(heatbath_format=file.FORMAT))


def keep_plan(digest: str, known: CachedPlan) -> None:
    """Remember a plan in this process, and forget the oldest beyond `KEPT`."""
    with reading:
        known_plans[digest] = known
        while len(known_plans) > KEPT:
            known_plans.popitem(last=False)


class About(NamedTuple):
    """What a block says of itself: its plan, chains and steps and how they ended, and where and how fast it
    was made. `loss`, `accuracy` and `temperature` are those of a `Progress` at its end."""

    digest: str
    first: int
    stop: int
    begin: int
    end: int
    losses: list[Loss]
    machine: dict[str, str]
    host: str
    seconds: float  # of computing
    compiled: float  # seconds before, if it was this block for which something had to be compiled
    loss: float
    accuracy: float
    temperature: dict[str, float]

    @classmethod
    def read(cls, text: str) -> About:
        """That of a block that was read."""
        about = cls(*json.loads(text))
        return about._replace(losses=[Loss(*loss) for loss in about.losses])

    @property
    def chains(self) -> range:
        """The chains of the block."""
        return range(self.first, self.stop)

    @property
    def work(self) -> int:
        """The steps that it has, of all its chains."""
        return len(self.chains) * (self.end - self.begin)

    @property
    def name(self) -> str:
        """What its file is called."""
        return NAME.format(self.first, self.stop, self.begin, self.end)


class Finished(NamedTuple):
    """What a worker gives: what the block says of itself, the bytes of its sealed file, and, if its chains
    are not at the last step, their state, from which they go on."""

    about: About
    content: bytes
    state: bytes | None


class Block(NamedTuple):
    """A block that is there: its file, or the bytes of one."""

    about: About
    content: bytes | Path

    def read(self) -> xr.Dataset:
        """All of it."""
        if isinstance(self.content, Path):
            return file.read(self.content)
        return file.opened(self.content, self.about.name)

    def arrays(self, names: list[str]) -> dict[str, NDArray[Any]]:
        """These results."""
        if isinstance(self.content, Path):
            return file.read_arrays(self.content, names)[0]
        return file.opened_arrays(self.content, self.about.name, names)[0]
