"""Runs: what training returns, with its data, its predictions, and ways to save and continue it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from heatbath._internal.arviz import for_arviz
from heatbath._internal.checks import choice, whole
from heatbath._internal.warnings import warn
from heatbath.datasets import Problem
from heatbath.datasets.problem import Floats
from heatbath.datasets.tasks import TASKS
from heatbath.models.dense import MLP
from heatbath.prediction import Calibration, Mixture, Prediction
from heatbath.runs import continuation, file, predictions
from heatbath.runs.adaptation_record import Found
from heatbath.runs.dataset import check_memory, find_point, select_chains
from heatbath.runs.distributed.pools import chosen_pool
from heatbath.runs.distributed.store import PLAN, Store
from heatbath.runs.grid import Methods
from heatbath.runs.plan import Plan, as_lines
from heatbath.runs.progress import Progress
from heatbath.runs.to_arviz import make_groups, samples_of_run

if TYPE_CHECKING:
    import arviz
    import torch

MOST_LINES = 8  # points whose losses `repr` shows one by one


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """What training returns: the state of every chain at `step`, and everything recorded on the way.

    Attributes
    ----------
    plan : Plan
        Everything that decides what the run computes.
    step : int
        The number of steps made.
    data : xarray.Dataset
        All results, labelled. By chain and record, with the step of each record: `loss` and `accuracy` by
        split, `temperature` by part, `xi` by thermostat and, if asked for, `weights` and `histogram`. By
        chain and sample: `samples`. By chain: the state, `theta`, `p`, `xi_now`, ..., and `died`, the step at
        which a chain diverged (-1 if it did not; from there on its values are NaN). In a sweep the chains are
        labelled by the values of their coefficients, in a comparison by the name of their method.
    former : str
        The earlier version of heatbath that began the run, if it rounded otherwise; else "".

    Examples
    --------
    >>> import heatbath as hb
    >>> problem = hb.datasets.spirals(n_train=50, n_test=20)
    >>> run = hb.train(problem, hb.MLP((5,)), hb.AdLaLa(), steps=100, chains=2, record=4)
    >>> run.step, run.data["temperature"].sizes["record"], run.predict([[0.5, 1.0]]).mean.shape
    (100, 4, (1, 1))
    """

    plan: Plan
    step: int
    data: xr.Dataset
    former: str = ""

    def __repr__(self) -> str:
        plan = self.plan
        position = f"step {self.step:,}" if self.finished else f"step {self.step:,} of {plan.steps:,}"
        lines = plan.summary()
        diverged = np.count_nonzero(self.died >= 0)
        if diverged:
            lines["chains"] += f", {diverged} diverged"
        lines |= self._describe_last_record()
        return as_lines(f"Run: {position}, batch {plan.batch}, seed {plan.seed}, {plan.dtype}", lines)

    def _describe_last_record(self) -> dict[str, str]:
        """Describe the latest loss and accuracy in words, by "test", or by "train" without test examples.

        They are means over the chains that have not diverged: a line for each point of a small grid, or else
        a single line. Empty if no record has a loss.
        """
        split = "test" if self.problem.X_test.shape[1] else "train"
        has_loss = np.isfinite(self.loss(split).values).any(axis=0)
        if not has_loss.any():
            return {}

        record = self.data.sel(split=split).isel(record=np.flatnonzero(has_loss)[-1])
        has_all_points = self.data.sizes["chain"] == self.plan.total
        if has_all_points and 1 < len(self.plan.points) <= MOST_LINES:
            text = self._describe_points(record)
        else:
            text = _describe_means(record)
        return {split: f"{text} (at step {int(record['step']):,}, mean over chains)"}

    def _describe_points(self, record: xr.Dataset) -> str:
        """Describe loss and accuracy of a record in words, a line for each point of the grid."""
        plan = self.plan
        lines = []
        for first in range(0, plan.total, plan.chains):
            of_point = record.isel(chain=slice(first, first + plan.chains))
            label = ", ".join(str(of_point[axis].values[0]) for axis in plan.axes)
            lines.append(f"{label}: {_describe_means(of_point)}")
        return "\n".join(lines)

    @property
    def problem(self) -> Problem:
        """Data that the run was trained on."""
        return self.plan.problem

    @property
    def network(self) -> MLP:
        """Network of every chain."""
        return self.plan.network

    @property
    def partition(self) -> Methods:
        """Methods, with every change of coefficients in the run as a `schedules.Piecewise`."""
        return self.plan.partition

    @property
    def found(self) -> Found | None:
        """Record of how the stepsize and the length were found; None if `train` was given them."""
        return self.plan.found

    @property
    def finished(self) -> bool:
        """True once all planned steps are made."""
        return self.step == self.plan.steps

    @property
    def theta(self) -> NDArray[Any]:
        """Current parameters of every chain, (chains, parameters)."""
        return self.data["theta"].values

    @property
    def p(self) -> NDArray[Any]:
        """Current momenta of every chain, (chains, parameters)."""
        return self.data["p"].values

    @property
    def died(self) -> NDArray[np.int64]:
        """Step at which each chain diverged, -1 for those that did not."""
        return self.data["died"].values

    def accuracy(self, split: str = "test") -> xr.DataArray:
        """Return the share of examples classified correctly, chain x record."""
        return self._of_split("accuracy", split)

    def loss(self, split: str = "test") -> xr.DataArray:
        """Return the mean loss, chain x record."""
        return self._of_split("loss", split)

    def temperature(self, part: str) -> xr.DataArray:
        """Return the kinetic temperature p·p/N at the point of a step where a thermostat reads it.

        `part` is the name of a part, or of a rule such as "hidden" for all parts that it made.
        """
        return self._of_part("temperature", "part", part)

    def xi(self, part: str) -> xr.DataArray:
        """Return the friction variable ξ of an adaptive part, or of all thermostats of a part or rule."""
        return self._of_part("xi", "thermostat", part)

    def weights(self, part: str | None = None) -> xr.DataArray:
        """Return the parameters at the records, chain x record x parameter.

        Parameters
        ----------
        part
            The name of a part, or the key that several parts have in the partition; None for all parameters.

        Raises
        ------
        ValueError
            If the parameters were not kept, there is no such part, or it differs between methods.
        """
        if "weights" not in self.data:
            raise ValueError("the parameters were not kept at the records: train with weights=True")
        if part is None:
            return self.data["weights"]

        parts = self.plan.parts()
        matching = [candidate for candidate in parts if part in (candidate.name, candidate.key)]
        if not matching:
            accepted = ", ".join(repr(candidate.name) for candidate in parts)
            raise ValueError(f"there is no part {part!r}: accepted are {accepted}")
        name_of_tensors = {candidate.tensors: candidate.name for candidate in matching}
        if len(set(name_of_tensors.values())) < len(name_of_tensors):
            raise ValueError(f"{part!r} has other parameters in each method: select one method first")

        indices: list[int] = []
        for tensors in name_of_tensors:
            for tensor in tensors:
                indices += tensor
        return self.data["weights"].isel(parameter=indices)

    def predict(
        self,
        X: ArrayLike | None = None,
        *,
        over: Literal["samples", "chains", "steps"] | None = None,
        latest: int | None = None,
    ) -> Prediction[Floats]:
        """Return what the networks predict together, in the units of the user's data.

        Chains that diverged do not count. Memory does not grow with the number of networks. The outputs of
        each single network are `outputs(X)`.

        Parameters
        ----------
        X
            Inputs (examples, features).
        over
            "samples": average over all samples of all chains (`train(..., samples=N)`). "chains": over the
            networks of the chains as they are now. "steps": over all that `train(..., average=X,
            burn_in=steps - k)` averaged, and over its chains, at the X given there; the entropy is not split,
            as only means were kept. None: over the samples if any were kept, otherwise over the chains.
        latest
            The number of latest samples of each chain to average over; None for all.

        Returns
        -------
        Prediction
            Mean, standard deviation, entropy and intervals for every example.

        Raises
        ------
        ValueError
            If the chains have different methods or coefficients (`select` a point first), if all of them
            diverged, or if there are no samples.
        TypeError
            If X is missing, or given with `over="steps"`.

        Examples
        --------
        >>> import heatbath as hb
        >>> problem = hb.datasets.spirals(n_train=50, n_test=20)
        >>> run = hb.train(problem, hb.MLP((5,)), hb.AdLaLa(), steps=100, chains=3, samples=10)
        >>> prediction = run.predict([[0.5, 1.0], [-1.0, 0.0]])
        >>> prediction.mean.shape, prediction.sd.shape, prediction.entropy.shape
        ((2, 1), (2, 1), (2,))
        """
        if over is None:
            over = "samples" if "samples" in self.data else "chains"
        choice("over", over, ("samples", "chains", "steps"))
        if latest is not None and over != "samples":
            raise ValueError(f"latest is for samples, and these are over {over}: leave it out")
        check_run(self, single=True)
        self._check_alive("there is nothing to average")

        if over == "steps":
            if X is not None:
                raise TypeError("over='steps' has the X that train averaged at: leave X out")
            return predictions.predict_over_steps(self)

        if X is None:
            raise TypeError("X is needed: the inputs (examples, features) to predict at")
        return predictions.predict_together(self, X, over, latest)

    def predictive(self, X: ArrayLike, latest: int | None = None) -> Mixture:
        """Return the law of new data at X: quantiles, intervals and densities of values or counts.

        It combines all samples that were kept (the networks of the chains as they are now, if none were) and
        the noise around each prediction: that of the posterior, or of counts with these rates. Chains that
        diverged do not count.

        Parameters
        ----------
        X
            Inputs (examples, features).
        latest
            The number of latest samples of each chain to use; None for all.

        Returns
        -------
        Mixture
            The law at every example, in the units of the user's data.

        Raises
        ------
        ValueError
            For a classification, where `predict` has the probabilities; and as `predict`.

        Examples
        --------
        >>> import heatbath as hb
        >>> x = np.linspace(-1, 1, 40)
        >>> problem = hb.datasets.from_arrays(x[:, None], np.sin(3 * x), task="regression")
        >>> sampling = hb.LaLa(h=0.1, gamma=1.0, posterior=hb.Posterior())
        >>> run = hb.train(problem, hb.MLP((10,), "tanh"), sampling, steps=2000, chains=4, samples=20)
        >>> low, high = run.predictive([[0.0], [0.5]]).interval(0.9)
        >>> bool((low < high).all()), low.shape
        (True, (2, 1))
        """
        check_run(self, single=True)
        if TASKS[self.problem.task].classes:
            raise ValueError(f"this is {self.problem.task!r}: predict has the probabilities of the classes")
        self._check_alive("there is nothing to predict from")
        return predictions.predictive_law(self, X, latest)

    def calibration(self, latest: int | None = None) -> Calibration:
        """Return where the training examples lie in laws that have not seen them.

        `run.calibration().interval(run.predictive(X), 0.9)` are intervals that hold 90 % of such data even
        where their noise is not quite that of the likelihood: see `prediction.calibration`. It is for normal
        noise, known, sampled or predicted by the network. For other laws, fewer than two networks, chains
        with different data sets, and networks that interpolate the training examples, nothing can be known,
        and intervals are those of the law. At most 10,000 examples of a large table are used.

        The result is kept, since it takes as long as to predict all training examples.
        """
        if latest not in self._calibrations:
            self._calibrations[latest] = predictions.calibrate(self, latest)
        return self._calibrations[latest]

    @cached_property
    def _calibrations(self) -> dict[int | None, Calibration]:
        """Calibrations that were asked for, by their number of latest samples."""
        return {}

    def outputs(self, X: ArrayLike, samples: bool = False) -> NDArray[np.float64]:
        """Return the outputs of every single network, in the units of the user's data.

        Outputs are the probability of the second class, of each class, the values of a regression or the
        rates of counts. `predict(X)` averages them.

        Parameters
        ----------
        X
            Inputs (examples, features).
        samples
            True for the networks of all samples, False for those of the chains as they are now.

        Returns
        -------
        ndarray
            Of shape (chains, examples, outputs), or (chains, samples, examples, outputs).
        """
        return predictions.network_outputs(self, X, samples)

    def averages(self) -> xr.Dataset:
        """Return the running `mean` and `variance` of the outputs over all samples, at the inputs `average`.

        By chain, point and output, in the units of `outputs`; NaN for a chain that diverged. If the network
        predicts the variance of new data, `noise` is its mean.
        """
        return predictions.running_averages(self)

    def select(self, **labels: object) -> Run:
        """Return the run of one point of a sweep or one method of a comparison: `run.select(tau=1e-4)`."""
        point = find_point(self.plan, self.data, labels)
        alone = self.plan.at_point(point)
        chains = np.arange(point * self.plan.chains, (point + 1) * self.plan.chains)
        data = select_chains(self.data, chains, self.plan, alone).drop_vars(self.plan.axes)
        return replace(self, plan=alone, data=data)

    def with_methods(self, names: Sequence[str]) -> Run:
        """Return the run of some methods of a comparison; `resume` continues with these alone.

        Examples
        --------
        >>> import heatbath as hb
        >>> problem = hb.datasets.spirals(n_train=50, n_test=20)
        >>> methods = {"LOL": hb.LOL(), "AdLaLa": hb.AdLaLa(), "Adam": hb.Partition(hb.Adam(), h=0.005)}
        >>> run = hb.compare(problem, hb.MLP((5,)), methods, steps=100, record=1)
        >>> list(run.with_methods(["AdLaLa", "Adam"]).resume(100).partition)
        ['AdLaLa', 'Adam']
        """
        return continuation.keep_methods(self, names)

    def to_torch(self, chain: int = 0) -> torch.nn.Sequential:
        """Return the network of one chain as a torch module.

        It takes standardised inputs and ends in logits; or in values as they are scaled in the problem, in
        logarithms of rates, or in values and then the logarithms of their variances (see
        `likelihood.Likelihood`).
        """
        chain = whole("chain", chain, low=0, high=self.data.sizes["chain"])
        outputs = self.plan.likelihood.outputs
        return self.network.to_torch(self.data["theta"][chain].values, self.problem.inputs, outputs)

    def to_arviz(
        self,
        X: ArrayLike | None = None,
        parameters: bool = False,
        *,
        groups: Sequence[str] | None = None,
        latest: int | None = None,
    ) -> arviz.InferenceData | xr.DataTree:
        """Return the samples for ArviZ, in the units of the user's data, with what follows from them.

        | group | what is in it |
        | --- | --- |
        | `posterior` | `prediction` of the networks at X, chain x draw x point x output; `sigma`, the standard deviation of the noise (with degrees its scale), where it was sampled |
        | `predictions` | `y`, new data at X, one for each sample |
        | `log_likelihood` | `y`, of every training example, the sum over several targets, times its weight if it has one |
        | `posterior_predictive` | `y`, new data at the training examples |
        | `prior`, `prior_predictive` | the same of 500 networks of the prior, `prediction`, `sigma` and `y` |
        | `observed_data` | `y`, the training examples: values, counts, or indices of classes |

        What is not known is left out: all but `posterior` and `observed_data` in a regression without a
        posterior, and priors without one. Chains that diverged are left out.

        Weights can be exchanged and rescaled without changing the function, so R-hat and ESS mean something
        for the function only. Chains must sample one law: `select` a point of a sweep first. At a posterior's
        temperature other than 1 the likelihood and the prior are as they are at 1, and leave-one-out
        estimates, which take the samples for those of the posterior, are not to be trusted.

        Needs the extra `heatbath[arviz]`.

        Parameters
        ----------
        X
            Inputs (examples, features). By default the test examples, or the training examples where there
            are none.
        parameters
            True to include the parameters as `theta`.
        groups
            The names of the groups to make; None for all.
        latest
            The number of latest samples of each chain to use; None for all.

        Returns
        -------
        arviz.InferenceData or xarray.DataTree
            An InferenceData for ArviZ before 1.0, a DataTree since.
        """  # noqa: E501
        check_run(self, single=True)
        return for_arviz(make_groups(samples_of_run(self, X, latest), groups, parameters))

    def to_xarray(self) -> xr.Dataset:
        """Return everything that a file has: `data`, the user's own arrays, and the settings in `attrs`."""
        return file.pack(self.plan, self.step, self.data, self.former)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one NetCDF file, completely or not at all; `load` reads it.

        Any reader of NetCDF can read it, too. Of built-in data only the recipe and a checksum are written; of
        the user's own data, all. A run in a folder must fit in memory for that.

        Parameters
        ----------
        path
            The file. An earlier run file is replaced; any other file is left alone, with an error.
        """
        if self.data.chunks:
            check_memory(self.plan, 1)
        file.write(path, self.to_xarray())

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
        folder: str | os.PathLike[str] | None = None,
        executor: object = None,
    ) -> Run:
        """Continue, bit for bit as if the run had never stopped, and return the longer run.

        Parameters
        ----------
        steps
            The number of further steps; None for those that are left of an interrupted run.
        partition
            Other coefficients for the same methods from here on; their schedules count from the start of the
            run. The change becomes part of `partition`, with its step.
        record
            As in `train` (a number of records is for these steps); None for the same as before.
        threads, progress, every
            As in `train`.
        checkpoint
            As in `train`. It may hold this run at an earlier step, or at a later one of the same call, which
            then continues from there.
        folder
            As in `train`, and not that of this run. The run so far is copied into it, some chains at a time:
            neither this run nor the longer one need fit in memory.
        executor
            As in `sweep`.

        Returns
        -------
        Run
            The longer run; this one does not change.

        Examples
        --------
        >>> import heatbath as hb
        >>> problem = hb.datasets.spirals(n_train=50, n_test=20)
        >>> run = hb.train(problem, hb.MLP((5,)), hb.AdLaLa(h=0.2), steps=100, record=1)
        >>> longer = run.resume(100, hb.AdLaLa(h=0.1))
        >>> longer.step, longer.partition.h
        (200, Piecewise(values=(0.2, 0.1), steps=(100,)))
        """
        if steps is None and self.finished:
            raise ValueError(
                f"all {self.step} steps are made: give the number of further ones, such as resume(steps=1000)"
            )

        plan = self.plan
        if steps is not None or record is not None:
            further = plan.steps - self.step if steps is None else steps
            plan = continuation.extend_plan(plan, self.step, further, record)
        if partition is not None:
            plan = continuation.change_plan(plan, partition, self.step)

        from heatbath.runs.launch import simulate  # which imports this module

        return simulate(
            plan, self, threads=threads, progress=progress, checkpoint=checkpoint, every=every, folder=folder,
            pool=chosen_pool(executor),
        )  # fmt: skip

    def replay(self, threads: int | None = None, progress: Callable[[Progress], None] | None = None) -> Run:
        """Repeat all planned steps from the start, with every change of coefficients, and return that run."""
        if self.former:
            warn(f"{begun_elsewhere(self)}: the run that is made now differs from it, too")

        from heatbath.runs.launch import simulate  # which imports this module

        replayed = simulate(self.plan, threads=threads, progress=progress)
        labels = {axis: self.data[axis] for axis in self.plan.axes}  # as they were before any change
        return replace(replayed, data=replayed.data.assign_coords(labels))

    def on_other_examples(
        self, problem: Problem, steps: int, samples: int, thin: int, batch: int | None = None
    ) -> Run:
        """Return the run with its chains where they are, on other examples such as new ones of the same kind.

        If the examples are scaled otherwise, parameters change so that the networks predict the same in the
        units of the user. If there are more or fewer examples, so that a posterior has another temperature,
        momenta are multiplied by the root of its ratio to the old one. Samples are dropped, and so are all
        but the latest 1,000 records.

        Parameters
        ----------
        problem
            The examples, with the same task and the same numbers of inputs and outputs.
        steps, samples, thin
            A `resume` of `steps` steps ends with `samples` samples, one every `thin` steps.
        batch
            The number of examples in a mini-batch; None for the default.
        """
        moved = continuation.replace_examples(self, problem, batch)
        return continuation.sample_again(moved, steps, samples, thin)

    def _check_alive(self, consequence: str) -> None:
        """Raise if all chains diverged."""
        if not (self.died < 0).any():
            raise ValueError(f"all chains of this run diverged: {consequence}")

    def _of_split(self, name: str, split: str) -> xr.DataArray:
        """Return the results of this name for "train" or "test"."""
        if split not in ("train", "test"):
            raise ValueError(f"split must be 'train' or 'test', got {split!r}")
        return self.data[name].sel(split=split)

    def _of_part(self, name: str, dimension: str, part: str) -> xr.DataArray:
        """Return a result of a part by chain and record; if it has several labels, by these first.

        Parameters
        ----------
        name, dimension
            The name of the result, and of its dimension with a label for each part or thermostat.
        part
            The name of a part, or the key that several parts have in the partition.
        """
        if name not in self.data:
            raise ValueError(f"no {name} of {part!r}: no part of this run has one")

        trace = self.data[name]
        labels = trace[dimension].values.tolist()
        parts = self.plan.parts()
        part_names = {candidate.name for candidate in parts if part in (candidate.name, candidate.key)}
        chosen = [label for label in labels if label.partition("/")[0] in part_names]  # also hidden/1, ...
        if not chosen:
            raise ValueError(
                f"no {name} of {part!r}: accepted are {', '.join(map(repr, labels))} and their rules"
            )
        if len(chosen) == 1:
            return trace.sel({dimension: chosen[0]})
        return trace.sel({dimension: chosen})


def _describe_means(record: xr.Dataset) -> str:
    """Describe loss and accuracy of a record in words, as means over the chains that have not diverged."""
    with warnings.catch_warnings():  # NumPy warns if all chains have diverged
        warnings.simplefilter("ignore", RuntimeWarning)
        loss = np.nanmean(record["loss"].values)
        accuracy = np.nanmean(record["accuracy"].values)
    if np.isfinite(accuracy):
        return f"loss {loss:.4g}, accuracy {accuracy:.1%}"
    return f"loss {loss:.4g}"


def load(path: str | os.PathLike[str], problem: Problem | None = None) -> Run:
    """Return the run in a file that `save` or a checkpoint wrote, or in a folder of `train(folder=...)`.

    Nothing in the file is executed.

    Parameters
    ----------
    path
        The file or the folder.
    problem
        The run's own data, if they cannot be made again here from their recipe (MNIST in another folder,
        say); the checksum must be the same.

    Returns
    -------
    Run
        The run as it was saved; `Run.resume` continues it.

    Raises
    ------
    ValueError
        If this is no run file, if it is damaged, or if it is of another problem.
    OSError
        If the file cannot be read.

    Examples
    --------
    >>> import os, tempfile
    >>> import heatbath as hb
    >>> problem = hb.datasets.spirals(n_train=50, n_test=20)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "run.nc")
    ...     hb.train(problem, hb.MLP((5,)), hb.AdLaLa(), steps=100, record=1).save(path)
    ...     hb.load(path).step
    100
    """
    if not isinstance(problem, Problem | None):
        raise TypeError(f"problem must be a Problem or None, got {problem!r}")
    plan_path = Path(path) / PLAN
    if not plan_path.is_file():
        return Run(*file.unpack(path, file.read(path), problem))
    plan, _ = file.unpack_plan(file.read(plan_path), problem)
    store = Store.load(Path(path), plan)
    return Run(plan, plan.steps, store.lazy(), store.former)


def check_run(run: object, single: bool = False) -> None:
    """Raise unless this is a run; with `single`, also if its chains differ in methods or coefficients."""
    if not isinstance(run, Run):
        raise TypeError(f"run must be a Run, such as train and load return, got {run!r}")
    if single and len(run.plan.points) > 1:
        labels = ", ".join(f"{axis}={value!r}" for axis, value in run.plan.points[0].labels.items())
        raise ValueError(
            f"the chains of this run differ in {', '.join(run.plan.axes)}: select one of its "
            f"{len(run.plan.points)} points first, as in run.select({labels})"
        )


def begun_elsewhere(run: Run) -> str:
    """Return the sentence that says which earlier version began a run."""
    return (
        f"this run was begun by an earlier heatbath ({run.former}), which added in another order, so that "
        f"{run.plan.dtype} trajectories differ in their last bits, and after many steps completely"
    )
