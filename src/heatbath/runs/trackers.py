"""Trackers: record a run in TensorBoard, MLflow or Weights & Biases while it is computed.

A tracker is given as `progress=`. `loss` and `accuracy` are written when a record has brought new values,
`temperature/PART` and `steps_per_second` at every point, all of them at `Progress.step`. Points of short runs
and searches are under `finding/`. Values that are not finite are left out.
"""

from __future__ import annotations

import math
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from heatbath._internal.checks import NON_NEGATIVE, real, shown
from heatbath._internal.extras import needed
from heatbath._internal.warnings import UntrackedWarning, warn
from heatbath.runs.progress import Progress

if TYPE_CHECKING:
    from heatbath.runs.run import Run

PATIENCE = 10.0  # seconds that the end of a run waits for a tracker that makes no headway
MOST_JOBS = 10_000  # kept for a tracker that cannot be written: points of three hours
NOT_INSTALLED = "hb.trackers.{0} needs {0}, an extra: pip install 'heatbath[{0}]'"
MLFLOW_BATCH = 100  # parameters that MLflow takes at once

Setting: TypeAlias = bool | int | float | str
Settings: TypeAlias = Mapping[str, Setting]
Log: TypeAlias = Callable[[Mapping[str, float], int, float], object]


class _Job(NamedTuple):
    """Something to write, and whether to try again if that fails."""

    write: Callable[[], object]
    is_repeated: bool


class _Point(NamedTuple):
    """A progress, and the time at which it came, in seconds since 1970."""

    progress: Progress
    time: float


class Tracker:
    """A function for `progress=` that records a run by a thread of its own, so that the run doesn't wait.

    `tensorboard`, `mlflow` and `wandb` make one; any other tracker is a function that writes to it.

    A tracker never ends a run. A write that fails is tried again with the next point; the first failure gives
    a warning (`UntrackedWarning`), and there is one more at the end if something could not be written. The
    last step of a run is always written: the run waits for that, unless nothing is written for ten seconds.
    The end of a `with` writes what is left, such as the last point of an interrupted run or of a search.

    Parameters
    ----------
    log
        A function `log(values, step, time)` that writes a point: values by name, the step, and the time in
        seconds since 1970.
    settings
        A function that writes the settings of a run by name; None if there is no place for them.
    begun
        Contexts that end with the tracker.
    every
        The least number of seconds between two points; the first and the last are always written.
    name
        What warnings call it.

    Examples
    --------
    >>> import heatbath as hb
    >>> points = []
    >>> with hb.trackers.Tracker(lambda values, step, time: points.append((step, sorted(values)))) as tracker:
    ...     problem = hb.datasets.spirals(n_train=50, n_test=20)
    ...     run = hb.train(problem, hb.MLP((5,)), hb.AdLaLa(), steps=100, progress=tracker)
    >>> points[-1]
    (100, ['accuracy', 'loss', 'steps_per_second', 'temperature/hidden', 'temperature/output'])
    """

    def __init__(
        self,
        log: Log,
        settings: Callable[[Settings], object] | None = None,
        begun: ExitStack | None = None,
        *,
        every: float = 1.0,
        name: str = "the tracker",
    ) -> None:
        """Take over the contexts that were begun, which end with the tracker; nothing is written yet.

        The class describes the arguments. The thread that writes starts with the first point.
        """
        self._log = log
        self._settings = settings
        self._name = name
        self._every = real("every", every, NON_NEGATIVE)
        self._contexts = begun.pop_all() if begun else ExitStack()  # until here, an error ends them itself

        self._waiting: _Point | None = None  # not due yet
        self._last_step: tuple[bool, int] | None = None  # True for a search, and the step
        self._last_results: dict[str, float] = {}
        self._due = -math.inf  # when the next point may be written

        self._jobs: deque[_Job] = deque()  # this thread adds at the end, the other takes from the beginning
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None
        self._has_warned = False
        self._dropped = 0

    def __call__(self, progress: Progress) -> None:
        """Have a point written, if it is new and due."""
        if self._last_step == (progress.finding, progress.step):
            return
        self._last_step = (progress.finding, progress.step)
        self._waiting = _Point(progress, time.time())
        is_last = progress.step >= progress.steps and not progress.finding  # searches only guess their length
        if is_last or time.monotonic() >= self._due:
            self._add_waiting_point()
        if is_last:
            self._wait()
        self._warn_once()

    def log_settings(self, run: Run) -> None:
        """Write the settings of a run as parameters of the tracker's run: `h`, `hidden.tau`, ..."""
        if self._settings is not None:
            self._add(_Job(partial(self._settings, settings_of(run)), is_repeated=False))
            self._wait()
            self._warn_once()

    def close(self) -> None:
        """Write what is left, and end the contexts that were begun for the tracker."""
        self.__exit__(None, None, None)

    def __enter__(self) -> Tracker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write what is left, end the contexts of the tracker, and warn of what could not be written."""
        if self._waiting is not None:
            self._add_waiting_point()
        self._error = None  # so that jobs that failed are tried once more
        self._wait()

        failures = self._forget_unwritten()
        try:
            self._contexts.__exit__(kind, error, trace)
        except Exception as failure:
            failures.append(f"it could not be closed: {_as_text(failure)}")
        if failures:
            warn(f"{self._name}: {'; '.join(failures)}", UntrackedWarning)

    def _forget_unwritten(self) -> list[str]:
        """Drop the jobs that are left, and return what to say of them; empty if all were written."""
        unwritten = self._dropped + len(self._jobs)
        if not unwritten:
            return []
        self._dropped = 0
        self._jobs = deque()
        reason = f": {_as_text(self._error)}" if self._error else ""
        return [f"{unwritten} points or settings could not be written{reason}"]

    def _add_waiting_point(self) -> None:
        """Move the waiting point to the jobs, with all of its values that are finite.

        Loss and accuracy are left out if no record has brought new ones. The next point is due `every`
        seconds from now.
        """
        assert self._waiting is not None
        progress, arrival_time = self._waiting
        self._waiting = None
        self._due = time.monotonic() + self._every

        measured = {f"temperature/{part}": mean for part, mean in progress.temperature.items()}
        if progress.speed > 0:
            measured["steps_per_second"] = progress.speed
        prefix = "finding/" if progress.finding else ""
        finite = _finite(prefix, measured)

        results = _finite(prefix, {"loss": progress.loss, "accuracy": progress.accuracy})
        if results != self._last_results:
            self._last_results = results
            finite |= results

        if finite:
            self._add(_Job(partial(self._log, finite, progress.step, arrival_time), is_repeated=True))

    def _add(self, job: _Job) -> None:
        """Add a job, unless too many wait already, and start the thread."""
        if len(self._jobs) < MOST_JOBS:
            self._jobs.append(job)
        else:
            self._dropped += 1
        self._running_thread()

    def _running_thread(self) -> threading.Thread:
        """Return the thread that writes: a new one if the last has ended, or has met an error."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._work, daemon=True, name=f"heatbath: {self._name}")
            self._thread.start()
        return self._thread

    def _work(self) -> None:
        """Write all jobs in order, up to the first error, which is kept: the thread of the tracker.

        A job that failed stays the first one, to be tried again, unless it must not be repeated.
        """
        jobs = self._jobs
        try:
            while jobs:
                jobs[0].write()
                jobs.popleft()
                self._error = None
        except Exception as error:
            if not jobs[0].is_repeated:
                jobs.popleft()
                self._dropped += 1
            self._error = error

    def _wait(self) -> None:
        """Wait until all jobs are written, but not after an error, nor if nothing is written for a while."""
        while self._jobs and self._error is None:
            jobs_before = len(self._jobs)
            thread = self._running_thread()
            thread.join(PATIENCE)
            if thread.is_alive() and len(self._jobs) == jobs_before:
                return

    def _warn_once(self) -> None:
        """Warn of the first error."""
        if self._error is not None and not self._has_warned:
            self._has_warned = True
            message = f"{self._name} cannot be written, and the run goes on: {_as_text(self._error)}"
            warn(message, UntrackedWarning)


def tensorboard(folder: str | os.PathLike[str], *, every: float = 1.0) -> Tracker:
    """Return a tracker that writes an event file for TensorBoard.

    `tensorboard --logdir` shows it, with numbers in single precision, and with the settings on the page of
    hyperparameters. Needs the extra `heatbath[tensorboard]`.

    Parameters
    ----------
    folder
        The folder of the event file.
    every
        The least number of seconds between two points.
    """
    with needed(NOT_INSTALLED.format("tensorboard")):
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.plugins.hparams.summary_v2 import hparams_pb
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

    def write(summary: Any, step: int, when: float) -> None:
        writer.add_event(Event(wall_time=when, step=step, summary=summary))
        writer.flush()  # raises the error that its own thread has met

    def log(values: Mapping[str, float], step: int, when: float) -> None:
        points = [Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        write(Summary(value=points), step, when)

    def log_settings(values: Settings) -> None:
        write(hparams_pb(dict(values)), 0, time.time())

    writer = EventFileWriter(os.fspath(folder))
    with ExitStack() as contexts:
        contexts.callback(writer.close)
        return Tracker(log, log_settings, contexts, every=every, name="TensorBoard")


def mlflow(run: Any = None, *, every: float = 1.0) -> Tracker:
    """Return a tracker that writes to a run of MLflow.

    A point is one request, and is not lost if the server is gone for a while. Settings cannot be changed once
    they are written: write those of a run that is resumed at its end. Needs the extra `heatbath[mlflow]`.

    Parameters
    ----------
    run
        A run of MLflow; None for the active one, or one that the tracker begins and ends.
    every
        The least number of seconds between two points.
    """
    with needed(NOT_INSTALLED.format("mlflow")):
        import mlflow
        from mlflow.entities import Metric, Param
    if run is not None and not hasattr(run, "info"):
        raise TypeError(f"run must be a run of MLflow, such as mlflow.start_run(), or None; got {shown(run)}")
    client = mlflow.MlflowClient()

    def accepted(name: str) -> str:
        return re.sub(r"[^\w/.\- ]", "_", name)  # what MLflow accepts on every system

    def log(values: Mapping[str, float], step: int, when: float) -> None:
        milliseconds = int(1000 * when)
        metrics = [Metric(accepted(name), value, milliseconds, step) for name, value in values.items()]
        client.log_batch(run.info.run_id, metrics=metrics, synchronous=True)

    def log_settings(values: Settings) -> None:
        params = [Param(accepted(name), str(value)) for name, value in values.items()]
        for begin in range(0, len(params), MLFLOW_BATCH):
            batch = params[begin : begin + MLFLOW_BATCH]
            client.log_batch(run.info.run_id, params=batch, synchronous=True)

    with ExitStack() as contexts:
        run = run or mlflow.active_run() or contexts.enter_context(mlflow.start_run())
        return Tracker(log, log_settings, contexts, every=every, name="MLflow")


def wandb(run: Any = None, *, every: float = 1.0) -> Tracker:
    """Return a tracker that logs to a run of Weights & Biases.

    The axis is a metric, `step`, so that other code can log to the same run. Needs the extra
    `heatbath[wandb]`.

    Parameters
    ----------
    run
        A run of Weights & Biases; None for the active one, or one that the tracker begins and ends.
    every
        The least number of seconds between two points.
    """
    with needed(NOT_INSTALLED.format("wandb")):
        import wandb
    if run is not None and not hasattr(run, "define_metric"):
        raise TypeError(f"run must be a run of W&B, such as wandb.init(), or None; got {shown(run)}")

    def log(values: Mapping[str, float], step: int, when: float) -> None:
        run.log({**values, "step": step})

    def log_settings(values: Settings) -> None:
        run.config.update(dict(values), allow_val_change=True)  # they change when a run is resumed

    with ExitStack() as contexts:
        run = run or wandb.run or contexts.enter_context(wandb.init())
        for name in ("loss", "accuracy", "steps_per_second", "temperature/*", "finding/*"):
            run.define_metric(name, step_metric="step")
        return Tracker(log, log_settings, contexts, every=every, name="W&B")


def settings_of(run: Run) -> dict[str, Setting]:
    """Return the settings of a run by names such as `batch`, `h` and `hidden.tau`; lists are text."""
    left_out = ("records", "losses", "found")
    plain = {name: setting for name, setting in run.plan.plain.items() if name not in left_out}
    problem = plain.pop("problem")
    partition = plain.pop("partition")
    data = {"problem": problem["name"], "problem.checksum": problem["checksum"]}
    return {**data, **dict(_flattened(plain)), **dict(_flattened(partition))}


def _flattened(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Setting]]:
    """Yield nested settings one by one with full names such as `hidden.tau`; None is left out.

    Parameters
    ----------
    values
        Plain values of a plan or a partition. The entries of `methods` are put in place of it, and those of
        each item of `parts` get the name of the part. A schedule stays whole, as text, and so does a list.
    prefix
        The beginning of all names.
    """
    for name, value in values.items():
        if name == "methods":
            yield from _flattened(value, prefix)
        elif name == "parts":
            yield from _flattened_parts(value, prefix)
        elif isinstance(value, Mapping) and "schedule" not in value:
            yield from _flattened(value, f"{prefix}{name}.")
        elif value is not None:
            setting = value if isinstance(value, Setting) else str(value)
            yield f"{prefix}{name}", setting


def _flattened_parts(parts: Iterable[Mapping[str, Any]], prefix: str) -> Iterator[tuple[str, Setting]]:
    """Yield the settings of the methods of parts, with the prefix and the name of the part before theirs."""
    for part in parts:
        method = dict(part)
        part_name = method.pop("part")
        yield from _flattened(method, f"{prefix}{part_name}.")


def _finite(prefix: str, values: Mapping[str, float]) -> dict[str, float]:
    """Return the finite values, with a prefix in front of their names."""
    return {prefix + name: float(value) for name, value in values.items() if math.isfinite(value)}


def _as_text(error: Exception) -> str:
    """Return the type and message of an error."""
    return f"{type(error).__name__}: {error}"
