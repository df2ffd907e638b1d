"""Define what a method is, and keep the registry of methods.

A method is a frozen dataclass that derives from `Method`. One file holds all that is specific to it: its
coefficients, the state it needs, its letters, and for each letter the map in NumPy and its lowering. All
other code asks the method.

Symbols: θ are parameters, p their momenta, N their number, G is the negative gradient of the loss, h the
stepsize, τ the temperature, γ a constant friction, ξ a friction that adapts, λ the precision of the prior.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from functools import lru_cache
from inspect import Parameter
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeVar

from heatbath._internal.checks import FINITE, NON_NEGATIVE, POSITIVE, Interval, choice, store
from heatbath.methods import operations
from heatbath.methods.letters import Letter
from heatbath.methods.ranges import Between, between
from heatbath.methods.schedules import Coefficient, Schedule, SimulatedTempering, Value, coefficient, falling
from heatbath.methods.splitting import Substep, WordError, gradients, parse, rotate


def varying(
    accepted: Interval, text: str, default: float | Any = MISSING, *, symbol: str = "", tempered: bool = False
) -> Any:
    """Return a dataclass field for a coefficient: a number, a schedule, or a list (an axis of a sweep).

    Parameters
    ----------
    accepted : Interval
        The values that the coefficient may take at any step.
    text : str
        What it is, for the command line and the explorer.
    default : float or None, optional
        None leaves a temperature to a `Posterior`. Without a default the coefficient must be given.
    symbol : str, optional
        Its letter in formulas, such as "γ". The default is its name.
    tempered : bool, optional
        True for a temperature, which may also be a `SimulatedTempering`.
    """
    metadata = {"accepted": accepted, "text": text, "symbol": symbol, "tempered": tempered, "varies": True}
    return field(default=default, metadata=metadata)


def gaussian_prior() -> Any:
    """Return the field `weight_decay`: λ adds λ|θ|²/2 to the loss that G descends."""
    return varying(NON_NEGATIVE, "Precision of the Gaussian prior.", 0.0, symbol="λ")


def starting(text: str, default: float) -> Any:
    """Return a dataclass field for the initial value of ξ: a number, or a list (an axis of a sweep)."""
    return field(default=default, metadata={"accepted": FINITE, "text": text, "varies": False})


def option(text: str, default: str | int, *alternatives: str | int) -> Any:
    """Return a dataclass field for a choice between a default and its alternatives."""
    return field(default=default, metadata={"choices": (default, *alternatives), "text": text})


class Argument(NamedTuple):
    """Description of one argument of a method or preset, as the command line and the explorer show it.

    Attributes
    ----------
    kind : str
        What it takes: a "coefficient", a "stepsize" (a coefficient, or "auto"), a "whole" number or "text".
    text, symbol : str
        What it is, and its letter in formulas.
    default : object
        `inspect.Parameter.empty` if it has none.
    varies : bool
        True if it may change during a run.
    accepted : Interval or None
        The accepted numbers.
    choices : tuple
        The accepted values of an option.
    """

    name: str
    kind: Literal["coefficient", "stepsize", "whole", "text"]
    text: str
    default: object = Parameter.empty
    symbol: str = ""
    varies: bool = False
    accepted: Interval | None = None
    choices: tuple[str | int, ...] = ()

    def is_required(self, has_posterior: bool = False) -> bool:
        """Return True if a value must be given. Only a posterior can set a temperature that is left out."""
        is_open_temperature = self.default is None and self.name in ("tau", "sigma")
        return self.default is Parameter.empty or (is_open_temperature and not has_posterior)


STEPSIZE = Argument("h", "stepsize", "Stepsize.", symbol="h", varies=True, accepted=POSITIVE)


@dataclass(frozen=True, repr=False)
class Method:
    """Base class of methods: a word with its coefficients.

    Derive from it as a frozen dataclass, and `register` the class. Coefficients are fields made by `varying`;
    `starting` makes `xi`, the initial ξ, and `option` a choice. A temperature is called `tau`, and the
    precision of a Gaussian prior `weight_decay`. Override `check` to reject values that cannot work together;
    it is called after all fields have been checked.

    Attributes
    ----------
    title : str
        The name in tables and, in lower case, on the command line. The default is the name of the class.
    letters : mapping of str to Letter
        The letters of its words.
    word : str
        The splitting scheme: a field, or a class variable for a method of one letter or none.
    keeps_second : bool
        True if it needs a second number beside p for each parameter.
    counts_steps : bool
        True if it needs to know how many steps a parameter has made.
    thermostat : {"part", "tensor"} or None
        One ξ for the whole part, one for each tensor of it, or none. A class variable or an option.
    thermal : str
        The coefficient that a posterior sets instead of a temperature.
    adjustable : bool
        True if a step of a palindrome can have a Metropolis test: its letters are A, B, and an O that keeps
        the law of p.
    searched : mapping of str to Between
        The ranges in which `tune` searches for `h` and for coefficients by default. The other coefficients
        stay at their defaults.
    """

    title: ClassVar[str]
    thermal: ClassVar[str] = "tau"
    searched: ClassVar[Mapping[str, Between]] = {"h": between(1e-3, 1.0)}
    adjustable: ClassVar[bool] = False
    letters: ClassVar[Mapping[str, Letter]] = {}
    keeps_second: ClassVar[bool] = False
    counts_steps: ClassVar[bool] = False
    word = ""

    def __init_subclass__(cls, **options: Any) -> None:
        """Give the class its own name as a title, unless it has another."""
        super().__init_subclass__(**options)
        if "title" not in vars(cls):
            cls.title = cls.__name__

    def __post_init__(self) -> None:
        """Check all fields and the word, and convert the numbers among the fields to float.

        A frozen dataclass calls it after its `__init__`. Each check raises a TypeError or ValueError that
        names the class and the field.
        """
        for f in fields(self):
            self._check_coefficient(f)
        for f in fields(self):
            self._check_option(f)
        kind: Any = type(self)
        if not isinstance(self.word, str):  # `_substeps` needs a hashable word
            parse(self.word, self.letters, kind.__name__)  # raises an error
        _substeps(kind, self.word)  # raises an error if the word has other letters
        self.check()
        _check_effects(kind, self.word)

    def _check_coefficient(self, definition: Field[Any]) -> None:
        """Check the value of a field if it is a coefficient, and store it as a float or with floats."""
        value = getattr(self, definition.name)
        is_open_temperature = value is None and definition.default is None
        if "accepted" not in definition.metadata or is_open_temperature:
            return
        label = f"{type(self).__name__}: {definition.name}"
        accepts_tempering = definition.metadata.get("tempered", False)
        checked = coefficient(label, value, definition.metadata["accepted"], tempering=accepts_tempering)
        store(self, **{definition.name: checked})

    def _check_option(self, definition: Field[Any]) -> None:
        """Raise an error if the value of a field isn't one of its choices, or is an initial ξ that varies."""
        label = f"{type(self).__name__}: {definition.name}"
        value = getattr(self, definition.name)
        is_start = definition.metadata.get("varies") is False
        if "choices" in definition.metadata:
            choice(label, value, definition.metadata["choices"])
        elif is_start and any(isinstance(single, Schedule) for single in singles(value)):
            raise TypeError(f"{label} is the initial ξ, so it cannot be a schedule: got {value!r}")

    @property
    def thermostat(self) -> str | None:
        """Scope of each ξ: "part", "tensor", or None for a method without ξ."""
        return None

    def check(self) -> None:
        """Raise an error for a word or values that cannot work together. Methods override it."""

    @property
    def substeps(self) -> tuple[Substep, ...]:
        """Letters of the word, with their fractions of the stepsize."""
        kind: Any = type(self)
        return _substeps(kind, self.word)

    @property
    def moves(self) -> bool:
        """True if the method changes anything."""
        return bool(self.word)

    @property
    def spelled(self) -> bool:
        """True if its word can be chosen."""
        return "word" in names(type(self))

    @property
    def spelling(self) -> str:
        """Its word, or the name of its class if the word cannot be chosen."""
        return str(self.word) if self.spelled else type(self).__name__

    @property
    def seen_at_kick(self) -> bool:
        """True if a loop with one gradient per step sees θ at the kick, and not at the word's end."""
        kind: Any = type(self)
        return _is_seen_at_kick(kind, self.word)

    @property
    def temperature(self) -> Coefficient | None:
        """Temperature τ of the law that it samples, or None."""
        return getattr(self, "tau", None)

    @property
    def tempering(self) -> SimulatedTempering | None:
        """Ladder of simulated tempering, or None."""
        temperature = self.temperature
        return temperature if isinstance(temperature, SimulatedTempering) else None

    @property
    def may_leave_temperature(self) -> bool:
        """True if the temperature can be left out, for a posterior to set."""
        kind: Any = type(self)
        return _may_leave_temperature(kind)

    @property
    def needs_temperature(self) -> bool:
        """True if the temperature was left out, so that a posterior must set it."""
        return self.may_leave_temperature and getattr(self, self.thermal) is None

    @property
    def measures_temperature(self) -> bool:
        """True if it has a temperature and a letter that measures it."""
        return self.temperature is not None and any(substep.kind.reads for substep in self.substeps)

    @property
    def has_prior(self) -> bool:
        """True if it has a Gaussian prior."""
        return hasattr(self, "weight_decay")

    @property
    def prior(self) -> Coefficient:
        """Precision λ of its Gaussian prior, or 0."""
        return getattr(self, "weight_decay", 0.0)

    @property
    def start_of_friction(self) -> Coefficient:
        """Initial value of ξ."""
        return getattr(self, "xi", 0.0)

    @property
    def linear(self) -> bool:
        """True if a step on a quadratic loss is linear in (θ, p) and the noise."""
        return False

    @property
    def idle(self) -> frozenset[str]:
        """Coefficients that have no effect at their values, and are not shown."""
        return frozenset() if self.prior != 0 else frozenset({"weight_decay"})

    def thermostat_frequency(self, values: Mapping[str, float], size: int) -> float:
        """Return the frequency ω of small oscillations of a ξ that acts on `size` parameters, or 0."""
        return 0.0

    def thermostats(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """Return the number of parameters that each ξ acts on, in a part with tensors of these sizes."""
        if self.thermostat is None:
            return ()
        return tuple(sizes) if self.thermostat == "tensor" else (sum(sizes),)

    def friction_on(self, values: Mapping[str, float], xi: float | None) -> float | None:
        """Return the friction of a part: ξ if it has one, otherwise γ if it has one, otherwise None."""
        if xi is None and "gamma" in values:
            return float(values["gamma"])
        return xi

    def gradient_noise(self, values: Mapping[str, float], h: float, xi: float | None) -> float | None:
        """Return the variance of the gradient noise that the mean ξ implies, or None."""
        return None

    def with_prior(self, precision: Coefficient) -> Self:
        """Return the method with another Gaussian prior; a method without one is returned unchanged."""
        return replace(self, weight_decay=precision) if self.has_prior else self  # type: ignore[call-arg]

    def at_temperature(self, tau: float) -> Self:
        """Return the method at another temperature; a method without one is returned unchanged."""
        return replace(self, tau=tau) if "tau" in names(type(self)) else self  # type: ignore[call-arg]

    def cooled(self, step: int, factor: float) -> Self:
        """Return the method with its temperature divided by a factor from `step` on.

        A method without a temperature is returned unchanged.
        """
        thermal_coefficient = getattr(self, self.thermal, None)
        if not thermal_coefficient:
            return self
        divisor = factor if self.thermal == "tau" else math.sqrt(factor)  # the square of σ is a temperature
        return replace(self, **{self.thermal: falling(thermal_coefficient, divisor, step)})

    def axes(self) -> dict[str, tuple[Value, ...]]:
        """Return the coefficients that are axes of a sweep, with their values."""
        return {name: value for name, value in self._values().items() if isinstance(value, tuple)}

    def ranges(self) -> dict[str, Between]:
        """Return the coefficients that `tune` searches for, with their ranges."""
        return {name: value for name, value in self._values().items() if isinstance(value, Between)}

    def _values(self) -> dict[str, Any]:
        """Return the values of all fields."""
        return {name: getattr(self, name) for name in names(type(self))}

    def __repr__(self) -> str:
        """Return the call that makes it, with a note if θ is not seen at the word's end."""
        note = " <between steps θ is seen at the kick>" if self.seen_at_kick else ""
        return f"{self._call(repr)}{note}"

    @property
    def code(self) -> str:
        """Python expression that makes it, with the names of heatbath."""
        return self._call(lambda value: "float('inf')" if value == math.inf else repr(value))

    def _call(self, format_value: Callable[[Any], str]) -> str:
        """Return the call that makes it: with word, coefficients, and options that are not the default."""
        always_shown = {"word", *coefficients(type(self))} - self.idle
        arguments = []
        for declared in fields(self):
            argument = getattr(self, declared.name)
            if declared.name in always_shown or argument != declared.default:
                arguments.append(f"{declared.name}={format_value(argument)}")
        return f"{type(self).__name__}({', '.join(arguments)})"


@lru_cache(maxsize=1024)
def _substeps(kind: Any, word: str) -> tuple[Substep, ...]:
    """Return the letters of a word of a method (a class)."""
    return parse(word, kind.letters, kind.__name__)


@lru_cache
def _may_leave_temperature(kind: Any) -> bool:
    """Return True if the temperature of a method (a class) can be left out, for a posterior to set."""
    return any(f.name == kind.thermal and f.default is None for f in fields(kind))


@lru_cache(maxsize=1024)
def _check_effects(kind: Any, word: str) -> None:
    """Raise WordError if no letter of a word moves θ, or none uses the gradient."""
    for effect, attribute in (("moves θ", "moves"), ("uses the gradient", "kicks")):
        if kind.letters and not any(getattr(substep.kind, attribute) for substep in _substeps(kind, word)):
            raise WordError(f"word {word!r}: none of its letters {effect}: choose a word with one that does")


@lru_cache(maxsize=1024)
def _is_seen_at_kick(kind: Any, word: str) -> bool:
    """Return True if a loop with one gradient per step sees θ at the kick of a word."""
    substeps = _substeps(kind, word)
    return gradients(substeps) == 1 and rotate(substeps).seen == "kick"


def names(kind: Any) -> tuple[str, ...]:
    """Return the names of all fields of a method (a class), in order."""
    return _names(kind)[0]


def coefficients(kind: Any) -> tuple[str, ...]:
    """Return the names of the coefficients of a method (a class): fields that may change with the step."""
    return _names(kind)[1]


def choices(kind: Any) -> tuple[str, ...]:
    """Return the names of the other fields of a method (a class), which stay fixed during a run."""
    return _names(kind)[2]


@lru_cache
def _names(kind: Any) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return the names of all fields, of the coefficients, and of the fields that stay fixed."""
    varies = {f.name: bool(f.metadata.get("varies")) for f in fields(kind)}
    coefficients = tuple(name for name, varying in varies.items() if varying)
    return tuple(varies), coefficients, tuple(name for name in varies if name not in coefficients)


def describe(kind: type[Method]) -> dict[str, Argument]:
    """Return a description of each argument of a method, by its name."""
    return {f.name: _describe_field(f) for f in fields(kind)}


def _describe_field(field: Field[object]) -> Argument:
    """Return the description of a method's argument, from the dataclass field that defines it.

    A field with choices is an option of text or whole numbers, and any other is a coefficient.
    """
    default = Parameter.empty if field.default is MISSING else field.default
    if field.name == "word":
        return Argument("word", "text", "Splitting scheme, such as BAOAB.", default, "word")

    metadata = field.metadata
    choices = metadata.get("choices", ())
    kind: Literal["coefficient", "text", "whole"] = "coefficient"
    if choices and all(isinstance(choice, str) for choice in choices):
        kind = "text"
    elif choices:
        kind = "whole"
    return Argument(
        name=field.name,
        kind=kind,
        text=metadata.get("text", ""),
        default=default,
        symbol=metadata.get("symbol") or field.name,
        varies=bool(metadata.get("varies")),
        accepted=metadata.get("accepted"),
        choices=choices,
    )


def singles(value: Coefficient) -> tuple[Value, ...]:
    """Return the values of an axis of a sweep, or a tuple with the single value."""
    return value if isinstance(value, tuple) else (value,)


# Registered methods, by the name of their class
_known: dict[str, type[Method]] = {}
M = TypeVar("M", bound=type[Method])


# Names with another meaning: in param groups and files, and of results and their dimensions
TAKEN = frozenset((
    "h", "lr", "params", "part", "name", "method", "module", "schedules", "step", "previous", "seed", "fused",
    "maximize", "agreed", "foreach", "capturable", "differentiable", "chains", "rung", "draws", "drawn",
    "unit", "layers", "parts", "posterior", "model", "hidden", "output",
    "theta", "p", "second", "died", "xi_now", "xi_start", "average", "deviations", "loss", "accuracy",
    "temperature", "noise", "noise_now", "sample_noise", "histogram", "weights", "samples", "sample_step",
    "chain", "parameter", "record", "split",
    "point", "bin", "sample", "repeat", "draw", "set", "training", "testing", "feature", "target",
    "X_train", "Y_train", "X_test", "Y_test", "shift", "scale", "target_shift", "target_scale", "start",
    "weights_train", "weights_test", "X_average",
))  # fmt: skip
# Names of public classes that are not methods
PUBLIC = ("AdLaLa", "LOL", "LaLa", "AdLAdL", "Partitioned", "Samples", "Prediction", "Posterior")


def register(kind: M) -> M:
    """Register a method, so that partitions, engine, optimisers, files and the command line accept it.

    Use it for methods outside of heatbath, as a decorator above `@dataclass(frozen=True, repr=False)`. The
    file of a run with such a method names the module to import before the file can be loaded.

    Parameters
    ----------
    kind : type
        A dataclass that derives from `heatbath.methods.Method`.

    Returns
    -------
    type
        The same class.

    Raises
    ------
    TypeError
        If it is no such class.
    ValueError
        If its fields, letters or name don't fit; the message lists all problems.

    Examples
    --------
    Every method of heatbath is registered, which a second call doesn't change.

    >>> import heatbath as hb
    >>> hb.register(hb.SGD) is hb.SGD
    True
    """
    name = getattr(kind, "__name__", repr(kind))
    is_method = isinstance(kind, type) and issubclass(kind, Method) and kind is not Method
    if not (is_method and "__dataclass_fields__" in vars(kind)):
        raise TypeError(f"register takes a dataclass that derives from heatbath.methods.Method, got {kind!r}")
    problems = [*_field_problems(kind), *_letter_problems(kind), *_name_problems(kind)]
    if problems:
        raise ValueError(f"{name}: {'; '.join(problems)}")
    _known[name] = kind
    return kind


def _name_problems(kind: type[Method]) -> list[str]:
    """Return what is wrong with the name and the title of a method, as parts of an error message."""
    problems = []
    for known in _known.values():
        is_same = (known.__module__, known.__qualname__) == (kind.__module__, kind.__qualname__)
        has_same_name = known.__name__ == kind.__name__ or known.title.lower() == kind.title.lower()
        if has_same_name and not is_same:
            problems.append(f"there is a method of this name already, {known.__module__}.{known.__name__}")
    if {kind.__name__.lower(), kind.title.lower()} & {public.lower() for public in PUBLIC}:
        problems.append(f"its name is taken; so are {', '.join(PUBLIC)}")
    return problems


def _field_problems(kind: type[Method]) -> list[str]:
    """Return what is wrong with the fields of a method (a class), as parts of an error message.

    Fields must be made by `varying`, `starting` or `option`, and have names without another meaning.
    """
    problems = []
    metadata = {field.name: field.metadata for field in fields(kind)}
    plain_fields = [name for name, described in metadata.items() if not described]
    without_description = [name for name in plain_fields if name != "word"]
    if without_description:
        names_given = ", ".join(without_description)
        problems.append(f"the fields {names_given} must be made by varying, starting or option")

    taken_names = [name for name in metadata if name in TAKEN]
    if taken_names:
        problems.append(f"the fields {', '.join(taken_names)} have names with another meaning: choose others")

    starting_values = [name for name, described in metadata.items() if described.get("varies") is False]
    needed_values = ["xi"] if _thermostat(kind) else []
    if starting_values != needed_values:
        problems.append("a field xi made by starting is needed where there is a thermostat, and only there")

    tempered = [name for name, described in metadata.items() if described.get("tempered")]
    wrongly_tempered = [name for name in tempered if name != "tau"]
    if wrongly_tempered:
        problems.append(f"only tau can be tempered, not {', '.join(wrongly_tempered)}")
    return problems


def _letter_problems(kind: type[Method]) -> list[str]:
    """Return what is wrong with the letters of a method (a class), as parts of an error message.

    It checks only what doesn't depend on the coefficients.
    """
    problems = []
    for letter, meaning in kind.letters.items():
        if len(letter) != 1:
            problems.append(f"a letter is one character, got {letter!r}")
        problems += _lowering_problems(kind, letter, meaning)
    if "word" in names(kind):  # the word can be chosen, and is checked then
        return problems

    known_letters = [kind.letters[letter] for letter in kind.word if letter in kind.letters]
    if kind.word and not any(meaning.moves for meaning in known_letters):
        problems.append(f"no letter of {kind.word!r} moves θ")
    return problems


def _lowering_problems(kind: type[Method], letter: str, meaning: Letter) -> list[str]:
    """Return what doesn't fit the operations of the kernel that carry out a letter of a method.

    What the letter declares (`moves`, `kicks`, `draws`) and what the method keeps (a second moment, a ξ) must
    be what its operations do and need.
    """
    problems = []
    lowered = {operation for operation, _ in meaning.lower}
    if not lowered or not lowered <= operations.FOR_LETTERS:
        lowered_names = sorted(lowered) or "nothing"
        accepted = "those of heatbath.methods.operations except READ"
        problems.append(f"letter {letter!r} lowers to {lowered_names}, accepted are {accepted}")

    moves = not lowered.isdisjoint(operations.MOVING)
    kicks = not lowered.isdisjoint(operations.DESCENDING)
    needs_noise = not lowered.isdisjoint(operations.ALWAYS_DRAWING)
    needs_friction = not lowered.isdisjoint(operations.WITH_FRICTION)
    is_wrong = {
        ": moves is not what its operations do": meaning.moves != moves,
        ": kicks is not what its operations do": meaning.kicks != kicks,
        " needs noise: draws=True": needs_noise and not meaning.draws,
        " needs a second moment: keeps_second = True": operations.ADAM in lowered and not kind.keeps_second,
        " needs a ξ: thermostat = 'part' or 'tensor'": needs_friction and not _thermostat(kind),
    }
    return problems + [f"letter {letter!r}{text}" for text, applies in is_wrong.items() if applies]


def _thermostat(kind: type[Method]) -> str | None:
    """Return the scope of each ξ of a method: its class variable, or the default of its option."""
    scope: Any = kind.thermostat
    return None if isinstance(scope, property) else str(scope)


def known_methods() -> dict[str, type[Method]]:
    """Return all registered methods, by the name of their class."""
    return dict(_known)


def module_of(kind: type[Method]) -> str | None:
    """Return the module that must be imported to have a method, or None for one of heatbath's own."""
    return None if kind.__module__.partition(".")[0] == "heatbath" else kind.__module__


def check_known(kind: type[Method]) -> None:
    """Raise TypeError if a method is not registered, or its class was registered again since."""
    if kind not in _known.values():
        name = kind.__name__
        if name in _known:
            raise TypeError(f"{name} was registered again after this value was made: make the value again")
        raise TypeError(f"{name} is not registered: call heatbath.register({name}) first")


def find_method(name: object, module: str | None = None) -> type[Method]:
    """Return the registered method with a name.

    Parameters
    ----------
    name : object
        The name of its class.
    module : str, optional
        The module in which it was defined, for a method that is not heatbath's own.

    Returns
    -------
    type
        The class of the method.

    Raises
    ------
    ValueError
        If there is none, or the registered one is from another module.
    """
    if isinstance(name, str) and name in _known:
        method = _known[name]
        if module in (None, method.__module__):
            return method
        raise ValueError(
            f"the method {name!r} of {module} is needed, but that of {method.__module__} is registered: "
            f"import {module} in a process of its own"
        )

    remedy = ""
    if module == "__main__":
        remedy = "; it was defined in a script: define it in a module of its own, and import that module"
    elif module:
        remedy = f"; it is defined in {module}: import that module first"
    raise ValueError(f"there is no method {name!r}{remedy}; accepted: {', '.join(_known)}")
