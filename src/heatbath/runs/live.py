"""Runs in flight: advanced by hand, changed and looked at on the way."""

from __future__ import annotations

import time
from collections import deque
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from heatbath._internal.checks import POSITIVE, real, whole
from heatbath.datasets import Problem
from heatbath.datasets.problem import Floats, numbers
from heatbath.engine.batches import tabulate
from heatbath.engine.ensemble import Ensemble
from heatbath.engine.layouts import Wide
from heatbath.engine.loop import ChainState
from heatbath.engine.program import compile_program
from heatbath.engine.threads import one_blas_thread
from heatbath.methods import Frozen
from heatbath.methods.partition import Part, Partition
from heatbath.methods.schedules import MOST_STEPS, at
from heatbath.models.dense import MLP
from heatbath.models.likelihood import settle
from heatbath.runs import grid
from heatbath.runs.continuation import change_plan
from heatbath.runs.dataset import EnsembleGroup, gather
from heatbath.runs.plan import Batch, Plan, make_plan
from heatbath.runs.run import Run
from heatbath.runs.simulation import descend, make_descent, make_ensemble, start_of

APART = 0.5  # seconds of work between two states that are kept to go back to
KEPT = 4  # how many: the oldest is then some two seconds before the end of a chain, where it is still well


@dataclass(frozen=True, eq=False)
class Snapshot:
    """What a run in flight looks like at `step`, by chain; chains that diverged are not `alive`.

    `outputs` (chain, example, output) are what the networks say of the inputs that were asked about, in the
    units of `Run.outputs`; `loss` and `accuracy` (chain, split) are over all training and all test examples.
    By part there are the kinetic `temperature` (chain,), the `configurational` one and the `histogram` of the
    parameters (chain, bin), by thermostat `xi` (chain,). What was not asked for is NaN, or empty.
    """

    step: int
    alive: NDArray[np.bool_]
    temperature: dict[str, Floats]
    xi: dict[str, Floats]
    loss: Floats
    accuracy: Floats
    outputs: Floats
    configurational: dict[str, Floats]
    histogram: dict[str, NDArray[np.int64]]


class _Record(NamedTuple):
    """What is noted at a step, by chain."""

    step: int
    loss: Floats
    accuracy: Floats
    temperature: Floats
    xi: Floats


class _State(NamedTuple):
    """All that a run continues from."""

    step: int
    plan: Plan
    chains: ChainState


class LiveRun:
    """A run in flight: it stands at a step, is advanced by hand, and can be changed and looked at there.

    `run()` is the run that `train` would have made with these arguments, with every change of coefficients on
    the way in its partition, bit for bit. The arguments are those of `train`. Coefficients may be schedules,
    but no lists.

    A chain that diverges is stopped, and the others go on: `died` and `diverged_part` tell of it, and
    `rewind` goes back to before. One thread at a time may use it.

    >>> import heatbath as hb
    >>> problem = hb.datasets.spirals(n_train=50, n_test=20)
    >>> live = hb.LiveRun(problem, hb.MLP((5,)), hb.AdLaLa(h=0.2), chains=2)
    >>> live.advance(100)
    >>> live.change(hb.AdLaLa(h=0.1))
    >>> live.advance(100)
    >>> live.look([[0.5, 1.0]]).outputs.shape
    (2, 1, 1)
    >>> live.run().partition.h
    Piecewise(values=(0.2, 0.1), steps=(100,))
    """

    def __init__(
        self,
        problem: Problem,
        network: MLP,
        partition: Partition,
        batch: Batch = None,
        chains: int = 1,
        *,
        seed: int = 0,
        shuffled: bool = False,
        rotated: bool = True,
        momenta: Literal["zero", "thermal"] = "zero",
        start: ArrayLike | None = None,
        dtype: Literal["float32", "float64"] = "float32",
        threads: int | None = 1,
    ) -> None:
        self._plan = plan = make_plan(
            problem, network, partition, 1, batch, chains, call="train", seed=seed, record=1,
            shuffled=shuffled, rotated=rotated, momenta=momenta, start=start, dtype=dtype,
        )  # fmt: skip
        kind = np.dtype(plan.dtype)
        self._data = tabulate(problem.X_train, problem.Y_train, kind, problem.relative_weights("train"))
        self._test = tabulate(problem.X_test, problem.Y_test, kind, problem.relative_weights("test"))
        self._threads, self._chains = threads, np.arange(plan.chains)
        self._records: list[_Record] = []
        self._pace = 0.0  # seconds that a step takes
        self._inputs = np.empty((0, plan.problem.inputs))
        self._grid = tabulate(self._inputs[None], np.zeros((1, 0, 0)), kind)
        self._ensemble = self._begin(None, partition)
        self._kept: deque[_State] = deque([self._state()], KEPT)
        self._worked = 0.0  # seconds since the last state that was kept
        self._eye = self._blind()
        self._descent: Ensemble | None = None

    def __repr__(self) -> str:
        return f"Live at step {self.step:,} of {self._plan!r}"

    @property
    def step(self) -> int:
        """Where it stands."""
        return self._ensemble.step

    @property
    def partition(self) -> Partition:
        """The methods, with every change of coefficients on the way as a `schedules.Piecewise`."""
        assert isinstance(self._plan.partition, Partition)
        return self._plan.partition

    @property
    def plan(self) -> Plan:
        """The plan of a run up to here, as `train` makes it, with the records that were noted."""
        steps = [record.step for record in self._records if record.step < self.step]
        return replace(self._plan, steps=max(self.step, 1), record=tuple(steps) or 1, records=(), losses=())

    def parts(self) -> list[Part]:
        """The parts that its methods make of the network."""
        return self._plan.parts()

    @property
    def start(self) -> NDArray[np.float64]:
        """θ of every chain at the start, (chains, parameters)."""
        return start_of(self._plan, self._chains)

    @property
    def theta(self) -> NDArray[Any]:
        """The parameters of every chain now, (chains, parameters), as a copy."""
        return self._ensemble.chains.theta.copy()

    @property
    def died(self) -> NDArray[np.int64]:
        """The step at which each chain diverged, -1 for those that did not."""
        return self._ensemble.chains.died.copy()

    def diverged_part(self, chain: int) -> str:
        """The part of a stopped chain that is not finite, or whose parameters are largest."""
        return self._ensemble.diverged_part(whole("chain", chain, low=0, high=len(self._chains)))

    def prepare(self) -> None:
        """Compile what `advance` and `look` need, here and now, if that was never done on this computer."""
        self._ensemble.prepare()

    def advance(self, steps: int) -> None:
        """Make steps; chains that diverge stop, and when none is left nothing moves any more."""
        steps = whole("steps", steps, low=0, high=MOST_STEPS - self.step)
        if steps and self._worked >= APART and self._is_well():
            self._kept.append(self._state())  # with all changes that hold from here on
            self._worked = 0.0
        begin = time.perf_counter()
        with self._one_thread():
            left = steps
            while left:
                if self._until and self.step >= self._until:
                    self._ensemble = self._begin(self._ensemble, grid.latest_coefficients(self.partition))
                now = min(left, self._until - self.step) if self._until else left
                self._ensemble.advance(now)
                left -= now
        took = time.perf_counter() - begin
        if steps:  # the first steps may have waited for code to be compiled: what is faster holds at once
            pace = took / steps
            self._pace = min(pace, 0.7 * self._pace + 0.3 * pace) if self._pace else pace
        self._worked += took

    def advance_for(self, seconds: float, most: int = MOST_STEPS) -> int:
        """Make steps for about so many seconds, at least one and `most` at the most, and return how many."""
        left = real("seconds", seconds, POSITIVE)
        end, most = time.perf_counter() + left, whole("most", most, low=1)
        made = 0
        while made < most and (made == 0 or left > self._pace / 2):
            now = max(1, min(int(left / self._pace), most - made)) if self._pace else 1
            self.advance(now)
            made += now
            left = end - time.perf_counter()
        return made

    def change(self, partition: Partition) -> None:
        """Other coefficients for the same methods from the next step on, as `Run.resume` takes them.

        Their schedules count from the start of the run. (Where θ is seen at the kick, in the middle of a
        word, the step that has begun ends with the coefficients it began with.)
        """
        if self.step:
            self._plan = change_plan(self._plan, partition, self.step)
            self._ensemble = self._begin(self._ensemble, self.partition)
            if self._kept[-1].step == self.step:  # one that was gone back to: it is changed with it
                self._kept[-1] = self._kept[-1]._replace(plan=self._plan)
            return
        changed = grid.change_coefficients(
            self.partition, partition, 0
        )  # nothing has begun: it starts with these
        self._plan = replace(self._plan, partition=changed)
        self._ensemble = self._begin(None, changed)
        self._kept = deque([self._state()], KEPT)

    def note(self, *, gradients: bool = False) -> Snapshot:
        """Look at losses, temperatures and ξ, and have them as a record in `run()`."""
        seen = self.look(gradients=gradients)
        self._records = self._with(seen)
        return seen

    def look(
        self,
        X: ArrayLike | None = None,
        *,
        losses: bool = True,
        gradients: bool = False,
        histogram: tuple[float, float, int] | None = None,
    ) -> Snapshot:
        """How things stand, in compiled code; nothing moves.

        - `X`: inputs (examples, features) of which the networks are asked.
        - `losses`: loss and accuracy on all training and test examples.
        - `gradients`: the configurational temperature θ·∇U/N of every part, with the gradient on all training
          examples (see `diagnostics.configurational`; its mean over time is τ, where the law exp(-U/τ) can
          be normalised).
        - `histogram`: (low, high, bins), for how many parameters of each part lie in each bin.
        """
        chains, eye = self._ensemble.chains, self._eye
        if X is not None:
            self._set_inputs(X)
        died = chains.died.copy()
        eye.chains = eye.chains._replace(theta=chains.theta, noise=chains.noise, died=died)
        notes = eye.take_notes(
            [0], [losses], self._test, histogram=histogram or (0.0, 1.0, 0), last=1 if X is not None else 0,
            average=None if X is None else self._grid,
        )  # fmt: skip
        with self._one_thread():
            eye.work(0 if X is None else 1)(0, eye.groups)
        alive, here = chains.died < 0, EnsembleGroup(self._ensemble, self._chains)
        outputs = notes.average[:, 0, :, : self._plan.problem.outputs]
        outputs[~(alive & (died < 0))] = np.nan
        if self._plan.problem.task == "regression":
            outputs = outputs * self._plan.problem.target_scale + self._plan.problem.target_shift
        units = {} if histogram is None else EnsembleGroup(eye, self._chains).units()
        return Snapshot(
            self.step,
            alive,
            {name: np.where(alive, v, np.nan) for name, v in here.by_part(chains.temperature).items()},
            {name: np.where(alive, chains.xi[:, u], np.nan) for name, u in here.thermostats().items()},
            notes.loss[:, 0],
            notes.accuracy[:, 0],
            outputs,
            self._configurational() if gradients else {},
            {name: notes.histogram[:, 0, chosen].sum(axis=1) for name, chosen in units.items()},
        )

    def rewind(self) -> int:
        """Go back to a state from some moments ago, in which all chains were well, and return its step.

        The changes of coefficients since then are forgotten, and so are the records; those at that step stay.
        """
        state = self._kept[0]
        for there, then in zip(self._ensemble.chains, state.chains, strict=True):
            there[...] = then
        self._plan = state.plan
        self._ensemble.step = state.step
        self._ensemble = self._begin(self._ensemble, self.partition)
        self._kept = deque([state], KEPT)
        self._worked = 0.0
        self._records = [record for record in self._records if record.step <= state.step]
        return state.step

    def run(self) -> Run:
        """The run up to here, as `train` would have made it: it can be saved, resumed and replayed.

        Its records are those that were noted, and one of the last step.
        """
        plan, ensemble = self.plan, self._ensemble
        records = self._with(self.look()) if self.step else []
        notes = ensemble.take_notes([record.step for record in records], [True] * len(records))
        for place, record in enumerate(records):
            notes.loss[:, place], notes.accuracy[:, place] = record.loss, record.accuracy
            notes.temperature[:, place], notes.xi[:, place] = record.temperature, record.xi
        data = gather(plan, [EnsembleGroup(ensemble, self._chains)], 0, None)
        ensemble.take_notes((), ())
        return Run(plan, self.step, data)

    def _begin(self, before: Ensemble | None, partition: Partition) -> Ensemble:
        """An ensemble at the start, or where one is, with a partition that is the plan's from there on."""
        plan = self._plan
        settled = settle(partition, plan.network, plan.problem, plan.batch)
        stops = settled.draws is not None
        program = compile_program(partition, plan.layers, plan.rotated, stops, settled.parts)
        theta = start_of(plan, self._chains) if before is None else before.chains.theta
        # the closing letters of a step belong to the one before, and have its coefficients
        self._until = change + 1 if (change := grid.last_change_step(partition)) else 0
        return make_ensemble(plan, [program], settled, theta, self._data, self._chains, self._threads, before)

    def _with(self, seen: Snapshot) -> list[_Record]:
        """The records with one of what is seen now, if there is none."""
        if self._records and self._records[-1].step == seen.step:
            return self._records
        chains, alive = self._ensemble.chains, seen.alive[:, None]
        temperature, xi = (np.where(alive, values, np.nan) for values in (chains.temperature, chains.xi))
        return [*self._records, _Record(seen.step, seen.loss, seen.accuracy, temperature, xi)]

    def _one_thread(self) -> AbstractContextManager[object]:
        """Within, BLAS has one thread, where the network uses it: so it has in every run."""
        return one_blas_thread() if isinstance(self._ensemble.layout, Wide) else nullcontext()

    def _state(self) -> _State:
        copies: Any = (values.copy() for values in self._ensemble.chains)
        return _State(self.step, self._plan, ChainState(*copies))

    def _is_well(self) -> bool:
        """Whether no chain has diverged, or is about to."""
        chains = self._ensemble.chains
        alive = (chains.died < 0).all()
        return bool(alive and np.isfinite(chains.theta).all() and np.isfinite(chains.p).all())

    def _blind(self) -> Ensemble:
        """Chains of the same parts that do not move, by which the run is looked at."""
        plan = self._plan
        still = Partition({key: Frozen() for key in self.partition.methods}, 1.0, self.partition.posterior)
        program = compile_program(still, plan.layers)
        settled = settle(self.partition, plan.network, plan.problem, plan.batch)._replace(draws=None)
        eye = make_ensemble(
            replace(plan, batch=1), [program], settled, self._ensemble.chains.theta, self._data,
            self._chains, self._threads, self._ensemble,
        )  # fmt: skip
        eye.step = 0
        return eye

    def _set_inputs(self, X: ArrayLike) -> None:
        """Have the inputs as the engine takes them, if they are others than before."""
        raw, problem = np.atleast_2d(numbers("X", X, (1, 2))), self._plan.problem
        if raw.shape[1] != problem.inputs:
            raise ValueError(
                f"X must be (examples, {problem.inputs} features), got an array of shape {np.shape(X)}"
            )
        if not np.array_equal(raw, self._inputs):
            inputs = (raw - problem.shift) / problem.scale
            self._inputs = raw.copy()
            self._grid = tabulate(inputs[None], np.zeros((1, len(raw), 0)), np.dtype(self._plan.dtype))

    @np.errstate(over="ignore", invalid="ignore")  # of chains that diverge
    def _configurational(self) -> dict[str, Floats]:
        """θ·∇U/N of every part, by chain."""
        plan, chains = self._plan, self._ensemble.chains
        noise = chains.noise if chains.noise.shape[1] else None
        if self._descent is None:
            self._descent = make_descent(
                plan, chains.theta, self._data, self._chains, noise, self._threads, self._ensemble.layout
            )
        state = self._descent.chains
        state.theta[...], state.noise[...], state.died[...] = chains.theta, chains.noise, chains.died
        self._descent.step = 0
        with self._one_thread():
            gradients = descend(self._descent)
        theta, alive = chains.theta.astype(np.float64), chains.died < 0
        settled = plan.settled()
        if settled.draws is not None:
            gradients = gradients / np.exp(np.log(chains.noise).mean(axis=1, keepdims=True))
        virials = {}
        for part in settled.parts:
            total = np.zeros(len(theta))
            decay = at(part.method.prior, max(self.step - 1, 0))
            for span in part.tensors:
                inside = slice(span.start, span.stop)
                total += (theta[:, inside] * (gradients[:, inside] + decay * theta[:, inside])).sum(axis=1)
            virials[part.name] = np.where(alive, total / part.size, np.nan)
        return virials
