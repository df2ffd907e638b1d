"""Compute a block of chains: what a worker does."""

from __future__ import annotations

import hashlib
import importlib
import platform
import socket
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import TypeAlias

import llvmlite.binding
import xarray as xr
from threadpoolctl import threadpool_info

from heatbath.engine.compile import once, reporting
from heatbath.runs import file
from heatbath.runs.dataset import (
    gather,
)
from heatbath.runs.distributed.block import (
    About,
    CachedPlan,
    Finished,
    Stopped,
    Task,
    keep_plan,
    known_plans,
    reading,
    sealed_block,
    sealed_state,
)
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
)  # not what decides
VECTORS = ("avx", "fma", "neon", "sve")  # what instructions for vectors are called


Content: TypeAlias = bytes | Callable[[], bytes]  # or what gives it, to who has not read it yet
_ready: set[Hashable] = set()  # the compiled code that this process has


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
    return Finished(about, sealed_block(result, about), state)


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
    with reading:
        if task.digest in known_plans:
            known_plans.move_to_end(task.digest)
            return known_plans[task.digest].plan
        for module in task.modules:
            if (
                module != "__main__"
            ):  # of a script: where it is known it is so already, and else it is refused
                importlib.import_module(module)
        first, *data = content
        packed, problem = _opened(first, content), None
        like = next((one.plan for one in known_plans.values() if data and one.data == data), None)
        if like is not None:
            packed, problem = file.with_average(packed, like), like.problem
        elif data:
            packed = packed.assign(_opened(data[0], content).data_vars)
        plan, _ = file.unpack_plan(packed, problem)
        keep_plan(task.digest, CachedPlan(plan, data))
        return plan


def _opened(checksum: str, content: Mapping[str, Content]) -> xr.Dataset:
    """A piece of what was sent."""
    piece = content[checksum]
    whole = piece if isinstance(piece, bytes) else piece()
    if hashlib.sha256(whole).hexdigest() != checksum:
        raise ValueError("the plan that has arrived is not the one that was sent: its checksum is wrong")
    return file.opened(whole, "the plan")
