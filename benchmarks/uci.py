"""`ThermodynamicRegressor` as it is on the standard UCI regression benchmark: all sets, the public splits.

The data are those of the public benchmark (folders NAME/data with data.txt, index_features.txt,
index_target.txt, index_train_K.txt and index_test_K.txt), in HEATBATH_DATA/uci or in a folder that is named.
Our RMSE, log likelihood of a datum, coverage of 90 % intervals and seconds of the fastest fit (others may
have had a busy machine) are printed beside published figures and, measured in the same run, the RMSE of
scikit-learn's MLP with 50 units and of its gradient boosting with default settings. Means over the splits, ±
the standard error of ours. Where `deep_ensembles` can be imported, theirs are measured, too, on the first
three splits.

    python benchmarks/uci.py [FOLDER] [--sets yacht,energy] [--splits 5] [--results FILE] [--page FILE]

Splits whose results are in the file of results (benchmarks/results/uci.json) are not computed again:
delete it to measure anew.
"""

import argparse
import json
import os
import time
import warnings
from functools import partial
from pathlib import Path
from typing import NamedTuple

import deep_ensembles
import numpy as np
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import heatbath as hb
from heatbath._internal import atomic_write


class Published(NamedTuple):
    """RMSE and log likelihood of others; of the ensembles of uncertainty-baselines the likelihood only."""

    folder: str
    pbp: tuple[float, float]
    ensembles: tuple[float, float]
    baselines: float
    refined: float
    dropout: tuple[float, float]


SETS = {
    "concrete": Published("concrete", (5.67, -3.16), (6.03, -3.06), -3.20, -3.08, (4.83, -2.94)),
    "energy": Published("energy", (1.80, -2.04), (2.09, -1.38), -0.61, -0.75, (0.539, -1.21)),
    "kin8nm": Published("kin8nm", (0.10, 0.90), (0.09, 1.20), 1.17, 1.06, (0.0789, 1.14)),
    "naval": Published("naval-propulsion-plant", (0.01, 3.73), (0.00, 5.63), 5.17, 6.33, (0.00074, 4.45)),
    "power": Published("power-plant", (4.12, -2.84), (4.11, -2.79), -3.18, -2.83, (4.01, -2.81)),
    "protein": Published(
        "protein-tertiary-structure", (4.73, -2.97), (4.71, -2.83), -3.12, -2.92, (4.27, -2.87)
    ),
    "wine": Published("wine-quality-red", (0.64, -0.97), (0.64, -0.94), -0.97, -0.97, (0.622, -0.928)),
    "yacht": Published("yacht", (1.02, -1.63), (1.58, -1.18), -0.73, -1.68, (0.666, -1.25)),
}
ENSEMBLES = 3  # splits on which deep ensembles are measured
RESULTS = Path(__file__).parent / "results"
COLUMNS = ("rmse", "log_likelihood", "coverage", "seconds", "temperature", "mlp", "boosting")


def split(folder: Path, number: int) -> tuple[np.ndarray, ...]:
    """X and y for training, X and y for the test."""
    data = np.loadtxt(folder / "data.txt")
    features = np.loadtxt(folder / "index_features.txt", dtype=float).astype(int)
    target = int(np.loadtxt(folder / "index_target.txt"))
    train, test = (
        np.loadtxt(folder / f"index_{part}_{number}.txt").astype(int) for part in ("train", "test")
    )
    return data[train][:, features], data[train, target], data[test][:, features], data[test, target]


def measure(folder: Path, number: int) -> list[float]:
    """One split, in the order of COLUMNS."""
    X, y, X_test, y_test = split(folder, number)

    def rmse(said: np.ndarray) -> float:
        return float(np.sqrt(np.mean((said - y_test) ** 2)))

    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hb.OffTemperatureWarning)  # the temperature is a column
        ours = hb.ThermodynamicRegressor(random_state=number).fit(X, y)
    seconds = time.perf_counter() - begin
    law = ours.run_.predictive(X_test)
    low, high = ours.predict_interval(X_test, 0.9)
    mlp = make_pipeline(
        StandardScaler(), MLPRegressor(hidden_layer_sizes=(50,), max_iter=500, random_state=number)
    )
    others = []
    for other in (
        TransformedTargetRegressor(mlp, transformer=StandardScaler()),
        HistGradientBoostingRegressor(random_state=number),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            others.append(rmse(other.fit(X, y).predict(X_test)))
    return [
        rmse(law.mean[:, 0]),
        float(law.log_density(y_test).mean()),
        float(np.mean((low < y_test) & (y_test < high))),
        seconds,
        ours.run_.found.temperature,
        *others,
    ]


def measure_ensemble(model: str, folder: Path, number: int) -> list[float]:
    """RMSE and log likelihood of a deep ensemble in one split, and seconds of its fit."""
    X, y, X_test, y_test = split(folder, number)
    begin = time.perf_counter()
    law = deep_ensembles.predictive(model, number, X, y, X_test)
    seconds = time.perf_counter() - begin
    rmse = np.sqrt(np.mean((law.mean[:, 0] - y_test) ** 2))
    return [float(rmse), float(law.log_density(y_test).mean()), seconds]


def ensemble_cell(values: list[list[float]]) -> str:
    """Return the cell of a deep ensemble in the table, if it was measured."""
    if not values:
        return ""
    rmse, likelihood, seconds = np.mean(values, axis=0)
    return f"{rmse:.4g} / {likelihood:.3f} in {seconds:.0f} s"


def coverage_cell(shares: np.ndarray) -> str:
    """Return the mean coverage over the splits measured with calibrated intervals."""
    known = shares[~np.isnan(shares)]
    return f"{known.mean():.1%}" + ("" if len(known) == len(shares) else f" (of {len(known)} splits)")


def row(name: str, values: np.ndarray, ensembles: list[list[list[float]]]) -> str:
    """Return a line of the table from the results of the splits."""
    known = SETS[name]
    error = values.std(axis=0, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.full(7, np.nan)
    mean = dict(zip(COLUMNS, values.mean(axis=0), strict=True))
    pairs = [f"{r:g} / {likelihood:g}" for r, likelihood in (known.pbp, known.dropout, known.ensembles)]
    ours = f"{mean['rmse']:.4g} ± {error[0]:.2g} / {mean['log_likelihood']:.3f} ± {error[1]:.2g}"
    cells = [
        name,
        f"**{ours}**",
        coverage_cell(values[:, COLUMNS.index("coverage")]),
        f"{values[:, COLUMNS.index('seconds')].min():.1f}",
        f"{mean['temperature']:.2f}",
        *pairs,
        f"{known.baselines:g}, {known.refined:g}",
        f"{mean['mlp']:.4g}",
        f"{mean['boosting']:.4g}",
        str(len(values)),
        *map(ensemble_cell, ensembles),
    ]
    return f"| {' | '.join(cells)} |"


HEAD = (
    "| set | ours, RMSE / log likelihood | 90 % intervals | seconds, fastest | T | PBP | MC dropout | deep "
    "ensembles | ensemble of 10, refined VI: log likelihood | MLP | gradient boosting | splits |"
    f" {' | '.join(deep_ensembles.REGRESSORS)} |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)


def main() -> None:
    """Measure what is not known yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "folder", nargs="?", default=os.path.join(os.environ.get("HEATBATH_DATA", "."), "uci")
    )
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--results", type=Path, default=RESULTS / "uci.json")
    parser.add_argument("--page", type=Path)
    given = parser.parse_args()
    known = json.loads(given.results.read_text()) if given.results.exists() else {}
    for name in given.sets.split(","):
        folder = Path(given.folder) / SETS[name].folder / "data"
        count = min(given.splits, int(np.loadtxt(folder / "n_splits.txt")))
        for number in range(count):
            runs = {f"{name} {number}": partial(measure, folder, number)}
            if deep_ensembles.AVAILABLE and number < ENSEMBLES:
                for model in deep_ensembles.REGRESSORS:
                    runs[f"{model}/{name} {number}"] = partial(measure_ensemble, model, folder, number)
            for key, run in runs.items():
                if key not in known:
                    known[key] = run()
                    atomic_write.write(given.results, json.dumps(known))
                print(key, " ".join(f"{value:.4g}" for value in known[key]), flush=True)

    def of(start: str) -> list[list[float]]:
        return [values for key, values in known.items() if key.startswith(f"{start} ")]

    lines = [
        row(
            name,
            np.array(of(name), np.float64),
            [of(f"{model}/{name}") for model in deep_ensembles.REGRESSORS],
        )
        for name in SETS
        if of(name)
    ]
    table = "\n".join([HEAD, *lines])
    print(table)
    if given.page:
        explained = str(__doc__).partition("\n\n    python")[0]
        atomic_write.write(
            given.page, f"# The UCI regressions\n\nBy `make tables`.\n\n{explained}\n\n{table}\n"
        )


if __name__ == "__main__":
    main()
