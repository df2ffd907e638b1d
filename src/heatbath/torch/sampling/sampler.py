"""From a trained module to an answer: chains around it, what they say together, and what that is worth.

Chains of Langevin dynamics (BAOAB) begin at the module as it is and sample the posterior of a `Posterior`, in
evaluation mode: dropout is off and batch norms keep the statistics that they have, so that the loss is a
function of the parameters. Each chain sees batches of its own (see `epochs`). What is not said is found:

- The stepsize: chains begin at 0.4, and begin anew at half of it where one diverges, or where after a time of
  2/γ the kinetic temperature is more than 10 % off, unless half the stepsize does not help.
- The burn-in: an eighth or a quarter of the steps, if after it the predictions of the chains agree (R-hat)
  and the kinetic temperature is right, or half.
- How far apart samples are: every so many steps that there are never more than `samples` of each chain.

The friction is 0.3. Measured on 8x8 digits with a dense network and a narrow prior (1500 steps of four
chains, batches of 64 of 1000): at h = 0.4 the median effective size of the predictions is 32 with γ = 0.3
and 11 with γ = 1, and batches heat by 3 to 10 % and 1 to 4 %, more in the output layer; with γ = 0.1 it is 44
at h = 0.2, and they heat by 4 to 13 %. Adaptive Langevin with a ξ for each layer had 5 to 6 at h = 0.2, as
its friction rose to 3 and more, and was no closer to its temperature.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from heatbath._internal.arviz import for_arviz
from heatbath._internal.checks import POSITIVE, choice, real, shown, whole
from heatbath._internal.interrupts import deferred_interrupts
from heatbath._internal.warnings import DivergedWarning, InterruptedWarning, OffTemperatureWarning, warn
from heatbath.datasets.tasks import TASKS, Task
from heatbath.diagnostics import statistics
from heatbath.diagnostics.convergence_check import CONVERGED, Convergence, converged
from heatbath.diagnostics.statistics import Estimate
from heatbath.prediction import Prediction
from heatbath.runs.progress import Progress
from heatbath.torch.data import (
    LOADER,
    Data,
    device_of,
    is_loader,
    is_pair,
)
from heatbath.torch.optim import seeds
from heatbath.torch.optim.chains import Chains
from heatbath.torch.optim.posterior import LossPosterior
from heatbath.torch.prediction.predict import outputs, predict
from heatbath.torch.prediction.samples import by_chain
from heatbath.torch.prediction.states import tensors
from heatbath.torch.sampling import file
from heatbath.torch.sampling.batches import Epochs
from heatbath.torch.sampling.report import Report
from heatbath.training.auto import BUDGET
from heatbath.training.stepsize import OFF, SURELY

if TYPE_CHECKING:
    import arviz
    import xarray as xr
from heatbath._internal.warnings import NotConvergedWarning
from heatbath.torch.sampling.settings import (
    MEANINGS,
    Named,
    SamplerSettings,
    checksum,
    examples_of,
    look_at,
    parts_of,
)
from heatbath.torch.sampling.trajectory import Trajectory

Loss: TypeAlias = (
    Literal["cross_entropy", "binary_cross_entropy_with_logits", "mse_loss", "poisson_nll_loss"]
    | Callable[[Tensor, Tensor], Tensor]
)
BATCH, ALL = 128, 256  # examples of a step of a chain; so few are all seen at every step
TOP, FACTOR, FINEST = 0.4, 2.0, 1e-4  # the stepsizes that are tried
STUBBORN = 0.75  # of what a temperature was off by, at half the stepsize: it is not that
SHARES = (1 / 8, 1 / 4, 1 / 2)  # of the steps, that the burn-in may have
EFFECTIVE = 50.0  # samples that tell as much: the mean is known to a seventh of the spread
FIRST = 500  # steps before it is first asked whether a run of no given length has converged
KIND = "sampler"


class Sampler:
    """Chains around a trained module: `run` them, then `predict`, `report`, `save`.

    >>> import torch
    >>> from heatbath.torch import Sampler
    >>> X = torch.linspace(-2, 2, 100)[:, None]
    >>> y = (X[:, 0] + 0.5 * torch.randn(100, generator=torch.Generator().manual_seed(0)) > 0).long()
    >>> model = torch.nn.Linear(1, 2)
    >>> fit = torch.optim.LBFGS(model.parameters(), max_iter=50)
    >>> def closure():
    ...     fit.zero_grad()
    ...     loss = torch.nn.functional.cross_entropy(model(X), y) + 0.005 * model.weight.square().sum()
    ...     loss.backward()
    ...     return loss
    >>> loss = fit.step(closure)
    >>> sampler = Sampler(model, "cross_entropy", (X, y), seed=1).run(steps=600)
    >>> prediction = sampler.predict(X)  # mean, variance, entropy and what the networks disagree about
    >>> prediction.mean.shape, sampler.report(X, y).averaged["log_loss"].value < 0.4
    (torch.Size([100, 2]), True)

    - `loss`: the name of torch's function, for outputs whose last axis has the classes, or of the shape of
      the targets; or a function of outputs and targets that is the mean over examples of -log likelihood, and
      then `task` says what predictions mean (see `predict`).
    - `data`: tensors (x, y), or a loader, whose examples are counted by going through it once.
    - `prior`, `temperature`, `noise`: as in `Posterior`; a temperature below 1 is a cold posterior. The noise
      of a regression is sampled with the parameters unless its standard deviation is given.
    - `chains`: how many, and `samples`: how many of each are kept at most.
    - `batch`: examples that a chain sees at a step, where data are tensors: 128 unless told, and all where
      there are 256 or fewer.
    - `lr`, `gamma`: stepsize and friction of Langevin dynamics; "auto" finds the stepsize.
    - `seed`: of noise and batches; None for one that is made as an optimiser makes it.

    The module is copied, and not changed; what has `requires_grad=False` does not move. How all else is found
    stands in `sampler`, the module.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        data: Data,
        *,
        task: Task | None = None,
        prior: Any = 1.0,
        noise: float | Literal["sampled"] = "sampled",
        temperature: float = 1.0,
        chains: int = 4,
        samples: int = 64,
        batch: int | None = None,
        lr: float | Literal["auto"] = "auto",
        gamma: float = 0.3,
        seed: int | None = None,
    ) -> None:
        wrong: list[str] = []

        def checked(check: Callable[..., Any], *given: Any, **bounds: Any) -> Any:
            try:
                return check(*given, **bounds)
            except (TypeError, ValueError) as error:
                wrong.append(str(error))
                return None

        if not isinstance(model, nn.Module) or isinstance(model, Chains):
            wrong.append(f"model must be a torch module, got {shown(model)}")
        elif not any(p.requires_grad for p in model.parameters()):
            wrong.append("no parameter of the model moves: all have requires_grad=False")
        named = isinstance(loss, str)
        if (named and loss not in MEANINGS) or (not named and not callable(loss)):
            wrong.append(f"loss must be a function, or one of {', '.join(MEANINGS)}; got {shown(loss)}")
        elif named and task not in (None, MEANINGS[str(loss)]):
            wrong.append(f"the task of {loss} is {MEANINGS[str(loss)]!r}: leave it out, got {shown(task)}")
        elif not named:
            checked(choice, "task, which a loss of your own needs,", task, tuple(TASKS))
        if is_pair(data):
            if len(data[0]) != len(data[1]) or not len(data[0]):
                wrong.append(
                    f"data must have as many targets as inputs, and some, got {len(data[0])} inputs and "
                    f"{len(data[1])} targets"
                )
        elif not is_loader(data, repeatable=True):
            wrong.append(f"data must be tensors (x, y), or {LOADER}; got {shown(data)}")
        elif batch is not None:
            wrong.append(f"batch is for tensors, and a loader has its own; got {shown(batch)}")
        chains = checked(whole, "chains", chains, low=1, high=2**31)
        samples = checked(whole, "samples", samples, low=8)
        batch = None if batch is None else checked(whole, "batch", batch, low=1)
        if lr != "auto":
            lr = checked(real, "lr, unless it is 'auto',", lr, POSITIVE)
        gamma = checked(real, "gamma", gamma, POSITIVE)
        checked(real, "temperature", temperature, POSITIVE)
        seed = seeds.new_seed() if seed is None else checked(whole, "seed", seed, low=0, high=2**63)
        if not wrong:
            name = loss if isinstance(loss, str) else "negative_log_likelihood"
            checked(LossPosterior, name, 2, prior, noise if name == "mse_loss" else "sampled", temperature)
            if noise != "sampled" and name != "mse_loss":
                wrong.append(f"noise is for mse_loss, got {shown(noise)}")
        if wrong:
            raise ValueError(f"Sampler: {'; '.join(wrong)}")
        size = None if is_pair(data) and len(data[0]) <= ALL and batch is None else batch or BATCH
        self._single = deepcopy(model).eval()
        self._data: Epochs | None = Epochs(data, size, chains, seed, device_of(model))
        self._checksum = checksum(self._data)
        self._loss = loss if callable(loss) else Named(MEANINGS[loss])
        self.settings = replace(
            look_at(self._single, self._loss, self._data, loss, task),
            prior=list(prior) if isinstance(prior, tuple) else prior, noise=noise, temperature=temperature,
            chains=chains, samples=samples, lr=lr, gamma=gamma, seed=seed,
        )  # fmt: skip
        self._begin()

    def _begin(self) -> None:
        """Nothing has been run yet."""
        self.seconds, self.gradients = 0.0, 0
        self.tried: list[tuple[float, float]] = []
        self._calls: list[tuple[str, float, float]] = []  # of run: what was asked for, and where it ends
        self._former: list[tuple[str, float, float]] = []  # those of a checkpoint, to be asked for again
        self._lost: set[int] = set()
        self._course = Trajectory(self, TOP if self.settings.lr == "auto" else self.settings.lr)

    # Running

    def run(
        self,
        *,
        steps: int | None = None,
        seconds: float | None = None,
        progress: Callable[[Progress], None] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        every: float = 60.0,
    ) -> Sampler:
        """Sample: for so many `steps` of every chain, or so many `seconds`, or until the predictions have
        converged, at most 20,000 steps. Called again, it goes on.

        Steps at stepsizes that were too large do not count as steps, but take their time. Ctrl-C warns
        (`InterruptedWarning`) and returns the sampler with what is there.

        - `progress`: a function that is called with a `Progress` about ten times a second.
        - `checkpoint`: a file that has the whole sampler up to now, replaced every `every` seconds and at the
          end. A new sampler of the same settings, model and data goes on from it with the same calls, and
          has the same bits at each step as one that was never stopped.

        At the end it warns where chains have not converged (`NotConvergedWarning`), where they are not at
        their temperature (`OffTemperatureWarning`), and of chains that diverged (`DivergedWarning`).
        """
        wrong = [] if steps is None or seconds is None else ["steps and seconds: say one of them, or none"]
        try:
            steps = None if steps is None else whole("steps", steps, low=1)
            seconds = None if seconds is None else real("seconds", seconds, POSITIVE)
            every = real("every", every, POSITIVE)
        except (TypeError, ValueError) as error:
            wrong.append(str(error))
        if progress is not None and not callable(progress):
            wrong.append(f"progress must be a function or None, got {shown(progress)}")
        if self._data is None:
            wrong.append("there are no data: a sampler that was loaded goes on with load(path, model, data=)")
        if wrong:
            raise ValueError(f"run: {'; '.join(wrong)}")
        if checkpoint is not None and not self._calls and os.path.exists(checkpoint):
            self._adopt(checkpoint)
        asked = ("steps", steps) if steps else ("seconds", seconds) if seconds else ("auto", BUDGET)
        end = self._end_of(*asked)
        finished = self._sample(asked[0], end, progress, checkpoint, every)
        if checkpoint is not None:
            self.save(checkpoint)
        if not finished:
            warn(
                f"interrupted at step {self.step}: what is there can be used, and run() goes on",
                InterruptedWarning,
            )
        self._warn()
        return self

    def _end_of(self, kind: str, amount: float) -> float:
        """Where a call ends: at a step, or after so many seconds in all; that of a checkpoint again."""
        if self._former:
            known = self._former.pop(0)
            if known[:2] != (kind, amount):
                raise ValueError(
                    f"the checkpoint was made by run({known[0]}={known[1]:g}), and this is run({kind}="
                    f"{amount:g}): make the same calls, or load it and go on from there"
                )
        else:
            known = kind, amount, amount + (self.seconds if kind == "seconds" else self.step)
        self._calls.append(known)
        return known[2]

    def _sample(self, kind: str, end: float, progress: Any, checkpoint: Any, every: float) -> bool:
        """Make the steps of a call; False if Ctrl-C came first."""
        begin = saved = told = time.perf_counter()
        before, first = self.seconds, self.step

        def done() -> bool:
            if kind == "seconds":
                return self.seconds >= end
            if kind == "auto" and self.step >= FIRST and math.log2(self.step / FIRST).is_integer():
                return self.step >= end or self.has_converged
            return self.step >= end

        with deferred_interrupts() as interrupted:
            while not done():
                if interrupted():
                    return False
                losses = self._advance()
                now = time.perf_counter()
                self.seconds = before + now - begin
                if progress is not None and now - told >= 0.1:
                    told, spent = now, now - begin
                    speed = max(self.step - first, 1) / max(spent, 1e-9)
                    last = self.step + speed * (end - self.seconds) if kind == "seconds" else end
                    heat = {part: float(v) for part, v in self._course.heat_now().items()}
                    loss = float(losses.mean())
                    trying = self.settings.lr == "auto" and self.step <= self._course.trial
                    progress(Progress(self.step, int(last), spent, loss, heat, first, finding=trying))
                if checkpoint is not None and now - saved >= every:
                    self.save(checkpoint)
                    saved = time.perf_counter()
        return True

    def _advance(self) -> Tensor:
        """A step of all chains; at a stepsize that is too large they begin anew."""
        course, settings = self._course, self.settings
        losses = course.advance()
        self.gradients += settings.chains
        lost = set((~losses.isfinite()).nonzero().flatten().tolist())
        if settings.lr != "auto":
            if len(lost) == settings.chains:
                raise FloatingPointError(
                    f"all chains diverged by step {self.step}: choose a smaller lr than {course.h:g}"
                )
            if lost - self._lost:
                text = ", ".join(map(str, sorted(lost)))
                warn(f"chains {text} diverged by step {self.step}: a smaller lr may help", DivergedWarning)
            self._lost |= lost
            return losses
        heat = course.trial_heat() if course.step == course.trial and not lost else math.nan
        if lost or (abs(heat - 1) > OFF + course.unsure and (course.grows() or self._falls(heat))):
            self.tried.append((course.h, heat))
            if course.h / FACTOR < FINEST:
                raise FloatingPointError(
                    f"no stepsize down to {course.h:.2g} holds the temperature (the last was at {heat:.2g} "
                    "times what it should be): look at the loss and the scales of the data, take larger "
                    "batches or more friction"
                )
            self._course = Trajectory(self, course.h / FACTOR)
        return losses

    def _falls(self, heat: float) -> bool:
        """Whether a temperature that is off depends on the stepsize, as far as the one before can tell: what
        a start far from equilibrium sets free does not, and takes its time at any."""
        before = self.tried[-1][1] if self.tried else math.nan
        return not abs(heat - 1) > STUBBORN * abs(before - 1)

    # What there is

    @property
    def step(self) -> int:
        """How many steps every chain has made."""
        return self._course.step

    @property
    def lr(self) -> float:
        """The stepsize."""
        return self._course.h

    @property
    def chains(self) -> Chains:
        """The chains as they are now."""
        return self._course.chains

    @property
    def burn_in(self) -> int:
        """The steps before the samples that count: by what the chains say."""
        for share in SHARES[:-1]:
            burn_in = int(share * self.step)
            agreed = self._agreement(burn_in)
            if agreed is not None and agreed.rhat <= CONVERGED and not _off(self._heats(burn_in), 0):
                return burn_in
        return int(SHARES[-1] * self.step)

    @property
    def convergence(self) -> Convergence | None:
        """R-hat and effective size of the predictions for training examples after the burn-in; None where
        there are too few samples, or chains."""
        return self._agreement(self.burn_in)

    @property
    def has_converged(self) -> bool:
        """Whether the median R-hat is at most 1.1 and the median effective size at least 50."""
        known = self.convergence
        return known is not None and known.rhat <= CONVERGED and known.ess >= EFFECTIVE

    def _agreement(self, after: int) -> Convergence | None:
        said = [note.said for step, note in self._course.notes.items() if step > after]
        if len(said) < 4:
            return None
        every, alive = np.stack(said, axis=1), self._alive(after)
        return converged(every[alive]) if np.count_nonzero(alive) > 1 else None

    def temperatures(self) -> dict[str, tuple[Estimate, Estimate]]:
        """The kinetic and the configurational temperature of each part after the burn-in, in units of what
        they should be: both are 1 where the law is right."""
        return self._heats(self.burn_in)

    def _heats(self, after: int) -> dict[str, tuple[Estimate, Estimate]]:
        heats = [note.heat for step, note in self._course.notes.items() if step > after]
        if not heats:
            return {}
        every = np.stack(heats, axis=-1)  # (parts, 2, chains, samples)
        every = every[:, :, self._alive(after) & np.isfinite(every).all(axis=(0, 1, 3))]
        if not every.shape[2]:
            return {}
        pairs = [tuple(statistics.mean(series) for series in part) for part in every]
        return dict(zip(self._course.parts, pairs, strict=True))  # type: ignore[arg-type]

    @property
    def noise(self) -> float | None:
        """The mean variance of the data around a regression after the burn-in."""
        if self.settings.task != "regression" or self.settings.loss != "mse_loss":
            return None
        if self.settings.noise != "sampled":
            return float(self.settings.noise) ** 2
        return float(np.mean(self._noises()[self._alive()]))

    def _alive(self, after: int | None = None) -> NDArray[np.bool_]:
        """Which chains have been finite at every sample, since the burn-in or another step."""
        after = self.burn_in if after is None else after
        notes = [note for step, note in self._course.notes.items() if step > after]
        finite = [np.isfinite(n.said.reshape(len(n.said), -1)).all(axis=1) for n in notes]
        return np.asarray(np.all([np.ones(self.settings.chains, bool), *finite], axis=0))

    def _noises(self) -> NDArray[np.float64]:
        """(chains, samples), of all chains."""
        burn_in = self.burn_in
        return np.stack([v.noise for step, v in self._course.notes.items() if step > burn_in], axis=1)

    def _states(self) -> dict[int, dict[str, Tensor]]:
        """The samples after the burn-in, by their steps."""
        burn_in, samples = self.burn_in, self._course.samples
        pairs = zip(samples.steps, samples, strict=True)
        states = {step: state for step, state in pairs if step > burn_in}
        if not states:
            raise ValueError("there are no samples yet: run() the sampler first")
        return states

    def _networks(self) -> list[dict[str, Tensor]]:
        """The module's states in the samples after the burn-in, of all chains that are alive."""
        alive = self._alive()
        if not alive.all():
            lost = ", ".join(map(str, np.flatnonzero(~alive)))
            warn(
                f"chains {lost} are not finite, or were not since the burn-in: they are left out",
                DivergedWarning,
            )
        every = (enumerate(self.chains.states(state)) for state in self._states().values())
        return [own for chains in every for chain, own in chains if alive[chain]]

    def _warn(self) -> None:
        """Say what is wrong with the samples."""
        batches = "larger batches, " if self.settings.own else ""
        if not self.has_converged:
            known = self.convergence
            told = "too few samples, or chains, to tell"
            if known is not None:
                told = f"median R-hat {known.rhat:.2f}, effective size {known.ess:.0f}"
            warn(
                f"the chains have not converged in {self.step} steps ({told}; wanted are R-hat below "
                f"{CONVERGED} and {EFFECTIVE:.0f}): run() goes on. What they say together may be of use all "
                "the same: see report()",
                NotConvergedWarning,
            )
        heats = self.temperatures()
        for label, place in (("kinetic", 0), ("configurational", 1)):
            if off := _off(heats, place):
                text = ", ".join(f"{part}: {h.value:.2f} ± {h.error:.2f}" for part, h in off.items())
                remedy = f"{batches}a smaller lr or more friction" + (" or more steps" if place else "")
                warn(
                    f"the {label} temperature is not what it should be, in units of that ({text}): {remedy} "
                    "bring it closer",
                    OffTemperatureWarning,
                )

    def __repr__(self) -> str:
        own = self.settings
        law = f"{own.loss}, T = {own.temperature:g}, prior {own.prior}, {own.n:,} examples"
        lines = [
            f"{own.chains} chains around {type(self._single).__name__}, {law}",
            f"{self.step:,} steps at lr = {self.lr:g}, γ = {own.gamma:g}, batches of {own.batch}, "
            f"{self.seconds:.1f} s",
        ]
        if self.step:
            burn_in, known = self.burn_in, self.convergence
            kept = sum(step > burn_in for step in self._course.notes)
            agreed = "" if known is None else f", R-hat {known.rhat:.2f}, effective size {known.ess:.0f}"
            lines.append(f"{own.chains * kept} samples after {burn_in:,} steps{agreed}")
            for part, (kinetic, other) in self.temperatures().items():
                lines.append(
                    f"temperature of {part}: {kinetic.value:.3f}, configurational {other.value:.3f} "
                    "(1 is right)"
                )
        return "\n  ".join(["Sampler(", *lines]) + "\n)"

    # Answers

    def predict(self, x: Any) -> Prediction[Tensor]:
        """What all samples after the burn-in say together of x: mean, spread and entropies, in a
        `Prediction`. x is what the module takes, an array, or a loader of batches; of a regression the
        spread is that of new data, with their noise."""
        return predict(self._single, self._networks(), parts_of(x), task=self.settings.task, noise=self.noise)

    def report(self, x: Any, y: Any = None) -> Report:
        """What the averaged prediction is worth on examples that were not trained on, beside the single
        network that the sampler began with: log loss, Brier score, calibration error, accuracy, or what a
        task has, with their intervals. x and y are tensors or arrays, or x is a loader of both.

        `WorseThanSingleWarning` warns where the average is worse by more than chance.
        """
        x, y = examples_of(x, y)
        law = None
        single = predict(self._single, [self._single.state_dict()], x, task=self.settings.task)
        if TASKS[self.settings.task].classes:
            said = predict(self._single, self._networks(), x, task=self.settings.task)
            return Report.of_classes(self.settings.task, y, said.mean, single.mean)
        every = outputs(self.chains, self._states().values(), x, task=self.settings.task)
        alive = self._alive() & np.isfinite(every.reshape(len(every), -1)).all(axis=1)
        every = every[alive]
        if self.settings.loss == "mse_loss":
            known = self.settings.noise
            noises = self._noises()[alive] if known == "sampled" else np.full(every.shape[:2], known**2)
            law = noises.reshape(-1), self.settings.squares if known == "sampled" else known**2
        return Report.of_values(self.settings.task, y, every.reshape(-1, *every.shape[2:]), single.mean, law)

    def to_arviz(self, x: Any, parameters: bool = False) -> arviz.InferenceData | xr.DataTree:
        """The samples after the burn-in for ArviZ, see `Samples.to_arviz`; with `sigma`, the standard
        deviation of the noise, where that is sampled."""
        states = self._states()
        said = outputs(self.chains, states.values(), parts_of(x), task=self.settings.task)
        group = by_chain(self.chains, states, said, parameters)
        if self.settings.task == "regression" and self.settings.noise == "sampled":
            sigma = np.sqrt(self._noises())[group["chain"].values]
            group = group.assign(sigma=(("chain", "draw"), sigma))
        return for_arviz({"posterior": group})

    # Files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything but the architecture and the data to a file (safetensors), whole or not at all."""
        found, plain = self._course.pack()
        found |= {f"single/{name}": value for name, value in tensors(self._single.state_dict()).items()}
        told = {
            "settings": asdict(self.settings),
            "seconds": self.seconds,
            "gradients": self.gradients,
            "tried": [(h, None if math.isnan(heat) else heat) for h, heat in self.tried],
            "calls": self._calls + self._former,
            "lost": sorted(self._lost),
            "data": self._checksum,
            "course": plain,
        }
        file.write(path, KIND, found, told)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        model: nn.Module,
        data: Data | None = None,
        loss: Callable[[Tensor, Tensor], Tensor] | None = None,
    ) -> Sampler:
        """The sampler in a file, for a module of the same architecture, whose parameters do not matter.

        It predicts and reports; to go on it needs the data again, and the loss where that was a function.
        """
        found, told = file.read(path, KIND)
        try:
            self = cls.__new__(cls)
            self.settings = SamplerSettings(**told["settings"])
            self._single = deepcopy(model).eval()
            single = {
                name.removeprefix("single/"): value
                for name, value in found.items()
                if name.startswith("single/")
            }
            self._single.load_state_dict(single, strict=not _has_extra(self._single))
            own, named = self.settings, self.settings.loss in MEANINGS
            self._loss = Named(own.task) if named else loss or _missing
            self._data = None
            if data is not None:
                if not named and loss is None:
                    raise ValueError("its loss was a function: give it as loss=")
                size = own.batch if own.own else None
                if not is_pair(data) and not is_loader(data, repeatable=True):
                    raise TypeError(f"data must be tensors (x, y), or {LOADER}; got {shown(data)}")
                self._data = Epochs(data, size, own.chains, own.seed, device_of(model))
                if self._data.n != own.n or checksum(self._data) != told["data"]:
                    raise ValueError("these are not the data that it has sampled with")
            self._checksum = str(told["data"])
            self._begin()
            self._restore(found, told)
        except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
            raise ValueError(f"{path} is not a sampler of this model: {_short(error)}") from error
        return self

    def _restore(self, found: dict[str, Tensor], told: dict[str, Any]) -> None:
        self.seconds, self.gradients = float(told["seconds"]), int(told["gradients"])
        self.tried = [(h, math.nan if heat is None else heat) for h, heat in told["tried"]]
        self._calls = [(kind, amount, end) for kind, amount, end in told["calls"]]
        self._lost = set(told["lost"])
        self._course = Trajectory(self, float(told["course"]["h"]))
        self._course.unpack(found, told["course"])

    def _adopt(self, checkpoint: str | os.PathLike[str]) -> None:
        """Go on from the checkpoint of a sampler like this one."""
        found, told = file.read(checkpoint, KIND)
        here = asdict(self.settings)
        wrong = [name for name, value in told["settings"].items() if here.get(name) != value]
        single = {f"single/{name}": value for name, value in tensors(self._single.state_dict()).items()}
        there = {name: value for name, value in found.items() if name.startswith("single/")}
        wrong += ["model"] if file.digest(single) != file.digest(there) else []
        wrong += ["data"] if told["data"] != self._checksum else []
        if wrong:
            raise ValueError(
                f"{checkpoint} is of another sampler, with other {', '.join(wrong)}: it is left alone. "
                "Choose another name, or go on with Sampler.load"
            )
        self._restore(found, told)
        self._former, self._calls = self._calls, []


def _off(heats: dict[str, tuple[Estimate, Estimate]], place: int) -> dict[str, Estimate]:
    """The parts whose kinetic or configurational temperature is off by more than its error."""
    return {
        part: pair[place]
        for part, pair in heats.items()
        if math.isfinite(pair[place].error)
        and abs(pair[place].value - 1) > OFF + min(2 * pair[place].error, SURELY)
    }


def _has_extra(model: nn.Module) -> bool:
    return any(name.endswith("_extra_state") for name in model.state_dict())


def _missing(*_: object) -> Tensor:
    raise ValueError("the loss of this sampler was a function, and is not in its file: load with loss=")


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
