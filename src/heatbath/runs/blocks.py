"""Blocks: some chains of a plan, computed anywhere, and joined to the run that all of them are.

A chain's arithmetic is its own, and every random number has an address: so a block has the bits that its
chains would have among all others, on any computer with the same instructions and the same versions. Where
these differ that is said (`OtherBits`), and a block that another heatbath has computed is refused.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import platform
import socket
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import numpy as np
import xarray as xr

from heatbath import writing
from heatbath.engine.compile import once, reporting, sources
from heatbath.engine.lanes import lanes
from heatbath.methods import module_of
from heatbath.runs import file
from heatbath.runs.dataset import check, gather, join
from heatbath.runs.plan import Plan
from heatbath.runs.simulation import Loss, Progress, Simulation, warn

KEPT = 2  # plans that a worker keeps, with their data
NAME = "chains-{}-{}.nc"


class OtherBits(RuntimeWarning):
    """Blocks were computed on computers or with versions that may round otherwise."""


class Stopped(RuntimeError):
    """A block was not finished, since nobody waits for it any more."""


class Shared(NamedTuple):
    """What all blocks of a plan have in common: the plan as a sealed file, its checksum, and the modules
    that define its methods, where they are not heatbath's own."""

    content: bytes
    digest: str
    modules: tuple[str, ...]

    @classmethod
    def of(cls, plan: Plan) -> Shared:
        """That of a plan."""
        content = b"".join(file.sealed(file.pack(plan, 0, xr.Dataset())))
        kinds = {type(m) for partition in plan.named.values() for m in partition.methods.values()}
        modules = sorted({module for kind in kinds if (module := module_of(kind)) is not None})
        return cls(content, hashlib.sha256(content).hexdigest(), tuple(modules))


@dataclass(frozen=True)
class Task:
    """What a worker is asked for: the chains `first` to `stop` - 1, from the start or from where `before` has
    them at `step`."""

    digest: str
    modules: tuple[str, ...]
    first: int
    stop: int
    step: int = 0
    before: bytes | None = None
    threads: int = 1


class Before(NamedTuple):
    """Where a run stands from which blocks continue."""

    step: int
    data: xr.Dataset

    def of(self, chains: range) -> bytes:
        """The state of some chains, and what was noted of them, as the bytes of a sealed file."""
        own = self.data.isel(chain=slice(chains.start, chains.stop))
        return b"".join(file.sealed(file.in_order(own).assign_attrs(heatbath_format=file.FORMAT)))


_plans: OrderedDict[str, Plan] = OrderedDict()  # those that this process has been given, the latest last


def compute(task: Task, content: bytes | str, halt: Callable[[], bool] | None = None) -> bytes:
    """A block as the bytes of a sealed file: this is what workers do.

    `content` is that of `Shared`, or the path of a file that has it. `halt` tells, when it is asked now and
    then, whether nobody waits any more.
    """
    begin = time.perf_counter()
    plan, chains = _plan_of(task, content), range(task.first, task.stop)
    data = None if task.before is None else file.opened(task.before, "what was before")
    texts: list[str] = []

    def look(_: Progress) -> None:
        if halt is not None and halt():
            raise Stopped(f"chains {task.first} to {task.stop - 1}: nobody waits for them any more")

    with reporting(texts.append):
        simulation = Simulation(plan, task.step, data, task.threads, chains)
        compiling = time.perf_counter()
        with once():
            simulation.prepare()
        compiled = time.perf_counter() - compiling if texts else 0.0
        if not simulation.run(look, None, 0.0):
            raise Stopped(f"chains {task.first} to {task.stop - 1}: interrupted")
    result = gather(plan, simulation.groups, task.step, data, chains)
    last = simulation.progress(0.0)
    about = About(
        task.digest, task.first, task.stop, simulation.losses(), machine(), socket.gethostname(),
        time.perf_counter() - begin, compiled, last.loss, last.accuracy, last.temperature,
    )  # fmt: skip
    attributes = {"heatbath_format": file.FORMAT, "heatbath_version": version("heatbath")}
    return b"".join(file.sealed(result.assign_attrs(attributes | {"block": json.dumps(about)})))


def machine() -> dict[str, str]:
    """What the bits of a chain depend on, beside its plan."""
    return {
        "heatbath": sources(),
        "numba": version("numba"),
        "llvmlite": version("llvmlite"),
        "numpy": version("numpy"),
        "processor": platform.machine(),
        "lanes": str(lanes(np.dtype("float32"))),
    }


def _plan_of(task: Task, content: bytes | str) -> Plan:
    """The plan of a task, which a process reads once."""
    if task.digest in _plans:
        _plans.move_to_end(task.digest)
        return _plans[task.digest]
    for module in task.modules:
        if module != "__main__":  # of a script: where it is known it is so already, and else it is refused
            importlib.import_module(module)
    whole = content if isinstance(content, bytes) else Path(content).read_bytes()
    if hashlib.sha256(whole).hexdigest() != task.digest:
        raise ValueError("the plan that has arrived is not the one that was sent: its checksum is wrong")
    plan, _ = file.unpack_plan(file.opened(whole, "the plan"), None)
    _plans[task.digest] = plan
    while len(_plans) > KEPT:
        _plans.popitem(last=False)
    return plan


class About(NamedTuple):
    """What a block says of itself: its plan, chains and how they ended, and where and how fast it was made.
    `loss`, `accuracy` and `temperature` are those of a `Progress` at its end."""

    digest: str
    first: int
    stop: int
    losses: list[Loss]
    machine: dict[str, str]
    host: str
    seconds: float
    compiled: float  # of the seconds
    loss: float
    accuracy: float
    temperature: dict[str, float]

    @classmethod
    def read(cls, data: xr.Dataset) -> About:
        """That of a block that was read."""
        about = cls(*json.loads(data.attrs["block"]))
        return about._replace(losses=[Loss(*loss) for loss in about.losses])

    @property
    def chains(self) -> range:
        """The chains of the block."""
        return range(self.first, self.stop)


class Store:
    """The blocks of a plan that are finished: in memory, or in a folder if one is given."""

    def __init__(self, plan: Plan, digest: str, folder: Path | None) -> None:
        self.plan, self.digest, self.folder = plan, digest, folder
        self.known: dict[int, About] = {}
        self._contents: dict[int, bytes | Path] = {}
        self._machine = machine()
        self._others: set[str] = set()
        if folder is not None:
            folder.mkdir(exist_ok=True)
            for path in sorted(folder.glob(NAME.format("*", "*"))):
                self._keep(About.read(file.read(path)), path)

    def add(self, content: bytes) -> About:
        """Keep a block that has come, whole or not at all."""
        about = About.read(file.opened(content, "a block"))
        if self.folder is None:
            self._keep(about, content)
            return about
        path = self.folder / NAME.format(about.first, about.stop)
        writing.write(path, content)
        self._keep(about, path)
        return about

    def _keep(self, about: About, content: bytes | Path) -> None:
        name = (
            content if isinstance(content, Path) else f"the block of chains {about.first} to {about.stop - 1}"
        )
        if about.digest != self.digest:
            raise ValueError(f"{name} is of another run: it is left alone. Choose another checkpoint")
        if about.machine["heatbath"] != self._machine["heatbath"]:
            raise ValueError(
                f"{name} was computed on {about.host} by another version of heatbath, which may round "
                "otherwise: have the same one on all computers, or remove the block"
            )
        if any(max(about.first, one.first) < min(about.stop, one.stop) for one in self.known.values()):
            raise ValueError(f"{name}: some of these chains are there twice; remove one of the blocks")
        differ = [f"{name} {value}" for name, value in about.machine.items() if self._machine[name] != value]
        if differ and about.host not in self._others:
            self._others.add(about.host)
            here = ", ".join(f"{name} {self._machine[name]}" for name in self._machine)
            warn(
                f"{about.host} has {', '.join(differ)}, and this computer {here}: chains that were computed "
                "there may differ in their last bits from what they would be here",
                OtherBits,
            )
        self.known[about.first], self._contents[about.first] = about, content

    @property
    def done(self) -> int:
        """How many chains are there."""
        return sum(len(about.chains) for about in self.known.values())

    def losses(self) -> list[Loss]:
        """The chains that diverged, in order."""
        return sorted(loss for about in self.known.values() for loss in about.losses)

    def missing(self) -> list[range]:
        """The chains that are not there yet, in order."""
        there = [self.known[first] for first in sorted(self.known)]
        edges = [0, *(edge for about in there for edge in (about.first, about.stop)), self.plan.total]
        pairs = zip(edges[::2], edges[1::2], strict=True)
        return [range(first, stop) for first, stop in pairs if first < stop]

    def joined(self) -> xr.Dataset:
        """The results of all chains; beside them one block at a time is in memory."""
        return join(self.plan, (self._data(first) for first in sorted(self.known)))

    def _data(self, first: int) -> xr.Dataset:
        content = self._contents[first]
        data = file.read(content) if isinstance(content, Path) else file.opened(content, "a block")
        check(self.plan, self.plan.steps, data, self.known[first].chains)
        return data.drop_attrs()

    def remove(self) -> None:
        """Remove the folder: what was in it is elsewhere now."""
        for path in self._contents.values():
            if isinstance(path, Path):
                path.unlink()
        if self.folder is not None:
            self.folder.rmdir()
