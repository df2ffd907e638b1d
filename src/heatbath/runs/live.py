"""Advance a run by hand, and change it and look at it on the way.

A second ensemble of chains that do not move, the observer, has the parameters of the run whenever it is
looked at: so losses, outputs and histograms are computed by compiled code, and nothing moves.
"""

from __future__ import annotations

import time
from collections import deque
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from heatbath._internal.checks import POSITIVE, real, whole
from heatbath.datasets import Problem
from heatbath.datasets.problem import Floats
from heatbath.engine.ensemble import Ensemble
from heatbath.engine.layouts import Wide
from heatbath.engine.loop import ChainState
from heatbath.engine.program import compile_program
from heatbath.engine.records import Notes
from heatbath.methods import Frozen
from heatbath.methods.partition import Part, Partition
from heatbath.methods.schedules import MOST_STEPS, at
from heatbath.models.dense import MLP
from heatbath.models.likelihood import settle
from heatbath.runs import grid, simulation
from heatbath.runs.continuation import change_plan
from heatbath.runs.dataset import EnsembleGroup, gather
from heatbath.runs.plan import Batch, Plan, RunSettings, make_plan
from heatbath.runs.predictions import standardised_inputs
from heatbath.runs.run import Run

SAVING_INTERVAL = 0.5  # seconds of work between two states that are saved to go back to
SAVED_STATES = 4  # the oldest is then some two seconds before a chain diverges, where it is still well
PACE_MEMORY = 0.7  # weight of the earlier calls in the mean time of a step


@dataclass(frozen=True, eq=False)
class Snapshot:
    """What `LiveRun.look` sees; what was not asked for is NaN, or empty.

    Attributes
    ----------
    step : int
        The number of steps made.
    alive : ndarray
        False for chains that diverged, (chain,).
    temperature : dict
        The kinetic temperature by part, (chain,).
    xi : dict
        ξ by thermostat, (chain,).
    loss, accuracy : ndarray
        Over all training and all test examples, (chain, split).
    outputs : ndarray
        The outputs of the networks at the inputs, in the units of `Run.outputs`, (chain, example, output).
    configurational : dict
        The configurational temperature by part, (chain,).
    histogram : dict
        The numbers of parameters in each bin by part, (chain, bin).

    Examples
    --------
    >>> import heatbath as hb
    >>> problem = hb.datasets.spirals(n_train=50, n_test=20)
    >>> live = hb.LiveRun(problem, hb.MLP((5,)), hb.AdLaLa(), chains=2)
    >>> live.advance(10)
    >>> snapshot = live.look()
    >>> snapshot.step, snapshot.alive.tolist(), snapshot.loss.shape
    (10, [True, True], (2, 2))
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
    """What is recorded at a step: loss and accuracy (chain, split), temperature and ξ (chain, unit)."""

    step: int
    loss: Floats
    accuracy: Floats
    temperature: Floats
    xi: Floats


class _SavedState(NamedTuple):
    """Everything from which a run continues."""

    step: int
    plan: Plan
    chains: ChainState


class LiveRun:
    """A run that is advanced by hand, and can be changed and looked at between its steps.

    `run()` is the run that `train` would have made with these arguments, bit for bit, with every change of
    coefficients in its partition.

    A chain that diverges is stopped, while the other chains continue: see `died`, `diverged_part` and
    `rewind`. Only one thread at a time may use a LiveRun.

    Parameters
    ----------
    problem, network, partition, batch, chains
        As in `train`. Coefficients may be schedules, but no lists.
    seed, shuffled, rotated, momenta, start, dtype
        As in `train`.
    threads
        The number of threads; None for HEATBATH_THREADS, or all cores.

    Examples
    --------
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

    def __init__(  # noqa: PLR0913 # options by keyword
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
        """Make the plan, the ensemble of the chains at their start, and the observer.

        The arguments are those of `train`. The plan has one step until the property `plan` is asked for, and
        the observer is an ensemble that does not move, for snapshots.
        """
        settings = RunSettings(
            seed=seed, record=1, shuffled=shuffled, rotated=rotated, momenta=momenta, start=start, dtype=dtype
        )
        steps = 1
        plan = make_plan(problem, network, partition, steps, batch, chains, settings, call="train")
        self._plan = plan
        self._table = simulation.training_table(plan)
        self._test_table = simulation.test_table(plan)
        self._threads = threads
        self._chains = np.arange(plan.chains)
        self._records: list[_Record] = []
        self._seconds_per_step = 0.0
        self._inputs = np.empty((0, plan.problem.inputs))  # of the latest `look`, standardised
        self._inputs_table = simulation.inputs_table(self._inputs, plan)

        self._ensemble = self._make_ensemble(None, partition)
        self._saved: deque[_SavedState] = deque([self._state()], SAVED_STATES)
        self._seconds_since_saving = 0.0
        self._observer = self._make_observer()
        self._descent: Ensemble | None = None

    def __repr__(self) -> str:
        return f"LiveRun at step {self.step:,} of {self._plan!r}"

    @property
    def step(self) -> int:
        """Number of steps made."""
        return self._ensemble.step

    @property
    def partition(self) -> Partition:
        """Methods, with every change of coefficients so far as a `schedules.Piecewise`."""
        assert isinstance(self._plan.partition, Partition)
        return self._plan.partition

    @property
    def plan(self) -> Plan:
        """Plan of the run so far, as `train` makes it, with the records that were made."""
        steps = [record.step for record in self._records if record.step < self.step]
        return replace(self._plan, steps=max(self.step, 1), record=tuple(steps) or 1, records=(), losses=())

    def parts(self) -> list[Part]:
        """Return the parts that the methods make of the network."""
        return self._plan.parts()

    @property
    def start(self) -> NDArray[np.float64]:
        """Parameters of every chain at the start, (chains, parameters)."""
        return simulation.start_of(self._plan, self._chains)

    @property
    def theta(self) -> NDArray[Any]:
        """Current parameters of every chain, (chains, parameters), as a copy."""
        return self._ensemble.chains.theta.copy()

    @property
    def died(self) -> NDArray[np.int64]:
        """Step at which each chain diverged, -1 for those that did not."""
        return self._ensemble.chains.died.copy()

    def diverged_part(self, chain: int) -> str:
        """Return the part of a stopped chain that is not finite, or whose parameters are largest."""
        return self._ensemble.diverged_part(whole("chain", chain, low=0, high=len(self._chains)))

    def prepare(self) -> None:
        """Compile what `advance` and `look` need, if that was never done on this computer."""
        self._ensemble.prepare()

    def advance(self, steps: int) -> None:
        """Make this number of steps.

        Chains that diverge stop; when none is left, nothing moves any more.
        """
        steps = whole("steps", steps, low=0, high=MOST_STEPS - self.step)
        if steps and self._seconds_since_saving >= SAVING_INTERVAL and self._is_finite():
            self._saved.append(self._state())
            self._seconds_since_saving = 0.0

        begin = time.perf_counter()
        with self._one_blas_thread():
            self._advance_pieces(steps)
        duration = time.perf_counter() - begin
        if steps:
            self._learn_pace(duration / steps)
        self._seconds_since_saving += duration

    def _advance_pieces(self, steps: int) -> None:
        """Make steps, from the last change of a coefficient on with a simpler ensemble.

        That ensemble has constants in place of piecewise schedules, which takes less time per step.
        """
        end = self.step + steps
        while self.step < end:
            if self._simpler_from and self.step >= self._simpler_from:
                latest = grid.latest_coefficients(self.partition)
                self._ensemble = self._make_ensemble(self._ensemble, latest)
            piece_end = min(end, self._simpler_from or end)
            self._ensemble.advance(piece_end - self.step)

    def _learn_pace(self, seconds_per_step: float) -> None:
        """Update the mean time of a step, a moving average over the calls of `advance`.

        A faster call replaces it at once, as earlier ones may have compiled.
        """
        earlier = self._seconds_per_step or seconds_per_step
        mean = PACE_MEMORY * earlier + (1 - PACE_MEMORY) * seconds_per_step
        self._seconds_per_step = min(seconds_per_step, mean)

    def advance_for(self, seconds: float, most: int = MOST_STEPS) -> int:
        """Make steps for about this number of seconds, and return their number, at least one.

        The number of steps in a call of `advance` follows from the mean time of earlier steps.

        Parameters
        ----------
        seconds
            The time.
        most
            The largest number of steps.
        """
        seconds_left = real("seconds", seconds, POSITIVE)
        end = time.perf_counter() + seconds_left
        most = whole("most", most, low=1)
        steps = 0
        while steps < most and (steps == 0 or seconds_left > self._seconds_per_step / 2):
            next_steps = 1  # as long as the pace is unknown
            if self._seconds_per_step:
                next_steps = max(1, min(int(seconds_left / self._seconds_per_step), most - steps))
            self.advance(next_steps)
            steps += next_steps
            seconds_left = end - time.perf_counter()
        return steps

    def change(self, partition: Partition) -> None:
        """Change the coefficients from the next step on, as `Run.resume` does.

        Schedules count from the start of the run. (Where θ is seen at the kick, in the middle of a word, the
        step that has begun ends with the coefficients it began with.)

        Parameters
        ----------
        partition
            The same methods with other coefficients.
        """
        if self.step == 0:  # the run starts with these coefficients
            changed = grid.change_coefficients(self.partition, partition, 0)
            self._plan = replace(self._plan, partition=changed)
            self._ensemble = self._make_ensemble(None, changed)
            self._saved = deque([self._state()], SAVED_STATES)
            return

        self._plan = change_plan(self._plan, partition, self.step)
        self._ensemble = self._make_ensemble(self._ensemble, self.partition)
        if self._saved[-1].step == self.step:  # after `rewind`: the saved state changes, too
            self._saved[-1] = self._saved[-1]._replace(plan=self._plan)

    def note(self, *, gradients: bool = False) -> Snapshot:
        """Look at losses, temperatures and ξ, and make them a record of `run()`."""
        snapshot = self.look(gradients=gradients)
        self._records = self._records_with(snapshot)
        return snapshot

    def look(
        self,
        X: ArrayLike | None = None,
        *,
        losses: bool = True,
        gradients: bool = False,
        histogram: tuple[float, float, int] | None = None,
    ) -> Snapshot:
        """Return a snapshot of the run, with the results that are asked for; the chains do not move.

        Parameters
        ----------
        X
            Inputs (examples, features) at which the outputs of the networks are computed; None for none.
        losses
            True for loss and accuracy on all training and test examples.
        gradients
            True for the configurational temperature θ·∇U/N of every part, with the gradient on all training
            examples (see `diagnostics.configurational`; its mean over time is τ, where the law exp(-U/τ) can
            be normalised).
        histogram
            (low, high, bins), for the number of parameters of each part in each bin.
        """
        if X is not None:
            self._set_inputs(X)
        notes = self._observe(losses, histogram, with_outputs=X is not None)

        chains = self._ensemble.chains
        group = EnsembleGroup(self._ensemble, self._chains)
        alive = chains.died < 0
        current = group.by_part(chains.temperature)
        temperature = {part: np.where(alive, of_chains, np.nan) for part, of_chains in current.items()}
        unit_of = group.thermostats()
        xi = {name: np.where(alive, chains.xi[:, unit], np.nan) for name, unit in unit_of.items()}

        is_finite = alive & (self._observer.chains.died < 0)  # outputs may overflow where parameters do not
        outputs = self._in_user_units(notes.average[:, 0, :, : self._plan.problem.outputs])
        configurational = self._configurational() if gradients else {}
        counts = {} if histogram is None else self._histograms(notes)
        return Snapshot(
            step=self.step,
            alive=alive,
            temperature=temperature,
            xi=xi,
            loss=notes.loss[:, 0],
            accuracy=notes.accuracy[:, 0],
            outputs=np.where(is_finite[:, None, None], outputs, np.nan),
            configurational=configurational,
            histogram=counts,
        )

    def _histograms(self, notes: Notes) -> dict[str, NDArray[np.int64]]:
        """Return the histograms in what the observer has recorded, by part, (chain, bin)."""
        counts = notes.histogram[:, 0]
        units = EnsembleGroup(self._observer, self._chains).units()
        return {part: counts[:, units_of_part].sum(axis=1) for part, units_of_part in units.items()}

    def _observe(self, losses: bool, histogram: tuple[float, float, int] | None, with_outputs: bool) -> Notes:
        """Record the state of the run with the observer, an ensemble that doesn't move; return its notes.

        Parameters
        ----------
        losses
            True to compute loss and accuracy.
        histogram
            (low, high, bins) to count parameters in bins; None not to.
        with_outputs
            True to compute the outputs at the inputs that `_set_inputs` has set, as the mean of one sample.
        """
        observer = self._observer
        chains = self._ensemble.chains
        died = chains.died.copy()  # the observer's own, as it stops a chain whose outputs overflow
        observer.chains = observer.chains._replace(theta=chains.theta, noise=chains.noise, died=died)

        sample_count = 1 if with_outputs else 0
        inputs = self._inputs_table if with_outputs else None
        bins = histogram or simulation.NO_HISTOGRAM
        # The notes are arrays, which fill while the observer works
        notes = observer.take_notes(
            [0], [losses], self._test_table, histogram=bins, last=sample_count, average=inputs
        )  # fmt: skip
        work_on_groups = observer.work(sample_count)
        with self._one_blas_thread():
            work_on_groups(0, observer.groups)
        return notes

    def _in_user_units(self, outputs: Floats) -> Floats:
        """Return outputs of the networks in the units of the user's data."""
        problem = self._plan.problem
        if problem.task != "regression":
            return outputs
        return outputs * problem.target_scale + problem.target_shift

    def rewind(self) -> int:
        """Go back to a state from some moments ago, in which all chains were finite, and return its step.

        The changes of coefficients since then are forgotten, and so are the records; those at that step stay.
        """
        state = self._saved[0]
        for array, saved_array in zip(self._ensemble.chains, state.chains, strict=True):
            array[...] = saved_array
        self._plan = state.plan
        self._ensemble.step = state.step
        self._ensemble = self._make_ensemble(self._ensemble, self.partition)
        self._saved = deque([state], SAVED_STATES)
        self._seconds_since_saving = 0.0
        self._records = [record for record in self._records if record.step <= state.step]
        return state.step

    def run(self) -> Run:
        """Return the run so far, as `train` would have made it: it can be saved, resumed and replayed.

        Its records are those that `note` made, and one of the last step.
        """
        plan = self.plan
        ensemble = self._ensemble
        records = self._records_with(self.look()) if self.step else []
        notes = ensemble.take_notes([record.step for record in records], [True] * len(records))
        for index, record in enumerate(records):
            notes.loss[:, index] = record.loss
            notes.accuracy[:, index] = record.accuracy
            notes.temperature[:, index] = record.temperature
            notes.xi[:, index] = record.xi

        data = gather(plan, [EnsembleGroup(ensemble, self._chains)], 0, None)
        ensemble.take_notes((), ())
        return Run(plan, self.step, data)

    def _make_ensemble(self, previous: Ensemble | None, partition: Partition) -> Ensemble:
        """Return an ensemble of all chains with the coefficients of a partition, and set `_simpler_from`.

        From that step on no coefficient changes any more, so that an ensemble without schedules will do. It
        is 0 if none changes at all.

        Parameters
        ----------
        previous
            The ensemble that has the chains now; None for their start.
        partition
            The partition of the plan, or the part of it that holds from here on.
        """
        plan = self._plan
        settled = settle(partition, plan.network, plan.problem, plan.batch)
        draws_noise = settled.draws is not None
        program = compile_program(partition, plan.layers, plan.rotated, draws_noise, settled.parts)
        theta = simulation.start_of(plan, self._chains) if previous is None else previous.chains.theta

        last_change = grid.last_change_step(partition)
        # One step later, since the first letters of a step still close the step before, with its coefficients
        self._simpler_from = last_change + 1 if last_change else 0
        return simulation.make_ensemble(
            plan, [program], settled, theta, self._table, self._chains, self._threads, previous
        )

    def _make_observer(self) -> Ensemble:
        """Return an ensemble of the same parts that does not move, by which the run is looked at."""
        plan = self._plan
        still = Partition({key: Frozen() for key in self.partition.methods}, 1.0, self.partition.posterior)
        program = compile_program(still, plan.layers)
        settled = settle(self.partition, plan.network, plan.problem, plan.batch)._replace(draws=None)
        observer = simulation.make_ensemble(
            replace(plan, batch=1), [program], settled, self._ensemble.chains.theta, self._table,
            self._chains, self._threads, self._ensemble,
        )  # fmt: skip
        observer.step = 0
        return observer

    def _records_with(self, snapshot: Snapshot) -> list[_Record]:
        """Return the records with one of a snapshot, unless there is one at its step."""
        if self._records and self._records[-1].step == snapshot.step:
            return self._records
        chains = self._ensemble.chains
        is_alive = snapshot.alive[:, None]
        temperature = np.where(is_alive, chains.temperature, np.nan)
        xi = np.where(is_alive, chains.xi, np.nan)
        return [*self._records, _Record(snapshot.step, snapshot.loss, snapshot.accuracy, temperature, xi)]

    def _one_blas_thread(self) -> AbstractContextManager[object]:
        """Return a context in which BLAS has one thread, as in every run, if the network uses it."""
        return simulation.one_blas_thread_if(isinstance(self._ensemble.layout, Wide))

    def _state(self) -> _SavedState:
        """Return a copy of everything from which the run continues."""
        copies = ChainState._make(values.copy() for values in self._ensemble.chains)
        return _SavedState(self.step, self._plan, copies)

    def _is_finite(self) -> bool:
        """Return True if no chain has diverged, or has values that are not finite."""
        chains = self._ensemble.chains
        alive = (chains.died < 0).all()
        return bool(alive and np.isfinite(chains.theta).all() and np.isfinite(chains.p).all())

    def _set_inputs(self, X: ArrayLike) -> None:
        """Set the inputs that are looked at, unless they are the same as before."""
        x = standardised_inputs(self._plan.problem, X)
        if not np.array_equal(x, self._inputs):
            self._inputs = x
            self._inputs_table = simulation.inputs_table(x, self._plan)

    @np.errstate(over="ignore", invalid="ignore")  # in chains that diverge
    def _configurational(self) -> dict[str, Floats]:
        """Return the configurational temperature θ·∇U/N of every part, (chain,), NaN where a chain diverged.

        ∇U is the gradient of the loss on all training examples plus that of the prior, decay·θ. N is the
        number of parameters of the part.
        """
        chains = self._ensemble.chains
        settled = self._plan.settled
        theta = chains.theta.astype(np.float64)
        alive = chains.died < 0
        gradients = self._full_gradients()
        if settled.draws is not None:  # the loss is relative to the geometric mean of the variances
            gradients = gradients / np.exp(np.log(chains.noise).mean(axis=1, keepdims=True))

        latest_step = max(self.step - 1, 0)
        temperatures = {}
        for part in settled.parts:
            virial = np.zeros(len(theta))  # θ·∇U
            decay = at(part.method.prior, latest_step)
            for tensor in part.tensors:
                theta_of_tensor = theta[:, tensor.start : tensor.stop]
                gradients_of_tensor = gradients[:, tensor.start : tensor.stop]
                virial += (theta_of_tensor * (gradients_of_tensor + decay * theta_of_tensor)).sum(axis=1)
            temperatures[part.name] = np.where(alive, virial / part.size, np.nan)
        return temperatures

    def _full_gradients(self) -> NDArray[np.float64]:
        """Return the gradients of the loss on all training examples, (chains, parameters).

        The ensemble that measures them is made with the first call. Later ones reset its state to that of
        the run, as every measurement moves its parameters by a step.
        """
        chains = self._ensemble.chains
        if self._descent is None:
            noise = chains.noise if chains.noise.shape[1] else None
            self._descent = simulation.make_descent(
                self._plan, chains.theta, self._table, self._chains, noise, self._threads,
                self._ensemble.layout,
            )  # fmt: skip
        state = self._descent.chains
        state.theta[...] = chains.theta
        state.noise[...] = chains.noise
        state.died[...] = chains.died
        self._descent.step = 0
        with self._one_blas_thread():
            return simulation.descend(self._descent)
