"""Settings of the page, checked: what a link, a scene and the message `setup` are.

Everything from outside is checked here, and all that is wrong is said at once. `Settings.plain` is the same
with every default, as the page gets it back.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

from heatbath import datasets
from heatbath._internal.checks import FRICTION, POSITIVE, Interval, choice, real, whole
from heatbath.datasets import Problem
from heatbath.explorer import method_menu
from heatbath.methods import Method, choices
from heatbath.methods.partition import Partition
from heatbath.methods.presets import PRESETS
from heatbath.methods.schedules import Exponential, scaled
from heatbath.methods.splitting import NAMED, gradients
from heatbath.models.dense import ACTIVATIONS, MLP

LAYERS, WIDTH, PARAMETERS, MOST_CHAINS, MOST_POINTS, MOST_DRAWN = 3, 1000, 200_000, 16, 5000, 2000
LETTERS, CHANGES = 64, 2000  # of a word; of a run on the way
LARGEST = 300  # power of ten that a curve may come from
COLUMNS = 50  # of a table: of its thousands only two could be features, and to read them takes minutes
TEST = 1000  # test examples of a problem that is drawn at random
RUNS = ("A", "B")
BATCH, CHAINS, POINTS = 20, 4, 1000  # of the paper's spirals; as many chains as show a standard deviation
WHOLE = {"points": (4, MOST_POINTS + 1), "seed": (0, 2**32), "centres": (2, 33)}  # from, to below
NAMES: dict[str, str] = {"noise": "c", "points": "n_train"}  # what the page calls arguments of a problem


class Wrong(ValueError):
    """Settings that cannot be used: what is wrong, each with the field that it is about."""

    def __init__(self, problems: Sequence[tuple[str, str]]) -> None:
        super().__init__("\n".join(text for _, text in problems))
        self.problems = list(problems)

    @property
    def field(self) -> str:
        """The first field that is wrong."""
        return self.problems[0][0]


class Checks:
    """Collects what is wrong, so that it can be said at once."""

    def __init__(self) -> None:
        self.problems: list[tuple[str, str]] = []

    @contextmanager
    def of(self, field: str, label: str = "") -> Iterator[None]:
        """Within, an error is about a field, and is kept for `end`; what is nested in it is about its own."""
        try:
            yield
        except Wrong as wrong:
            self.problems += [(f"{field}.{inner}", label + text) for inner, text in wrong.problems]
        except (ValueError, TypeError, OverflowError) as error:
            self.problems.append((field, label + str(error)))

    def table(self, field: str, given: object, accepted: Sequence[str]) -> dict[str, Any]:
        """A JSON object with only keys that are accepted."""
        if not isinstance(given, Mapping):
            shown = repr(given)[:60]
            self.problems.append(
                (field, f"{field} must be an object with {', '.join(accepted)}, got {shown}")
            )
            return {}
        if unknown := [str(key)[:40] for key in given if key not in accepted]:
            text = f"{field} has no {', '.join(unknown[:5])}; accepted: {', '.join(accepted)}"
            self.problems.append((field, text))
        return {key: value for key, value in given.items() if key in accepted}

    def end(self) -> None:
        """Raise what is wrong, if anything is."""
        if self.problems:
            raise Wrong(self.problems)


@dataclass(frozen=True)
class Annealing:
    """Temperatures that fall exponentially to `factor` times what they are, in `steps` steps from `begin` on.

    Steps count from the start of the run, over all its phases.
    """

    factor: float
    steps: int
    begin: int = 0


@dataclass(frozen=True)
class RunSettings:
    """A run: what its method is called, its partition without annealing, and how it is annealed, if it is.

    `history` are changes on the way, by the step from which on they hold.
    """

    method: str
    base: Partition
    anneal: Annealing | None = None
    history: tuple[tuple[int, Mapping[str, Any]], ...] = ()

    def partition(self, offset: int = 0) -> Partition:
        """The partition as it is run by a phase that begins after `offset` steps."""
        return self.base if self.anneal is None else _annealed(self.base, self.anneal, offset)

    @property
    def plain(self) -> dict[str, Any]:
        """All but the history, with every default."""
        anneal = self.anneal
        return {
            "method": self.method,
            "h": self.base.h,
            "parts": {
                str(key): {f.name: _plain(getattr(method, f.name)) for f in fields(method)}
                for key, method in self.base.methods.items()
            },
            "anneal": None
            if anneal is None
            else {"factor": anneal.factor, "steps": anneal.steps, "from": anneal.begin},
        }

    def changed(self, change: object, step: int = 0) -> RunSettings:
        """With some of it changed: method, h, coefficients of parts, annealing (from `step` on)."""
        checks = Checks()
        given = checks.table("change", change, ("method", "h", "parts", "anneal"))
        name, base, anneal = self.method, self.base, self.anneal
        if "method" in given:
            with checks.of("method"):
                choice("method", given["method"], tuple(method_menu.names()))
                if given["method"] != name:
                    name = given["method"]
                    base = method_menu.default(name)
        h = base.h
        if "h" in given:
            with checks.of("h"):
                h = real("h", given["h"], POSITIVE)
        with checks.of("parts"):
            methods = _parts(checks, base.methods, given.get("parts", {}))
            if not checks.problems:
                base = Partition(methods, h)
        if "anneal" in given:
            with checks.of("anneal"):
                anneal = _checked_annealing(checks, given["anneal"], step)
        checks.end()
        made = replace(self, method=name, base=base, anneal=anneal)
        with checks.of("anneal"):
            made.partition()  # whose curve may come from a number that there is not
        checks.end()
        return made

    def heated(self, factor: float) -> RunSettings:
        """With every temperature times a factor."""
        methods = {key: _heated(method, factor) for key, method in self.base.methods.items()}
        if factor != 1 and methods == self.base.methods:
            raise ValueError(f"{self.method} has no temperature above 0 to heat: choose τ or σ > 0 first")
        return replace(self, base=Partition(methods, self.base.h))


def same_phase(one: Partition, two: Partition) -> bool:
    """Whether only coefficients differ, so that a run can go on; parts, methods, words, options do not."""
    if one.methods.keys() != two.methods.keys():
        return False
    pairs = [(method, two.methods[key]) for key, method in one.methods.items()]
    return all(
        type(a) is type(b) and all(getattr(a, name) == getattr(b, name) for name in choices(type(a)))
        for a, b in pairs
    )


@dataclass(frozen=True, eq=False)
class PageSettings:
    """All that decides what the page shows."""

    problem: Problem
    network: MLP
    batch: int
    chains: int
    seed: int
    runs: Mapping[str, RunSettings]
    of_problem: Mapping[str, Any]
    view: Mapping[str, Any]

    @property
    def plain(self) -> dict[str, Any]:
        """All of it with every default, as JSON."""
        runs = {
            name: run.plain | ({"history": [list(entry) for entry in run.history]} if run.history else {})
            for name, run in self.runs.items()
        }
        network = {f.name: getattr(self.network, f.name) for f in fields(self.network)}
        return {
            "problem": dict(self.of_problem),
            "network": network | {"hidden": list(self.network.hidden)},
            "batch": self.batch,
            "chains": self.chains,
            "seed": self.seed,
            "runs": runs,
            "view": dict(self.view),
        }


def read_settings(given: object) -> PageSettings:
    """Settings from outside, or `Wrong` with all that is wrong with them."""
    checks = Checks()
    accepted = ("problem", "network", "batch", "chains", "seed", "runs", "view")
    table = checks.table("settings", given, accepted)
    problem, of_problem = None, dict[str, Any]()
    with checks.of("problem"):
        problem, of_problem = _problem(table.get("problem", {}))
    network = MLP()
    with checks.of("network"):
        network = _network(table.get("network", {}))
    chains, seed, batch = CHAINS, 0, BATCH
    with checks.of("chains"):
        chains = whole("chains", table.get("chains", CHAINS), 1, MOST_CHAINS + 1)
    with checks.of("seed"):
        seed = whole("seed", table.get("seed", 0), 0, 2**32)
    if problem is not None:
        rows = problem.X_train.shape[1]
        with checks.of("batch"):
            label = f"batch (of {rows} training examples)"
            batch = whole(label, table.get("batch", min(BATCH, rows)), 1, rows + 1)
    runs = {}
    named = checks.table("runs", table.get("runs", {}), RUNS)
    for name in RUNS:
        with checks.of(f"runs.{name}", f"run {name}: "):
            runs[name] = _run(named.get(name, {"method": next(iter(PRESETS))}))
    view = table.get("view", {})
    with checks.of("view"):
        if not isinstance(view, Mapping) or len(str(view)) > 4000:
            raise ValueError("an object of at most 4000 characters is needed")
    checks.end()
    assert problem is not None
    return PageSettings(problem, network, batch, chains, seed, runs, of_problem, dict(view))


def restarted(settings: PageSettings, flights: Mapping[str, Any]) -> PageSettings:
    """The same from the start, with coefficients as they are now, and annealing from the start, too.

    The view is left to the page, which may have another by now.
    """
    runs = {}
    for name, flight in flights.items():
        anneal = flight.run.anneal and replace(flight.run.anneal, begin=0)
        runs[name] = replace(flight.run, anneal=anneal, history=())
    return replace(settings, runs=runs, view={})


# Problems


def _problem(given: object) -> tuple[Problem, dict[str, Any]]:
    checks = Checks()
    kind = given.get("kind", "spirals") if isinstance(given, Mapping) else None
    with checks.of("kind"):
        if not isinstance(kind, str) or kind not in PROBLEMS:
            raise ValueError(f"kind must be one of {', '.join(PROBLEMS)}, got {str(kind)[:40]!r}")
    checks.end()
    defaults, make = PROBLEMS[str(kind)]
    table = defaults | checks.table("problem", given, ("kind", *defaults))
    table.pop("kind", None)
    problem = make(checks, str(kind), table)
    checks.end()
    assert problem is not None
    return problem, {"kind": kind, **table}


def _drawn(checks: Checks, kind: str, table: dict[str, Any]) -> Problem | None:
    """One of the problems that are drawn at random."""
    for name, value in table.items():
        with checks.of(name):
            if name in WHOLE:
                table[name] = whole(name, value, *WHOLE[name])
            else:
                table[name] = real(name, value, Interval(low=0.0, high=100.0, open=name != "noise"))
    if checks.problems:
        return None
    arguments = {NAMES.get(name, name): value for name, value in table.items()}
    problem: Problem = getattr(datasets, kind)(**{**arguments, "n_test": TEST})
    return problem


def _points(checks: Checks, kind: str, table: dict[str, Any]) -> Problem | None:
    """Points that the user has drawn."""
    rows = table["points"]
    with checks.of("points"):
        if not isinstance(rows, list) or not 4 <= len(rows) <= MOST_DRAWN:
            raise ValueError(f"4 to {MOST_DRAWN} points [x, y, class] are needed, got {_counted(rows)}")
        X, y = [], []
        for place, row in enumerate(rows):
            if not isinstance(row, list) or len(row) != 3:
                raise ValueError(f"a point is [x, y, class], number {place} is {str(row)[:60]}")
            X.append([real(f"point {place}", value, Interval(-1e4, 1e4)) for value in row[:2]])
            y.append(whole(f"class of point {place}", row[2], 0, 2))
        if len(set(y)) < 2:
            raise ValueError("points of both classes are needed, 0 and 1: draw some of the other one")
        return datasets.from_arrays(X, y, task="binary")
    return None


def _csv(checks: Checks, kind: str, table: dict[str, Any]) -> Problem | None:
    """A table that the user has dropped onto the page."""
    text, target = table["text"], table["target"]
    with checks.of("target"):
        if not (target is None or isinstance(target, str)):
            raise TypeError(f"target must be the name of a column, or null, got {str(target)[:40]!r}")
    with checks.of("text"):
        if not isinstance(text, str) or not text.strip():
            raise ValueError("the text of a CSV file with a header is needed")
    if checks.problems:
        return None
    from heatbath.datasets.tables import read_table  # takes a second
    from heatbath.datasets.tables.sniff import NUMERAL, SEPARATORS

    with checks.of("text"):
        columns = 1 + max(line.count(mark) for line in text.splitlines() for mark in SEPARATORS)
        if columns > COLUMNS:
            raise ValueError(
                f"a table with two features and a class is needed, of at most {COLUMNS} columns; this one "
                f"has lines of {columns}"
            )
        opened = read_table(io.BytesIO(text.encode()))
        if not 1 <= len(opened.frame) <= MOST_POINTS:
            raise ValueError(
                f"a header and 1 to {MOST_POINTS} rows below it are needed, this has {len(opened.frame)} rows"
            )
        if target is None:
            target = table["target"] = opened.frame.columns[-1]
        features = [name for name in opened.frame.columns if name != target]
        if features and all(map(NUMERAL.fullmatch, features)):
            raise ValueError(
                f"the first line names the columns, and here they would be called {', '.join(features[:2])}: "
                "put a line such as x1,x2,class above the rows"
            )
        keep = features if len(features) == 2 else ()  # though one should count the rows
        problem = datasets.from_table(opened, target, keep=keep)
        assert problem.encoder is not None
        if problem.task != "binary" or problem.inputs != 2:
            raise ValueError(
                "a table with two features and a class of two values is needed; this one has "
                f"{problem.inputs} features ({'; '.join(problem.encoder.notes())[:200]}), and {target!r} is "
                f"{problem.task} with {len(problem.targets)} classes"
            )
        return problem
    return None


def _counted(rows: object) -> str:
    return f"{len(rows)}" if isinstance(rows, list) else repr(rows)[:60]


Make = Callable[[Checks, str, dict[str, Any]], Problem | None]
PROBLEMS: dict[str, tuple[dict[str, Any], Make]] = {
    "spirals": ({"turns": 4, "noise": 0.02, "p": 0.5, "points": POINTS, "seed": 0}, _drawn),
    "trigonometric": ({"a": 6, "b": 1, "noise": 0.02, "points": POINTS, "seed": 0}, _drawn),
    "rings": ({"noise": 0.02, "points": POINTS, "seed": 0}, _drawn),
    "blobs": ({"centres": 4, "noise": 0.3, "points": POINTS, "seed": 0}, _drawn),
    "points": ({"points": []}, _points),
    "csv": ({"text": "", "target": None}, _csv),
}


# Networks and runs


def _network(given: object) -> MLP:
    checks = Checks()
    table = checks.table("network", given, ("hidden", "activation", "init", "scale"))
    hidden = table.get("hidden", [100])
    with checks.of("hidden"):
        if not isinstance(hidden, list) or not 1 <= len(hidden) <= LAYERS:
            raise ValueError(
                f"hidden must be a list with the widths of 1 to {LAYERS} layers, got {str(hidden)[:60]}"
            )
        for width in hidden:
            whole("hidden: a width", width, 1, WIDTH + 1)
        if (count := MLP(tuple(hidden)).parameters(2, 1)) > PARAMETERS:
            raise ValueError(
                f"at most {PARAMETERS:,} parameters are accepted here, {hidden} has {count:,}: make layers "
                "narrower, or train it with hb.train"
            )
    with checks.of("activation"):
        choice("activation", table.get("activation", "relu"), tuple(ACTIVATIONS))
    with checks.of("init"):
        choice("init", table.get("init", "torch"), ("torch", "gaussian", "zeros"))
    with checks.of("scale"):
        real("scale", table.get("scale", 0.01), Interval(low=0.0, high=100.0))
    checks.end()
    return MLP(**{**table, "hidden": tuple(hidden)})


def _run(given: object) -> RunSettings:
    checks = Checks()
    table = checks.table("run", given, ("method", "h", "parts", "anneal", "history"))
    checks.end()
    name = table.get("method", "AdLaLa")
    with checks.of("method"):
        choice("method", name, tuple(method_menu.names()))
    checks.end()
    change = {key: table[key] for key in ("h", "parts", "anneal") if key in table}
    run = RunSettings(name, method_menu.default(name)).changed(change)
    with checks.of("history"):
        run = replace(run, history=_history(run, table.get("history") or []))
    checks.end()
    return run


def _history(run: RunSettings, given: object) -> tuple[tuple[int, Mapping[str, Any]], ...]:
    """Changes on the way, each tried out on what there is by then."""
    if not isinstance(given, list) or len(given) > CHANGES:
        raise ValueError(f"history must be a list of at most {CHANGES} changes [step, change]")
    entries, before = [], 0
    for entry in given:
        if not isinstance(entry, list) or len(entry) != 2:
            raise ValueError(f"history: a change is [step, change], got {str(entry)[:60]}")
        step = whole("history: a step", entry[0], before, 2**53)
        run, before = run.changed(entry[1], step), step
        entries.append((step, entry[1]))
    return tuple(entries)


def _parts(checks: Checks, methods: Mapping[Any, Method], given: object) -> dict[Any, Method]:
    """The methods of parts with what is given in place of what they have."""
    table = checks.table("parts", given, [str(key) for key in methods])
    made = dict(methods)
    for key, method in methods.items():
        if str(key) not in table:
            continue
        names = {f.name: f for f in fields(method)}
        values = checks.table(f"parts.{key}", table[str(key)], list(names))
        for name, value in values.items():
            with checks.of(f"parts.{key}.{name}"):
                values[name] = _checked(name, value, names[name].metadata)
        if not checks.problems:
            with checks.of(f"parts.{key}.word" if "word" in values else f"parts.{key}"):
                made[key] = replace(method, **values)
    return made


def _checked(name: str, value: object, metadata: Mapping[str, Any]) -> Any:
    """A coefficient, a choice or a word."""
    if "accepted" in metadata:
        return real(name, math.inf if value == "inf" else value, metadata["accepted"])
    if "choices" in metadata:
        choice(name, value, metadata["choices"])
    elif not isinstance(value, str) or not 0 < len(value) <= LETTERS:
        raise ValueError(f"a word of 1 to {LETTERS} letters is needed, got {str(value)[:80]!r}")
    return value


def _checked_annealing(checks: Checks, given: object, step: int) -> Annealing | None:
    if given is None:
        return None
    table = checks.table("anneal", given, ("factor", "steps", "from"))
    return Annealing(
        real("factor", table.get("factor", 0.01), Interval(low=0.0, high=1.0, open=True)),
        whole("steps", table.get("steps", 20_000), 1, 10**9),
        whole("from", table.get("from", step), 0, 2**53),
    )


def _annealed(partition: Partition, anneal: Annealing, offset: int) -> Partition:
    """Temperatures that fall, on a curve that is as far as it would be `offset` steps before."""
    begin, methods = anneal.begin - offset, {}
    for key, method in partition.methods.items():
        value = getattr(method, method.thermal, None)
        if isinstance(value, float) and value > 0:
            factor = anneal.factor if method.thermal == "tau" else math.sqrt(anneal.factor)
            decades, most = -begin / anneal.steps * math.log10(factor), LARGEST - math.log10(value)
            if decades > most:
                least = math.ceil(-begin * math.log10(factor) / most)
                raise ValueError(
                    f"from step {begin:,} on, temperatures can fall so far within {least:,} steps or more, "
                    f"got {anneal.steps:,}: give them more steps, or reset"
                )
            start, end = value * factor ** (-begin / anneal.steps), begin + anneal.steps
            curve = Exponential(start, value * factor, end) if end > 0 else value * factor
            method = replace(method, **{method.thermal: curve})
        methods[key] = method
    return Partition(methods, partition.h)


def _heated(method: Method, factor: float) -> Method:
    value = getattr(method, method.thermal, None)
    if value is None or value == 0:
        return method
    by = factor if method.thermal == "tau" else math.sqrt(factor)  # of noise, whose square is a temperature
    return replace(method, **{method.thermal: scaled(value, by)})


def _plain(value: Any) -> Any:
    return "inf" if isinstance(value, float) and math.isinf(value) else value


def checked_word(run: RunSettings, part: str, word: str, gamma: Any = None) -> dict[str, Any]:
    """Whether a part of a run may have this word, and what its letters are; nothing is changed."""
    methods = {str(key): method for key, method in run.base.methods.items()}
    try:
        if part not in methods:
            raise ValueError(f"there is no part {part[:40]!r}: accepted are {', '.join(methods)}")
        method = methods[part]
        if not method.spelled:
            raise ValueError(f"{type(method).__name__} has no word that can be chosen")
        if not 0 < len(word) <= LETTERS:
            raise ValueError(f"a word of 1 to {LETTERS} letters is needed, got {len(word)}")
        values: dict[str, Any] = {"word": word}
        if gamma is not None and hasattr(method, "gamma"):
            values["gamma"] = real("gamma", math.inf if gamma == "inf" else gamma, FRICTION)
        spelled = replace(method, **values)
        Partition(
            {**run.base.methods, **{key: spelled for key in run.base.methods if str(key) == part}}, run.base.h
        )
    except (ValueError, TypeError) as error:
        return {"ok": False, "letters": [], "gradients": None, "order": None, "text": str(error)}
    order = NAMED.get(word)
    return {
        "ok": True,
        "letters": [{"letter": s.letter, "share": float(s.fraction)} for s in spelled.substeps],
        "gradients": gradients(spelled.substeps),
        "order": None if order is None else {"position": order.position, "joint": order.joint},
        "text": "",
    }
