"""Where intervals can be calibrated by leaving out training examples, and where leverages are too large.

Tables of 80 to 300 rows and 5 to 20 columns, of which three tell of the target, in a line or in waves, with
normal noise or that of Student (3 degrees): `ThermodynamicRegressor` with its defaults on each, twice, and
what share of 300 new rows its 90 % intervals hold, by the formula of `prediction.calibration`, whether it is
to be used or not, and as the posterior's law has them. In the order of the mean leverage; at the end means
below and above MOST_LEVERAGE, which was chosen by these, and as many with other seeds.

    python benchmarks/leverages.py
"""

import itertools
import warnings

import numpy as np

import heatbath as hb
from heatbath.prediction import calibration
from heatbath.runs import run as runs

NEW = 300


def measured(rows: int, columns: int, kind: str, number: int) -> tuple[float, float, float]:
    """Return the mean leverage, and the coverage of intervals by the formula and by the posterior's law."""
    rng = np.random.default_rng(number)
    X = rng.normal(size=(rows + NEW, columns))
    told = X[:, :3].sum(axis=1) if kind == "a line" else np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2]
    noise = rng.normal(size=len(X)) if number % 3 else rng.standard_t(3, size=len(X))
    y = told + 0.3 * noise
    regressor = hb.ThermodynamicRegressor(random_state=number).fit(X[:rows], y[:rows])
    found = []
    given = calibration.leverages

    def noted(*moments: object) -> object:
        found.append(float(np.minimum(given(*moments), 1).mean()))  # type: ignore[arg-type]
        return np.zeros(1)  # so that the formula is used

    runs.leverages = noted  # type: ignore[assignment]
    law, new = regressor.run_.predictive(X[rows:]), y[rows:]
    by_formula = regressor.run_._calibration(None).interval(law, 0.9)
    runs.leverages = given
    held = [
        float(np.mean((low[:, 0] <= new) & (new <= high[:, 0])))
        for low, high in (by_formula, law.interval(0.9))
    ]
    return found[0], held[0], held[1]


def main() -> None:
    """Print all, in the order of their leverages, and the means."""
    warnings.simplefilter("ignore")
    kinds = list(itertools.product((80, 120, 200, 300), (5, 8, 12, 20), ("a line", "waves")))
    results = []
    for number, (rows, columns, kind) in enumerate(2 * kinds, start=1):
        one = measured(rows, columns, kind, number)
        results.append((*one, f"{rows} x {columns}, {kind}"))
    for leverage, formula, law, text in sorted(results):
        print(f"{leverage:.2f}: by the formula {formula:.1%}, of the law {law:.1%}   {text}")
    for above in (False, True):
        some = np.array([row[:3] for row in results if (row[0] > calibration.MOST_LEVERAGE) == above])
        formula, law = some[:, 1:].mean(axis=0)
        print(f"{'above' if above else 'below'}: {len(some)} tables, {formula:.1%}, {law:.1%}")


if __name__ == "__main__":
    main()
