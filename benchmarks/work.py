"""Seconds that the engine takes, in a process of its own: `versions.Engine` starts it and asks.

Each line of the input is a `Case` in JSON; each line of the output is a list of seconds, or a text that says
what went wrong. It must run with the engine of `versions.COMMIT` too, which knows no layouts.
"""

import dataclasses
import json
import sys
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

import heatbath as hb
from heatbath.datasets.tasks import TASKS
from heatbath.engine.dense_shape import Shape
from heatbath.engine.ensemble import Ensemble
from heatbath.engine.program import compile_program
from heatbath.models.dense import ACTIVATIONS

H, TAU, SIGMA, EPSILON, GAMMA = 0.1, 1e-4, 0.01, 0.1, 0.1
CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}  # the second adds up all threads
METHODS = {
    "AdLaLa": hb.AdLaLa(H, TAU, SIGMA, EPSILON, GAMMA),
    "SGD": hb.Partition(hb.SGD(), 0.1),
    "Adam": hb.Partition(hb.Adam(), 0.005),
}


@dataclasses.dataclass(frozen=True)
class Case:
    """Chains of a network, made anew, and the numbers of steps that they make in one call after the other.

    `layout` is "alone", "group" or None for the engine's choice; `data` is "random" or "spirals"; `clock` is
    one of CLOCKS.
    """

    sizes: tuple[int, ...]
    batch: int
    chains: int
    steps: tuple[int, ...]
    method: str = "AdLaLa"
    activation: str = "relu"
    layout: str | None = None
    threads: int | None = None
    dtype: str = "float32"
    data: str = "random"
    clock: str = "wall"


def random_data(sizes: tuple[int, ...]) -> tuple[NDArray[Any], NDArray[Any]]:
    """1000 data, or 6000 of many inputs: the time of a step does not depend on what they are."""
    rng = np.random.default_rng(0)
    count = 1000 if sizes[0] < 100 else 6000
    X = rng.standard_normal((count, sizes[0])).astype(np.float32)
    return X, rng.integers(0, max(2, sizes[-1]), count)


def tables(problem: Any, kind: Any) -> tuple[Any, ...]:
    """Return the training data as the engine takes them."""
    try:
        from heatbath.engine.batches import tabulate
    except ImportError:
        return problem.X_train, problem.Y_train
    return (tabulate(problem.X_train, problem.Y_train, kind),)


def seconds(case: Case) -> list[float]:
    """Return the time of each call of `advance`; making the chains is not counted."""
    X, y = random_data(case.sizes)
    problem = (
        hb.datasets.spirals(turns=4)
        if case.data == "spirals"
        else hb.datasets.from_arrays(X, y, X, y, task="binary" if case.sizes[-1] == 1 else "classes")
    )
    network = hb.MLP(case.sizes[1:-1])
    program = compile_program(METHODS[case.method], network.layers(problem.inputs, problem.outputs))
    shape = Shape(case.sizes, ACTIVATIONS[case.activation].number, TASKS[problem.task].number)
    theta = network.start(problem.inputs, problem.outputs, np.arange(case.chains), 0).astype(case.dtype)
    options: dict[str, Any] = {}
    if case.layout is not None:
        from heatbath.engine.layouts import Alone, LaneGroup
        from heatbath.engine.simd import lane_count

        options["layout"] = Alone() if case.layout == "alone" else LaneGroup(lane_count(theta.dtype))
    taken = []
    with threadpool_limits(1, "blas"):  # as `train` does for large networks
        ensemble = Ensemble(
            program,
            shape,
            theta,
            *tables(problem, theta.dtype),
            case.batch,
            threads=case.threads,
            **options,
        )
        clock = CLOCKS[case.clock]
        for steps in case.steps:
            begin = clock()
            ensemble.advance(steps)
            taken.append(clock() - begin)
    if (ensemble.chains.died >= 0).any():  # such a chain makes no more steps
        raise RuntimeError(f"a chain diverged: {case}")
    return taken


def main() -> None:
    """Answer."""
    for line in sys.stdin:
        try:
            answer: list[float] | str = seconds(Case(**json.loads(line)))
        except Exception as error:
            answer = f"{type(error).__name__}: {error}"
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
