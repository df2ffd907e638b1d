"""Four processes: `python -m tests.torch.ddp FOLDER` writes what each of them came to.

Imports are made once, before they part. Meshes of one, two and four of them are made within, so that a run in
all three ways costs one start.
"""

import copy
import multiprocessing.connection
import sys
import traceback
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import heatbath as hb
import heatbath.torch as ht

WORLD = 4
WIDTH = 18  # which four cannot share evenly; of the output layer's one row most have nothing
STEPS = 20
FEW = 3  # of sharded models, which are slow on the CPU


def build_network():
    return torch.nn.Sequential(torch.nn.Linear(3, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, 1))


def step(model, optimizer, x):
    optimizer.zero_grad()
    (model(x) - x.sum(dim=1, keepdim=True)).square().mean().backward()
    optimizer.step()


def train_with_ddp(rank, seed, fused):
    """Return parameters, momenta, ξ and seed after training on data of this process.

    torch's seeds differ between processes, too.
    """
    torch.manual_seed(10 + rank)
    model = DistributedDataParallel(build_network())
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


def build_langevin(parameters, tau=1e-2, **options):
    return ht.Langevin(parameters, 0.1, 1.0, tau, **options)


def groups_of_parts(model):
    """Return the parts of AdLaLa as groups."""
    return [
        {"params": list(model[0].parameters()), "part": "hidden"},
        {"params": list(model[2].parameters()), "part": "output"},
    ]


ADAPTIVE = {"sigma": 0.1, "epsilon": 0.1, "word": "BAFEFAB", "thermostat": "tensor", "weight_decay": 0.1}
KINDS = {  # a class, what it takes, and how its parameters are given
    "Langevin": (ht.Langevin, {"gamma": 1.0, "tau": 1e-2}, lambda model: list(model.parameters())),
    "AdaptiveLangevin": (ht.AdaptiveLangevin, ADAPTIVE | {"tau": 1e-2}, lambda m: list(m.parameters())),
    "AdLaLa": (ht.AdLaLa, {"tau": 1e-2}, groups_of_parts),
    "Adam": (ht.Adam, {"weight_decay": 0.1}, lambda model: list(model.parameters())),
}
TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def build_optimizer(name, model, wrapper=None, **options):
    """Return an optimiser, alone or within a wrapper that shards it."""
    kind, coefficients, given = KINDS[name]
    chosen = {"lr": 0.1, "seed": 3} | coefficients | options
    if wrapper is None:
        return kind(given(model), **chosen)
    optimizer = wrapper(given(model), kind, **chosen)
    optimizer.optim.sharded_by(optimizer)
    return optimizer


def shard_model(model, mesh, how):
    """Shard a model by rows as FSDP2 does it, by columns, in blocks, or leave it whole on each process."""
    if how == "fsdp":
        fully_shard(model, mesh=mesh)
        return
    for module in model.modules():
        for name, p in list(module.named_parameters(recurse=False)):
            last = Shard(p.dim() - 1)
            placements = {"whole": [Replicate()], "columns": [last], "blocks": [Shard(0), last]}
            setattr(module, name, torch.nn.Parameter(distribute_tensor(p.data, mesh, placements[how])))


def gather_elements(tensors):
    whole = [t.full_tensor() if isinstance(t, DTensor) else t for t in tensors]
    return torch.cat([t.detach().ravel() for t in whole])


def draw_inputs():
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(8, 3, generator=generator, dtype=torch.float64) for _ in range(FEW)]


def count_reductions(fused, mesh):
    """Return how many sums over processes the second step makes, and how many passes it has.

    It sums p·p of the two adaptive parts. The first step also sums θ·∇L.
    """
    torch.manual_seed(5)
    model = build_network().double()
    fully_shard(model, mesh=mesh)
    optimizer = build_optimizer("AdaptiveLangevin", model, fused=fused)
    calls, add = [], dist.all_reduce
    for x in draw_inputs()[:2]:
        optimizer.zero_grad()
        (model(x) - x.sum(dim=1, keepdim=True)).square().mean().backward()
        calls.clear()
        try:
            dist.all_reduce = lambda tensor, *args, **named: (calls.append(1), add(tensor, *args, **named))[1]
            optimizer.step()
        finally:
            dist.all_reduce = add
    stages = optimizer._parts.programs[0, 0].program.stages
    return len(calls), sum(len(stage.passes) for stage in stages)


def collect_results(model, optimizer, momenta):
    xi = [group["xi"] for group in optimizer.param_groups if "xi" in group]
    heat = [(T.value, T.configurational.value) for T in optimizer.temperature().values()]
    return [
        gather_elements(model.parameters()),
        momenta,
        torch.tensor(xi).ravel(),
        torch.tensor(heat).ravel(),
    ]


def train_sharded(name, how, fused, mesh=None, kind=torch.float64):
    """Return parameters, momenta, ξ and temperatures of a run on the same data in every process."""
    torch.manual_seed(5)
    model = build_network().to(kind)
    if how:
        shard_model(model, mesh, how)
    optimizer = build_optimizer(name, model, fused=fused)
    for x in draw_inputs():
        x = x.to(kind)
        if how in ("columns", "whole", "blocks"):
            x = distribute_tensor(x, mesh, [Replicate()] * mesh.ndim)
        step(model, optimizer, x)
    return collect_results(
        model, optimizer, gather_elements(optimizer.state[p]["momentum"] for p in model.parameters())
    )


def train_with_zero(name, fused, group):
    """Return the same for an optimiser that ZeRO shards over a group; None but in its first process."""
    torch.manual_seed(5)
    model = build_network().double()
    ddp = DistributedDataParallel(model, process_group=group)

    def wrapper(given, kind, **options):
        return ZeroRedundancyOptimizer(given, kind, process_group=group, **options)

    optimizer = build_optimizer(name, model, wrapper, fused=fused)
    for x in draw_inputs():
        step(ddp, optimizer, x)
    optimizer.consolidate_state_dict(to=0)
    if dist.get_rank(group):
        return None
    state = optimizer.state_dict()["state"]
    momenta = torch.cat([state[k]["momentum"].ravel() for k in sorted(state)])
    return collect_results(model, optimizer.optim, momenta), model, optimizer


def compare_moved_run(group):
    """Return how far a run that moves from two ZeRO processes to one and back is from one that stays."""
    torch.manual_seed(5)
    model = build_network().double()
    expected = build_optimizer("AdaptiveLangevin", model)
    for x in draw_inputs() * 3:
        step(model, expected, x)
    _, moving, optimizer = train_with_zero("AdaptiveLangevin", None, group) or (
        None,
        build_network().double(),
        None,
    )
    held = [moving.state_dict(), optimizer and optimizer.state_dict()]
    dist.broadcast_object_list(held, group=group, group_src=0)
    torch.manual_seed(7)
    for wrapper in (None, ZeroRedundancyOptimizer):
        fresh = build_network().double()
        fresh.load_state_dict(held[0])
        given = {"process_group": group} if wrapper else {}
        other = build_optimizer("AdaptiveLangevin", fresh, wrapper, seed=9, **given)
        other.load_state_dict(held[1])
        ddp = DistributedDataParallel(fresh, process_group=group)
        for x in draw_inputs():
            step(ddp, other, x)
        if not wrapper:
            held = [fresh.state_dict(), other.state_dict()]
    return largest_difference([gather_elements(fresh.parameters())], [gather_elements(model.parameters())])


def largest_difference(found, expected):
    """Return the largest difference between tensors."""
    return max(float((a - b).abs().max()) for a, b in zip(found, expected, strict=True) if a.numel())


class WithAnotherGroup(ht.Langevin):
    """An optimiser that makes other groups than it is given, as AdLaLa does with `output=`."""

    def __init__(self, groups, **options):
        super().__init__([*groups, {"params": [torch.nn.Parameter(torch.zeros(3))]}], **options)


class WithAnotherParameter(ht.Langevin):
    """An optimiser that has other parameters in its groups than it is given."""

    def __init__(self, groups, **options):
        groups = [{"params": [torch.nn.Parameter(torch.zeros(3))]} for _ in groups]
        super().__init__(groups, **options)


def zero_of_class(kind):
    wrapped = ZeroRedundancyOptimizer(build_network().parameters(), kind, lr=0.1, gamma=1.0, tau=1e-2)
    wrapped.optim.sharded_by(wrapped)


def zero_of_two_gradients(rank):
    torch.manual_seed(5)
    model = build_network()
    wrapped = build_optimizer("Langevin", model, ZeroRedundancyOptimizer, word="ABAOABA")

    def closure():
        model(torch.ones(1, 3)).sum().backward()
        return torch.zeros(())

    wrapped.step(closure)


def zero_copied(rank):
    copy.deepcopy(build_optimizer("Langevin", build_network(), ZeroRedundancyOptimizer).optim)


def zero_without_its_name(rank, seed=None):
    """Step a ZeRO optimiser without `sharded_by`, which takes its share of the model for the whole."""
    torch.manual_seed(5)
    wrapped = ZeroRedundancyOptimizer(
        build_network().parameters(), ht.Langevin, lr=0.1, gamma=1.0, tau=1e-2, seed=seed
    )
    wrapped.optim.step()


def zero_named_late(rank):
    torch.manual_seed(5)
    model = build_network()
    wrapped = build_optimizer("Langevin", model, ZeroRedundancyOptimizer)
    step(model, wrapped, torch.ones(8, 3))
    wrapped.optim.sharded_by(wrapped)


def zero_named_by_another(rank):
    named, other = (build_optimizer("Langevin", build_network(), ZeroRedundancyOptimizer) for _ in range(2))
    named.optim.sharded_by(other)


def fsdp1(rank, original):
    """Step a model of FSDP1 with flat parameters, or with views of them in place of the original ones."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = FullyShardedDataParallel(
            build_network(), device_id=torch.device("cpu"), use_orig_params=original
        )
    return build_langevin(model.parameters(), seed=1)


def tempered(rank):
    model = build_network()
    fully_shard(model, mesh=init_device_mesh("cpu", (WORLD,)))
    build_langevin(model.parameters(), tau=hb.schedules.SimulatedTempering([1e-3, 1e-2], 5)).step()


def two_meshes(rank):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
    given = [distribute_tensor(torch.ones(4, 4), mesh[name], [Shard(0)]) for name in ("a", "b")]
    build_langevin([torch.nn.Parameter(one) for one in given]).step()


def shards_of_shards(rank):
    """Step a model with tensor parallelism in every layer, and FSDP over the same dimension."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "model"))
    model = parallelize_module(torch.nn.Linear(4, 8), mesh["model"], ColwiseParallel())
    fully_shard(model, mesh=mesh["data"])
    build_langevin(model.parameters())


def chains_of_shards(rank):
    """Make chains of a sharded model after a pass, so that its parameters are whole for the time."""
    model = build_network()
    fully_shard(model, mesh=init_device_mesh("cpu", (WORLD,)))
    model(torch.ones(1, 3))
    ht.Chains(model, 2, "same")


def shards_of_chains(rank):
    chains = ht.Chains(build_network(), 2)
    fully_shard(chains, mesh=init_device_mesh("cpu", (WORLD,)))
    build_langevin(chains)


def flattened_as_by_deepspeed(rank):
    """Step with each process holding a part of all parameters, flattened, as DeepSpeed does."""
    model = build_network()
    optimizer = build_langevin(model.parameters(), seed=1)
    flat = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
    optimizer.param_groups[0]["params"] = [torch.nn.Parameter(flat.chunk(WORLD)[rank].clone())]
    optimizer.step()


def pipeline_stages(rank, seeds=(None,) * WORLD):
    """Step with each process holding a layer of its own, of the same shape."""
    torch.manual_seed(rank)
    layer = torch.nn.Linear(4, 4)
    optimizer = build_langevin(layer.parameters(), seed=seeds[rank])
    layer(torch.ones(1, 4)).sum().backward()
    optimizer.step()


def build_sharded_model(seed, mesh):
    torch.manual_seed(seed)
    model = build_network().double()
    fully_shard(model, mesh=mesh)
    return model, ht.AdLaLa(model, lr=0.1, tau=1e-2)


def save_and_load(rank, folder, pair, mesh):
    """Return the seed of a sharded model where none was given, and its state around a checkpoint.

    The parameters follow steps after a file that two processes have written, and those of four that read it.
    """
    model, optimizer = build_sharded_model(rank, pair)
    for n in range(6):
        if n == 2 and rank % 2 == 0:
            optimizer.forget_past()  # which must not let the others wait
        if n == 3:
            assert model[0].weight.to_local().shape == (WIDTH // 2, 3)
            states = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True))
            dcp.save(states, checkpoint_id=f"{folder}/states{rank // 2}", process_group=pair.get_group())
        step(model, optimizer, torch.ones(8, 3, dtype=torch.float64))
    samples = ht.Samples(model)
    samples.take()
    assert all(map(torch.equal, next(iter(samples)).values(), (p.full_tensor() for p in model.parameters())))
    theta = gather_elements(model.parameters())
    dist.barrier()
    other, again = build_sharded_model(20, mesh)
    states = dict(zip(("model", "optimizer"), get_state_dict(other, again), strict=True))
    dcp.load(states, checkpoint_id=f"{folder}/states0")
    set_state_dict(other, again, model_state_dict=states["model"], optim_state_dict=states["optimizer"])
    for _ in range(3):
        step(other, again, torch.ones(8, 3, dtype=torch.float64))
    return {
        "seed": optimizer.param_groups[0]["seed"],
        "theta": theta,
        "heat": repr(optimizer.temperature()["0"]),
        "rows": len(other[0].weight.to_local()),
        "in four": largest_difference([gather_elements(other.parameters())], [theta]),
    }


def compare_sharded_runs(meshes, pairs):
    """Return the largest difference of each run to that of a whole model in one process."""
    differ = {}
    for name in KINDS:
        for fused in (True, False):
            expected = train_sharded(name, "", fused)
            how = "columns" if name == "AdaptiveLangevin" else "fsdp"
            for count, mesh in meshes.items():
                differ[f"{name}, {how}, fused {fused}, on {count}"] = largest_difference(
                    train_sharded(name, how, fused, mesh), expected
                )
            for count in (2, 4):
                (found, *_) = train_with_zero(name, fused, meshes[count].get_group()) or (expected,)
                differ[f"{name}, ZeRO, fused {fused}, on {count}"] = largest_difference(found, expected)
            if name == "Langevin" and fused:  # replicas of shards, and blocks
                for how in ("fsdp", "blocks"):
                    differ[f"{name}, {how}, 2 x 2"] = largest_difference(
                        train_sharded(name, how, True, pairs), expected
                    )
    for name, kind in TYPES.items():
        for fused in (True, False):
            for method in ("Langevin", "Adam"):
                expected, found = (train_sharded(method, how, fused, meshes[4], kind) for how in ("", "fsdp"))
                differ[f"{method} in {name}, fsdp, fused {fused}, on 4"] = largest_difference(found, expected)
    differ["in two by ZeRO, in one, and in two"] = compare_moved_run(meshes[2].get_group())
    return differ


REFUSED = {
    "ZeRO, more groups": lambda rank: zero_of_class(WithAnotherGroup),
    "ZeRO, other parameters": lambda rank: zero_of_class(WithAnotherParameter),
    "ZeRO, two gradients": zero_of_two_gradients,
    "ZeRO, copied": zero_copied,
    "ZeRO, not named": zero_without_its_name,
    "ZeRO, not named, with a seed": lambda rank: zero_without_its_name(rank, 8),
    "ZeRO, named late": zero_named_late,
    "ZeRO, named by another": zero_named_by_another,
    "FSDP1, flat": lambda rank: fsdp1(rank, False),
    "FSDP1, original": lambda rank: fsdp1(rank, True),
    "tempered": tempered,
    "two meshes": two_meshes,
    "shards of shards": shards_of_shards,
    "chains of shards": chains_of_shards,
    "shards of chains": shards_of_chains,
    "DeepSpeed": flattened_as_by_deepspeed,
    "stages": pipeline_stages,
    "stages with one seed": lambda rank: pipeline_stages(rank, (9,) * WORLD),
    "stages with seeds": lambda rank: pipeline_stages(rank, (1, 2, 3, 4)),
}


def run_process(folder, rank):
    """Train in this process, try what must be refused, and write the results and messages to a file."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=WORLD)
    pairs = init_device_mesh("cpu", (2, 2), mesh_dim_names=("pairs", "two"))
    alone = init_device_mesh("cpu", (WORLD, 1), mesh_dim_names=("all", "one"))["one"]
    meshes = {1: alone, 2: pairs["two"], 4: init_device_mesh("cpu", (WORLD,))}
    said = {"trained": {}, "told": {}, "sharded": compare_sharded_runs(meshes, pairs)}
    said["reductions"] = [count_reductions(fused, meshes[4]) for fused in (True, False)]
    said["saved"] = save_and_load(rank, folder, meshes[2], meshes[4])
    for seed, fused in ((3, True), (None, False)):
        said["trained"][f"seed {seed}, fused {fused}"] = train_with_ddp(rank, seed, fused)
    for name, call in REFUSED.items():
        try:
            call(rank)
            said["told"][name] = "accepted"
        except (RuntimeError, TypeError, AssertionError) as error:
            said["told"][name] = str(error)
    torch.save(said, f"{folder}/{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


def main(folder):
    """Run all processes; if one fails, end the others."""

    def child(rank):
        try:
            run_process(folder, rank)
        except BaseException:
            traceback.print_exc()
            raise SystemExit(1) from None

    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=child, args=(rank,)) for rank in range(WORLD)]
    for process in processes:
        process.start()
    alive = list(processes)
    while alive:
        multiprocessing.connection.wait([process.sentinel for process in alive])
        alive = [process for process in alive if process.is_alive()]
        if any(process.exitcode for process in processes):
            for process in alive:
                process.terminate()
            raise SystemExit(1)


if __name__ == "__main__":
    main(sys.argv[1])
