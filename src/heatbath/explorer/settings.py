"""Check the settings of the page: what a link, a scene and the message `setup` contain.

Everything from outside is checked here, and all errors are reported at once. `PageSettings.as_json` returns
the same settings with every default filled in, as the page receives them.

Letters: h is the stepsize, τ a temperature, σ the strength of driving noise (whose square is a temperature),
γ a friction.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from heatbath import datasets
from heatbath._internal.checks import FRICTION, POSITIVE, Interval, choice, real, whole
from heatbath.datasets import Problem
from heatbath.explorer import method_menu
from heatbath.methods import Method, choices
from heatbath.methods.partition import Key, Partition
from heatbath.methods.presets import PRESETS
from heatbath.methods.schedules import Exponential, scaled
from heatbath.methods.splitting import NAMED, gradients
from heatbath.models.dense import ACTIVATIONS, MLP

if TYPE_CHECKING:
    from heatbath.explorer.run_stream import RunStream

T = TypeVar("T")

# Limits that keep a page responsive
MAX_LAYERS = 3  # hidden layers
MAX_WIDTH = 1000  # units of a layer
MAX_PARAMETERS = 200_000  # of the network
MAX_CHAINS = 16
MAX_EXAMPLES = 5000  # training examples of a problem drawn at random, or rows of a table
MAX_DRAWN_POINTS = 2000  # points that the user draws by hand
MAX_WORD_LENGTH = 64  # letters of a splitting word
MAX_CHANGES = 2000  # changes of a run while it runs
MAX_COLUMNS = 50  # of a table: only two can be features, and reading thousands of columns takes minutes
MAX_CURVE_DECADES = 300  # powers of ten that an annealing curve may start at: float64 holds 308
MAX_VIEW_LENGTH = 4000  # characters of the page's own settings, which are only stored
MIN_POINTS = 4  # of a problem
MAX_STEP = 2**53  # of a change: up to here, numbers of JavaScript are whole
QUOTED_LENGTH = 60  # characters of a wrong value in an error

TEST_EXAMPLES = 1000  # of a problem drawn at random
RUN_NAMES = ("A", "B")
DEFAULT_BATCH = 20  # of the paper's spirals
DEFAULT_CHAINS = 4  # enough to show a standard deviation
DEFAULT_EXAMPLES = 1000  # of the paper's spirals
# Arguments of problems that are whole numbers: the smallest accepted value and the first that is too large
INTEGER_ARGUMENTS = {"points": (MIN_POINTS, MAX_EXAMPLES + 1), "seed": (0, 2**32), "centres": (2, 33)}
STARTS = ("torch", "gaussian", "zeros")  # distributions of initial weights
DRAWING_AREA = Interval(-1e4, 1e4)  # coordinates that a point may have
# Argument names in `heatbath.datasets` that differ from the page's
DATASET_ARGUMENTS = {"noise": "c", "points": "n_train"}


class FieldError(NamedTuple):
    """An error in the settings: the path of the field, such as "runs.A.h", and a sentence for the user."""

    field: str
    text: str


class SettingsError(ValueError):
    """Settings that cannot be used, with every error found in them."""

    def __init__(self, errors: Sequence[FieldError]) -> None:
        super().__init__("\n".join(error.text for error in errors))
        self.errors = list(errors)

    @property
    def field(self) -> str:
        """Path of the first field with an error."""
        return self.errors[0].field


class ErrorCollector:
    """Collects the errors of all fields, so that they can be reported together."""

    def __init__(self) -> None:
        self.errors: list[FieldError] = []

    @contextmanager
    def field(self, name: str, prefix: str = "") -> Iterator[None]:
        """Collect an error raised within the `with` block as an error of this field.

        A nested `SettingsError` keeps its own fields, as paths below this one.

        Parameters
        ----------
        name : str
            Path of the field.
        prefix : str
            Text put in front of each error message.
        """
        try:
            yield
        except SettingsError as nested:
            self.errors += [
                FieldError(f"{name}.{error.field}", prefix + error.text) for error in nested.errors
            ]
        except (ValueError, TypeError, OverflowError) as error:
            self.errors.append(FieldError(name, prefix + str(error)))

    def read(self, name: str, default: T, read_value: Callable[..., T], *arguments: Any) -> T:
        """Return what a function returns for a field, or a default after collecting its error."""
        with self.field(name):
            return read_value(*arguments)
        return default

    def read_object(self, field: str, value: object, accepted: Sequence[str]) -> dict[str, Any]:
        """Return the accepted entries of a JSON object; collect an error for everything else."""
        if not isinstance(value, Mapping):
            text = f"{field} must be an object with {', '.join(accepted)}, got {repr(value)[:QUOTED_LENGTH]}"
            self.errors.append(FieldError(field, text))
            return {}
        unknown = [str(key)[:40] for key in value if key not in accepted]
        if unknown:
            text = f"{field} has no {', '.join(unknown[:5])}; accepted: {', '.join(accepted)}"
            self.errors.append(FieldError(field, text))
        return {key: entry for key, entry in value.items() if key in accepted}

    def raise_errors(self) -> None:
        """Raise `SettingsError` if any error was collected."""
        if self.errors:
            raise SettingsError(self.errors)


@dataclass(frozen=True)
class Annealing:
    """Exponential decay of all temperatures to `factor` times their value in `steps` steps.

    It begins at step `begin`, counted from the start of the run over all its phases.
    """

    factor: float
    steps: int
    begin: int = 0


Change = Mapping[str, Any]  # of method, h, parts or anneal, in the page's form
HistoryEntry = tuple[int, Change]  # a change and the step from which it holds


@dataclass(frozen=True)
class PageRunSettings:
    """Settings of one of the two runs.

    Attributes
    ----------
    method : str
        Name of the preset or method.
    base_partition : Partition
        Methods of the parts, without annealing.
    anneal : Annealing or None
        How temperatures fall, if they do.
    history : tuple of HistoryEntry
        Changes to make while it runs, in the order of their steps.
    """

    method: str
    base_partition: Partition
    anneal: Annealing | None = None
    history: tuple[HistoryEntry, ...] = ()

    def partition(self, phase_start: int = 0) -> Partition:
        """Return the partition, with annealing, of a phase that begins at step `phase_start` of the run."""
        if self.anneal is None:
            return self.base_partition
        return _annealed_partition(self.base_partition, self.anneal, phase_start)

    @property
    def as_json(self) -> dict[str, Any]:
        """Everything but the history, with every default, in the page's form."""
        parts = {str(key): _method_json(method) for key, method in self.base_partition.methods.items()}
        anneal: dict[str, float] | None = None
        if self.anneal is not None:
            anneal = {"factor": self.anneal.factor, "steps": self.anneal.steps, "from": self.anneal.begin}
        return {"method": self.method, "h": self.base_partition.h, "parts": parts, "anneal": anneal}

    def with_change(self, change: object, step: int = 0) -> PageRunSettings:
        """Return these settings with a change of the page applied.

        Parameters
        ----------
        change : object
            JSON object with any of method, h, parts (coefficients by part) and anneal.
        step : int
            Where annealing begins unless the change says otherwise.

        Raises
        ------
        SettingsError
            With every error in the change.
        """
        errors = ErrorCollector()
        entries = errors.read_object("change", change, ("method", "h", "parts", "anneal"))
        settings = self
        if "method" in entries:
            with errors.field("method"):
                settings = settings._with_method(entries["method"])
        h = settings.base_partition.h
        if "h" in entries:
            with errors.field("h"):
                h = real("h", entries["h"], POSITIVE)
        with errors.field("parts"):
            methods = _changed_methods(errors, settings.base_partition.methods, entries.get("parts", {}))
            if not errors.errors:
                settings = replace(settings, base_partition=Partition(methods, h))
        if "anneal" in entries:
            with errors.field("anneal"):
                settings = replace(settings, anneal=_read_annealing(errors, entries["anneal"], step))
        errors.raise_errors()

        with errors.field("anneal"):
            settings.partition()  # raises if the annealing curve would start at too large a number
        errors.raise_errors()
        return settings

    def _with_method(self, name: str) -> PageRunSettings:
        """Return these settings with another preset or method and its default coefficients."""
        choice("method", name, tuple(method_menu.method_names()))
        if name == self.method:
            return self
        return replace(self, method=name, base_partition=method_menu.default_partition(name))

    def with_temperatures_times(self, factor: float) -> PageRunSettings:
        """Return these settings with every temperature multiplied by a factor."""
        methods = {key: _heated_method(method, factor) for key, method in self.base_partition.methods.items()}
        if factor != 1 and methods == self.base_partition.methods:
            raise ValueError(f"{self.method} has no temperature above 0 to heat: choose τ or σ > 0 first")
        return replace(self, base_partition=Partition(methods, self.base_partition.h))


def is_same_phase(first: Partition, second: Partition) -> bool:
    """Return True if a run can continue with the second partition: only coefficients differ.

    Other parts, methods, words or options begin a new phase.
    """
    if first.methods.keys() != second.methods.keys():
        return False
    return all(_is_same_kind(method, second.methods[key]) for key, method in first.methods.items())


def _is_same_kind(first: Method, second: Method) -> bool:
    """Return True if two methods differ in nothing but coefficients: not in their type, word or options."""
    if type(first) is not type(second):
        return False
    return all(getattr(first, name) == getattr(second, name) for name in choices(type(first)))


@dataclass(frozen=True, eq=False)
class PageSettings:
    """Everything that decides what the page shows.

    `problem_json` is the problem in the page's form; `view` belongs to the page and is only stored.
    """

    problem: Problem
    network: MLP
    batch: int
    chains: int
    seed: int
    runs: Mapping[str, PageRunSettings]
    problem_json: Mapping[str, Any]
    view: Mapping[str, Any]

    @property
    def as_json(self) -> dict[str, Any]:
        """Settings with every default, in the page's form."""
        runs = {}
        for name, run in self.runs.items():
            runs[name] = run.as_json
            if run.history:
                runs[name]["history"] = [list(entry) for entry in run.history]
        network = {field.name: getattr(self.network, field.name) for field in fields(self.network)}
        network["hidden"] = list(self.network.hidden)
        return {
            "problem": dict(self.problem_json),
            "network": network,
            "batch": self.batch,
            "chains": self.chains,
            "seed": self.seed,
            "runs": runs,
            "view": dict(self.view),
        }


def read_settings(value: object) -> PageSettings:
    """Check settings from outside and return them with every default.

    Parameters
    ----------
    value : object
        JSON object with any of problem, network, batch, chains, seed, runs and view.

    Raises
    ------
    SettingsError
        With every error in the settings, so that the page can show all of them at once.
    """
    errors = ErrorCollector()
    accepted = ("problem", "network", "batch", "chains", "seed", "runs", "view")
    entries = errors.read_object("settings", value, accepted)

    problem: Problem | None = None
    problem_json: dict[str, Any] = {}
    with errors.field("problem"):
        problem, problem_json = _read_problem(entries.get("problem", {}))
    network = errors.read("network", MLP(), _read_network, entries.get("network", {}))
    given_chains = entries.get("chains", DEFAULT_CHAINS)
    chains = errors.read("chains", DEFAULT_CHAINS, whole, "chains", given_chains, 1, MAX_CHAINS + 1)
    seed = errors.read("seed", 0, whole, "seed", entries.get("seed", 0), 0, 2**32)
    batch = DEFAULT_BATCH
    if problem is not None:
        batch = errors.read("batch", DEFAULT_BATCH, _read_batch, entries, problem)

    runs = {}
    run_entries = errors.read_object("runs", entries.get("runs", {}), RUN_NAMES)
    default_run = {"method": next(iter(PRESETS))}
    for name in RUN_NAMES:
        with errors.field(f"runs.{name}", f"run {name}: "):
            runs[name] = _read_run(run_entries.get(name, default_run))

    view = entries.get("view", {})
    with errors.field("view"):
        if not isinstance(view, Mapping) or len(str(view)) > MAX_VIEW_LENGTH:
            raise ValueError(f"view must be an object of at most {MAX_VIEW_LENGTH} characters")
    errors.raise_errors()
    assert problem is not None
    return PageSettings(problem, network, batch, chains, seed, runs, problem_json, dict(view))


def _read_batch(entries: Mapping[str, Any], problem: Problem) -> int:
    """Return the number of examples in a batch; by default DEFAULT_BATCH, or all of a smaller problem."""
    examples = problem.X_train.shape[1]
    batch = entries.get("batch", min(DEFAULT_BATCH, examples))
    return whole(f"batch (of {examples} training examples)", batch, 1, examples + 1)


def settings_after_reset(settings: PageSettings, streams: Mapping[str, RunStream]) -> PageSettings:
    """Return settings that start again at step 0 with the present coefficients; annealing starts again, too.

    The view is empty, because the page may have another one by now.
    """
    runs = {}
    for name, stream in streams.items():
        run = replace(stream.run, history=())
        if run.anneal is not None:
            run = replace(run, anneal=replace(run.anneal, begin=0))
        runs[name] = run
    return replace(settings, runs=runs, view={})


# Problems


def _read_problem(value: object) -> tuple[Problem, dict[str, Any]]:
    """Return the problem that JSON from outside describes, and the same JSON with every default.

    `value` should be an object with the `kind` of the problem and its arguments. `SettingsError` is raised
    with every error in it.
    """
    errors = ErrorCollector()
    kind = value.get("kind", "spirals") if isinstance(value, Mapping) else None
    with errors.field("kind"):
        if not isinstance(kind, str) or kind not in PROBLEM_KINDS:
            raise ValueError(f"kind must be one of {', '.join(PROBLEM_KINDS)}, got {str(kind)[:40]!r}")
    errors.raise_errors()

    defaults, make_problem = PROBLEM_KINDS[str(kind)]
    arguments = defaults | errors.read_object("problem", value, ("kind", *defaults))
    arguments.pop("kind", None)
    problem = make_problem(errors, arguments)
    errors.raise_errors()
    assert problem is not None
    return problem, {"kind": kind, **arguments}


def _draw_problem(kind: str, errors: ErrorCollector, arguments: dict[str, Any]) -> Problem | None:
    """Draw a problem at random; return None after collecting errors.

    Parameters
    ----------
    kind : str
        Name of the function in `heatbath.datasets`.
    errors : ErrorCollector
        Collects errors in the arguments.
    arguments : dict
        Arguments of the page; replaced in place by their checked values.
    """
    for name, value in arguments.items():
        with errors.field(name):
            if name in INTEGER_ARGUMENTS:
                arguments[name] = whole(name, value, *INTEGER_ARGUMENTS[name])
            else:
                can_be_zero = name == "noise"
                arguments[name] = real(name, value, Interval(low=0.0, high=100.0, open=not can_be_zero))
    if errors.errors:
        return None

    dataset_arguments = {DATASET_ARGUMENTS.get(name, name): value for name, value in arguments.items()}
    dataset_arguments["n_test"] = TEST_EXAMPLES
    draw_dataset = getattr(datasets, kind)
    problem: Problem = draw_dataset(**dataset_arguments)
    return problem


def _problem_from_points(errors: ErrorCollector, arguments: dict[str, Any]) -> Problem | None:
    """Return the problem of the points drawn by the user, or None after collecting an error.

    `arguments` has them as `points`, a list of [x, y, class] with classes 0 and 1.
    """
    points = arguments["points"]
    with errors.field("points"):
        is_list = isinstance(points, list)
        if not is_list or not MIN_POINTS <= len(points) <= MAX_DRAWN_POINTS:
            got = len(points) if is_list else repr(points)[:QUOTED_LENGTH]
            raise ValueError(f"{MIN_POINTS} to {MAX_DRAWN_POINTS} points [x, y, class] are needed, got {got}")
        positions = []
        classes = []
        for index, point in enumerate(points):
            if not isinstance(point, list) or len(point) != 3:
                shown_point = str(point)[:QUOTED_LENGTH]
                raise ValueError(f"a point must be [x, y, class], but point {index} is {shown_point}")
            x, y, label = point
            positions.append([real(f"point {index}", coordinate, DRAWING_AREA) for coordinate in (x, y)])
            classes.append(whole(f"class of point {index}", label, 0, 2))
        if len(set(classes)) < 2:
            raise ValueError("points of both classes are needed, 0 and 1: draw some of the other class")
        return datasets.from_arrays(positions, classes, task="binary")
    return None


def _problem_from_csv(errors: ErrorCollector, arguments: dict[str, Any]) -> Problem | None:
    """Return the problem of a CSV table dropped onto the page, or None after collecting errors.

    A missing target in `arguments` is replaced in place by the name of the last column.
    """
    text = arguments["text"]
    target = arguments["target"]
    with errors.field("target"):
        if target is not None and not isinstance(target, str):
            raise TypeError(f"target must be the name of a column, or null, got {str(target)[:40]!r}")
    with errors.field("text"):
        if not isinstance(text, str) or not text.strip():
            raise ValueError("the text of a CSV file with a header is needed")
    if errors.errors:
        return None
    with errors.field("text"):
        problem, arguments["target"] = _read_csv(text, target)
        return problem
    return None


def _read_csv(text: str, target: str | None) -> tuple[Problem, str]:
    """Return the problem of a table with two features and a class of two values, and the target's name.

    Parameters
    ----------
    text : str
        Content of a CSV file with a header.
    target : str or None
        Name of the column with the class; None takes the last column.

    Raises
    ------
    ValueError
        If the table is too large, has no header or isn't such a problem.
    """
    from heatbath.datasets.tables import read_table  # its import takes a second

    _check_column_count(text)
    table = read_table(io.BytesIO(text.encode()))
    row_count = len(table.frame)
    if not 1 <= row_count <= MAX_EXAMPLES:
        raise ValueError(
            f"a header and 1 to {MAX_EXAMPLES} rows below it are needed, this has {row_count} rows"
        )
    if target is None:
        target = table.frame.columns[-1]
    features = [name for name in table.frame.columns if name != target]
    _check_header(features)

    keep = features if len(features) == 2 else ()  # even if one of them looks like row numbers
    problem = datasets.from_table(table, target, keep=keep)
    assert problem.encoder is not None
    if problem.task != "binary" or problem.inputs != 2:
        notes = "; ".join(problem.encoder.notes())[:200]
        raise ValueError(
            "a table with two features and a class of two values is needed; this one has "
            f"{problem.inputs} features ({notes}), and {target!r} is {problem.task} with "
            f"{len(problem.targets)} classes"
        )
    return problem, target


def _check_column_count(text: str) -> None:
    """Raise ValueError if a CSV file may have so many columns that reading it would take minutes."""
    from heatbath.datasets.tables.sniff import SEPARATORS

    # An upper bound, because separators may be in quotes
    columns = 1 + max(line.count(separator) for line in text.splitlines() for separator in SEPARATORS)
    if columns > MAX_COLUMNS:
        raise ValueError(
            f"a table with two features and a class is needed, of at most {MAX_COLUMNS} columns; this one "
            f"has lines of {columns}"
        )


def _check_header(features: list[str]) -> None:
    """Raise ValueError if all names of features are numbers, because the first row was taken as header."""
    from heatbath.datasets.tables.sniff import NUMERAL

    if features and all(map(NUMERAL.fullmatch, features)):
        raise ValueError(
            f"the first line names the columns, and here they would be called {', '.join(features[:2])}: "
            "put a line such as x1,x2,class above the rows"
        )


class ProblemKind(NamedTuple):
    """A kind of problem that the page offers: its arguments with their defaults, and what makes it."""

    defaults: dict[str, Any]
    make_problem: Callable[[ErrorCollector, dict[str, Any]], Problem | None]


PROBLEM_KINDS = {
    "spirals": ProblemKind(
        {"turns": 4, "noise": 0.02, "p": 0.5, "points": DEFAULT_EXAMPLES, "seed": 0},
        partial(_draw_problem, "spirals"),
    ),
    "trigonometric": ProblemKind(
        {"a": 6, "b": 1, "noise": 0.02, "points": DEFAULT_EXAMPLES, "seed": 0},
        partial(_draw_problem, "trigonometric"),
    ),
    "rings": ProblemKind(
        {"noise": 0.02, "points": DEFAULT_EXAMPLES, "seed": 0}, partial(_draw_problem, "rings")
    ),
    "blobs": ProblemKind(
        {"centres": 4, "noise": 0.3, "points": DEFAULT_EXAMPLES, "seed": 0}, partial(_draw_problem, "blobs")
    ),
    "points": ProblemKind({"points": []}, _problem_from_points),
    "csv": ProblemKind({"text": "", "target": None}, _problem_from_csv),
}


# Networks and runs


def _read_network(value: object) -> MLP:
    """Return the network that JSON from outside describes.

    Parameters
    ----------
    value : object
        JSON object with any of hidden (widths of the hidden layers), activation, init and scale.

    Raises
    ------
    SettingsError
        With every error in the object.
    """
    errors = ErrorCollector()
    entries = errors.read_object("network", value, ("hidden", "activation", "init", "scale"))
    hidden = entries.get("hidden", [100])
    errors.read("hidden", None, _check_hidden_layers, hidden)
    for name, default, accepted in (("activation", "relu", tuple(ACTIVATIONS)), ("init", "torch", STARTS)):
        errors.read(name, None, choice, name, entries.get(name, default), accepted)
    scale = entries.get("scale", 0.01)
    errors.read("scale", 0.0, real, "scale", scale, Interval(low=0.0, high=100.0))
    errors.raise_errors()
    return MLP(**{**entries, "hidden": tuple(hidden)})


def _check_hidden_layers(widths: object) -> None:
    """Raise TypeError or ValueError unless `widths` are those of hidden layers that the page can train."""
    if not isinstance(widths, list) or not 1 <= len(widths) <= MAX_LAYERS:
        shown_widths = str(widths)[:QUOTED_LENGTH]
        raise ValueError(
            f"hidden must be a list with the widths of 1 to {MAX_LAYERS} layers, got {shown_widths}"
        )
    for width in widths:
        whole("hidden: a width", width, 1, MAX_WIDTH + 1)
    parameter_count = MLP(tuple(widths)).parameters(2, 1)
    if parameter_count > MAX_PARAMETERS:
        raise ValueError(
            f"at most {MAX_PARAMETERS:,} parameters are accepted here, {widths} has {parameter_count:,}: "
            "make layers narrower, or train it with hb.train"
        )


def _read_run(value: object) -> PageRunSettings:
    """Return the settings of a run that JSON from outside describes.

    Parameters
    ----------
    value : object
        JSON object with any of method, h, parts (coefficients by part), anneal and history.

    Raises
    ------
    SettingsError
        With every error in the object; an unknown field or method is reported alone.
    """
    errors = ErrorCollector()
    entries = errors.read_object("run", value, ("method", "h", "parts", "anneal", "history"))
    errors.raise_errors()
    name = entries.get("method", "AdLaLa")
    with errors.field("method"):
        choice("method", name, tuple(method_menu.method_names()))
    errors.raise_errors()

    change = {key: entries[key] for key in ("h", "parts", "anneal") if key in entries}
    run = PageRunSettings(name, method_menu.default_partition(name)).with_change(change)
    with errors.field("history"):
        run = replace(run, history=_read_history(run, entries.get("history") or []))
    errors.raise_errors()
    return run


def _read_history(run: PageRunSettings, value: object) -> tuple[HistoryEntry, ...]:
    """Return the changes [step, change] of a run; apply them in turn to check each of them."""
    if not isinstance(value, list) or len(value) > MAX_CHANGES:
        raise ValueError(f"history must be a list of at most {MAX_CHANGES} changes [step, change]")
    history: list[HistoryEntry] = []
    earliest_step = 0  # of the next change
    for entry in value:
        if not isinstance(entry, list) or len(entry) != 2:
            raise ValueError(f"history: a change is [step, change], got {str(entry)[:QUOTED_LENGTH]}")
        step = whole("history: a step", entry[0], earliest_step, MAX_STEP)
        change = entry[1]
        run = run.with_change(change, step)
        history.append((step, change))
        earliest_step = step
    return tuple(history)


def _changed_methods(
    errors: ErrorCollector, methods: Mapping[Key, Method], value: object
) -> dict[Key, Method]:
    """Return the methods of all parts with some fields replaced.

    Parameters
    ----------
    errors : ErrorCollector
        Collects the errors in `value`; a part with errors keeps its method.
    methods : mapping from part to Method
        The methods to change, which stay as they are.
    value : object
        JSON object from outside: the new fields by part.
    """
    entries = errors.read_object("parts", value, [str(key) for key in methods])
    changed = dict(methods)
    for key, method in methods.items():
        if str(key) in entries:
            changed[key] = _changed_method(errors, method, f"parts.{key}", entries[str(key)])
    return changed


def _changed_method(errors: ErrorCollector, method: Method, path: str, value: object) -> Method:
    """Return a method with some fields replaced, or the same method if there are errors.

    Parameters
    ----------
    errors : ErrorCollector
        Collects the errors in `value`; may have some of other parts already.
    method : Method
        The method to change.
    path : str
        Path of the part in the settings.
    value : object
        JSON object from outside: the new fields.
    """
    metadata = {field.name: field.metadata for field in fields(method)}
    new_fields = errors.read_object(path, value, list(metadata))
    for name, field_value in new_fields.items():
        with errors.field(f"{path}.{name}"):
            new_fields[name] = _checked_field(name, field_value, metadata[name])
    if errors.errors:
        return method
    with errors.field(f"{path}.word" if "word" in new_fields else path):
        return replace(method, **new_fields)
    return method


def _checked_field(name: str, value: object, metadata: Mapping[str, Any]) -> Any:
    """Return the checked value of a method's field: a coefficient, one of several choices, or a word."""
    if "accepted" in metadata:
        return real(name, _float_from_json(value), metadata["accepted"])
    if "choices" in metadata:
        choice(name, value, metadata["choices"])
    elif not isinstance(value, str) or not 0 < len(value) <= MAX_WORD_LENGTH:
        raise ValueError(f"a word of 1 to {MAX_WORD_LENGTH} letters is needed, got {str(value)[:80]!r}")
    return value


def _read_annealing(errors: ErrorCollector, value: object, step: int) -> Annealing | None:
    """Return the annealing that JSON from outside describes; by default it begins at `step`."""
    if value is None:
        return None
    entries = errors.read_object("anneal", value, ("factor", "steps", "from"))
    factor = real("factor", entries.get("factor", 0.01), Interval(low=0.0, high=1.0, open=True))
    steps = whole("steps", entries.get("steps", 20_000), 1, 10**9)
    begin = whole("from", entries.get("from", step), 0, MAX_STEP)
    return Annealing(factor, steps, begin)


def _annealed_partition(partition: Partition, anneal: Annealing, phase_start: int) -> Partition:
    """Return a partition whose temperatures fall exponentially, for a phase of a run.

    Parameters
    ----------
    partition : Partition
        The methods with constant temperatures; temperatures of 0 and schedules stay as they are.
    anneal : Annealing
        By which factor temperatures fall, from which step of the run on, and in how many steps.
    phase_start : int
        Step of the run at which the phase begins. A schedule counts the phase's own steps.
    """
    phase_begin = anneal.begin - phase_start
    methods = dict(partition.methods)
    for key, method in methods.items():
        coefficient = getattr(method, method.thermal, None)
        if isinstance(coefficient, float) and coefficient > 0:
            factor = _coefficient_factor(method, anneal.factor)
            curve = _annealing_curve(coefficient, factor, phase_begin, anneal.steps)
            methods[key] = replace(method, **{method.thermal: curve})
    return Partition(methods, partition.h)


def _annealing_curve(value: float, factor: float, begin: int, steps: int) -> Exponential | float:
    """Return the schedule of a coefficient that falls from `value` at step `begin` to `factor` times that.

    It takes `steps` steps, and the coefficient is constant afterwards. Steps are those of a phase, so `begin`
    is negative if annealing began in an earlier phase. An exponential schedule begins at step 0, so it starts
    where the curve lies there: below `value` for a negative `begin`, else above it, at steps that are past.
    """
    decades = -begin / steps * math.log10(factor)  # from `value` to the start at step 0
    max_decades = MAX_CURVE_DECADES - math.log10(value)
    if decades > max_decades:
        least_steps = math.ceil(-begin * math.log10(factor) / max_decades)
        raise ValueError(
            f"from step {begin:,} on, temperatures can fall by this factor within {least_steps:,} steps or "
            f"more, got {steps:,}: give them more steps, or reset"
        )
    final_value = value * factor
    end = begin + steps
    if end <= 0:
        return final_value
    return Exponential(value * factor ** (-begin / steps), final_value, end)


def _coefficient_factor(method: Method, factor: float) -> float:
    """Return by what to multiply a method's coefficient, τ or σ, to multiply its temperature by a factor."""
    if method.thermal == "tau":
        return factor
    return math.sqrt(factor)  # σ² is a temperature


def _heated_method(method: Method, factor: float) -> Method:
    """Return a method with its temperature multiplied by a factor; unchanged if it has none."""
    coefficient = getattr(method, method.thermal, None)
    if coefficient is None or coefficient == 0:
        return method
    heated = scaled(coefficient, _coefficient_factor(method, factor))
    return replace(method, **{method.thermal: heated})


def _method_json(method: Method) -> dict[str, Any]:
    """Return the fields of a method in the page's form, with "inf" for infinite friction."""
    values = {field.name: getattr(method, field.name) for field in fields(method)}
    return {name: "inf" if value == math.inf else value for name, value in values.items()}


def _float_from_json(value: object) -> object:
    """Return a value from JSON, or infinity for "inf"."""
    return math.inf if value == "inf" else value


def check_word(
    run: PageRunSettings, part: str, word: str, gamma: float | str | None = None
) -> dict[str, Any]:
    """Check whether a part of a run may have a splitting word; nothing is changed.

    Parameters
    ----------
    run : PageRunSettings
        The run as it is.
    part : str
        Name of the part.
    word : str
        The word, such as "BAOAB".
    gamma : float, "inf" or None
        Friction to try with the word; None keeps that of the part.

    Returns
    -------
    dict
        The fields of the message `word`: ok, letters, gradients, order, and text, which is the error if any.
    """
    try:
        spelled = _spelled_method(run.base_partition, part, word, gamma)
    except (ValueError, TypeError) as error:
        return {"ok": False, "letters": [], "gradients": None, "order": None, "text": str(error)}

    letters = [{"letter": substep.letter, "share": float(substep.fraction)} for substep in spelled.substeps]
    known_order = NAMED.get(word)
    order = None
    if known_order is not None:
        order = {"position": known_order.position, "joint": known_order.joint}
    gradient_count = gradients(spelled.substeps)
    return {"ok": True, "letters": letters, "gradients": gradient_count, "order": order, "text": ""}


def _spelled_method(partition: Partition, part: str, word: str, gamma: float | str | None) -> Method:
    """Return the method of a part with another word, and with another friction unless `gamma` is None.

    Raises
    ------
    ValueError or TypeError
        If the part may not have this word: by itself, or beside the words of the other parts.
    """
    keys = {str(key): key for key in partition.methods}
    if part not in keys:
        raise ValueError(f"there is no part {part[:40]!r}: accepted are {', '.join(keys)}")
    method = partition.methods[keys[part]]
    if not method.spelled:
        raise ValueError(f"{type(method).__name__} has no word that can be chosen")
    if not 0 < len(word) <= MAX_WORD_LENGTH:
        raise ValueError(f"a word of 1 to {MAX_WORD_LENGTH} letters is needed, got {len(word)}")

    new_fields: dict[str, Any] = {"word": word}
    if gamma is not None and hasattr(method, "gamma"):
        new_fields["gamma"] = real("gamma", _float_from_json(gamma), FRICTION)
    spelled = replace(method, **new_fields)
    all_methods = {**partition.methods, keys[part]: spelled}
    Partition(all_methods, partition.h)  # raises if the parts' words don't fit together
    return spelled
