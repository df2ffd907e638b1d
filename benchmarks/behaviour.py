"""Record hashes of what heatbath computes, and compare them after a change that must not alter results.

    python benchmarks/behaviour.py record FOLDER             # before the change
    python benchmarks/behaviour.py compare FOLDER            # after it, on the same machine
    python benchmarks/behaviour.py compare FOLDER --only torch

More than 200 cases cover the public functions and every method in the three implementations: float32 and
float64, one chain and many in lanes, one thread and two, compiled and plain torch steps. `record` also saves
runs, an estimator, optimiser states and a sampler in FOLDER; `compare` loads them, continues them and
compares the results. Only numbers are hashed, so messages and names may change. The hashes hold for one
machine and one set of installed versions.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import math
import os
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

warnings.simplefilter("ignore")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np  # noqa: E402

import heatbath as hb  # noqa: E402

MLP = getattr(hb, "MLP", None) or hb.Dense  # names of the version before
LiveRun = getattr(hb, "LiveRun", None) or hb.Live
evaluation = getattr(hb, "evaluation", None) or hb.answers
read_table = getattr(hb, "read_table", None) or hb.open_table

CASES: dict[str, Callable[[Path], Any]] = {}
SAVES: dict[str, Callable[[Path], None]] = {}
LOADS: dict[str, Callable[[Path], Any]] = {}


def canonical(value: Any, add: Callable[[bytes], None]) -> None:
    """Feed the numbers in a value to `add`, in a fixed order."""
    if value is None or isinstance(value, bool | int | str | bytes):
        add(repr(value).encode())
    elif isinstance(value, float | np.floating):
        add(b"nan" if math.isnan(value) else float(value).hex().encode())
    elif isinstance(value, np.integer | np.bool_):
        add(repr(value.item()).encode())
    elif isinstance(value, np.ndarray):
        add_array(value, add)
    elif isinstance(value, dict):
        for key in sorted(value, key=str):
            add(str(key).encode())
            canonical(value[key], add)
    elif isinstance(value, list | tuple):
        for item in value:
            canonical(item, add)
    elif hasattr(value, "data_vars"):  # an xarray data set
        for name in sorted(map(str, value.data_vars)):
            add(name.encode())
            add_array(np.asarray(value[name].values), add)
    else:
        add_array(as_array(value), add)


def add_array(array: np.ndarray, add: Callable[[bytes], None]) -> None:
    """Feed the shape and the numbers of an array to `add`."""
    add(f"{array.shape}".encode())
    if array.dtype == object:
        for item in array.ravel():
            canonical(item, add)
    else:
        add(np.ascontiguousarray(array).tobytes())


def as_array(value: Any) -> np.ndarray:
    """Return the numbers of a tensor, or of a pandas or xarray object, as an array."""
    if hasattr(value, "detach"):  # a tensor
        return value.detach().cpu().numpy()
    if hasattr(value, "to_numpy"):
        return np.asarray(value.to_numpy())
    if hasattr(value, "values") and not callable(value.values):
        return np.asarray(value.values)
    raise TypeError(f"no rule for {type(value)}: name the numbers in the case")


def digest(value: Any) -> str:
    """Return a short hash of the numbers in a value."""
    sha = hashlib.sha256()
    canonical(value, sha.update)
    return sha.hexdigest()[:16]


def case(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a case: a function of a scratch folder that returns numbers."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        assert name not in CASES, name
        CASES[name] = function
        return function

    return register


# -- methods in three implementations ------------------------------------------------------------------------

PROBLEM = hb.datasets.spirals(turns=1, n_train=60, n_test=30, seed=3)
NETWORK = MLP((5,), activation="tanh")
RELU = MLP((6,))


def all_methods() -> dict[str, Any]:
    """Return partitions by label: every method with its variants, and the presets."""
    L, A = hb.Langevin, hb.AdaptiveLangevin
    words = {
        f"langevin-{w}": L(2.0, 0.02, word=w) for w in ("BAOAB", "BAOA", "OBA", "ABOBA", "OBABO", "OABAO")
    }
    methods = words | {
        "langevin-prior": L(2.0, 0.02, weight_decay=0.03),
        "langevin-inf": L(math.inf, 0.02),
        "adaptive": A(tau=0.02, sigma=0.05, epsilon=0.1),
        "adaptive-BAFEFAB": A(tau=0.02, sigma=0.05, epsilon=0.1, word="BAFEFAB"),
        "adaptive-sde": A(tau=0.02, sigma=0.05, epsilon=0.1, friction="sde"),
        "adaptive-tensor": A(tau=0.02, sigma=0.05, epsilon=0.1, thermostat="tensor"),
        "adaptive-mean": A(tau=0.02, sigma=0.05, epsilon=0.5, kinetic="mean"),
        "adaptive-frequency": A(tau=0.02, frequency=0.3, damping=0.5),
        "sgld": hb.SGLD(0.1),
        "sgd": hb.SGD(weight_decay=0.01),
        "momentum-1": hb.Momentum(0.8),
        "momentum-2": hb.Momentum(0.8, kind=2),
        "adam": hb.Adam(weight_decay=0.01),
        "rmsprop": hb.RMSprop(0.9, 1e-3),
        "frozen": hb.Frozen(),
        "langevin-schedule": L(hb.schedules.Linear(2.0, 1.0, 30), hb.schedules.Exponential(0.05, 0.01, 30)),
    }
    partitions = {name: hb.Partition(method, 0.1) for name, method in methods.items()}
    partitions |= {
        "lala": hb.LaLa(h=0.2, gamma=1.0, tau=0.02, gamma_output=3.0, tau_output=0.01),
        "lol": hb.LOL(h=0.2),
        "adlala": hb.AdLaLa(h=0.2),
        "adladl": hb.AdLAdL(h=0.2),
        "hidden": hb.Partition({"hidden": A(tau=0.01), "output": L(1.0, 0.02)}, 0.1),
        "cyclical": hb.Partition(L(2.0, 0.02), hb.schedules.Cyclical(0.2, 0.05, 12)),
        "tempering": hb.Partition(L(2.0, hb.schedules.SimulatedTempering((0.01, 0.02, 0.04), every=5)), 0.1),
    }
    return partitions


def reference_case(partition: Any) -> Callable[[Path], Any]:
    """Return a case that advances the reference by 25 steps."""

    def run(_: Path) -> Any:
        layers = {"first": (6, 4), "last": (3, 1)}
        size = 6 + 4 + 3 + 1
        options: dict[str, Any] = {"seed": 4, "momenta": "zero"}
        if any(p is not None for p in [partition]) and "Tempering" in repr(partition):
            options["loss"] = lambda theta: 0.25 * np.sum(theta**2, axis=-1)
        reference = hb.Reference(
            lambda theta, batch: -np.sin(theta) - 0.5 * theta,
            np.linspace(-1, 1, size),
            partition,
            layers,
            **options,
        )
        states = reference.advance(25)
        state = reference.state if states is None and hasattr(reference, "state") else states
        return [np.asarray(state.theta), np.asarray(state.p), np.asarray(state.xi)]

    return run


def engine_case(partition: Any, dtype: str, chains: int, threads: int, network: Any) -> Callable[[Path], Any]:
    """Return a case that trains a few chains on the engine."""

    def run(_: Path) -> Any:
        made = hb.train(
            PROBLEM, network, partition, 24, 10, chains, seed=2, record=6, dtype=dtype, threads=threads,
            samples=3, average=[[0.1, 0.2], [0.3, -0.1]],
        )  # fmt: skip
        return [made.data, made.theta, made.p]

    return run


def module(seed: int = 0, dtype: str = "float32") -> Any:
    """Return a small torch network."""
    import torch

    torch.manual_seed(seed)
    net = torch.nn.Sequential(torch.nn.Linear(3, 7), torch.nn.Tanh(), torch.nn.Linear(7, 2))
    return net.to(getattr(torch, dtype))


def torch_optimizer(partition_name: str, model: Any, fused: bool | None) -> Any:
    """Return an optimiser of heatbath.torch for a model."""
    import heatbath.torch as ht

    P = list(model.parameters())
    A = {"tau": 0.02, "sigma": 0.05, "epsilon": 0.1}
    common = {"seed": 5, "fused": fused}
    makers: dict[str, Callable[[], Any]] = {
        "langevin": lambda: ht.Langevin(P, lr=0.1, gamma=2.0, tau=0.02, **common),
        "langevin-BAOA": lambda: ht.Langevin(P, lr=0.1, gamma=2.0, tau=0.02, word="BAOA", **common),
        "langevin-OBABO": lambda: ht.Langevin(P, lr=0.1, gamma=2.0, tau=0.02, word="OBABO", **common),
        "langevin-ABOBA": lambda: ht.Langevin(P, lr=0.1, gamma=2.0, tau=0.02, word="ABOBA", **common),
        "langevin-prior": lambda: ht.Langevin(P, lr=0.1, gamma=2.0, tau=0.02, weight_decay=0.03, **common),
        "adaptive": lambda: ht.AdaptiveLangevin(P, lr=0.1, **A, **common),
        "adaptive-tensor": lambda: ht.AdaptiveLangevin(P, lr=0.1, **A, thermostat="tensor", **common),
        "adaptive-sde": lambda: ht.AdaptiveLangevin(P, lr=0.1, **A, friction="sde", word="BAFEFAB", **common),
        "sgld": lambda: ht.SGLD(P, lr=0.1, sigma=0.1, **common),
        "sgd": lambda: ht.SGD(P, lr=0.1, **common),
        "momentum": lambda: ht.Momentum(P, lr=0.1, mu=0.8, **common),
        "adam": lambda: ht.Adam(P, lr=0.01, **common),
        "rmsprop": lambda: ht.RMSprop(P, lr=0.01, **common),
        "frozen": lambda: ht.Frozen(P, lr=0.01, **common),
        "lala": lambda: ht.LaLa(model, lr=0.2, gamma=1.0, tau=0.02, **common),
        "lol": lambda: ht.LOL(model, lr=0.2, **common),
        "adlala": lambda: ht.AdLaLa(model, lr=0.2, **common),
        "adladl": lambda: ht.AdLAdL(model, lr=0.2, **common),
    }
    return makers[partition_name]()


TORCH = [
    "langevin",
    "langevin-BAOA",
    "langevin-OBABO",
    "langevin-ABOBA",
    "langevin-prior",
    "adaptive",
    "adaptive-tensor",
    "adaptive-sde",
    "sgld",
    "sgd",
    "momentum",
    "adam",
    "rmsprop",
    "frozen",
    "lala",
    "lol",
    "adlala",
    "adladl",
]


def torch_data(dtype: str) -> tuple[Any, Any]:
    """Return inputs and targets for the torch cases."""
    import torch

    generator = torch.Generator().manual_seed(1)
    x = torch.randn(20, 3, generator=generator).to(getattr(torch, dtype))
    return x, torch.randn(20, 2, generator=generator).to(getattr(torch, dtype))


def torch_steps(model: Any, optimizer: Any, steps: int, dtype: str) -> Any:
    """Make steps, halving the stepsize on the way; return the parameters and the state."""
    import torch

    x, y = torch_data(dtype)
    for step in range(steps):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        if step == 6:
            for group in optimizer.param_groups:
                group["lr"] = group["lr"] * 0.5
        optimizer.step()
    return [p.detach().clone() for p in model.parameters()], optimizer_numbers(optimizer)


def optimizer_numbers(optimizer: Any) -> Any:
    """Return the numbers in an optimiser's state dict."""
    state = optimizer.state_dict()
    groups = [
        {k: v for k, v in group.items() if isinstance(v, int | float | list | str | bool) or v is None}
        for group in state["param_groups"]
    ]
    return [state["state"], groups]


def torch_case(name: str, dtype: str, fused: bool) -> Callable[[Path], Any]:
    """Return a case of twelve torch steps."""

    def run(_: Path) -> Any:
        model = module(dtype=dtype)
        return torch_steps(model, torch_optimizer(name, model, fused), 12, dtype)

    return run


for label, partition in all_methods().items():
    CASES[f"reference/{label}"] = reference_case(partition)
    CASES[f"engine/{label}/float32 alone"] = engine_case(partition, "float32", 1, 1, NETWORK)
    CASES[f"engine/{label}/float64 lanes, 2 threads"] = engine_case(partition, "float64", 19, 2, NETWORK)
    if label in ("langevin-BAOAB", "adaptive", "adlala", "lol", "adam", "sgld", "momentum-1", "tempering"):
        CASES[f"engine/{label}/float32 lanes, 1 thread"] = engine_case(partition, "float32", 35, 1, RELU)
        CASES[f"engine/{label}/float32 lanes, 2 threads"] = engine_case(partition, "float32", 35, 2, RELU)
        CASES[f"engine/{label}/float64 alone"] = engine_case(partition, "float64", 1, 1, NETWORK)
for label in TORCH:
    CASES[f"torch/{label}/float32 fused"] = torch_case(label, "float32", True)
    CASES[f"torch/{label}/float64 fused"] = torch_case(label, "float64", True)
    CASES[f"torch/{label}/float32 plain"] = torch_case(label, "float32", False)


# -- runs ----------------------------------------------------------------------------------------------------


def regression_data(rows: int = 60, seed: int = 0) -> tuple[Any, Any]:
    """Return inputs and a target with noise."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, 3))
    return X, X[:, 0] - 0.5 * X[:, 1] ** 2 + 0.2 * rng.standard_normal(rows)


def classes_data(rows: int = 90, seed: int = 0) -> tuple[Any, Any]:
    """Return inputs and labels of three classes."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, 3))
    return X, np.where(X[:, 0] > 0.4, "red", np.where(X[:, 1] > 0, "green", "blue"))


def small_run(**options: Any) -> Any:
    """Train three chains on a spiral."""
    settings: dict[str, Any] = {"seed": 1, "record": 10, "threads": 1} | options
    return hb.train(PROBLEM, RELU, hb.AdLaLa(h=0.2), 40, 10, 3, **settings)


@case("train/weights and histogram")
def _(_: Path) -> Any:
    return small_run(weights=True, histogram=(-1.0, 1.0, 8), losses_every=2, record=[0, 3, 10, 20, 40]).data


@case("train/shuffled, not rotated, thermal")
def _(_: Path) -> Any:
    return small_run(shuffled=True, momenta="thermal").data


@case("train/written word")
def _(_: Path) -> Any:
    return hb.train(
        PROBLEM,
        RELU,
        hb.Partition(hb.Langevin(1.0, 0.01, word="ABOBA"), 0.1),
        20,
        10,
        2,
        rotated=False,
        record=5,
    ).data


@case("train/two gradients")
def _(_: Path) -> Any:
    return hb.train(
        PROBLEM, RELU, hb.Partition(hb.Langevin(1.0, 0.01, word="BAOBA"), 0.1), 20, 10, 2, record=5
    ).data


@case("train/start, thin, burn-in")
def _(_: Path) -> Any:
    start = np.linspace(-1, 1, 6 * 2 + 6 + 6 + 1)
    run = small_run(start=start, burn_in=10, thin=5, samples=6)
    return [run.data, run.predict([[0.2, 0.3]]).mean, run.outputs([[0.2, 0.3]])]


@case("train/progress and checkpoint")
def _(folder: Path) -> Any:
    steps: list[Any] = []
    run = small_run(checkpoint=folder / "c.nc", every=0.0, progress=lambda p: steps.append((p.step, p.steps)))
    return [run.data, steps[-1], hb.load(folder / "c.nc").data]


@case("train/folder")
def _(folder: Path) -> Any:
    return small_run(folder=folder / "blocks").data


@case("train/posterior known noise")
def _(_: Path) -> Any:
    problem = hb.datasets.from_arrays(*regression_data(), seed=1, standardise=True)
    partition = hb.Partition(hb.Langevin(1.0), 0.05, hb.Posterior(2.0, noise=0.7))
    run = hb.train(problem, MLP((4,)), partition, 60, "all", 3, samples=5, record=10)
    return [run.data, run.predict(problem.X_test[0]).sd, run.predict(problem.X_test[0]).variance]


@case("train/posterior sampled noise, cold")
def _(_: Path) -> Any:
    problem = hb.datasets.from_arrays(*regression_data(), seed=1, standardise=True)
    partition = hb.Partition(hb.Langevin(1.0), 0.05, hb.Posterior((1.0, 2.0), temperature=0.5))
    return hb.train(problem, MLP((4,)), partition, 60, 16, 3, samples=5, record=10).data


@case("train/posterior network noise")
def _(_: Path) -> Any:
    problem = hb.datasets.from_arrays(*regression_data(), seed=1, standardise=True)
    partition = hb.Partition(hb.Langevin(1.0), 0.05, hb.Posterior(1.0, noise="network"))
    return hb.train(problem, MLP((4,)), partition, 60, 16, 3, samples=5, record=10).data


@case("train/classes and deep")
def _(_: Path) -> Any:
    problem = hb.datasets.from_arrays(*classes_data(), seed=1, class_weight="balanced")
    return hb.train(problem, MLP((5, 4), "tanh"), hb.AdLaLa(h=0.1), 40, 12, 2, record=10, samples=3).data


@case("train/weights of examples")
def _(_: Path) -> Any:
    X, y = regression_data()
    problem = hb.datasets.from_arrays(X, y, weights=np.linspace(0.5, 2, len(y)), seed=1)
    return hb.train(problem, MLP((5,)), hb.LOL(), 40, 12, 2, record=10).data


@case("train/wide layers by BLAS")
def _(_: Path) -> Any:
    problem = hb.datasets.from_arrays(*regression_data(), seed=1)
    return hb.train(problem, MLP((150, 150)), hb.AdLaLa(h=0.05), 10, 32, 1, record=5).data


@case("train/h auto, steps auto, prior auto")
def _(_: Path) -> Any:
    problem = hb.datasets.from_arrays(*regression_data(), seed=1, standardise=True)
    partition = hb.Partition(hb.Langevin(1.0), "auto", hb.Posterior("auto"))
    run = hb.train(problem, MLP((4,)), partition, "auto", 16, 4, budget=3200, samples=20, seed=3)
    found = run.found
    return [run.data, found.tried, found.priors, found.temperature, found.ended, found.rhat, found.ess]


@case("train/h auto, fixed steps")
def _(_: Path) -> Any:
    problem = hb.datasets.from_arrays(*regression_data(), seed=2, standardise=True)
    partition = hb.Partition(hb.Langevin(0.5), "auto", hb.Posterior(1.0, noise=0.5))
    run = hb.train(problem, MLP((4,)), partition, 1500, "all", 3, samples=20, seed=3)
    return [run.data, run.found.tried, run.found.temperature]


@case("train/warm start and h auto")
def _(_: Path) -> Any:
    problem = hb.datasets.from_arrays(*regression_data(), seed=2, standardise=True)
    partition = hb.Partition(hb.Langevin(0.5), "auto", hb.Posterior("auto"))
    run = hb.train(problem, MLP((4,)), partition, "auto", 16, 4, budget=1600, samples=10, seed=3, warm=200)
    return [run.data, run.found.tried, run.found.priors, run.found.begun]


@case("train/auto with a checkpoint, twice")
def _(folder: Path) -> Any:
    problem = hb.datasets.from_arrays(*regression_data(), seed=2, standardise=True)
    partition = hb.Partition(hb.Langevin(0.5), "auto", hb.Posterior(1.0))
    runs = [
        hb.train(
            problem, MLP((3,)), partition, "auto", 16, 4, budget=1600, samples=10, checkpoint=folder / "a.nc"
        )
        for _ in range(2)
    ]
    return [run.data for run in runs]


@case("sweep/lists")
def _(_: Path) -> Any:
    partition = hb.LaLa(h=[0.1, 0.2], gamma=[1.0, 3.0], tau=0.01)
    run = hb.sweep(PROBLEM, RELU, partition, 20, 10, 2, record=10)
    return [run.data, run.select(h=0.2, gamma=1.0).data, run.select(h=0.1, gamma=3.0).theta]


@case("compare/three")
def _(_: Path) -> Any:
    run = hb.compare(
        PROBLEM,
        RELU,
        {"a": hb.AdLaLa(), "b": hb.Partition(hb.Adam(), 0.01), "c": hb.LOL()},
        20,
        10,
        3,
        record=5,
    )
    return [run.data, run.select(method="b").data, run.select(method="a").replay().data]


@case("run/resume with changes, replay")
def _(_: Path) -> Any:
    run = small_run(samples=4)
    longer = run.resume(20)
    return [longer.data, run.replay().data, run.resume(10, hb.AdLaLa(h=0.1)).data]


@case("run/save and load")
def _(folder: Path) -> Any:
    run = small_run(samples=4)
    run.save(folder / "run.nc")
    return [hb.load(folder / "run.nc").data, hb.load(folder / "run.nc").resume(10).data]


@case("run/xarray, arviz, torch")
def _(_: Path) -> Any:
    run = small_run(samples=6)
    tree = run.to_arviz()
    return [
        run.to_xarray(),
        [np.asarray(v.values) for v in tree["posterior"].data_vars.values()],
        [p for p in run.to_torch().parameters()]
        if hasattr(run, "to_torch") and not isinstance(run.to_torch(), list)
        else None,
    ]


@case("run/attributes")
def _(_: Path) -> Any:
    run = small_run(samples=6, weights=True)
    return [
        run.loss(),
        run.accuracy("train"),
        run.died,
        run.p,
        *(f(part) for part in ("hidden", "output") for f in (run.temperature,)),
    ]


@case("run/predictive and calibration")
def _(_: Path) -> Any:
    problem = hb.datasets.from_arrays(*regression_data(), seed=1, standardise=True)
    run = hb.train(
        problem, MLP((4,)), hb.Partition(hb.Langevin(1.0), 0.05, hb.Posterior(1.0)), 200, "all", 3, samples=20
    )
    x = problem.X_test[0][:3]
    law = run.predictive(x)
    return [
        run.predict(x).mean,
        run.predict(x).variance,
        run.predict(x).sd,
        run.predict(x).noise,
        law.quantile(np.array([0.1, 0.9])) if hasattr(law, "quantile") else None,
    ]


@case("live/advance, change, look, rewind")
def _(_: Path) -> Any:
    live = LiveRun(PROBLEM, RELU, hb.AdLaLa(h=0.2), 10, 2, seed=3)
    live.advance(10)
    live.change(hb.AdLaLa(h=0.1))
    live.advance(10)
    first = live.run().data
    live.note()
    look = live.look()
    return [first, look.loss, look.accuracy, np.asarray(live.theta), live.step]


@case("sample/gaussian")
def _(_: Path) -> Any:
    sampled = hb.sample(gradient=lambda x: -x * np.array([1.0, 4.0]), start=np.zeros((5, 2)), h=0.2, steps=60)
    return np.asarray(sampled.samples if hasattr(sampled, "samples") else sampled.theta)


@case("sample/metropolis")
def _(_: Path) -> Any:
    sampled = hb.sample(
        log_density=lambda x: -0.5 * np.sum(x**2, axis=-1), gradient=lambda x: -x, start=np.zeros((5, 2)),
        method=hb.Langevin(1.0, 0.7), h=0.4, steps=60, metropolis=True, thin=2, seed=3,
    )  # fmt: skip
    return np.asarray(sampled.samples if hasattr(sampled, "samples") else sampled.theta)


@case("sample/adaptive, auto h")
def _(_: Path) -> Any:
    sampled = hb.sample(
        gradient=lambda x: -(x**3),
        start=np.ones((4, 3)),
        method=hb.AdaptiveLangevin(tau=1.0, sigma=1.0, epsilon=0.1),
        h=0.1,
        steps=80,
        burn_in=10,
    )
    return np.asarray(sampled.samples if hasattr(sampled, "samples") else sampled.theta)


# -- estimators ----------------------------------------------------------------------------------------------


@case("estimators/regressor defaults")
def _(_: Path) -> Any:
    X, y = regression_data()
    model = hb.ThermodynamicRegressor(random_state=0, threads=2).fit(X, y)
    mean, sd = model.predict(X[:9], return_std=True)
    return [
        mean,
        sd,
        model.predict_interval(X[:9], 0.9),
        model.predict_quantiles(X[:9], [0.2, 0.5]),
        model.score(X, y),
    ]


@case("estimators/classifier defaults")
def _(_: Path) -> Any:
    X, y = classes_data()
    model = hb.ThermodynamicClassifier(random_state=0, threads=2).fit(X, y)
    return [model.predict_proba(X[:9]), list(map(str, model.predict(X[:9])))]


@case("estimators/regressor settings, early stopping")
def _(_: Path) -> Any:
    X, y = regression_data(120)
    model = hb.ThermodynamicRegressor(
        hidden=(8,), steps=3000, early_stopping=True, random_state=1, method=hb.AdLaLa(h=0.1), chains=2
    )
    return model.fit(X, y).predict(X[:9])


@case("estimators/classifier weights and early stopping")
def _(_: Path) -> Any:
    X, y = classes_data(150)
    model = hb.ThermodynamicClassifier(
        hidden=(6,), steps=1600, early_stopping=True, class_weight="balanced", random_state=1
    )
    return model.fit(X, y).predict_proba(X[:9])


@case("estimators/noise by network, poisson, student")
def _(_: Path) -> Any:
    X, y = regression_data()
    out = []
    for options in ({"noise": "network"}, {"likelihood": "student"}, {"likelihood": "poisson"}):
        target = np.round(np.exp(y / 2)) if options.get("likelihood") == "poisson" else y
        out.append(
            hb.ThermodynamicRegressor(hidden=(5,), steps=600, random_state=0, **options)
            .fit(X, target)
            .predict(X[:9])
        )
    return out


@case("estimators/partial fit")
def _(_: Path) -> Any:
    X, y = regression_data(200)
    model = hb.ThermodynamicRegressor(hidden=(5,), steps=400, random_state=0)
    for i in range(0, 200, 50):
        model.partial_fit(X[i : i + 50], y[i : i + 50])
    return [model.predict(X[:9]), model.prequential_loss_]


@case("estimators/partial fit of a classifier with drift")
def _(_: Path) -> Any:
    X, y = classes_data(240)
    model = hb.ThermodynamicClassifier(hidden=(5,), steps=400, random_state=0, window=100)
    for i in range(0, 240, 60):
        model.partial_fit(
            X[i : i + 60], y[i : i + 60] if i < 120 else y[i : i + 60][::-1], classes=np.unique(y)
        )
    return [model.predict_proba(X[:9]), model.prequential_loss_]


@case("estimators/encode a table, warm start, posterior samples")
def _(_: Path) -> Any:
    import pandas as pd

    X, y = regression_data(80)
    frame = pd.DataFrame({"a": X[:, 0], "b": np.where(X[:, 1] > 0, "u", "v"), "c": X[:, 2]})
    model = hb.ThermodynamicRegressor(hidden=(5,), steps=400, random_state=0, encode=True, warm_start=True)
    model.fit(frame, y).fit(frame, y)
    return [model.predict(frame[:9]), np.asarray(model.sample_posterior(frame[:9]))]


@case("estimators/save and load")
def _(folder: Path) -> Any:
    X, y = regression_data()
    model = hb.ThermodynamicRegressor(hidden=(5,), steps=400, random_state=0).fit(X, y)
    model.save(folder / "m.nc")
    return hb.ThermodynamicRegressor.load(folder / "m.nc").predict(X)


# -- tuning, diagnostics, evaluation, landscapes -------------------------------------------------------------


@case("tune/two families")
def _(_: Path) -> Any:
    result = hb.tune(
        PROBLEM,
        RELU,
        [hb.AdLaLa, hb.Partition(hb.Adam(), hb.between(0.001, 0.1))],
        600,
        10,
        2,
        candidates=8,
        seed=1,
    )
    return [[t.loss for t in result.trials], result.run.data] if hasattr(result, "trials") else None


@case("tune/by accuracy")
def _(_: Path) -> Any:
    result = hb.tune(PROBLEM, RELU, hb.LOL, 600, 10, 2, candidates=6, by="accuracy", seed=1)
    return result.run.data


def posterior_run() -> Any:
    """Sample the posterior of a small regression."""
    problem = hb.datasets.from_arrays(*regression_data(), seed=1, standardise=True)
    return hb.train(
        problem,
        MLP((4,)),
        hb.Partition(hb.Langevin(1.0), 0.05, hb.Posterior(1.0)),
        400,
        16,
        4,
        samples=40,
        record=20,
        weights=True,
    )


for name in ("configurational", "convergence", "gradient_noise", "thermal_ratio", "equipartition"):
    CASES[f"diagnostics/{name}"] = lambda _, name=name: getattr(hb.diagnostics, name)(posterior_run())
CASES["diagnostics/distributions"] = lambda _: hb.diagnostics.distributions(
    posterior_run(), np.linspace(-2, 2, 9)
)
CASES["diagnostics/roughness"] = lambda _: hb.diagnostics.roughness(small_run(samples=3), -1, 1, 8)
CASES["diagnostics/equipartition by layer"] = lambda _: hb.diagnostics.equipartition(
    posterior_run(), 40, "layer"
)


@case("diagnostics/formulas")
def _(_: Path) -> Any:
    d = hb.diagnostics
    return [
        d.adaptive_friction(0.1, 0.01, 0.02, 0.3),
        d.gradient_heating(0.1, 2.0, 0.3, 0.5),
        d.kinetic_heating(0.1, 2.0, 0.3),
        d.near_zero(np.linspace(-1, 1, 9), 0.3),
        d.virial(np.linspace(-1, 1, 24).reshape(2, 3, 4), lambda t: -t),
    ]


@case("statistics/all")
def _(_: Path) -> Any:
    s, rng = hb.statistics, np.random.default_rng(0)
    x = np.cumsum(rng.standard_normal((3, 200)), axis=1) * 0.1 + rng.standard_normal((3, 200))
    correlation = s if hasattr(s, "autocorrelation_time") else hb.diagnostics.mcmc
    return [
        *(s.mean(x[0]), s.student(x[0]), s.over_chains(x[:, 0]), s.bootstrap(np.median, x[0])),
        *(s.wilson(np.array(0.3), np.array(40)), s.area(0.8, 30, 40), s.effective(np.abs(x[0]))),
        *(s.frequency(x[0] > 0), s.quantiles(x[0], [0.1, 0.5]), correlation.autocorrelation_time(x[0])),
        list(s.resampled(5, repeats=3)),
    ]


@case("evaluation/judge, measure, difference")
def _(_: Path) -> Any:
    run = posterior_run()
    examples = evaluation.examples_of(run)
    answer = evaluation.judge(run)
    simple = evaluation.baselines(examples)
    names = sorted(simple)
    return [
        answer.averaged, answer.single, {n: simple[n][0] for n in names},
        evaluation.difference(examples, answer.forecast, simple[names[0]][1]),
    ]  # fmt: skip


@case("evaluation/classes")
def _(_: Path) -> Any:
    problem = hb.datasets.from_arrays(*classes_data(), seed=1)
    run = hb.train(problem, MLP((5,)), hb.AdLaLa(h=0.1), 300, 12, 3, samples=10)
    answer = evaluation.judge(run)
    return [answer.averaged, answer.single]


@case("evaluation/importance and dependence")
def _(_: Path) -> Any:
    run = posterior_run()
    names = run.problem.features
    rises = [(i.column, tuple(i.rise)) for i in evaluation.importance(run)]
    curves = [(d.column, d.mean, d.low, d.high) for d in evaluation.dependence(run, names[:2])]
    return [rises, curves]


@case("evaluation/choose")
def _(_: Path) -> Any:
    run = hb.sweep(PROBLEM, RELU, hb.LOL(h=[0.05, 0.2]), 100, 10, 2, samples=4)
    choice = evaluation.choose(run, evaluation.examples_of(run))
    return [choice.best, choice.losses]


@case("landscape/line, barrier, surface, saddle")
def _(_: Path) -> Any:
    run = small_run()
    a, b, c = run.theta[:3]
    line = hb.landscape.line(PROBLEM, RELU, a, b, np.linspace(0, 1, 7))
    surface = hb.landscape.surface(PROBLEM, RELU, a, b, c, np.linspace(0, 1, 4), np.linspace(0, 1, 4))
    return [line, hb.landscape.barrier(line), surface, hb.landscape.saddle(surface)]


@case("datasets/all")
def _(_: Path) -> Any:
    d = hb.datasets
    drawn = [
        d.spirals(2, 30, 20, seed=2, draws=2),
        d.rings(n_train=30, n_test=20),
        d.blobs(n_train=30, n_test=20),
        d.trigonometric(n_train=30, n_test=20),
    ]
    return [[p.X_train, p.Y_train, p.X_test, p.Y_test] for p in drawn]


@case("datasets/from a table")
def _(folder: Path) -> Any:
    lines = ["id;price;when;kind;y"] + [
        f"{i};{i * 1.5:.2f};2024-01-{1 + i % 28:02d};{'abc'[i % 3]};{(i * 7) % 13}" for i in range(80)
    ]
    path = folder / "t.csv"
    path.write_text("\n".join(lines))
    problem = hb.from_table(path, "y", seed=1)
    opened = read_table(path)
    encoder = hb.TableEncoder()
    frame = opened.frame if hasattr(opened, "frame") else opened
    coded = (
        encoder.fit_transform(frame)
        if hasattr(encoder, "fit_transform")
        else encoder.fit(frame).transform(frame)
    )
    return [problem.X_train, problem.Y_train, problem.X_test, list(problem.features), np.asarray(coded)]


@case("noise, splitting, schedules, quadratic")
def _(_: Path) -> Any:
    n = hb.noise
    q = hb.quadratic
    M, S = q.one_step(hb.Partition(hb.Langevin(1.0, 0.3), 0.2), np.diag([1.0, 2.0]))
    s = hb.schedules
    values = [
        s.at(v, k)
        for v in (s.Linear(1, 0.1, 9), s.Exponential(1, 0.1, 9), s.Cyclical(1, 0.1, 5), 0.3)
        for k in (0, 3, 12)
    ]
    return [
        n.normals(3, 1, 2, 4, 5, 0, 300), n.uniforms(3, 1, 2, 4, 5, 0, 300), n.batch(1, 2, 3, 50, 10),
        n.epoch(1, 2, 3, 50),
        n.gammas(2.5, 1, 2, 3, 4, 5), M, S, q.stationary(M, S), values,
    ]  # fmt: skip


@case("mlp/initial and torch")
def _(_: Path) -> Any:
    return [
        small_run().theta,
        hb.train(PROBLEM, MLP((4,), init="gaussian"), hb.LOL(), 1, 10, 2).theta,
        hb.train(PROBLEM, MLP((4,), init="zeros"), hb.LOL(), 1, 10, 2).theta,
    ]


# -- torch ---------------------------------------------------------------------------------------------------


def sampler(**options: Any) -> Any:
    """Return a torch sampler of a small network."""
    from heatbath.torch import Sampler

    model, (x, y) = module(), torch_data("float32")
    return Sampler(model, "mse_loss", (x, y), seed=0, **options)


@case("torch/sampler auto")
def _(_: Path) -> Any:
    made = sampler(chains=2, samples=10)
    made.run(steps=300)
    return [made.lr, made.predict(torch_data("float32")[0]).mean, made.noise]


@case("torch/sampler with settings")
def _(_: Path) -> Any:
    made = sampler(chains=2, samples=8, lr=0.05, batch=5, noise=0.5)
    made.run(steps=200)
    prediction = made.predict(torch_data("float32")[0])
    return [
        prediction.mean,
        prediction.variance,
        made.temperatures(),
        tuple(made.convergence()) if callable(made.convergence) else tuple(made.convergence),
    ]


@case("torch/sampler saved and resumed")
def _(folder: Path) -> Any:
    from heatbath.torch import Sampler

    made = sampler(chains=2, samples=8, lr=0.05)
    made.run(steps=100)
    made.save(folder / "s.safetensors")
    again = Sampler.load(folder / "s.safetensors", module(), torch_data("float32"))
    again.run(steps=50)
    return again.predict(torch_data("float32")[0]).mean


@case("torch/sampler report")
def _(_: Path) -> Any:
    made = sampler(chains=2, samples=8, lr=0.05)
    made.run(steps=100)
    report = made.report(*torch_data("float32"))
    return [report.averaged, report.single, tuple(report.difference)]


@case("torch/samples and predict")
def _(_: Path) -> Any:
    import torch

    model = module()
    optimizer = torch_optimizer("langevin", model, None)
    samples = hb.Samples(model, burn_in=3, thin=2)
    x, y = torch_data("float32")
    for _step in range(12):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        samples.take() if hasattr(samples, "take") else None
    return [
        hb.predict(model, samples, x, task="regression").mean,
        hb.predict(model, samples, x, task="regression").variance,
    ]


@case("torch/chains")
def _(_: Path) -> Any:
    import torch

    import heatbath.torch as ht

    torch.manual_seed(0)
    chains = ht.Chains(module(), 3)
    optimizer = ht.AdLaLa(chains, lr=0.1, seed=2)
    x, y = torch_data("float32")
    for _step in range(8):
        optimizer.zero_grad()
        out = chains(x)
        ((out - y) ** 2).mean(dim=tuple(range(1, out.ndim))).sum().backward()
        optimizer.step()
    return [p.detach() for p in chains.parameters()]


@case("torch/closure, several gradients, tempering")
def _(_: Path) -> Any:
    import torch

    import heatbath.torch as ht

    model, (x, y) = module(), torch_data("float32")
    optimizer = ht.Langevin(model.parameters(), lr=0.1, gamma=1.0, tau=0.01, word="BAOBA", seed=1)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        return loss

    for _step in range(8):
        optimizer.step(closure)
    return [p.detach() for p in model.parameters()]


@case("torch/posterior and drawn noise")
def _(_: Path) -> Any:
    import torch

    import heatbath.torch as ht

    model, (x, y) = module(), torch_data("float32")
    posterior = getattr(ht, "LossPosterior", None) if "LossPosterior" in dir(ht) else ht.Posterior
    posterior = posterior("mse_loss", n=20, targets=2)
    optimizer = ht.Langevin(model.parameters(), lr=0.05, gamma=1.0, seed=1, posterior=posterior)
    for step in range(10):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        if step % 3 == 2:
            optimizer.draw_noise(y - model(x).detach())
    return [[p.detach() for p in model.parameters()], optimizer.noise, optimizer_numbers(optimizer)]


@case("torch/llc")
def _(_: Path) -> Any:
    import torch

    import heatbath.torch as ht

    model, data = module(), torch_data("float32")
    result = ht.llc(
        model, torch.nn.functional.mse_loss, data, lr=0.02, chains=2, burn_in=30, draws=40, seed=0
    )
    return [result.trace, result.beta, result.loss]


@case("torch/tune")
def _(_: Path) -> Any:
    import heatbath.torch as ht

    result = ht.tune(
        module,
        torch_data("float32"),
        {"AdLaLa": {"lr": hb.between(0.05, 0.3), "tau": 1e-5}},
        80,
        5,
        candidates=4,
        seed=0,
        task="regression",
    )
    return [t.loss for t in result.trials]


@case("torch/stream")
def _(_: Path) -> Any:
    import torch

    import heatbath.torch as ht

    model = module()
    stream = ht.Stream(
        model,
        ht.Langevin(model.parameters(), lr=0.05, gamma=1.0, tau=1e-3, seed=1),
        torch.nn.functional.mse_loss,
        steps=3,
    )
    x, y = torch_data("float32")
    losses = [stream.learn(x[i : i + 4], y[i : i + 4]) for i in range(0, 20, 4)]
    return [[step.loss for step in losses], [p.detach() for p in model.parameters()]]


@case("torch/landscape and diagnostics")
def _(_: Path) -> Any:
    import torch

    import heatbath.torch as ht

    model, (x, y) = module(), torch_data("float32")
    a, b = module(1).state_dict(), module(2).state_dict()
    if "line_torch" in dir(ht):
        line_torch, module_heat = ht.line_torch, ht.module_configurational
    else:
        line_torch, module_heat = hb.landscape.line_torch, hb.diagnostics.module_configurational
    line = line_torch(
        model, lambda m: torch.nn.functional.mse_loss(m(x), y).item(), a, b, np.linspace(0, 1, 5)
    )
    heat = module_heat(model, [a, b], lambda: torch.nn.functional.mse_loss(model(x), y))
    return [line, heat]


# -- the command line ----------------------------------------------------------------------------------------

SPIRALS = "--problem spirals --turns 1 --n-train 60 --n-test 40 --hidden 6 --batch 10"
COMMANDS = {
    "train spirals": f"train {SPIRALS} --method adlala --steps 200 --chains 2",
    "compare": f"compare {SPIRALS} --method adlala --method adam:h=0.01 --steps 200 --chains 2",
    "sweep": f"sweep {SPIRALS} --method lol --h 0.1,0.2 --steps 200 --chains 2",
    "tune": f"tune {SPIRALS} --method adlala --method adam --steps 400 --candidates 6",
    "train a table": "train --data TABLE --target y --steps 2000 --hidden 6",
}


def numbers_of(value: Any) -> Any:
    """Return a JSON value without its texts and times."""
    if isinstance(value, dict):
        return {
            k: numbers_of(v)
            for k, v in value.items()
            if not any(w in k for w in ("second", "time", "version", "date", "machine", "path", "file"))
        }
    if isinstance(value, list):
        return [numbers_of(v) for v in value]
    return None if isinstance(value, str) else value


def command_case(command: str) -> Callable[[Path], Any]:
    """Return a case that runs a command and reads the files it writes."""

    def run(folder: Path) -> Any:
        from contextlib import redirect_stderr, redirect_stdout

        from heatbath.cli import main

        table = folder / "t.csv"
        rng = np.random.default_rng(0)
        rows = [
            f"{a:.3f},{'uvw'[k]},{a * (k + 1) + 0.1 * e:.3f}"
            for a, k, e in zip(
                rng.standard_normal(90), rng.integers(0, 3, 90), rng.standard_normal(90), strict=True
            )
        ]
        table.write_text("\n".join(["a,b,y", *rows]))
        out = folder / "out"
        arguments = [*command.replace("TABLE", str(table)).split(), "--out", str(out)]
        before = sys.argv
        try:
            sys.argv = ["heatbath", *arguments]
            with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as err:
                try:
                    main()
                except SystemExit as end:
                    if end.code:
                        raise RuntimeError(err.getvalue()) from None
        finally:
            sys.argv = before
        found = []
        for path in sorted(out.rglob("*")):
            if path.suffix == ".nc":
                found.append([path.name, hb.load(path).data])
            elif path.suffix == ".json":
                found.append([path.name, numbers_of(json.loads(path.read_text()))])
            elif path.suffix == ".csv":
                found.append([path.name, path.read_text()])
        assert found, list(out.rglob("*"))
        return found

    return run


for label, command in COMMANDS.items():
    CASES[f"cli/{label}"] = command_case(command)


# -- what was saved before ----------------------------------------------------------------------------------


def save(name: str) -> Callable[[Callable[[Path], None]], Callable[[Path], None]]:
    """Register a function that saves something before the change."""

    def register(function: Callable[[Path], None]) -> Callable[[Path], None]:
        SAVES[name] = function
        return function

    return register


def continued(name: str) -> Callable[[Callable[[Path], Any]], Callable[[Path], Any]]:
    """Register a case that loads and continues what was saved."""

    def register(function: Callable[[Path], Any]) -> Callable[[Path], Any]:
        LOADS[f"saved/{name}"] = function
        return function

    return register


@save("run")
def _(folder: Path) -> None:
    small_run(samples=4).save(folder / "run.nc")


@continued("run")
def _(folder: Path) -> Any:
    return [hb.load(folder / "run.nc").data, hb.load(folder / "run.nc").resume(20).data]


@save("posterior run")
def _(folder: Path) -> None:
    posterior_run().save(folder / "posterior.nc")


@continued("posterior run")
def _(folder: Path) -> Any:
    return hb.load(folder / "posterior.nc").resume(40).data


@save("sweep")
def _(folder: Path) -> None:
    hb.sweep(PROBLEM, RELU, hb.LOL(h=[0.05, 0.2]), 40, 10, 2, samples=4).save(folder / "sweep.nc")


@continued("sweep")
def _(folder: Path) -> Any:
    return hb.load(folder / "sweep.nc").resume(20).data


@save("automatic run")
def _(folder: Path) -> None:
    problem = hb.datasets.from_arrays(*regression_data(), seed=2, standardise=True)
    partition = hb.Partition(hb.Langevin(0.5), "auto", hb.Posterior("auto"))
    hb.train(
        problem, MLP((3,)), partition, "auto", 16, 4, budget=1600, samples=10, checkpoint=folder / "auto.nc"
    )


@continued("automatic run")
def _(folder: Path) -> Any:
    problem = hb.datasets.from_arrays(*regression_data(), seed=2, standardise=True)
    partition = hb.Partition(hb.Langevin(0.5), "auto", hb.Posterior("auto"))
    copy = folder / "auto-copy.nc"
    copy.write_bytes((folder / "auto.nc").read_bytes())
    run = hb.train(problem, MLP((3,)), partition, "auto", 16, 4, budget=1600, samples=10, checkpoint=copy)
    return run.data


@save("estimator")
def _(folder: Path) -> None:
    X, y = regression_data()
    hb.ThermodynamicRegressor(hidden=(5,), steps=400, random_state=0).fit(X, y).save(folder / "estimator.nc")


@continued("estimator")
def _(folder: Path) -> Any:
    X, y = regression_data()
    model = hb.ThermodynamicRegressor.load(folder / "estimator.nc")
    return [model.predict(X), model.partial_fit(X[:20], y[:20]).predict(X)]


def optimizer_file(name: str, folder: Path) -> Path:
    """Return the file that holds the state of an optimiser."""
    return folder / f"optimizer-{name}.pt"


for label in ("adlala", "langevin", "adam", "adaptive-tensor"):

    def _save_optimizer(folder: Path, name: str = label) -> None:
        import torch

        model = module()
        optimizer = torch_optimizer(name, model, None)
        torch_steps(model, optimizer, 8, "float32")
        torch.save(
            {"model": model.state_dict(), "optimizer": optimizer.state_dict()}, optimizer_file(name, folder)
        )

    def _continue_optimizer(folder: Path, name: str = label) -> Any:
        import torch

        saved = torch.load(optimizer_file(name, folder), weights_only=True)
        model = module(9)
        optimizer = torch_optimizer(name, model, None)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        return torch_steps(model, optimizer, 8, "float32")

    SAVES[f"optimizer {label}"] = _save_optimizer
    LOADS[f"saved/optimizer {label}"] = _continue_optimizer


@save("sampler")
def _(folder: Path) -> None:
    made = sampler(chains=2, samples=8, lr=0.05)
    made.run(steps=100)
    made.save(folder / "sampler.safetensors")


@continued("sampler")
def _(folder: Path) -> Any:
    from heatbath.torch import Sampler

    again = Sampler.load(folder / "sampler.safetensors", module(), torch_data("float32"))
    again.run(steps=60)
    return again.predict(torch_data("float32")[0]).mean


# -- record and compare --------------------------------------------------------------------------------------


def outcome(function: Callable[[Path], Any], folder: Path) -> str:
    """Return the hash of a case's numbers, or the error that it raises."""
    np.random.seed(0)  # noqa: NPY002
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)
    try:
        return digest(function(folder))
    except Exception as error:
        return f"{type(error).__name__}: {error}\n{traceback.format_exc()[-1200:]}"


def main() -> None:
    """Record or compare, by the arguments."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=["record", "compare", "list"])
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--only", default="", help="cases whose name contains this; several by commas")
    parser.add_argument("--errors", action="store_true", help="print the whole error of a case that fails")
    arguments = parser.parse_args()
    wanted = arguments.only.split(",")
    cases = {name: c for name, c in (CASES | LOADS).items() if any(w in name for w in wanted)}
    if arguments.action == "list":
        print("\n".join(cases), f"\n{len(cases)} cases")
        return
    folder: Path = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "hashes.json"
    known = json.loads(file.read_text()) if file.exists() else {}
    if arguments.action == "record":
        for name, make in SAVES.items():
            if any(w in f"saved/{name}" for w in wanted):
                make(folder)
    began, different = time.monotonic(), []
    for name, function in cases.items():
        with tempfile.TemporaryDirectory() as scratch:
            got = outcome(function, folder if name in LOADS else Path(scratch))
        if arguments.action == "record":
            known[name] = got
            if ":" in got:
                print(
                    f"error in {name}: {got if arguments.errors else got.splitlines()[0][:200]}", flush=True
                )
        elif got.splitlines()[0] != known.get(name, "not recorded").splitlines()[0]:
            different.append(name)
            print(f"different: {name}: {got if arguments.errors else got.splitlines()[0][:200]}", flush=True)
    if arguments.action == "record":
        file.write_text(json.dumps(known, indent=1, sort_keys=True))
    failed = sum(":" in got for got in known.values())
    print(
        f"{len(cases)} cases, {len(different)} differ, {failed} recorded as errors, "
        f"{time.monotonic() - began:.0f} s"
    )
    sys.exit(bool(different))


if __name__ == "__main__":
    main()
