"""A table of the named words: what each costs, its order, and the variance that it really samples.

The loss is kθ²/2, where a perfect sampler at temperature τ has k·var θ = τ. "Exact" solves the discrete
Lyapunov equation of the step, "measured" is a run of the reference with an error of one standard deviation
over chains.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

import heatbath as hb
from heatbath.methods.splitting import NAMED, gradients, rotate

K, TAU, GAMMA, H = 2.0, 0.2, 1.0, 0.5
NOISY_H, GRADIENT_NOISE = 0.2, 1.0
SHAPE = (32, 256)  # chains, independent parameters in each
BURN_IN, STEPS = 100, 300

Array = NDArray[np.float64]
Kick = Callable[[Array, int], Array]


def quiet(theta: Array, batch: int) -> Array:
    """Return the gradient of the loss."""
    return K * theta


def noisy(theta: Array, batch: int) -> Array:
    """Return the gradient with noise, as a mini-batch would have."""
    fresh = hb.noise.normals(1, hb.noise.BATCH, 0, np.arange(SHAPE[0]), batch, 0, SHAPE[1])
    return K * theta + GRADIENT_NOISE * fresh


def measure(method: hb.Langevin | hb.AdaptiveLangevin, h: float = H, gradient: Kick = quiet) -> str:
    """k·var θ / τ of a run, with its standard error over chains."""
    one_gradient = gradients(method.substeps) == 1
    chains = hb.Reference(gradient, np.zeros(SHAPE), hb.Partition(method, h), rotated=one_gradient)
    chains.advance(BURN_IN)
    total = np.zeros(SHAPE[0])
    for _ in range(STEPS):
        chains.advance(1)
        total += np.mean(K * chains.state.theta**2, axis=1) / TAU
    mean = total / STEPS
    return f"{np.mean(mean):.3f} ± {np.std(mean) / math.sqrt(SHAPE[0]):.3f}"


def exact(method: hb.Langevin | hb.AdaptiveLangevin, h: float = H, gradient_noise: float = 0.0) -> str:
    """k·var θ / τ from the Lyapunov equation."""
    one_gradient = gradients(method.substeps) == 1
    law = hb.quadratic.covariance(
        hb.Partition(method, h), K, rotated=one_gradient, gradient_noise=gradient_noise
    )
    return f"{K * law[0, 0] / TAU:.4f}"


def method_of(word: str) -> hb.Langevin | hb.AdaptiveLangevin:
    """Return the word at the friction and temperature of the table; Adaptive Langevin with its ξ held."""
    if "O" in word:
        return hb.Langevin(GAMMA, TAU, word)
    return hb.AdaptiveLangevin(TAU, sigma=math.sqrt(2 * GAMMA * TAU), epsilon=0, word=word, xi=GAMMA)


def main() -> None:
    """Print both tables."""
    print(f"Words on a quadratic: k = {K:g}, τ = {TAU:g}, γ = {GAMMA:g}, h = {H:g}; k·var θ should be τ\n")
    print(f"{'word':<11}{'gradients':>9}  {'order in θ':>10}{'in (θ, p)':>11}{'θ seen at':>11}", end="")
    print(f"{'exact / τ':>11}{'measured / τ':>17}")
    for word, order in NAMED.items():
        method = method_of(word)
        needed = gradients(method.substeps)
        seen = rotate(method.substeps).seen if needed == 1 else "end"
        print(f"{word:<11}{needed:>9}  {order.position:>10}{order.joint:>11}{seen:>11}", end="")
        print(f"{exact(method):>11}{measure(method):>17}", flush=True)

    print(f"\nWith noise of standard deviation {GRADIENT_NOISE:g} on every gradient, h = {NOISY_H:g}\n")
    langevin = method_of("BAOAB")
    heated = exact(langevin, NOISY_H, GRADIENT_NOISE)
    print(f"{'Langevin, BAOAB':<54}{heated:>11}{measure(langevin, NOISY_H, noisy):>17}")
    adaptive = hb.AdaptiveLangevin(TAU, sigma=math.sqrt(2 * GAMMA * TAU), epsilon=0.01)
    print(f"{'Adaptive Langevin, whose ξ takes the heat out':<65}{measure(adaptive, NOISY_H, noisy):>17}")


if __name__ == "__main__":
    main()
