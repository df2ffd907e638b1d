"""The local learning coefficient by `heatbath.torch.llc` and by devinterp's samplers, with equal gradients.

- A linear regression with 20 parameters and 1000 data, of which each step sees all, 100 or 20. The
  coefficient is ½ Σ k/(k + g), with the eigenvalues k of nβ times the Hessian: 10 without localisation, 5.65
  at g = 100.
- A regression of reduced rank (5-3-4, of rank 1 in truth; 500 data, g = 1). What is right there is what an
  exact sampler has: benchmarks/reduced_rank.py.

Each has 4 chains of 500 steps and 1000 draws, from the minimum, and β = 1/log n. Ours: Langevin dynamics as
it is by default (lr = 0.1), and Adaptive Langevin (BAFEFAB, lr = 0.1, σ² = 2τ, ε = 1). devinterp's: SGLD with
lr = 1e-4 and 1e-3, and SGNHT with lr = 1e-3, which has no localisation; and its loop with our Langevin
dynamics in the way of docs/pytorch.md. Means over runs with their standard errors; in brackets how many runs
there were, in how many of them the 95 % interval has the truth, and how many were warned of (a temperature
that is off, coarse steps).

    python benchmarks/llc.py [--seeds 5] [--results FILE] [--ours] [--problem NAME]

What is in the file of results (benchmarks/results/llc.json) is not computed again: delete it to measure anew.
"""

import argparse
import contextlib
import io
import json
import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

import heatbath.torch as ht
from heatbath._internal import atomic_write

RESULTS = Path(__file__).parent / "results"
CHAINS, BURN_IN, DRAWS = 4, 500, 1000

Result = dict[str, Any]


class Problem(NamedTuple):
    """A trained model with its data, and the coefficient that is right."""

    model: nn.Module
    data: tuple[Tensor, Tensor]
    g: float
    exact: float
    batch: int

    @property
    def nbeta(self) -> float:
        """nβ."""
        return len(self.data[0]) / math.log(len(self.data[0]))


def loss_of(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the mean of -log likelihood, up to a constant."""
    return 0.5 * (outputs - targets).square().sum(-1).mean()


def linear(batch: int, g: float = 0.0) -> Problem:
    """Return the linear regression."""
    generator = torch.Generator().manual_seed(0)
    x, noise = (torch.randn(1000, k, dtype=torch.float64, generator=generator) for k in (20, 1))
    x *= torch.linspace(0.5, 1.5, 20, dtype=torch.float64)
    y = x.sum(1, keepdim=True) + noise
    model = nn.Linear(20, 1, bias=False)
    model.weight.data.copy_(torch.linalg.lstsq(x, y).solution.T)
    k = torch.linalg.eigvalsh(x.T @ x) / math.log(1000)
    return Problem(model, (x.float(), y.float()), g, 0.5 * float((k / (k + g)).sum()), batch)


def reference() -> float:
    """Return the coefficient of the reduced-rank regression by the exact sampler, NaN if not run."""
    path = RESULTS / "reduced_rank.json"
    return float(json.loads(path.read_text())["value"][0]) if path.exists() else math.nan


def reduced_rank() -> Problem:
    """Return the reduced-rank regression, at its least squares solution of rank 3."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((500, 5))
    truth = np.outer(rng.standard_normal(5), rng.standard_normal(4))
    y = x @ truth + rng.standard_normal((500, 4))
    best = np.linalg.lstsq(x, y, rcond=None)[0]
    V = np.linalg.svd(x @ best)[2][:3].T
    left, sizes, right = np.linalg.svd(best @ V @ V.T)
    model = nn.Sequential(*(nn.Linear(*size, bias=False) for size in ((5, 3), (3, 4))))
    weights = (left[:, :3] * np.sqrt(sizes[:3])).T, right[:3].T * np.sqrt(sizes[:3])
    for layer, own in zip(model, weights, strict=True):
        layer.weight.data.copy_(torch.tensor(own))
    return Problem(model, (torch.tensor(x).float(), torch.tensor(y).float()), 1.0, reference(), 500)


PROBLEMS: dict[str, Callable[[], Problem]] = {
    "linear, all data": lambda: linear(1000),
    "linear, g = 100": lambda: linear(1000, 100.0),
    "linear, batches of 100": lambda: linear(100),
    "linear, batches of 20": lambda: linear(20),
    "reduced rank": reduced_rank,
}


def ours(problem: Problem, seed: int, adaptive: bool) -> Result:
    """By `llc`."""

    def sampler(chains: ht.Chains, tau: float) -> torch.optim.Optimizer:
        sigma = math.sqrt(2 * tau)
        return ht.AdaptiveLangevin(chains, 0.1, tau, sigma, epsilon=1.0, word="BAFEFAB", seed=seed)

    chosen: dict[str, Any] = {"sampler": sampler} if adaptive else {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = ht.llc(
            problem.model, loss_of, problem.data, batch=problem.batch, localization=problem.g, chains=CHAINS,
            burn_in=BURN_IN, draws=DRAWS, seed=seed, **chosen,
        )  # fmt: skip
    return {"value": found.value, "interval": found.interval, "warned": bool(caught)}


def langevin(params: Any, nbeta: float, lr: float, localization: float, seed: int) -> ht.Langevin:
    """Our Langevin dynamics for devinterp's loop: localisation is a hook that adds the pull."""
    optimizer = ht.Langevin(params, lr=lr, gamma=1.0, tau=1 / nbeta, seed=seed)
    centres = [(p, p.detach().clone()) for group in optimizer.param_groups for p in group["params"]]

    def pull(*_: Any) -> None:
        for p, centre in centres:
            p.grad.add_(p.detach() - centre, alpha=localization / nbeta)

    optimizer.register_step_pre_hook(pull)
    return optimizer


def devinterp(problem: Problem, seed: int, kind: str, lr: float) -> Result | None:
    """By devinterp's loop, with one of its samplers or ours; None where there is no localisation."""
    from devinterp.optim import SGMCMC, SGNHT
    from devinterp.slt.sampler import sample_single_chain

    makers = {"SGLD": SGMCMC.sgld, "SGNHT": SGNHT, "Langevin": langevin}
    options: dict[str, Any] = {"lr": lr, "nbeta": problem.nbeta}
    if kind != "SGNHT":
        options["localization"] = problem.g
    elif problem.g:
        return None
    examples = [{"input_ids": x, "y": y} for x, y in zip(*problem.data, strict=True)]
    draws: list[float] = []

    def evaluate(model: nn.Module, data: dict[str, Tensor]) -> tuple[Tensor, dict[str, Any]]:
        return loss_of(model(data["input_ids"]), data["y"]), {}

    for chain in range(CHAINS):
        own = {"seed": 1000 * seed + chain} if kind == "Langevin" else {}
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):  # its progress
            warnings.simplefilter("ignore")
            sample_single_chain(
                problem.model, examples, evaluate,
                {name: None for name, _ in problem.model.named_parameters()}, num_draws=DRAWS,
                num_burnin_steps=BURN_IN, sampling_method=makers[kind], sampling_method_kwargs=options | own,
                chain=chain, seed=1000 * seed + chain, dataloader_seed=1000 * seed + chain,
                callbacks=[lambda loss, **_: draws.append(float(loss))], batch_size=problem.batch,
            )  # fmt: skip
    start = loss_of(problem.model(problem.data[0]), problem.data[1]).item()
    return {"value": problem.nbeta * (float(np.mean(draws)) - start)}


SAMPLERS: dict[str, Callable[[Problem, int], Result | None]] = {
    "Langevin": lambda problem, seed: ours(problem, seed, False),
    "Adaptive Langevin": lambda problem, seed: ours(problem, seed, True),
    "devinterp: SGLD, 1e-4": lambda problem, seed: devinterp(problem, seed, "SGLD", 1e-4),
    "devinterp: SGLD, 1e-3": lambda problem, seed: devinterp(problem, seed, "SGLD", 1e-3),
    "devinterp: SGNHT, 1e-3": lambda problem, seed: devinterp(problem, seed, "SGNHT", 1e-3),
    "devinterp: our Langevin": lambda problem, seed: devinterp(problem, seed, "Langevin", 0.1),
}

OURS = ("Langevin", "Adaptive Langevin")


def _covers(run: Result, exact: float) -> bool:
    """Whether a run's interval has the truth in it; the first runs noted just that."""
    return bool(run["interval"][0] < exact < run["interval"][1] if "interval" in run else run["covered"])


def cell(runs: list[Result], exact: float) -> str:
    """Return a mean ± its error, with the coverage of the intervals and the number of warnings."""
    values = np.array([run["value"] for run in runs])
    error = f" ± {values.std(ddof=1) / np.sqrt(len(values)):.2f}" if len(values) > 1 else ""
    counts = f"{len(runs)} runs"
    if "warned" in runs[0]:
        covered = sum(_covers(run, exact) for run in runs)
        counts += f", {covered} covered, {sum(run['warned'] for run in runs)} warned"
    return f"{values.mean():.2f}{error} ({counts})"


def table(known: dict[str, dict[str, dict[str, Result]]]) -> str:
    """Of all that is in the results."""
    lines = ["| | truth | " + " | ".join(SAMPLERS) + " |", "|" + " --- |" * (len(SAMPLERS) + 2)]
    for name, by_sampler in known.items():
        exact = PROBLEMS[name]().exact
        cells = [cell(list(runs.values()), exact) if (runs := by_sampler.get(s)) else "-" for s in SAMPLERS]
        lines.append(f"| {name} | {exact:.2f} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure what is not known yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--results", type=Path, default=RESULTS / "llc.json")
    parser.add_argument("--problem", choices=PROBLEMS, action="append")
    parser.add_argument("--ours", action="store_true", help="without devinterp")
    given = parser.parse_args()
    torch.set_num_threads(1)
    known = json.loads(given.results.read_text()) if given.results.exists() else {}
    for seed in range(given.seeds):
        for name in given.problem or PROBLEMS:
            for sampler, measure in SAMPLERS.items():
                if given.ours and sampler not in OURS:
                    continue
                runs = known.setdefault(name, {}).setdefault(sampler, {})
                if str(seed) not in runs and (result := measure(PROBLEMS[name](), seed)) is not None:
                    runs[str(seed)] = result
                    atomic_write.write(given.results, json.dumps(known, indent=1))
                    print(seed, name, sampler, result, flush=True)
    print(table(known))


if __name__ == "__main__":
    main()
