"""Data for modules: what counts as a loader, batches, and messages for what doesn't fit."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from heatbath.torch.data import (
    PreparedData,
    ShuffledBatches,
    check_batch,
    find_loss_problem,
    find_target_problem,
    find_task,
    is_loader,
    is_pair,
    iterate_inputs,
    prepare_data,
    prepare_inputs,
    preserve_random_state,
    seed_generators,
    try_model,
)

X, Y = torch.arange(20.0).reshape(10, 2), torch.arange(10) % 3


@pytest.mark.parametrize(
    ("data", "is_one"),
    [
        (DataLoader(TensorDataset(X, Y)), True),
        ([X, X], True),
        ([(X, Y)], True),
        ([{"text": X}], True),
        (iter([X]), True),
        ([1.0, 2.0], False),
        (X, False),
        (X.numpy(), False),
        ({"text": X}, False),
        ((X, Y), False),
        ("text", False),
    ],
)
def test_loaders_are_told_from_tensors_arrays_and_dicts(data, is_one):
    assert is_loader(data) is is_one


def test_an_iterator_is_no_loader_that_can_be_iterated_repeatedly_and_an_empty_list_is():
    assert not is_loader(iter([X]), repeatable=True)
    assert is_loader([], repeatable=True)
    assert not is_loader([])


def test_a_pair_is_two_tensors_with_an_axis_of_examples():
    assert is_pair((X, Y))
    assert is_pair([X, Y])
    assert not any(map(is_pair, [(X,), (X, Y.numpy()), (X, torch.tensor(1.0)), X]))
    assert check_batch((X, Y)) == (X, Y)
    with pytest.raises(TypeError, match=r"as many targets as inputs; got shapes \(10, 2\) and \(3,\)"):
        check_batch((X, Y[:3]))
    with pytest.raises(TypeError, match="got Tensor"):
        check_batch(X)


def test_inputs_lose_their_targets_and_arrays_become_tensors_of_the_models_type():
    model = nn.Linear(2, 1).double()
    for batch in ((X, Y), [X, Y], (X.numpy(), Y.numpy())):
        assert prepare_inputs(model, batch).shape == X.shape
    assert prepare_inputs(model, X.numpy()).dtype == torch.float64
    assert prepare_inputs(model, Y.numpy()).dtype == torch.int64
    assert prepare_inputs(model, X).dtype == torch.float32  # tensors keep their type
    dictionary = {"text": X}
    assert prepare_inputs(model, dictionary) is dictionary
    assert len(list(iterate_inputs(model, X))) == 1
    assert len(list(iterate_inputs(model, [X, X, X]))) == 3


def test_shuffled_batches_have_each_example_at_most_once_and_one_size():
    batches = ShuffledBatches(X, Y, 4)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        first, second = list(batches), list(batches)
    assert [len(x) for x, _ in first] == [4, 4]
    rows = torch.cat([x for x, _ in first])[:, 0]
    assert len(rows.unique()) == 8
    assert all((Y[(x[:, 0] / 2).long()] == y).all() for x, y in first)
    assert not torch.equal(first[0][0], second[0][0])


def test_generators_of_torch_and_of_loaders_are_restored_and_seeded_together():
    loader = DataLoader(TensorDataset(X, Y), shuffle=True, generator=torch.Generator().manual_seed(5))
    states = torch.get_rng_state(), loader.generator.get_state()
    draws = []
    for seed in (1, 1, 2):
        with preserve_random_state(loader):
            seed_generators(seed, 0, loader)
            draws.append([*next(iter(loader))[0].ravel().tolist(), torch.rand(1).item()])
    assert draws[0] == draws[1] != draws[2]
    assert torch.equal(torch.get_rng_state(), states[0])
    assert torch.equal(loader.generator.get_state(), states[1])


def test_a_share_of_the_examples_is_set_aside_and_no_example_is_in_both():
    prepared = prepare_data((X, Y), 0.3, 5, seed=1)
    held_out = torch.cat([x for x, _ in prepared.validation])[:, 0].tolist()
    kept = prepared.training.X[:, 0].tolist()
    assert prepared.problems == []
    assert (len(kept), len(held_out)) == (7, 3)
    assert sorted(kept + held_out) == X[:, 0].tolist()
    assert prepared.training.size == 5


def test_all_problems_of_the_data_are_collected():
    problems = prepare_data([(X, Y)], 0.3, 5, seed=1).problems
    assert len(problems) == 2
    assert "batch applies to tensors only" in problems[0]
    assert "a share can be set aside only where the training data are tensors" in problems[1]
    assert prepare_data((X, Y[:3]), (X[:0], Y[:0]), None, seed=1).problems == [
        "data must have as many targets as inputs, got (10, 2) and (3,)",
        "validation has no examples",
    ]


def test_the_task_follows_from_the_type_of_the_targets():
    for targets, task, outputs in ((Y, "classes", 3), (X[:, :1], "regression", 1)):
        data = PreparedData([(X, targets)], [], [])
        assert find_task(None, None, nn.Linear(2, outputs), data, "loss") == (task, [])
    data = PreparedData([(X, X[:, :1])], [], [])
    _, problems = find_task(None, None, nn.Linear(2, 1), data, "accuracy")
    assert problems == ["'regression' has no accuracy: choose by='loss'"]


def test_a_model_is_tried_on_a_batch_and_its_problem_is_named():
    outputs, problem = try_model(nn.Linear(2, 3), X)
    assert (outputs.shape, problem) == ((10, 3), "")
    assert "does not take inputs of shape (10, 2) of float32" in try_model(nn.Linear(5, 1), X)[1]
    flat = nn.Sequential(nn.Linear(2, 1), nn.Flatten(0))
    assert try_model(flat, X)[1] == "the model must return a tensor (10, outputs), got (10,) of float32"
    assert try_model(flat, X, any_shape=True)[1] == ""
    assert "are not finite either" in try_model(nn.Linear(2, 1), X * math.nan)[1]


@pytest.mark.parametrize(
    ("task", "columns", "targets", "problem"),
    [
        ("classes", 3, Y, ""),
        ("classes", 2, Y, "must be whole numbers from 0 to 1, got values from 0 to 2"),
        ("classes", 1, Y, "needs an output for each class, and the model has 1"),
        ("classes", 3, Y[:, None], "give y[:, 0]"),
        ("binary", 1, (Y[:, None] > 0).float(), ""),
        ("binary", 1, (Y > 0).float(), "give y[:, None]"),
        ("binary", 3, Y, "needs one logit, and the model has 3 outputs"),
        ("regression", 2, X, ""),
        ("regression", 1, X, "needs targets of the shape of the outputs, (10, 1)"),
        ("regression", 2, X * math.inf, "must be finite real numbers"),
        ("counts", 2, X, ""),
        ("counts", 2, X - 1, "must be whole numbers >= 0, got values from -1 to 18"),
    ],
)
def test_targets_that_do_not_fit_are_named_with_a_remedy(task, columns, targets, problem):
    found = find_target_problem(task, torch.zeros(10, columns), targets)
    assert problem in found
    assert bool(found) is bool(problem)


def test_targets_for_validation_may_have_any_shape_with_the_right_values():
    outputs = torch.zeros(10, 3)
    assert find_target_problem("classes", outputs, Y[:, None], "validation ") == ""
    assert "validation targets" in find_target_problem("classes", outputs, Y + 5, "validation ")
    assert find_target_problem("regression", torch.zeros(10, 1), X[:, 0], "validation ") == ""


def test_a_loss_must_be_one_number_with_a_gradient():
    outputs = torch.zeros(10, 3, requires_grad=True)
    assert find_loss_problem(nn.functional.cross_entropy, outputs, Y) == ""
    assert "does not take outputs" in find_loss_problem(nn.functional.cross_entropy, outputs, Y[:3])
    assert "one number for a batch" in find_loss_problem(lambda f, y: f, outputs, Y)
    assert "got 3.0" in find_loss_problem(lambda f, y: 3.0, outputs, Y)
    assert "no gradient" in find_loss_problem(lambda f, y: f.detach().sum(), outputs, Y)


def test_arrays_alone_are_no_training_data():
    problems = prepare_data((np.ones((9, 2)), np.ones(9)), 0.2, None, seed=0).problems
    assert problems[0].endswith("got tuple of ndarray, ndarray")
