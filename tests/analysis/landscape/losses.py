"""Points of lines and surfaces, and networks to put on them."""

import numpy as np

ALPHAS = np.linspace(0, 1, 7)
BETAS = np.linspace(0, 1, 4)


def thetas(problem, network, count, kind=np.float64):
    starts = network.start(problem.inputs, problem.outputs, np.arange(count), seed=3)
    return list((3 * starts).astype(kind))
