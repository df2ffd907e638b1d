"""Adam in compiled code is torch's Adam, and numbers too small for the format neither slow nor spoil it."""

import numpy as np
import pytest
import torch

import heatbath.torch as ht

SHAPES = [(1,), (15,), (3, 11), (257,), (1000,)]
STEPS = 300


def gradients(kind, steps=STEPS, seed=0):
    """For each step those of all tensors, of sizes that differ by eight orders of magnitude."""
    generator = torch.Generator().manual_seed(seed)
    sizes = [10.0 ** (8 * torch.rand(shape, generator=generator) - 6) for shape in SHAPES]
    return [[(torch.randn(s.shape, generator=generator) * s).to(kind) for s in sizes] for _ in range(steps)]


def run(make, kind, given, start=1.0):
    """Parameters after steps with these gradients, whatever the parameters are, and the optimiser."""
    generator = torch.Generator().manual_seed(1)
    parameters = [
        torch.nn.Parameter((start * torch.randn(shape, generator=generator)).to(kind)) for shape in SHAPES
    ]
    optimizer = make(parameters)
    for step in given:
        for parameter, gradient in zip(parameters, step, strict=True):
            parameter.grad = gradient.to(kind, copy=True)
        optimizer.step()
    return parameters, optimizer


def ours(lr=1e-2, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0):
    return lambda p: ht.Adam(p, lr, *betas, eps, weight_decay, fused=True)


def theirs(lr=1e-2, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0):
    return lambda p: torch.optim.AdamW(p, lr, betas, eps, weight_decay)


def numbers(parameters, optimizer, name):
    """All parameters, or what the optimiser keeps of them, in float64."""
    found = parameters if name == "theta" else [optimizer.state[p][name] for p in parameters]
    return torch.cat([one.detach().ravel() for one in found]).double().numpy()


OPTIONS = [
    {},
    {"lr": 1e-3, "weight_decay": 0.1},
    {"betas": (0.5, 0.9), "eps": 1e-3},
    {"betas": (0.0, 0.99), "weight_decay": 1.0},
]
NAMES = {"theta": "theta", "momentum": "exp_avg", "second": "exp_avg_sq"}


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_adam_in_float32_is_torch_s_to_rounding(options):
    """1e-6 of the largest parameter. With a prior torch rounds 1 - lr λ, so that it is 1e-5 off by itself."""
    given = gradients(torch.float32)
    one, other = run(ours(**options), torch.float32, given), run(theirs(**options), torch.float32, given)
    theta, torchs = numbers(*one, "theta"), numbers(*other, "theta")
    tolerance = (1e-5 if "weight_decay" in options else 1e-6) * np.abs(torchs).max()
    np.testing.assert_allclose(theta, torchs, rtol=0, atol=tolerance)
    np.testing.assert_allclose(numbers(*one, "second"), numbers(*other, "exp_avg_sq"), rtol=4e-6)
    root = np.sqrt(numbers(*other, "exp_avg_sq"))
    mean = numbers(*other, "exp_avg")
    np.testing.assert_allclose(numbers(*one, "momentum") / root, mean / root, rtol=0, atol=1e-6)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_adam_in_float32_is_as_near_to_float64_as_torch_s(options):
    """Root mean squares; of the momentum three times: β and 1 - β are rounded, torch has only one."""
    given = gradients(torch.float32)
    one, other = run(ours(**options), torch.float32, given), run(theirs(**options), torch.float32, given)
    exact = run(theirs(**options), torch.float64, given)
    for name, theirs_ in NAMES.items():
        right = numbers(*exact, theirs_)
        scale = 1.0 if name == "theta" else np.sqrt(numbers(*exact, "exp_avg_sq"))
        if name == "second":
            scale = scale**2
        mine, torchs = (
            np.sqrt(np.mean(((found - right) / scale) ** 2))
            for found in (numbers(*one, name), numbers(*other, theirs_))
        )
        assert mine <= (3.0 if name == "momentum" else 1.2) * torchs, name


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_adam_in_float64_is_torch_s(options):
    given = gradients(torch.float64)
    one, other = run(ours(**options), torch.float64, given), run(theirs(**options), torch.float64, given)
    np.testing.assert_allclose(numbers(*one, "theta"), numbers(*other, "theta"), rtol=0, atol=1e-13)
    np.testing.assert_allclose(numbers(*one, "second"), numbers(*other, "exp_avg_sq"), rtol=1e-14)


def has_denormals(values, kind=np.float32):
    size = np.abs(values)
    return bool(((size > 0) & (size < np.finfo(kind).tiny)).any())


def test_moments_that_die_away_become_0_and_are_never_denormal():
    """Arithmetic with denormal numbers takes far longer. Torch's momenta end there: the control."""
    some, none = gradients(torch.float32, 5), [[torch.zeros(shape) for shape in SHAPES]]
    for steps in range(100, 1300, 200):
        one, other = (run(make(), torch.float32, some + none * steps) for make in (ours, theirs))
        np.testing.assert_allclose(numbers(*one, "theta"), numbers(*other, "theta"), rtol=0, atol=4e-6)
        assert not has_denormals(numbers(*one, "momentum"))
        assert not has_denormals(numbers(*one, "second"))
    assert has_denormals(numbers(*other, "exp_avg"))
    assert (numbers(*one, "momentum") == 0).all()


def test_denormal_gradients_move_nothing_and_leave_no_trace():
    size = [1e-40, -1e-42, 1.17e-38, 0.0, -0.0]
    given = [[torch.full(shape, size[i % 5]) for shape in SHAPES] for i in range(50)]
    one, other = (run(make(), torch.float32, given) for make in (ours, theirs))
    start = run(ours(), torch.float32, [])
    np.testing.assert_array_equal(numbers(*one, "theta"), numbers(*start, "theta"))
    np.testing.assert_array_equal(numbers(*other, "theta"), numbers(*start, "theta"))
    assert (numbers(*one, "momentum") == 0).all()
    assert (numbers(*one, "second") == 0).all()


def test_one_denormal_gradient_among_others_spoils_none():
    given = gradients(torch.float32, 100)
    spoilt = [[gradient.clone() for gradient in step] for step in given]
    for step in spoilt:
        for gradient in step:
            gradient.view(-1)[::3] = 1e-41
    whole, part = (run(ours(), torch.float32, one) for one in (given, spoilt))
    places = np.concatenate([np.arange(np.prod(shape)) % 3 != 0 for shape in SHAPES])
    for name in NAMES:
        np.testing.assert_array_equal(numbers(*whole, name)[places], numbers(*part, name)[places])
