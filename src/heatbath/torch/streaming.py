"""Streams: training on examples that never end, of which the latest count.

What is sampled. Let n be how many examples count: all since the start, or the last `window`, or those since
the data changed. Before each batch is learned the posterior's n is set to that, so that τ = Tκ/n and
`weight_decay` = κ/(ς²n) (see `posteriors`). Then

- with batch="all" every step has the gradient of the mean loss of the n examples that count. The law that the
  chain would have if the stream stood still is their posterior, as exactly as the method samples any. While
  the stream goes on, some of the n are exchanged with each batch, and the chain follows as it relaxes;
- with batch=m (None: as many as came) a step has m of these n, drawn uniformly. That is the same, and the
  noise of the gradient, of variance s² for each parameter, heats as mini-batches always do;
- with batch="fresh" a step has the examples that just came, and nothing is kept. Then the mean is that of the
  law of the data, and not of n examples of it. The spread around it is that of a posterior of n examples, and
  that of the gradient's noise beside it: for U = kθ²/2 by BAOAB

      k var θ = τ + h² s² (1 + a)/((1 - a)(4 - h²k)),  a = exp(-γh),

  which for small γh is τ + h s²/(2γ). Where the model is right s² is kκ/b for b examples, so that even at
  τ = 0 the spread is that of a posterior of 2γb/(hk) examples: so long a window a chain on fresh examples has
  by itself, and an n beyond it changes little. An adaptive part takes the noise of the gradient out as far as
  it is the same for all of its parameters, so that its n means what it says.
"""

from __future__ import annotations

import math
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from heatbath._internal.checks import shown, whole
from heatbath._internal.interrupts import deferred_interrupts
from heatbath._internal.warnings import DivergedWarning, warn
from heatbath.diagnostics.drift import FALSE_ALARMS, SETTLED, DriftWarning, Watch
from heatbath.diagnostics.statistics import BlockAverage, Estimate
from heatbath.models.likelihood import COST, FEWEST
from heatbath.reference import random
from heatbath.torch.data import prepare_inputs
from heatbath.torch.optim.chains import Chains
from heatbath.torch.optim.optimizer import Partitioned
from heatbath.torch.optim.param_groups import group_of_chain, values_of
from heatbath.torch.optim.temperature import labels
from heatbath.torch.prediction.batchnorm import evaluation_mode
from heatbath.torch.prediction.states import check_module, select_tensors

WINDOW = 10_000  # examples that count
MOST_BATCHES = 4096  # of which it is known how many examples they had
CHUNK_SIZE = 1000  # examples of which residuals are taken at a time

Loss = Callable[[Any, Tensor], Tensor]


class Learned(NamedTuple):
    """What came of a batch: its loss before it was learned, how many examples count, and the drift, if the
    data are seen to have changed."""

    loss: float
    n: int
    drift: DriftWarning | None


class Window:
    """The latest examples, in the order in which they came, in tensors that are written round and round."""

    def __init__(self, most: int) -> None:
        self.most, self.first, self.count = most, 0, 0
        self.tensors: tuple[Tensor, ...] = ()

    def add(self, *batch: Tensor) -> None:
        """Take examples in, and the oldest out where there are too many."""
        batch = tuple(tensor.detach()[-self.most :] for tensor in batch)
        for home, given in zip(self.tensors, batch, strict=False):  # before anything is written
            if (home.dtype, home.shape[1:]) != (given.dtype, given.shape[1:]):
                raise ValueError(
                    f"examples that are kept have one shape and type: those before were {home.dtype} "
                    f"{tuple(home.shape[1:])}, got {given.dtype} {tuple(given.shape[1:])}; make them alike, "
                    "or learn with batch='fresh', which keeps none"
                )
        size = len(batch[0])
        room = len(self.tensors[0]) if self.tensors else 0
        if self.count + size > room and room < self.most:
            room = min(self.most, max(2 * room, self.count + size))
            old = self.rows(torch.arange(self.count)) if self.count else ()
            self.tensors = tuple(like.new_empty((room, *like.shape[1:])) for like in batch)
            self.first = 0
            for home, values in zip(self.tensors, old, strict=False):
                home[: self.count] = values
        places = (self.first + self.count + torch.arange(size)) % room
        for home, values in zip(self.tensors, batch, strict=True):
            home[places.to(home.device)] = values
        dropped = max(0, self.count + size - self.most)
        self.first, self.count = (self.first + dropped) % room, self.count + size - dropped

    def rows(self, chosen: Tensor) -> tuple[Tensor, ...]:
        """Some of them: 0 is the oldest."""
        places = (self.first + chosen) % len(self.tensors[0])
        return tuple(tensor[places.to(tensor.device)] for tensor in self.tensors)

    def keep(self, latest: int) -> None:
        """Forget all but the latest."""
        dropped = self.count - min(latest, self.count)
        self.first, self.count = self.first + dropped, self.count - dropped


class Stream:
    """A model that learns from batches as they come, for as long as they come: `stream.learn(x, y)`.

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

    - `model`: a module, or `Chains` of one; `optimizer`: one of ours with a posterior, whose n then follows;
      one without, or any of torch, is stepped as it is. `loss`: a function of outputs and targets, the mean
      over the batch.
    - `window`: how many of the latest examples count. They are kept in memory, where they are. None: all
      count that were seen since the data changed, and none is kept.
    - `batch`: what a step has: so many of the examples that count, drawn anew each time (None: as many as
      came); "all" of them; or "fresh", those that just came.
    - `steps`: how many steps are made with each batch.
    - `forget`: on a drift what came before it counts no more.
    - `false_alarms`: how many batches there are at least, on average, between two false alarms; see
      `drift`. Infinite: nothing is watched.
    - `samples`: how many of the latest states of the model to keep, one after each batch, for
      `predict(model, stream.samples, x, task=...)`.

    What is sampled, see `streams`. The loss of a batch before it is learned is watched, and so is the
    friction of adaptive parts, where n has settled: the noise of the gradients that it tells, (2τξ - σ²)/h,
    rises when data change, while the kinetic temperature is held at τ. `Drift` warns, and is in what `learn`
    returns.

    A batch that has a loss which is not finite, or that does not go with those that are kept, is refused, and
    nothing has changed; one with which a step raises (as batch norms do with one example) counts as seen.
    Ctrl-C waits for the end of the batch. `state_dict` has everything, the model and the optimiser included,
    as tensors and plain values: with the batches that follow, the stream goes on bit for bit. A noise that is
    sampled (`Posterior("mse_loss", ...)`) is drawn here, now and then.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        loss: Loss,
        *,
        window: int | None = WINDOW,
        batch: int | Literal["all", "fresh"] | None = None,
        steps: int = 1,
        forget: bool = True,
        false_alarms: float = FALSE_ALARMS,
        samples: int = 0,
    ) -> None:
        check_module(model)
        if not isinstance(optimizer, Optimizer) or not callable(loss):
            raise TypeError(
                "Stream: a module, its optimiser and a loss of outputs and targets are needed, got "
                f"{shown(optimizer)} and {shown(loss)}"
            )
        self.model, self.optimizer, self._loss = model, optimizer, loss
        self.window = None if window is None else whole("Stream: window", window, low=1)
        if not isinstance(batch, str) and batch is not None:
            batch = whole("Stream: batch", batch, low=1)
        elif batch not in (None, "all", "fresh"):
            raise ValueError(f"Stream: batch must be a number, 'all', 'fresh' or None, got {shown(batch)}")
        if self.window is None and batch not in (None, "fresh"):
            raise ValueError(f"Stream: without a window nothing is kept, so batch is 'fresh', got {batch!r}")
        self.batch = "fresh" if self.window is None else batch
        self.steps = whole("Stream: steps", steps, low=1)
        self.forget = bool(forget)
        self.samples: deque[dict[str, Tensor]] = deque(maxlen=whole("Stream: samples", samples, low=0))
        self.seen, self.batches, self.n = 0, 0, 0
        self._lost: set[int] = set()  # chains of which was said that they diverged
        self._made, self._drawn = 0, 0  # steps, and those at the last draw of the noise
        self._losses = BlockAverage()
        self._sizes: deque[int] = deque(maxlen=MOST_BATCHES)  # of the batches that count
        self._kept = None if self.batch == "fresh" else Window(self.window or 1)
        self._groups = optimizer.param_groups if isinstance(optimizer, Partitioned) else []
        self._follows = any("n" in group for group in self._groups)
        if self._kept is None and any("noise" in group for group in self._groups):
            raise ValueError(
                "Stream: a noise that is sampled needs the residuals of all examples that count: give the "
                "posterior noise= a number, or the stream a window and another batch than 'fresh'"
            )
        adaptive = [(i, name) for i, name in enumerate(labels(self._groups)) if "xi" in self._groups[i]]
        bound = false_alarms * (1 + len(adaptive))  # any of them may raise a false alarm
        self._watch = Watch("the loss before learning", bound)
        self._frictions = {i: Watch(f"the friction of part {name!r}", bound) for i, name in adaptive}

    def __repr__(self) -> str:
        value, error = self.loss
        interval = f" ± {1.96 * error:.2g}" if math.isfinite(error) else ""
        loss = f", loss before learning {value:.4g}{interval}" if self.batches else ""
        return f"Stream({self.seen:,} examples in {self.batches:,} batches, {self.n:,} count{loss})"

    @property
    def loss(self) -> Estimate:
        """The mean over all batches of their losses before they were learned, and its standard error."""
        return self._losses.estimate()

    def learn(self, x: Any, y: Any) -> Learned:
        """Judge the model by a batch, and then learn it."""
        with deferred_interrupts() as interrupted:
            learned = self._learn(*self._checked(x, y))
        if learned.drift is not None:
            warnings.warn(learned.drift, stacklevel=2)
        if interrupted():
            raise KeyboardInterrupt
        return learned

    def _checked(self, x: Any, y: Any) -> tuple[Tensor, Tensor]:
        """The batch as tensors, where the model is."""
        batch = prepare_inputs(self.model, x), prepare_inputs(self.model, y)
        if not all(isinstance(tensor, Tensor) and tensor.ndim and len(tensor) for tensor in batch):
            raise TypeError(f"learn needs inputs and targets of some examples, got {shown(x)} and {shown(y)}")
        if len(batch[0]) != len(batch[1]):
            raise ValueError(f"there are {len(batch[0])} inputs and {len(batch[1])} targets in a batch")
        return batch

    def _learn(self, x: Tensor, y: Tensor) -> Learned:
        loss = self._judged(x, y)
        grown = self._take(x, y)
        for _ in range(self.steps):
            self._step(x, y)
        self._draw_noise()
        self._losses.add(loss)
        drift = self._watched(loss, grown)
        if drift is not None and self.forget:
            self._forget(drift.since)
        elif self.samples.maxlen:
            state = select_tensors(self.model.state_dict())
            self.samples.append({name: value.to("cpu", copy=True) for name, value in state.items()})
        return Learned(loss, self.n, drift)

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        """Evaluation mode within, of the module of chains, too."""
        inner = self.model.model if isinstance(self.model, Chains) else nn.Module()
        with evaluation_mode(inner), evaluation_mode(self.model):
            yield

    def _values(self, x: Tensor, y: Tensor) -> Tensor:
        """The loss of a batch; one of each chain, if there are several."""
        if isinstance(self.model, Chains):
            return self.model.each(self._loss, self.model(x), y)
        return self._loss(self.model(x), y)

    def _judged(self, x: Tensor, y: Tensor) -> float:
        """The loss before learning, the mean over the chains that are finite."""
        with torch.no_grad(), self._evaluating():
            losses = self._values(x, y).double().flatten()
        alive = losses.isfinite()
        finite = losses[alive]
        if len(losses) != (self.model.count if isinstance(self.model, Chains) else 1):
            raise ValueError(
                f"the loss must be one number, the mean over the batch; got {len(losses)} of them"
            )
        if not len(finite):
            lost = [name for name, p in self.model.named_parameters() if not p.isfinite().all()]
            what = f"{', '.join(lost[:3])} of the model are: it has diverged" if lost else "is it the data?"
            raise ValueError(f"the loss of a batch is not finite, and nothing was learned of it; {what}")
        if new := set((~alive).nonzero().flatten().tolist()) - self._lost:
            self._lost |= new
            text = ", ".join(map(str, sorted(new)))
            warn(f"chains {text} diverged by batch {self.batches}, and the others go on", DivergedWarning)
        return float(finite.mean())

    def _take(self, x: Tensor, y: Tensor) -> float:
        """Count a batch in, and return by how much of itself n has grown."""
        before, size = self.n, len(x)
        if self._kept is not None:
            self._kept.add(x, y)
        self.seen, self.batches = self.seen + size, self.batches + 1
        self._sizes.append(size)
        self._set(min(before + size, self.window or math.inf))
        return abs(self.n - before) / self.n

    def _set(self, n: float) -> None:
        """Let n examples count."""
        self.n = int(n)
        while len(self._sizes) > 1 and sum(self._sizes) - self._sizes[0] >= self.n:
            self._sizes.popleft()
        if self._follows:
            self.optimizer.set_examples(self.n)  # type: ignore[attr-defined]

    def _step(self, x: Tensor, y: Tensor) -> None:
        """A step with the examples that it is to have."""
        if self._kept is not None:
            size = self._kept.count if self.batch == "all" else min(self._size(len(x)), self._kept.count)
            chosen = np.arange(size)
            if size < self._kept.count:
                group = self._groups[0] if self._groups else {}
                address = group.get("seed", 0), group.get("chain", 0), self._made
                chosen = random.batch(*address, self._kept.count, size)
            x, y = self._kept.rows(torch.as_tensor(chosen))

        def closure() -> Tensor:
            self.optimizer.zero_grad()
            losses = self._values(x, y)
            losses.sum().backward()  # type: ignore[no-untyped-call]
            return losses

        self.optimizer.step(closure)  # type: ignore[arg-type]
        self._made += 1

    def _size(self, came: int) -> int:
        return self.batch if isinstance(self.batch, int) else came

    def _draw_noise(self) -> None:
        """Draw the noise of the data, if it is sampled and that is due."""
        kept = self._kept
        if kept is None or not any("noise" in group for group in self._groups):
            return
        size = kept.count if self.batch == "all" else self._size(self._sizes[-1])
        if self._made - self._drawn < max(FEWEST, COST * kept.count / (3 * size)):
            return
        self._drawn = self._made
        with torch.no_grad(), self._evaluating():
            rows = (kept.rows(chosen) for chosen in torch.split(torch.arange(kept.count), CHUNK_SIZE))
            self.optimizer.draw_noise(self.model(x) - y for x, y in rows)  # type: ignore[attr-defined]

    def _watched(self, loss: float, grown: float) -> DriftWarning | None:
        """The drift that is seen in the loss or in a friction."""
        drifts = [self._watch.add(loss)] if self._watch.false_alarms < math.inf else []
        for place, watch in self._frictions.items():
            told = gradient_noise(self.optimizer, place)
            if grown < SETTLED and told is not None and drifts:
                drifts.append(watch.add(told))
        drift = next(filter(None, drifts), None)
        for watch in (self._watch, *self._frictions.values()) if drift else ():
            watch.forget()  # the others would tell of the same change
        return drift

    def _forget(self, since: int) -> None:
        """Let only the examples of the latest batches count."""
        latest = sum(list(self._sizes)[-since:])
        if self._kept is not None:
            self._kept.keep(latest)
        self.samples.clear()
        self._set(min(latest, self.n))

    def state_dict(self) -> dict[str, Any]:
        """Everything, as tensors and plain values, so that `torch.load(..., weights_only=True)` reads it."""
        kept = self._kept
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "window": [] if kept is None or not kept.count else list(kept.rows(torch.arange(kept.count))),
            "counts": [self.seen, self.batches, self.n, self._made, self._drawn],
            "sizes": list(self._sizes),
            "losses": self._losses.state_dict(),
            "watches": [watch.state_dict() for watch in (self._watch, *self._frictions.values())],
            "samples": list(self.samples),
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave, of a stream that was made with the same arguments."""
        watches = [self._watch, *self._frictions.values()]
        rows, sizes = state_dict["window"], state_dict["sizes"]
        n = state_dict["counts"][2]
        if (
            len(state_dict["watches"]) != len(watches)
            or n > (self.window or math.inf)
            or (n and bool(rows) != (self._kept is not None))
        ):
            raise ValueError(
                "this is the state of a stream with another window, batch or optimiser: make the stream with "
                "the arguments that it had"
            )
        self.model.load_state_dict(state_dict["model"])
        self.optimizer.load_state_dict(state_dict["optimizer"])
        self.seen, self.batches, self.n, self._made, self._drawn = state_dict["counts"]
        self._sizes = deque(sizes, MOST_BATCHES)
        self._losses.load_state_dict(state_dict["losses"])
        for watch, state in zip(watches, state_dict["watches"], strict=True):
            watch.load_state_dict(state)
        self.samples = deque(state_dict["samples"], self.samples.maxlen)
        self._groups = self.optimizer.param_groups if isinstance(self.optimizer, Partitioned) else []
        if self._kept is not None:
            self._kept = Window(self._kept.most)
            if rows:
                self._kept.add(*rows)


def gradient_noise(optimizer: Optimizer, place: int) -> float | None:
    """The variance of the noise of the gradient that the thermostats of a part tell, by what ξ is now; of
    several chains the mean over those that are finite."""
    assert isinstance(optimizer, Partitioned)
    group, values = optimizer.param_groups[place], []
    method = optimizer._method_of_last_step(place)  # of the last step: its choices count
    for chain in range(group["chains"] or 1):
        own = group_of_chain(group, chain)
        told = method.gradient_noise(values_of(own), float(own["lr"]), float(np.mean(own["xi"])))
        values.append(math.nan if told is None else told * own.get("noise", 1.0))
    finite = [value for value in values if math.isfinite(value)]
    return sum(finite) / len(finite) if finite else None
