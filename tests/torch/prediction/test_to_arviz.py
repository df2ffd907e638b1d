"""Samples of torch models for ArviZ: chains are chains."""

import sys
import warnings

import numpy as np
import pytest
import torch

import heatbath.torch as ht

with warnings.catch_warnings():  # once a day it announces its next version
    warnings.simplefilter("ignore", FutureWarning)
    import arviz

X = torch.linspace(-1, 1, 7)[:, None]


def take_samples(count=3, steps=6, model=None):
    """Return states of chains that are moved by hand, so that each differs from all others."""
    torch.manual_seed(0)
    model = torch.nn.Linear(1, 2) if model is None else model
    chains = ht.Chains(model, count, "same") if count else model
    samples = ht.Samples(chains, thin=2)
    for _ in range(steps):
        with torch.no_grad():
            for parameter in chains.parameters():
                parameter.copy_(0.5 * parameter + torch.randn(parameter.shape))
        samples.take()
    return chains, samples


def test_chains_are_an_axis_and_draws_are_labelled_by_steps():
    chains, samples = take_samples(steps=80)
    data = samples.to_arviz(X, task="regression")
    prediction = data.posterior["prediction"]
    assert prediction.dims == ("chain", "draw", "point", "output")
    assert prediction.shape == (3, 40, 7, 2)
    assert prediction["draw"].values.tolist() == samples.steps == list(range(2, 81, 2))
    for draw, state in enumerate(samples):
        for chain, own in enumerate(chains.states(state)):
            expected = X @ own["weight"].T + own["bias"]
            np.testing.assert_allclose(prediction[chain, draw], expected, rtol=1e-6, atol=1e-6)
    # R-hat and ESS are those of ours in function space
    found = ht.module_convergence(chains, samples, X)
    assert float(arviz.rhat(data)["prediction"].median()) == pytest.approx(found.rhat)
    assert float(arviz.ess(data)["prediction"].min()) == pytest.approx(found.ess_worst)
    assert len(arviz.summary(data)) == 14


def test_parameters_are_included_on_request_and_classes_have_probabilities():
    chains, samples = take_samples()
    data = samples.to_arviz(X, task="classes", parameters=True)
    np.testing.assert_allclose(data.posterior["prediction"].sum("output"), 1)
    assert data.posterior["weight"].shape == (3, 3, 2, 1)
    last = list(chains.states())[1]["weight"].numpy()
    np.testing.assert_array_equal(data.posterior["weight"][1, -1], last)


def test_a_single_model_is_one_chain_and_loaders_are_accepted():
    model, samples = take_samples(count=0)
    data = samples.to_arviz([X[:4], X[4:]], task="regression", parameters=True)
    assert data.posterior["prediction"].shape == (1, 3, 7, 2)
    np.testing.assert_array_equal(data.posterior["bias"][0, -1], model.bias.detach())


def test_chains_that_diverged_are_left_out():
    chains, samples = take_samples()
    with torch.no_grad():
        chains.weight[1] = torch.nan
    for _ in range(2):
        samples.take()
    data = samples.to_arviz(X, task="regression")
    assert data.posterior["chain"].values.tolist() == [0, 2]
    with torch.no_grad():
        chains.weight[:] = torch.nan
    for _ in range(2):
        samples.take()
    with pytest.raises(ValueError, match="all chains have diverged"):
        samples.to_arviz(X, task="regression")
    with pytest.raises(ValueError, match="no samples"):
        ht.Samples(chains).to_arviz(X, task="regression")


def test_a_sampler_gives_samples_after_the_burn_in_with_their_noise():
    y = X + 0.1 * torch.randn(7, 1, generator=torch.Generator().manual_seed(0))
    sampler = ht.Sampler(torch.nn.Linear(1, 1), "mse_loss", (X, y), chains=2, lr=0.1, seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sampler.run(steps=12)
    data = sampler.to_arviz(X)
    assert data.posterior["draw"].values.tolist() == list(range(7, 13))
    np.testing.assert_allclose(
        data.posterior["prediction"].mean(("chain", "draw")), sampler.predict(X).mean, rtol=1e-6
    )
    np.testing.assert_allclose(data.posterior["sigma"] ** 2, sampler._noise_samples(sampler._diagnose()))


def test_without_arviz_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'heatbath\[arviz\]'"):
        take_samples()[1].to_arviz(X, task="regression")
