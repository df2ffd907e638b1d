"""One of some processes: `python -m tests.torch.ddp FOLDER RANK [COUNT]` writes what it came to."""

import sys
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

import heatbath as hb
import heatbath.torch as ht

STEPS = 20
FEW = 5  # of sharded models, which are slow on the CPU


def network():
    return torch.nn.Sequential(torch.nn.Linear(3, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))


def step(model, optimizer, x):
    optimizer.zero_grad()
    (model(x) - x.sum(dim=1, keepdim=True)).square().mean().backward()
    optimizer.step()


def trained(rank, seed, fused):
    """Parameters, momenta, ξ and seed after training on data of this process; torch's seeds differ, too."""
    torch.manual_seed(10 + rank)
    model = DistributedDataParallel(network())
    optimizer = ht.AdLaLa(model, lr=0.1, tau=1e-2, seed=seed, fused=fused)
    for _ in range(rank):  # a count of optimisers that differs, too
        ht.AdLaLa(model)
    for _ in range(STEPS):
        step(model, optimizer, torch.randn(8, 3))
    return {
        "theta": torch.nn.utils.parameters_to_vector(model.parameters()).detach(),
        "p": torch.cat([optimizer.state[p]["momentum"].ravel() for p in model.parameters()]),
        "xi": torch.tensor([group["xi"] for group in optimizer.param_groups if "xi" in group]),
        "seed": torch.tensor([group["seed"] for group in optimizer.param_groups]),
    }


def langevin(parameters, tau=1e-2, **options):
    return ht.Langevin(parameters, 0.1, 1.0, tau, **options)


MAKERS = {
    "Langevin": lambda m, **o: ht.Langevin(m.parameters(), 0.1, 1.0, 1e-2, seed=3, **o),
    "AdaptiveLangevin": lambda m, **o: ht.AdaptiveLangevin(
        m.parameters(), 0.1, 1e-2, 0.1, 0.1, "BAFEFAB", thermostat="tensor", weight_decay=0.1, seed=3, **o),
    "AdLaLa": lambda m, **o: ht.AdLaLa(m, lr=0.1, tau=1e-2, seed=3, **o),
}  # fmt: skip


def spread(model, mesh, how):
    """The model as it may be sharded: by rows as FSDP2 does it, by columns, or whole on each of the mesh."""
    if how == "fsdp":
        fully_shard(model, mesh=mesh)
        return
    for module in model.modules():
        for name, p in list(module.named_parameters(recurse=False)):
            placement = Replicate() if how == "whole" else Shard(p.dim() - 1)
            setattr(module, name, torch.nn.Parameter(distribute_tensor(p.data, mesh, [placement])))


def full(tensors):
    whole = [t.full_tensor() if isinstance(t, DTensor) else t for t in tensors]
    return torch.cat([t.detach().ravel() for t in whole])


def run(name, how, fused, mesh=None, kind=torch.float64):
    """Parameters, momenta, ξ and temperatures of a run on the same data in every process."""
    torch.manual_seed(5)
    model = network().to(kind)
    if how:
        spread(model, mesh, how)
    optimizer = MAKERS[name](model, fused=fused)
    generator = torch.Generator().manual_seed(1)
    for _ in range(FEW):
        x = torch.randn(8, 3, generator=generator, dtype=kind)
        step(
            model, optimizer, distribute_tensor(x, mesh, [Replicate()]) if how in ("columns", "whole") else x
        )
    p = full(optimizer.state[p]["momentum"] for p in model.parameters())
    xi = [group["xi"] for group in optimizer.param_groups if "xi" in group]
    heat = [(T.value, T.configurational.value) for T in optimizer.temperature().values()]
    return [full(model.parameters()), p, torch.tensor(xi).ravel(), torch.tensor(heat).ravel()]


def zero(rank):
    model = network()
    return ZeroRedundancyOptimizer(model.parameters(), ht.Langevin, lr=0.1, gamma=1.0, tau=1e-2, seed=rank)


def fsdp1(rank, original):
    """With flat parameters, or with views of them in place of the original ones."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = FullyShardedDataParallel(network(), device_id=torch.device("cpu"), use_orig_params=original)
    return langevin(model.parameters(), seed=1)


def tempered(rank):
    model = network()
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    langevin(model.parameters(), tau=hb.schedules.SimulatedTempering([1e-3, 1e-2], 5)).step()


def two_meshes(rank):
    mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("a", "b"))
    given = [distribute_tensor(torch.ones(4, 4), mesh["a"], [Shard(0)]),
             distribute_tensor(torch.ones(4, 4), DeviceMesh.from_group(dist.new_group([0, 1]), "cpu"),
                               [Shard(0)])]  # fmt: skip
    langevin([torch.nn.Parameter(one) for one in given]).step()


def replaced(rank):
    """As DeepSpeed does: each process has a part of all parameters, flattened, in their place."""
    model = network()
    optimizer = langevin(model.parameters(), seed=1)
    flat = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
    optimizer.param_groups[0]["params"] = [torch.nn.Parameter(flat.chunk(2)[rank].clone())]
    optimizer.step()


def stages(rank, seeds=(None, None)):
    """Each process has a layer of its own, of the same shape."""
    torch.manual_seed(rank)
    layer = torch.nn.Linear(4, 4)
    optimizer = langevin(layer.parameters(), seed=seeds[rank])
    layer(torch.ones(1, 4)).sum().backward()
    optimizer.step()


def saved(folder):
    """The seed of a sharded model where none was given, and its parameters after steps that follow a file."""
    torch.manual_seed(dist.get_rank())
    model = network().double()
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    optimizer = ht.AdLaLa(model, lr=0.1, tau=1e-2)
    for n in range(6):
        if n == 2 and dist.get_rank() == 0:
            optimizer.forget_past()  # which must not let the others wait
        if n == 3:
            assert model[0].weight.to_local().shape == (16 // dist.get_world_size(), 3)
            states = get_state_dict(model, optimizer)
            dcp.save(dict(zip(("model", "optimizer"), states, strict=True)), checkpoint_id=f"{folder}/states")
        step(model, optimizer, torch.ones(8, 3, dtype=torch.float64))
    samples = ht.Samples(model)
    samples.take()
    assert all(map(torch.equal, next(iter(samples)).values(), (p.full_tensor() for p in model.parameters())))
    heat = repr(optimizer.temperature()["0"])
    return {"seed": optimizer.param_groups[0]["seed"], "theta": full(model.parameters()), "heat": heat}


def sharded(rank):
    """The largest difference of each run to that of a whole model, or to one that is whole on a mesh."""
    count = dist.get_world_size()
    mesh = init_device_mesh("cpu", (count,))
    alone = init_device_mesh("cpu", (count, 1), mesh_dim_names=("all", "one"))["one"]
    differ = {}
    for name in MAKERS:
        for fused in (True, False):
            expected = run(name, "", True) if fused else run(name, "whole", False, alone)
            how = "columns" if name == "AdaptiveLangevin" else "fsdp"
            found = run(name, how, fused, mesh)
            gaps = [float((a - b).abs().max()) for a, b in zip(found, expected, strict=True) if a.numel()]
            differ[f"{name}, {how}, fused {fused}"] = max(gaps)
    return differ


REFUSED = {
    "ZeRO": zero,
    "FSDP1, flat": lambda rank: fsdp1(rank, False),
    "FSDP1, original": lambda rank: fsdp1(rank, True),
    "tempered": tempered,
    "two meshes": two_meshes,
    "DeepSpeed": replaced,
    "stages": stages,
    "stages with seeds": lambda rank: stages(rank, (1, 2)),
}


def main(folder, rank, world=2):
    """What training has led to, and what was said to each that was tried; of more than two, shards alone."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
    said = {"trained": {}, "told": {}, "sharded": sharded(rank), "saved": saved(folder)}
    for seed, fused in ((3, True), (None, False)) if world == 2 else ():
        said["trained"][f"seed {seed}, fused {fused}"] = trained(rank, seed, fused)
    for name, call in REFUSED.items() if world == 2 else ():
        try:
            call(rank)
            said["told"][name] = "accepted"
        except RuntimeError as error:
            said["told"][name] = str(error)
    torch.save(said, f"{folder}/{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
