"""Runs: what training returns, keeps and continues; and how a plan is carried out."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from heatbath._internal.arviz import for_arviz
from heatbath._internal.checks import choice, whole
from heatbath._internal.warnings import warn
from heatbath.datasets import Problem
from heatbath.datasets.problem import Floats, numbers
from heatbath.datasets.tasks import TASKS
from heatbath.models.dense import MLP
from heatbath.models.likelihood import total
from heatbath.prediction import Calibration, Mixture, Prediction
from heatbath.prediction.calibration import MOST_LEVERAGE, left_out, leverages
from heatbath.prediction.ensemble import average_networks, join_averages, laws
from heatbath.prediction.predictive_distributions import NORMAL
from heatbath.runs import file
from heatbath.runs.adaptation_record import Found
from heatbath.runs.dataset import check_memory, data_at, data_with, find_point
from heatbath.runs.distributed.pools import chosen_pool
from heatbath.runs.distributed.store import PLAN, Store
from heatbath.runs.grid import Methods
from heatbath.runs.plan import Plan, as_lines
from heatbath.runs.progress import Progress
from heatbath.runs.to_arviz import Networks, Places, make_groups

if TYPE_CHECKING:
    import arviz
    import torch

MOST_RECORDS = 1000  # of a run that goes on with other examples, for ever
MOST_PLACES = 10_000  # examples of a calibration: shares are known to 0.003


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
    former: str = ""  # the version that began it, where that rounded otherwise

    def __repr__(self) -> str:
        plan = self.plan
        first = f"step {self.step:,}" if self.finished else f"step {self.step:,} of {plan.steps:,}"
        lines = plan.summary()
        if lost := np.count_nonzero(self.died >= 0):
            lines["chains"] += f", {lost} diverged"
        lines |= self._last_record()
        return as_lines(f"Run: {first}, batch {plan.batch}, seed {plan.seed}, {plan.dtype}", lines)

    def _last_record(self) -> dict[str, str]:
        """The last loss and accuracy, means over the chains that live, in words; of a few points for each."""
        split = "test" if self.problem.X_test.shape[1] else "train"
        columns = np.flatnonzero(np.isfinite(self.loss(split).values).any(axis=0))
        if not columns.size:
            return {}
        last = self.data.sel(split=split).isel(record=columns[-1])

        def words(chains: slice) -> str:
            with warnings.catch_warnings():  # where all chains of a point have diverged
                warnings.simplefilter("ignore", RuntimeWarning)
                loss, accuracy = (np.nanmean(last[name].values[chains]) for name in ("loss", "accuracy"))
            return f"loss {loss:.4g}" + (f", accuracy {accuracy:.1%}" if np.isfinite(accuracy) else "")

        count = len(self.plan.points) if self.data.sizes["chain"] == self.plan.total else 1
        places = [slice(i * self.plan.chains, (i + 1) * self.plan.chains) for i in range(count)]
        if 1 < count <= 8:
            names = [", ".join(f"{last[axis].values[p.start]}" for axis in self.plan.axes) for p in places]
            text = "\n".join(f"{name}: {words(place)}" for name, place in zip(names, places, strict=True))
        else:
            text = words(slice(None))
        return {split: f"{text} (at step {int(last['step']):,}, mean over chains)"}

    @property
    def problem(self) -> Problem:
        """The data it was trained on."""
        return self.plan.problem

    @property
    def network(self) -> MLP:
        """The network."""
        return self.plan.network

    @property
    def partition(self) -> Methods:
        """The methods, with every change of coefficients on the way as a `schedules.Piecewise`."""
        return self.plan.partition

    @property
    def found(self) -> Found | None:
        """How its stepsize and length came about, where `train` was to find them."""
        return self.plan.found

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
        """The share of examples that are classified rightly, chain x record."""
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
        parts = self.plan.parts()
        chosen = {p.tensors: p.name for p in parts if part in (p.name, p.key)}
        if not chosen:
            raise ValueError(
                f"there is no part {part!r}: accepted are {', '.join(repr(p.name) for p in parts)}"
            )
        if len(set(chosen.values())) < len(chosen):
            raise ValueError(f"{part!r} has other parameters in each method: select one first")
        return self.data["weights"].isel(parameter=[e for spans in chosen for span in spans for e in span])

    def predict(
        self,
        X: ArrayLike | None = None,
        *,
        over: Literal["samples", "chains", "steps"] | None = None,
        latest: int | None = None,
    ) -> Prediction[Floats]:
        """What its networks say together of X (examples, features), in the units of the user's data.

        - over "samples": all samples of all chains (`train(..., samples=N)`), or the `latest` of each;
        - over "chains": the networks of the chains as they are now;
        - over "steps": all that `train(..., average=X, burn_in=steps - k)` averaged, over its chains too, at
          the X given there; the entropy is not split, as only means were kept;
        - None: over the samples if any were kept, otherwise over the chains.

        Chains that diverged do not count. Memory does not grow with the number of networks. The outputs of
        each single network are `outputs(X)`.

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
        if not (self.died < 0).any():
            raise ValueError("all chains of this run diverged: there is nothing to average")
        if over == "steps":
            return self._over_steps(X)
        if X is None:
            raise TypeError("X is needed: inputs (examples, features), of which the networks are asked")
        thetas = self._chosen(self.data["theta"] if over == "chains" else self._samples(), latest)
        known = self._variances(over)
        variances = None if known is None else self._chosen(known, latest)
        return average_networks(self.plan.likelihood, self.network, thetas, self._inputs(X), variances)

    def predictive(self, X: ArrayLike, latest: int | None = None) -> Mixture:
        """The law of new data at X, values or counts: quantiles, intervals, densities, in the user's units.

        It is of all samples that were kept, or the `latest` of each chain (of the chains as they are now, if
        none were kept), and of the noise around what they say: that of the posterior, or of counts with these
        rates. Chains that diverged do not count.

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
        if not (self.died < 0).any():
            raise ValueError("all chains of this run diverged: there is nothing to predict from")
        over = "samples" if "samples" in self.data or latest is not None else "chains"
        everything = self.data["theta"] if over == "chains" else self._samples()
        thetas = np.array(list(self._chosen(everything, latest)))
        known = self._variances(over)
        variances = None if known is None else np.array(list(self._chosen(known, latest)))
        law = laws(self.plan.likelihood, self.network, thetas, self._inputs(X), variances)
        assert isinstance(law, Mixture)
        return law

    def calibration(self, latest: int | None = None) -> Calibration:
        """Where the training examples lie in laws that have not seen them: see `prediction.calibration`.

        `run.calibration().interval(run.predictive(X), 0.9)` are intervals that hold 90 % of such data even
        where their noise is not quite that of the likelihood. It is for normal noise, known, sampled or of
        the network; of other laws, of fewer than two networks, of chains with different data sets, and of
        networks that go through the training examples it knows nothing, and intervals are those of the law.
        Of large tables it looks at 10,000 examples.
        """
        if latest not in self._calibrations:
            self._calibrations[latest] = self._calibration(latest)
        return self._calibrations[latest]

    @cached_property
    def _calibrations(self) -> dict[int | None, Calibration]:
        """Those that were asked for: they take as long as to predict all training examples."""
        return {}

    def _calibration(self, latest: int | None) -> Calibration:
        problem, draws = self.problem, np.unique(self.data["draw"])
        posterior, rows = self.plan.points[0].partition.posterior, problem.X_train.shape[1]
        draw, chosen = int(draws[0]), slice(None, None, -(-rows // MOST_PLACES))
        law = self.predictive(problem.X_train[draw, chosen] * problem.scale + problem.shift, latest)
        nothing = Calibration(np.empty((0, problem.outputs)), np.empty(0))
        if posterior is None or law.law is not NORMAL or len(law.means) < 2 or len(draws) > 1:
            return nothing
        alive = int(np.count_nonzero(self.died < 0))
        chains = alive if len(law.means) > alive else 1
        means, noise = (
            values.reshape(chains, -1, *values.shape[1:]) for values in (law.means, law.scales**2)
        )
        y = problem.Y_train[draw, chosen] * problem.target_scale + problem.target_shift
        weights = np.ones(rows) if problem.weights_train is None else problem.weights_train[draw]
        said, variance = means.mean(axis=1), means.var(axis=1, ddof=1)
        if chains > 1:
            variance = variance + said.var(axis=0, ddof=1)
        given = noise.mean(axis=1), weights[chosen], posterior.temperature
        if np.minimum(leverages(variance, *given), 1).mean() > MOST_LEVERAGE:
            return nothing
        places = left_out(said, variance, given[0], y, *given[1:])
        return Calibration(places, weights[chosen] * (rows / len(y)))

    def _variances(self, over: str) -> NDArray[np.float64] | None:
        """The variances of the targets, of each chain and sample; None where the run has none."""
        if "noise_now" not in self.data:
            return None
        now = self.data["noise_now"].values
        if over == "chains":
            return np.asarray(now)
        if "sample_noise" in self.data:
            return np.asarray(self.data["sample_noise"].values)
        return np.repeat(now[:, None], self.data.sizes["sample"], axis=1)

    def _chosen(self, values: xr.DataArray | NDArray[Any], latest: int | None) -> Iterator[NDArray[Any]]:
        """Those of the chains that did not diverge, (chain, ...) or (chain, sample, ...), one by one."""
        of_samples = values.ndim == 3
        first = 0 if latest is None else -whole("latest", latest, low=1)
        living = (own for own, died in zip(_by_chain(values), self.died, strict=True) if died < 0)
        return (one for own in living for one in own[first:]) if of_samples else living

    def _over_steps(self, X: ArrayLike | None) -> Prediction[Floats]:
        """The chains' running averages, joined."""
        if X is not None:
            raise TypeError("over='steps' has the X that train averaged at: leave X out")
        averages = self.averages()
        if not self.plan.samples_by(self.step):
            raise ValueError(
                f"nothing is averaged yet: the run is at step {self.step}, in the burn-in of "
                f"{self.plan.burn_in}; resume it"
            )
        alive = self.died < 0
        means, variances = (averages[name].values[alive] for name in ("mean", "variance"))
        noise = averages["noise"].values[alive].mean(axis=0) if "noise" in averages else self._mean_noise()
        return join_averages(self.problem.task, means, variances, noise)

    def _mean_noise(self) -> NDArray[np.float64] | None:
        """The mean variance of new data over the records after the burn-in, or as it is now."""
        variances = self._variances("chains")
        if variances is None:
            return None
        alive, late = self.died < 0, self.data["step"].values > self.plan.burn_in
        mean = variances[alive].mean(axis=0)
        if "noise" in self.data and late.any():
            mean = self.data["noise"].values[alive][:, late].mean(axis=(0, 1))
        return self.plan.likelihood.in_units(mean)

    def outputs(self, X: ArrayLike, samples: bool = False) -> NDArray[np.float64]:
        """What every single network says of new inputs, in the units of the user's data.

        The shape is (chains, examples, outputs), of the networks as they are now, or (chains, samples,
        examples, outputs). Outputs are the probability of the second class, of each class, the values of a
        regression or the rates of counts. What they say together is `predict(X)`.
        """
        theta = self._samples().values if samples else self.theta
        x, likelihood = self._inputs(X), self.plan.likelihood
        outputs = np.empty((*theta.shape[:-1], len(x), self.problem.outputs))
        for place in np.ndindex(theta.shape[:-1]):  # one network at a time, to need little memory
            outputs[place] = likelihood.values(self.network.forward(theta[place], x, likelihood.outputs))
        return outputs

    def _inputs(self, X: ArrayLike) -> Floats:
        """Inputs as the networks take them, standardised; of raw cells, if they come in a data frame."""
        if self.problem.encoder is not None and isinstance(X, pd.DataFrame):
            X = self.problem.encoder.transform(X)
        raw = np.atleast_2d(numbers("X", X, (1, 2)))
        if raw.shape[1] != self.problem.inputs:
            raise ValueError(
                f"X must be (examples, {self.problem.inputs} features), got an array of shape {np.shape(X)}"
            )
        return np.asarray((raw - self.problem.shift) / self.problem.scale)

    def averages(self) -> xr.Dataset:
        """The running `mean` and `variance` of the outputs over all samples, at the inputs of `average`.

        By chain, point and output, in the units of `outputs`; NaN for a chain that diverged. Where the
        network says the variance of new data, too, `noise` is its mean.
        """
        if "average" not in self.data:
            raise ValueError("nothing was averaged: train with average=X, the inputs to average at")
        count = self.plan.samples_by(self.step)
        scale, shift = self.problem.target_scale, self.problem.target_shift
        values, others = slice(self.problem.outputs), slice(self.problem.outputs, None)
        mean = self.data["average"].isel(output=values)
        variance = self.data["deviations"].isel(output=values) / max(count, 1)
        if self.problem.task == "regression":
            mean, variance = mean * scale + shift, variance * scale**2
        averages = {"mean": mean, "variance": variance}
        if self.plan.likelihood.varying:
            averages["noise"] = self.data["average"].isel(output=others) * scale**2
        lost = (self.data["died"] >= 0) | (count == 0)
        return xr.Dataset({name: values.where(~lost) for name, values in averages.items()})

    def select(self, **labels: object) -> Run:
        """The run of one point of a sweep or one method of a comparison, as in `run.select(tau=1e-4)`."""
        place = find_point(self.plan, self.data, labels)
        alone = self.plan.at_point(place)
        return Run(alone, self.step, data_at(self.plan, alone, self.data, place), self.former)

    def with_methods(self, names: Sequence[str]) -> Run:
        """The run of some of the methods of a comparison: `resume` continues with these alone.

        >>> import heatbath as hb
        >>> problem = hb.datasets.spirals(n_train=50, n_test=20)
        >>> methods = {"LOL": hb.LOL(), "AdLaLa": hb.AdLaLa(), "Adam": hb.Partition(hb.Adam(), h=0.005)}
        >>> run = hb.compare(problem, hb.MLP((5,)), methods, steps=100, record=1)
        >>> list(run.with_methods(["AdLaLa", "Adam"]).resume(100).partition)
        ['AdLaLa', 'Adam']
        """
        plan = self.plan.with_methods(names)
        return Run(plan, self.step, data_with(self.plan, self.data, names), self.former)

    def to_torch(self, chain: int = 0) -> torch.nn.Sequential:
        """A chain's network as a torch module; it takes standardised inputs and ends in logits.

        (Or in values as they are scaled in the problem, in logarithms of rates, or in values and then the
        logarithms of their variances: see `likelihood.Likelihood`.)
        """
        chain = whole("chain", chain, low=0, high=self.data.sizes["chain"])
        return self.network.to_torch(
            self.data["theta"][chain].values, self.problem.inputs, self.plan.likelihood.outputs
        )

    def to_arviz(
        self,
        X: ArrayLike | None = None,
        parameters: bool = False,
        *,
        groups: Sequence[str] | None = None,
        latest: int | None = None,
    ) -> arviz.InferenceData | xr.DataTree:
        """The samples for ArviZ, in the units of the user's data, and what follows from them.

        | group | what is in it |
        | --- | --- |
        | `posterior` | `prediction`, what the networks say of X, chain x draw x point x output; `sigma`, the standard deviation of the noise (with degrees its scale), where it was sampled |
        | `predictions` | `y`, new data at X, one for each sample |
        | `log_likelihood` | `y`, of every training example, the sum over several targets, times its weight if it has one |
        | `posterior_predictive` | `y`, new data at the training examples |
        | `prior`, `prior_predictive` | the same of 500 networks of the prior, `prediction`, `sigma` and `y` |
        | `observed_data` | `y`, the training examples: values, counts, or indices of classes |

        X are the test examples unless given, and the training examples where there are none. What is not
        known is left out: all but `posterior` and `observed_data` in a regression without a posterior, and
        priors without one. `groups` are those that are wanted (None: all), and `latest` is how many samples
        of each chain (None: all). Chains that diverged are left out.

        Weights can be exchanged and rescaled without changing the function, so R-hat and ESS mean something
        for the function only; with `parameters` the parameters are there too, as `theta`. Chains must sample
        one law: of a sweep, `select` a point first. At a posterior's temperature other than 1 the likelihood
        and the prior are as they are at 1, and leave-one-out estimates, which take the samples for those of
        the posterior, are not to be trusted.

        An InferenceData for ArviZ before 1.0, a DataTree since. Needs the extra `heatbath[arviz]`.
        """  # noqa: E501
        check_run(self, single=True)
        found = np.unique(self.data["draw"])
        if len(found) > 1:
            raise ValueError(
                f"the chains have {len(found)} different data sets, so they sample different laws"
            )
        alive, own, draw = self.died < 0, self.problem, int(found[0])
        if not alive.any():
            raise ValueError("all chains of this run diverged: there are no samples to give")
        chosen = slice(None if latest is None else -whole("latest", latest, low=1), None)
        theta, variances = self._samples()[alive, chosen], self._variances("samples")
        y = own.Y_train[draw]
        places = Places(
            self.plan.likelihood,
            self.network,
            self._inputs(X) if X is not None else own.X_test[draw] if own.X_test.size else own.X_train[draw],
            own.X_train[draw],
            y * own.target_scale + own.target_shift if own.task == "regression" else y.astype(np.int64),
            None if own.weights_train is None else own.weights_train[draw],
        )
        samples = Networks(
            places,
            theta.values,
            None if variances is None else variances[alive, chosen],
            theta["sample_step"].values,
            self.plan.seed,
        )
        return for_arviz(make_groups(samples, groups, parameters))

    def to_xarray(self) -> xr.Dataset:
        """Everything that a file has: `data`, the user's own arrays, and the settings as text in `attrs`."""
        return file.pack(self.plan, self.step, self.data, self.former)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one NetCDF file, whole or not at all; `load` reads it, and so does any reader.

        A run file that was there is replaced, any other file is left alone. Built-in data are not in it, only
        the recipe and a checksum; the user's own are. Of a run in a folder all must fit in memory for that.
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
        """Continue, bit for bit as if it had never stopped, and return the longer run.

        - `steps`: how many more; None for those that are left of an interrupted run.
        - `partition`: other coefficients for the same methods, from here on; their schedules count from the
          start of the run. The change becomes part of `partition`, with its step.
        - `record`: as in `train` (a number of records is for these steps); None for the same as before.
        - `checkpoint`: as in `train`. It may have this run at an earlier step, or at a later one of the same
          call, which then continues from there.
        - `folder`: as in `train`, another than that of this run. It gets what there is so far, too, some
          chains at a time: neither this run nor the longer one need fit in memory.
        - `executor`: as in `sweep`.

        >>> import heatbath as hb
        >>> problem = hb.datasets.spirals(n_train=50, n_test=20)
        >>> run = hb.train(problem, hb.MLP((5,)), hb.AdLaLa(h=0.2), steps=100, record=1)
        >>> longer = run.resume(100, hb.AdLaLa(h=0.1))
        >>> longer.step, longer.partition.h
        (200, Piecewise(values=(0.2, 0.1), steps=(100,)))
        """
        if steps is None and self.finished:
            raise ValueError(f"all {self.step} steps are made: say how many more, such as resume(steps=1000)")
        plan = self.plan
        if steps is not None or record is not None:
            plan = plan.extended(self.step, plan.steps - self.step if steps is None else steps, record)
        if partition is not None:
            plan = plan.with_change(partition, self.step)

        from heatbath.runs.launch import simulate  # which imports this module

        return simulate(
            plan,
            self,
            threads=threads,
            progress=progress,
            checkpoint=checkpoint,
            every=every,
            folder=folder,
            pool=chosen_pool(executor),
        )

    def replay(self, threads: int | None = None, progress: Callable[[Progress], None] | None = None) -> Run:
        """The same run again, all its planned steps from the start, with every change of coefficients."""
        if self.former:
            warn(f"{begun_elsewhere(self)}: the same run made anew differs from it, too")

        from heatbath.runs.launch import simulate  # which imports this module

        again = simulate(self.plan, threads=threads, progress=progress)
        names = {axis: self.data[axis] for axis in self.plan.axes}  # as they were before any change
        return Run(again.plan, again.step, again.data.assign_coords(names))

    def on_other_examples(
        self, problem: Problem, steps: int, samples: int, thin: int, batch: int | None = None
    ) -> Run:
        """The same chains where they stand, on other examples, such as new ones of the same kind.

        A `resume` of `steps` steps then ends with `samples` samples, one every `thin` steps; those that there
        were are left behind, and so are all but the latest 1,000 records. Where these examples are scaled
        otherwise, parameters change so that the networks say the same in the units of the user; where there
        are more or fewer, so that a posterior has another temperature, momenta are multiplied by the root of
        its ratio to the one before.
        """
        burn_in = self.step + steps - samples * thin
        plan = self.plan.on_other_examples(problem, batch, burn_in, thin, MOST_RECORDS)
        averages = {
            name: xr.zeros_like(self.data[name]) for name in ("average", "deviations") if name in self.data
        }
        data = self.data.assign(averages).isel(record=slice(-MOST_RECORDS, None))
        data = data.assign({name: data[name].copy(data=new) for name, new in self._moved(problem).items()})
        return Run(
            plan, self.step, data.isel(sample=slice(0, 0)) if "sample" in data.sizes else data, self.former
        )

    def _moved(self, problem: Problem) -> dict[str, NDArray[Any]]:
        """The state of the chains on other examples, where it is another."""
        old, state = self.problem, {}
        names = ("shift", "scale", "target_shift", "target_scale")
        if any((getattr(old, name) != getattr(problem, name)).any() for name in names):
            factor = old.target_scale / problem.target_scale
            c, d = factor, (old.target_shift - problem.target_shift) / problem.target_scale
            if self.plan.likelihood.varying:  # the logarithms of variances stand behind the values
                c, d = np.append(c, np.ones_like(c)), np.append(d, 2 * np.log(factor))
            inputs = problem.scale / old.scale, (problem.shift - old.shift) / old.scale
            outputs = (
                np.broadcast_to(c, self.plan.likelihood.outputs),
                np.broadcast_to(d, self.plan.likelihood.outputs),
            )
            state["theta"] = self.network.between(self.theta, inputs, outputs).astype(self.theta.dtype)
            if "noise_now" in self.data:
                state["noise_now"] = self.data["noise_now"].values * factor**2
        if self.plan.points[0].partition.posterior is not None:
            ratio = total(old) / total(problem)
            if ratio != 1:
                state["p"] = (self.p * np.sqrt(ratio)).astype(self.p.dtype)
        return state

    def _samples(self) -> xr.DataArray:
        if "samples" not in self.data or not self.data.sizes["sample"]:
            raise ValueError(
                "no samples were kept: train with samples=N, and long enough, or predict over='chains'"
            )
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
        chosen = [label for label in labels if label.partition("/")[0] in owners]
        if not chosen:
            raise ValueError(
                f"no {name} of {part!r}: accepted are {', '.join(map(repr, labels))} and their rules"
            )
        return trace.sel({dimension: chosen[0] if len(chosen) == 1 else chosen})


def load(path: str | os.PathLike[str], problem: Problem | None = None) -> Run:
    """The run in a file that `save` or a checkpoint wrote, or in the folder of one.

    Built-in data are made again from their recipe; pass `problem` where that is not possible here (MNIST in
    another folder, say). It must be the run's own, by its checksum. Nothing in the file is executed.

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
    if (Path(path) / PLAN).is_file():
        plan = file.unpack_plan(file.read(Path(path) / PLAN), problem)[0]
        store = Store.load(Path(path), plan)
        return Run(plan, plan.steps, store.lazy(), store.former)
    return Run(*file.unpack(path, file.read(path), problem))


def _by_chain(values: xr.DataArray | NDArray[Any]) -> Iterator[NDArray[Any]]:
    """The values of each chain, of which those that are in a folder are read some chains at a time."""
    counts = values.chunksizes.get("chain") if isinstance(values, xr.DataArray) else None
    edges = np.cumsum([0, *(counts or (len(values),))])
    for first, stop in pairwise(edges):
        yield from np.asarray(values[first:stop])


def check_run(run: object, single: bool = False) -> None:
    """Refuse what is not a run, or, if a `single` law is needed, one whose chains differ in their methods."""
    if not isinstance(run, Run):
        raise TypeError(f"run must be a Run, as train and load give it, got {run!r}")
    if single and len(run.plan.points) > 1:
        axes = ", ".join(f"{axis}={value!r}" for axis, value in run.plan.points[0].labels.items())
        raise ValueError(
            f"the chains of this run differ in {', '.join(run.plan.axes)}: select one of its "
            f"{len(run.plan.points)} points first, as in run.select({axes})"
        )


def begun_elsewhere(run: Run) -> str:
    """Return the sentence that says which earlier version began a run."""
    return (
        f"this run was begun by an earlier heatbath ({run.former}), which added in another order, so that "
        f"{run.plan.dtype} trajectories differ in their last bits, and after many steps in all"
    )
