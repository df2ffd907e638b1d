"""What a method is, and the list of those that are known.

A method is a frozen dataclass that derives from `Method` and stands in one file: its coefficients, the state
it needs, its letters, and for each letter the map in NumPy and its lowering. Everything else asks the method.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import lru_cache
from typing import Any, ClassVar, Self, TypeVar

from heatbath.checks import FINITE, Interval, choice, store
from heatbath.letters import Letter
from heatbath.schedules import Coefficient, Schedule, SimulatedTempering, Value, coefficient
from heatbath.splitting import Substep, gradients, parse, rotate


def varying(accepted: Interval, text: str, default: float | Any = MISSING, *, tempered: bool = False) -> Any:
    """A field for a coefficient: a number, a schedule, or a list (an axis of a sweep); `text` says which.

    `tempered`: it is a temperature, which may also be a `SimulatedTempering`.
    """
    metadata = {"accepted": accepted, "text": text, "tempered": tempered, "varies": True}
    return field(default=default, metadata=metadata)


def starting(text: str, default: float) -> Any:
    """A field for where ξ starts: a number, or a list."""
    return field(default=default, metadata={"accepted": FINITE, "text": text, "varies": False})


def option(text: str, default: str | int, *others: str | int) -> Any:
    """A field for a choice between the default and others."""
    return field(default=default, metadata={"choices": (default, *others), "text": text})


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
    - `title`: what it is called in tables and, in lower case, on the command line.
    """

    title: ClassVar[str]
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

    @property
    def thermostat(self) -> str | None:
        """What has a ξ."""
        return None

    def check(self) -> None:
        """Refuse a word, or values together, that cannot work."""

    @property
    def substeps(self) -> tuple[Substep, ...]:
        """The letters of its word."""
        return _substeps(type(self), self.word)

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

    def thermostats(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """How many parameters each of its ξ serves in a part whose tensors have these sizes."""
        if self.thermostat is None:
            return ()
        return tuple(sizes) if self.thermostat == "tensor" else (sum(sizes),)

    def friction_on(self, values: Mapping[str, float], xi: float | None) -> float | None:
        """The friction that acts on p, if there is one: ξ, or else γ."""
        return values.get("gamma") if xi is None else xi

    def gradient_noise(self, values: Mapping[str, float], h: float, xi: float | None) -> float | None:
        """The variance of the gradient's noise that the mean of ξ tells, if it tells one."""
        return None

    def with_prior(self, precision: Coefficient) -> Self:
        """The same method with another Gaussian prior; one that has none stays as it is."""
        return replace(self, weight_decay=precision) if self.has_prior else self  # type: ignore[call-arg]

    def axes(self) -> dict[str, tuple[Value, ...]]:
        """The coefficients that are axes of a sweep, with their values."""
        values = {name: getattr(self, name) for name in names(type(self))}
        return {name: value for name, value in values.items() if isinstance(value, tuple)}

    def __repr__(self) -> str:
        """Word and coefficients, what else is not the default, and where θ is not seen at the word's end."""
        always = {"word", *coefficients(type(self))} - {"weight_decay"}
        shown = [f.name for f in fields(self) if f.name in always or getattr(self, f.name) != f.default]
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
        note = " <between steps θ is seen at the kick>" if self.seen_at_kick else ""
        return f"{type(self).__name__}({values}){note}"


def _substeps(kind: Any, word: str) -> tuple[Substep, ...]:
    return _parsed(kind, word)


@lru_cache(maxsize=1024)
def _parsed(kind: Any, word: str) -> tuple[Substep, ...]:
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


def singles(value: Coefficient) -> tuple[Value, ...]:
    """The values of an axis, or the one value."""
    return value if isinstance(value, tuple) else (value,)


# The methods that are known

_known: dict[str, type[Method]] = {}
M = TypeVar("M", bound=type[Method])


def register(kind: M) -> M:
    """Make a method known everywhere: partitions, engine, optimisers, files, the command line.

    For methods outside of heatbath: a decorator above `@dataclass(frozen=True, repr=False)`. The file of a
    run with such a method names the module to import before it is loaded.
    """
    name = getattr(kind, "__name__", repr(kind))
    if not (isinstance(kind, type) and issubclass(kind, Method) and "__dataclass_fields__" in vars(kind)):
        raise TypeError(f"register takes a dataclass that derives from heatbath.methods.Method, got {kind!r}")
    if odd := [letter for letter in kind.letters if len(letter) != 1]:
        raise ValueError(f"{name}: a letter is one character, got {', '.join(map(repr, odd))}")
    if wrong := [f.name for f in fields(kind) if f.name != "word" and not f.metadata]:
        raise ValueError(
            f"{name}: the fields {', '.join(wrong)} must be made by varying, starting or option, so that "
            "everybody knows what they are"
        )
    if "word" not in names(kind) and kind.word and not any(s.kind.moves for s in _substeps(kind, kind.word)):
        raise ValueError(f"{name}: no letter of {kind.word!r} moves θ")
    for other in _known.values():
        same = (other.__module__, other.__qualname__) == (kind.__module__, kind.__qualname__)
        if not same and (other.__name__ == name or other.title.lower() == kind.title.lower()):
            raise ValueError(f"{name}: there is a method of this name already, {other.__module__}.{name}")
    _known[name] = kind
    return kind


def known_methods() -> dict[str, type[Method]]:
    """All methods that are registered, by name."""
    return dict(_known)


def find_method(name: object, module: str | None = None) -> type[Method]:
    """The method of a name; `module` is where it was defined, if it is not one of heatbath's own."""
    if isinstance(name, str) and name in _known:
        return _known[name]
    cure = f"; it is defined in {module}: import that module first" if module else ""
    raise ValueError(f"there is no method {name!r}{cure}; accepted: {', '.join(_known)}")
