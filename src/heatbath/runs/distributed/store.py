"""Keep the finished blocks of a plan, in memory or in a folder, and join them.

A folder of blocks has the file of the plan, a lock, and a file for each block.
"""

from __future__ import annotations

import hashlib
import json
import math
import socket
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import h5py
import numpy as np
import xarray as xr
from numpy.typing import NDArray

from heatbath._internal import atomic_write
from heatbath._internal.extras import needed
from heatbath._internal.warnings import DifferentBitsWarning, warn
from heatbath.runs import dataset, file
from heatbath.runs.continuation import plan_differences
from heatbath.runs.distributed.block import (
    NAME,
    About,
    Block,
    BlocksError,
    FinishedBlock,
    SharedPlan,
    sealed_block,
    sealed_state,
)
from heatbath.runs.distributed.worker import machine
from heatbath.runs.plan import Plan
from heatbath.runs.simulation import Loss

if TYPE_CHECKING:
    import dask.array

    from heatbath.runs.run import Run

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

BLOCK_FILES = NAME.format("*", "*", "*", "*")  # the pattern of their names
PLAN = "plan.nc"
LOCK = ".lock"
LISTED_NAMES = 3  # of the files that do not belong in a folder of blocks
NO_DASK = "runs in a folder are read with Dask, an extra: pip install 'heatbath[dask]'"


class FolderPlan(NamedTuple):
    """What the file of a plan in a folder says.

    Attributes
    ----------
    digest
        The checksum of the file, which is the name of the plan in its blocks.
    labels
        The labels of points before their coefficients were changed, or None.
    former
        The version that began the run, if it rounded otherwise; else "".
    """

    digest: str
    labels: xr.Dataset | None
    former: str


class Store:
    """The finished blocks of a plan, in memory or in a folder.

    Parameters
    ----------
    plan
        The plan of all chains.
    folder
        Where the blocks are kept; None for in memory. The blocks that it has already are read.
    earlier
        A run that the blocks continue, which is not in the store itself.
    copied
        A run that the blocks continue, which a new folder gets as blocks, too (by `copy_run`).
    finished
        True if the folder is only read, so that blocks of other versions of heatbath are accepted.

    Attributes
    ----------
    blocks
        The blocks by the first of their chains, in the order of their steps.
    done, work
        The number of chains at the last step, and of steps made, of all chains together.
    shared
        The plan as workers get it.
    """

    def __init__(
        self,
        plan: Plan,
        folder: Path | None = None,
        earlier: Run | None = None,
        copied: Run | None = None,
        finished: bool = False,
    ) -> None:
        """Read the blocks that are in the folder, and check that they fit to the plan and to one another.

        The class describes the arguments. A folder without a plan gets the file of this one.
        """
        self.plan = plan
        self.folder = folder
        self.earlier = earlier
        self.finished = finished
        self.blocks: dict[int, list[Block]] = {}
        self.done = 0
        self.work = 0
        self._firsts: list[int] = []  # keys of `blocks` in order
        self._reported_hosts: set[str] = set()  # computers on which bits may differ

        self._folder_plan = None if folder is None else _plan_in_folder(folder, plan, copied)
        digest = None if self._folder_plan is None else self._folder_plan.digest
        self.shared = SharedPlan.of_plan(plan, digest)
        self._machine = machine(plan, self.shared.modules)
        if folder is not None:
            self._read_blocks(folder)

    def _read_blocks(self, folder: Path) -> None:
        """Check and keep the blocks in a folder, those of the same chains in the order of their steps."""
        blocks = [Block(about_block(path), path) for path in folder.glob(BLOCK_FILES)]
        for block in sorted(blocks, key=lambda block: (block.about.first, block.about.begin)):
            self._check(block.about, block.content)
            self._keep(block)

    @classmethod
    def load(cls, folder: Path, plan: Plan) -> Store:
        """Return the store of a finished run in a folder, or raise if chains are missing."""
        store = cls(plan, folder, finished=True)
        if store.done < plan.total:
            raise ValueError(
                f"{folder} has {store.done} of {plan.total} chains to the last step: repeat the call that "
                "began it, which continues from there"
            )
        return store

    @classmethod
    @contextmanager
    def locked(
        cls,
        plan: Plan,
        folder: Path | None,
        earlier: Run | None = None,
        copied: Run | None = None,
    ) -> Iterator[Store]:
        """Yield a store to which blocks can be added, and hold the lock of its folder in the context.

        A folder is made if there is none. Raises BlocksError if another process holds its lock. The arguments
        are those of the class.
        """
        if folder is None:
            yield cls(plan, None, earlier)
            return
        _make_folder(folder)
        with lock_folder(folder):
            yield cls(plan, folder, earlier, copied)

    @property
    def former(self) -> str:
        """Version that began the run in a folder, if it rounded otherwise; else ""."""
        return "" if self._folder_plan is None else self._folder_plan.former

    @property
    def first(self) -> int:
        """Step at which the blocks begin."""
        return 0 if self.earlier is None else self.earlier.step

    def add(self, block: FinishedBlock) -> None:
        """Check a block that a worker has computed, and keep it."""
        about = block.about
        self._check(about, about.name)
        _check_content(about, block.content)
        if self.folder is None:
            self._keep(Block(about, block.content))
        else:
            path = self.folder / about.name
            atomic_write.write(path, block.content)
            self._keep(Block(about, path))

    def copy_run(self, run: Run, chains: int) -> None:
        """Add a run as blocks of those chains that have none yet, with one block at a time in memory.

        Parameters
        ----------
        run
            The run, in memory or in a folder.
        chains
            The number of chains of a block, for a run in memory. One in a folder has its blocks already.
        """
        block_sizes = run.data["theta"].chunksizes.get("chain", ())
        edges: Sequence[int] = range(0, self.plan.total, chains)
        if block_sizes:  # the run is in a folder
            edges = np.cumsum(block_sizes).tolist()

        for missing in self.missing():
            inside = [edge for edge in edges if missing.start < edge < missing.stop]
            for first, stop in pairwise([missing.start, *inside, missing.stop]):
                self._copy_chains(run, first, stop)

    def _copy_chains(self, run: Run, first: int, stop: int) -> None:
        """Add the chains `first` to `stop` - 1 of a run as one block."""
        data = file.in_order(run.data.isel(chain=slice(first, stop)).compute())
        about = About(
            digest=self.shared.digest, first=first, stop=stop, begin=0, end=run.step, losses=[],
            machine=self._machine, host=socket.gethostname(), seconds=0.0, compiled=0.0,
            loss=math.nan, accuracy=math.nan, temperature={},
        )  # fmt: skip
        self.add(FinishedBlock(about, sealed_block(data, about), None))

    def _keep(self, block: Block) -> None:
        """Count a block and put it behind the earlier ones of its chains."""
        about = block.about
        if about.first not in self.blocks:
            insort(self._firsts, about.first)
        self.blocks.setdefault(about.first, []).append(block)
        self.work += about.work
        if about.end == self.plan.steps:
            self.done += len(about.chains)

    def _check(self, about: About, name: object) -> None:
        """Raise ValueError unless a block fits behind those that are stored; warn if its bits may differ.

        It must be of the same plan, computed by the same code, of exactly the chains of an earlier block or
        of none, and begin where that ends. `name` is what the error calls it.
        """
        if about.digest != self.shared.digest:
            raise ValueError(f"{name} is of another run: it is left alone. Choose another checkpoint")
        if not self.finished:  # blocks of a finished run need not fit to new ones
            self._check_machine(about, name)

        end = self.first
        for block in self._neighbours(about):
            overlaps = max(about.first, block.first) < min(about.stop, block.stop)
            if block.chains == about.chains:
                end = block.end
            elif overlaps:
                raise ValueError(f"{name}: two blocks have some of these chains; remove one of them")
        if about.begin != end:
            raise ValueError(
                f"{name} begins at step {about.begin}, and the block before it ends at {end}: "
                "remove the block"
            )

    def _neighbours(self, about: About) -> list[About]:
        """Return the latest blocks of the chains beside those of a block, which are all that can overlap."""
        position = bisect_left(self._firsts, about.first)
        firsts = self._firsts[max(0, position - 1) : position + 2]
        return [self.blocks[first][-1].about for first in firsts]

    def _check_machine(self, about: About, name: object) -> None:
        """Raise ValueError if other code has computed a block; warn once per computer if its bits may differ.

        `name` is what the error calls the block.
        """
        remote = about.machine
        local = self._machine
        different = [key for key in sorted({*remote, *local}) if remote.get(key) != local.get(key)]
        reasons = {
            "heatbath": "another version of heatbath",
            "methods": f"other sources of {', '.join(self.shared.modules)}",
        }
        for key, reason in reasons.items():
            if key in different:
                raise ValueError(
                    f"{name} was computed on {about.host} with {reason}: install the same on all computers, "
                    "or remove the block"
                )

        if different and about.host not in self._reported_hosts:
            self._reported_hosts.add(about.host)
            remote_versions = ", ".join(f"{key} {remote.get(key, 'unknown')}" for key in different)
            local_versions = ", ".join(f"{key} {local.get(key, 'unknown')}" for key in different)
            warn(
                f"{about.host} has {remote_versions}, and this computer {local_versions}: chains that were "
                "computed there may differ in their last bits from what they would be here",
                DifferentBitsWarning,
            )

    def latest(self) -> list[About]:
        """Return the last block of all chains that have one, in order."""
        return [self.blocks[first][-1].about for first in self._firsts]

    def losses(self) -> list[Loss]:
        """Return the chains that diverged, in order."""
        return sorted(loss for about in self.latest() for loss in about.losses)

    def missing(self) -> list[range]:
        """Return the chains that have no block yet, in order."""
        missing = []
        first_missing = 0
        for about in self.latest():
            missing.append(range(first_missing, about.first))
            first_missing = about.stop
        missing.append(range(first_missing, self.plan.total))
        return [chains for chains in missing if chains]

    def unfinished(self) -> list[About]:
        """Return the last block of those chains that are not at the last step."""
        return [about for about in self.latest() if about.end < self.plan.steps]

    def state(self, chains: range) -> bytes | None:
        """Return the state from which chains continue, as the bytes of a sealed file; None at the start."""
        blocks = self.blocks.get(chains.start)
        if blocks:
            return sealed_state(self.plan, blocks[-1].read())
        if self.earlier is None:
            return None
        return sealed_state(self.plan, self.earlier.data.isel(chain=slice(chains.start, chains.stop)))

    def joined(self) -> xr.Dataset:
        """Return the results of all chains, with one further block at a time in memory.

        Blocks that are in memory are given up for that.
        """
        earlier = None if self.earlier is None else self.earlier.data
        return dataset.join(self.plan, self._pieces(), earlier)

    def _pieces(self) -> Iterator[dataset.RunPiece]:
        """Yield the data of all blocks, and drop those that were in memory."""
        names = [result.name for result in dataset.computed_results(self.plan)]
        for first in self._firsts:
            for block in self.blocks[first]:
                about = block.about
                arrays = block.arrays(names)
                dataset.check_arrays(self.plan, arrays, about.chains, about.begin, about.end)
                yield dataset.RunPiece(about.chains, about.begin, about.end, arrays)
            if self.folder is None:
                self.blocks[first] = [Block(block.about, b"") for block in self.blocks[first]]

    def lazy(self) -> xr.Dataset:
        """Return the results of all chains as arrays of Dask, which read one block at a time when asked for.

        Results with one number for each chain are read at once. The blocks must be in a folder, and begin at
        the start.
        """
        check_dask()
        variables: dict[str, Any] = {}
        for result in dataset.computed_results(self.plan):
            array: Any = self._lazy_result(result)
            if result.dimensions == ("chain",):
                array = array.compute()
            variables[result.name] = result.dimensions, array
        earlier_labels = None if self._folder_plan is None else self._folder_plan.labels
        return xr.Dataset(variables, dataset.final_labels(self.plan, earlier_labels))

    def _lazy_result(self, result: dataset.ResultVariable) -> dask.array.Array:
        """Return a result of all chains as an array of Dask, which reads blocks when it is computed.

        A recorded result is joined from all blocks of its chains; the state is that of their last block.
        """
        import dask.array

        of_chains = []
        for first in self._firsts:
            *earlier_blocks, last_block = self.blocks[first]
            array = self._lazy_part(result, last_block)
            if result.recorded_along and earlier_blocks:
                arrays = [*(self._lazy_part(result, block) for block in earlier_blocks), array]
                axis = result.dimensions.index(result.recorded_along)
                array = dask.array.concatenate(arrays, axis=axis)
            of_chains.append(array)
        return dask.array.concatenate(of_chains, axis=result.dimensions.index("chain"))

    def _lazy_part(self, result: dataset.ResultVariable, block: Block) -> dask.array.Array:
        """Return a result of one block as an array of Dask."""
        import dask
        import dask.array

        about = block.about
        length = dataset.lengths(self.plan, about.end, about.chains, about.begin)
        shape = tuple(length[name] for name in result.dimensions)
        delayed = dask.delayed(_read_result, pure=True)(str(block.content), result.name)
        return dask.array.from_delayed(delayed, shape, result.dtype(self.plan))

    def remove(self) -> None:
        """Remove the folder, after its contents were saved elsewhere."""
        if self.folder is not None:
            _remove_folder(self.folder)


def _read_result(path: str, name: str) -> NDArray[Any]:
    """Return a result in the file of a block, whose seal was checked when the folder was opened."""
    with h5py.File(path, "r") as data:
        return np.asarray(data[name][...])


def check_dask() -> None:
    """Raise ModuleNotFoundError unless Dask is installed."""
    with needed(NO_DASK):
        import dask.array  # noqa: F401


def _check_content(about: About, content: bytes) -> None:
    """Raise unless the file of a block is intact, and has the description that came with it."""
    if file.read_arrays(content, [], about.name).about != json.dumps(about):
        raise ValueError(f"{about.name}: its file is of another block, or describes it differently")


def about_block(path: Path) -> About:
    """Return the description of the block in a file."""
    try:
        return About.read(file.read_arrays(path, []).about)
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError(
            f"{error}: {path} is not a block of a run. Remove it, and repeat the call that began the run: it "
            "continues, and computes the block again"
        ) from error


def discard(folder: Path, plan: Plan) -> None:
    """Remove the blocks of a run that is joined, which a process that was killed then has left."""
    if (folder / PLAN).is_file():
        saved, _ = file.unpack_plan(file.read(folder / PLAN), plan.problem)
        if not plan_differences(plan, saved):
            with lock_folder(folder):
                _remove_folder(folder)


def _remove_folder(folder: Path) -> None:
    """Remove a folder of blocks, the plan after the blocks.

    So what is left if this is interrupted is a folder of the same run, or without a plan.
    """
    for path in folder.iterdir():
        if path.match(BLOCK_FILES) or atomic_write.is_leftover(path):
            path.unlink()
    for name in (PLAN, LOCK):
        (folder / name).unlink(missing_ok=True)
    folder.rmdir()


_locked_folders: set[Path] = set()  # by this process: file locks do not hold off its other threads


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder in the context; raise BlocksError if another thread or process has it.

    The lock ends with this process, however that ends, and processes forked from it do not have it. Some file
    systems of networks have no locks; on these only the threads of this process exclude each other.
    """
    resolved = folder.resolve()
    busy = BlocksError(f"{folder}: another process is computing blocks for it now; wait for it, or end it")
    if resolved in _locked_folders:
        raise busy
    _locked_folders.add(resolved)
    try:
        with _open_lock(resolved / LOCK) as lock:
            try:
                _lock_file(lock)
            except (BlockingIOError, PermissionError):
                raise busy from None
            yield
    finally:
        _locked_folders.discard(resolved)


def _open_lock(path: Path) -> IO[bytes]:
    """Return the open file of a lock, which is made if there is none."""
    try:
        return open(path, "ab")
    except OSError as error:
        raise atomic_write.failed(error, path, "written") from None


def _lock_file(file: IO[bytes]) -> None:
    """Lock a file for this process, or raise BlockingIOError or PermissionError if another one holds it.

    Nothing is locked where the system has no locks.
    """
    if fcntl is None:
        return
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        raise
    except OSError:  # the file system has no locks
        pass


def _make_folder(folder: Path) -> None:
    """Make a folder for blocks unless there is one; its parent must exist."""
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


def _plan_in_folder(folder: Path, plan: Plan, copied: Run | None) -> FolderPlan:
    """Return the digest and labels in the plan file of a folder; make the folder and the file if need be.

    Raises ValueError if the folder is of another plan.

    Parameters
    ----------
    folder, plan
        The folder, and the plan that it must have.
    copied
        The run that the plan continues and that is copied into the folder; None without one.
    """
    _make_folder(folder)
    path = folder / PLAN
    if not path.exists():
        _write_plan(path, plan, copied)

    content = path.read_bytes()
    packed = file.read(content, path)
    saved, coordinates = file.unpack_plan(packed, plan.problem)
    different = plan_differences(plan, saved)
    if different:
        raise ValueError(
            f"{folder} is of another run, with other {', '.join(different)}: it is left alone. Choose "
            "another name"
        )

    labels = coordinates if set(plan.axes) <= set(coordinates.coords) else None
    former = str(packed.attrs.get("begun_by", ""))
    return FolderPlan(hashlib.sha256(content).hexdigest(), labels, former)


def _write_plan(path: Path, plan: Plan, copied: Run | None) -> None:
    """Write the file of a plan with the labels of its points, or raise if there are other files beside it."""
    names = [entry.name for entry in path.parent.iterdir() if not atomic_write.is_leftover(entry)]
    strange_names = sorted(name for name in names if name != LOCK)
    if strange_names:
        raise FileExistsError(
            f"{path.parent} has other things in it ({', '.join(strange_names[:LISTED_NAMES])}), and no "
            f"{PLAN}: it is left alone. Choose another folder"
        )
    labels = {} if copied is None else {axis: copied.data[axis] for axis in plan.axes}
    coordinates = xr.Dataset(coords=labels).drop_vars("chain", errors="ignore")
    former = "" if copied is None else copied.former
    atomic_write.write(path, file.sealed(file.pack(plan, 0, coordinates, former)))
