"""The posterior of a network with two hidden layers, 1-10-10-1 with tanh, on 45 points: the engine and NUTS.

Both have the same prior, N(0, 1/inputs) of each layer, and the same noise: known, or unknown with the prior
IG(a, b v) that `heatbath.models.likelihood` has. Compared are
mean and standard deviation of the function on a grid
that is wider than the data, and of log s². A z-score is a difference over the Monte Carlo errors of both. The
engine at T = 0.5 is the control, which must not agree. Effective sample sizes (ESS) are medians over the
grid; gradients are of all data. Neither they nor the times count warm-up, burn-in and compilation. It takes
some minutes, nearly all of them for NUTS.

    pip install numpyro
"""

import time
from typing import Any, NamedTuple

import numpy as np

import heatbath as hb
from heatbath.diagnostics.mcmc import ess, rhat
from heatbath.diagnostics.statistics import mean
from heatbath.models.likelihood import SCALE, SHAPE, spread

NETWORK = hb.MLP((10, 10), "tanh")
NOISE = 0.2
GRID = np.linspace(-3, 3, 31)[:, None]
STEPS, CHAINS, SAMPLES = 100_000, 64, 400  # of the engine
WARM_UP, DRAWS, NUTS_CHAINS = 1000, 2000, 8


def data() -> hb.datasets.Problem:
    """45 points in two clouds of a curve, unscaled."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(-2, -0.5, 25), rng.uniform(0.3, 2, 20)])[:, None]
    y = np.sin(2.5 * x) + 0.4 * x + NOISE * rng.standard_normal(x.shape)
    none = x[None, :0]
    return hb.datasets.Problem("curve", "regression", x[None], y[None], none, none, ("x",), ("y",))


class Found(NamedTuple):
    """What came of a sampler: the function on the grid (chain, draw, point), and log s² (chain, draw)."""

    function: np.ndarray
    log_noise: np.ndarray
    gradients: float
    seconds: float


def by_engine(problem: hb.datasets.Problem, posterior: hb.Posterior) -> Found:
    """BAOAB with full gradients."""
    sampling = hb.Partition(hb.Langevin(gamma=0.1), 0.2, posterior)
    n = problem.X_train.shape[1]

    def train(steps: int, samples: int) -> hb.Run:
        return hb.train(
            problem, NETWORK, sampling, steps, n, CHAINS, samples=samples, burn_in=steps // 5, record=1
        )

    train(200, 4)  # compiles
    begin = time.perf_counter()
    run = train(STEPS, SAMPLES)
    seconds = (time.perf_counter() - begin) * 4 / 5
    variances = run.data["sample_noise"] if "sample_noise" in run.data else run.data["noise_now"]
    function = run.outputs(GRID, samples=True)[..., 0]
    logs = np.broadcast_to(np.log(variances.values.reshape(CHAINS, -1)), function.shape[:2])
    return Found(function, logs, CHAINS * STEPS * 4 / 5, seconds)


def by_nuts(problem: hb.datasets.Problem, posterior: hb.Posterior) -> Found:
    """NumPyro's NUTS, in float64, all chains in one vectorised call."""
    import jax
    import jax.numpy as jnp
    import numpyro
    from numpyro import distributions as laws

    numpyro.enable_x64()
    x, y = jnp.asarray(problem.X_train[0]), jnp.asarray(problem.Y_train[0])
    sizes = NETWORK.sizes(1, 1)
    deviations = posterior.deviations(sizes[:-1])

    def function(parameters: dict[str, Any], inputs: Any) -> Any:
        values = inputs
        for i in range(len(deviations)):
            values = values @ parameters[f"W{i}"] + parameters[f"b{i}"]
            values = jnp.tanh(values) if i < len(deviations) - 1 else values
        return values

    def model() -> None:
        parameters = {}
        for i, deviation in enumerate(deviations):
            shape = sizes[i : i + 2]
            parameters[f"W{i}"] = numpyro.sample(f"W{i}", laws.Normal(0, deviation).expand(shape).to_event(2))
            parameters[f"b{i}"] = numpyro.sample(
                f"b{i}", laws.Normal(0, deviation).expand(shape[1:]).to_event(1)
            )
        variance: Any = NOISE**2
        if posterior.noise == "sampled":
            variance = numpyro.sample("s2", laws.InverseGamma(SHAPE, SCALE * spread(problem)[0]))
        numpyro.sample("y", laws.Normal(function(parameters, x), jnp.sqrt(variance)), obs=y)

    kernel = numpyro.infer.NUTS(model)
    sampler = numpyro.infer.MCMC(
        kernel, num_warmup=WARM_UP, num_samples=1, num_chains=NUTS_CHAINS, chain_method="vectorized",
        progress_bar=False,
    )  # fmt: skip
    sampler.warmup(jax.random.PRNGKey(0))

    def draw(state: Any, _: None) -> tuple[Any, Any]:
        state = kernel.sample(state, (), {})
        return state, (state.z, state.num_steps, state.diverging)

    warm = sampler.last_state
    drawn = jax.jit(lambda state: jax.lax.scan(draw, state, None, length=DRAWS)[1]).lower(warm).compile()
    begin = time.perf_counter()
    samples, leaps, diverging = jax.block_until_ready(drawn(warm))
    seconds = time.perf_counter() - begin
    print(f"  NUTS: {int(diverging.sum())} divergent transitions of {NUTS_CHAINS * DRAWS}")
    said = jax.vmap(jax.vmap(lambda one: function(one, jnp.asarray(GRID))[:, 0]))(samples)
    known = jnp.full((DRAWS, NUTS_CHAINS), 2 * np.log(NOISE))
    logs = samples.get("s2", known)  # NumPyro samples the logarithm of what is positive
    by_chain = [np.asarray(values).swapaxes(0, 1) for values in (said, logs)]
    return Found(by_chain[0], by_chain[1], float(leaps.sum()), seconds)


def moments(traces: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation, (2, point), of traces (chain, draw, point), and their errors."""
    values, errors = [], []
    for trace in np.moveaxis(traces, 2, 0):
        centre = mean(trace)
        square = mean((trace - centre.value) ** 2)
        sd = np.sqrt(square.value)
        values.append((centre.value, sd))
        errors.append((centre.error, square.error / (2 * sd)))
    return np.array(values).T, np.array(errors).T


def compare(label: str, one: np.ndarray, other: np.ndarray) -> None:
    """Print by how much two samplers differ."""
    (a, error_a), (b, error_b) = moments(one), moments(other)
    z = np.abs(a - b) / np.hypot(error_a, error_b)
    relative = np.abs(a - b) / b[1]
    for i, name in enumerate(("mean", "sd")):
        rms, largest = np.sqrt(np.mean(z[i] ** 2)), relative[i].max()
        print(
            f"  {f'{label}, {name}':<24} largest z {z[i].max():5.2f}, rms z {rms:5.2f}, "
            f"largest difference over the sd {largest:.3f}",
            flush=True,
        )


def describe(name: str, found: Found) -> float:
    """Print how well a sampler has done, and return its ESS per second."""
    traces = np.moveaxis(found.function, 2, 0)
    size = float(np.median([ess(trace) for trace in traces]))
    worst = max(rhat(trace) for trace in traces)
    rate, cost = size / found.seconds, 1000 * size / found.gradients
    print(
        f"  {name:<9} ESS {size:6,.0f}, R-hat at most {worst:.3f}; ESS per second {rate:.0f}, "
        f"per 1,000 gradients {cost:.2f}; {found.seconds:.0f} s",
        flush=True,
    )
    return rate


def main() -> None:
    """Print both comparisons."""
    problem = data()
    for noise in (NOISE, "sampled"):
        print(f"\nnoise: {noise}")
        nuts = by_nuts(problem, hb.Posterior(prior="fan_in", noise=noise))
        engine = by_engine(problem, hb.Posterior(prior="fan_in", noise=noise))
        cold = by_engine(problem, hb.Posterior(prior="fan_in", noise=noise, temperature=0.5))
        ratio = describe("heatbath", engine) / describe("NUTS", nuts)
        print(f"  heatbath has {ratio:.1f} times as many effective samples per second")
        compare("function", engine.function, nuts.function)
        compare("function, T = 0.5", cold.function, nuts.function)
        if noise == "sampled":
            compare("log s²", engine.log_noise[..., None], nuts.log_noise[..., None])
            compare("log s², T = 0.5", cold.log_noise[..., None], nuts.log_noise[..., None])


if __name__ == "__main__":
    main()
