"""The finished blocks of a plan, in memory or in a folder, and how they are joined."""

from __future__ import annotations

import hashlib
import json
import math
import socket
from bisect import bisect_left, insort
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import xarray as xr
from numpy.typing import NDArray

from heatbath._internal import atomic_write
from heatbath._internal.warnings import DifferentBitsWarning, warn
from heatbath.runs import file
from heatbath.runs.continuation import plan_differences
from heatbath.runs.dataset import (
    Piece,
    ResultVariable,
    check_arrays,
    join,
    labels_at,
    lengths,
    results,
)
from heatbath.runs.distributed.block import (
    NAME,
    About,
    Block,
    BlocksError,
    Finished,
    Shared,
    sealed_block,
    sealed_state,
)
from heatbath.runs.distributed.worker import machine
from heatbath.runs.plan import Plan
from heatbath.runs.simulation import Loss

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]
PLAN = "plan.nc"
LOCK = ".lock"
DASK = "runs in a folder are read with Dask, an extra: pip install 'heatbath[dask]'"


class Before(NamedTuple):
    """Where a run stands from which blocks continue; `former` began it, if that is said."""

    step: int
    data: xr.Dataset
    former: str = ""


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
        with lock_folder(folder):
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
            atomic_write.write(path, content)
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
                self.add(Finished(about, sealed_block(data, about), None))

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
                DifferentBitsWarning,
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

    def _part(self, result: ResultVariable, block: Block) -> Any:
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
        if not plan_differences(plan, there):
            with lock_folder(folder):
                _remove(folder)


def _remove(folder: Path) -> None:
    """Remove a folder of blocks. The plan goes after them: what is left of it, where that ends half way, is
    one of the same run, or a new one."""
    for path in folder.iterdir():
        if path.match(NAME.format(*"****")) or atomic_write.is_leftover(path):
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
def lock_folder(folder: Path) -> Iterator[None]:
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
            raise atomic_write.failed(error, place / LOCK, "written") from None
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
        raise atomic_write.failed(error, folder, "made") from None


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
        others = [
            one.name for one in folder.iterdir() if not atomic_write.is_leftover(one) and one.name != LOCK
        ]
        if others:
            raise FileExistsError(
                f"{folder} has other things in it ({', '.join(sorted(others)[:3])}), and no {PLAN}: it is "
                "left alone. Choose another folder"
            )
        names = {} if begins is None else {axis: begins.data[axis] for axis in plan.axes}
        past = xr.Dataset(coords=names).drop_vars("chain", errors="ignore")
        former = "" if begins is None else begins.former
        atomic_write.write(path, file.sealed(file.pack(plan, 0, past, former)))
    content = path.read_bytes()
    packed = file.opened(content, path)
    there, rest = file.unpack_plan(packed, plan.problem)
    if wrong := plan_differences(plan, there):
        raise ValueError(
            f"{folder} is of another run, with other {', '.join(wrong)}: it is left alone. Choose "
            "another name"
        )
    named = rest if set(plan.axes) <= set(rest.coords) else None
    return OfFolder(hashlib.sha256(content).hexdigest(), named, str(packed.attrs.get("begun_by", "")))
