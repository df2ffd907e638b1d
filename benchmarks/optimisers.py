"""A step of our optimisers against torch's fused Adam, in one run: ratios of medians of interleaved repeats.

- The step alone, at 20 million parameters and at 100; in plain torch operations, and posteriors' baoa, too
  (of a log posterior that is the sum of the parameters, so that its gradient costs next to nothing). At 20
  million every step follows one of fused Adam, whose threads may still be spinning. Two measures of what the
  memory allows: steps that draw no numbers, and moving as many bytes at the speed of θ += p G in torch.
- The step within a training step of a network of 20 million parameters, and that training step.
- A whole training step of a 784-1000-1000-10 network with batch 128.
- Steps of 4-32-1 and 784-1000-1000-10 networks with torch's schedulers, each of which is asked at every step:
  Adam, Langevin and AdLaLa with none, with LambdaLR and with OneCycleLR (cycle_momentum=False), in processor
  time, as what is added is little beside what others may add. It is written to
  benchmarks/results/optimisers.json, and `python docs/measured.py` puts it on the page, as ratios to steps
  without one. `--schedulers` measures these alone.

No variable need be set: OMP_WAIT_POLICY would change the times of threads other than torch's own.
"""

import argparse
import itertools
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import machine
import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, OneCycleLR

import heatbath as hb
from heatbath.methods import Method
from heatbath.torch import AdLaLa, Langevin
from heatbath.torch.optim.optimizer import Partitioned

LARGE, WIDE = 20_000_000, (784, 4000, 4000, 200)  # about as many
LANGEVIN, ADAPTIVE = hb.Langevin(1.0, 1e-4), hb.AdaptiveLangevin(1e-4, 0.01, 0.1)
SILENT, SILENT_ADAPTIVE = hb.Langevin(1.0, 0.0), hb.AdaptiveLangevin(0.0, 0.0, 0.1)
# Tensors read and written in a step; Adaptive Langevin goes over θ and p twice, to know p·p in between
MOVED = {"Adam, fused": 7, "Langevin": 5, "Adaptive Langevin": 9}
Make = Callable[[list[Tensor]], Optimizer]
MakeForModel = Callable[[torch.nn.Module], Optimizer]
Clock = Callable[[], float]
OPTIMISERS: dict[str, Make] = {
    "Adam, fused": lambda params: torch.optim.Adam(params, fused=True),
    "Adam": torch.optim.Adam,
    "Langevin": lambda params: ours(params, LANGEVIN),
    "Adaptive Langevin": lambda params: ours(params, ADAPTIVE),
    "Langevin, plain": lambda params: ours(params, LANGEVIN, fused=False),
}
WITHOUT_NOISE: dict[str, Make] = {
    "Langevin without noise": lambda params: ours(params, SILENT),
    "Adaptive Langevin without noise": lambda params: ours(params, SILENT_ADAPTIVE),
}


def ours(params: list[Tensor], method: Method, fused: bool | None = None) -> Partitioned:
    """One of our methods for all parameters."""
    return Partitioned([{"params": params, "method": method}], 1e-3, fused=fused)


def for_model(make: Make) -> MakeForModel:
    """Return an optimiser of all parameters of a model."""
    return lambda model: make(list(model.parameters()))


def stepper(make: Make, size: int) -> Callable[[], None]:
    """Return steps of an optimiser on one tensor."""
    parameter = torch.nn.Parameter(torch.randn(size))
    parameter.grad = torch.randn(size)
    optimizer = make([parameter])
    return lambda: optimizer.step()


def sum_of_products(size: int) -> Callable[[], None]:
    """θ += p G in torch, which moves four tensors."""
    theta, p, G = (torch.randn(size) for _ in range(3))

    def step() -> None:
        theta.addcmul_(p, G)

    return step


def posteriors_stepper(size: int) -> Callable[[], None]:
    """Return steps of posteriors' baoa on one tensor."""
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


def dense(widths: tuple[int, ...]) -> torch.nn.Sequential:
    """Return a network of dense layers."""
    layers = [
        layer for pair in itertools.pairwise(widths) for layer in (torch.nn.Linear(*pair), torch.nn.ReLU())
    ]
    return torch.nn.Sequential(*layers[:-1])


def trainer(
    make: MakeForModel, widths: tuple[int, ...], batch: int
) -> tuple[Callable[[], None], Callable[[], None]]:
    """Return the two halves of a training step of a network: the gradient, and the optimiser's step."""
    model = dense(widths)
    optimizer = make(model)

    def gradient() -> None:
        # another batch each time: one that is learnt has no gradient left
        x, y = torch.randn(batch, widths[0]), torch.randint(0, widths[-1], (batch,))
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()

    return gradient, lambda: optimizer.step()


def together(gradient: Callable[[], None], step: Callable[[], None]) -> Callable[[], None]:
    """Return the two halves of a training step, one after the other."""

    def both() -> None:
        gradient()
        step()

    return both


SCHEDULERS: dict[str, Callable[[Optimizer], LRScheduler] | None] = {
    "none": None,
    "LambdaLR": lambda optimizer: LambdaLR(optimizer, lambda step: 1 - 1e-4 * (step % 100)),
    "OneCycleLR": lambda optimizer: OneCycleLR(optimizer, 1e-3, 10**8, cycle_momentum=False),
}
SMALL: dict[str, MakeForModel] = {
    "Adam": lambda model: torch.optim.Adam(model.parameters()),
    "Langevin": lambda model: Langevin(model, 1e-3, gamma=1.0, tau=1e-5),
    "AdLaLa": lambda model: AdLaLa(model, lr=1e-3),
}


SIZES = {
    "4-32-1": (4, 32, 1),
    "784-1000-1000-10": (784, 1000, 1000, 10),
}  # the least there is, and a usual one


def scheduled(
    make: MakeForModel, widths: tuple[int, ...], schedule: Callable[[Optimizer], LRScheduler] | None
) -> Callable[[], None]:
    """Return a step on a network, with one of the scheduler if there is one."""
    model = dense(widths)
    optimizer = make(model)
    model(torch.randn(8, widths[0])).square().mean().backward()
    if schedule is None:
        return lambda: optimizer.step()
    scheduler = schedule(optimizer)

    def step() -> None:
        optimizer.step()
        scheduler.step()

    return step


def seconds(step: Callable[[], None], inner: int = 1, clock: Clock = time.perf_counter) -> float:
    """How long a step takes, on the average of some."""
    begin = clock()
    for _ in range(inner):
        step()
    return (clock() - begin) / inner


def median(times: list[float]) -> float:
    """Median microseconds, without the first two."""
    return 1e6 * statistics.median(times[2:])


def medians(
    steps: dict[str, Callable[[], None]], repeats: int, inner: int = 1, clock: Clock = time.perf_counter
) -> dict[str, float]:
    """Median microseconds of interleaved repeats."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(repeats + 2):
        for name, step in steps.items():
            times[name].append(seconds(step, inner, clock))
    return {name: median(values) for name, values in times.items()}


def show(title: str, took: dict[str, float]) -> None:
    """Print a line: microseconds, and the ratio to the first."""
    base = next(iter(took.values()))
    text = "   ".join(f"{name} {value:,.1f} ({value / base:.2f})" for name, value in took.items())
    print(f"{title}: {text}", flush=True)


def show_large(repeats: int = 15) -> None:
    """Measure steps that alternate with those of fused Adam, their ratios, and what the memory allows."""
    makes = OPTIMISERS | WITHOUT_NOISE
    adam = stepper(makes.pop("Adam, fused"), LARGE)
    steps = {name: stepper(make, LARGE) for name, make in makes.items()}
    print(f"a step of {LARGE:,} parameters, each after one of fused Adam (ratio):")
    steps["posteriors' baoa"] = posteriors_stepper(LARGE)
    steps["θ += p G"] = sum_of_products(LARGE)
    pairs: dict[str, list[tuple[float, float]]] = {name: [] for name in steps}
    for _ in range(repeats + 2):
        for name, step in steps.items():
            pairs[name].append((seconds(adam), seconds(step)))
    for name, values in pairs.items():
        before, took = (median(list(times)) for times in zip(*values, strict=True))
        print(f"  {name} {took:,.0f} ({took / before:.2f})", flush=True)
    triad = median([took for _, took in pairs["θ += p G"]])
    limits = "   ".join(f"{name} {triad / 4 * moved:,.0f}" for name, moved in MOVED.items())
    print(f"  as many bytes at the speed of θ += p G, {16e-3 * LARGE / triad:.0f} GB/s: {limits}", flush=True)


def show_training(repeats: int = 15) -> None:
    """Measure the step and the whole training step of a network of 20 million parameters."""
    halves = {name: trainer(for_model(OPTIMISERS[name]), WIDE, 16) for name in MOVED}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in halves}
    for _ in range(repeats + 2):
        for name, (gradient, step) in halves.items():
            times[name].append((seconds(gradient), seconds(step)))
    title = f"{'-'.join(map(str, WIDE))}, batch 16"
    show(f"the step in training, {title}", {n: median([step for _, step in v]) for n, v in times.items()})
    show(f"a training step, {title}", {n: median([sum(both) for both in v]) for n, v in times.items()})


def show_schedulers(repeats: int) -> None:
    """Measure steps with torch's schedulers, and print them."""
    before = machine.now()
    known: dict[str, Any] = {"machine": before, "schedulers": {}}
    for size, widths in SIZES.items():
        pairs = itertools.product(SMALL, SCHEDULERS)
        steps = {f"{n}: {kind}": scheduled(SMALL[n], widths, SCHEDULERS[kind]) for n, kind in pairs}
        inner = 100 if size == "4-32-1" else 10
        known["schedulers"][size] = medians(steps, repeats, inner, time.process_time)
    machine.note("optimisers", known)
    print(table(known))


def table(known: dict[str, Any]) -> str:
    """Of the results: a step with a scheduler over one without."""
    kinds = [kind for kind in SCHEDULERS if kind != "none"]
    lines = [
        f"| network | | step, µs | {' | '.join(f'with {kind}' for kind in kinds)} |",
        "|" + " --- |" * (3 + len(kinds)),
    ]
    for (size, took), name in itertools.product(known["schedulers"].items(), SMALL):
        base = took[f"{name}: none"]
        ratios = " | ".join(f"{took[f'{name}: {kind}'] / base:.2f}" for kind in kinds)
        lines.append(f"| {size} | {name} | {base:.0f} | {ratios} |")
    return "\n".join([*lines, "", machine.told(known)])


def main() -> None:
    """Print microseconds, with ratios to fused Adam."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--schedulers", action="store_true", help="schedulers alone")
    parser.add_argument("--repeats", type=int, default=40, help="of steps with schedulers")
    options = parser.parse_args()
    show_schedulers(options.repeats)
    if options.schedulers:
        return
    show_large()
    show_training()
    steps = {name: stepper(make, 100) for name, make in OPTIMISERS.items()}
    steps["posteriors' baoa"] = posteriors_stepper(100)
    show("a step of 100 parameters", medians(steps, 30, 100))
    makes: dict[str, MakeForModel] = {
        "Adam, fused": for_model(OPTIMISERS["Adam, fused"]),
        "AdLaLa": lambda model: AdLaLa(model, lr=1e-3),
    }
    whole = {name: together(*trainer(make, (784, 1000, 1000, 10), 128)) for name, make in makes.items()}
    show("a training step, 784-1000-1000-10, batch 128", medians(whole, 60))


if __name__ == "__main__":
    main()
