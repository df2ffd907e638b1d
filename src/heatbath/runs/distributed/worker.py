"""Compute a block of chains: what a worker does."""

from __future__ import annotations

import hashlib
import importlib
import platform
import socket
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import TypeAlias

import llvmlite.binding
import xarray as xr
from threadpoolctl import threadpool_info

from heatbath.engine.compile import once, reporting
from heatbath.runs import file
from heatbath.runs.dataset import gather
from heatbath.runs.distributed import block
from heatbath.runs.plan import Plan
from heatbath.runs.progress import Progress
from heatbath.runs.simulation import Simulation, uses_blas

ASIDE = (
    "__init__.py",
    "plotting",
    "torch",
    "estimators",
    "explorer",
    "cli",
    "paper",
    "_internal/atomic_write.py",
)  # beginnings of the names of files, below heatbath, that do not decide results
VECTORS = ("avx", "fma", "neon", "sve")  # beginnings of the names of instructions for vectors

Content: TypeAlias = bytes | Callable[[], bytes]  # a piece of a plan, or a function that fetches it
_ready: set[Hashable] = set()  # the compiled code that this process has


def compute(
    task: block.Task, content: Mapping[str, Content], is_wanted: Callable[[], bool] | None = None
) -> block.FinishedBlock:
    """Compute a block, and return it with its description: the function that workers call.

    The block ends before the last step of the task if it takes longer than `task.seconds`.

    Parameters
    ----------
    task
        The plan, chains and steps to compute.
    content
        The pieces of the plan by their checksums, as in `SharedPlan`, or functions that fetch them.
    is_wanted
        A function that is called now and then, and returns False once the task is cancelled.

    Raises
    ------
    AbandonedError
        If the task is cancelled, or the worker is interrupted.
    """
    name = f"chains {task.first} to {task.stop - 1}"

    def check_wanted(_: Progress | None = None) -> None:
        if is_wanted is not None and not is_wanted():
            raise block.AbandonedError(f"{name}: the task was cancelled")

    check_wanted()
    plan = _plan_of_task(task, content)
    chains = range(task.first, task.stop)
    state = None if task.state is None else file.read(task.state, "the state")
    compiler_reports: list[str] = []  # none if nothing had to be compiled
    with reporting(compiler_reports.append):
        simulation = Simulation(plan, task.step, state, task.threads, chains, task.until)
        preparation_began = time.perf_counter()
        _prepare(simulation)
        begin = time.perf_counter()
        seconds_compiling = begin - preparation_began if compiler_reports else 0.0
        if not simulation.run(check_wanted, seconds=task.seconds):
            raise block.AbandonedError(f"{name}: interrupted")

    results = gather(plan, simulation.groups, task.step, None, chains)
    end_means = simulation.progress(seconds=0.0)
    about = block.About(
        digest=task.digest, first=task.first, stop=task.stop, begin=task.step, end=simulation.step,
        losses=simulation.losses(), machine=machine(plan, task.modules), host=socket.gethostname(),
        seconds=time.perf_counter() - begin, compiled=seconds_compiling, loss=end_means.loss,
        accuracy=end_means.accuracy, temperature=end_means.temperature,
    )  # fmt: skip
    end_state = None if about.end == plan.steps else block.sealed_state(plan, results)
    return block.FinishedBlock(about, block.sealed_block(results, about), end_state)


def _prepare(simulation: Simulation) -> None:
    """Compile the code of a simulation that this process does not have yet.

    One process of this computer compiles, and the others wait for it.
    """
    if simulation.code <= _ready:
        simulation.prepare()
        return
    with once():
        simulation.prepare()
    _ready.update(simulation.code)


def machine(plan: Plan, modules: Sequence[str]) -> dict[str, str]:
    """Return what the bits of a chain depend on beside its plan, by name: code, versions and processor.

    Blocks are joined only if their code is the same, and with a warning if anything else differs. `modules`
    are those that define the plan's methods, other than heatbath's own.
    """
    entries = {"heatbath": library_hash()}
    if modules:
        sources = [getattr(importlib.import_module(module), "__file__", None) for module in modules]
        entries["methods"] = hash_files(Path(source) for source in sources if source)
    for package in ("numba", "llvmlite", "numpy"):
        entries[package] = version(package)

    if uses_blas(plan):  # BLAS takes other kernels on other processors
        import scipy.linalg.cython_blas  # noqa: F401 (loads the BLAS that threadpool_info then lists)

        kernels = {library["architecture"] for library in threadpool_info() if "architecture" in library}
        entries["scipy"] = version("scipy")
        entries["kernels"] = " ".join(sorted(kernels))

    entries["processor"] = platform.machine()
    entries["instructions"] = vector_instructions()
    return entries


@lru_cache
def vector_instructions() -> str:
    """Return the names of the instructions for vectors that this processor has.

    With different ones, NumPy computes exponentials and the like by other code, which rounds differently.
    """
    try:
        features = llvmlite.binding.get_host_cpu_features()
    except RuntimeError:  # where LLVM cannot tell
        return "unknown"
    present = [name for name, is_present in features.items() if is_present and name.startswith(VECTORS)]
    return " ".join(sorted(present))


@lru_cache
def library_hash() -> str:
    """Return a hash of heatbath's code, without the files that do not decide results."""
    root = Path(file.__file__).parent.parent
    paths = {path.relative_to(root).as_posix(): path for path in sorted(root.rglob("*.py"))}
    return hash_files(path for name, path in paths.items() if not name.startswith(ASIDE))


def hash_files(paths: Iterable[Path]) -> str:
    """Return a hash of the names and contents of files."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def _plan_of_task(task: block.Task, content: Mapping[str, Content]) -> Plan:
    """Return the plan of a task, and keep it in this process for the next task.

    `content` has the pieces of the plan by checksum, or functions that fetch them: first its settings, then
    its data, which are not fetched if a plan with the same data is kept. Raises ValueError if a piece has
    another checksum.
    """
    with block.cache_lock:
        if task.digest in block.cached_plans:
            block.cached_plans.move_to_end(task.digest)
            return block.cached_plans[task.digest].plan
        for module in task.modules:
            if module != "__main__":  # the methods of a script are known already, or refused
                importlib.import_module(module)

        settings, *data = content  # checksums
        packed = _read_piece(settings, content)
        problem = None
        plan_with_data = _cached_plan_with(data)
        if plan_with_data is not None:
            packed = file.with_average(packed, plan_with_data)
            problem = plan_with_data.problem
        elif data:
            packed = packed.assign(_read_piece(data[0], content).data_vars)

        plan, _ = file.unpack_plan(packed, problem)
        block.cache_plan(task.digest, block.CachedPlan(plan, data))
        return plan


def _cached_plan_with(data: list[str]) -> Plan | None:
    """Return a plan that this process keeps and whose data have these checksums; None if there is none."""
    for cached in block.cached_plans.values():
        if data and cached.data == data:
            return cached.plan
    return None


def _read_piece(checksum: str, content: Mapping[str, Content]) -> xr.Dataset:
    """Return the piece of a plan with this checksum, or raise if another one has arrived."""
    piece = content[checksum]
    data = piece if isinstance(piece, bytes) else piece()
    if hashlib.sha256(data).hexdigest() != checksum:
        raise ValueError("the plan that has arrived is not the one that was sent: its checksum is wrong")
    return file.read(data, "the plan")
