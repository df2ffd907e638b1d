"""A step of a sharded model (FSDP2) on two processes against torch's AdamW on the same, in one run.

The optimiser's step alone, of a 256-1024-1024-10 network (1.3 million parameters) of which `fully_shard` has
given a half to each of two processes (gloo, one thread each): AdamW in torch's fused way and as it is by
default, Langevin, which needs no sum over the processes, and AdLaLa, which adds up p·p once a pass. Then with
the optimiser's states alone sharded (ZeroRedundancyOptimizer, whose step also sends the parameters): AdamW
and Langevin. Medians of interleaved repeats in milliseconds, with ratios to the first; the slower process
counts. What comes out is written to benchmarks/results/processes.json; `python docs/measured.py` puts it on
the page.

    python benchmarks/processes.py [--repeats 30]
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import machine
import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.optim import AdamW, Optimizer

from heatbath.torch import AdLaLa, Langevin

WORLD = 2
Make = Callable[[nn.Module], Optimizer]
SHARDED: dict[str, Make] = {
    "AdamW, fused": lambda model: AdamW(model.parameters(), fused=True),
    "AdamW": lambda model: AdamW(model.parameters()),
    "Langevin": lambda model: Langevin(model.parameters(), 1e-3, gamma=1.0, tau=1e-6, seed=1),
    "AdLaLa": lambda model: AdLaLa(model, lr=1e-3, seed=1),
}
ZERO: dict[str, Make] = {
    "AdamW": lambda model: ZeroRedundancyOptimizer(model.parameters(), AdamW),
    "Langevin": lambda model: sharded_langevin(model),
}


def sharded_langevin(model: nn.Module) -> Optimizer:
    """Langevin dynamics within torch's wrapper that shards the states of optimisers."""
    optimizer = ZeroRedundancyOptimizer(model.parameters(), Langevin, lr=1e-3, gamma=1.0, tau=1e-6, seed=1)
    optimizer.optim.sharded_by(optimizer)
    return optimizer


def network() -> nn.Module:
    """Return the model, the same in every process."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
    )


def stepper(make: Make, shard: bool) -> Optimizer:
    """Return an optimiser whose parameters have gradients."""
    model = network()
    if shard:
        fully_shard(model, mesh=init_device_mesh("cpu", (WORLD,)))
    optimizer = make(model)
    model(torch.ones(4, 256)).square().mean().backward()
    return optimizer


def measure(rank: int, folder: str, repeats: int) -> None:
    """Time the steps in one of the processes; the first writes."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=WORLD)
    found: dict[str, dict[str, float]] = {}
    for title, makers, shard in (("FSDP2", SHARDED, True), ("ZeRO", ZERO, False)):
        optimizers = {name: stepper(make, shard) for name, make in makers.items()}
        took: dict[str, list[float]] = {name: [] for name in optimizers}
        for repeat in range(repeats + 3):
            for name, optimizer in optimizers.items():
                dist.barrier()
                begin = time.perf_counter()
                optimizer.step()
                if repeat >= 3:  # the first are warm-ups
                    took[name].append(1000 * (time.perf_counter() - begin))
        values = torch.tensor([statistics.median(times) for times in took.values()])
        dist.all_reduce(values, op=dist.ReduceOp.MAX)
        found[title] = dict(zip(took, values.tolist(), strict=True))
    if rank == 0:
        (Path(folder) / "found.json").write_text(json.dumps(found))
    dist.destroy_process_group()


def table(known: dict[str, Any]) -> str:
    """Of the results: ratios to the first of each."""
    lines = [f"| a step on {WORLD} processes | | ms | ratio |", "| --- | --- | --- | --- |"]
    for title, took in known["steps"].items():
        base = next(iter(took.values()))
        lines += [f"| {title} | {name} | {ms:.2f} | {ms / base:.2f} |" for name, ms in took.items()]
    return "\n".join([*lines, "", machine.told(known)])


def main() -> None:
    """Start the processes, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeats", type=int, default=30)
    options = parser.parse_args()
    before = machine.now()
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(measure, args=(folder, options.repeats), nprocs=WORLD)
        steps = json.loads((Path(folder) / "found.json").read_text())
    known = {"machine": before, "steps": steps}
    machine.note("processes", known)
    print(table(known))


if __name__ == "__main__":
    main()
