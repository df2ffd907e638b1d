"""Blocks: some chains of a plan over some of its steps, computed anywhere, and joined to the run they are of.

A chain's arithmetic is its own, and every random number has an address: so a block has the bits that its
chains would have among all others, on any computer with the same instructions and the same versions. Where
these differ that is said (`OtherBits`), and a block that another heatbath has computed is refused.

A block is a sealed NetCDF file: it is there whole or not at all, with a checksum, whoever is killed. So a
folder of blocks is a run that can be larger than memory. (One file with an unlimited dimension has a single
writer, and is lost with him; of many arrays in pieces, as Zarr has them, a writer that is killed leaves some
new and some old, and nothing tells.)
"""

from __future__ import annotations

import hashlib
import importlib
import json
import math
import platform
import socket
import time
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from threading import RLock
from typing import Any, NamedTuple, TypeAlias

import h5py
import llvmlite.binding
import numpy as np
import xarray as xr
from numpy.typing import NDArray
from threadpoolctl import threadpool_info

from heatbath import writing
from heatbath.engine.compile import once, reporting
from heatbath.methods import module_of
from heatbath.runs import file
from heatbath.runs.dataset import (
    Piece,
    Result,
    check_arrays,
    gather,
    join,
    labels_at,
    lengths,
    results,
    state_names,
)
from heatbath.runs.plan import Plan
from heatbath.runs.simulation import Loss, Progress, Simulation, uses_blas, warn

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

ASIDE = (
    "__init__.py",
    "plotting",
    "torch",
    "estimators",
    "explorer",
    "cli",
    "experiments",
    "writing.py",
)  # not what decides
VECTORS = ("avx", "fma", "neon", "sve")  # what instructions for vectors are called
KEPT = 2  # plans that a worker keeps, with their data
PLAN = "plan.nc"
LOCK = ".lock"
NAME = "chains-{}-{}-steps-{}-{}.nc"
DASK = "runs in a folder are read with Dask, an extra: pip install 'heatbath[dask]'"


Content: TypeAlias = bytes | Callable[[], bytes]  # or what gives it, to who has not read it yet


class OtherBits(RuntimeWarning):
    """Blocks were computed on computers or with versions that may round otherwise."""


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
        _keep_plan(digest, Known(plan, list(content)[1:]))
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


class Before(NamedTuple):
    """Where a run stands from which blocks continue; `former` began it, if that is said."""

    step: int
    data: xr.Dataset
    former: str = ""


class Known(NamedTuple):
    """A plan that this process has been given, and the checksum of its data, if they are a piece."""

    plan: Plan
    data: list[str]


_plans: OrderedDict[str, Known] = OrderedDict()  # the latest last
_ready: set[Hashable] = set()  # the compiled code that this process has
_reading = RLock()  # a worker may have several threads


def compute(task: Task, content: Mapping[str, Content], wanted: Callable[[], bool] | None = None) -> Finished:
    """Compute a block: this is what workers do.

    `content` is that of `Shared`, or what gives its pieces. `wanted` tells, when it is asked now and then,
    whether somebody still waits.
    """

    def look(_: Progress | None = None) -> None:
        if wanted is not None and not wanted():
            raise Stopped(f"chains {task.first} to {task.stop - 1}: nobody waits for them any more")

    look()
    plan, chains = _plan_of(task, content), range(task.first, task.stop)
    before = None if task.state is None else file.opened(task.state, "the state")
    texts: list[str] = []
    with reporting(texts.append):
        simulation = Simulation(plan, task.step, before, task.threads, chains, task.until)
        waiting = time.perf_counter()  # for another process to compile, or for this one
        with nullcontext() if simulation.code <= _ready else once():  # who has it does not wait for others
            simulation.prepare()
        _ready.update(simulation.code)
        begin = time.perf_counter()
        compiled = begin - waiting if texts else 0.0
        if not simulation.run(look, seconds=task.seconds):
            raise Stopped(f"chains {task.first} to {task.stop - 1}: interrupted")
    result = gather(plan, simulation.groups, task.step, None, chains)
    last = simulation.progress(0.0)
    about = About(
        task.digest, task.first, task.stop, task.step, simulation.step, simulation.losses(),
        machine(plan, task.modules), socket.gethostname(), time.perf_counter() - begin, compiled,
        last.loss, last.accuracy, last.temperature,
    )  # fmt: skip
    state = None if about.end == plan.steps else sealed_state(plan, result)
    return Finished(about, _sealed_block(result, about), state)


def _sealed_block(data: xr.Dataset, about: About) -> bytes:
    """The bytes of the file of a block."""
    attributes = {"heatbath_format": file.FORMAT, "heatbath_version": version("heatbath")}
    return file.sealed(data.assign_attrs(attributes | {"block": json.dumps(about)}))


def sealed_state(plan: Plan, data: xr.Dataset) -> bytes:
    """The state from which chains go on, as the bytes of a sealed file."""
    own = file.in_order(data[state_names(plan)])
    return file.sealed(own.assign_attrs(heatbath_format=file.FORMAT))


def machine(plan: Plan, modules: Sequence[str]) -> dict[str, str]:
    """What the bits of a chain depend on, beside its plan; `modules` define its methods."""
    files = [getattr(importlib.import_module(name), "__file__", None) for name in modules]
    own = {"methods": hashed(Path(path) for path in files if path)} if modules else {}
    packages = {name: version(name) for name in ("numba", "llvmlite", "numpy")}
    if uses_blas(plan):  # whose kernels are those of the processor
        import scipy.linalg.cython_blas  # noqa: F401

        kernels = sorted({one["architecture"] for one in threadpool_info() if "architecture" in one})
        packages |= {"scipy": version("scipy"), "kernels": " ".join(kernels)}
    place = {"processor": platform.machine(), "instructions": instructions()}
    return {"heatbath": library(), **own, **packages, **place}


@lru_cache
def instructions() -> str:
    """The instructions for vectors that this processor has: where there are others, NumPy takes other code
    for exponentials and the like, which rounds otherwise."""
    try:
        features = llvmlite.binding.get_host_cpu_features()
    except RuntimeError:  # where LLVM cannot tell
        return "unknown"
    return " ".join(sorted(name for name, there in features.items() if there and name.startswith(VECTORS)))


@lru_cache
def library() -> str:
    """A hash of the code that decides what is computed."""
    root = Path(file.__file__).parent.parent
    paths = {path.relative_to(root).as_posix(): path for path in sorted(root.rglob("*.py"))}
    return hashed(path for name, path in paths.items() if not name.startswith(ASIDE))


def hashed(paths: Iterable[Path]) -> str:
    """A hash of files, with their names."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def _plan_of(task: Task, content: Mapping[str, Content]) -> Plan:
    """The plan of a task, which a process reads once; its data, too, as long as it keeps a plan with them."""
    with _reading:
        if task.digest in _plans:
            _plans.move_to_end(task.digest)
            return _plans[task.digest].plan
        for module in task.modules:
            if (
                module != "__main__"
            ):  # of a script: where it is known it is so already, and else it is refused
                importlib.import_module(module)
        first, *data = content
        packed, problem = _opened(first, content), None
        like = next((one.plan for one in _plans.values() if data and one.data == data), None)
        if like is not None:
            packed, problem = file.with_average(packed, like), like.problem
        elif data:
            packed = packed.assign(_opened(data[0], content).data_vars)
        plan, _ = file.unpack_plan(packed, problem)
        _keep_plan(task.digest, Known(plan, data))
        return plan


def _opened(checksum: str, content: Mapping[str, Content]) -> xr.Dataset:
    """A piece of what was sent."""
    piece = content[checksum]
    whole = piece if isinstance(piece, bytes) else piece()
    if hashlib.sha256(whole).hexdigest() != checksum:
        raise ValueError("the plan that has arrived is not the one that was sent: its checksum is wrong")
    return file.opened(whole, "the plan")


def _keep_plan(digest: str, known: Known) -> None:
    with _reading:
        _plans[digest] = known
        while len(_plans) > KEPT:
            _plans.popitem(last=False)


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


class Store:
    """The blocks of a plan that are there, in memory or in a folder if one is given; `before` them was a run,
    or nothing. A folder that `begins` with that run has it in blocks, too."""

    def __init__(
        self,
        plan: Plan,
        folder: Path | None = None,
        before: Before | None = None,
        begins: Before | None = None,
        finished: bool = False,
    ) -> None:
        self.plan, self.folder, self.before, self.finished = plan, folder, before, finished
        self.blocks: dict[int, list[Block]] = {}  # by the first of their chains, in the order of their steps
        self.done = self.work = 0  # chains at the last step; steps that are made, of all chains
        self._firsts: list[int] = []  # in order
        self._others: set[str] = set()
        self._of_folder = None if folder is None else _plan_in(folder, plan, begins)
        self.shared = Shared.of(plan, self._of_folder and self._of_folder.digest)
        self._machine = machine(plan, self.shared.modules)
        if folder is not None:
            found = [(about_of(path), path) for path in folder.glob(NAME.format(*"****"))]
            for about, path in sorted(found, key=lambda one: (one[0].first, one[0].begin)):
                self._check(about, path)
                self._keep(Block(about, path))

    @classmethod
    def load(cls, folder: Path, plan: Plan) -> Store:
        """That of a run that is finished."""
        store = cls(plan, folder, finished=True)
        if store.done < plan.total:
            raise ValueError(
                f"{folder} has {store.done} of {plan.total} chains to the last step: call what began it "
                "again, which goes on from there"
            )
        return store

    @classmethod
    @contextmanager
    def locked(
        cls,
        plan: Plan,
        folder: Path | None,
        before: Before | None = None,
        begins: Before | None = None,
    ) -> Iterator[Store]:
        """The same, to add blocks to: within, no other process computes for the same folder."""
        if folder is None:
            yield cls(plan, None, before)
            return
        _make(folder)
        with _lock(folder):
            yield cls(plan, folder, before, begins)

    @property
    def former(self) -> str:
        """The version that began the run in a folder, where that rounded otherwise."""
        return "" if self._of_folder is None else self._of_folder.former

    @property
    def first(self) -> int:
        """The step at which blocks begin."""
        return 0 if self.before is None else self.before.step

    def add(self, block: Finished) -> None:
        """Keep a block that has come, whole or not at all."""
        about, content = block.about, block.content
        self._check(about, about.name)
        _check_content(about, content)
        if self.folder is None:
            self._keep(Block(about, content))
        else:
            path = self.folder / about.name
            writing.write(path, content)
            self._keep(Block(about, path))

    def begin(self, start: Before, most: int) -> None:
        """Have the run before as blocks, of those chains of which there are none yet: as it is cut already,
        or of so many chains at `most`. One of them at a time is in memory."""
        cut = np.cumsum([0, *start.data["theta"].chunksizes.get("chain", ())]).tolist()
        if len(cut) == 1:
            cut = range(0, self.plan.total, most)
        for missing in self.missing():
            inside = [edge for edge in cut if missing.start < edge < missing.stop]
            for first, stop in pairwise([missing.start, *inside, missing.stop]):
                data = file.in_order(start.data.isel(chain=slice(first, stop)).compute())
                about = About(
                    self.shared.digest, first, stop, 0, start.step, [], self._machine, socket.gethostname(),
                    0.0, 0.0, math.nan, math.nan, {},
                )  # fmt: skip
                self.add(Finished(about, _sealed_block(data, about), None))

    def _keep(self, block: Block) -> None:
        about = block.about
        if about.first not in self.blocks:
            insort(self._firsts, about.first)
        self.blocks.setdefault(about.first, []).append(block)
        self.work += about.work
        self.done += len(about.chains) if about.end == self.plan.steps else 0

    def _check(self, about: About, name: object) -> None:
        """Refuse a block that has no place here, and tell where bits may be others."""
        if about.digest != self.shared.digest:
            raise ValueError(f"{name} is of another run: it is left alone. Choose another checkpoint")
        if not self.finished:  # else there is nothing that others would have to go with
            self._check_machine(about, name)
        place = bisect_left(self._firsts, about.first)
        near = [self.blocks[first][-1].about for first in self._firsts[max(0, place - 1) : place + 2]]
        mine = next((one for one in near if one.chains == about.chains), None)
        if any(max(about.first, one.first) < min(about.stop, one.stop) for one in near if one is not mine):
            raise ValueError(f"{name}: some of these chains are there twice; remove one of the blocks")
        end = self.first if mine is None else mine.end
        if about.begin != end:
            raise ValueError(
                f"{name} begins at step {about.begin}, and what there is of these chains ends at {end}: "
                "remove the block"
            )

    def _check_machine(self, about: About, name: object) -> None:
        """Refuse a block that other code has computed, and tell where bits may be others."""
        there = about.machine
        differ = [key for key in sorted({*there, *self._machine}) if there.get(key) != self._machine.get(key)]
        for key, what in (
            ("heatbath", "another version of heatbath"),
            ("methods", f"other sources of {', '.join(self.shared.modules)}"),
        ):
            if key in differ:
                raise ValueError(
                    f"{name} was computed on {about.host} with {what}: have the same on all computers, or "
                    "remove the block"
                )
        if differ and about.host not in self._others:
            self._others.add(about.host)
            texts = [
                ", ".join(f"{key} {values.get(key, 'unknown')}" for key in differ)
                for values in (there, self._machine)
            ]
            warn(
                f"{about.host} has {texts[0]}, and this computer {texts[1]}: chains that were computed there "
                "may differ in their last bits from what they would be here",
                OtherBits,
            )

    def latest(self) -> list[About]:
        """Of all chains that are there the last block."""
        return [self.blocks[first][-1].about for first in self._firsts]

    def losses(self) -> list[Loss]:
        """The chains that diverged, in order."""
        return sorted(loss for about in self.latest() for loss in about.losses)

    def missing(self) -> list[range]:
        """The chains of which nothing is there yet, in order."""
        edges = [0, *(edge for about in self.latest() for edge in (about.first, about.stop)), self.plan.total]
        pairs = zip(edges[::2], edges[1::2], strict=True)
        return [range(first, stop) for first, stop in pairs if first < stop]

    def unfinished(self) -> list[About]:
        """The last blocks of chains that are there, but not at the last step."""
        return [about for about in self.latest() if about.end < self.plan.steps]

    def state(self, chains: range) -> bytes | None:
        """The state from which some chains go on, as the bytes of a sealed file; None at the start."""
        if own := self.blocks.get(chains.start):
            return sealed_state(self.plan, own[-1].read())
        if self.before is None:
            return None
        return sealed_state(self.plan, self.before.data.isel(chain=slice(chains.start, chains.stop)))

    def joined(self) -> xr.Dataset:
        """The results of all chains; beside them one block at a time is in memory. Blocks in memory are
        given up for that."""
        return join(self.plan, self._pieces(), None if self.before is None else self.before.data)

    def _pieces(self) -> Iterator[Piece]:
        names = [result.name for result in results(self.plan) if result.of_group is not None]
        for first in self._firsts:
            for block in self.blocks[first]:
                about, arrays = block.about, block.arrays(names)
                check_arrays(self.plan, arrays, about.chains, about.begin, about.end)
                yield Piece(about.chains, about.begin, about.end, arrays)
            if self.folder is None:  # it is elsewhere now: not all is in memory twice
                self.blocks[first] = [Block(block.about, b"") for block in self.blocks[first]]

    def lazy(self) -> xr.Dataset:
        """The results of all chains as arrays of Dask, which are read when they are asked for, a block at a
        time; what is one number for each chain is read at once. Blocks must be in a folder, from the start.
        """
        check_lazy()
        import dask.array

        chains = [self.blocks[first] for first in self._firsts]
        variables: dict[str, Any] = {}
        for result in results(self.plan):
            if result.of_group is None:
                continue
            along = result.dimensions.index("chain")
            rows = []
            for own in chains:
                parts = [self._part(result, block) for block in (own if result.noted else own[-1:])]
                axis = result.dimensions.index(result.noted) if result.noted else 0
                rows.append(dask.array.concatenate(parts, axis=axis) if len(parts) > 1 else parts[0])
            values = dask.array.concatenate(rows, axis=along)
            small = result.dimensions == ("chain",)
            variables[result.name] = result.dimensions, values.compute() if small else values
        return xr.Dataset(variables, labels_at(self.plan, self._of_folder and self._of_folder.names))

    def _part(self, result: Result, block: Block) -> Any:
        """A result of a block, which is read later."""
        import dask
        import dask.array

        about, kind = block.about, result.dtype(self.plan)
        long = lengths(self.plan, about.end, about.chains, about.begin)
        shape = tuple(long[name] for name in result.dimensions)
        later = dask.delayed(_values, pure=True)(str(block.content), result.name)
        return dask.array.from_delayed(later, shape, kind)

    def remove(self) -> None:
        """Remove the folder: what was in it is elsewhere now."""
        if self.folder is not None:
            _remove(self.folder)


def discard(folder: Path, plan: Plan) -> None:
    """Remove a folder of blocks of a plan whose run is joined: who has joined them was ended before that."""
    if (folder / PLAN).is_file():
        there, _ = file.unpack_plan(file.read(folder / PLAN), plan.problem)
        if not plan.differences(there):
            with _lock(folder):
                _remove(folder)


def _remove(folder: Path) -> None:
    """Remove a folder of blocks. The plan goes after them: what is left of it, where that ends half way, is
    one of the same run, or a new one."""
    for path in folder.iterdir():
        if path.match(NAME.format(*"****")) or writing.is_leftover(path):
            path.unlink()
    for name in (PLAN, LOCK):
        (folder / name).unlink(missing_ok=True)
    folder.rmdir()


def _check_content(about: About, content: bytes) -> None:
    """Refuse a file that is damaged, or not that of the block that it came with."""
    if file.opened_arrays(content, about.name, [])[1] != json.dumps(about):
        raise ValueError(f"{about.name}: its file is of another block, or says otherwise of this one")


def about_of(path: Path) -> About:
    """What a block in a file says of itself."""
    try:
        return About.read(file.read_arrays(path, [])[1])
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError(
            f"{error}: {path} is not a block of a run. Remove it, and call what began the run again: it goes "
            "on, and computes the block anew"
        ) from error


def check_lazy() -> None:
    """Refuse to go on without Dask, where a run is to be read with it."""
    try:
        import dask.array  # noqa: F401
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(DASK, name="dask") from error


def _values(path: str, name: str) -> NDArray[Any]:
    """One result in the file of a block, whose seal was found right when the folder was opened."""
    with h5py.File(path, "r") as data:
        return np.asarray(data[name][...])


_held: set[Path] = set()  # the folders that this process has locked: locks are those of whole processes


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Within, no other has this lock, where files can be locked. It ends with this process, however that
    ends, and processes that were forked from it do not have it."""
    place = folder.resolve()
    busy = BlocksError(f"{folder}: another process is computing blocks for it now; wait for it, or end it")
    if place in _held:
        raise busy
    _held.add(place)
    try:
        try:
            file = open(place / LOCK, "ab")  # noqa: SIM115
        except OSError as error:
            raise writing.failed(error, place / LOCK, "written") from None
        with file:
            try:
                if fcntl is not None:
                    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):
                raise busy from None
            except OSError:  # a network's file system may have no locks
                pass
            yield
    finally:
        _held.discard(place)


def _make(folder: Path) -> None:
    """Make a folder for blocks, where there is none."""
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(
            f"{folder} is a file, and blocks of a run need a folder: choose another name"
        )
    if not folder.parent.is_dir():
        raise FileNotFoundError(f"{folder} cannot be made: there is no folder {folder.parent}")
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise writing.failed(error, folder, "made") from None


class OfFolder(NamedTuple):
    """What the file of a plan in a folder says: the checksum of it all, which is what blocks call the plan;
    what points were called before their coefficients were changed, if they were; and who began the run."""

    digest: str
    names: xr.Dataset | None
    former: str


def _plan_in(folder: Path, plan: Plan, begins: Before | None) -> OfFolder:
    """The file of a plan in a folder, which must be this one; if the folder is new it is made, of a run that
    begins with another."""
    _make(folder)
    path = folder / PLAN
    if not path.exists():
        others = [one.name for one in folder.iterdir() if not writing.is_leftover(one) and one.name != LOCK]
        if others:
            raise FileExistsError(
                f"{folder} has other things in it ({', '.join(sorted(others)[:3])}), and no {PLAN}: it is "
                "left alone. Choose another folder"
            )
        names = {} if begins is None else {axis: begins.data[axis] for axis in plan.axes}
        past = xr.Dataset(coords=names).drop_vars("chain", errors="ignore")
        former = "" if begins is None else begins.former
        writing.write(path, file.sealed(file.pack(plan, 0, past, former)))
    content = path.read_bytes()
    packed = file.opened(content, path)
    there, rest = file.unpack_plan(packed, plan.problem)
    if wrong := plan.differences(there):
        raise ValueError(
            f"{folder} is of another run, with other {', '.join(wrong)}: it is left alone. Choose "
            "another name"
        )
    named = rest if set(plan.axes) <= set(rest.coords) else None
    return OfFolder(hashlib.sha256(content).hexdigest(), named, str(packed.attrs.get("begun_by", "")))
