"""A run of a session: a `Live` with its phases, the changes on the way, and what the page is shown of it.

One worker at a time holds a flight, and only that one touches it; everyone else leaves a command.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from heatbath.datasets.problem import Floats
from heatbath.engine.compile import reporting
from heatbath.explorer.messages import short, write
from heatbath.explorer.settings import CHANGES, PageSettings, RunSettings, same_phase
from heatbath.runs.live import LiveRun, Snapshot
from heatbath.runs.plan import Plan

SLICE, PIECE = 0.015, 0.004  # seconds of work at a time, and of compiled code, after which one looks up
GROWTH = 1.04  # of the steps of the records: some 350 up to a million
RECORDS = 400
FIRST, SHARE = 0.5, 0.3  # seconds, and then the share of all time, that records may take
CELLS = 3e8  # parameters x chains x points of a map: some 20 ms
COARSEST = 24  # a map has at least so many points on a side
BINS = 48
READ = 0.2  # seconds in which the numbers above a map of a run that plays stay: nobody reads faster
UNITS = 200


class View(NamedTuple):
    """What the page shows: which map, of which chain, whether hidden units, and how many points on a side."""

    map: str = "mean"
    chain: int = 0
    units: bool = False
    size: int = 100


class Domain(NamedTuple):
    """The part of the plane that is shown, in the user's coordinates."""

    left: float
    right: float
    bottom: float
    top: float

    def grid(self, size: int) -> Floats:
        """The middles of size x size cells, row by row from the top."""
        share = (np.arange(size) + 0.5) / size
        x, y = self.left + share * (self.right - self.left), self.top - share * (self.top - self.bottom)
        return np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)


class TracePoint(NamedTuple):
    """A record of a trace: means over living chains."""

    step: int
    values: dict[str, Any]


class Picture(NamedTuple):
    """What a frame shows of a run; `fresh` if its losses are those of this step."""

    step: int
    losses: list[float]
    map: NDArray[np.uint8]
    units: list[list[float]] | None
    took: float
    fresh: bool = True


Post = Callable[..., None]  # takes a text to the page, and the number of the message that it answers, if any


class Command(NamedTuple):
    """What the worker that holds a run next is to do; and what is done, with a reason, if none ever does."""

    carry_out: Callable[[], None]
    give_up: Callable[[str], None]


class Flight:
    """A run on its way. `post` takes messages to the page."""

    def __init__(self, name: str, settings: PageSettings, domain: Domain, post: Post) -> None:
        self.name, self.settings, self.domain, self.post = name, settings, domain, post
        self.commands: deque[Command] = deque()
        self.held = False
        self.told = -math.inf, -1, 0.0  # when traces were sent, up to which step, and seconds that it took
        self.paced = 0.0, 0  # since when, and from which step on, the speed counts
        self.run: RunSettings = settings.runs[name]
        self.history: list[tuple[int, dict[str, Any]]] = []  # of changes that were made
        self._held: list[tuple[RunSettings, float]] = []  # what held from each of them on, and the heat
        self._pending = deque(self.run.history)  # of those that are to be made
        self.phases: list[Plan] = []  # those that have ended
        self.offset = 0  # steps of them
        self.heat = 1.0
        self.trace: list[TracePoint] = []
        self._changed_from = 0  # the first record that the page has not got
        self._next_record, self._noting, self._working = 1, 0.0, 0.0
        self._lost = 0  # chains that diverged and were told of
        self.prepared = False
        self.moment = 0  # counts what changes the picture beside steps
        self._means = [math.nan] * 4  # losses and accuracies as they were seen last
        self._read = -math.inf, -1  # when that was, and at which moment
        self.live = self._made(self.run.partition(), None)
        self.first_theta = self.live.start
        self.step = 0  # for everyone to read
        self.even = 0  # the step from which on it counts how far it is ahead of the other
        self.alive, self.failed = True, False

    def layout(self) -> list[dict[str, Any]]:
        """The parts of the network, as the page lists them."""
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
        """The steps that it has made since neither run was ahead of the other."""
        return self.step - self.even

    def next_command(self) -> Command | None:
        """The command that has waited longest, which is the caller's now, whoever else asks."""
        try:
            return self.commands.popleft()
        except IndexError:
            return None

    # What a worker does

    def work(self, seconds: float, most: int, urgent: Callable[[], bool] = lambda: False) -> None:
        """Make steps for some time, `most` at the most, with records and changes where they are due.

        It ends before if something is `urgent`.
        """
        begin, end = time.thread_time(), time.perf_counter() + seconds
        stop = self.step + most
        self._replay()
        while self.step < stop and self.alive and (left := end - time.perf_counter()) > 0 and not urgent():
            due = min(self._next_record, stop, self._pending[0][0] if self._pending else stop)
            self.live.advance_for(min(left, PIECE), max(1, due - self.step))
            self._stand()
            self._replay()
            if self.step >= self._next_record:
                self._record()
        self._working += time.thread_time() - begin

    def prepare(self) -> None:
        """Compile, and say so, if that was never done on this computer."""
        if self.prepared:
            return
        told: list[str] = []

        def tell(text: str) -> None:
            told.append(text)
            self.post(write("compiling", run=self.name, done=False, text=text))

        with reporting(tell):
            self.live.prepare()
        self.prepared = True
        if told:
            self.post(write("compiling", run=self.name, done=True))

    def picture(self, view: View, playing: bool = False) -> Picture:
        """A look at the map; at losses, too, but not in every frame of a run that is `playing`."""
        begin = time.perf_counter()
        when, moment = self._read
        losses = not (playing and self.alive) or moment != self.moment or begin >= when + READ
        seen = self.live.look(self.domain.grid(self.size(view.size)), losses=losses)
        if losses:
            self._means, self._read = _means_of(seen), (begin, self.moment)
        values = _map(seen.outputs[:, :, 0], view)
        units = self._units(view.chain) if view.units else None
        return Picture(self.step, self._means, values, units, time.perf_counter() - begin, losses)

    def blank(self, other: Picture) -> Picture:
        """In place of a picture that cannot be had, one as large as that of the other run."""
        return Picture(self.step, [math.nan] * 4, np.full_like(other.map, 128), None, 0.0)

    def size(self, wanted: int) -> int:
        """How many points a map has on a side: fewer where the networks are large."""
        cost = self.settings.chains * self.settings.network.parameters(2, 1)
        return max(COARSEST, min(wanted, math.isqrt(int(CELLS / cost))))

    def entries(self) -> tuple[tuple[int, Any], ...]:
        """All changes, those that were made and those that are to be."""
        return (*self.history, *self._pending)

    def tell_settings(self, **more: Any) -> None:
        """Send the values that hold now."""
        now = self._plain() | more
        text = write("changed", run=self.name, step=self.step, entry=None, replayed=True, **now)
        self.post(text, more.get("id"))

    def tell_traces(self, whole: bool = False) -> None:
        """Send the records that the page has not got, with one of now, and the histograms."""
        begin = time.perf_counter()
        if not self.trace or self.trace[-1].step < self.step:
            self._append(self._point(self.live.look(gradients=True)))
        first = 0 if whole else self._changed_from
        new = self.trace[first:]
        self._changed_from = len(self.trace)
        columns: dict[str, Any] = {"from": first, "step": [point.step for point in new]}
        for name in ("loss", "accuracy", "temperature", "configurational", "xi"):
            keys = self.trace[-1].values[name]
            columns[name] = {key: [point.values[name].get(key) for point in new] for key in keys}
        self.post(write("traces", runs={self.name: columns}))
        self.post(write("histogram", runs={self.name: self._histogram()}))
        end = time.perf_counter()
        self.told = end, self.step, end - begin

    # Commands

    def change(self, change: dict[str, Any], number: int | None = None, replayed: bool = False) -> None:
        """Change coefficients from the next step on; another word or method begins a new phase."""
        if not replayed:
            self._replay()  # what is to be made at this step comes first: a link has it so
        self._check_room()
        run = self.run.changed(change, self.step)
        self._apply(run.heated(self.heat))
        self.run = run
        if "anneal" in change:
            change = {**change, "anneal": run.plain["anneal"]}
        if self.heat != 1:
            change = {**change, "parts": run.heated(self.heat).plain["parts"]}
        self._note_change(change, number, replayed)
        if not replayed:
            self._check_pending()

    def set_heat(self, factor: float, number: int | None = None) -> None:
        """Multiply all temperatures while held; 1 ends it."""
        self._replay()
        if factor == self.heat:
            self.tell_settings(id=number)
            return
        if factor != 1:
            self._check_room()
        hot = self.run.heated(factor)
        self._apply(hot)
        self.heat = factor
        methods = {str(key): method for key, method in hot.base.methods.items()}
        values = {key: (m.thermal, getattr(m, m.thermal, None)) for key, m in methods.items()}
        parts = {key: {name: value} for key, (name, value) in values.items() if value}
        self._note_change({"parts": parts}, number, False)

    def rewind(self, number: int | None = None) -> None:
        """Go back to the last good state; a heat button that was held there is let go."""
        step = self.offset + self.live.rewind()
        self.history = [entry for entry in self.history if entry[0] <= step]
        del self._held[len(self.history) :]
        self.run, heat = self._held[-1] if self._held else (self.settings.runs[self.name], 1.0)
        self.trace = [point for point in self.trace if point.step <= step]
        self._changed_from = min(self._changed_from, len(self.trace))
        self._lost, self.heat = 0, 1.0
        self.moment += 1
        self._stand()
        if heat != 1:
            self._apply(self.run)
            self._keep({"parts": self.run.plain["parts"]})
        self._next_record = _after(self.live.step) + self.offset
        text = write(
            "rewound", id=number, run=self.name, step=step, history=self.entries(), **self._plain()
        )  # fmt: skip
        self.post(text, number)
        self._check_pending()

    # Inside

    def _made(self, partition: Any, start: Any) -> LiveRun:
        settings = self.settings
        return LiveRun(
            settings.problem, settings.network, partition, settings.batch, settings.chains,
            seed=settings.seed + len(self.phases), start=start,
            momenta="zero" if start is None else "thermal",
        )  # fmt: skip

    def _apply(self, run: RunSettings) -> None:
        if same_phase(self.live.partition, run.base):
            self.live.change(run.partition(self.offset))
            return
        if (self.live.died >= 0).any():
            raise ValueError("some chains have diverged: go back to the last good state first, or reset")
        before, phases, offset = self.live, self.phases, self.offset
        start = before.theta if before.step else before.plan.start
        try:
            if before.step:
                self.phases, self.offset = [*phases, before.plan], offset + before.step
            self.live = self._made(run.partition(self.offset), start)
        except ValueError:
            self.phases, self.offset = phases, offset
            raise

    def _check_room(self) -> None:
        if len(self.history) + len(self._pending) >= CHANGES:
            raise ValueError(f"at most {CHANGES} changes are kept of a run: reset begins anew")

    def _replay(self) -> None:
        while self._pending and self._pending[0][0] <= self.step:
            step, change = self._pending.popleft()
            try:
                self.change(dict(change), replayed=True)
            except ValueError as error:  # such as another word for chains that have diverged
                self._pending.clear()
                self._tell_dropped(step, error)

    def _check_pending(self) -> None:
        """Drop changes that are to be made and cannot be any more, such as those of a method that is gone.

        The link would be refused with them.
        """
        run = self.run
        for place, (step, change) in enumerate(self._pending):
            try:
                run = run.changed(change, step)
            except ValueError as error:
                self._pending = deque(list(self._pending)[:place])
                self._tell_dropped(step, error)
                return

    def _tell_dropped(self, step: int, error: ValueError) -> None:
        text = f"the change at step {step} cannot be made again, nor those after it: {error}"
        self.post(write("error", run=self.name, text=text))
        self.tell_settings(history=self.entries())

    def _note_change(self, change: dict[str, Any], number: int | None, replayed: bool) -> None:
        self._keep(change)
        text = write(
            "changed",
            id=number,
            run=self.name,
            step=self.step,
            entry=[self.step, change],
            replayed=replayed,
            **self._plain(),
        )
        self.post(text, number)

    def _keep(self, change: dict[str, Any]) -> None:
        self.history.append((self.step, change))
        self._held.append((self.run, self.heat))

    def _plain(self) -> dict[str, Any]:
        return {**self.run.plain, "heat": self.heat, "layout": self.layout()}

    def _stand(self) -> None:
        """See where it stands, and tell of chains that have diverged."""
        died = self.live.died
        lost = np.flatnonzero(died >= 0)
        self.step, self.alive = self.offset + self.live.step, len(lost) < len(died)
        if len(lost) > self._lost:
            last = int(lost[np.argmax(died[lost])])
            self._lost = len(lost)
            self.post(
                write(
                    "diverged",
                    run=self.name,
                    step=self.offset + int(died[last]),
                    part=self.live.diverged_part(last),
                    chains=len(lost),
                    living=len(died) - len(lost),
                )
            )

    def _record(self) -> None:
        """Note a record, if records do not take too much of the time."""
        self._next_record = self.offset + _after(self.live.step)
        begin = time.thread_time()  # of this thread: a busy computer makes neither of the two seem longer
        if self._noting > FIRST + SHARE * self._working:
            return
        self._append(self._point(self.live.note(gradients=True)))
        self._noting += time.thread_time() - begin

    def _point(self, seen: Snapshot) -> TracePoint:
        loss, accuracy = seen.loss[seen.alive], seen.accuracy[seen.alive]
        splits = ("train", "test") if self.settings.problem.X_test.size else ("train",)
        return TracePoint(
            self.step,
            {
                "loss": {split: _mean(loss[:, k]) for k, split in enumerate(splits)},
                "accuracy": {split: _mean(accuracy[:, k]) for k, split in enumerate(splits)},
                "temperature": {name: _mean(v) for name, v in seen.temperature.items()},
                "configurational": {name: _mean(v) for name, v in seen.configurational.items()},
                "xi": {name: _mean(v) for name, v in seen.xi.items()},
            },
        )

    def _append(self, point: TracePoint) -> None:
        """Have a record in the trace; the last one stays only if it is far enough from that before."""
        if self.trace and self.trace[-1].step >= point.step:
            return
        if len(self.trace) > 1 and self.trace[-1].step < _after(self.trace[-2].step):
            self.trace.pop()
        self.trace.append(point)
        self._changed_from = min(self._changed_from, len(self.trace) - 1)
        if len(self.trace) > RECORDS:
            self.trace = [*self.trace[:-2][::2], *self.trace[-2:]]
            self._changed_from = 0

    def _histogram(self) -> dict[str, Any]:
        """How the parameters of each part are distributed, over living chains."""
        alive = self.live.died < 0
        theta, shown = self.live.theta[alive], {}
        for part in self.live.parts():
            values = [theta[:, span.start : span.stop] for span in part.tensors]
            end = _round_up(max(float(np.abs(v).max(initial=0.0)) for v in values))
            counts = self.live.look(losses=False, histogram=(-end, end, BINS)).histogram
            shown[part.name] = {"low": -end, "high": end, "counts": counts[part.name][alive].sum(axis=0)}
        return shown

    def _units(self, chain: int) -> list[list[float]] | None:
        """The lines of the hidden units of a chain, in the user's coordinates, with their output weights."""
        network, problem = self.settings.network, self.settings.problem
        if len(network.hidden) > 1:
            return None
        count = network.hidden[0]
        theta = self.live.theta[min(chain, self.settings.chains - 1)].astype(np.float64)
        if not np.isfinite(theta).all():
            return []
        w = theta[: 2 * count].reshape(count, 2) / problem.scale
        b = theta[2 * count : 3 * count] - w @ problem.shift
        v = theta[3 * count : 4 * count]
        strongest = np.argsort(-np.abs(v) * np.hypot(*w.T))[:UNITS]
        v = v / max(float(np.abs(v).max()), 1e-30)
        lines = np.column_stack([w, b, v])[strongest]
        return [[short(value) for value in line] for line in lines.tolist()]


def domain_of(settings: PageSettings) -> Domain:
    """The plane with all points in it, and some room around."""
    problem = settings.problem
    X = np.concatenate([problem.X_train[0], problem.X_test[0]]) * problem.scale + problem.shift
    middle = (X.min(axis=0) + X.max(axis=0)) / 2
    half = np.maximum(np.ptp(X, axis=0) / 2, 1e-9) * 1.1
    low, high = middle - half, middle + half
    return Domain(*map(short, (low[0], high[0], low[1], high[1])))


def points_of(settings: PageSettings, split: str) -> list[list[float]]:
    """The examples of a split, [x, y, class], in the user's coordinates."""
    problem = settings.problem
    X, Y = (problem.X_train, problem.Y_train) if split == "train" else (problem.X_test, problem.Y_test)
    raw = X[0] * problem.scale + problem.shift
    return [[short(x), short(y), int(c)] for (x, y), (c,) in zip(raw.tolist(), Y[0].tolist(), strict=True)]


def _after(step: int) -> int:
    """The step of the next record."""
    return max(step + 1, math.ceil(step * GROWTH))


def _mean(values: Floats) -> float:
    values = values[np.isfinite(values)]
    return short(float(values.mean())) if values.size else math.nan


def _means_of(seen: Snapshot) -> list[float]:
    """Losses and accuracies, train and test."""
    return [_mean(values[seen.alive, k]) for values in (seen.loss, seen.accuracy) for k in (0, 1)]


def _map(values: Floats, view: View) -> NDArray[np.uint8]:
    """Probabilities (chain, point) as bytes; grey where there is nothing to show."""
    well = np.asarray(np.isfinite(values).all(axis=1))
    if view.map == "chain":
        chain = min(view.chain, len(values) - 1)
        shown = values[chain] if well[chain] else None
    elif not well.any():
        shown = None
    else:
        shown = values[well].mean(axis=0) if view.map == "mean" else 2 * values[well].std(axis=0)
    if shown is None:
        return np.full(values.shape[1], 0 if view.map == "sd" else 128, np.uint8)
    return np.asarray(np.clip(np.rint(255 * shown), 0, 255), np.uint8)


def _round_up(value: float) -> float:
    """The next of 1, 2, 5, 10, ... times a power of ten, so that the bins stay where they are for a while."""
    if not math.isfinite(value) or value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= value)
