"""Advance the chains of a `Sampler` at one stepsize, with their samples and measurements.

h: stepsize. γ: friction. τ: temperature.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from heatbath._internal.checks import whole
from heatbath.datasets.problem import Floats
from heatbath.datasets.tasks import TASKS
from heatbath.diagnostics.convergence_check import RULE
from heatbath.diagnostics.statistics import Estimate
from heatbath.torch.data import LossFunction, is_pair
from heatbath.torch.optim.chains import Chains
from heatbath.torch.optim.classes import Langevin
from heatbath.torch.optim.stability import not_frozen
from heatbath.torch.optim.state import TENSORS
from heatbath.torch.optim.temperature import labels
from heatbath.torch.prediction.samples import Samples
from heatbath.torch.sampling.batches import ChainBatches
from heatbath.torch.sampling.records import SampleRecord
from heatbath.torch.sampling.settings import SamplerSettings

PlainValues: TypeAlias = dict[str, Any]  # what can be written as JSON
Tree: TypeAlias = dict[str, Any]  # tensors in nested dicts

TRIAL_TIME = 2.0  # length of the trial of a stepsize in units of 1/γ, the time in which momenta forget
SETTLING_TIME = 1.25  # part of the trial before temperatures count, in the same units
FEWEST_TRIAL_STEPS = 20  # of a trial, where 2/γ are fewer
UNSTABLE_GROWTH = 2.0  # factor by which the temperature grows late in the trial where steps are unstable
RECORD_KEYS = {"outputs": "said", "temperatures": "heat", "noise": "noise"}  # of a record, in files


class Trajectory:
    """Chains that move at one stepsize, from the module as it is: optimiser, samples and their records.

    Parameters
    ----------
    module
        Where all chains start; it does not change.
    settings
        What is sampled.
    data
        Training examples; None for chains that will not move.
    loss
        Function of outputs and targets.
    h
        The stepsize.
    """

    def __init__(
        self,
        module: nn.Module,
        settings: SamplerSettings,
        data: ChainBatches | None,
        loss: LossFunction,
        h: float,
    ) -> None:
        """Stack the chains, all at the module, and make their optimiser and an empty list of samples."""
        posterior = settings.posterior
        self.h = h
        self.settings = settings
        self.data = data
        self.loss = loss
        self.chains = Chains(module, settings.chains, "same")
        self.optimizer = Langevin(self.chains, h, settings.gamma, posterior=posterior, seed=settings.seed)
        self.samples = Samples(self.chains, most=settings.samples)
        self.records: dict[int, SampleRecord] = {}
        self.step = 0

        self.trial_steps = max(FEWEST_TRIAL_STEPS, math.ceil(TRIAL_TIME / (settings.gamma * h)))
        self.probes = self._choose_probes(RULE.inputs)
        self._draws_noise = posterior.samples_noise

    def _choose_probes(self, count: int) -> Tensor | None:
        """Return about that many training examples, evenly spaced, at which predictions are compared."""
        if self.data is None:
            return None
        x, _ = self.data.data if is_pair(self.data.data) else next(iter(self.data.iterate_all()))
        rows = torch.linspace(0, len(x) - 1, min(count, len(x))).long()
        return x[rows.to(x.device)]

    @property
    def parts(self) -> list[str]:
        """Names of the optimiser's parts."""
        return list(labels(self.optimizer.param_groups))

    # Steps

    def advance(self) -> Tensor:
        """Make a step of all chains, take a sample if one is due, and return the losses, (chains,).

        The losses are those before the step. A noise of the data that is sampled is drawn now and then.
        """
        assert self.data is not None
        if self._draws_noise and self.step % self.settings.steps_per_draw == 0:
            self._draw_noise(self.data)

        x, y = self.data.at_step(self.step)
        self.optimizer.zero_grad()
        outputs = self.chains(x, each=self.settings.separate_batches)
        target_axis = 0 if self.settings.separate_batches else None
        losses = torch.func.vmap(self.loss, in_dims=(0, target_axis))(outputs, y)
        torch.autograd.backward(losses.sum())  # the sum: each chain has the gradient of its own loss
        self.optimizer.step()

        self.step += 1
        self.samples.take()
        self._update_records()
        return losses.detach()

    @torch.no_grad()
    def _draw_noise(self, data: ChainBatches) -> None:
        """Draw the noise of the data given the chains as they are; that of diverged chains doesn't change."""
        residuals = torch.cat([self._residuals(x, y) for x, y in data.iterate_all()], dim=1)
        if residuals.isfinite().flatten(1).all(dim=1).any():  # otherwise the loss will show the divergence
            self.optimizer.draw_noise(residuals)

    def _residuals(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the residuals of all chains, (chains, examples, targets)."""
        outputs: Tensor = self.chains(x)
        return outputs.reshape(len(outputs), len(x), -1) - y.reshape(len(y), -1)

    # Records of samples

    def _update_records(self) -> None:
        """Add a record if a sample was taken; merge the records of samples that were dropped."""
        steps = self.samples.steps
        if len(steps) < len(self.records):
            self.records = merge_dropped(self.records, steps)
        if steps and steps[-1] == self.step:
            noise = np.array(self.optimizer.noise if self._draws_noise else [])
            temperatures = self._temperature_ratios()
            self.records[self.step] = SampleRecord(self._probe_outputs(), temperatures, noise)
            self.optimizer.forget_past()

    @torch.no_grad()
    def _probe_outputs(self) -> Floats:
        """Return the predictions of all chains for the probe examples, in double precision."""
        assert self.probes is not None
        outputs = TASKS[self.settings.task].decode_torch(self.chains(self.probes).double())
        return np.asarray(outputs.cpu().numpy())

    def _temperature_ratios(self) -> Floats:
        """Return kinetic and configurational temperature over τ since the last sample, (parts, 2, chains).

        Both are NaN where one of them was not measured. They come from the optimiser's running means, because
        its method `temperature` would also compute their errors.
        """
        groups = self.optimizer.param_groups
        ratios = np.full((len(groups), 2, self.settings.chains), np.nan)
        for chain, observations in self.optimizer._observations.items():
            for index, group in enumerate(groups):
                kinetic = observations.series.get((index, "temperature"))
                configurational = observations.series.get((index, "configurational"))
                if kinetic is not None and configurational is not None:
                    pair = np.array([kinetic.mean, configurational.mean])
                    ratios[index, :, chain] = pair / float(group["tau"])
        return ratios

    def last_temperatures(self) -> dict[str, float]:
        """Return the kinetic temperatures over τ at the last sample, by part; {} without a sample."""
        if not self.records:
            return {}
        latest_record = next(reversed(self.records.values()))
        kinetic_ratios = latest_record.temperatures[:, 0].mean(axis=1)
        return dict(zip(self.parts, kinetic_ratios.tolist(), strict=True))

    # The trial of the stepsize

    def trial_temperature(self) -> Estimate:
        """Return the kinetic temperature of all parameters over τ, late in the trial.

        Its error is that of a single look at all momenta, whose squares are independent.
        """
        error = math.sqrt(2 / sum(self._part_sizes()))
        return Estimate(float(np.mean(self._late_temperatures())), error)

    def is_heating_up(self) -> bool:
        """Return whether the temperature grows late in the trial, as it does where steps are unstable."""
        late_temperatures = self._late_temperatures()
        return late_temperatures[-1] > UNSTABLE_GROWTH * late_temperatures[0]

    def _late_temperatures(self) -> list[float]:
        """Return the kinetic temperatures over τ of all parameters, at the late samples of the trial."""
        settling_steps = self.trial_steps * SETTLING_TIME / TRIAL_TIME
        late_records = [record for step, record in self.records.items() if step > settling_steps]
        sizes = self._part_sizes()
        temperatures = []
        for record in late_records:
            kinetic_ratios = record.temperatures[:, 0].mean(axis=1)  # of each part
            temperatures.append(float(np.average(kinetic_ratios, weights=sizes)))
        return temperatures

    def _part_sizes(self) -> list[int]:
        """Return how many parameters of all chains each part moves."""
        groups = self.optimizer.param_groups
        return [sum(p.numel() for p in not_frozen(group["params"])) for group in groups]

    # Files

    def pack(self) -> tuple[dict[str, Tensor], PlainValues]:
        """Return chains, optimiser, samples and their records for a file: as tensors, and as plain values.

        Names of tensors are "chains/NAME", "momentum/INDEX" and the like for each parameter,
        "samples/STEP/NAME", and "notes/STEP/KEY" for a record.
        """
        optimizer_state = self.optimizer.state_dict()
        parameter_states = optimizer_state["state"]
        tensors = {f"chains/{name}": tensor for name, tensor in self.chains.state_dict().items()}
        for index, parameter_state in parameter_states.items():
            for name in TENSORS:
                if name in parameter_state:
                    tensors[f"{name}/{index}"] = parameter_state[name]

        plain = {
            "h": self.h,
            "step": self.step,
            "thin": self.samples.thin,
            "groups": [dict(group) for group in optimizer_state["param_groups"]],
            "steps": {index: parameter_state["step"] for index, parameter_state in parameter_states.items()},
        }
        return tensors | self._pack_samples(), plain

    def _pack_samples(self) -> dict[str, Tensor]:
        """Return the samples and their records as tensors, by their names in a file."""
        tensors: dict[str, Tensor] = {}
        for step, sample in zip(self.samples.steps, self.samples, strict=True):
            for name, tensor in sample.items():
                tensors[f"samples/{step}/{name}"] = tensor
            for name, key in RECORD_KEYS.items():
                measurement = np.ascontiguousarray(getattr(self.records[step], name))
                tensors[f"notes/{step}/{key}"] = torch.from_numpy(measurement)
        return tensors

    def unpack(self, tensors: Mapping[str, Tensor], plain: PlainValues) -> None:
        """Continue from the tensors and the plain values that `pack` returned.

        Chains, optimiser, samples, records and the number of steps are replaced.
        """
        tree = _nest(tensors)
        self.chains.load_state_dict(tree["chains"])
        parameter_states: dict[int, dict[str, Any]] = {}
        tensor_names = [name for name in TENSORS if name in tree]
        for index, step in plain["steps"].items():
            parameter_tensors = {name: tree[name][index] for name in tensor_names}
            parameter_states[int(index)] = {"step": step, **parameter_tensors}
        self.optimizer.load_state_dict({"state": parameter_states, "param_groups": plain["groups"]})
        self.step = whole("step", plain["step"], low=0)

        self.samples.resume(self.step, plain["thin"], _order_by_step(tree.get("samples", {})))
        self.records = {}
        for step, note in _order_by_step(tree.get("notes", {})).items():
            measurements = {name: note[key].numpy() for name, key in RECORD_KEYS.items()}
            self.records[step] = SampleRecord(**measurements)
        if self.records:  # those of an earlier version have fewer probes
            earliest_record = next(iter(self.records.values()))
            self.probes = self._choose_probes(earliest_record.outputs.shape[1])


def _order_by_step(branch: Mapping[str, Tree]) -> dict[int, Tree]:
    """Return what is kept by the text of a step, by its number and in order."""
    steps = sorted(map(int, branch))
    return {step: branch[str(step)] for step in steps}


def merge_dropped(records: Mapping[int, SampleRecord], steps: Sequence[int]) -> dict[int, SampleRecord]:
    """Return the records of the samples that were kept, with the temperatures since the last kept sample.

    Parameters
    ----------
    records
        Records of all samples by their steps, in order; they don't change.
    steps
        Steps of the samples that were kept. The temperatures of dropped samples are averaged into those of
        the next one of these.
    """
    kept_steps = set(steps)
    merged: dict[int, SampleRecord] = {}
    temperatures: list[Floats] = []  # since the last kept sample
    for step, record in records.items():
        temperatures.append(record.temperatures)
        if step not in kept_steps:
            continue
        merged[step] = record
        if len(temperatures) > 1:
            merged[step] = replace(record, temperatures=np.mean(temperatures, axis=0))
        temperatures = []
    return merged


def _nest(tensors: Mapping[str, Tensor]) -> Tree:
    """Return tensors in nested dicts by the parts of their names: kind/name, or kind/step/name.

    What follows the kind, or the step, is one name, although names of parameters may contain a slash.
    """
    tree: Tree = {}
    for name, tensor in tensors.items():
        has_step = name.startswith(("samples/", "notes/"))
        depth = 2 if has_step else 1
        *path, tensor_name = name.split("/", depth)
        branch = tree
        for key in path:
            branch = branch.setdefault(key, {})
        branch[tensor_name] = tensor
    return tree
