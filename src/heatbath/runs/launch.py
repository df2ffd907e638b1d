"""Carry out a plan: in this process, in blocks on an executor, or from a checkpoint folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from heatbath._internal.checks import NON_NEGATIVE, real
from heatbath._internal.warnings import InterruptedWarning, warn
from heatbath.engine.threads import thread_count
from heatbath.runs import file
from heatbath.runs.continuation import plan_differences
from heatbath.runs.dataset import check_memory, gather
from heatbath.runs.distributed.pools import Pool, pool_here
from heatbath.runs.distributed.scheduler import BlockScheduler, Sizes
from heatbath.runs.distributed.store import Before, Store, check_lazy, discard
from heatbath.runs.plan import Plan
from heatbath.runs.progress import Progress
from heatbath.runs.simulation import Simulation, report_losses, warn_of_stale_noise

if TYPE_CHECKING:
    pass
from heatbath.runs.run import Run, begun_elsewhere, load


def simulate(
    plan: Plan,
    before: Run | None = None,
    *,
    threads: int | None = None,
    progress: Callable[[Progress], None] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    every: float = 60.0,
    folder: str | os.PathLike[str] | None = None,
    pool: Pool | None = None,
) -> Run:
    """Carry out a plan: from its start, from a run that stands `before` its end, or from its checkpoint.

    A checkpoint that is there and further along must be of this very plan. One that is not may be of the run
    before, at an earlier step, and is replaced. Any other is left alone, and that is an error. With a `pool`
    it is carried out in blocks, which are in a folder beside the checkpoint until all of them are there. With
    a `folder` they stay there.
    """
    check_manner(threads, progress, checkpoint, every)
    if folder is not None:
        if checkpoint is not None:
            raise ValueError("a run in a folder is its own checkpoint: leave out checkpoint")
        return _in_folder(Path(folder), plan, before, threads, progress, every, pool)
    if checkpoint is not None and os.path.exists(checkpoint):
        before = _furthest(plan, before, checkpoint)
    if before is not None and before.step == plan.steps:
        return before
    check_memory(plan, 1 + (before is not None or len(plan.named) > 1))  # results of several are joined
    if before is not None and before.data.chunks:
        before = replace(before, data=before.data.compute())
    first, data, former = (before.step, before.data, before.former) if before else (0, None, "")
    _warn_of_former(before)
    warn_of_stale_noise(plan, plan.steps)
    if pool is not None:
        return _in_blocks(pool, plan, before, threads, progress, checkpoint, every)
    simulation = Simulation(plan, first, data, threads)

    def now() -> Run:
        return Run(plan, simulation.step, gather(plan, simulation.groups, first, data), former)

    def save(run: Run | None = None) -> None:
        try:
            (run or now()).save(checkpoint)  # type: ignore[arg-type]
        except (OSError, MemoryError) as error:
            warn(f"the checkpoint at step {simulation.step} failed, and the run continues: {error}")

    if checkpoint is not None:
        now().save(checkpoint)  # an error now is better than one in an hour
    done = simulation.run(progress, None if checkpoint is None else save, every)
    run = now()
    if checkpoint is not None:
        save(run)
    report_losses(simulation.losses(), plan.total, first)
    if not done:
        warn(
            f"interrupted at step {run.step} of {plan.steps}: resume() continues from there",
            InterruptedWarning,
        )
    return run


def _in_blocks(
    pool: Pool,
    plan: Plan,
    before: Run | None,
    threads: int | None,
    progress: Callable[[Progress], None] | None,
    checkpoint: str | os.PathLike[str] | None,
    every: float,
) -> Run:
    """Carry out a plan in blocks of chains, and join them."""
    folder = None
    if checkpoint is not None:
        file.check_replaceable(Path(checkpoint))
        folder = _blocks_of(checkpoint)
    start = None if before is None else Before(before.step, before.data)
    with Store.locked(plan, folder, start) as store:
        _compute(store, pool, threads or 1, progress, every)
        run = Run(plan, plan.steps, store.joined(), before.former if before else "")
        if checkpoint is not None:
            run.save(checkpoint)
            store.remove()
    report_losses(store.losses(), plan.total, store.first)
    return run


def _in_folder(
    folder: Path,
    plan: Plan,
    before: Run | None,
    threads: int | None,
    progress: Callable[[Progress], None] | None,
    every: float,
    pool: Pool | None,
) -> Run:
    """Carry out a plan in blocks that stay in a folder, by others or here, after those of a run before."""
    check_lazy()
    _warn_of_former(before)
    warn_of_stale_noise(plan, plan.steps)
    start = None if before is None else Before(before.step, before.data, before.former)
    count = threads or (1 if pool else thread_count(threads))
    with Store.locked(plan, folder, begins=start) as store:
        if store.done < plan.total:
            with nullcontext(pool) if pool else pool_here() as workers:
                if start is not None:
                    store.begin(start, Sizes(plan, workers.workers(count), count, 0).even())
                _compute(store, workers, count, progress, every)
    report_losses(store.losses(), plan.total, 0 if before is None else before.step)
    return Run(plan, plan.steps, store.lazy(), store.former)


def _compute(
    store: Store, pool: Pool, threads: int, progress: Callable[[Progress], None] | None, every: float
) -> None:
    """Have all blocks of a plan computed that are missing."""
    total = store.plan.total
    try:
        with pool:
            BlockScheduler(pool, store, threads, every).run(progress)
    except KeyboardInterrupt:
        kept = f"in {store.folder}, and the same call goes on" if store.folder else "lost: give a checkpoint"
        warn(
            f"interrupted: what is done, {store.done} of {total} chains to the end, is {kept}",
            InterruptedWarning,
        )
        raise
    if len(losses := store.losses()) == total:  # which is an error
        report_losses(losses, total, store.first)


def check_manner(threads: int | None, progress: object, checkpoint: object, every: object) -> None:
    """Refuse what says how to run, and not what, where it is wrong."""
    thread_count(threads)
    real("every", every, NON_NEGATIVE)
    if not (progress is None or callable(progress)):
        raise TypeError(f"progress must be a function of a Progress, got {progress!r}")
    if not (checkpoint is None or isinstance(checkpoint, (str, os.PathLike))):
        raise TypeError(f"checkpoint must be a path, got {checkpoint!r}")


def _warn_of_former(before: Run | None) -> None:
    if before is not None and before.former:
        warn(f"{begun_elsewhere(before)}: it continues, but not bit for bit as it would have there")


def _furthest(plan: Plan, before: Run | None, checkpoint: str | os.PathLike[str]) -> Run | None:
    """Where a plan stands: at its checkpoint, if that is further along, or at the run before."""
    there = load(checkpoint, plan.problem)
    further = before is None or there.step > before.step  # this very call, interrupted
    if wrong := plan_differences(plan, there.plan, until=None if further else there.step):
        raise ValueError(
            f"{checkpoint} is of another run, with other {', '.join(wrong)}: it is left alone. Choose "
            "another name, or continue it with load(...).resume(...)"
        )
    if there.finished:
        discard(_blocks_of(checkpoint), there.plan)
    return there if further else before


def _blocks_of(checkpoint: str | os.PathLike[str]) -> Path:
    """The folder beside a checkpoint that has the blocks of its run until all of them are there."""
    return Path(f"{os.fspath(checkpoint)}.blocks")
