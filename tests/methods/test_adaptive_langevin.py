"""Adaptive Langevin: identities that hold exactly, and the laws of θ, p and ξ.

Statistical tests compare means over independent chains, and allow 4.5 standard errors: 7e-6 for each number.
"""

import math

import numpy as np
import pytest

import heatbath as hb
from heatbath.methods.letters import Array
from heatbath.reference.quadratic import covariance, one_step, stationary
from tests.matrices import Linear
from tests.words import parse

Z = 4.5
LAYERS = {"first": (3, 2), "last": (2, 1)}


def time_averages(
    method, h, k=1.0, s=0.0, chains=300, N=6, steps=4000, burn_in=1500, seed=0, partition=None, layers=None
):
    """Return each chain's means of k θ² and p²/N, and of ξ and ξ² at E, with gradient noise s."""
    rng = np.random.default_rng(seed)
    hessian = np.asarray(k, dtype=float)

    def gradient(theta, batch):
        force = theta @ hessian if hessian.ndim else hessian * theta
        return force + s * rng.standard_normal(theta.shape)

    partition = partition or hb.Partition(method, h)
    reference = hb.Reference(
        gradient,
        rng.standard_normal((chains, N)) * 0.3,
        partition,
        layers,
        noise=lambda step, slot: rng.standard_normal((chains, N)),
    )
    name = next(iter(reference.state.xi))
    sums: dict[str, Array] = {key: np.zeros(chains) for key in ("theta", "p", "xi", "xi2")}

    def observe(part, substep, step):
        if substep.letter == "E" and part.name == name and step >= burn_in:
            sums["p"] += reference.temperature[name]
            sums["xi"] += reference.state.xi[name][:, 0]
            sums["xi2"] += reference.state.xi[name][:, 0] ** 2

    for _ in range(burn_in + steps):
        reference.advance(1, observe)
        if reference.state.step > burn_in:
            sums["theta"] += np.mean(reference.state.theta**2, axis=1)
    return {key: value / steps for key, value in sums.items()}


def z_score(values, expected):
    return (np.mean(values) - expected) / (np.std(values) / math.sqrt(len(values)))


# Identities


def trajectories(friction, epsilon, xi, word="BACDEDCAB", steps=200):
    method = hb.AdaptiveLangevin(0.2, 0.3, epsilon, word, xi=xi, friction=friction)
    chains = hb.Reference(
        lambda theta, batch: np.sin(theta), np.ones((3, 4)), hb.Partition(method, 0.2), seed=5
    )
    states = []
    for _ in range(steps):
        chains.advance(1)
        states.append(
            (chains.state.theta.copy(), chains.state.p.copy(), np.repeat(chains.state.xi["all"], 4, axis=1))
        )
    return np.array(states)


@pytest.mark.parametrize("word", ["BACDEDCAB", "BAFEFAB"])
def test_the_map_with_epsilon_is_the_sde_with_its_square_root(word):
    epsilon, xi = 0.3, 0.5
    by_map = trajectories("map", epsilon, xi, word)
    by_sde = trajectories("sde", math.sqrt(epsilon), xi / math.sqrt(epsilon), word)
    np.testing.assert_allclose(by_sde[:, :2], by_map[:, :2], rtol=0, atol=1e-12)
    np.testing.assert_allclose(math.sqrt(epsilon) * by_sde[:, 2], by_map[:, 2], rtol=0, atol=1e-12)
    not_the_same = trajectories("sde", epsilon, xi, word)
    assert np.abs(not_the_same[:, 0] - by_map[:, 0]).max() > 1e-2


@pytest.mark.parametrize("kinetic", ["sum", "mean"])
@pytest.mark.parametrize("word", ["BACDEDCAB", "BAFEFAB", "EBACDA"])
def test_the_mean_of_p_squared_at_e_is_exact(word, kinetic):
    """The sum over all E of (p·p - Nτ) hε is what ξ has gained: a thermostat cannot lie."""
    h, tau, epsilon, N, T = 0.2, 0.3, 0.4, 5, 300
    method = hb.AdaptiveLangevin(tau, 0.5, epsilon, word, xi=0.1, kinetic=kinetic)
    chains = hb.Reference(lambda theta, batch: 2 * theta, np.ones((3, N)), hb.Partition(method, h), seed=2)
    total = np.zeros(3)

    def observe(part, substep, step):
        nonlocal total
        if substep.letter == "E":
            total = total + np.sum(chains.state.p**2, axis=1)

    chains.advance(T, observe)
    gain = (chains.state.xi["all"][:, 0] - 0.1) / (h * epsilon * T) * (N if kinetic == "mean" else 1)
    np.testing.assert_allclose(total / T, N * tau + gain, rtol=1e-12)
    assert np.abs(total / T / (N * tau) - 1).max() > 1e-6  # the gain is part of the statement


def test_the_sum_of_p_squared_of_adlalas_adaptive_part_is_exact():
    """The sum doesn't depend on the Langevin part beside it."""
    partition = hb.AdLaLa(h=0.2, tau=0.3, sigma=0.5, epsilon=0.4, gamma=1.0, tau_output=0.02)
    coupled = np.eye(8) + 0.3 * np.eye(8, k=3) + 0.3 * np.eye(8, k=-3)
    chains = hb.Reference(lambda theta, batch: theta @ coupled, np.ones((3, 8)), partition, LAYERS, seed=2)
    total, T = np.zeros(3), 300

    def observe(part, substep, step):
        nonlocal total
        if substep.letter == "E":
            total = total + part.size * chains.temperature[part.name]

    chains.advance(T, observe)
    gain = (chains.state.xi["hidden"][:, 0] - 0.1) / (0.2 * 0.4 * T)
    np.testing.assert_allclose(total / T, 5 * 0.3 + gain, rtol=1e-12)


@pytest.mark.parametrize(
    ("options", "epsilon"),
    [  # ε at which h²εNτ, h²ε²Nτ or h²ετ equals `square`
        ({}, lambda square, h, N, tau: square / (h * h * N * tau)),
        ({"word": "BAFEFAB"}, lambda square, h, N, tau: square / (h * h * N * tau)),
        ({"friction": "sde"}, lambda square, h, N, tau: math.sqrt(square / (h * h * N * tau))),
        ({"kinetic": "mean"}, lambda square, h, N, tau: square / (h * h * tau)),
    ],
)
@pytest.mark.parametrize(("square", "stable"), [(1.9, True), (1.99, True), (2.01, False), (2.1, False)])
def test_the_thermostat_is_stable_while_h2_epsilon_n_tau_is_below_2(square, stable, options, epsilon):
    """Without force and noise, near p·p = Nτ and ξ = 0."""
    h, N, tau = 0.4, 8, 0.3
    method = hb.AdaptiveLangevin(tau, 0.0, epsilon(square, h, N, tau), xi=1e-6, **options)
    chains = hb.Reference(lambda theta, batch: 0 * theta, np.zeros((1, N)), hb.Partition(method, h))
    chains.state.p[:] = math.sqrt(tau)
    largest = 0.0
    for _ in range(300):
        chains.advance(1)
        largest = max(largest, float(np.abs(chains.state.xi["all"]).max()))
    assert (largest < 1e-3) == stable


def test_each_part_and_each_tensor_has_a_thermostat_of_its_own():
    """One ξ aliased across parts or tensors would make these equal."""
    for thermostat, count in [("part", 1), ("tensor", 2)]:
        method = hb.AdaptiveLangevin(0.2, 0.3, 0.5, thermostat=thermostat)
        partition = hb.Partition({"hidden": method, "output": method}, 0.2)
        chains = hb.Reference(lambda theta, batch: theta, np.ones((2, 8)), partition, LAYERS, seed=4)
        chains.advance(20)
        xis = np.hstack([chains.state.xi["hidden"], chains.state.xi["output"]])
        assert xis.shape == (2, 2 * count)
        assert len(np.unique(xis)) == xis.size


def test_a_thermostat_per_tensor_is_a_part_per_tensor():
    """Same noise, so the same trajectory: two tensors of one layer, or two layers with a part each."""
    method = hb.AdaptiveLangevin(0.2, 0.3, 0.5, thermostat="tensor")
    by_tensor = hb.Reference(lambda t, b: t, np.ones((2, 8)), hb.Partition(method, 0.2), {"only": (5, 3)})
    by_layer = hb.Reference(
        lambda t, b: t,
        np.ones((2, 8)),
        hb.AdLAdL(h=0.2, tau=0.2, sigma=0.3, epsilon=0.5),
        {"one": (5,), "two": (3,)},
    )
    by_tensor.advance(50)
    by_layer.advance(50)
    np.testing.assert_array_equal(by_tensor.state.theta, by_layer.state.theta)
    np.testing.assert_array_equal(by_tensor.state.xi["all"][:, 0], by_layer.state.xi["hidden"][:, 0])
    np.testing.assert_array_equal(by_tensor.state.xi["all"][:, 1], by_layer.state.xi["output"][:, 0])


def test_kinetic_mean_is_kinetic_sum_with_epsilon_over_n():
    def final(**options):
        method = hb.AdaptiveLangevin(0.2, 0.3, **options)
        chains = hb.Reference(lambda t, b: t, np.ones((2, 8)), hb.Partition(method, 0.2), seed=4)
        chains.advance(100)
        return chains.state.theta

    np.testing.assert_allclose(final(epsilon=0.8, kinetic="mean"), final(epsilon=0.1), rtol=0, atol=1e-12)


@pytest.mark.parametrize("word", ["BACDEDCAB", "BAFEFAB"])
@pytest.mark.parametrize("tau", [0.2, 1e-3])
def test_a_frequency_sets_epsilon_and_a_damping_sigma_by_size_and_temperature(word, tau):
    """ε = ω²/(2Nτ) for each ξ with its own N, σ = √(2γτ)."""

    def final(methods):
        chains = hb.Reference(lambda t, b: t, np.ones((2, 9)), hb.Partition(methods, 0.2), LAYERS, seed=4)
        chains.advance(100)
        return chains.state.theta

    LAYERS = {"first": (4, 2), "last": (3,)}
    free = hb.AdaptiveLangevin(tau, word=word, frequency=1.3, damping=0.4, xi=0.0)
    by_size = {
        layer: hb.AdaptiveLangevin(tau, math.sqrt(2 * 0.4 * tau), 1.3**2 / (2 * n * tau), word, xi=0.0)
        for layer, n in (("first", 6), ("last", 3))
    }
    np.testing.assert_allclose(final({"first": free, "last": free}), final(by_size), rtol=0, atol=1e-11)
    assert np.abs(final({"rest": by_size["last"]}) - final(by_size)).max() > 1e-3  # ε of another size


@pytest.mark.parametrize(("omega", "tau", "N"), [(2.0, 0.3, 1), (0.5, 1e-4, 50)])
def test_small_oscillations_of_the_thermostat_have_its_frequency(omega, tau, N):
    """Without forces and noise ξ is back at 0 after π/ω, from momenta that are a little too hot."""
    method = hb.AdaptiveLangevin(tau, sigma=0.0, frequency=omega, xi=0.0)
    chains = hb.Reference(lambda t, b: 0 * t, np.zeros((1, N)), hb.Partition(method, 0.01 / omega))
    chains.state.p = np.full((1, N), math.sqrt(tau) * 1.001)
    signs = []
    for _ in range(640):
        chains.advance(1)
        signs.append(chains.state.xi["all"][0, 0] > 0)
    assert all(signs[:310])
    assert abs(signs.index(False) * 0.01 - math.pi) < 0.02
    assert method.thermostat_frequency({"frequency": omega}, N) == omega
    epsilon = {"frequency": 0.0, "epsilon": omega**2 / (2 * N * tau), "tau": tau}
    assert method.thermostat_frequency(epsilon, N) == pytest.approx(omega)
    squared = {**epsilon, "epsilon": math.sqrt(epsilon["epsilon"])}
    sde = hb.AdaptiveLangevin(tau, friction="sde")
    assert sde.thermostat_frequency(squared, N) == pytest.approx(omega)
    mean = hb.AdaptiveLangevin(tau, kinetic="mean")
    assert mean.thermostat_frequency({**epsilon, "epsilon": omega**2 / (2 * tau)}, N) == pytest.approx(omega)


@pytest.mark.parametrize(("product", "bounded"), [(1.9, True), (2.1, False)])
def test_a_thermostat_is_stable_while_stepsize_times_frequency_is_below_two(product, bounded):
    method = hb.AdaptiveLangevin(1e-3, sigma=0.0, frequency=product / 0.1, xi=0.0)
    chains = hb.Reference(lambda t, b: 0 * t, np.zeros((1, 20)), hb.Partition(method, 0.1))
    chains.state.p = np.full((1, 20), math.sqrt(1e-3) * (1 + 1e-7))
    chains.advance(60)
    assert (abs(chains.state.xi["all"][0, 0]) < 1e-4) == bounded


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"frequency": 1.0, "friction": "sde"}, "frequency is for friction='map'"),
        ({"frequency": 1.0, "tau": 0.0}, "frequency needs tau > 0"),
        ({"frequency": 1.0, "tau": hb.schedules.Linear(0.0, 1.0, 10)}, "frequency needs tau > 0"),
        ({"frequency": 1.0, "damping": 1.0, "tau": hb.schedules.SimulatedTempering((1.0, 2.0))},
         "frequency does not go with simulated tempering: give epsilon instead; damping does not"),
        ({"frequency": -1.0}, "frequency must be >= 0"),
    ],
)  # fmt: skip
def test_a_frequency_that_cannot_be_had_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        hb.AdaptiveLangevin(**options)


def test_frequency_and_damping_are_shown_in_place_of_what_they_set_and_stay_at_another_temperature():
    method = hb.AdaptiveLangevin(1e-3, frequency=0.5, damping=2.0)
    assert repr(method) == "AdaptiveLangevin(tau=0.001, word='BACDEDCAB', frequency=0.5, damping=2.0)"
    assert repr(method.at_temperature(1e-5)) == repr(method).replace("0.001", "1e-05")
    assert "frequency" not in repr(hb.AdaptiveLangevin())
    with pytest.raises(ValueError, match=r"frequency sets epsilon, .*; damping sets sigma, so give one"):
        hb.AdLaLa(epsilon=0.1, frequency=1.0, sigma=0.1, damping=1.0)


# Laws


def p_squared_at_e(xi, h, k, sigma, s, tau=0.0):
    """Return E[p²] where E reads it, at fixed ξ: the law between rotated steps, carried on to E."""
    method = hb.AdaptiveLangevin(tau, sigma, 0.0, xi=xi)
    V = covariance(hb.Partition(method, h), k, gradient_noise=s)
    until_e = Linear(np.array([[k]]))
    until_e.evaluate(s)
    for letter, t in [("B", h / 2), ("B", h / 2), ("A", h / 2), ("C", h / 2), ("D", h / 2)]:
        until_e.letter(letter, t, xi=xi, sigma=sigma, tau=0)
    M, S = until_e.phase
    return (M @ V @ M.T + S @ S.T)[1, 1]


def critical_friction(h, k, sigma, s, tau):
    """Return the ξ* at which E[p² at E] = τ, by bisection: more friction is always colder."""
    low, high = 1e-3, 100.0
    for _ in range(200):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if p_squared_at_e(middle, h, k, sigma, s) > tau else (low, middle)
    return middle


NOISY = {"k": 1.5, "s": 1.0}
SIGMA, TAU, EPSILON = 0.3, 0.2, 0.02


@pytest.mark.parametrize("h", [0.15, 0.4])
def test_adaptive_langevin_returns_tau_where_langevin_does_not(h):
    """Mean friction and mean θ² agree with ξ* and its law; ε is small, since ξ's fluctuations add O(h²ετ)."""
    xi = critical_friction(h, sigma=SIGMA, tau=TAU, **NOISY)
    limit = (h * NOISY["s"] ** 2 + SIGMA**2) / (2 * TAU)
    second_order = 0.2 * h * h * NOISY["k"]
    assert xi == pytest.approx(limit, rel=second_order)

    means = time_averages(hb.AdaptiveLangevin(TAU, SIGMA, EPSILON, xi=xi), h, **NOISY, seed=1)
    assert np.mean(means["p"]) == pytest.approx(TAU, rel=2e-3)
    assert abs(z_score(means["xi"], xi)) < Z
    if h == 0.4:
        assert abs(z_score(means["xi"], limit)) > 20  # the limit of small h would not do: the test can see
    fixed = covariance(
        hb.Partition(hb.AdaptiveLangevin(TAU, SIGMA, 0.0, xi=xi), h), NOISY["k"], gradient_noise=NOISY["s"]
    )
    assert abs(z_score(means["theta"], fixed[0, 0])) < Z
    assert NOISY["k"] * np.mean(means["theta"]) == pytest.approx(TAU, rel=second_order)

    # Langevin at the friction that would be right without noise in the gradient
    langevin = hb.Partition(hb.Langevin(SIGMA**2 / (2 * TAU), TAU), h)
    assert NOISY["k"] * covariance(langevin, NOISY["k"], gradient_noise=NOISY["s"])[0, 0] > 1.5 * TAU


def test_with_epsilon_zero_at_another_friction_the_temperature_is_wrong():
    """The control of the test above: the thermostat does the work."""
    h = 0.15
    xi = critical_friction(h, sigma=SIGMA, tau=TAU, **NOISY)
    means = time_averages(hb.AdaptiveLangevin(TAU, SIGMA, 0.0, xi=2 * xi), h, **NOISY, steps=1000, seed=1)
    assert abs(z_score(means["p"], TAU)) > 20
    assert np.mean(means["p"]) == pytest.approx(
        p_squared_at_e(2 * xi, h, NOISY["k"], SIGMA, NOISY["s"]), rel=0.02
    )


@pytest.mark.parametrize("tau", [0.05, 0.6])
@pytest.mark.parametrize(
    ("options", "mean", "variance"),
    [
        ({"friction": "map"}, lambda g, e: g, lambda tau, e, N: e * tau),
        ({"friction": "sde"}, lambda g, e: g / e, lambda tau, e, N: tau),
        ({"friction": "map", "kinetic": "mean"}, lambda g, e: g, lambda tau, e, N: e * tau / N),
        ({"friction": "map", "word": "BAFEFAB"}, lambda g, e: g, lambda tau, e, N: e * tau),
    ],
)
def test_the_law_of_xi(options, mean, variance, tau):
    """Mean γ_eff = (hs² + σ²)/(2τ), over ε for the SDE; variance ετ for the map, τ for the SDE.

    These are limits of small h, so h is small, and 1.5% of bias is allowed on top of the standard errors.
    """
    h, N, s, epsilon = 0.08, 3, 0.5, 0.5
    sigma = math.sqrt(2 * tau)
    gamma = (h * s * s + sigma * sigma) / (2 * tau)
    start = mean(gamma, epsilon)
    method = hb.AdaptiveLangevin(tau, sigma, epsilon, xi=start, **options)
    means = time_averages(method, h, k=1.0, s=s, N=N, chains=600, seed=3)
    second = means["xi2"] - 2 * start * means["xi"] + start**2  # about the predicted mean
    for values, expected in ((means["xi"], start), (second, variance(tau, epsilon, N))):
        tolerance = Z * np.std(values) / math.sqrt(len(values)) + 0.015 * abs(expected)
        assert abs(np.mean(values) - expected) < tolerance
        assert Z * np.std(values) / math.sqrt(len(values)) < 0.1 * abs(expected)  # and the test can see


# In a partition


def test_the_adaptive_part_of_adlala_is_at_its_temperature_and_its_friction_carries_the_heat():
    """The Langevin part is colder. The mean p² at E is τ, and ξ is below what σ alone would ask for."""
    hessian = np.array(
        [[1.5, 0.2, 0.5, 0.0], [0.2, 1.0, 0.0, 0.6], [0.5, 0.0, 2.0, 0.1], [0.0, 0.6, 0.1, 1.2]]
    )
    h, sigma = 0.2, 0.3
    alone = sigma**2 / (2 * TAU)

    def mean_friction(tau_output):
        partition = hb.AdLaLa(h=h, tau=TAU, sigma=sigma, epsilon=0.05, gamma=1.0, tau_output=tau_output)
        layers = {"first": (2,), "last": (2,)}
        means = time_averages(None, h, k=hessian, N=4, seed=2, partition=partition, layers=layers)
        assert np.mean(means["p"]) == pytest.approx(TAU, rel=5e-3)
        return np.mean(means["xi"]), np.std(means["xi"]) / math.sqrt(300)

    at_equal, error = mean_friction(TAU)
    assert at_equal == pytest.approx(alone, rel=0.03, abs=Z * error)
    beside_cold, error = mean_friction(TAU / 20)
    assert beside_cold < at_equal - 10 * error
    beside_hot, error = mean_friction(TAU * 3)
    assert beside_hot > at_equal + 10 * error


def test_the_fixed_friction_law_used_above_is_that_of_the_real_step():
    """one_step and the letters' algebra agree where both are used."""
    method = hb.AdaptiveLangevin(TAU, SIGMA, 0.0, xi=0.7)
    M, S = one_step(hb.Partition(method, 0.3), 1.5, gradient_noise=1.0)
    algebra = Linear(np.array([[1.5]]))
    algebra.evaluate(1.0)
    word = parse("BACDEDCAB", "AdaptiveLangevin")
    for substep in (word[-1], *word[:-1]):
        algebra.letter(substep.letter, 0.3 * float(substep.fraction), xi=0.7, sigma=SIGMA, tau=0)
    np.testing.assert_allclose(stationary(*algebra.phase), stationary(M, S), rtol=1e-12)


def test_xi_tells_the_same_gradient_noise_in_both_forms_of_the_friction():
    """γ_eff = (h s² + σ²)/(2τ) is ξ of the map and εξ of the SDE."""
    values, h, noise = {"tau": 0.3, "sigma": 0.2, "epsilon": 0.5, "damping": 0.0}, 0.1, 4.0
    effective = (h * noise + 0.2**2) / (2 * 0.3)
    for friction, xi in (("map", effective), ("sde", effective / 0.5)):
        method = hb.AdaptiveLangevin(**values, friction=friction)
        assert method.gradient_noise(values, h, xi) == pytest.approx(noise)
        assert method.gradient_noise(values, 0.0, xi) is None
