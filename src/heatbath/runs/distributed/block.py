"""Blocks: some chains of a plan over some of its steps, computed anywhere, and joined to a run.

The arithmetic of a chain does not depend on other chains, and every random number has an address. So a block
has the same bits as if all chains were computed together, on any computer with the same instructions and
the same versions. If these differ, a warning says so (`DifferentBitsWarning`), and a block that another
heatbath has computed is refused.

A block is a sealed NetCDF file: it is written completely or not at all, with a checksum, even if a process is
killed. So a folder of blocks is a run that can be larger than memory. (A single file with an unlimited
dimension has one writer, and is lost with it. If a writer of arrays in pieces, such as Zarr, is killed,
some pieces are new and some old, and nothing shows which.)
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
from heatbath.runs.dataset import state_names
from heatbath.runs.plan import Plan
from heatbath.runs.simulation import Loss

CACHED_PLANS = 2  # plans that a worker keeps, with their data
NAME = "chains-{}-{}-steps-{}-{}.nc"  # the name of a block's file


class BlocksError(RuntimeError):
    """Blocks cannot be computed, or not now."""


class AbandonedError(RuntimeError):
    """A block was not finished, since its task was cancelled or interrupted."""


class CachedPlan(NamedTuple):
    """A plan that this process keeps, and the checksum of its data, in a list that is empty without data."""

    plan: Plan
    data: list[str]


cached_plans: OrderedDict[str, CachedPlan] = OrderedDict()  # by digest, the latest last
cache_lock = RLock()  # a worker may have several threads


def cache_plan(digest: str, cached: CachedPlan) -> None:
    """Keep a plan in this process, and drop the oldest if there are too many."""
    with cache_lock:
        cached_plans[digest] = cached
        while len(cached_plans) > CACHED_PLANS:
            cached_plans.popitem(last=False)


class SharedPlan(NamedTuple):
    """A plan in the form in which workers get it, once for all of its blocks.

    Attributes
    ----------
    content
        The pieces of the plan (`file.plan_pieces`) as sealed files, by their checksums. Plans with the same
        data have the second piece in common.
    digest
        The name of the plan in its blocks.
    modules
        The modules that define its methods, other than heatbath's own.
    """

    content: dict[str, bytes]
    digest: str
    modules: tuple[str, ...]

    @classmethod
    def of_plan(cls, plan: Plan, digest: str | None = None) -> SharedPlan:
        """Return the shared form of a plan, and keep the plan in this process for blocks computed here.

        `digest` is the name of the plan in its blocks if it has one, as in a folder; None to derive it from
        the pieces.
        """
        pieces = [file.sealed(piece) for piece in file.plan_pieces(plan)]
        content = {hashlib.sha256(piece).hexdigest(): piece for piece in pieces}
        digest = digest or hashlib.sha256("".join(content).encode()).hexdigest()
        _, *checksums_of_data = content
        cache_plan(digest, CachedPlan(plan, checksums_of_data))
        return cls(content, digest, _modules_of(plan))


def _modules_of(plan: Plan) -> tuple[str, ...]:
    """Return the modules that define the methods of a plan, other than heatbath's own, in order."""
    methods = [method for partition in plan.named.values() for method in partition.methods.values()]
    modules = {module_of(type(method)) for method in methods}
    return tuple(sorted(module for module in modules if module is not None))


@dataclass(frozen=True)
class Task:
    """A request to compute the chains `first` to `stop` - 1 up to step `until`.

    Attributes
    ----------
    digest, modules
        The name of the plan and the modules of its methods, as in `SharedPlan`.
    first, stop, until
        The chains, and the last step of the block.
    step, state
        Where the chains begin: at the start, or in a state at this step, as the bytes of a sealed file.
    seconds
        The block ends earlier if it takes longer than this.
    threads
        The number of threads to use.
    """

    digest: str
    modules: tuple[str, ...]
    first: int
    stop: int
    until: int
    step: int = 0
    state: bytes | None = None
    seconds: float = 60.0
    threads: int = 1


class About(NamedTuple):
    """The description of a block, which is in its file as a list of these values.

    Attributes
    ----------
    digest
        The name of the plan.
    first, stop
        The chains `first` to `stop` - 1.
    begin, end
        The step from which the block continues, and its last step.
    losses
        The chains that diverged.
    machine, host
        What the bits depend on (`worker.machine`), and the name of the computer.
    seconds, compiled
        The seconds of computing, and those of compiling before, if something had to be compiled.
    loss, accuracy, temperature
        As in `Progress`, at the end of the block.
    """

    digest: str
    first: int
    stop: int
    begin: int
    end: int
    losses: list[Loss]
    machine: dict[str, str]
    host: str
    seconds: float
    compiled: float
    loss: float
    accuracy: float
    temperature: dict[str, float]

    @classmethod
    def read(cls, text: str) -> About:
        """Return the description that a file has as text."""
        about = cls(*json.loads(text))
        return about._replace(losses=[Loss(*loss) for loss in about.losses])

    @property
    def chains(self) -> range:
        """Chains of the block."""
        return range(self.first, self.stop)

    @property
    def work(self) -> int:
        """Number of steps of all chains together."""
        return len(self.chains) * (self.end - self.begin)

    @property
    def name(self) -> str:
        """Name of the block's file."""
        return NAME.format(self.first, self.stop, self.begin, self.end)


class FinishedBlock(NamedTuple):
    """A computed block: its description and the bytes of its sealed file.

    `state` is the state from which its chains continue, if they are not at the last step of the plan.
    """

    about: About
    content: bytes
    state: bytes | None


class Block(NamedTuple):
    """A block in a store: its description, and its file or the bytes of one."""

    about: About
    content: bytes | Path

    def read(self) -> xr.Dataset:
        """Return all data of the block."""
        return file.read(self.content, self.about.name)

    def arrays(self, names: list[str]) -> dict[str, NDArray[Any]]:
        """Return the results with these names."""
        return file.read_arrays(self.content, names, self.about.name).arrays


def sealed_block(data: xr.Dataset, about: About) -> bytes:
    """Return the bytes of the file of a block."""
    attributes = {"heatbath_format": file.FORMAT, "heatbath_version": version("heatbath")}
    return file.sealed(data.assign_attrs(attributes | {"block": json.dumps(about)}))


def sealed_state(plan: Plan, data: xr.Dataset) -> bytes:
    """Return the state from which chains continue, as the bytes of a sealed file."""
    state = file.in_order(data[state_names(plan)])
    return file.sealed(state.assign_attrs(heatbath_format=file.FORMAT))
