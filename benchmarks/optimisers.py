"""A step of our optimisers against torch's fused Adam, in one run: ratios of medians of interleaved repeats.

- The step alone, at 20 million parameters and at 100; in plain torch operations, and posteriors' baoa, too
  (of a log posterior that is the sum of the parameters, so that its gradient costs next to nothing).
- A whole training step of a 784-1000-1000-10 network with batch 128.
"""

import itertools
import statistics
import time
import warnings
from collections.abc import Callable

import torch
from torch import Tensor
from torch.optim import Optimizer

import heatbath as hb
from heatbath.torch import AdLaLa, Langevin, Partitioned

LANGEVIN, ADAPTIVE = hb.Langevin(1.0, 1e-4), hb.AdaptiveLangevin(1e-4, 0.01, 0.1)
Make = Callable[[list[Tensor]], Optimizer]
OPTIMISERS: dict[str, Make] = {
    "Adam, fused": lambda params: torch.optim.Adam(params, fused=True),
    "Adam": torch.optim.Adam,
    "Langevin": lambda params: Partitioned([{"params": params, "method": LANGEVIN}], 1e-3),
    "Adaptive Langevin": lambda params: Partitioned([{"params": params, "method": ADAPTIVE}], 1e-3),
    "Langevin, plain": lambda params: Partitioned(
        [{"params": params, "method": LANGEVIN}], 1e-3, fused=False
    ),
}


def stepper(make: Make, size: int) -> Callable[[], None]:
    """Steps of an optimiser on one tensor."""
    parameter = torch.nn.Parameter(torch.randn(size))
    parameter.grad = torch.randn(size)
    optimizer = make([parameter])
    return lambda: optimizer.step()


def posteriors_stepper(size: int) -> Callable[[], None]:
    """Steps of posteriors' baoa on one tensor."""
    with warnings.catch_warnings():  # about a library that it uses
        warnings.simplefilter("ignore")
        import posteriors
    transform = posteriors.sgmcmc.baoa.build(
        lambda params, batch: (params["theta"].sum(), torch.tensor([])), lr=1e-3, alpha=1.0, temperature=1e-4
    )
    state = transform.init({"theta": torch.randn(size)})

    def step() -> None:
        nonlocal state
        state, _ = transform.update(state, None)

    return step


def trainer(make: Callable[[torch.nn.Module], Optimizer]) -> Callable[[], None]:
    """Training steps of a network."""
    model = torch.nn.Sequential(
        torch.nn.Linear(784, 1000), torch.nn.ReLU(), torch.nn.Linear(1000, 1000), torch.nn.ReLU(),
        torch.nn.Linear(1000, 10),
    )  # fmt: skip
    optimizer = make(model)
    x, y = torch.randn(128, 784), torch.randint(0, 10, (128,))

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


def scheduled(make: Callable[[torch.nn.Module], torch.optim.Optimizer], changing: bool) -> Callable[[], None]:
    """A step on a 4-32-1 network, with a stepsize that stays or one that a scheduler changes every time."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    optimizer = make(model)
    model(torch.randn(8, 4)).square().mean().backward()
    rates = itertools.cycle(1e-3 * (1 - 1e-4 * i) for i in range(100))

    def step() -> None:
        if changing:
            rate = next(rates)
            for group in optimizer.param_groups:
                group["lr"] = rate
        optimizer.step()

    return step


def medians(steps: dict[str, Callable[[], None]], repeats: int, inner: int = 1) -> dict[str, float]:
    """Median microseconds of interleaved repeats, after two that are not counted."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(repeats + 2):
        for name, step in steps.items():
            begin = time.perf_counter()
            for _ in range(inner):
                step()
            times[name].append((time.perf_counter() - begin) / inner)
    return {name: 1e6 * statistics.median(values[2:]) for name, values in times.items()}


def show(title: str, took: dict[str, float]) -> None:
    """Print a line: microseconds, and the ratio to the first."""
    base = next(iter(took.values()))
    told = "   ".join(f"{name} {value:,.1f} ({value / base:.2f})" for name, value in took.items())
    print(f"{title}: {told}", flush=True)


def main() -> None:
    """Print microseconds, with ratios to fused Adam."""
    for size, repeats, inner in ((20_000_000, 15, 1), (100, 30, 100)):
        steps = {name: stepper(make, size) for name, make in OPTIMISERS.items()}
        steps["posteriors' baoa"] = posteriors_stepper(size)
        show(f"a step of {size:,} parameters", medians(steps, repeats, inner))
    whole = {
        "Adam, fused": trainer(lambda model: torch.optim.Adam(model.parameters(), fused=True)),
        "AdLaLa": trainer(lambda model: AdLaLa(model, lr=1e-3)),
    }
    show("a training step, 784-1000-1000-10, batch 128", medians(whole, 60))
    small: dict[str, Callable[[torch.nn.Module], torch.optim.Optimizer]] = {
        "Adam": lambda model: torch.optim.Adam(model.parameters()),
        "Langevin": lambda model: Langevin(model, 1e-3, gamma=1.0, tau=1e-5),
        "AdLaLa": lambda model: AdLaLa(model, lr=1e-3),
    }
    for name, make in small.items():
        steps = {"a constant lr": scheduled(make, False), "one that changes": scheduled(make, True)}
        show(f"a step of 4-32-1, {name}", medians(steps, 40, 100))


if __name__ == "__main__":
    main()
