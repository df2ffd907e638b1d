"""AdLaLa and Adam on the 4-turn spiral, side by side: progress, a table, and a picture of both classifiers.

The network and AdLaLa's coefficients are those of the paper's comparison on this problem; Adam has its usual
stepsize, 0.005 there. Both start from the same ten networks and see the same mini-batches.
"""

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.table import Table

import heatbath as hb

METHODS = {
    "AdLaLa": hb.AdLaLa(h=0.25, tau=1e-4, sigma=0.01, epsilon=0.05, gamma=0.1),
    "Adam": hb.Partition(hb.Adam(), h=0.005),
}


def train(problem: hb.datasets.Problem, steps: int, chains: int, console: Console) -> dict[str, hb.Run]:
    """Train each method, with a bar that tells steps/s, loss, temperature and the time left."""
    runs = {}
    columns = TextColumn("{task.description:7}"), BarColumn(20), TextColumn("{task.fields[told]}")
    with Bars(*columns, TimeRemainingColumn(), console=console) as bars:
        for name, partition in METHODS.items():
            told = "compiling, once (some 20 s)"
            task = bars.add_task(name, total=steps, told=told)

            def tell(now: hb.Progress, task: int = task) -> None:
                heat = "".join(f"  T {part} {t:.1e}" for part, t in now.temperature.items())
                told = f"{now.speed:,.0f} steps/s  test loss {now.loss:.3f}{heat}"
                bars.update(task, completed=now.step, told=told)  # type: ignore[arg-type]

            runs[name] = hb.train(
                problem, hb.Dense((100,)), partition, steps=steps, batch=20, chains=chains, progress=tell
            )
    return runs


def table(runs: dict[str, hb.Run]) -> Table:
    """Means and standard deviations over the chains at the last record, and the worst and best chain."""
    made = Table(title="4-turn spiral, 100 hidden units, after training")
    for column in ("method", "test accuracy", "worst to best", "test loss", "train loss"):
        made.add_column(column, justify="left" if column == "method" else "right")
    for name, run in runs.items():
        accuracy = 100 * run.accuracy("test").isel(record=-1).values
        losses = [run.loss(split).isel(record=-1).values for split in ("test", "train")]
        made.add_row(
            name,
            f"{accuracy.mean():.1f} ± {accuracy.std():.1f} %",
            f"{accuracy.min():.1f} to {accuracy.max():.1f} %",
            *(f"{loss.mean():.3f} ± {loss.std():.3f}" for loss in losses),
        )
    return made


def picture(problem: hb.datasets.Problem, runs: dict[str, hb.Run], path: Path) -> None:
    """The classifier of each method's median chain, with the training data."""
    edge = 2.2
    axis = np.linspace(-edge, edge, 300)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    figure, axes = plt.subplots(1, len(runs), figsize=(9.5, 4.6), layout="constrained", sharey=True)
    labels = problem.Y_train[0, :, 0]
    for ax, (name, run) in zip(axes, runs.items(), strict=True):
        accuracy = run.accuracy("test").isel(record=-1).values
        chain = int(np.argsort(accuracy)[len(accuracy) // 2])
        probability = run.predict(grid)[chain].reshape(300, 300)
        shades = ax.imshow(
            probability,
            origin="lower",
            extent=(-edge, edge, -edge, edge),
            cmap="PuOr",
            vmin=0,
            vmax=1,
            alpha=0.9,
        )
        for label, marker, colour, edge_colour in ((0, "o", "#fdb863", "k"), (1, "^", "#5e3c99", "w")):
            own = problem.X_train[0][labels == label]
            ax.scatter(
                *own.T,
                s=7,
                marker=marker,
                c=colour,
                edgecolors=edge_colour,
                linewidths=0.4,
                label=f"class {label}",
            )
        ax.set(title=f"{name}: {100 * accuracy[chain]:.1f} % test accuracy", xlabel="$x_1$")
        ax.set_aspect("equal")
    axes[0].set_ylabel("$x_2$")
    axes[0].legend(loc="upper right", fontsize=8, framealpha=0.9)
    figure.colorbar(shades, ax=axes, label="predicted probability of class 1", shrink=0.9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main() -> None:
    """Train, tell and draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--chains", type=int, default=10)
    parser.add_argument("--picture", type=Path, default=Path("demo") / "spiral.png")
    chosen = parser.parse_args()
    console = Console()
    problem = hb.datasets.spirals(turns=4)
    runs = train(problem, chosen.steps, chosen.chains, console)
    console.print(table(runs))
    picture(problem, runs, chosen.picture)
    console.print(f"the classifiers: {chosen.picture}")


if __name__ == "__main__":
    main()
