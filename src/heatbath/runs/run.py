"""Runs: what training returns, keeps, and goes on from."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from heatbath.checks import NON_NEGATIVE, real, whole
from heatbath.datasets import Problem
from heatbath.datasets.problem import numbers
from heatbath.runs.dataset import data_at, find_point
from heatbath.networks import Dense
from heatbath.runs import file as files
from heatbath.runs.plan import Methods, Plan
from heatbath.runs.simulation import Progress, Simulation
from heatbath.runs.storage import check_same, pack, unpack

if TYPE_CHECKING:
    import arviz
    import torch


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """What came out of training: the state of every chain at `step`, and what was noted on the way.

    `data` is all of it, labelled (xarray). By chain and record, with the step of each record: `loss` and
    `accuracy` by split, `temperature` by part, `xi` by thermostat and, if asked for, `weights` and
    `histogram`; by chain and sample: `samples`; by chain: the state, `theta`, `p`, `xi_now`, ..., and `died`,
    the step at which a chain diverged (-1 if it did not; it has NaN from there on). In a sweep the chains
    bear the values of their coefficients, in a comparison their method's name.
    """

    plan: Plan
    step: int
    data: xr.Dataset

    def __repr__(self) -> str:
        lost = np.count_nonzero(self.died >= 0)
        told = f"{len(self.theta)} chains, {self.step} steps"
        told += "" if self.finished else f" of {self.plan.steps}"
        return f"Run({self.problem.name}, {told}{f', {lost} diverged' if lost else ''})"

    @property
    def problem(self) -> Problem:
        """The data it was trained on."""
        return self.plan.problem

    @property
    def network(self) -> Dense:
        """The network."""
        return self.plan.network

    @property
    def partition(self) -> Methods:
        """The methods, with every change of coefficients on the way as a `schedules.Piecewise`."""
        return self.plan.partition

    @property
    def finished(self) -> bool:
        """Whether it has made all the steps that were planned."""
        return self.step == self.plan.steps

    @property
    def theta(self) -> NDArray[Any]:
        """The parameters of every chain now, (chains, parameters)."""
        return self.data["theta"].values

    @property
    def p(self) -> NDArray[Any]:
        """The momenta of every chain now, (chains, parameters)."""
        return self.data["p"].values

    @property
    def died(self) -> NDArray[np.int64]:
        """The step at which each chain diverged, -1 for those that did not."""
        return self.data["died"].values

    def accuracy(self, split: str = "test") -> xr.DataArray:
        """The share of data that is classified rightly, chain x record."""
        return self._split("accuracy", split)

    def loss(self, split: str = "test") -> xr.DataArray:
        """The mean loss, chain x record."""
        return self._split("loss", split)

    def temperature(self, part: str) -> xr.DataArray:
        """Kinetic temperature p·p/N where the thermostat reads it, of a part or of all that a rule made."""
        return self._of_part("temperature", "part", part)

    def xi(self, part: str) -> xr.DataArray:
        """The friction variable of an adaptive part, or of all thermostats that it or its rule has."""
        return self._of_part("xi", "thermostat", part)

    def weights(self, part: str | None = None) -> xr.DataArray:
        """The parameters at the records, chain x record x parameter, of a part or all."""
        if "weights" not in self.data:
            raise ValueError("the parameters were not kept at the records: train with weights=True")
        if part is None:
            return self.data["weights"]
        found = self.plan.parts()
        chosen = {p.tensors: p.name for p in found if part in (p.name, p.key)}
        if not chosen:
            raise ValueError(
                f"there is no part {part!r}: accepted are {', '.join(repr(p.name) for p in found)}"
            )
        if len(set(chosen.values())) < len(chosen):
            raise ValueError(f"{part!r} has other parameters in each method: select one first")
        return self.data["weights"].isel(parameter=[e for spans in chosen for span in spans for e in span])

    def predict(self, X: ArrayLike, samples: bool = False) -> NDArray[np.float64]:
        """What every chain's network says of new inputs, in the units of the user's data.

        The shape is (chains, data, outputs), of the networks as they are now, or (chains, samples, data,
        outputs). Outputs are the probability of the second class, of each class, or the values of a
        regression.
        """
        raw = np.atleast_2d(numbers("X", X, (1, 2)))
        if raw.shape[1] != self.problem.inputs:
            raise ValueError(
                f"X must be (data, {self.problem.inputs} features), got an array of shape {np.shape(X)}"
            )
        theta = self._samples().values if samples else self.theta
        x, outputs = (raw - self.problem.shift) / self.problem.scale, self.problem.outputs
        said = np.empty((*theta.shape[:-1], len(x), outputs))
        for place in np.ndindex(theta.shape[:-1]):  # one network at a time, to need little memory
            said[place] = self.problem.decode(self.network.forward(theta[place], x, outputs))
        return said

    def averages(self) -> xr.Dataset:
        """The running `mean` and `variance` of the outputs over all samples, at the inputs of `average`.

        By chain, point and output, in the units of `predict`; NaN for a chain that diverged.
        """
        if "average" not in self.data:
            raise ValueError("nothing was averaged: train with average=X, the inputs to average at")
        count = self.plan.samples_by(self.step)
        scale, shift = self.problem.target_scale, self.problem.target_shift
        regression = self.problem.task == "regression"
        mean, variance = self.data["average"], self.data["deviations"] / max(count, 1)
        if regression:
            mean, variance = mean * scale + shift, variance * scale**2
        lost = (self.data["died"] >= 0) | (count == 0)
        return xr.Dataset({"mean": mean.where(~lost), "variance": variance.where(~lost)})

    def select(self, **labels: object) -> Run:
        """The run of one point of a sweep or one method of a comparison, as in `run.select(tau=1e-4)`."""
        place = find_point(self.plan, self.data, labels)
        plan = self.plan.at_point(place)
        return Run(plan, self.step, data_at(self.plan, self.data, place))

    def to_torch(self, chain: int = 0) -> torch.nn.Sequential:
        """A chain's network as a torch module; it takes standardised inputs and ends in logits."""
        chain = whole("chain", chain, low=0, high=len(self.theta))
        return self.network.to_torch(self.theta[chain], self.problem.inputs, self.problem.outputs)

    def to_arviz(self, X: ArrayLike | None = None, parameters: bool = False) -> arviz.InferenceData:
        """The samples for ArviZ: what the networks say of X (the test data by default), chain x draw x point.

        Weights can be exchanged and rescaled without changing the function, so R-hat and ESS mean something
        for the function only; with `parameters` the parameters are there too. Chains must sample one law: of
        a sweep, `select` a point first. Needs the extra `heatbath[arviz]`.
        """
        try:
            with warnings.catch_warnings():  # once a day it announces its next version
                warnings.simplefilter("ignore", FutureWarning)
                import arviz
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                f"to_arviz needs ArviZ, an extra: pip install 'heatbath[arviz]' ({error})"
            ) from None
        if len(self.plan.points) > 1:
            raise ValueError(f"these chains sample different laws: select one of {self.plan.points[0][0]}")
        draws = np.unique(self.data["draw"])
        if len(draws) > 1:
            raise ValueError(
                f"the chains have {len(draws)} different data sets, so they sample different laws"
            )
        alive = self.died < 0
        if X is None and not self.problem.X_test.size:
            raise ValueError("there are no test data: say X=, the inputs whose predictions are wanted")
        if X is None:
            X = self.problem.X_test[draws[0]] * self.problem.scale + self.problem.shift
        outputs = list(self.problem.targets[1:] if self.problem.task == "binary" else self.problem.targets)
        posterior = {"prediction": self.predict(X, samples=True)[alive]}
        dims = {"prediction": ["point", "output"]}
        if parameters:
            posterior["theta"], dims["theta"] = self._samples().values[alive], ["parameter"]
        return arviz.from_dict(  # type: ignore[no-any-return]
            posterior=posterior,
            dims=dims,
            coords={"output": outputs, "draw": self.data["sample_step"].values},
            attrs={"inference_library": "heatbath", "inference_library_version": version("heatbath")},
        )

    def to_xarray(self) -> xr.Dataset:
        """Everything that a file has: `data`, the user's own arrays, and the settings as text in `attrs`."""
        return pack(self.plan, self.step, self.data, repr(self))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one NetCDF file, whole or not at all; `load` reads it, and so does any reader.

        A run file that was there is replaced, any other file is left alone. Built-in data are not in it, only
        the recipe and a checksum; the user's own are.
        """
        files.write(path, self.to_xarray())

    def resume(
        self,
        steps: int | None = None,
        partition: Methods | None = None,
        *,
        record: int | Sequence[int] | None = None,
        threads: int | None = None,
        progress: Callable[[Progress], None] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        every: float = 60.0,
    ) -> Run:
        """Go on, bit for bit as if it had never stopped, and return the longer run.

        - `steps`: how many more; None for those that are left of an interrupted run.
        - `partition`: other coefficients for the same methods, from here on; their schedules count from the
          start of the run. The change becomes part of `partition`, with its step.
        - `record`: as in `train` (a number of records is for these steps); None for the same as before.
        - `checkpoint`: as in `train`. It may have this run at an earlier step, or at a later one of the same
          call, which then goes on from there.
        """
        if steps is None and self.finished:
            raise ValueError(f"all {self.step} steps are made: say how many more, such as resume(steps=1000)")
        plan, before = self.plan, self
        if steps is not None or record is not None:
            plan = plan.extended(self.step, plan.steps - self.step if steps is None else steps, record)
        if partition is not None:
            plan = plan.with_change(partition, self.step)
        if checkpoint is not None and os.path.exists(checkpoint):
            found = load(checkpoint, self.problem)
            if found.step > self.step:  # this very call, interrupted: go on from there
                check_same(checkpoint, found.plan, plan)
                before = found
            else:  # this run, at an earlier step
                check_same(checkpoint, found.plan, plan, found.step)
        return simulate(plan, before, threads, progress, checkpoint, every)

    def replay(self, threads: int | None = None, progress: Callable[[Progress], None] | None = None) -> Run:
        """The same run again, all its planned steps from the start, with every change of coefficients."""
        again = simulate(self.plan, None, threads, progress, None, 60.0)
        names = {axis: self.data[axis] for axis in self.plan.axes}  # as they were before any change
        return Run(again.plan, again.step, again.data.assign_coords(names))

    def _samples(self) -> xr.DataArray:
        if "samples" not in self.data or not self.data.sizes["sample"]:
            raise ValueError("no samples were kept: train with samples=N, and long enough")
        return self.data["samples"]

    def _split(self, name: str, split: str) -> xr.DataArray:
        if split not in ("train", "test"):
            raise ValueError(f"split must be 'train' or 'test', got {split!r}")
        return self.data[name].sel(split=split)

    def _of_part(self, name: str, dimension: str, part: str) -> xr.DataArray:
        """The trace of the part with this name, or of all the parts whose key it is."""
        if name not in self.data:
            raise ValueError(f"no {name} of {part!r}: no part of this run has one")
        trace = self.data[name]
        labels = trace[dimension].values.tolist()
        owners = {p.name for p in self.plan.parts() if part in (p.name, p.key)}
        own = [label for label in labels if label.partition("/")[0] in owners]
        if not own:
            raise ValueError(
                f"no {name} of {part!r}: accepted are {', '.join(map(repr, labels))} and their rules"
            )
        return trace.sel({dimension: own[0] if len(own) == 1 else own})


def load(path: str | os.PathLike[str], problem: Problem | None = None) -> Run:
    """The run in a file that `save` or a checkpoint wrote.

    Built-in data are made again from their recipe; pass `problem` where that is not possible here (MNIST in
    another folder, say). It must be the run's own, by its checksum. Nothing in the file is executed.
    """
    if not isinstance(problem, Problem | None):
        raise TypeError(f"problem must be a Problem or None, got {problem!r}")
    return Run(*unpack(path, files.read(path), problem))


def simulate(
    plan: Plan,
    before: Run | None,
    threads: int | None,
    progress: Callable[[Progress], None] | None,
    checkpoint: str | os.PathLike[str] | None,
    every: float,
) -> Run:
    """Carry out a plan, from its start or from a run that stands before its end."""
    every = real("every", every, NON_NEGATIVE)
    if not (progress is None or callable(progress)):
        raise TypeError(f"progress must be a function of a Progress, got {progress!r}")
    if before and before.step == plan.steps:
        return before
    step, data = (before.step, before.data) if before else (0, None)
    plan.check_memory(1 + (before is not None) + (checkpoint is not None))  # copies on the way
    simulation = Simulation(plan, step, data, threads)

    def now() -> Run:
        return Run(plan, simulation.step, simulation.dataset())

    def save() -> None:
        try:
            now().save(checkpoint)  # type: ignore[arg-type]
        except (OSError, MemoryError) as error:
            warnings.warn(
                f"the checkpoint at step {simulation.step} failed, and the run goes on: {error}",
                RuntimeWarning,
                stacklevel=2,
            )

    if checkpoint is not None:
        now().save(checkpoint)  # an error now is better than one in an hour
    done = simulation.run(progress, save if checkpoint is not None else None, every)
    if checkpoint is not None:
        save()
    simulation.report_deaths()
    run = now()
    if not done:
        told = f"interrupted at step {run.step} of {plan.steps}: resume() goes on from there"
        warnings.warn(told, RuntimeWarning, stacklevel=3)
    return run
