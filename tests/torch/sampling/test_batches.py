"""Batches of chains: a function of seed and step, over all examples, from tensors and loaders."""

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from heatbath.torch.sampling.batches import ChainBatches


def test_an_epoch_has_every_example_at_most_once_and_depends_on_the_step_only():
    x = torch.arange(20)[:, None]
    data = ChainBatches((x, x[:, 0]), 6, 2, 3, torch.device("cpu"))
    assert (data.separate, data.n, data.batch, data.batches_per_epoch) == (True, 20, 6, 3)
    steps = [data.at_step(step) for step in range(9)]
    for chain in range(2):
        epoch = torch.cat([inputs[chain].ravel() for inputs, _ in steps[:3]])
        assert len(set(epoch.tolist())) == 18
        assert not torch.equal(epoch, torch.cat([inputs[chain].ravel() for inputs, _ in steps[3:6]]))
    assert not torch.equal(steps[0][0][0], steps[0][0][1])
    again = ChainBatches((x, x[:, 0]), 6, 2, 3, torch.device("cpu"))
    for step in (7, 2, 2, 0):
        assert torch.equal(again.at_step(step)[0], steps[step][0])
        assert torch.equal(again.at_step(step)[1], steps[step][0][..., 0])


def test_each_chain_has_separate_batches_of_a_loader_whose_order_depends_on_the_epoch_only():
    x = torch.arange(22)[:, None]
    torch.manual_seed(5)
    before = torch.get_rng_state()
    loader = DataLoader(TensorDataset(x, x[:, 0]), 4, shuffle=True)
    data = ChainBatches(loader, None, 2, 3, torch.device("cpu"))
    assert (data.separate, data.n, data.batch, data.batches_per_epoch) == (True, 22, 4, 5)  # one is too short
    steps = [data.at_step(step) for step in range(6)]
    assert torch.equal(torch.get_rng_state(), before)
    epoch = torch.cat([inputs.ravel() for inputs, _ in steps])[:20]
    assert len(set(epoch.tolist())) == 20
    again = ChainBatches(loader, None, 2, 3, torch.device("cpu"))
    for step in (4, 5, 1):
        assert torch.equal(again.at_step(step)[0], steps[step][0])
    whole = ChainBatches([(x, x[:, 0])], None, 2, 3, torch.device("cpu"))
    assert not whole.separate
    assert torch.equal(whole.at_step(7)[0], x)
    lists = iter([[(x[:4], x[:4, 0])] * 3, [(x[:4], x[:4, 0])]])

    class Shrinking:
        def __iter__(self):
            return iter(next(lists))

    with pytest.raises(RuntimeError, match="gave 1 batches of 4 examples in an epoch, and 3"):
        ChainBatches(Shrinking(), None, 2, 3, torch.device("cpu")).at_step(0)


@pytest.mark.parametrize("chains", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("length", [2, 3, 4, 6])
def test_every_chain_sees_all_batches_of_a_loader_that_is_not_shuffled(chains, length):
    """Equally often: one that saw some only would sample the posterior of these."""
    batches = [(torch.full((5, 1), float(k)), torch.full((5,), k)) for k in range(length)]
    data = ChainBatches(batches, None, chains, 0, torch.device("cpu"))
    seen = torch.stack([data.at_step(step)[1][:, 0] for step in range(chains * length)], dim=1)
    for own in seen:
        assert torch.bincount(own, minlength=length).tolist() == [chains] * length
