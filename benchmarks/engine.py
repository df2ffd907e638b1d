"""Microseconds per chain and step of AdLaLa: the engine, the engine before, PyTorch, posteriors and JAX.

All in one run, in interleaved repeats. A time is the median of the repeats; a ratio is that of two times of
the same repeat, of which the median stands there and, in brackets, the lowest and the highest. Where there is
a target for a ratio, it stands beside it. The chains of the engine use all cores. On a machine that others
use, too, `--processor` takes the processor time of all threads instead of the time on the wall.

- The engine before: that of `versions.COMMIT`, which computed every chain alone. Both run in processes of
  their own; chains are made anew for every repeat, and making them is not counted.
- The alternatives are what one would write with each library: a plain PyTorch training loop with AdLaLa in
  tensor operations; `baoa` of posteriors (Langevin in all layers: it has no AdLaLa); a jitted scan in JAX,
  for one chain and vmapped over 32. All draw mini-batches without replacement; since that is slow in JAX, it
  is also shown with its cheap draw, with replacement.
- The share of the limit, for 32 chains, is (a + b) / (time per chain and step x cores, or processor time).
  a: the multiply-adds of a step at the speed of a float32 product of 256 x 256 matrices in NumPy's BLAS.
  Counted are products with the weights, batch x weights each: forward, for the weights' gradients, and for
  the derivatives by every layer's inputs but the first's; and of the update 8 for a parameter of a hidden
  layer (B 1, A 1, friction and noise 2, p·p 1, noise and friction 2, A 1) and 5 for one of the output layer
  (B 1, A 1, O 2, A 1). With two inputs, ReLU and one output, where the engine has the last weights' gradient
  from the sums for the first layer's, and multiplies these by the last weights once, only the products that
  it makes are counted; the share with those of backpropagation as usually written stands below.
  b: 2 normal numbers for a parameter of a hidden layer and 1 for one of the output layer, at the speed of the
  engine's own `fill_normals` for whole tiles of a group.
  Both speeds are of one core while the other rests, the highest seen; they need not last with all cores at
  work. Not counted: biases, activations, the loss, drawing and reading the batch, loads and stores.
"""

import argparse
import contextlib
import importlib.util
import math
import os
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from versions import Engine, Version, earlier
from work import CLOCKS, EPSILON, GAMMA, SIGMA, TAU, Case, H, random_data

from heatbath.engine.layouts import LaneGroup
from heatbath.engine.random import fill_normals
from heatbath.engine.simd import lane_count, pointer_to
from heatbath.engine.threads import thread_count
from heatbath.reference.random import TILE

MANY, MORE = 32, 256
SQUARE, PRODUCT = np.ones((256, 256), np.float32), np.empty((256, 256), np.float32)
Run = Callable[[int], float]  # makes this many steps, and returns the seconds
Array = NDArray[Any]


@dataclass(frozen=True)
class Network:
    """A network to measure, and what to compare with.

    A repeat makes `steps` steps of all chains together. Targets are ratios to the engine before and to JAX
    with its cheap draw, both for many chains, and to PyTorch for one.
    """

    sizes: tuple[int, ...]
    batch: int
    work: int
    before: float | None = None
    jax: float | None = None
    torch: float | None = None


NETWORKS = (
    Network((2, 20, 1), 20, 128_000, 6, 30),
    Network((2, 100, 1), 20, 64_000, 4, 20),
    Network((2, 500, 1), 20, 16_000, 2.5, 12, 100),
    Network((784, 100, 10), 100, 320),
)


@dataclass(frozen=True)
class Row:
    """A line of the table: so many steps of so many chains."""

    run: Run
    steps: int
    chains: int = 1
    target: float | None = None


def of_engine(process: Engine, network: Network, chains: int, clock: str) -> Run:
    """AdLaLa in the engine, after a few steps whose time is not taken."""

    def run(steps: int) -> float:
        case = Case(network.sizes, network.batch, chains, (-(-steps // 50), steps), clock=clock)
        return process.seconds(case)[-1]

    return run


def timed(work: Callable[[int], object], clock: str) -> Run:
    """With the seconds that it takes."""

    def run(steps: int) -> float:
        begin = CLOCKS[clock]()
        work(steps)
        return CLOCKS[clock]() - begin

    return run


def torch_loop(sizes: tuple[int, ...], batch: int, X: Array, y: Array) -> Callable[[int], None]:
    """Return a plain PyTorch loop with AdLaLa in tensor operations."""
    import torch

    hidden, last = torch.nn.Linear(*sizes[:2]), torch.nn.Linear(*sizes[1:])
    model = torch.nn.Sequential(hidden, torch.nn.ReLU(), last)
    inputs = torch.as_tensor(X)
    binary = sizes[-1] == 1
    targets = torch.as_tensor(y).float()[:, None] if binary else torch.as_tensor(y)
    loss = torch.nn.BCEWithLogitsLoss() if binary else torch.nn.CrossEntropyLoss()
    momenta = {p: torch.zeros_like(p) for p in model.parameters()}
    count = sum(p.numel() for p in hidden.parameters())
    a = math.exp(-GAMMA * H)

    def run(steps: int) -> None:
        xi = 0.1
        for _ in range(steps):
            chosen = torch.randperm(len(inputs))[:batch]
            model.zero_grad()
            loss(model(inputs[chosen]), targets[chosen]).backward()
            with torch.no_grad():
                for p in hidden.parameters():
                    v = momenta[p]
                    v.sub_(p.grad, alpha=H)
                    p.add_(v, alpha=H / 2)
                    v.mul_(math.exp(-H / 2 * xi)).add_(torch.randn_like(v), alpha=SIGMA * math.sqrt(H / 2))
                square = sum(float(momenta[p].square().sum()) for p in hidden.parameters())
                xi += H * EPSILON * (square - count * TAU)
                for p in hidden.parameters():
                    v = momenta[p]
                    v.add_(torch.randn_like(v), alpha=SIGMA * math.sqrt(H / 2)).mul_(math.exp(-H / 2 * xi))
                    p.add_(v, alpha=H / 2)
                for p in last.parameters():
                    v = momenta[p]
                    v.sub_(p.grad, alpha=H)
                    p.add_(v, alpha=H / 2)
                    v.mul_(a).add_(torch.randn_like(v), alpha=math.sqrt(TAU * (1 - a * a)))
                    p.add_(v, alpha=H / 2)

    return run


def posteriors_loop(sizes: tuple[int, ...], batch: int, X: Array, y: Array) -> Callable[[int], None]:
    """Return posteriors' baoa."""
    import posteriors
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(*sizes[:2]), torch.nn.ReLU(), torch.nn.Linear(*sizes[1:]))
    inputs = torch.as_tensor(X)
    binary = sizes[-1] == 1
    targets = torch.as_tensor(y).float()[:, None] if binary else torch.as_tensor(y)
    loss = torch.nn.BCEWithLogitsLoss() if binary else torch.nn.CrossEntropyLoss()

    def log_posterior(params: Any, data: Any) -> tuple[Any, Any]:
        output = torch.func.functional_call(model, params, data[0])
        return -loss(output, data[1]), torch.tensor([])

    transform = posteriors.sgmcmc.baoa.build(log_posterior, lr=H, alpha=GAMMA, temperature=TAU)

    def run(steps: int) -> None:
        state = transform.init(dict(model.named_parameters()))
        for _ in range(steps):
            chosen = torch.randperm(len(inputs))[:batch]
            state, _ = transform.update(state, (inputs[chosen], targets[chosen]))

    return run


def jax_scan(
    sizes: tuple[int, ...], batch: int, X: Array, y: Array, chains: int, replace: bool = False
) -> Callable[[int], None]:
    """Return a jitted scan in JAX, vmapped for several chains."""
    import jax
    import jax.numpy as jnp

    inputs, labels = jnp.asarray(X), jnp.asarray(y)
    binary = sizes[-1] == 1
    a = math.exp(-GAMMA * H)
    count = sizes[1] * (sizes[0] + 1)

    def loss(params: Any, x: Any, t: Any) -> Any:
        (W1, b1), (W2, b2) = params
        z = jnp.maximum(x @ W1 + b1, 0) @ W2 + b2
        if binary:
            return jnp.mean(jnp.maximum(z[:, 0], 0) - z[:, 0] * t + jnp.log1p(jnp.exp(-jnp.abs(z[:, 0]))))
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(z), t[:, None], axis=1))

    def step(state: Any, key: Any) -> tuple[Any, None]:
        params, momenta, xi = state
        keys = jax.random.split(key, 7)
        if replace:  # far cheaper in JAX, which sorts all data to draw without
            chosen = jax.random.randint(keys[0], (batch,), 0, len(inputs))
        else:
            chosen = jax.random.choice(keys[0], len(inputs), (batch,), replace=False)
        gradient = jax.grad(loss)(params, inputs[chosen], labels[chosen])

        def normals(k: int, like: Any) -> Any:
            pair = jax.random.split(keys[k])
            return tuple(jax.random.normal(pair[i], like[i].shape) for i in range(2))

        hidden, last = params
        v, u = momenta
        tree = jax.tree.map
        v = tree(lambda v, g: v - H * g, v, gradient[0])
        hidden = tree(lambda x, v: x + H / 2 * v, hidden, v)
        width = SIGMA * math.sqrt(H / 2)
        v = tree(lambda v, r: jnp.exp(-H / 2 * xi) * v + width * r, v, normals(1, v))
        xi = xi + H * EPSILON * (sum(jnp.sum(x**2) for x in v) - count * TAU)
        v = tree(lambda v, r: jnp.exp(-H / 2 * xi) * (v + width * r), v, normals(2, v))
        hidden = tree(lambda x, v: x + H / 2 * v, hidden, v)
        u = tree(lambda v, g: v - H * g, u, gradient[1])
        last = tree(lambda x, v: x + H / 2 * v, last, u)
        u = tree(lambda v, r: a * v + math.sqrt(TAU * (1 - a * a)) * r, u, normals(3, u))
        last = tree(lambda x, v: x + H / 2 * v, last, u)
        return ((hidden, last), (v, u), xi), None

    def start(key: Any) -> Any:
        one, two = jax.random.split(key)
        params = tuple(
            (0.5 * jax.random.normal(k, (width, out)), jnp.zeros(out))
            for k, width, out in ((one, sizes[0], sizes[1]), (two, sizes[1], sizes[2]))
        )
        return params, jax.tree.map(jnp.zeros_like, params), jnp.asarray(0.1)

    def many(key: Any, steps: int) -> Any:
        begin, rest = jax.random.split(key)
        return jax.lax.scan(step, start(begin), jax.random.split(rest, steps))[0]

    single = jax.jit(many, static_argnums=1)
    every = jax.jit(jax.vmap(many, in_axes=(0, None)), static_argnums=1)

    def run(steps: int) -> None:
        key = jax.random.key(0)
        result = single(key, steps) if chains == 1 else every(jax.random.split(key, chains), steps)
        jax.block_until_ready(result)

    return run


def fastest(work: Callable[[int], object], clock: str) -> Run:
    """With the seconds that it takes on one core when nothing else is in its way."""
    once = timed(work, clock)

    def run(steps: int) -> float:
        with threadpool_limits(1, "blas"):
            return min(once(steps) for _ in range(20))

    return run


def products(n: int) -> None:
    """Products of 256 x 256 matrices."""
    for _ in range(n):
        np.dot(SQUARE, SQUARE, out=PRODUCT)


@numba.njit
def _fill(layout, z, numbers, n):
    for step in range(n):
        fill_normals(layout, pointer_to(z), pointer_to(numbers), np.uint64(1), 0, step, 0, 0, TILE)


def tiles(n: int) -> None:
    """Whole tiles of random numbers for a group."""
    count = lane_count(np.dtype(np.float32))
    z, numbers = np.empty(TILE * count, np.float32), np.arange(count).astype(np.uint64)
    _fill(LaneGroup(count), z, numbers, n)


def counts(sizes: tuple[int, ...], batch: int) -> tuple[int, int, int]:
    """Of a step of a chain: the multiply-adds, those of usual backpropagation, and the random numbers."""
    weights = [width * out for width, out in pairwise(sizes)]
    last = weights[-1] + sizes[-1]
    hidden = sum(weights) + sum(sizes[1:]) - last
    usual = batch * (2 * sum(weights) + sum(weights[1:]))
    products = batch * (2 * weights[0] + weights[1]) if sizes[::2] == (2, 1) else usual
    update = 8 * hidden + 5 * last
    return products + update, usual + update, 2 * hidden + last


def rows(network: Network, ours: Engine, before: Engine | None, clock: str) -> dict[str, Row]:
    """Return what is measured, by name; "engine" is what the others are compared with."""
    X, y = random_data(network.sizes)
    known = network.sizes, network.batch, X, y
    small = network.sizes[0] < 100
    table = {}
    for chains in (1, MANY, MORE) if small else (1, MANY):
        steps = network.work // chains
        table[f"engine, {chains}"] = Row(of_engine(ours, network, chains, clock), steps, chains)
        if before:
            target = None if chains == 1 else network.before
            table[f"engine before, {chains}"] = Row(
                of_engine(before, network, chains, clock), steps, chains, target
            )
    table["PyTorch, 1"] = Row(timed(torch_loop(*known), clock), 300 if small else 100, target=network.torch)
    if importlib.util.find_spec("posteriors"):
        table["posteriors, 1"] = Row(timed(posteriors_loop(*known), clock), 100 if small else 50)
    if importlib.util.find_spec("jax"):
        table |= {
            "JAX, 1": Row(timed(jax_scan(*known, 1), clock), 1000 if small else 50),
            "JAX with replacement, 1": Row(timed(jax_scan(*known, 1, True), clock), 3000 if small else 100),
            f"JAX, {MANY}": Row(timed(jax_scan(*known, MANY), clock), 50 if small else 5, MANY),
            f"JAX with replacement, {MANY}": Row(
                timed(jax_scan(*known, MANY, True), clock), 300 if small else 10, MANY, network.jax
            ),
        }
    return table | {"product": Row(fastest(products, clock), 10), "tile": Row(fastest(tiles, clock), 1000)}


def measure(table: dict[str, Row], repeats: int) -> dict[str, list[float]]:
    """Microseconds per chain and step, in each repeat after a first one, in which code is compiled."""
    times: dict[str, list[float]] = {name: [] for name in table}
    for repeat in range(repeats + 1):
        for name, row in table.items():
            taken = row.run(row.steps)
            if repeat:
                times[name].append(1e6 * taken / row.steps / row.chains)
    return times


def spread(values: list[float], digits: int) -> str:
    """Return the median, the lowest and the highest value as text."""
    low, middle, high = (f"{f(values):.{digits}f}" for f in (min, statistics.median, max))
    return f"{middle:>8} ({low} to {high})"


def report(network: Network, table: dict[str, Row], times: dict[str, list[float]], clock: str) -> None:
    """Print the table of a network."""
    print(f"\n{'-'.join(map(str, network.sizes))}, batch {network.batch}")
    print(f"  {'':<20}{'chains':>7}{'μs / chain, step':>18}{'times the engine':>18}")
    for name in sorted((name for name in table if "," in name), key=lambda name: table[name].chains):
        row, base = table[name], times[f"engine, {table[name].chains}"]
        what = name.rpartition(",")[0].replace(" with replacement", ", cheap draw")
        line = f"  {what:<20}{row.chains:>7}{statistics.median(times[name]):>18.3f}"
        if what != "engine":
            ratios = [one / our for one, our in zip(times[name], base, strict=True)]
            line += f"  {spread(ratios, 2):<28}" + (f"target {row.target}" if row.target else "")
        print(line.rstrip())
    adds, usual, numbers = counts(network.sizes, network.batch)
    a = adds * min(times["product"]) / 256**3
    b = numbers * min(times["tile"]) / TILE / lane_count(np.dtype(np.float32))
    cores = thread_count() if clock == "wall" else 1
    ours = [one * cores for one in times[f"engine, {MANY}"]]
    told = f"time of {MANY} chains x {cores} cores" if clock == "wall" else f"processor time of {MANY} chains"
    print(f"  limit: {adds} multiply-adds {a:.3f} μs + {numbers} random numbers {b:.3f} μs = {a + b:.3f} μs,")
    print(f"  which is {spread([(a + b) / one for one in ours], 2).strip()} of the {told}")
    if usual != adds:
        shares = [(a * usual / adds + b) / one for one in ours]
        print(f"  ({usual} multiply-adds, as usually written: {spread(shares, 2).strip()})")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--processor", action="store_const", const="processor", default="wall", dest="clock")
    options = parser.parse_args()
    print(f"processes that ran before this one began: {os.getloadavg()[0]:.1f}, on {thread_count()} cores")
    for name in ("posteriors", "jax"):
        if not importlib.util.find_spec(name):
            print(f"{name} is left out: it is not installed")
    with contextlib.ExitStack() as stack:
        version = stack.enter_context(earlier())
        before = stack.enter_context(Engine(version)) if version else None
        ours = stack.enter_context(Engine(Version()))
        for network in NETWORKS:
            table = rows(network, ours, before, options.clock)
            report(network, table, measure(table, options.repeats), options.clock)


if __name__ == "__main__":
    main()
