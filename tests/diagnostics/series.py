"""Series whose correlation is known."""

import math

import numpy as np


def autoregressive(rho, count, runs, seed=0):
    """Return series with variance 1 and correlation ρ between neighbours.

    Their integrated time is (1+ρ)/(1-ρ).
    """
    noise = np.random.default_rng(seed).standard_normal((count, runs))
    for n in range(1, count):
        noise[n] = rho * noise[n - 1] + math.sqrt(1 - rho**2) * noise[n]
    return noise.T
