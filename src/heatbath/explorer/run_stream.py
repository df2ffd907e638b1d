"""Run one of a page's two runs: its phases, its changes while it runs, and what the page is shown of it.

A `RunStream` belongs to the one worker that holds it; every other thread leaves a command for that worker.

Letters: θ are the parameters of a network, ξ the friction of a thermostat, h the stepsize.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from heatbath.datasets.problem import Floats
from heatbath.engine.compile import reporting
from heatbath.explorer.messages import format_message, round_for_display
from heatbath.explorer.settings import MAX_CHANGES, HistoryEntry, PageRunSettings, PageSettings, is_same_phase
from heatbath.methods.partition import Partition
from heatbath.runs.live import LiveRun, Snapshot
from heatbath.runs.plan import Plan

SLICE_SECONDS = 0.015  # of work, after which a worker turns to another run
COMPILED_CALL_SECONDS = 0.004  # of compiled code, after which urgent requests are looked for
RECORD_GROWTH = 1.04  # factor from a recorded step to the next: about 350 records up to a million steps
MAX_RECORDS = 400  # of a trace; above it, every second one is dropped
FREE_RECORD_SECONDS = 0.5  # that records may take in any case
RECORD_SHARE = 0.3  # of all working time, that records may take beyond that
MAX_MAP_COST = 3e8  # parameters x chains x points of a map: about 20 ms
MIN_MAP_SIZE = 24  # points on a side of a map, however large the networks
HISTOGRAM_BINS = 48
LOSSES_SECONDS = 0.2  # for which losses above a map stay the same while a run plays: nobody reads faster
MAX_UNITS = 200  # hidden units whose lines are shown
GREY = 128  # of a map's 256 levels
DOMAIN_MARGIN = 1.1  # half the width of the visible plane, relative to that of the examples


class View(NamedTuple):
    """View of the page: kind of map, chain, whether hidden units are drawn, and points on a side."""

    map: str = "mean"
    chain: int = 0
    units: bool = False
    size: int = 100


class Domain(NamedTuple):
    """Visible part of the plane, in the user's coordinates."""

    left: float
    right: float
    bottom: float
    top: float

    def grid(self, size: int) -> Floats:
        """Return the centres of size x size cells, row by row from the top, with shape (size², 2)."""
        fraction = (np.arange(size) + 0.5) / size
        x = self.left + fraction * (self.right - self.left)
        y = self.top - fraction * (self.top - self.bottom)
        return np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)


class TracePoint(NamedTuple):
    """Record of a trace at one step: means over living chains, by quantity and split, part or thermostat."""

    step: int
    values: dict[str, dict[str, float]]


class Picture(NamedTuple):
    """Contents of a frame for one run.

    `losses` are train loss, test loss, train accuracy and test accuracy; `fresh` is True if they belong to
    `step`. `units` are lines of hidden units, or None; `seconds` is how long the picture took.
    """

    step: int
    losses: list[float]
    map: NDArray[np.uint8]
    units: list[list[float]] | None
    seconds: float
    fresh: bool = True


class TracesSent(NamedTuple):
    """When traces were last sent to the page, up to which step, and how many seconds that took."""

    time: float = -math.inf
    step: int = -1
    seconds: float = 0.0


class PaceStart(NamedTuple):
    """Time and step from which a limited speed counts."""

    time: float = 0.0
    step: int = 0


class StateAfterChange(NamedTuple):
    """Settings and heat factor that hold after a change."""

    run: PageRunSettings
    heat: float


Post = Callable[..., None]  # takes a text for the page, and the id of the message that it answers, if any


class Command(NamedTuple):
    """Request for the worker that next holds a run; `give_up` is called with a reason if no worker will."""

    execute: Callable[[], None]
    give_up: Callable[[str], None]


class RunStream:
    """A run that is advanced in slices and sends its results to the page.

    Parameters
    ----------
    name : str
        Name of the run: "A" or "B".
    settings : PageSettings
        Settings of the page.
    domain : Domain
        Part of the plane that its maps show.
    post : callable
        Sends a text to the page, as a `Post`.
    """

    def __init__(self, name: str, settings: PageSettings, domain: Domain, post: Post) -> None:
        """Start the run of this name at step 0, paused; nothing is compiled yet."""
        self.name = name
        self.settings = settings
        self.domain = domain
        self.post = post
        self.commands: deque[Command] = deque()
        self.held = False  # by a worker
        self.traces_sent = TracesSent()
        self.pace_start = PaceStart()

        # Settings, and how they change
        self.run: PageRunSettings = settings.runs[name]
        self.history: list[HistoryEntry] = []  # changes made so far
        self._states: list[StateAfterChange] = []  # after each of them
        self._pending = deque(self.run.history)  # changes still to be made
        self.phases: list[Plan] = []  # finished phases
        self.phase_start = 0  # step at which the present phase began
        self.heat = 1.0  # factor of all temperatures while the heat button is held

        # Records
        self.trace: list[TracePoint] = []
        self._first_unsent = 0  # index of the first record that the page doesn't have
        self._next_record = 1  # step
        self._recording_seconds = 0.0
        self._working_seconds = 0.0
        self._reported_lost = 0  # diverged chains that the page knows of

        # Pictures
        self.revision = 0  # counts changes of the picture that aren't steps
        self._shown_losses = [math.nan] * 4  # as in `Picture.losses`
        self._losses_time = -math.inf  # when they were computed
        self._losses_revision = -1  # and at which revision

        # State
        self.prepared = False  # compiled
        self.live = self._new_phase(self.run.partition(), None)
        self.start_theta = self.live.start
        self.step = 0  # may be read by any thread
        self.even_step = 0  # from here on counts how far this run is ahead of the other
        self.alive = True  # at least one chain
        self.failed = False

    def layout(self) -> list[dict[str, Any]]:
        """Return the parts of the network in the page's form.

        Each has its name, key and number of parameters; whether it has a temperature (`thermal`) and a
        thermostat (`adaptive`); and the coefficient that sets its temperature (`thermal_name`) or None.
        """
        return [
            {
                "name": part.name,
                "key": str(part.key),
                "parameters": part.size,
                "thermal": part.method.measures_temperature,
                "adaptive": bool(part.thermostats),
                "thermal_name": part.method.thermal if hasattr(part.method, part.method.thermal) else None,
            }
            for part in self.live.parts()
        ]

    @property
    def lead(self) -> int:
        """Number of steps since neither run was ahead of the other."""
        return self.step - self.even_step

    def waiting_commands(self) -> Iterator[Command]:
        """Remove and yield all commands, the oldest first; each command goes to one caller only."""
        while True:
            try:
                command = self.commands.popleft()
            except IndexError:  # asking before wouldn't help: another thread may be faster
                return
            yield command

    # Work, done by the worker that holds this run

    def work(self, seconds: float, max_steps: int, is_urgent: Callable[[], bool] = lambda: False) -> None:
        """Make steps for a while, with records and pending changes at their steps.

        Parameters
        ----------
        seconds : float
            Time to work.
        max_steps : int
            Largest number of steps.
        is_urgent : callable
            Work ends early as soon as this returns True.
        """
        thread_begin = time.thread_time()
        end_time = time.perf_counter() + seconds
        stop_step = self.step + max_steps
        self._apply_due_changes()
        while self.step < stop_step and self.alive:
            seconds_left = end_time - time.perf_counter()
            if seconds_left <= 0 or is_urgent():
                break
            due_step = min(self._next_record, stop_step)
            if self._pending:
                due_step = min(due_step, self._pending[0][0])
            self.live.advance_for(min(seconds_left, COMPILED_CALL_SECONDS), max(1, due_step - self.step))
            self._update_step()
            self._apply_due_changes()
            if self.step >= self._next_record:
                self._record()
        self._working_seconds += time.thread_time() - thread_begin

    def prepare(self) -> None:
        """Compile what this run needs, or load it if this computer has compiled it before.

        The page is told of each compilation when it begins, and when all have ended.
        """
        if self.prepared:
            return
        compilations = []

        def report(text: str) -> None:
            """Tell the page what is being compiled."""
            compilations.append(text)
            self.post(format_message("compiling", run=self.name, done=False, text=text))

        with reporting(report):
            self.live.prepare()
        self.prepared = True
        if compilations:
            self.post(format_message("compiling", run=self.name, done=True))

    def picture(self, view: View, playing: bool = False) -> Picture:
        """Return the picture of the present step for a frame.

        Parameters
        ----------
        view : View
            What the page shows.
        playing : bool
            True while the run makes steps. Losses are then computed for a few frames per second only, and
            repeated for the others.
        """
        begin = time.perf_counter()
        is_moving = playing and self.alive
        has_changed = self._losses_revision != self.revision
        needs_losses = not is_moving or has_changed or begin >= self._losses_time + LOSSES_SECONDS
        snapshot = self.live.look(self.domain.grid(self.map_size(view.size)), losses=needs_losses)
        if needs_losses:
            self._shown_losses = _mean_losses(snapshot)
            self._losses_time = begin
            self._losses_revision = self.revision

        pixels = _map_pixels(snapshot.outputs[:, :, 0], view)
        units = self._unit_lines(view.chain) if view.units else None
        seconds = time.perf_counter() - begin
        return Picture(self.step, self._shown_losses, pixels, units, seconds, needs_losses)

    def blank_picture(self, template: Picture) -> Picture:
        """Return a grey picture as large as `template`, in place of one that can't be computed."""
        return Picture(self.step, [math.nan] * 4, np.full_like(template.map, GREY), None, 0.0)

    def map_size(self, requested: int) -> int:
        """Return the number of points on a side of a map: fewer than requested for large networks."""
        cost_per_point = self.settings.chains * self.settings.network.parameters(2, 1)
        affordable = math.isqrt(int(MAX_MAP_COST / cost_per_point))
        return max(MIN_MAP_SIZE, min(requested, affordable))

    def all_changes(self) -> tuple[HistoryEntry, ...]:
        """Return all changes: those made so far and those still to be made."""
        return (*self.history, *self._pending)

    def send_settings(self, **fields: Any) -> None:
        """Send the present settings to the page, with other fields of the message `changed`.

        Without any, they are not those of a change: its `entry` is None and `replayed` is True.
        """
        fields = {"entry": None, "replayed": True, **self._settings_json(), **fields}
        text = format_message("changed", run=self.name, step=self.step, **fields)
        self.post(text, fields.get("id"))

    def send_traces(self, complete: bool = False) -> None:
        """Send histograms and the records that the page doesn't have, or all records if `complete`.

        The last record is always of the present step.
        """
        begin = time.perf_counter()
        if not self.trace or self.trace[-1].step < self.step:
            self._append_record(self._trace_point(self.live.look(gradients=True)))
        first_index = 0 if complete else self._first_unsent
        self._first_unsent = len(self.trace)

        self.post(format_message("traces", runs={self.name: self._trace_columns(first_index)}))
        self.post(format_message("histogram", runs={self.name: self._histogram()}))
        end = time.perf_counter()
        self.traces_sent = TracesSent(end, self.step, end - begin)

    # Commands

    def change(self, change: dict[str, Any], message_id: int | None = None, replayed: bool = False) -> None:
        """Change coefficients from the next step on; another word or method begins a new phase.

        Parameters
        ----------
        change : dict
            The change in the page's form.
        message_id : int or None
            Id of the message that asked for it.
        replayed : bool
            True for a change of the given history.
        """
        if not replayed:
            self._apply_due_changes()  # pending changes of this step come first, as in a link
        self._check_history_length()
        run = self.run.with_change(change, self.step)
        heated = run.with_temperatures_times(self.heat)
        self._apply(heated)
        self.run = run

        stored_change = dict(change)
        if "anneal" in change:
            stored_change["anneal"] = run.as_json["anneal"]
        if self.heat != 1:
            stored_change["parts"] = heated.as_json["parts"]
        self._store_and_send_change(stored_change, message_id, replayed)
        if not replayed:
            self._drop_impossible_changes()

    def set_heat(self, factor: float, message_id: int | None = None) -> None:
        """Multiply all temperatures of the settings by a factor; 1 restores them.

        `message_id` is the id of the message that asks for it, for the answer.
        """
        self._apply_due_changes()
        if factor == self.heat:
            self.send_settings(id=message_id)
            return
        if factor != 1:
            self._check_history_length()
        heated = self.run.with_temperatures_times(factor)
        self._apply(heated)
        self.heat = factor

        parts = {}
        for key, method in heated.base_partition.methods.items():
            temperature = getattr(method, method.thermal, None)
            if temperature:
                parts[str(key)] = {method.thermal: temperature}
        self._store_and_send_change({"parts": parts}, message_id, replayed=False)

    def rewind(self, message_id: int | None = None) -> None:
        """Go back to the last good state from before chains diverged, with the settings of that step.

        A heat button that was held there counts as released. `message_id` is the id of the message that asks
        for it, for the answer.
        """
        step = self.phase_start + self.live.rewind()
        was_heated = self._restore_settings(step)
        self.trace = [point for point in self.trace if point.step <= step]
        self._first_unsent = min(self._first_unsent, len(self.trace))
        self._reported_lost = 0
        self.revision += 1
        self._update_step()

        if was_heated:
            self._apply(self.run)
            self._store_change({"parts": self.run.as_json["parts"]})
        self._next_record = _next_recorded_step(self.live.step) + self.phase_start

        fields = {"history": self.all_changes(), **self._settings_json()}
        text = format_message("rewound", id=message_id, run=self.name, step=step, **fields)
        self.post(text, message_id)
        self._drop_impossible_changes()

    def _restore_settings(self, step: int) -> bool:
        """Forget the changes after a step, restore its settings and return True if they were heated."""
        self.history = [entry for entry in self.history if entry[0] <= step]
        del self._states[len(self.history) :]
        self.heat = 1.0
        if not self._states:
            self.run = self.settings.runs[self.name]
            return False
        self.run, heat = self._states[-1]
        return heat != 1

    # Phases and changes

    def _new_phase(self, partition: Partition, start: ArrayLike | None) -> LiveRun:
        """Return the live run of a new phase from parameters `start`, or from random ones if it's None."""
        settings = self.settings
        return LiveRun(
            settings.problem, settings.network, partition, settings.batch, settings.chains,
            seed=settings.seed + len(self.phases), start=start,
            momenta="zero" if start is None else "thermal",
        )  # fmt: skip

    def _apply(self, run: PageRunSettings) -> None:
        """Let settings hold from the present step on, in a new phase if more than coefficients differ.

        A new phase starts from the parameters of the present step. A phase without steps is replaced.

        Raises
        ------
        ValueError
            If the settings can't be used here; then nothing has changed.
        """
        if is_same_phase(self.live.partition, run.base_partition):
            self.live.change(run.partition(self.phase_start))
            return
        if (self.live.died >= 0).any():
            raise ValueError("some chains have diverged: go back to the last good state first, or reset")
        if not self.live.step:
            self.live = self._new_phase(run.partition(self.phase_start), self.live.plan.start)
            return

        phase_start = self.phase_start + self.live.step
        partition = run.partition(phase_start)
        self.phases.append(self.live.plan)  # the seed of a new phase depends on their number
        try:
            self.live = self._new_phase(partition, self.live.theta)
        except ValueError:
            self.phases.pop()
            raise
        self.phase_start = phase_start

    def _check_history_length(self) -> None:
        """Raise ValueError if there is no room for another change."""
        if len(self.history) + len(self._pending) >= MAX_CHANGES:
            raise ValueError(f"at most {MAX_CHANGES} changes of a run are kept: reset to start again")

    def _apply_due_changes(self) -> None:
        """Make the pending changes of steps up to the present one."""
        while self._pending and self._pending[0][0] <= self.step:
            step, change = self._pending.popleft()
            try:
                self.change(dict(change), replayed=True)
            except ValueError as error:  # such as another word for chains that have diverged
                self._pending.clear()
                self._report_dropped_changes(step, error)

    def _drop_impossible_changes(self) -> None:
        """Drop pending changes from the first one that can't be made any more, for example of a removed part.

        A link that contained them would be refused.
        """
        run = self.run
        possible: deque[HistoryEntry] = deque()
        for step, change in self._pending:
            try:
                run = run.with_change(change, step)
            except ValueError as error:
                self._pending = possible
                self._report_dropped_changes(step, error)
                return
            possible.append((step, change))

    def _report_dropped_changes(self, step: int, error: ValueError) -> None:
        """Tell the page from which step on changes were dropped and why, and send it the other changes."""
        text = f"the change at step {step} cannot be made again, nor those after it: {error}"
        self.post(format_message("error", run=self.name, text=text))
        self.send_settings(history=self.all_changes())

    def _store_and_send_change(self, change: dict[str, Any], message_id: int | None, replayed: bool) -> None:
        """Append a change to the history and send it to the page with all present settings.

        `message_id` is the id of the message that asked for it, and `replayed` is True for a change of the
        given history.
        """
        self._store_change(change)
        self.send_settings(id=message_id, entry=[self.step, change], replayed=replayed)

    def _store_change(self, change: dict[str, Any]) -> None:
        """Append a change of the present step to the history, with the settings that it leads to."""
        self.history.append((self.step, change))
        self._states.append(StateAfterChange(self.run, self.heat))

    def _settings_json(self) -> dict[str, Any]:
        """Return the present settings, heat factor and layout in the page's form."""
        return {**self.run.as_json, "heat": self.heat, "layout": self.layout()}

    # Results

    def _update_step(self) -> None:
        """Update the step and whether chains are alive; tell the page of chains that have newly diverged.

        The page gets the numbers of diverged and living chains, and the step and part of the last to diverge.
        """
        died = self.live.died  # step at which each chain diverged, or -1
        lost_chains = np.flatnonzero(died >= 0)
        living_count = len(died) - len(lost_chains)
        self.step = self.phase_start + self.live.step
        self.alive = living_count > 0
        if len(lost_chains) <= self._reported_lost:
            return

        self._reported_lost = len(lost_chains)
        last_chain = int(lost_chains[np.argmax(died[lost_chains])])
        text = format_message(
            "diverged",
            run=self.name,
            step=self.phase_start + int(died[last_chain]),
            part=self.live.diverged_part(last_chain),
            chains=len(lost_chains),
            living=living_count,
        )
        self.post(text)

    def _record(self) -> None:
        """Record the present step, unless records take too large a share of the time."""
        self._next_record = self.phase_start + _next_recorded_step(self.live.step)
        begin = time.thread_time()  # of this thread: other programs don't make it longer
        if self._recording_seconds > FREE_RECORD_SECONDS + RECORD_SHARE * self._working_seconds:
            return
        self._append_record(self._trace_point(self.live.note(gradients=True)))
        self._recording_seconds += time.thread_time() - begin

    def _trace_point(self, snapshot: Snapshot) -> TracePoint:
        """Return the record of a snapshot at the present step: means over living chains of finite values."""
        loss = snapshot.loss[snapshot.alive]
        accuracy = snapshot.accuracy[snapshot.alive]
        splits = ("train", "test") if self.settings.problem.X_test.size else ("train",)
        return TracePoint(
            self.step,
            {
                "loss": {split: _finite_mean(loss[:, k]) for k, split in enumerate(splits)},
                "accuracy": {split: _finite_mean(accuracy[:, k]) for k, split in enumerate(splits)},
                "temperature": _finite_means(snapshot.temperature),
                "configurational": _finite_means(snapshot.configurational),
                "xi": _finite_means(snapshot.xi),
            },
        )

    def _append_record(self, point: TracePoint) -> None:
        """Append a record to the trace.

        The last record may be an extra one, of the moment when traces were sent; it is replaced unless it is
        as far from the one before it as regular records are.
        """
        if self.trace and self.trace[-1].step >= point.step:
            return
        if len(self.trace) > 1 and self.trace[-1].step < _next_recorded_step(self.trace[-2].step):
            self.trace.pop()
        self.trace.append(point)
        self._first_unsent = min(self._first_unsent, len(self.trace) - 1)
        if len(self.trace) > MAX_RECORDS:
            newest = self.trace[-2:]
            self.trace = self.trace[:-2:2] + newest
            self._first_unsent = 0

    def _trace_columns(self, first_index: int) -> dict[str, Any]:
        """Return the records from an index on as columns: their steps, and the values of each quantity.

        Values are by split, part or thermostat; the last record decides which of them there are.
        """
        records = self.trace[first_index:]
        columns: dict[str, Any] = {"from": first_index, "step": [record.step for record in records]}
        for quantity, latest_values in self.trace[-1].values.items():
            columns[quantity] = {
                key: [record.values[quantity].get(key) for record in records] for key in latest_values
            }
        return columns

    def _histogram(self) -> dict[str, Any]:
        """Return histograms of the parameters by part, over living chains, between round limits."""
        is_alive = self.live.died < 0
        theta = self.live.theta[is_alive]
        histograms = {}
        for part in self.live.parts():
            tensors = [theta[:, span.start : span.stop] for span in part.tensors]
            largest = max(float(np.abs(tensor).max(initial=0.0)) for tensor in tensors)
            limit = _round_up(largest)
            snapshot = self.live.look(losses=False, histogram=(-limit, limit, HISTOGRAM_BINS))
            counts = snapshot.histogram[part.name][is_alive].sum(axis=0)
            histograms[part.name] = {"low": -limit, "high": limit, "counts": counts}
        return histograms

    def _unit_lines(self, chain: int) -> list[list[float]] | None:
        """Return the lines on which the hidden units of a network with one hidden layer are 0.

        Each is [w1, w2, b, v], for the line w·x + b = 0 in the user's coordinates and the unit's output
        weight v, relative to the largest. There are at most MAX_UNITS, with the strongest first: those with
        the largest |v| |w|. There is none if the chain has diverged, and networks with several hidden layers
        give None.
        """
        network = self.settings.network
        problem = self.settings.problem
        if len(network.hidden) > 1:
            return None
        shown_chain = min(chain, self.settings.chains - 1)
        theta = self.live.theta[shown_chain].astype(np.float64)
        if not np.isfinite(theta).all():
            return []
        # Two weights of each unit, then their biases, then their output weights
        units = network.hidden[0]
        w = theta[: 2 * units].reshape(units, 2) / problem.scale
        b = theta[2 * units : 3 * units] - w @ problem.shift
        v = theta[3 * units : 4 * units]

        strongest = np.argsort(-np.abs(v) * np.hypot(*w.T))[:MAX_UNITS]
        relative_v = v / max(float(np.abs(v).max()), 1e-30)
        lines = np.column_stack([w, b, relative_v])[strongest]
        return [_rounded(line) for line in lines.tolist()]


def visible_domain(settings: PageSettings) -> Domain:
    """Return the part of the plane that contains all examples, with a margin."""
    problem = settings.problem
    X = np.concatenate([problem.X_train[0], problem.X_test[0]]) * problem.scale + problem.shift
    centre = (X.min(axis=0) + X.max(axis=0)) / 2
    half_width = np.maximum(np.ptp(X, axis=0) / 2, 1e-9) * DOMAIN_MARGIN
    left, bottom = _rounded(centre - half_width)
    right, top = _rounded(centre + half_width)
    return Domain(left, right, bottom, top)


def split_points(settings: PageSettings, split: str) -> list[list[float]]:
    """Return the examples of a split, "train" or "test", as [x, y, class] in the user's coordinates."""
    problem = settings.problem
    if split == "train":
        X, Y = problem.X_train[0], problem.Y_train[0]
    else:
        X, Y = problem.X_test[0], problem.Y_test[0]
    positions = X * problem.scale + problem.shift
    examples = zip(positions.tolist(), Y[:, 0].tolist(), strict=True)
    return [[*_rounded(position), int(label)] for position, label in examples]


def _rounded(values: Iterable[float]) -> list[float]:
    """Return numbers rounded for display."""
    return [round_for_display(value) for value in values]


def _next_recorded_step(step: int) -> int:
    """Return the step of the next record: recorded steps grow geometrically."""
    return max(step + 1, math.ceil(step * RECORD_GROWTH))


def _finite_mean(values: Floats) -> float:
    """Return the rounded mean of the finite values, or NaN if there are none."""
    finite = values[np.isfinite(values)]
    return round_for_display(float(finite.mean())) if finite.size else math.nan


def _finite_means(by_name: Mapping[str, Floats]) -> dict[str, float]:
    """Return the rounded mean of the finite values of each name."""
    return {name: _finite_mean(values) for name, values in by_name.items()}


def _mean_losses(snapshot: Snapshot) -> list[float]:
    """Return train loss, test loss, train accuracy and test accuracy, each averaged over living chains."""
    loss = snapshot.loss[snapshot.alive]
    accuracy = snapshot.accuracy[snapshot.alive]
    by_split = (loss[:, 0], loss[:, 1], accuracy[:, 0], accuracy[:, 1])
    return [_finite_mean(values) for values in by_split]


def _map_pixels(probabilities: Floats, view: View) -> NDArray[np.uint8]:
    """Return the pixels of a map, from 0 to 255, without the chains that aren't finite.

    Parameters
    ----------
    probabilities : array (chain, point)
        Probability of class 1.
    view : View
        Its `map` is "mean" for the mean over chains, "sd" for twice their standard deviation, or "chain" for
        chain number `chain`.

    Returns
    -------
    array (point,)
        Pixels: all grey, or black for standard deviations, if no chain to show is finite.
    """
    is_shown = np.asarray(np.isfinite(probabilities).all(axis=1))
    if view.map == "chain":
        last_chain = len(probabilities) - 1
        is_shown &= np.arange(len(probabilities)) == min(view.chain, last_chain)
    if not is_shown.any():
        empty_level = 0 if view.map == "sd" else GREY
        return np.full(probabilities.shape[1], empty_level, np.uint8)

    shown = probabilities[is_shown]
    levels = 2 * shown.std(axis=0) if view.map == "sd" else shown.mean(axis=0)  # of one chain, itself
    return np.asarray(np.clip(np.rint(255 * levels), 0, 255), np.uint8)


def _round_up(value: float) -> float:
    """Return the next of 1, 2, 5, 10, ... times a power of ten, so that histogram bins change rarely."""
    if not math.isfinite(value) or value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    round_numbers = (power * factor for factor in (1, 2, 5, 10))
    return next(number for number in round_numbers if number >= value)
