"""Chains of a `Sampler` at one stepsize."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heatbath._internal.checks import whole
from heatbath.datasets.tasks import TASKS
from heatbath.torch.data import (
    is_pair,
)
from heatbath.torch.optim.chains import Chains
from heatbath.torch.optim.classes import Langevin
from heatbath.torch.optim.state import TENSORS
from heatbath.torch.optim.temperature import labels
from heatbath.torch.prediction.samples import Samples

if TYPE_CHECKING:
    pass

if TYPE_CHECKING:
    from heatbath.torch.sampling.sampler import Sampler
TRIAL, LATE = 2.0, 1.25  # after which the temperature is looked at, over what is late: in units of 1/γ
UNSTABLE = 2.0  # how much a temperature grows in that time
PROBES = 50  # training examples whose predictions are compared


@dataclass
class Note:
    """What is noted with a sample: what the chains say of the probes, (chains, ...), the temperatures since
    the sample before, (parts, 2, chains), in units of what they should be, and the noise, (chains,)."""

    said: NDArray[np.float64]
    heat: NDArray[np.float64]
    noise: NDArray[np.float64]


class Trajectory:
    """Chains on their way at a stepsize, from the start: their optimiser, their samples and notes."""

    def __init__(self, sampler: Sampler, h: float) -> None:
        own = sampler.settings
        self.h, self.settings, self.data, self.loss = h, own, sampler._data, sampler._loss
        self.chains = Chains(sampler._single, own.chains, "same")
        self.optimizer = Langevin(self.chains, h, own.gamma, posterior=own.posterior, seed=own.seed)
        self.samples = Samples(self.chains, most=own.samples)
        self.notes: dict[int, Note] = {}
        self.step = 0
        self.trial = max(20, math.ceil(TRIAL / (own.gamma * h)))
        self.probes = self._probes()

    def _probes(self) -> Tensor | None:
        """Training examples at which predictions are compared."""
        if self.data is None:
            return None
        x = self.data.data[0] if is_pair(self.data.data) else next(iter(self.data.all()))[0]
        return x[torch.linspace(0, len(x) - 1, min(PROBES, len(x))).long().to(x.device)]

    @property
    def parts(self) -> list[str]:
        """Their names."""
        return list(labels(self.optimizer.param_groups))

    def advance(self) -> Tensor:
        """A step of all chains: their losses."""
        assert self.data is not None
        own = self.settings
        if own.posterior.samples_noise and self.step % own.draws == 0:
            self._draw()
        x, y = self.data.at(self.step)
        self.optimizer.zero_grad()
        said = self.chains(x, each=own.own)
        losses = torch.func.vmap(self.loss, in_dims=(0, 0 if own.own else None))(said, y)
        torch.autograd.backward(losses.sum())  # the sum: each chain has the gradient of its own loss
        self.optimizer.step()
        self.step += 1
        self.samples.take()
        self._note()
        return losses.detach()

    @torch.no_grad()
    def _draw(self) -> None:
        """Draw the noise of the data given the chains as they are; of one that diverged it stays."""
        assert self.data is not None
        residuals = torch.cat([self._residuals(x, y) for x, y in self.data.all()], dim=1)
        if residuals.isfinite().flatten(1).all(dim=1).any():  # or all diverged, which the loss will show
            self.optimizer.draw_noise(residuals)

    def _residuals(self, x: Tensor, y: Tensor) -> Tensor:
        """(chains, examples, targets)."""
        said: Tensor = self.chains(x)
        return said.reshape(len(said), len(x), -1) - y.reshape(len(y), -1)

    def _note(self) -> None:
        """Note what belongs to a sample that was taken, and join what belongs to those that were dropped."""
        kept, dropped = set(self.samples.steps), list[Note]()
        notes = {}
        for step, note in self.notes.items():
            if step not in kept:
                dropped.append(note)
                continue
            if dropped:
                heats = [each.heat for each in (*dropped, note)]
                note, dropped = replace(note, heat=np.mean(heats, axis=0)), []
            notes[step] = note
        if self.step in kept:
            notes[self.step] = Note(self._said(), self._heat(), self._noise())
            self.optimizer.forget_past()
        self.notes = notes

    @torch.no_grad()
    def _said(self) -> NDArray[np.float64]:
        assert self.probes is not None
        said = TASKS[self.settings.task].decode_torch(self.chains(self.probes).double())
        return np.asarray(said.cpu().numpy())

    def _heat(self) -> NDArray[np.float64]:
        groups, chains = self.optimizer.param_groups, range(self.settings.chains)
        by_chain = [self.optimizer.temperature(chain) for chain in chains]
        heat = np.full((len(groups), 2, len(chains)), np.nan)
        for place, (part, group) in enumerate(zip(self.parts, groups, strict=True)):
            for chain in chains:
                if (found := by_chain[chain].get(part)) is not None and found.configurational is not None:
                    pair = found.value, found.configurational.value
                    heat[place, :, chain] = np.array(pair) / float(group["tau"])
        return heat

    def heat_now(self) -> dict[str, float]:
        """The kinetic temperatures at the last sample, in units of what they should be."""
        last = next(reversed(self.notes.values()), None)
        return (
            {} if last is None else dict(zip(self.parts, last.heat[:, 0].mean(axis=1).tolist(), strict=True))
        )

    def trial_heat(self) -> float:
        """The kinetic temperature of all parameters late in the trial, in units of what it should be."""
        return float(np.mean(self._late()))

    def grows(self) -> bool:
        """Whether the temperature grows late in the trial, as it does where the stepsize is unstable."""
        first, *_, last = self._late()
        return last > UNSTABLE * first

    def _late(self) -> list[float]:
        """The kinetic temperatures late in the trial."""
        late = [note.heat[:, 0] for step, note in self.notes.items() if step > self.trial * LATE / TRIAL]
        return [float(np.average(heat.mean(axis=1), weights=self._sizes)) for heat in late]

    @property
    def unsure(self) -> float:
        """How far the kinetic temperature of all parameters may be off by chance, at a single look: three
        standard deviations."""
        return 3 * math.sqrt(2 / sum(self._sizes))

    @property
    def _sizes(self) -> list[int]:
        """How many parameters the parts of all chains have."""
        return [sum(p.numel() for p in g["params"] if p.requires_grad) for g in self.optimizer.param_groups]

    def _noise(self) -> NDArray[np.float64]:
        return np.array(self.optimizer.noise if self.settings.posterior.samples_noise else [])

    def pack(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything as tensors by name, and as plain values."""
        state = self.optimizer.state_dict()
        found = {f"chains/{name}": value for name, value in self.chains.state_dict().items()}
        for place, one in state["state"].items():
            found |= {f"{name}/{place}": one[name] for name in TENSORS if name in one}
        for step, sample in zip(self.samples.steps, self.samples, strict=True):
            found |= {f"samples/{step}/{name}": value for name, value in sample.items()}
            for name, value in vars(self.notes[step]).items():
                found[f"notes/{step}/{name}"] = torch.from_numpy(np.ascontiguousarray(value))
        groups = [{k: v for k, v in group.items()} for group in state["param_groups"]]
        plain = {"h": self.h, "step": self.step, "thin": self.samples.thin, "groups": groups}
        plain["steps"] = {place: one["step"] for place, one in state["state"].items()}
        return found, plain

    def unpack(self, found: dict[str, Tensor], plain: dict[str, Any]) -> None:
        """Go on from what was packed."""
        tree: dict[str, Any] = {}
        for name, value in found.items():
            *path, last = name.split("/", 2 if name.startswith(("samples/", "notes/")) else 1)
            level = tree
            for key in path:
                level = level.setdefault(key, {})
            level[last] = value
        self.chains.load_state_dict(tree["chains"])
        states = {
            int(place): {"step": step} | {name: tree[name][place] for name in TENSORS if name in tree}
            for place, step in plain["steps"].items()
        }
        self.optimizer.load_state_dict({"state": states, "param_groups": plain["groups"]})
        self.step = whole("step", plain["step"], low=0)
        samples = {int(step): state for step, state in tree.get("samples", {}).items()}
        self.samples.resume(self.step, plain["thin"], {step: samples[step] for step in sorted(samples)})
        notes = {int(step): note for step, note in tree.get("notes", {}).items()}
        self.notes = {
            step: Note(**{name: value.numpy() for name, value in notes[step].items()})
            for step in sorted(notes)
        }
