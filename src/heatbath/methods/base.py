"""What a method is, and the list of those that are known.

A method is a frozen dataclass that derives from `Method` and stands in one file: its coefficients, the state
it needs, its letters, and for each letter the map in NumPy and its lowering. Everything else asks the method.
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
    """A word with its coefficients. Derive from it as a frozen dataclass, and `register` the class.

    - Coefficients are fields made by `varying`; `starting` makes `xi`, where ξ starts, and `option` a choice.
      A method with a temperature calls it `tau`, one with a Gaussian prior `weight_decay`.
    - `letters` are the letters that it has, and `word` is a field, or for a method of one letter (or none) a
      class variable. `check` refuses what cannot work; it is called when all fields are checked.
    - `keeps_second`: it needs a second number beside p for each parameter; `counts_steps`: it needs to know
      how many steps a parameter has made.
    - `thermostat`: None without ξ, otherwise one ξ for the whole "part" or one for each "tensor" of it; a
      class variable or an option.
    - `thermal`: the coefficient that a posterior sets in place of a temperature.
    - `adjustable`: a step of a palindrome of its letters can have a Metropolis test: they are A, B, and an O
      that leaves the law of p as it is.
    - `title`: what it is called in tables and, in lower case, on the command line.
    - `searched`: where `tune` looks for its stepsize h and its coefficients, if not told; those that are not
      named stay at their defaults.
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
        super().__init_subclass__(**options)
        if "title" not in vars(cls):
            cls.title = cls.__name__

    def __post_init__(self) -> None:
        for f in fields(self):
            if "accepted" in f.metadata:
                label, tempered = f"{type(self).__name__}: {f.name}", f.metadata.get("tempered", False)
                given = getattr(self, f.name)
                if given is None and f.default is None:
                    continue
                store(self, **{f.name: coefficient(label, given, f.metadata["accepted"], tempering=tempered)})
        for f in fields(self):
            given = getattr(self, f.name)
            if "choices" in f.metadata:
                choice(f"{type(self).__name__}: {f.name}", given, f.metadata["choices"])
            elif f.metadata.get("varies") is False and any(isinstance(v, Schedule) for v in singles(given)):
                name = f"{type(self).__name__}: {f.name}"
                raise TypeError(f"{name} is where ξ starts, so it cannot be a schedule: got {given!r}")
        parse(self.word, self.letters, type(self).__name__)
        self.check()
        for what, does in (("moves θ", "moves"), ("uses the gradient", "kicks")):
            if self.letters and not any(getattr(substep.kind, does) for substep in self.substeps):
                raise WordError(
                    f"word {self.word!r}: no letter of it {what}; {type(self).__name__} would stand still"
                )

    @property
    def thermostat(self) -> str | None:
        """What has a ξ."""
        return None

    def check(self) -> None:
        """Refuse a word, or values together, that cannot work."""

    @property
    def substeps(self) -> tuple[Substep, ...]:
        """The letters of its word."""
        kind: Any = type(self)
        return _substeps(kind, self.word)

    @property
    def moves(self) -> bool:
        """Whether anything happens at all."""
        return bool(self.word)

    @property
    def spelled(self) -> bool:
        """Whether it has a word that can be chosen."""
        return "word" in names(type(self))

    @property
    def spelling(self) -> str:
        """Its word, or its name if that cannot be chosen."""
        return str(self.word) if self.spelled else type(self).__name__

    @property
    def seen_at_kick(self) -> bool:
        """Whether, between the steps of a loop with one gradient each, θ is that of the kick."""
        return gradients(self.substeps) == 1 and rotate(self.substeps).seen == "kick"

    @property
    def temperature(self) -> Coefficient | None:
        """τ of the law that it samples, if it has one."""
        return getattr(self, "tau", None)

    @property
    def tempering(self) -> SimulatedTempering | None:
        """The ladder that its temperature moves on, if it does."""
        return self.temperature if isinstance(self.temperature, SimulatedTempering) else None

    @property
    def may_leave_temperature(self) -> bool:
        """Whether its temperature may be left to a posterior."""
        return any(f.name == self.thermal and f.default is None for f in fields(self))

    @property
    def needs_temperature(self) -> bool:
        """Whether it is left to one."""
        return self.may_leave_temperature and getattr(self, self.thermal) is None

    @property
    def measures_temperature(self) -> bool:
        """Whether it has a temperature, and a letter that reads it."""
        return self.temperature is not None and any(substep.kind.reads for substep in self.substeps)

    @property
    def has_prior(self) -> bool:
        """Whether it has a Gaussian prior."""
        return hasattr(self, "weight_decay")

    @property
    def prior(self) -> Coefficient:
        """The precision of its Gaussian prior."""
        return getattr(self, "weight_decay", 0.0)

    @property
    def start_of_friction(self) -> Coefficient:
        """Where ξ starts."""
        return getattr(self, "xi", 0.0)

    @property
    def linear(self) -> bool:
        """Whether a step on a quadratic loss is linear in (θ, p) and the noise."""
        return False

    @property
    def idle(self) -> frozenset[str]:
        """Coefficients that change nothing as they are, and are not shown."""
        return frozenset() if self.prior != 0 else frozenset({"weight_decay"})

    def thermostat_frequency(self, values: Mapping[str, float], size: int) -> float:
        """ω of small oscillations of a ξ that serves so many parameters; 0 where there is none."""
        return 0.0

    def thermostats(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """How many parameters each of its ξ serves in a part whose tensors have these sizes."""
        if self.thermostat is None:
            return ()
        return tuple(sizes) if self.thermostat == "tensor" else (sum(sizes),)

    def friction_on(self, values: Mapping[str, float], xi: float | None) -> float | None:
        """What stands for the friction of a part, if anything does: ξ, or else γ."""
        return float(values["gamma"]) if xi is None and "gamma" in values else xi

    def gradient_noise(self, values: Mapping[str, float], h: float, xi: float | None) -> float | None:
        """The variance of the gradient's noise that the mean of ξ tells, if it tells one."""
        return None

    def with_prior(self, precision: Coefficient) -> Self:
        """The same method with another Gaussian prior; one that has none stays as it is."""
        return replace(self, weight_decay=precision) if self.has_prior else self  # type: ignore[call-arg]

    def at_temperature(self, tau: float) -> Self:
        """The same method at another temperature; one that has none stays as it is."""
        return replace(self, tau=tau) if "tau" in names(type(self)) else self  # type: ignore[call-arg]

    def cooled(self, step: int, factor: float) -> Self:
        """The same at a temperature that falls by a factor at `step`; one that has none stays as it is."""
        value = getattr(self, self.thermal, None)
        by = factor if self.thermal == "tau" else math.sqrt(factor)  # of noise, whose square is a temperature
        return replace(self, **{self.thermal: falling(value, by, step)}) if value else self

    def axes(self) -> dict[str, tuple[Value, ...]]:
        """The coefficients that are axes of a sweep, with their values."""
        return {name: value for name, value in self._values().items() if isinstance(value, tuple)}

    def ranges(self) -> dict[str, Between]:
        """The coefficients that are to be looked for, and where."""
        return {name: value for name, value in self._values().items() if isinstance(value, Between)}

    def _values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in names(type(self))}

    def __repr__(self) -> str:
        """As it is made, and where θ is not seen at the word's end."""
        note = " <between steps θ is seen at the kick>" if self.seen_at_kick else ""
        return f"{self._call(repr)}{note}"

    @property
    def code(self) -> str:
        """The Python expression that makes it, where the names of heatbath are known."""
        return self._call(lambda value: "float('inf')" if value == math.inf else repr(value))

    def _call(self, spelled: Callable[[Any], str]) -> str:
        """Word and coefficients, and what else is not the default."""
        always = {"word", *coefficients(type(self))} - self.idle
        shown = [f.name for f in fields(self) if f.name in always or getattr(self, f.name) != f.default]
        values = ", ".join(f"{name}={spelled(getattr(self, name))}" for name in shown)
        return f"{type(self).__name__}({values})"


@lru_cache(maxsize=1024)
def _substeps(kind: Any, word: str) -> tuple[Substep, ...]:
    return parse(word, kind.letters, kind.__name__)


def names(kind: Any) -> tuple[str, ...]:
    """The names of all that a method (a class) is made of, in order."""
    return _names(kind)[0]


def coefficients(kind: Any) -> tuple[str, ...]:
    """The names of a method's coefficients: what may change with the step."""
    return _names(kind)[1]


def choices(kind: Any) -> tuple[str, ...]:
    """The names of all else, which stays as it is during a run."""
    return _names(kind)[2]


@lru_cache
def _names(kind: Any) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    varies = {f.name: bool(f.metadata.get("varies")) for f in fields(kind)}
    coefficients = tuple(name for name, varying in varies.items() if varying)
    return tuple(varies), coefficients, tuple(name for name in varies if name not in coefficients)


def describe(kind: type[Method]) -> dict[str, Argument]:
    """Return a description of each argument of a method, by its name."""
    return {f.name: _describe_field(f) for f in fields(kind)}


def _describe_field(field: Field[object]) -> Argument:
    default = Parameter.empty if field.default is MISSING else field.default
    if field.name == "word":
        return Argument("word", "text", "Splitting scheme, such as BAOAB.", default, "word")
    metadata = field.metadata
    choices = metadata.get("choices", ())
    is_text = all(isinstance(choice, str) for choice in choices)
    return Argument(
        field.name,
        ("text" if is_text else "whole") if choices else "coefficient",
        metadata.get("text", ""),
        default,
        metadata.get("symbol") or field.name,
        bool(metadata.get("varies")),
        metadata.get("accepted"),
        choices,
    )


def singles(value: Coefficient) -> tuple[Value, ...]:
    """The values of an axis, or the one value."""
    return value if isinstance(value, tuple) else (value,)


# The methods that are known

_known: dict[str, type[Method]] = {}
M = TypeVar("M", bound=type[Method])


# Names that have a meaning beside methods: in param groups and files, and as results and their dimensions
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
# Names of classes of their own
PUBLIC = ("AdLaLa", "LOL", "LaLa", "AdLAdL", "Partitioned", "Samples", "Prediction", "Posterior")


def register(kind: M) -> M:
    """Make a method known everywhere: partitions, engine, optimisers, files, the command line.

    For methods outside of heatbath: a decorator above `@dataclass(frozen=True, repr=False)`. The file of a
    run with such a method names the module to import before it is loaded. A class whose parts do not fit
    together is refused, with all that is wrong with it.
    """
    name = getattr(kind, "__name__", repr(kind))
    derived = isinstance(kind, type) and issubclass(kind, Method) and kind is not Method
    if not (derived and "__dataclass_fields__" in vars(kind)):
        raise TypeError(f"register takes a dataclass that derives from heatbath.methods.Method, got {kind!r}")
    wrong = [*_wrong_fields(kind), *_wrong_letters(kind)]
    for other in _known.values():
        same = (other.__module__, other.__qualname__) == (kind.__module__, kind.__qualname__)
        if not same and (other.__name__ == name or other.title.lower() == kind.title.lower()):
            place = f"{other.__module__}.{other.__name__}"
            wrong.append(f"there is a method of this name already, {place}")
    if {name.lower(), kind.title.lower()} & {taken.lower() for taken in PUBLIC}:
        wrong.append(f"its name is taken; so are {', '.join(PUBLIC)}")
    if wrong:
        raise ValueError(f"{name}: {'; '.join(wrong)}")
    _known[name] = kind
    return kind


def _wrong_fields(kind: type[Method]) -> list[str]:
    """What is wrong with the fields of a method."""
    wrong = []
    if bare := [f.name for f in fields(kind) if f.name != "word" and not f.metadata]:
        wrong.append(f"the fields {', '.join(bare)} must be made by varying, starting or option")
    if taken := [f.name for f in fields(kind) if f.name in TAKEN]:
        wrong.append(f"the fields {', '.join(taken)} have names with another meaning: choose others")
    starts = [f.name for f in fields(kind) if f.metadata.get("varies") is False]
    if starts != (["xi"] if _thermostat(kind) else []):
        wrong.append("a field xi made by starting is needed where there is a thermostat, and only there")
    if tempered := [f.name for f in fields(kind) if f.metadata.get("tempered") and f.name != "tau"]:
        wrong.append(f"only tau can be tempered, not {', '.join(tempered)}")
    return wrong


def _wrong_letters(kind: type[Method]) -> list[str]:
    """What is wrong with the letters of a method, as far as can be told without its coefficients."""
    wrong = []
    for letter, meaning in kind.letters.items():
        if len(letter) != 1:
            wrong.append(f"a letter is one character, got {letter!r}")
        operated = {operation for operation, _ in meaning.lower}
        if not operated or not operated <= operations.FOR_LETTERS:
            known = "those of heatbath.methods.operations but READ"
            wrong.append(f"letter {letter!r} lowers to {sorted(operated) or 'nothing'}, accepted are {known}")
        for flag, kinds in (("moves", operations.MOVING), ("kicks", operations.DESCENDING)):
            if getattr(meaning, flag) != bool(operated & set(kinds)):
                wrong.append(f"letter {letter!r}: {flag} is not what its operations do")
        if operated & set(operations.ALWAYS_DRAWING) and not meaning.draws:
            wrong.append(f"letter {letter!r} needs noise: draws=True")
        if operations.ADAM in operated and not kind.keeps_second:
            wrong.append(f"letter {letter!r} needs a second moment: keeps_second = True")
        if operated & set(operations.WITH_FRICTION) and not _thermostat(kind):
            wrong.append(f"letter {letter!r} needs a ξ: thermostat = 'part' or 'tensor'")
    letters = [kind.letters.get(letter) for letter in ("" if "word" in names(kind) else kind.word)]
    if letters and not any(letter is not None and letter.moves for letter in letters):
        wrong.append(f"no letter of {kind.word!r} moves θ")
    return wrong


def _thermostat(kind: type[Method]) -> str | None:
    """What has a ξ by default: the class variable, or the default of the option."""
    chosen: Any = kind.thermostat
    return None if isinstance(chosen, property) else str(chosen)


def known_methods() -> dict[str, type[Method]]:
    """All methods that are registered, by name."""
    return dict(_known)


def module_of(kind: type[Method]) -> str | None:
    """The module that defines a method, if it is not one of heatbath's own: what to import to have it."""
    return None if kind.__module__.partition(".")[0] == "heatbath" else kind.__module__


def check_known(kind: type[Method]) -> None:
    """Refuse a method that is not registered, or no longer."""
    if kind not in _known.values():
        name = kind.__name__
        if name in _known:
            raise TypeError(f"{name} was registered anew since this value was made: make it again")
        raise TypeError(f"nobody knows {name} yet: call heatbath.register({name}) first")


def find_method(name: object, module: str | None = None) -> type[Method]:
    """The method of a name; `module` is where it was defined, if it is not one of heatbath's own."""
    kind = _known.get(name) if isinstance(name, str) else None
    if kind is not None and module in (None, kind.__module__):
        return kind
    if kind is not None:
        raise ValueError(
            f"the method {name!r} of {module} is needed, and that of {kind.__module__} is registered"
        )
    cure = f"; it is defined in {module}: import that module first" if module else ""
    if module == "__main__":
        cure = "; it was defined in a script: define it in a module of its own, and import that"
    raise ValueError(f"there is no method {name!r}{cure}; accepted: {', '.join(_known)}")
