"""Where chains start."""

import numpy as np
import pytest

import heatbath as hb

CHAINS = np.arange(400)


def layer_parameters(network, theta, inputs, outputs):
    """Return the parameters of each layer, weight and bias together, with its width."""
    sizes = [sum(tensors) for tensors in network.layers(inputs, outputs).values()]
    blocks = np.split(theta, np.cumsum(sizes)[:-1], axis=1)
    return zip(network.sizes(inputs, outputs)[:-1], blocks, strict=True)


def test_by_default_weights_and_biases_start_uniformly_within_one_over_the_root_of_the_width():
    """torch.nn.Linear starts like that, too. The standard deviation is within 5 standard errors."""
    network = hb.MLP((16, 4))
    theta = network.start(9, 2, CHAINS, seed=1)
    for width, values in layer_parameters(network, theta, 9, 2):
        bound = 1 / np.sqrt(width)
        assert 0.98 * bound < np.abs(values).max() <= bound
        assert np.std(values) == pytest.approx(bound / np.sqrt(3), rel=5 * np.sqrt(0.2 / values.size))
        assert abs(np.mean(values)) < 5 * bound / np.sqrt(3 * values.size)
    assert len({row.tobytes() for row in theta}) == len(CHAINS)


@pytest.mark.parametrize("scale", [0.01, 0.5])
def test_a_gaussian_start_has_the_scale_as_its_standard_deviation(scale):
    theta = hb.MLP((16, 4), init="gaussian", scale=scale).start(9, 2, CHAINS, seed=1)
    assert np.std(theta) == pytest.approx(scale, rel=5 * np.sqrt(0.5 / theta.size))
    assert np.abs(theta).max() > 3 * scale


def test_a_start_depends_on_the_seed_and_the_number_of_the_chain_only():
    network = hb.MLP((5,))
    all_of_them = network.start(2, 1, CHAINS, seed=1)
    np.testing.assert_array_equal(network.start(2, 1, [7, 3], seed=1), all_of_them[[7, 3]])
    assert np.all(network.start(2, 1, [7], seed=2) != all_of_them[7])
    assert not hb.MLP((5,), init="zeros").start(2, 1, CHAINS, seed=1).any()


@pytest.mark.parametrize("hidden", [(), (20,), (300, 4)])
def test_networks_with_inputs_of_their_own_give_what_each_gives_alone(hidden):
    """Also where the examples are computed in several blocks: the bits are the same."""
    rng = np.random.default_rng(0)
    network = hb.MLP(hidden, "tanh")
    theta = rng.standard_normal((3, network.parameters(5, 2)))
    x = rng.standard_normal((3, 130, 5))
    alone = [network.forward(vector, inputs, 2) for vector, inputs in zip(theta, x, strict=True)]
    np.testing.assert_array_equal(network.forward(theta, x, 2), alone)
