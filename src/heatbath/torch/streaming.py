"""Train a model on a stream that never ends, of which the latest examples count.

Legend: n is the number of examples that count: all since the start, or the last `window`, or those since the
data changed. τ is the temperature, T that of the posterior (1 unless it's cold), κ the factor of the loss, ς
the standard deviation of the prior, h the stepsize, γ the friction, θ the parameters, s² the variance of the
gradient's noise for each parameter, ξ the friction of a thermostat, σ its noise.

What is sampled: before each batch is learned, the posterior's n is set, so that τ = Tκ/n and `weight_decay` =
κ/(ς²n) (see `heatbath.torch.optim.posterior`). Then

- with batch="all" every step has the gradient of the mean loss of the n examples that count. The law that the
  chain would have if the stream stood still is their posterior, as exactly as the method samples any. While
  the stream continues, some of the n are exchanged with each batch, and the chain follows as it relaxes;
- with batch=m (None: as many as arrived) a step has m of these n, drawn uniformly. That is the same, and the
  gradient's noise heats as mini-batches always do;
- with batch="fresh" a step has the examples that just arrived, and nothing is kept. Then the mean is that of
  the law of the data, and not of n examples of it. The spread around it is that of a posterior of n examples,
  plus that of the gradient's noise: for U = kθ²/2 by BAOAB

      k var θ = τ + h² s² (1 + a)/((1 - a)(4 - h²k)),  a = exp(-γh),

  which for small γh is τ + h s²/(2γ). Where the model is right s² is kκ/b for b examples, so that even at
  τ = 0 the spread is that of a posterior of 2γb/(hk) examples: so long a window a chain on fresh examples has
  by itself, and a larger n changes little. An adaptive part removes the gradient's noise as far as it is the
  same for all of its parameters, so that its n means what it says.
"""

from __future__ import annotations

import math
import warnings
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from heatbath._internal.checks import shown, whole
from heatbath._internal.interrupts import deferred_interrupts
from heatbath._internal.warnings import DivergedWarning, warn
from heatbath.diagnostics.drift import FALSE_ALARMS, SETTLED, DriftWarning, Watch
from heatbath.diagnostics.statistics import NORMAL, BlockAverage, Estimate
from heatbath.models.likelihood import COST_OF_DRAW, FEWEST_STEPS_BETWEEN_DRAWS, GRADIENT_COST
from heatbath.reference import random
from heatbath.torch.data import CHUNK_SIZE, is_pair, prepare_inputs
from heatbath.torch.optim.optimizer import Partitioned
from heatbath.torch.optim.param_groups import ParamGroup, group_of_chain, values_of
from heatbath.torch.optim.temperature import labels
from heatbath.torch.prediction.batchnorm import evaluation_mode
from heatbath.torch.prediction.states import check_module, is_chains, select_tensors

DEFAULT_WINDOW = 10_000  # examples that count
MOST_BATCHES = 4096  # whose sizes are remembered, so that a drift can be dated
MOST_NAMES = 3  # of parameters in a message
COUNTS = ("seen", "batches", "n", "_steps_made", "_step_of_draw")  # attributes of a stream, as they are saved

Loss = Callable[[Any, Tensor], Tensor]


class Learned(NamedTuple):
    """Result of learning a batch.

    Attributes
    ----------
    loss
        Mean loss of the batch before it was learned.
    n
        Number of examples that count now.
    drift
        The drift, if the data were seen to have changed; otherwise None.

    Examples
    --------
    >>> import torch
    >>> from heatbath.torch import Langevin, LossPosterior, Stream
    >>> model = torch.nn.Linear(2, 1)
    >>> posterior = LossPosterior("mse_loss", n=1, noise=0.1)
    >>> optimizer = Langevin(model, lr=0.1, gamma=1.0, posterior=posterior)
    >>> stream = Stream(model, optimizer, torch.nn.functional.mse_loss, window=500)
    >>> learned = stream.learn(torch.ones(20, 2), torch.zeros(20, 1))
    >>> learned.n, learned.drift
    (20, None)
    """

    loss: float
    n: int
    drift: DriftWarning | None


class Window:
    """The latest examples in the order of their arrival, in tensors that are overwritten cyclically.

    Attributes
    ----------
    capacity
        Largest number of examples that are kept.
    first
        Row of the oldest example in the tensors.
    count
        Number of examples.
    tensors
        Storage: one tensor each for inputs and targets, at most twice as long as needed so far.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.first = 0
        self.count = 0
        self.tensors: tuple[Tensor, ...] = ()

    def add(self, *batch: Tensor) -> None:
        """Append examples; the oldest are dropped if there are more than `capacity`.

        Parameters
        ----------
        *batch
            Inputs and targets, tensors of equal length. Type and shape must be those of the examples before.
        """
        kept_batch = tuple(tensor.detach()[-self.capacity :] for tensor in batch)
        self._check_types(kept_batch)
        added = len(kept_batch[0])
        self._grow(self.count + added, kept_batch)

        row_count = len(self.tensors[0])
        rows = (self.first + self.count + torch.arange(added)) % row_count
        for storage, examples in zip(self.tensors, kept_batch, strict=True):
            storage[rows.to(storage.device)] = examples

        dropped = max(0, self.count + added - self.capacity)
        self.first = (self.first + dropped) % row_count
        self.count += added - dropped

    def _check_types(self, batch: tuple[Tensor, ...]) -> None:
        """Refuse examples whose type or shape differs from that of the kept ones."""
        for storage, examples in zip(self.tensors, batch, strict=False):
            kept_shape = tuple(storage.shape[1:])
            shape = tuple(examples.shape[1:])
            if storage.dtype != examples.dtype or kept_shape != shape:
                raise ValueError(
                    "examples that are kept must have the same shape and type: those before were "
                    f"{storage.dtype} {kept_shape}, got {examples.dtype} {shape}; make them alike, or learn "
                    "with batch='fresh', which keeps none"
                )

    def _grow(self, needed: int, batch: tuple[Tensor, ...]) -> None:
        """Make room for this many examples, up to the capacity; new tensors are of the types of the batch."""
        row_count = len(self.tensors[0]) if self.tensors else 0
        if needed <= row_count or row_count >= self.capacity:
            return
        larger_count = min(self.capacity, max(2 * row_count, needed))
        kept = self.to_list()
        self.tensors = tuple(examples.new_empty((larger_count, *examples.shape[1:])) for examples in batch)
        self.first = 0
        for storage, examples in zip(self.tensors, kept, strict=False):
            storage[: self.count] = examples

    def rows(self, indices: Tensor) -> tuple[Tensor, ...]:
        """Return inputs and targets of some examples by their age: 0 is the oldest."""
        rows = (self.first + indices) % len(self.tensors[0])
        return tuple(tensor[rows.to(tensor.device)] for tensor in self.tensors)

    def to_list(self) -> list[Tensor]:
        """Return all examples in order, inputs and targets; [] where there are none."""
        if not self.count:
            return []
        return list(self.rows(torch.arange(self.count)))

    def keep(self, latest: int) -> None:
        """Drop all but this many of the latest examples."""
        dropped = max(0, self.count - latest)
        self.first += dropped
        self.count -= dropped


class Stream:
    """A model that learns from batches as they arrive, for as long as they do: `stream.learn(x, y)`.

    What is sampled is described in the module `heatbath.torch.streaming`. The loss of a batch before it is
    learned is watched, and so is the friction of adaptive parts once n has settled: the gradient noise that
    follows from it, (2τξ - σ²)/h, rises when data change, while the kinetic temperature stays at τ.
    `DriftWarning` warns, and is in the result of `learn`.

    A batch whose loss is not finite, or that doesn't have the shape of those that are kept, is refused, and
    nothing changes; one with which a step raises an error (as batch norms do with one example) counts as
    seen. Ctrl-C waits for the end of the batch. A noise that is sampled (`LossPosterior("mse_loss", ...)`) is
    drawn here, now and then.

    Parameters
    ----------
    model
        A module, or `Chains` of one.
    optimizer
        An optimiser of heatbath with a posterior, whose n then follows; one without a posterior, and any of
        torch, is stepped as it is.
    loss
        Function of outputs and targets: the mean over the batch.
    window
        How many of the latest examples count. They are kept in memory, on their device. None: all count that
        were seen since the data changed, and none is kept.
    batch
        Examples of a step: a number of those that count, drawn for each step (None: as many as arrived);
        "all" of them; or "fresh", those that just arrived.
    steps
        Number of steps with each batch.
    forget
        On a drift, let only the examples since the change count.
    false_alarms
        Average number of batches between two false alarms, at least; see `drift`. Infinite: watch nothing.
    samples
        How many of the latest states of the model to keep, one after each batch, for
        `predict(model, stream.samples, x, task=...)`.

    Attributes
    ----------
    seen, batches : int
        Number of examples and of batches that arrived.
    n : int
        Number of examples that count.
    samples : deque
        The latest states of the model.

    Raises
    ------
    TypeError, ValueError
        If an argument is wrong, or a sampled noise has no window to be drawn from.

    Examples
    --------
    >>> import torch
    >>> from heatbath.torch import LaLa, LossPosterior, Stream
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 20), torch.nn.Tanh(), torch.nn.Linear(20, 1))
    >>> loss = torch.nn.functional.binary_cross_entropy_with_logits
    >>> posterior = LossPosterior("binary_cross_entropy_with_logits", n=1)  # n follows
    >>> stream = Stream(model, LaLa(model, lr=0.1, gamma=1.0, posterior=posterior), loss, window=500)
    >>> for _ in range(30):  # or a generator, or a loader, without an end
    ...     x = torch.randn(20, 2)
    ...     learned = stream.learn(x, (x[:, :1] > 0).float())
    >>> stream.seen, stream.n
    (600, 500)
    >>> stream.loss  # of each batch before it was learned  # doctest: +ELLIPSIS
    Estimate(value=..., error=...)
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        loss: Loss,
        *,
        window: int | None = DEFAULT_WINDOW,
        batch: int | Literal["all", "fresh"] | None = None,
        steps: int = 1,
        forget: bool = True,
        false_alarms: float = FALSE_ALARMS,
        samples: int = 0,
    ) -> None:
        """Check the arguments, and start with no examples and with a watch for each series."""
        check_module(model)
        if not isinstance(optimizer, Optimizer) or not callable(loss):
            raise TypeError(
                "Stream: a module, its optimiser and a loss of outputs and targets are needed, got "
                f"{shown(optimizer)} and {shown(loss)}"
            )
        self.model = model
        self.optimizer = optimizer
        self._loss = loss
        self.window = None if window is None else whole("Stream: window", window, low=1)
        self.batch = _checked_batch(batch, self.window)
        self.steps = whole("Stream: steps", steps, low=1)
        self.forget = bool(forget)
        self.samples: deque[dict[str, Tensor]] = deque(maxlen=whole("Stream: samples", samples, low=0))

        self.seen = 0
        self.batches = 0
        self.n = 0
        self._diverged: set[int] = set()  # chains that a warning has named
        self._steps_made = 0
        self._step_of_draw = 0  # number of steps at the last draw of the noise
        self._losses = BlockAverage()
        self._sizes: deque[int] = deque(maxlen=MOST_BATCHES)  # of the batches that count
        self._recent = None if self.batch == "fresh" else Window(self.window or 1)
        if self._recent is None and self._samples_noise:
            raise ValueError(
                "Stream: a noise that is sampled needs the residuals of all examples that count: give the "
                "posterior noise= a number, or the stream a window and another batch than 'fresh'"
            )

        part_names = labels(self._groups)
        adaptive_parts = [index for index, group in enumerate(self._groups) if "xi" in group]
        bound = false_alarms * (1 + len(adaptive_parts))  # because each series may raise a false alarm
        self._watch = Watch("the loss before learning", bound)
        self._frictions = {
            index: Watch(f"the friction of part {part_names[index]!r}", bound) for index in adaptive_parts
        }

    def __repr__(self) -> str:
        text = f"{self.seen:,} examples in {self.batches:,} batches, {self.n:,} count"
        if self.batches:
            loss = self.loss
            text += f", loss before learning {loss.value:.4g}"
            if math.isfinite(loss.error):
                text += f" ± {NORMAL * loss.error:.2g}"
        return f"Stream({text})"

    @property
    def loss(self) -> Estimate:
        """Mean over all batches of their losses before they were learned, with its standard error."""
        return self._losses.estimate()

    @property
    def _groups(self) -> list[ParamGroup]:
        """The groups of an optimiser of heatbath; [] for any other."""
        return self.optimizer.param_groups if isinstance(self.optimizer, Partitioned) else []

    @property
    def _samples_noise(self) -> bool:
        """True if the noise of the data is sampled with the parameters."""
        return any("noise" in group for group in self._groups)

    @property
    def _watches(self) -> list[Watch]:
        """The watches of the loss and of the frictions, in the order of a saved state."""
        return [self._watch, *self._frictions.values()]

    # Learning

    def learn(self, x: object, y: object) -> Learned:
        """Compute the loss of a batch, and then learn the batch.

        Parameters
        ----------
        x, y
            Inputs and targets, tensors or arrays of equal length.

        Returns
        -------
        Learned
            Loss before learning, number of examples that count, and the drift if there is one.

        Raises
        ------
        ValueError, TypeError
            If the batch is refused; nothing has changed then.

        Warns
        -----
        DriftWarning
            If the data have changed.
        """
        with deferred_interrupts() as interrupted:
            learned = self._learn(*self._checked_examples(x, y))
        if learned.drift is not None:
            warnings.warn(learned.drift, stacklevel=2)
        if interrupted():
            raise KeyboardInterrupt
        return learned

    def _checked_examples(self, x: object, y: object) -> tuple[Tensor, Tensor]:
        """Return inputs and targets as tensors on the device of the model."""
        pair = prepare_inputs(self.model, x), prepare_inputs(self.model, y)
        if not is_pair(pair) or not all(map(len, pair)):
            raise TypeError(f"learn needs inputs and targets of some examples, got {shown(x)} and {shown(y)}")
        inputs, targets = pair
        if len(inputs) != len(targets):
            raise ValueError(f"there are {len(inputs)} inputs and {len(targets)} targets in a batch")
        return inputs, targets

    def _learn(self, x: Tensor, y: Tensor) -> Learned:
        """Learn checked examples: measure their loss, make the steps, and look for a drift.

        After a drift, examples and samples from before it are forgotten if that is wanted. Otherwise the
        state of the model is added to the samples.
        """
        loss = self._loss_before_learning(x, y)
        growth = self._add_examples(x, y)
        for _ in range(self.steps):
            self._step(x, y)
        self._draw_noise()

        self._losses.add(loss)
        drift = self._find_drift(loss, growth)
        if drift is not None and self.forget:
            self._forget_before(drift.since)
        elif self.samples.maxlen:
            self.samples.append(self._copy_state())
        return Learned(loss, self.n, drift)

    def _copy_state(self) -> dict[str, Tensor]:
        """Return copies on the CPU of the model's parameters and buffers, by name."""
        tensors = select_tensors(self.model.state_dict())
        return {name: tensor.to("cpu", copy=True) for name, tensor in tensors.items()}

    def _compute_losses(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the loss of a batch; for chains that of each, (chains,)."""
        if is_chains(self.model):
            return self.model.each(self._loss, self.model(x), y)
        return self._loss(self.model(x), y)

    def _loss_before_learning(self, x: Tensor, y: Tensor) -> float:
        """Return the loss of a batch in evaluation mode, the mean over the chains where it is finite.

        A warning names chains that have diverged since the last batch.

        Raises
        ------
        ValueError
            If the loss is not one number for each chain, or is finite for none of them.
        """
        with torch.no_grad(), evaluation_mode(self.model):
            losses = self._compute_losses(x, y).double().flatten()
        chain_count = self.model.count if is_chains(self.model) else 1
        if len(losses) != chain_count:
            raise ValueError(
                f"the loss must be one number, the mean over the batch; got {len(losses)} numbers"
            )

        alive = losses.isfinite()
        if not alive.any():
            cause = "check the data"
            broken = [name for name, p in self.model.named_parameters() if not p.isfinite().all()]
            if broken:
                cause = (
                    f"{', '.join(broken[:MOST_NAMES])} of the model are not finite either: it has diverged"
                )
            raise ValueError(f"the loss of a batch is not finite, and nothing was learned of it; {cause}")
        newly_diverged = set((~alive).nonzero().flatten().tolist()) - self._diverged
        if newly_diverged:
            self._diverged |= newly_diverged
            numbers = ", ".join(map(str, sorted(newly_diverged)))
            warn(
                f"chains {numbers} diverged by batch {self.batches}, and the others continue", DivergedWarning
            )
        return float(losses[alive].mean())

    def _add_examples(self, x: Tensor, y: Tensor) -> float:
        """Count a batch and keep it if there is a window; return |change of n|/n."""
        previous_n = self.n
        if self._recent is not None:
            self._recent.add(x, y)
        self.seen += len(x)
        self.batches += 1
        self._sizes.append(len(x))
        self._set_count(min(previous_n + len(x), self.window or math.inf))
        return abs(self.n - previous_n) / self.n

    def _set_count(self, n: float) -> None:
        """Let n examples count, also in the posterior of the optimiser."""
        self.n = int(n)
        excess = sum(self._sizes) - self.n
        while len(self._sizes) > 1 and self._sizes[0] <= excess:
            excess -= self._sizes.popleft()
        if isinstance(self.optimizer, Partitioned) and any("n" in group for group in self._groups):
            self.optimizer.set_examples(self.n)

    def _step(self, x: Tensor, y: Tensor) -> None:
        """Make a step of the optimiser.

        It has examples from the window. Without a window it has those that just arrived, inputs x and targets
        y.
        """
        if self._recent is not None:
            x, y = self._draw_examples(self._recent, len(x))

        def closure() -> Tensor:
            """Compute gradients, and return the loss; for chains that of each."""
            self.optimizer.zero_grad()
            losses = self._compute_losses(x, y)
            torch.autograd.backward(losses.sum())  # the sum: each chain has the gradient of its own loss
            return losses

        self.optimizer.step(closure)  # type: ignore[arg-type]
        self._steps_made += 1

    def _draw_examples(self, window: Window, arrived: int) -> tuple[Tensor, ...]:
        """Return the inputs and targets of a step from the window, when this many examples arrived."""
        examples_per_step = self._examples_per_step(window, arrived)
        if examples_per_step >= window.count:
            return window.rows(torch.arange(window.count))
        group = self._groups[0] if self._groups else {}
        seed = group.get("seed", 0)
        chain = group.get("chain", 0)
        indices = random.batch(seed, chain, self._steps_made, window.count, examples_per_step)
        return window.rows(torch.as_tensor(indices))

    def _examples_per_step(self, window: Window, arrived: int) -> int:
        """Return how many examples a step is to have, when this many arrived."""
        if self.batch == "all":
            return window.count
        return self.batch if isinstance(self.batch, int) else arrived

    def _draw_noise(self) -> None:
        """Draw the noise of the data from all kept residuals, if it is sampled and a draw is due.

        Draws are so rare that they cost a small share of the work of the steps.
        """
        window = self._recent
        if window is None or not self._samples_noise:
            return
        assert isinstance(self.optimizer, Partitioned)
        examples_per_step = self._examples_per_step(window, self._sizes[-1])
        affordable = COST_OF_DRAW * window.count / (GRADIENT_COST * examples_per_step)
        if self._steps_made - self._step_of_draw < max(FEWEST_STEPS_BETWEEN_DRAWS, affordable):
            return

        self._step_of_draw = self._steps_made
        with torch.no_grad(), evaluation_mode(self.model):
            chunks = map(window.rows, torch.split(torch.arange(window.count), CHUNK_SIZE))
            self.optimizer.draw_noise(self.model(x) - y for x, y in chunks)

    # Drift

    def _find_drift(self, loss: float, growth: float) -> DriftWarning | None:
        """Add the loss and the frictions to their watches; return the first drift that one reports, or None.

        Parameters
        ----------
        loss
            Loss of the batch before it was learned.
        growth
            Share by which n has just grown. While n grows the temperature falls, and frictions change without
            a drift.
        """
        if self._watch.false_alarms == math.inf:
            return None
        drift = self._watch.add(loss)
        for index, watch in self._frictions.items():
            noise = gradient_noise(self.optimizer, index)
            if growth >= SETTLED or noise is None:
                continue
            friction_drift = watch.add(noise)
            drift = drift or friction_drift

        if drift is not None:
            for watch in self._watches:
                watch.forget()  # otherwise the others would report the same change
        return drift

    def _forget_before(self, since: int) -> None:
        """Let only the examples of this many latest batches count, and drop all samples."""
        latest = sum(list(self._sizes)[-since:])
        if self._recent is not None:
            self._recent.keep(latest)
        self.samples.clear()
        self._set_count(min(latest, self.n))

    # Saving

    def state_dict(self) -> dict[str, Any]:
        """Return everything, model and optimiser included, as tensors and plain values.

        `torch.load(..., weights_only=True)` reads it. With the batches that follow, a stream continues from
        it bit for bit.

        Returns
        -------
        dict
            The state, for `load_state_dict`.
        """
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "window": [] if self._recent is None else self._recent.to_list(),
            "counts": [getattr(self, name) for name in COUNTS],
            "sizes": list(self._sizes),
            "losses": self._losses.state_dict(),
            "watches": [watch.state_dict() for watch in self._watches],
            "samples": list(self.samples),
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue from the state of a stream that was made with the same arguments.

        Parameters
        ----------
        state_dict
            What `state_dict` returned.

        Raises
        ------
        ValueError
            If window, batch or optimiser are different.
        """
        kept_examples = state_dict["window"]  # inputs and targets, or []
        counts = dict(zip(COUNTS, state_dict["counts"], strict=True))
        has_other_watches = len(state_dict["watches"]) != len(self._watches)
        has_too_many = self.window is not None and counts["n"] > self.window
        keeps_examples = self._recent is not None
        has_other_window = counts["n"] > 0 and bool(kept_examples) != keeps_examples
        if has_other_watches or has_too_many or has_other_window:
            raise ValueError(
                "this is the state of a stream with another window, batch or optimiser: make the stream with "
                "the arguments that it had"
            )

        self.model.load_state_dict(state_dict["model"])
        self.optimizer.load_state_dict(state_dict["optimizer"])
        for name, number in counts.items():
            setattr(self, name, number)
        self._sizes = deque(state_dict["sizes"], MOST_BATCHES)
        self._losses.load_state_dict(state_dict["losses"])
        for watch, state in zip(self._watches, state_dict["watches"], strict=True):
            watch.load_state_dict(state)
        self.samples = deque(state_dict["samples"], self.samples.maxlen)
        if self._recent is not None:
            self._recent = Window(self._recent.capacity)
            if kept_examples:
                self._recent.add(*kept_examples)


def _checked_batch(batch: object, window: int | None) -> int | str | None:
    """Return the `batch` of a stream: a number, "all", "fresh" or None; "fresh" without a window.

    Parameters
    ----------
    batch
        The user's choice, which is checked.
    window
        Number of examples that are kept; None if none are.
    """
    if isinstance(batch, str) and batch not in ("all", "fresh"):
        raise ValueError(f"Stream: batch must be a number, 'all', 'fresh' or None, got {shown(batch)}")
    if batch is not None and not isinstance(batch, str):
        batch = whole("Stream: batch", batch, low=1)
    if window is not None:
        return batch
    if batch not in (None, "fresh"):
        raise ValueError(
            f"Stream: without a window no examples are kept, so batch must be 'fresh', got {batch!r}"
        )
    return "fresh"


def gradient_noise(optimizer: Optimizer, index: int) -> float | None:
    """Return the variance of the gradient's noise that follows from the present ξ of an adaptive part.

    Parameters
    ----------
    optimizer
        An optimiser of heatbath.
    index
        Index of the part's group.

    Returns
    -------
    float or None
        The mean over the chains for which it is finite; None if there are none, or the method doesn't tell.
    """
    assert isinstance(optimizer, Partitioned)
    group = optimizer.param_groups[index]
    method = optimizer._method_of_last_step(index)  # its choices may have changed since
    variances: list[float] = []
    for chain in range(group["chains"] or 1):
        coefficients = values_of(group_of_chain(group, chain))
        mean_friction = float(np.mean(coefficients["xi"]))
        scaled_variance = method.gradient_noise(coefficients, float(coefficients["lr"]), mean_friction)
        if scaled_variance is None:
            continue
        variance = scaled_variance * coefficients.get("noise", 1.0)
        if math.isfinite(variance):
            variances.append(variance)
    if not variances:
        return None
    return sum(variances) / len(variances)
