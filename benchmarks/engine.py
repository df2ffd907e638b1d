"""Microseconds per chain and step of AdLaLa: the engine against PyTorch, posteriors and JAX, in one run.

Every number is the median of interleaved repeats. The alternatives are what one would write with each
library: a plain PyTorch training loop with AdLaLa in tensor operations; `baoa` of posteriors (Langevin in all
layers: it has no AdLaLa); a jitted scan in JAX, for one chain and vmapped over 32. All draw mini-batches
without replacement; since that is slow in JAX, it is also shown with replacement. The last row is what the
multiplications and random numbers of a step alone would take on one core at this machine's peak: the speed of
a matrix product in BLAS, and of the tiles of random numbers.
"""

import argparse
import math
import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

import heatbath as hb
from heatbath.engine.dense import Shape
from heatbath.engine.ensemble import Ensemble
from heatbath.engine.program import compile_program
from heatbath.engine.random import fill_normals32
from heatbath.networks import ACTIVATIONS
from heatbath.tasks import TASKS

H, TAU, SIGMA, EPSILON, GAMMA = 0.1, 1e-4, 0.01, 0.1, 0.1
CASES = {
    "2-20-1, batch 20": ((2, 20, 1), 20, 1000),
    "2-100-1, batch 20": ((2, 100, 1), 20, 1000),
    "2-500-1, batch 20": ((2, 500, 1), 20, 1000),
    "784-100-10, batch 100": ((784, 100, 10), 100, 6000),
}
CHAINS = 32
Run = Callable[[int], None]  # makes this many steps
Array = NDArray[Any]


def data(sizes: tuple[int, ...], count: int) -> tuple[Array, Array]:
    """Random data: time does not depend on what they are."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((count, sizes[0])).astype(np.float32)
    return X, rng.integers(0, max(2, sizes[-1]), count)


def engine(sizes: tuple[int, ...], batch: int, X: Array, y: Array, chains: int) -> Run:
    """The engine, with one BLAS thread, as `train` runs it."""
    problem = hb.datasets.from_arrays(X, y, X, y, task="binary" if sizes[-1] == 1 else "classes")
    partition = hb.AdLaLa(H, TAU, SIGMA, EPSILON, GAMMA)

    def run(steps: int) -> None:
        network = hb.Dense(sizes[1:-1])
        program = compile_program(partition, network.layers(problem.inputs, problem.outputs))
        shape = Shape(
            network.sizes(problem.inputs, problem.outputs),
            ACTIVATIONS["relu"].number,
            TASKS[problem.task].number,
        )
        theta = network.start(problem.inputs, problem.outputs, np.arange(chains), 0).astype(np.float32)
        with threadpool_limits(1, "blas"):
            Ensemble(program, shape, theta, problem.X_train, problem.Y_train, batch).advance(steps)

    return run


def torch_loop(sizes: tuple[int, ...], batch: int, X: Array, y: Array) -> Run:
    """A plain PyTorch loop with AdLaLa in tensor operations."""
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


def posteriors_loop(sizes: tuple[int, ...], batch: int, X: Array, y: Array) -> Run:
    """posteriors' baoa."""
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
) -> Run:
    """A jitted scan in JAX, vmapped for several chains."""
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


def measure(runs: dict[str, tuple[Run, int, int]], repeats: int) -> dict[str, float]:
    """Microseconds per chain and step: (run, steps, chains) by name; the first call of each compiles."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for repeat in range(repeats + 1):
        for name, (run, steps, _) in runs.items():
            begin = time.perf_counter()
            run(steps)
            if repeat:
                seconds[name].append(time.perf_counter() - begin)
    return {
        name: 1e6 * statistics.median(times) / runs[name][1] / runs[name][2]
        for name, times in seconds.items()
    }


@numba.njit
def _numbers(z, words, n):
    for step in range(n):
        fill_normals32(z, words, np.uint64(1), 0, 0, step, 0)


def arithmetic(sizes: tuple[int, ...], batch: int) -> float:
    """Microseconds that a step's multiplications and random numbers take at peak speed, on one core."""
    square = np.ones((256, 256), np.float32)
    z, words = np.empty(256, np.float32), np.empty((4, 64), np.uint32)
    product = lambda: np.dot(square, square)  # noqa: E731
    tiles = lambda: _numbers(z, words, 1000)  # noqa: E731
    speeds = []
    with threadpool_limits(1, "blas"):
        for work, count in ((product, 256**3), (tiles, 256 * 1000)):
            work()
            times = []
            for _ in range(21):
                begin = time.perf_counter()
                work()
                times.append(time.perf_counter() - begin)
            speeds.append(1e6 * statistics.median(times) / count)
    weights = [width * out for width, out in pairwise(sizes)]
    products = batch * (2 * sum(weights) + sum(weights[1:]))  # forward, weights' gradient, deltas
    hidden, last = weights[0] + sizes[1], weights[1] + sizes[2]
    updates = 12 * hidden + 6 * last
    return (products + updates) * speeds[0] + (2 * hidden + last) * speeds[1]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    for title, (sizes, batch, count) in CASES.items():
        X, y = data(sizes, count)
        small = sizes[0] < 100
        runs = {
            "engine": (engine(sizes, batch, X, y, 1), 20_000 if small else 300, 1),
            "PyTorch": (torch_loop(sizes, batch, X, y), 300 if small else 100, 1),
            "posteriors": (posteriors_loop(sizes, batch, X, y), 100 if small else 50, 1),
            "JAX": (jax_scan(sizes, batch, X, y, 1), 1000 if small else 50, 1),
            "JAX, with replacement": (jax_scan(sizes, batch, X, y, 1, True), 3000 if small else 100, 1),
            f"engine, {CHAINS} chains": (engine(sizes, batch, X, y, CHAINS), 1000 if small else 20, CHAINS),
            f"JAX, {CHAINS} chains": (jax_scan(sizes, batch, X, y, CHAINS), 50 if small else 5, CHAINS),
            f"JAX, {CHAINS} chains, with r.": (
                jax_scan(sizes, batch, X, y, CHAINS, True),
                300 if small else 10,
                CHAINS,
            ),
        }
        took = measure(runs, repeats)
        print(f"\n{title}: microseconds per chain and step")
        for name in runs:
            base = took[f"engine, {CHAINS} chains" if "chains" in name else "engine"]
            print(f"  {name:<26}{took[name]:>10.2f}{took[name] / base:>10.1f} times the engine")
        alone = arithmetic(sizes, batch)
        share = alone / took["engine"]
        print(f"  {'arithmetic alone':<26}{alone:>10.2f}{share:>10.2f} of the engine's time, one chain")


if __name__ == "__main__":
    main()
