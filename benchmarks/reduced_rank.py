"""The local learning coefficient of the regression of reduced rank of benchmarks/llc.py, by an exact sampler.

Hybrid Monte Carlo (leapfrog with acceptance, so that no step has a bias) in float64 on the density
exp(-nβ L(θ) - g/2 |θ - θ0|²), g = 1. The data come in by their second moments, of which L is a function. One
half of the chains begins at θ0 and the other far from it (θ0 + N(0, 1)). What tells that the answer is right:

- R-hat over all chains, and the means of both halves;
- E[(θ - θ0)·∇U]/N, which is 1 for the exact law (the virial theorem);
- the same code on the quadratic potential of a regression whose coefficient is known, ½ Σ k/(k + g).

    python benchmarks/reduced_rank.py [--results FILE]

Some minutes on one core. What is in the file (benchmarks/results/reduced_rank.json) is what benchmarks/llc.py
and the tests compare with; it is not computed again: delete it to measure anew.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from llc import linear, reduced_rank
from numpy.typing import NDArray

from heatbath._internal import atomic_write
from heatbath.diagnostics.mcmc import ess, rhat
from heatbath.diagnostics.statistics import Estimate, mean

RESULTS = Path(__file__).parent / "results"
CHAINS, BURN_IN, DRAWS = 512, 400, 4000
STEPSIZE, LEAPS = 0.06, 30  # both vary from draw to draw, so that no direction comes back to where it was
SMALL = 0.05  # times the stepsize in the first half of the burn-in, as curvatures are large far away

Array = NDArray[np.float64]
Potential = Callable[[Array], tuple[Array, Array]]
"""Of θ (chain, parameter): nβ (L(θ) - L(θ0)), and its gradient."""


def rank_three() -> tuple[Potential, Array, float]:
    """nβ (L - L(θ0)) of the regression of reduced rank, θ0 and g."""
    problem = reduced_rank()
    x, y = (tensor.double().numpy() for tensor in problem.data)
    first, second = (p.detach().double().numpy() for p in problem.model.parameters())
    moments, best = x.T @ x / len(x), np.linalg.lstsq(x, y, rcond=None)[0].T

    def potential(theta: Array) -> tuple[Array, Array]:
        W, V = np.split(theta, [first.size], axis=1)
        W, V = W.reshape(-1, *first.shape), V.reshape(-1, *second.shape)
        away = V @ W - best
        force = away @ moments
        gradients = V.swapaxes(1, 2) @ force, force @ W.swapaxes(1, 2)
        flat = np.concatenate([one.reshape(len(theta), -1) for one in gradients], axis=1)
        return problem.nbeta * 0.5 * (away * force).sum((1, 2)), problem.nbeta * flat

    start = np.concatenate([first.ravel(), second.ravel()])
    at_start = potential(start[None])[0][0]

    def above(theta: Array) -> tuple[Array, Array]:
        value, gradient = potential(theta)
        return value - at_start, gradient

    return above, start, problem.g


def known() -> tuple[Potential, Array, float, float]:
    """Return the same for a linear regression with 20 parameters, and its exact coefficient."""
    problem = linear(1000, 100.0)
    x = problem.data[0].double().numpy()
    curvature = problem.nbeta * x.T @ x / len(x)

    def potential(theta: Array) -> tuple[Array, Array]:
        gradient = theta @ curvature
        return 0.5 * (theta * gradient).sum(1), gradient

    return potential, np.zeros(len(curvature)), problem.g, problem.exact


def sampled(
    loss: Potential, start: Array, g: float, stepsize: float, draws: int, seed: int
) -> tuple[Array, Array, float]:
    """Draws of the loss and of the virial, (chain, draw), and how many proposals were accepted."""
    rng = np.random.default_rng(seed)

    def potential(theta: Array) -> tuple[Array, Array, Array]:
        value, gradient = loss(theta)
        away = theta - start
        return value, value + 0.5 * g * (away**2).sum(1), gradient + g * away

    far = rng.standard_normal((CHAINS // 2, start.size))
    theta = start + np.concatenate([np.zeros_like(far), far])
    value, energy, gradient = potential(theta)
    losses, virials, accepted = [], [], 0.0
    for draw in range(BURN_IN + draws):
        p = rng.standard_normal(theta.shape)
        before = energy + 0.5 * (p**2).sum(1)
        h = stepsize * rng.uniform(0.4, 1.1) * (SMALL if draw < BURN_IN // 2 else 1.0)
        new, slope = theta, gradient
        with np.errstate(over="ignore", invalid="ignore"):  # a proposal that is not finite is refused
            for _ in range(rng.integers(LEAPS // 2, 3 * LEAPS // 2)):
                p = p - 0.5 * h * slope
                new = new + h * p
                new_value, new_energy, slope = potential(new)
                p = p - 0.5 * h * slope
            taken = np.log(rng.random(CHAINS)) < before - new_energy - 0.5 * (p**2).sum(1)
        theta, gradient = (np.where(taken[:, None], a, b) for a, b in ((new, theta), (slope, gradient)))
        value, energy = (np.where(taken, a, b) for a, b in ((new_value, value), (new_energy, energy)))
        if draw >= BURN_IN:
            losses.append(value)
            virials.append(((theta - start) * gradient).sum(1) / start.size)
            accepted += float(taken.mean()) / draws
    return np.array(losses).T, np.array(virials).T, accepted


def rounded(estimate: Estimate) -> list[float]:
    """Return a value and its error as text."""
    return [round(estimate.value, 4), round(estimate.error, 4)]


def main() -> None:
    """Sample both, and write what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS / "reduced_rank.json")
    given = parser.parse_args()
    if given.results.exists():
        print(given.results.read_text())
        return
    *quadratic, exact = known()
    losses, virials, accepted = sampled(*quadratic, stepsize=0.03, draws=DRAWS // 10, seed=1)
    heat = rounded(mean(virials))
    control = {"exact": exact, "value": rounded(mean(losses)), "virial": heat, "accepted": accepted}
    print(control, flush=True)
    losses, virials, accepted = sampled(*rank_three(), stepsize=STEPSIZE, draws=DRAWS, seed=0)
    halves = [rounded(mean(half)) for half in np.split(losses, 2)]
    found = {
        "value": rounded(mean(losses)), "from θ0, from far": halves, "virial": rounded(mean(virials)),
        "effective": round(ess(losses)), "R-hat": rhat(losses), "accepted": accepted,
        "chains": CHAINS, "draws": DRAWS, "control": control,
    }  # fmt: skip
    atomic_write.write(given.results, json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    print(found)


if __name__ == "__main__":
    main()
