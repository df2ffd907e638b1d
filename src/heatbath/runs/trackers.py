"""Trackers: what `progress` calls to have a run in TensorBoard, MLflow or Weights & Biases.

`loss` and `accuracy` are written when a record has brought new ones, `temperature/PART` and
`steps_per_second` at every point, all of them at `Progress.step`; what short runs and searches say is under
`finding/`. Values that are not finite are left out.
"""

from __future__ import annotations

import math
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from heatbath._internal.checks import NON_NEGATIVE, real, shown
from heatbath._internal.warnings import warn
from heatbath.runs.progress import Progress

if TYPE_CHECKING:
    from heatbath.runs.run import Run
from heatbath._internal.warnings import UntrackedWarning

PATIENCE = 10.0  # seconds that the end of a run waits for a tracker in which nothing moves
MOST = 10_000  # points that are kept for a tracker that cannot be written: three hours of them

Settings: TypeAlias = Mapping[str, bool | int | float | str]
Log: TypeAlias = Callable[[Mapping[str, float], int, float], object]


class _Job(NamedTuple):
    """Something to be written, and whether it is tried again where that fails."""

    write: Callable[[], object]
    again: bool


class Tracker:
    """A function of a `Progress` that has it written at most once in `every` seconds, by a thread of its own.

    `tensorboard`, `mlflow` and `wandb` make one; any other tracker is the function that writes to it,
    `log(values, step, time)`, with the values by name and the time in seconds since 1970.

    No tracker holds a run up, or ends it. What fails is tried again with the next point; the first time there
    is a warning (`UntrackedWarning`), and one more at the end if something could not be written. The last
    step of a run is always written: it waits for that, unless nothing moves for ten seconds. The end of a
    `with` writes what is left, such as the last point of an interrupted run or of a search.

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
        self._log, self._settings, self._name = log, settings, name
        self._every = real("every", every, NON_NEGATIVE)
        self._begun = begun.pop_all() if begun else ExitStack()  # what ends with it; before, an error ends it
        self._waiting: tuple[Progress, float] | None = None
        self._seen: tuple[bool, int] | None = None
        self._results: dict[str, float] = {}
        self._due = -math.inf
        self._jobs: deque[_Job] = deque()  # this thread adds at its end, the other takes from its beginning
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None
        self._warned, self._lost = False, 0

    def __call__(self, now: Progress) -> None:
        """Have a point written, if it is new and due."""
        if self._seen == (now.finding, now.step):
            return
        self._seen, self._waiting = (now.finding, now.step), (now, time.time())
        last = now.step >= now.steps and not now.finding  # searches only guess how long they are
        if last or time.monotonic() >= self._due:
            self._take_point()
        if last:
            self._wait()
        self._warn()

    def log_settings(self, run: Run) -> None:
        """Write what a run was made with, as parameters of the tracker's run: `h`, `hidden.tau`, …"""
        if self._settings is not None:
            self._add(_Job(partial(self._settings, settings_of(run)), again=False))
            self._wait()
            self._warn()

    def close(self) -> None:
        """Write what is left, and end what was begun."""
        self.__exit__(None, None, None)

    def __enter__(self) -> Tracker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._waiting is not None:
            self._take_point()
        self._error = None  # one more try
        self._wait()
        problems = []
        if lost := self._lost + len(self._jobs):
            self._lost, self._jobs = 0, deque()
            reason = f": {_text(self._error)}" if self._error else ""
            problems.append(f"{lost} points or settings could not be written{reason}")
        try:
            self._begun.__exit__(kind, error, trace)
        except Exception as failure:
            problems.append(f"it could not be closed: {_text(failure)}")
        if problems:
            warn(f"{self._name}: {'; '.join(problems)}", UntrackedWarning)

    def _take_point(self) -> None:
        """Of what is waiting, all that is finite and new."""
        assert self._waiting is not None
        (now, when), self._waiting = self._waiting, None
        self._due = time.monotonic() + self._every
        kind = "finding/" if now.finding else ""
        results = _finite(kind, {"loss": now.loss, "accuracy": now.accuracy})
        heat = {f"temperature/{part}": value for part, value in now.temperature.items()}
        point = _finite(kind, heat | ({"steps_per_second": now.speed} if now.speed > 0 else {}))
        if results != self._results:
            self._results = results
            point |= results
        if point:
            self._add(_Job(partial(self._log, point, now.step, when), again=True))

    def _add(self, job: _Job) -> None:
        if len(self._jobs) < MOST:
            self._jobs.append(job)
        else:
            self._lost += 1
        self._begin()

    def _begin(self) -> threading.Thread:
        """The thread that writes: a new one, where the last has ended, or has met an error."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._work, daemon=True, name=f"heatbath: {self._name}")
            self._thread.start()
        return self._thread

    def _work(self) -> None:
        jobs = self._jobs
        try:
            while jobs:
                jobs[0].write()
                jobs.popleft()
                self._error = None
        except Exception as error:
            if not jobs[0].again:
                jobs.popleft()
                self._lost += 1
            self._error = error

    def _wait(self) -> None:
        """Until all is written, unless that fails, or nothing moves."""
        while (left := len(self._jobs)) and self._error is None:
            thread = self._begin()
            thread.join(PATIENCE)
            if thread.is_alive() and len(self._jobs) == left:
                return

    def _warn(self) -> None:
        if self._error is not None and not self._warned:
            self._warned = True
            warn(
                f"{self._name} cannot be written, and the run goes on: {_text(self._error)}", UntrackedWarning
            )


def tensorboard(folder: str | os.PathLike[str], *, every: float = 1.0) -> Tracker:
    """A tracker that writes an event file in a folder, for `tensorboard --logdir`.

    TensorBoard has numbers in single precision, and shows settings on its page of hyperparameters. Needs the
    extra `heatbath[tensorboard]`.
    """
    try:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.plugins.hparams.summary_v2 import hparams_pb
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ModuleNotFoundError as error:
        raise _missing("tensorboard", error) from error

    def write(summary: Any, step: int, when: float) -> None:
        writer.add_event(Event(wall_time=when, step=step, summary=summary))
        writer.flush()  # raises what its own thread has met

    def log(values: Mapping[str, float], step: int, when: float) -> None:
        write(Summary(value=[Summary.Value(tag=n, simple_value=v) for n, v in values.items()]), step, when)

    def settings(values: Settings) -> None:
        write(hparams_pb(dict(values)), 0, time.time())

    writer = EventFileWriter(os.fspath(folder))
    with ExitStack() as begun:
        begun.callback(writer.close)
        return Tracker(log, settings, begun, every=every, name="TensorBoard")


def mlflow(run: Any = None, *, every: float = 1.0) -> Tracker:
    """A tracker that writes to a run of MLflow: this one, the active one, or one that it begins and ends.

    A point is one request, and is not lost where the server is gone for a while. Settings cannot be changed
    once they are written: write those of a run that is resumed at its end. Needs the extra
    `heatbath[mlflow]`.
    """
    try:
        import mlflow
        from mlflow.entities import Metric, Param
    except ModuleNotFoundError as error:
        raise _missing("mlflow", error) from error
    if run is not None and not hasattr(run, "info"):
        raise TypeError(f"run must be a run of MLflow, such as mlflow.start_run(), or None; got {shown(run)}")
    client = mlflow.MlflowClient()

    def named(name: str) -> str:
        return re.sub(r"[^\w/.\- ]", "_", name)  # what MLflow accepts on every system

    def log(values: Mapping[str, float], step: int, when: float) -> None:
        metrics = [Metric(named(name), value, int(1000 * when), step) for name, value in values.items()]
        client.log_batch(run.info.run_id, metrics=metrics, synchronous=True)

    def settings(values: Settings) -> None:
        params = [Param(named(name), str(value)) for name, value in values.items()]
        for first in range(0, len(params), 100):  # MLflow takes no more at once
            client.log_batch(run.info.run_id, params=params[first : first + 100], synchronous=True)

    with ExitStack() as begun:
        run = run or mlflow.active_run() or begun.enter_context(mlflow.start_run())
        return Tracker(log, settings, begun, every=every, name="MLflow")


def wandb(run: Any = None, *, every: float = 1.0) -> Tracker:
    """A tracker that logs to a run of Weights & Biases: this one, the active one, or one that it begins and
    ends.

    The axis is a metric of its own, `step`: so others can log to the same run. Needs the extra
    `heatbath[wandb]`.
    """
    try:
        import wandb
    except ModuleNotFoundError as error:
        raise _missing("wandb", error) from error
    if run is not None and not hasattr(run, "define_metric"):
        raise TypeError(f"run must be a run of W&B, such as wandb.init(), or None; got {shown(run)}")

    def log(values: Mapping[str, float], step: int, when: float) -> None:
        run.log({**values, "step": step})

    def settings(values: Settings) -> None:
        run.config.update(dict(values), allow_val_change=True)  # of a run that is resumed

    with ExitStack() as begun:
        run = run or wandb.run or begun.enter_context(wandb.init())
        for name in ("loss", "accuracy", "steps_per_second", "temperature/*", "finding/*"):
            run.define_metric(name, step_metric="step")
        return Tracker(log, settings, begun, every=every, name="W&B")


def settings_of(run: Run) -> dict[str, bool | int | float | str]:
    """What a run was made with, by names such as `batch`, `h` and `hidden.tau`; lists are text."""
    plain = {
        name: value for name, value in run.plan.plain.items() if name not in ("records", "losses", "found")
    }
    problem, partition = plain.pop("problem"), plain.pop("partition")
    about = {"problem": problem["name"], "problem.checksum": problem["checksum"]}
    return {**about, **dict(_flat(plain)), **dict(_flat(partition))}


def _flat(values: Mapping[str, Any], inside: str = "") -> Iterator[tuple[str, bool | int | float | str]]:
    """Nested values one by one: a method is named by its part, of several by theirs."""
    for name, value in values.items():
        if name == "methods":
            yield from _flat(value, inside)
        elif name == "parts":
            for part in value:
                own = {key: item for key, item in part.items() if key != "part"}
                yield from _flat(own, f"{inside}{part['part']}.")
        elif isinstance(value, Mapping) and "schedule" not in value:
            yield from _flat(value, f"{inside}{name}.")
        elif value is not None:
            yield f"{inside}{name}", value if isinstance(value, bool | int | float | str) else str(value)


def _finite(kind: str, values: Mapping[str, float]) -> dict[str, float]:
    return {kind + name: float(value) for name, value in values.items() if math.isfinite(value)}


def _missing(package: str, error: ModuleNotFoundError) -> ModuleNotFoundError:
    return ModuleNotFoundError(
        f"hb.trackers.{package} needs {package}, an extra: pip install 'heatbath[{package}]' ({error})",
        name=error.name,
    )


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
