"""Search spaces: methods with ranges, and the candidates that a quasi-random design places in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from functools import partial
from inspect import signature
from itertools import cycle, islice
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from heatbath._internal.checks import whole
from heatbath.methods import Method, known_methods
from heatbath.methods.partition import Partition
from heatbath.methods.presets import PRESETS, SEARCHED
from heatbath.methods.ranges import Between

Searched: TypeAlias = "str | Partition | type[Method] | Callable[..., Partition] | Mapping[str, Any] | Family"
"""A search space: a preset or method, or its name, with its default ranges; arguments for a named one, as
ranges or values; a partition with ranges; or a `Family`."""


@dataclass(frozen=True, eq=False)
class Family:
    """The search space of one method: everything that differs only in the values of some coefficients.

    Parameters
    ----------
    name
        Name of the method.
    ranges
        Range of each coefficient, by name; empty if the method has one candidate.
    make
        Function that makes a partition, or a factory of optimisers, from values by name.
    code
        Function that returns the Python expression for it, with the names of heatbath or heatbath.torch.
    """

    name: str
    ranges: Mapping[str, Between]
    make: Callable[[Mapping[str, float]], Any]
    code: Callable[[Mapping[str, float]], str]

    def shares(self, values: Mapping[str, float]) -> list[float]:
        """Return the position of each value in its range, from 0 to 1."""
        return [between.share(values[name]) for name, between in self.ranges.items()]

    def values_at(self, positions: Sequence[float]) -> dict[str, float]:
        """Return the value of each coefficient at a position in its range, from 0 to 1; undoes `shares`."""
        ranges = zip(self.ranges.items(), positions, strict=True)
        return {name: between.at(position) for (name, between), position in ranges}


@dataclass(frozen=True, eq=False)
class Candidate:
    """A candidate of a family: its name, and its values by coefficient."""

    name: str
    family: Family
    values: dict[str, float]

    @property
    def made(self) -> Any:
        """The partition with these values, or a function that makes the optimiser."""
        return self.family.make(self.values)


def families(methods: Searched | Sequence[Searched] | Mapping[str, Searched]) -> list[Family]:
    """Return the search space of each method.

    Parameters
    ----------
    methods
        One method, a list of methods, or methods by name.

    Raises
    ------
    ValueError
        If there is no method, or two have the same name.
    """
    if isinstance(methods, Mapping):
        spaces = [_family(searched, str(name)) for name, searched in methods.items()]
    elif isinstance(methods, (list, tuple)):
        spaces = [_family(searched, None) for searched in methods]
    else:
        spaces = [_family(methods, None)]

    if not spaces:
        raise ValueError("tune needs at least one method, got none")
    repeated = repeated_names(spaces)
    if repeated:
        raise ValueError(
            f"each method needs a name of its own, and there are several {', '.join(repeated)}: give them as "
            "a dict, {name: method}"
        )
    return spaces


def repeated_names(families: Sequence[Family]) -> list[str]:
    """Return the names that several families have, in alphabetical order."""
    name_counts = Counter(family.name for family in families)
    return sorted(name for name, count in name_counts.items() if count > 1)


def points(
    family: Family, count: int, seed: int, first: int = 0, near: Sequence[Candidate] = (), width: float = 1.0
) -> list[Candidate]:
    """Return candidates of a family that fill its ranges evenly, or boxes around given candidates.

    Parameters
    ----------
    family
        The family. Without ranges it has one candidate, and none near others.
    count
        Number of candidates.
    seed
        Seed of the quasi-random design.
    first
        Number of the first candidate, for the names.
    near
        Centres of the boxes, taken in turn; none to fill the ranges.
    width
        Width of the boxes as a share of the ranges.
    """
    if not family.ranges and near:
        return []
    if not family.ranges:
        return [Candidate(f"{family.name} {first}", family, {})]

    positions = design(len(family.ranges), count, seed)
    if near:
        centres_in_turn = islice(cycle(near), count)
        centres = np.array([family.shares(centre.values) for centre in centres_in_turn])
        positions = np.clip(centres + width * (positions - 0.5), 0.0, 1.0)
    return [
        Candidate(f"{family.name} {number}", family, family.values_at(candidate_positions))
        for number, candidate_positions in enumerate(positions.tolist(), start=first)
    ]


def design(dimensions: int, count: int, seed: int) -> NDArray[np.float64]:
    """Return Sobol points in the unit cube, shifted at random modulo 1: (count, dimensions)."""
    from scipy.stats import qmc

    count = whole("candidates", count, low=1, high=2**16)
    points = qmc.Sobol(dimensions, scramble=False).random_base2((count - 1).bit_length())[:count]
    shift = np.random.default_rng(np.random.SeedSequence((seed, dimensions))).random(dimensions)
    return np.asarray((points + shift) % 1.0)


def _family(searched: object, name: str | None) -> Family:
    """Return the search space of one method, in any of the forms of `Searched`.

    Parameters
    ----------
    searched
        The method.
    name
        Name to use; None for the usual one. Arguments for a method need its name.
    """
    if isinstance(searched, Family):
        return replace(searched, name=name or searched.name)
    if isinstance(searched, Partition):
        axes = searched.axes()
        if axes:
            raise ValueError(
                f"{', '.join(axes)}: tune looks within ranges, such as between(0.02, 0.5), and takes no "
                f"list; got {', '.join(map(repr, axes.values()))}"
            )
        return _family_of_partitions(name or "partition", searched.ranges(), searched.at)
    if isinstance(searched, str):
        return _family(_method_named(searched), name)
    if isinstance(searched, Mapping) and name is not None:
        return _with_arguments(name, searched)
    for preset_name, preset in PRESETS.items():
        if searched is preset:
            code = partial(call_of, preset_name)
            return Family(name or preset_name, SEARCHED[preset_name], partial(_make, preset), code)
    if isinstance(searched, type) and issubclass(searched, Method):
        if "h" not in searched.searched:
            raise ValueError(
                f"{searched.__name__} has no ranges to search in: tune a Partition(...) with ranges instead"
            )
        return _family_of_partitions(name or searched.title, searched.searched, partial(_make, searched))
    raise TypeError(
        "a method to tune is a preset such as AdLaLa, a method such as Adam, the name of one, or a partition "
        f"with ranges such as AdLaLa(h=between(0.02, 0.5)); got {searched!r}"
    )


def _method_named(name: str) -> Callable[..., Partition] | type[Method]:
    """Return the preset or method with a name, in upper or lower case."""
    methods: dict[str, Callable[..., Partition] | type[Method]] = {
        **{preset.lower(): function for preset, function in PRESETS.items()},
        **{kind.title.lower(): kind for kind in known_methods().values() if kind.searched},
    }
    if name.lower() not in methods:
        raise ValueError(f"there is no method {name!r} to tune; accepted: {', '.join(methods)}")
    return methods[name.lower()]


def _with_arguments(name: str, arguments: Mapping[str, Any]) -> Family:
    """Return the search space of a named preset or method with some arguments.

    Parameters
    ----------
    name
        The preset or method.
    arguments
        Ranges that replace the default ones, and values that stay fixed.
    """
    method = _method_named(name)
    default = _family(method, name)
    accepted = list(dict.fromkeys(["h", *signature(method).parameters]))
    unknown = [str(key) for key in arguments if key not in accepted]
    if unknown:
        raise ValueError(f"{name} has no {', '.join(unknown)}; accepted: {', '.join(accepted)}")

    fixed = {key: value for key, value in arguments.items() if not isinstance(value, Between)}
    searched = {**default.ranges, **arguments}
    ranges = {key: between for key, between in searched.items() if key not in fixed}

    def make(values: Mapping[str, Any]) -> Partition:
        """Return the partition with the fixed arguments, and values of the others."""
        return _make(method, {**fixed, **values})

    _family(make(ranges), name)  # refuses lists, and ranges with impossible ends
    if fixed:
        return _family_of_partitions(name, ranges, make)
    return Family(name, ranges, make, default.code)


def call_of(name: str, values: Mapping[str, object], *first: str) -> str:
    """Return a call as Python code, with positional arguments `first` and keyword arguments `values`."""
    keywords = [f"{key}={value!r}" for key, value in values.items()]
    return f"{name}({', '.join([*first, *keywords])})"


def _family_of_partitions(
    name: str, ranges: Mapping[str, Between], make: Callable[[Mapping[str, float]], Partition]
) -> Family:
    """Return a search space whose code is that of the partitions that `make` returns."""
    return Family(name, ranges, make, lambda values: make(values).code)


def _make(method: Callable[..., Partition] | type[Method], values: Mapping[str, Any]) -> Partition:
    """Return the partition of a preset, or of one method for all parts, with values by name.

    Raises
    ------
    ValueError
        If a coefficient without a default has no value.
    """
    if not isinstance(method, type):
        return method(**values)
    coefficients = {name: value for name, value in values.items() if name != "h"}
    required = [field.name for field in fields(method) if field.default is MISSING]
    missing = [name for name in required if name not in coefficients]
    if missing:
        ranges = ", ".join(f"{name}=between(...)" for name in missing)
        raise ValueError(
            f"{method.__name__} has no range to search in for {', '.join(missing)}: give it one in "
            f"{method.__name__}.searched, or tune Partition({method.__name__}({ranges}), between(...))"
        )
    return Partition(method(**coefficients), values["h"])
