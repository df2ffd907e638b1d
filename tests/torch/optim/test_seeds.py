"""Noise of one's own: seeds where none was given, and processes that share one or must not."""

import copy
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import heatbath as hb
import heatbath.torch as ht
from heatbath.torch.optim.seeds import counted_anew


def step_once(optimizer, parameter):
    """Return what the noise of a step makes of a parameter at 0."""
    parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    return parameter.detach().clone()


def build_langevin(**options):
    parameter = nn.Parameter(torch.zeros(1000))
    return ht.Langevin([parameter], 0.1, 1.0, 1.0, **options), parameter


@pytest.mark.parametrize("fused", [True, False])
def test_two_optimisers_of_equal_shapes_have_noise_of_their_own(fused):
    """A GAN has two such optimisers. The control: with one seed their noise is the same."""
    one, two = (step_once(*build_langevin(fused=fused)) for _ in range(2))
    assert abs(torch.corrcoef(torch.stack([one, two]))[0, 1]) < 4.5 / 1000**0.5
    one, two = (step_once(*build_langevin(fused=fused, seed=0)) for _ in range(2))
    assert torch.equal(one, two)


def seeds_of(start, count):
    torch.manual_seed(start)
    return [build_langevin()[0].param_groups[0]["seed"] for _ in range(count)]


def test_a_seed_is_made_of_torch_s_and_a_count_and_nothing_is_drawn():
    """With the same torch seed, the k-th optimiser of a process has the same, whatever the others had."""
    seeds_of(5, 2)
    with counted_anew():
        torch.manual_seed(5)
        before = torch.get_rng_state()
        first = seeds_of(5, 3)
        assert torch.equal(torch.get_rng_state(), before)
        other = seeds_of(6, 2)
        first += seeds_of(5, 1)
    with counted_anew():
        assert seeds_of(6, 2) == other
        assert seeds_of(5, 4) == first
    assert len({*first, *other}) == 6


def test_a_made_seed_is_in_the_state_and_groups_to_come_have_it():
    optimizer, parameter = build_langevin()
    step_once(optimizer, parameter)
    resumed, copied = build_langevin()
    copied.data = parameter.detach().clone()
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for one in (optimizer, resumed):
        one.add_param_group({"params": [nn.Parameter(torch.zeros(4))]})
    assert torch.equal(step_once(resumed, copied), step_once(optimizer, parameter))
    seeds = {group["seed"] for one in (optimizer, resumed) for group in one.param_groups}
    assert len(seeds) == 1
    resumed.add_param_group({"params": [nn.Parameter(torch.zeros(4))], "seed": 7})
    assert resumed.param_groups[-1]["seed"] == 7
    given = [{"params": [parameter], "seed": 7}, {"params": [copied]}]
    mixed = ht.Langevin(given, 0.1, 1.0, 1.0)
    mixed.step()
    mixed.add_param_group({"params": [nn.Parameter(torch.zeros(4))]})
    assert [group["seed"] == 7 for group in mixed.param_groups] == [True, False, False]


def test_tune_finds_the_same_where_a_function_makes_the_optimiser():
    """All candidates have the same noise, and what others make afterwards is not another for it."""
    made = []

    def langevin_of(model, lr):
        made.append(ht.Langevin(model, lr, 1.0, 1e-3))
        return made[-1]

    x = torch.linspace(-1, 1, 40)[:, None]
    ends = []
    with counted_anew():
        for _ in range(2):
            found = ht.tune(
                lambda: nn.Linear(1, 1), (x, 2 * x), {langevin_of: {"lr": hb.between(0.05, 0.2)}}, steps=8,
                candidates=2, task="regression",
            )  # fmt: skip
            ends.append(found.model.weight.item())
        seeds = seeds_of(0, 1)
    assert ends[0] == ends[1]
    assert len({one.param_groups[0]["seed"] for one in made if one.param_groups[0]["step"]}) == 1
    with counted_anew():
        assert seeds == seeds_of(0, 1)


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    """Return the results of four processes, which are started once for all tests."""
    folder = tmp_path_factory.mktemp("processes")
    command = [sys.executable, "-m", "tests.torch.ddp", folder]
    where = Path(__file__).parents[3]
    done = subprocess.run(command, capture_output=True, text=True, cwd=where, check=False)
    assert done.returncode == 0, done.stderr
    said = [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(4)]
    return [one | {"folder": str(folder)} for one in said]


def test_ranks_stay_identical_with_a_seed_and_without(processes):
    """Four processes on different data agree bit for bit, fused and not.

    That holds for parameters, momenta, ξ and seeds, also where torch's seeds and the numbers of optimisers
    differ.
    """
    first, *others = (said["trained"] for said in processes)
    for run in first:
        assert all(value.abs().max() > 0 for value in first[run].values())
        for other in others:
            assert [name for name in first[run] if not torch.equal(first[run][name], other[run][name])] == []


def test_a_sharded_model_goes_the_way_of_the_whole_one(processes):
    """Runs agree bit for bit where nothing is summed over processes, else to 1e-12 in double.

    They are sharded by rows (FSDP2), columns and blocks, with uneven and empty shards, on 1, 2 and 4
    processes and on replicas, and with optimisers that ZeRO shards. p·p, ξ and temperatures are summed over
    all of them. The runs are in float32 and half precision, too, and with second moments.
    """
    for said in processes:
        assert len(said["sharded"]) == 51
        for run, difference in said["sharded"].items():
            exact = run.startswith(("Langevin", "Adam")) or run.endswith("on 1")
            exact &= not run.startswith("Langevin, blocks")
            bound = 1e-7 if " in " in run else 0.0 if exact else 1e-12  # in float32 p·p is rounded otherwise
            assert difference <= bound, run


def test_p_squared_is_added_up_over_processes_once_in_a_pass(processes):
    """Four thermostats in two layers are summed at once, fused or not."""
    for said in processes:
        for calls, passes in said["reductions"]:
            assert 0 < calls <= passes


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_the_state_of_a_sharded_model_goes_on_in_four_processes_and_in_one(processes):
    """Saved by torch.distributed.checkpoint in two, loaded in four, and into a whole model in one."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    assert [said["saved"]["rows"] for said in processes] == [5, 5, 5, 3]
    assert all(said["saved"]["in four"] < 1e-12 for said in processes[:2])  # which have written what was read
    torch.manual_seed(9)
    model = nn.Sequential(nn.Linear(3, 18), nn.ReLU(), nn.Linear(18, 1)).double()
    optimizer = ht.AdLaLa(model, lr=0.1, tau=1e-2)
    states = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True))
    dcp.load(states, checkpoint_id=processes[0]["folder"] + "/states0")
    set_state_dict(model, optimizer, model_state_dict=states["model"], optim_state_dict=states["optimizer"])
    assert {said["saved"]["seed"] for said in processes} == {optimizer.param_groups[0]["seed"]}
    assert optimizer.param_groups[0]["step"] == 3
    assert ["not measured yet" in said["saved"]["heat"] for said in processes] == [True, False] * 2
    for _ in range(3):
        optimizer.zero_grad()
        (model(torch.ones(8, 3).double()) - 3.0).square().mean().backward()
        optimizer.step()
    whole = nn.utils.parameters_to_vector(model.parameters())
    torch.testing.assert_close(whole, processes[0]["saved"]["theta"], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("wrapper", "told"),
    [
        (
            "ZeRO, more groups",
            "Mismatch between number of source and destination parameter groups",
        ),  # torch's
        (
            "ZeRO, other parameters",
            "the parts must be the groups of the ZeroRedundancyOptimizer, and are others",
        ),
        ("ZeRO, two gradients", "word of several gradients is not supported within ZeroRedundancyOptimizer"),
        ("ZeRO, copied", "cannot be copied without it"),
        ("ZeRO, not named", r"has other parameters than process \d.* call optimizer.optim.sharded_by"),
        ("ZeRO, not named, with a seed", r"accepted|other parameters .* call optimizer.optim.sharded_by"),
        ("ZeRO, named late", "sharded_by must be called before the first step"),
        ("ZeRO, named by another", "takes the ZeroRedundancyOptimizer that has made this optimiser"),
        ("FSDP1, flat", r"\(FSDP1\) are not supported: .* Shard the model by fully_shard"),
        ("FSDP1, original", r"\(FSDP1\) are not supported"),
        ("tempered", "simulated tempering of sharded parameters is not supported"),
        ("two meshes", "sharded parameters must lie on one mesh"),
        ("shards of shards", "shards of shards along one dimension"),
        ("chains of shards", "Chains: chains that are sharded over processes are not supported"),
        ("shards of chains", "chains that are sharded over processes are not supported"),
        ("DeepSpeed", "the parameters were replaced by others since the optimiser was made"),
        ("stages", r"process \d has other parameters than process \d.*give each a seed of its own"),
        ("stages with one seed", r"accepted|other parameters than process \d, with the same seed=9"),
        ("stages with seeds", "accepted"),
    ],
)
def test_processes_with_parts_of_a_model_are_refused_whatever_has_parted_it(processes, wrapper, told):
    """All of them, so that none waits for another. Layers in a process each need only seeds of their own."""
    for said in processes:
        assert re.search(told, said["told"][wrapper])
    if wrapper in (
        "stages with one seed",
        "ZeRO, not named, with a seed",
    ):  # nobody waits, so that the first cannot know
        assert [said["told"][wrapper] for said in processes].count("accepted") == 1
