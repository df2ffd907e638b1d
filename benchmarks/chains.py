"""Many chains of a torch module at once (`heatbath.torch.Chains`) against one loop after the other.

For a dense network, a convolutional one and a small transformer: milliseconds of a step (gradients and
optimiser) of --count chains of Langevin dynamics, at once and in separate loops, interleaved, medians, and
the ratio; torch has as many threads as it likes. Then the optimiser's step alone, of the same stacked
tensors: Langevin, AdLaLa and torch's fused Adam, which knows nothing of chains. What comes out is written to
benchmarks/results/chains.json; `python docs/measured.py` puts it on the page.

    python benchmarks/chains.py [--count 8] [--repeats 30]
"""

import argparse
import statistics
import time
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import machine
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import heatbath.torch as ht

BATCH, CLASSES = 32, 10


class Transformer(nn.Module):
    """One layer over sixteen tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(64, 32)
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.head = nn.Linear(32, CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits."""
        logits: Tensor = self.head(self.layer(self.embedding(tokens)).mean(dim=1))
        return logits


def models() -> dict[str, tuple[nn.Module, Tensor]]:
    """Modules, and inputs for each."""
    dense = nn.Sequential(nn.Linear(20, 100), nn.ReLU(), nn.Linear(100, CLASSES))
    first, second = nn.Conv2d(1, 8, 3, 2), nn.Conv2d(8, 16, 3, 2)
    convolutional = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.Flatten(), nn.Linear(576, CLASSES))
    return {
        "dense 20-100-10": (dense, torch.randn(BATCH, 20)),
        "convolutional 8-16": (convolutional, torch.randn(BATCH, 1, 28, 28)),
        "transformer 32 x 4": (Transformer(), torch.randint(64, (BATCH, 16))),
    }


def together(model: nn.Module, x: Tensor, y: Tensor, count: int) -> Callable[[], None]:
    """Return a step of all chains at once."""
    chains = ht.Chains(model, count, "same")
    optimizer = ht.Langevin(chains, 1e-3, 1.0, 1e-6)

    def step() -> None:
        optimizer.zero_grad()
        chains.each(cross_entropy, chains(x), y).sum().backward()
        optimizer.step()

    return step


def apart(model: nn.Module, x: Tensor, y: Tensor, count: int) -> Callable[[], None]:
    """Return a step of as many modules, one after the other."""
    copies = [deepcopy(model) for _ in range(count)]
    optimizers = [ht.Langevin(copy, 1e-3, 1.0, 1e-6, chain=k) for k, copy in enumerate(copies)]

    def step() -> None:
        for copy, optimizer in zip(copies, optimizers, strict=True):
            optimizer.zero_grad()
            cross_entropy(copy(x), y).backward()
            optimizer.step()

    return step


def steps_alone(model: nn.Module, x: Tensor, y: Tensor, count: int) -> dict[str, Callable[[], None]]:
    """Return steps of optimisers on the stacked parameters, whose gradients stay the same."""
    makers: dict[str, Callable[[ht.Chains], torch.optim.Optimizer]] = {
        "Adam, fused": lambda chains: torch.optim.Adam(chains.parameters(), fused=True),
        "Langevin": lambda chains: ht.Langevin(chains, 1e-3, 1.0, 1e-6),
        "AdLaLa": lambda chains: ht.AdLaLa(chains, lr=1e-3),
    }
    steps: dict[str, Callable[[], None]] = {}
    for name, make in makers.items():
        chains = ht.Chains(model, count, "same")
        optimizer = make(chains)
        chains.each(cross_entropy, chains(x), y).sum().backward()
        steps[name] = lambda optimizer=optimizer: optimizer.step()  # type: ignore[misc]
    return steps


def medians(steps: dict[str, Callable[[], None]], repeats: int, inner: int = 1) -> dict[str, float]:
    """Median milliseconds of interleaved repeats, the first of which are warm-ups."""
    took: dict[str, list[float]] = {name: [] for name in steps}
    for repeat in range(repeats + 3):
        for name, step in steps.items():
            begin = time.perf_counter()
            for _ in range(inner):
                step()
            if repeat >= 3:
                took[name].append(1000 * (time.perf_counter() - begin) / inner)
    return {name: statistics.median(times) for name, times in took.items()}


def table(known: dict[str, Any]) -> str:
    """Of the results: how much faster chains are at once, and their steps beside those of fused Adam."""
    count, steps = known["chains"], known["steps"]
    others = [name for name in next(iter(steps.values())) if name != "Adam, fused"]
    heads = [f"{count} loops over {count} chains at once", *(f"{n}'s step over fused Adam's" for n in others)]
    lines = [f"| | {' | '.join(heads)} |", "|" + " --- |" * (len(heads) + 1)]
    for name, (once, loops) in known["training"].items():
        ratios = [loops / once, *(steps[name][other] / steps[name]["Adam, fused"] for other in others)]
        lines.append(f"| {name} | {' | '.join(f'{ratio:.1f}' for ratio in ratios)} |")
    return "\n".join([*lines, "", machine.told(known)])


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--count", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=30)
    options = parser.parse_args()
    before = machine.now()
    torch.manual_seed(0)
    known: dict[str, Any] = {"machine": before, "chains": options.count, "training": {}, "steps": {}}
    for name, (model, x) in models().items():
        y = torch.randint(CLASSES, (BATCH,))
        steps = {make.__name__: make(model, x, y, options.count) for make in (together, apart)}
        known["training"][name] = list(medians(steps, options.repeats).values())
        known["steps"][name] = medians(steps_alone(model, x, y, options.count), options.repeats, 10)
        print(
            f"{name}, ms: at once and in loops {known['training'][name]}, steps {known['steps'][name]}",
            flush=True,
        )
    machine.note("chains", known)
    print(table(known))


if __name__ == "__main__":
    main()
