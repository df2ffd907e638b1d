"""Many chains of a torch module at once (`heatbath.torch.Chains`) against one loop after the other.

For a dense network, a convolutional one and a small transformer: milliseconds of a step (gradients and
optimiser) of --count chains of Langevin dynamics, at once and in separate loops, interleaved, medians, and
the ratio; torch has as many threads as it likes. Then the optimiser's step alone, of the same stacked
tensors: Langevin, AdLaLa and torch's fused Adam, which knows nothing of chains.

    python benchmarks/chains.py [--count 8] [--repeats 30]
"""

import argparse
import statistics
import time
from collections.abc import Callable
from copy import deepcopy

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
        """The logits."""
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
    """A step of all chains at once."""
    chains = ht.Chains(model, count, "same")
    optimizer = ht.Langevin(chains, 1e-3, 1.0, 1e-6)

    def step() -> None:
        optimizer.zero_grad()
        chains.each(cross_entropy, chains(x), y).sum().backward()
        optimizer.step()

    return step


def apart(model: nn.Module, x: Tensor, y: Tensor, count: int) -> Callable[[], None]:
    """A step of as many modules, one after the other."""
    copies = [deepcopy(model) for _ in range(count)]
    optimizers = [ht.Langevin(copy, 1e-3, 1.0, 1e-6, chain=k) for k, copy in enumerate(copies)]

    def step() -> None:
        for copy, optimizer in zip(copies, optimizers, strict=True):
            optimizer.zero_grad()
            cross_entropy(copy(x), y).backward()
            optimizer.step()

    return step


def steps_alone(model: nn.Module, x: Tensor, y: Tensor, count: int) -> dict[str, Callable[[], None]]:
    """Steps of optimisers on the stacked parameters, with gradients that stay."""
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


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--count", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=30)
    options = parser.parse_args()
    torch.manual_seed(0)
    print(f"{'':20}{'at once, ms':>14}{'loops, ms':>12}{'ratio':>8}   ({options.count} chains)")
    for name, (model, x) in models().items():
        y = torch.randint(CLASSES, (BATCH,))
        steps = {make.__name__: make(model, x, y, options.count) for make in (together, apart)}
        once, loops = medians(steps, options.repeats).values()
        print(f"{name:20}{once:>14.2f}{loops:>12.2f}{loops / once:>8.1f}", flush=True)
    print(f"the optimiser's step alone, of {options.count} chains, ms (ratio to fused Adam):")
    for name, (model, x) in models().items():
        took = medians(steps_alone(model, x, y, options.count), options.repeats, 10)
        base = took["Adam, fused"]
        text = "   ".join(f"{kind} {value:.3f} ({value / base:.2f})" for kind, value in took.items())
        print(f"{name:20}{text}", flush=True)


if __name__ == "__main__":
    main()
