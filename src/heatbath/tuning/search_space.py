"""What is searched: methods with ranges, and the candidates that a quasi-random design makes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from functools import partial
from inspect import signature
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from heatbath._internal.checks import whole
from heatbath.methods import Method, known_methods
from heatbath.methods.partition import Partition
from heatbath.methods.presets import PRESETS, SEARCHED
from heatbath.methods.ranges import Between

Searched: TypeAlias = "str | Partition | type[Method] | Callable[..., Partition] | Mapping[str, Any] | Family"
"""What is searched of a method: a preset or a method, or its name, within ranges of its own; some arguments
for the one that is named, with ranges or values; a partition with ranges; or a family of partitions."""


@dataclass(frozen=True, eq=False)
class Family:
    """What is searched of one method: all that differs in the values of some coefficients.

    Of values by name `make` makes what is tried, and `code` the Python expression for it, where the names of
    heatbath (of heatbath.torch, for an optimiser) are known.
    """

    name: str
    ranges: Mapping[str, Between]
    make: Callable[[Mapping[str, float]], Any]
    code: Callable[[Mapping[str, float]], str]

    def shares(self, values: Mapping[str, float]) -> list[float]:
        """Where values are in their ranges, from 0 to 1."""
        return [range.share(values[name]) for name, range in self.ranges.items()]


@dataclass(frozen=True, eq=False)
class Candidate:
    """What is tried: what it is called, and its values."""

    name: str
    family: Family
    values: dict[str, float]

    @property
    def made(self) -> Any:
        """What its family makes of its values: a partition, or a function that makes an optimiser."""
        return self.family.make(self.values)


def families(methods: Searched | Sequence[Searched] | Mapping[str, Searched]) -> list[Family]:
    """What is searched of each of the methods that were given; all that is wrong with them is refused."""
    if isinstance(methods, Mapping):
        given = [_family(searched, str(name)) for name, searched in methods.items()]
    else:
        several = methods if isinstance(methods, (list, tuple)) else (methods,)
        given = [_family(searched, None) for searched in several]
    if not given:
        raise ValueError("tune needs at least one method, got none")
    names = [family.name for family in given]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(
            f"each method needs a name of its own, and there are several {', '.join(twice)}: give them as a "
            "dict, {name: method}"
        )
    return given


def points(
    family: Family,
    count: int,
    seed: int,
    first: int = 0,
    near: Sequence[Candidate] = (),
    width: float = 1.0,
) -> list[Candidate]:
    """Candidates of a family, numbered from `first` on, that fill its ranges evenly.

    With others that they are to be `near`, in turn, they fill boxes about these, of a `width` that is a share
    of the ranges. A family without ranges has one candidate, and none near it. They do not depend on other
    families.
    """
    if not family.ranges:
        return [] if near else [Candidate(f"{family.name} {first}", family, {})]
    shares = design(len(family.ranges), count, seed)
    if near:
        centres = np.array([family.shares(near[i % len(near)].values) for i in range(count)])
        shares = np.clip(centres + width * (shares - 0.5), 0.0, 1.0)
    return [
        Candidate(
            f"{family.name} {first + number}",
            family,
            {name: range.at(share) for (name, range), share in zip(family.ranges.items(), row, strict=True)},
        )
        for number, row in enumerate(shares.tolist())
    ]


def design(dimensions: int, count: int, seed: int) -> NDArray[np.float64]:
    """Points that fill the unit cube evenly, (count, dimensions): Sobol's, shifted at random modulo 1."""
    from scipy.stats import qmc

    count = whole("candidates", count, low=1, high=2**16)
    points = qmc.Sobol(dimensions, scramble=False).random_base2((count - 1).bit_length())[:count]
    shift = np.random.default_rng(np.random.SeedSequence((seed, dimensions))).random(dimensions)
    return np.asarray((points + shift) % 1.0)


def _family(searched: object, name: str | None) -> Family:
    if isinstance(searched, Family):
        return replace(searched, name=name or searched.name)
    if isinstance(searched, Partition):
        if axes := searched.axes():
            raise ValueError(
                f"{', '.join(axes)}: tune looks within ranges, such as between(0.02, 0.5), and takes no "
                f"list; got {', '.join(map(repr, axes.values()))}"
            )
        return _of_partitions(name or "partition", searched.ranges(), searched.at)
    if isinstance(searched, str):
        return _family(_named(searched), name)
    if isinstance(searched, Mapping) and name is not None:
        return _with_arguments(name, searched)
    for preset, function in PRESETS.items():
        if searched is function:
            return Family(
                name or preset, SEARCHED[preset], partial(_made, function), partial(call_of, preset)
            )
    if isinstance(searched, type) and issubclass(searched, Method):
        if "h" not in searched.searched:
            raise ValueError(f"{searched.__name__} has no ranges to search in: say them, with Partition(...)")
        return _of_partitions(name or searched.title, searched.searched, partial(_made, searched))
    raise TypeError(
        "a method to tune is a preset such as AdLaLa, a method such as Adam, the name of one, or a partition "
        f"with ranges such as AdLaLa(h=between(0.02, 0.5)); got {searched!r}"
    )


def _named(given: str) -> Callable[..., Partition] | type[Method]:
    """The preset or method of a name, in any case."""
    known: dict[str, Any] = {preset.lower(): function for preset, function in PRESETS.items()}
    known |= {kind.title.lower(): kind for kind in known_methods().values() if kind.searched}
    if given.lower() not in known:
        raise ValueError(f"there is no method {given!r} to tune; accepted: {', '.join(known)}")
    found: Callable[..., Partition] | type[Method] = known[given.lower()]
    return found


def _with_arguments(name: str, arguments: Mapping[str, Any]) -> Family:
    """The preset or method of a name with arguments: ranges in place of its own, and values that stay."""
    known = _named(name)
    usual = _family(known, name)
    accepted = list(dict.fromkeys(["h", *signature(known).parameters]))
    if unknown := [str(key) for key in arguments if key not in accepted]:
        raise ValueError(f"{name} has no {', '.join(unknown)}; accepted: {', '.join(accepted)}")
    fixed = {key: value for key, value in arguments.items() if not isinstance(value, Between)}
    ranges = {key: value for key, value in {**usual.ranges, **arguments}.items() if key not in fixed}

    def make(values: Mapping[str, Any]) -> Partition:
        return _made(known, {**fixed, **values})

    _family(make(ranges), name)  # refuses ends that cannot be, and lists
    return Family(name, ranges, make, (lambda values: make(values).code) if fixed else usual.code)


def call_of(name: str, values: Mapping[str, object], *first: str) -> str:
    """A call in Python, with arguments that come first, and these by name."""
    return f"{name}({', '.join([*first, *(f'{key}={value!r}' for key, value in values.items())])})"


def _of_partitions(
    name: str, ranges: Mapping[str, Between], make: Callable[[Mapping[str, float]], Partition]
) -> Family:
    return Family(name, ranges, make, lambda values: make(values).code)


def _made(known: Callable[..., Partition] | type[Method], values: Mapping[str, Any]) -> Partition:
    """What a preset, or a method for all parts, makes of its arguments."""
    if not isinstance(known, type):
        return known(**values)
    rest = {name: value for name, value in values.items() if name != "h"}
    if needed := [f.name for f in fields(known) if f.default is MISSING and f.name not in rest]:
        ranges = ", ".join(f"{name}=between(...)" for name in needed)
        raise ValueError(
            f"{known.__name__} has no range to search in for {', '.join(needed)}: give it one in "
            f"{known.__name__}.searched, or tune Partition({known.__name__}({ranges}), between(...))"
        )
    return Partition(known(**rest), values["h"])
