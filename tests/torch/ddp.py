"""Two processes that train one model on different data: `python -m tests.torch.ddp` prints what differs."""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

import heatbath.torch as ht

STEPS = 20


def work(rank, store, results, fused):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    model = DistributedDataParallel(model)
    optimizer = ht.AdLaLa(model, lr=0.1, tau=1e-2, seed=3, fused=fused)
    generator = torch.Generator().manual_seed(100 + rank)
    for _ in range(STEPS):
        x = torch.randn(8, 3, generator=generator)
        optimizer.zero_grad()
        (model(x) - x.sum(dim=1, keepdim=True)).square().mean().backward()
        optimizer.step()
    state = {
        "theta": torch.nn.utils.parameters_to_vector(model.parameters()).detach(),
        "p": torch.cat([optimizer.state[p]["momentum"].ravel() for p in model.parameters()]),
        "xi": torch.tensor([group["xi"] for group in optimizer.param_groups if "xi" in group]),
    }
    torch.save(state, f"{results}/{rank}.pt")
    dist.barrier()
    del (
        model,
        optimizer,
    )  # the reducer first: it must not be the last to hold the group, or torch may deadlock
    dist.destroy_process_group()


def differences(fused):
    """What differs between the two ranks after training."""
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(work, (os.path.join(folder, "store"), folder, fused), nprocs=2)
        one, two = (torch.load(f"{folder}/{rank}.pt", weights_only=True) for rank in range(2))
    assert all(value.abs().max() > 0 for value in one.values())
    return [name for name in one if not torch.equal(one[name], two[name])]


if __name__ == "__main__":
    print("differ:", differences(True) + differences(False))
