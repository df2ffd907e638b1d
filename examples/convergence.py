"""Has it converged? R-hat and ESS of what the networks say, on the 2-turn spiral, by ArviZ.

Four chains from different starts sample the posterior of a network with 100 hidden units and a standard
normal prior: the loss is a mean over n data, so τ = 1/n, with a weight decay of 1/n. Beside it Adaptive
Langevin on small mini-batches, and a colder law, which the chains do not explore in the same time. The last
column has the parameters themselves: hidden units can be exchanged, so they need not agree where the function
does.
"""

import argparse

import arviz
import numpy as np
from rich.console import Console
from rich.table import Table

import heatbath as hb
from heatbath.diagnostics import equipartition

N = 500
COLD = 1e-4
CASES = {
    "Langevin, τ = 1/n, batch 100": (hb.Partition(hb.Langevin(1.0, 1 / N, weight_decay=1 / N), 0.2), 100),
    "Adaptive Langevin, τ = 1/n, batch 20": (
        hb.Partition(hb.AdaptiveLangevin(1 / N, 0.05, 0.1, weight_decay=1 / N), 0.2),
        20,
    ),
    "Langevin, τ = 1e-4, batch 100": (hb.Partition(hb.Langevin(1.0, COLD, weight_decay=COLD), 0.2), 100),
}


def main() -> None:
    """Sample, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=200_000)
    steps = parser.parse_args().steps
    problem = hb.datasets.spirals(turns=2, n_train=N, n_test=200)
    table = Table(title=f"2-turn spiral, 4 chains x 500 samples in the second half of {steps:,} steps")
    table.add_column("sampler")
    for column in ("T / τ", "accuracy of the mean", "R-hat", "largest", "ESS", "smallest", "R-hat of θ"):
        table.add_column(column, justify="right")
    for name, (partition, batch) in CASES.items():
        run = hb.train(
            problem, hb.MLP((100,)), partition, steps, batch, chains=4, samples=500, burn_in=steps // 2
        )
        samples = run.to_arviz(parameters=True, groups=["posterior"])
        rhat = arviz.rhat(samples)  # type: ignore[no-untyped-call]
        ess = arviz.ess(samples, var_names=["prediction"])["prediction"].values  # type: ignore[no-untyped-call]
        mean = run.predict(problem.X_test[0]).mean
        heat = float(equipartition(run, burn_in=run.step // 2)["ratio"].item())
        table.add_row(
            name,
            f"{heat:.2f}",
            f"{100 * np.mean((mean > 0.5) == problem.Y_test[0]):.1f} %",
            f"{float(rhat['prediction'].median()):.3f}",
            f"{float(rhat['prediction'].max()):.3f}",
            f"{np.median(ess):,.0f}",
            f"{ess.min():,.0f}",
            f"{float(rhat['theta'].median()):.3f}",
        )
    Console(width=130).print(table)


if __name__ == "__main__":
    main()
