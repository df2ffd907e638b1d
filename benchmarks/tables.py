"""Raw tables, as people have them, by `heatbath train` as it is, against gradient boosting and linear models.

Five tables are drawn with a known law, with numbers, categories, dates, truth values and cells that are
missing (where the law says so, not at random), so that the best possible answer is known; three are
scikit-learn's. Each is written to a CSV file, split by rows into 70 % and 30 % (a file each), five times, and

- ours is the command line, in this process: `train --data TRAIN --target COLUMN --test-share 0 --seed SPLIT`
  (all rows of the file are for training), and `predict RUN TEST`;
- boosting is scikit-learn's histogram gradient boosting with its defaults, categories as such;
- linear is logistic or ridge regression, its penalty chosen in folds, on one-hot categories and filled cells;
- constant is what the frequencies of the classes, or mean and spread of the training targets, predict;
- law is the truth that the data were drawn with, where it is known.

The tables have the log loss (of two classes or more) or the RMSE on the 30 %, means over the splits ± the
standard error, the share of test targets in our intervals of 90 % and their mean width, and the seconds of a
fit. ✓ marks those that ours is no worse than: the mean of the differences over the splits is at most one
standard error of it.

    python benchmarks/tables.py [--sets churn,houses] [--splits 5] [--results tables.json]
        [--page docs/mixed.md] [--large]

With --large, three sizes in place of the eight tables, drawn with known laws, once each: 50,000 rows of 30
columns of all kinds, 200 of 2,000, and a million of 10. Ours is a process of its own for `heatbath train` and
one for `heatbath predict`, as a user has them, of which the seconds, those of the processors and the peak of
memory are noted, beside the size of the file (benchmarks/results/large.json). Seconds are of the machine as
it was: those of the processors, over its cores, are what it would take if it did nothing else.

What is in the file of results (benchmarks/results/tables.json) is not computed again: delete it to measure
anew.
"""

import argparse
import contextlib
import io
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegressionCV, RidgeCV
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from heatbath._internal import atomic_write
from heatbath.cli import main as command
from heatbath.datasets.from_arrays import split

RESULTS = Path(__file__).parent / "results"
OURS, CONSTANT, LAW = "ours", "constant", "law"
COLUMNS = (OURS, "boosting", "linear", CONSTANT, LAW)


class Drawn(NamedTuple):
    """A table, its target, and of every row what the law says: probabilities of classes, or the mean."""

    frame: pd.DataFrame
    target: str
    law: np.ndarray | None = None


def _missing(rng: np.random.Generator, column: pd.Series, chance: Any) -> pd.Series:
    """With cells that are empty by these chances."""
    return column.mask(rng.random(len(column)) < chance)


def _drawn(rng: np.random.Generator, names: list[str], shares: np.ndarray) -> np.ndarray:
    """Return a class for every row of probabilities."""
    return np.array(names)[(rng.random((len(shares), 1)) > shares.cumsum(axis=1)).sum(axis=1)]


def churn(rng: np.random.Generator) -> Drawn:
    """Who leaves: 4 % do."""
    n = 4000
    tenure = rng.gamma(2.0, 18.0, n).round(1)
    charge = rng.normal(60, 20, n).clip(10).round(2)
    contract = rng.choice(["month", "year", "two years"], n, p=[0.5, 0.3, 0.2])
    calls = rng.poisson(1.2, n)
    since = pd.Timestamp("2024-06-01") - pd.to_timedelta((30 * tenure).astype(int), unit="D")
    paperless = rng.random(n) < 0.6
    score = -4.1 - 0.04 * tenure + 0.02 * (charge - 60) + 1.5 * (contract == "month") + 0.55 * calls
    score += 0.6 * paperless * (charge > 70)
    p = 1 / (1 + np.exp(-score))
    frame = pd.DataFrame(
        {
            "customer": [f"C{i:05d}" for i in rng.permutation(n)],
            "tenure": tenure, "monthly_charge": _missing(rng, pd.Series(charge), 0.05),
            "contract": contract, "support_calls": calls, "since": since.strftime("%Y-%m-%d"),
            "paperless": np.where(paperless, "yes", "no"), "country": "NL",
        }
    )  # fmt: skip
    shares = np.column_stack([1 - p, p])
    return Drawn(frame.assign(left=_drawn(rng, ["no", "yes"], shares)), "left", shares)


def houses(rng: np.random.Generator) -> Drawn:
    """Prices: areas that matter, a quarter of them rare, and missing years of old houses."""
    n = 2000
    areas = [f"area {i}" for i in range(25)]
    area = rng.choice(25, n, p=np.r_[np.full(5, 0.15), np.full(20, 0.0125)])
    worth = rng.normal(0, 60, 25)
    size = rng.lognormal(4.5, 0.35, n).round()
    rooms = (size / 25 + rng.normal(0, 0.8, n)).round().clip(1)
    year = rng.integers(1890, 2024, n)
    garden = rng.random(n) < 0.4
    mean = 40 + 2.2 * size + worth[area] + 25 * garden * np.sqrt(size / 90) + 30 * np.cos((year - 1890) / 25)
    frame = pd.DataFrame(
        {
            "size": size, "rooms": rooms,
            "year": _missing(rng, pd.Series(year.astype(float)), np.where(year < 1930, 0.4, 0.02)),
            "garden": garden, "area": [areas[i] for i in area],
            "heating": _missing(rng, pd.Series(rng.choice(["gas", "heat pump", "oil"], n)), 0.1),
        }
    )  # fmt: skip
    return Drawn(frame.assign(price=(mean + rng.normal(0, 20, n)).round(1)), "price", mean)


def sensors(rng: np.random.Generator) -> Drawn:
    """Power by the hour and the day of the week, with a sensor that fails when it is hot."""
    n = 3000
    times = pd.Timestamp("2023-01-01") + pd.to_timedelta(np.sort(rng.integers(0, 365 * 24, n)), unit="h")
    hour, day = times.hour.to_numpy(), times.day_of_year.to_numpy()
    outside = 10 - 9 * np.cos(2 * np.pi * day / 365) + rng.normal(0, 3, n)
    line = rng.choice(["north", "south", "west"], n)
    load = np.where(times.day_of_week < 5, 30.0, 12.0) + 10 * np.sin(2 * np.pi * (hour - 7) / 24)
    mean = (
        load + 0.8 * np.maximum(16 - outside, 0) + np.select([line == "south", line == "west"], [6.0, -4.0])
    )
    frame = pd.DataFrame(
        {
            "time": times.strftime("%d.%m.%Y %H:%M"),
            "outside": _missing(rng, pd.Series(outside.round(1)), np.where(outside > 20, 0.5, 0.02)),
            "line": line, "humidity": rng.uniform(20, 90, n).round(),
        }
    )  # fmt: skip
    return Drawn(frame.assign(power=(mean + rng.normal(0, 3, n)).round(2)), "power", mean)


def patients(rng: np.random.Generator) -> Drawn:
    """Return a table whose outcome has an interaction, and a test made only of those who seem ill."""
    n = 800
    age = rng.integers(20, 90, n)
    sex = rng.choice(["f", "m"], n)
    marker = rng.lognormal(0.0, 0.8, n)
    smoker = rng.choice(["never", "former", "current"], n, p=[0.5, 0.3, 0.2])
    score = -6 + 0.05 * age + 1.2 * np.log(marker) * (sex == "f") + 1.3 * (smoker == "current")
    score += 2.0 * (marker > 2)
    p = 1 / (1 + np.exp(-score))
    frame = pd.DataFrame(
        {
            "id": np.arange(1, n + 1), "age": age, "sex": sex,
            "marker": _missing(rng, pd.Series(marker.round(3)), np.where(p < 0.1, 0.5, 0.1)),
            "smoker": _missing(rng, pd.Series(smoker), 0.08), "ward": rng.choice(list("ABCDEFGH"), n),
        }
    )  # fmt: skip
    shares = np.column_stack([1 - p, p])
    return Drawn(frame.assign(outcome=_drawn(rng, ["alive", "dead"], shares)), "outcome", shares)


def seeds(rng: np.random.Generator) -> Drawn:
    """Three kinds by two sizes that curve, and a colour."""
    n = 1500
    length, width = rng.normal(6, 1, n), rng.normal(3, 0.5, n)
    colour = rng.choice(["brown", "red", "yellow", "white"], n, p=[0.5, 0.3, 0.15, 0.05])
    scores = np.column_stack(
        [1.5 * (length - 6) ** 2 + (colour == "red"), 3 * (width - 3), 1.5 - (length - 6) * (width - 3) * 3]
    )
    shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    frame = pd.DataFrame(
        {
            "length": length.round(2), "width": _missing(rng, pd.Series(width.round(2)), 0.06),
            "colour": colour, "weight": (length * width * rng.lognormal(0, 0.2, n)).round(1),
            "organic": rng.random(n) < 0.5,
        }
    )  # fmt: skip
    return Drawn(frame.assign(kind=_drawn(rng, ["durum", "emmer", "spelt"], shares)), "kind", shares)


def _own(load: Callable[..., Any], target: str) -> Callable[[np.random.Generator], Drawn]:
    def made(rng: np.random.Generator) -> Drawn:
        data = load(as_frame=True)
        y = (
            data.target
            if target == "progression"
            else data.target.map(dict(enumerate(map(str, data.target_names))))
        )
        return Drawn(data.data.assign(**{target: y}), target)

    return made


# Chosen once, before anything was measured, for what they ask for; each drawn with the seed 0.
SETS: dict[str, Callable[[np.random.Generator], Drawn]] = {
    "churn": churn, "houses": houses, "sensors": sensors, "patients": patients, "seeds": seeds,
    "breast cancer": _own(load_breast_cancer, "diagnosis"),
    "wine": _own(load_wine, "cultivar"),
    "diabetes": _own(load_diabetes, "progression"),
}  # fmt: skip


def peers(frame: pd.DataFrame, classes: bool, seed: int) -> dict[str, Any]:
    """Boosting and linear models, not fitted."""
    numbers = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
    names = make_pipeline(
        SimpleImputer(strategy="constant", fill_value="missing"), OneHotEncoder(handle_unknown="ignore")
    )
    text = make_column_selector(dtype_exclude="number")
    encoded = make_column_transformer((numbers, make_column_selector(dtype_include="number")), (names, text))
    if classes:
        linear: Any = LogisticRegressionCV(Cs=8, scoring="neg_log_loss", max_iter=2000)
        boosting: Any = HistGradientBoostingClassifier(categorical_features="from_dtype", random_state=seed)
    else:
        linear = RidgeCV(np.logspace(-3, 4, 15))
        boosting = HistGradientBoostingRegressor(categorical_features="from_dtype", random_state=seed)
    return {"linear": make_pipeline(encoded, linear), "boosting": boosting}


def usable(train: pd.DataFrame, test: pd.DataFrame, boosting: bool) -> list[pd.DataFrame]:
    """Return columns for scikit-learn's models: no identifiers, dates as parts, categories as such."""
    made = []
    for frame in (train, test):
        frame = frame.drop(columns=[name for name in ("customer", "id") if name in frame])
        for name, form in (("since", "%Y-%m-%d"), ("time", "%d.%m.%Y %H:%M")):
            if name in frame:
                when = pd.to_datetime(frame[name], format=form)
                parts = {"day": when.dt.day_of_year, "hour": when.dt.hour, "weekday": when.dt.day_of_week}
                parts["year"] = when.dt.year + when.dt.day_of_year / 366
                frame = frame.drop(columns=name).assign(**parts)
        for name in frame.select_dtypes(exclude="number"):
            kinds = pd.CategoricalDtype(sorted(map(str, train[name].dropna().unique())))
            text = frame[name].map(str, na_action="ignore").astype(object)
            frame = frame.assign(**{name: text.astype(kinds) if boosting else text})
        made.append(frame)
    return made


def told(arguments: list[str]) -> str:
    """Run a command; return what it prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        try:
            command(arguments)
        except SystemExit as end:
            if end.code:
                raise RuntimeError(f"heatbath {' '.join(arguments)} ended with {end.code}") from None
    return out.getvalue()


def ours(train: pd.DataFrame, test: pd.DataFrame, target: str, seed: int) -> tuple[pd.DataFrame, float]:
    """Return the predictions that `predict` writes for the test rows, and the seconds of `train`."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        train.to_csv(place / "train.csv", index=False)
        test.drop(columns=target).to_csv(place / "test.csv", index=False)
        begin = time.perf_counter()
        run = str(place / "run")
        told(["train", "--data", str(place / "train.csv"), "--target", target, "--test-share", "0",
              "--seed", str(seed), "--out", run, "--json"])  # fmt: skip
        seconds = time.perf_counter() - begin
        return pd.read_csv(io.StringIO(told(["predict", run, str(place / "test.csv")]))), seconds


def measure(name: str, number: int) -> dict[str, dict[str, float]]:
    """Scores of all in one split."""
    drawn = SETS[name](np.random.default_rng(0))
    target, y = drawn.target, drawn.frame[drawn.target]
    classes = y.dtype.kind not in "fiu"
    rows = np.arange(len(y))
    train, test = train_test_split(rows, test_size=0.3, stratify=y if classes else None, random_state=number)
    frames, scores = [drawn.frame.iloc[part] for part in (train, test)], {}
    labels = np.unique(y) if classes else None

    def score(said: np.ndarray, seconds: float = math.nan) -> dict[str, float]:
        if labels is not None:
            value = log_loss(y.iloc[test], said, labels=labels)
        else:
            value = float(np.sqrt(np.mean((said - y.iloc[test]) ** 2)))
        return {"score": value, "seconds": seconds}

    answer, seconds = ours(*frames, target, number)
    if labels is not None:
        said = answer[[f"probability_{label}" for label in labels]].to_numpy()
        scores[OURS] = score(said, seconds)
        base = y.iloc[train].value_counts(normalize=True).reindex(labels).to_numpy()
        scores[CONSTANT] = score(np.tile(base, (len(test), 1)))
    else:
        scores[OURS] = score(answer["prediction"].to_numpy(), seconds)
        inside = (answer["low"].to_numpy() <= y.iloc[test]) & (y.iloc[test] <= answer["high"].to_numpy())
        scores[OURS] |= {
            "coverage": float(inside.mean()),
            "width": float((answer["high"] - answer["low"]).mean()),
        }
        scores[CONSTANT] = score(np.full(len(test), y.iloc[train].mean()))
    for peer, model in peers(frames[0], classes, number).items():
        a, b = usable(*(frame.drop(columns=target) for frame in frames), boosting=peer == "boosting")
        begin = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(a, y.iloc[train])
        scores[peer] = score(
            model.predict_proba(b) if classes else model.predict(b), time.perf_counter() - begin
        )
    if drawn.law is not None:
        scores[LAW] = score(drawn.law[test])
    return scores


def wide(rng: np.random.Generator) -> Drawn:
    """50,000 rows of 30 columns of all kinds."""
    n = 50_000
    X = rng.normal(size=(n, 24)).round(3)
    kind, worth = (
        rng.choice(list("abcdef"), n),
        dict(zip("abcdef", [0.0, 1.0, -1.0, 0.5, 2.0, -0.5], strict=True)),
    )
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 1200, n), unit="D")
    flag = rng.random(n) < 0.4
    mean = (
        2 * np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + np.abs(X[:, 3]) + X[:, 4:12] @ np.linspace(0.1, 0.8, 8)
    )
    mean += np.array([worth[one] for one in kind]) + flag * X[:, 5]
    mean += np.cos(2 * np.pi * days.day_of_year.to_numpy() / 365)
    frame = pd.DataFrame(X, columns=[f"x{i}" for i in range(24)]).assign(
        kind=kind, since=days.strftime("%Y-%m-%d"), flag=np.where(flag, "yes", "no"),
        other=rng.choice(list("xyz"), n), count=rng.poisson(3, n), size=rng.exponential(2, n).round(2),
    )  # fmt: skip
    return Drawn(frame.assign(y=(mean + rng.normal(0, 1, n)).round(3)), "y", mean)


def genes(rng: np.random.Generator) -> Drawn:
    """200 rows of 2,000 columns, which ten factors move; the target follows three of them."""
    n = 200
    factors = rng.normal(size=(n, 10))
    X = factors @ rng.normal(size=(10, 2000)) / 2 + rng.normal(size=(n, 2000))
    mean = 2 * factors[:, 0] + factors[:, 1] - factors[:, 2]
    frame = pd.DataFrame(X.round(3), columns=[f"gene {i}" for i in range(2000)])
    return Drawn(frame.assign(y=(mean + rng.normal(0, 1, n)).round(3)), "y", mean)


def million(rng: np.random.Generator) -> Drawn:
    """Write a million rows of 10 columns."""
    n = 1_000_000
    X, where, hour = (
        rng.normal(size=(n, 8)).round(3),
        rng.choice(["north", "south", "west"], n),
        rng.integers(0, 24, n),
    )
    mean = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * X[:, 3] + (where == "south")
    mean += np.cos(2 * np.pi * hour / 24)
    frame = pd.DataFrame(X, columns=list("abcdefgh")).assign(where=where, hour=hour)
    return Drawn(frame.assign(y=(mean + rng.normal(0, 0.7, n)).round(3)), "y", mean)


LARGE = {"50,000 x 30": wide, "200 x 2,000": genes, "1,000,000 x 10": million}


ALONE = """
import atexit, sys
from pathlib import Path
from heatbath.cli import main

def note():  # of this process since it began, while what the system counts has the peak of its parent, too
    lines = Path("/proc/self/status").read_text().splitlines()
    Path(sys.argv[1]).write_text(next(line.split()[1] for line in lines if line.startswith("VmHWM")))

atexit.register(note)
main(sys.argv[2:])
"""


def alone(arguments: list[str]) -> dict[str, float]:
    """Run a command in a process of its own; return its seconds, CPU seconds and peak GB (on Linux)."""
    with tempfile.TemporaryDirectory() as folder:
        peak = Path(folder) / "peak"
        begin = time.perf_counter()
        child = subprocess.Popen(
            [sys.executable, "-c", ALONE, str(peak), *arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        _, status, used = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - begin
        if code := os.waitstatus_to_exitcode(status):
            raise RuntimeError(f"heatbath {' '.join(arguments)} ended with {code}")
        memory = int(peak.read_text()) * 1024 / 1e9
    return {"seconds": seconds, "processors": used.ru_utime + used.ru_stime, "peak": memory}


def measure_large(name: str) -> dict[str, Any]:
    """Scores of all on the rows that `train` has set aside, and what ours has cost."""
    drawn = LARGE[name](np.random.default_rng(0))
    target, y = drawn.target, drawn.frame[drawn.target]
    with tempfile.TemporaryDirectory() as folder:
        file, run, out = (str(Path(folder) / part) for part in ("table.csv", "run", "said.csv"))
        drawn.frame.to_csv(file, index=False)
        costs = {"train": alone(["train", "--data", file, "--target", target, "--out", run])}
        costs["predict"] = alone(["predict", run, file, "--out", out])
        said = pd.read_csv(out, usecols=["prediction", "low", "high"])
        summary = json.loads((Path(run) / "summary.json").read_text())
        size = Path(file).stat().st_size / 1e9
    test, train = split(len(y), 0.2, 0)
    frames = [drawn.frame.iloc[rows].drop(columns=target) for rows in (train, test)]

    def score(said: np.ndarray) -> float:
        return float(np.sqrt(np.mean((said - y.iloc[test]) ** 2)))

    scores = {
        OURS: score(said["prediction"].iloc[test]),
        CONSTANT: score(np.full(len(test), y.iloc[train].mean())),
    }
    for peer, model in peers(frames[0], False, 0).items():
        a, b = usable(*frames, boosting=peer == "boosting")
        scores[peer] = score(model.fit(a, y.iloc[train]).predict(b))
    scores[LAW] = score(drawn.law[test])
    inside = (said["low"] <= y) & (y <= said["high"])
    found = {"rhat": summary.get("found", {}).get("rhat"), "coverage": float(inside.iloc[test].mean())}
    return {"file": size, "scores": scores, **costs, **found}


def large(results: Path) -> None:
    """Measure the sizes that are not in the file, and print what is."""
    known = json.loads(results.read_text()) if results.exists() else {}
    for name in LARGE:
        if name not in known:
            known[name] = measure_large(name)
            atomic_write.write(results, json.dumps(known, indent=1) + "\n")
        one = known[name]
        scores = ", ".join(f"{who} {value:.4g}" for who, value in one["scores"].items())
        train, said = one["train"], one["predict"]
        print(
            f"{name}: RMSE {scores}; intervals hold {100 * one['coverage']:.1f} %; train "
            f"{train['seconds']:.0f} s ({train['processors']:.0f} of processors), {train['peak']:.2f} GB, "
            f"predict {said['seconds']:.0f} s, {said['peak']:.2f} GB, of a file of {one['file']:.3f} GB",
            flush=True,
        )


def mean(values: list[float]) -> str:
    """Return the mean over splits ± its standard error."""
    if len(values) < 2:
        return f"{values[0]:.4g}"
    error = np.std(values, ddof=1) / math.sqrt(len(values))
    return f"{np.mean(values):.4g}" + (f" ± {error:.1g}" if error > 1e-9 else "")


def is_no_worse(rows: list[dict[str, dict[str, float]]], other: str) -> bool:
    """Whether ours is no worse than another, by one standard error of the difference."""
    differences = np.array([row[OURS]["score"] - row[other]["score"] for row in rows])
    error = differences.std(ddof=1) / math.sqrt(len(rows)) if len(rows) > 1 else 0.0
    return bool(differences.mean() <= error)


def page(results: dict[str, Any], splits: int) -> str:
    """Return the table as Markdown."""
    counts = dict.fromkeys(("boosting", "linear", CONSTANT), 0)
    body = []
    for name in results:
        rows = [results[name][str(i)] for i in range(splits) if str(i) in results[name]]
        cells = []
        for column in COLUMNS:
            if column not in rows[0]:
                cells.append("–")
                continue
            well = column in counts and is_no_worse(rows, column)
            if well:
                counts[column] += 1
            cells.append(mean([row[column]["score"] for row in rows]) + (" ✓" if well else ""))
        own = [row[OURS] for row in rows]
        intervals = ["–", "–"]
        if "coverage" in own[0]:
            covered = 100 * np.mean([row["coverage"] for row in own])
            intervals = [f"{covered:.1f} %", f"{np.mean([row['width'] for row in own]):.3g}"]
        seconds = [f"{np.median([row[who]['seconds'] for row in rows]):.1f}" for who in COLUMNS[:3]]
        body.append(f"| {name} | {' | '.join([*cells, *intervals, ', '.join(seconds)])} |")
    told = ", ".join(f"{name} on {count}" for name, count in counts.items())
    return "\n".join(
        [
            "# Raw tables", "",
            "`heatbath train --data FILE --target COLUMN --test-share 0 --seed SPLIT` (all rows of the file "
            "are for",
            f"training, as the test is another file; nothing else is chosen) on eight tables in {splits} "
            "splits",
            "(`benchmarks/tables.py`, which says what they are). Log loss of classes, RMSE of numbers, on "
            "the 30 %",
            "of rows that were not trained on; means ± standard errors. ✓: ours is no worse, by one "
            "standard error",
            f"of the difference: {told}.", "",
            f"| | {' | '.join(COLUMNS)} | 90 % intervals hold | their width "
            "| seconds: ours, boosting, linear |",
            "| --- |" + " --- |" * (len(COLUMNS) + 3),
            *body,
        ]
    ) + "\n"  # fmt: skip


def main() -> None:
    """Measure what is not in the file, and print the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--results", type=Path, default=RESULTS / "tables.json")
    parser.add_argument("--page", type=Path)
    parser.add_argument("--large", action="store_true")
    options = parser.parse_args()
    if options.large:
        large(RESULTS / "large.json")
        return
    results = json.loads(options.results.read_text()) if options.results.exists() else {}
    for number in range(options.splits):
        for name in options.sets.split(","):
            known = results.setdefault(name, {})
            if str(number) not in known:
                known[str(number)] = measure(name, number)
                atomic_write.write(options.results, json.dumps(results, indent=1) + "\n")
                said = ", ".join(f"{who} {v['score']:.4g}" for who, v in known[str(number)].items())
                print(f"{name}, split {number}: {said}", flush=True)
    text = page({name: results[name] for name in SETS if name in results}, options.splits)
    print(text)
    if options.page:
        atomic_write.write(options.page, text)


if __name__ == "__main__":
    main()
