"""Describe the methods that the page offers: their parts, coefficients, letters and words.

Everything comes from the presets and the registered methods. A coefficient's slider goes from a tenth of the
range in which `tune` searches for it to ten times that range.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeAlias

from heatbath._internal.checks import NON_NEGATIVE
from heatbath.methods import Method, coefficients, known_methods
from heatbath.methods.base import STEPSIZE, Argument, describe
from heatbath.methods.partition import Partition
from heatbath.methods.presets import PRESETS, MethodChoice, method_choices
from heatbath.methods.ranges import Between, between

# The range of a coefficient that `tune` doesn't search for and whose default gives no scale
FALLBACK_RANGE = between(1e-7, 1e-1)
FALLBACK_STEPSIZE_RANGE = between(1e-3, 1.0)

Location: TypeAlias = tuple[str, str]  # a part and its coefficient; ("", "h") for the stepsize


def method_names() -> list[str]:
    """Return the methods that a run can have: presets, and registered methods that move."""
    return [*PRESETS, *(name for name, kind in known_methods().items() if kind.letters)]


def default_partition(name: str) -> Partition:
    """Return the partition of a preset or method with its default coefficients."""
    choice = method_choices()[name]
    return choice.make(**_required_values(choice))


def _required_values(choice: MethodChoice) -> dict[str, float]:
    """Return the middle of its range for each argument that has no default."""
    return {name: choice.searched.get(name, FALLBACK_RANGE).at(0.5) for name in choice.required()}


def catalogue() -> dict[str, Any]:
    """Return the description of all methods and letters that the page receives."""
    letters: dict[str, dict[str, str]] = {}
    for name in method_names():
        for method in default_partition(name).methods.values():
            if method.spelled:
                for letter, meaning in method.letters.items():
                    description = {"symbol": meaning.formula or letter, "about": meaning.description}
                    letters.setdefault(letter, description)
    return {"methods": [_describe_choice(name) for name in method_names()], "letters": letters}


def _describe_choice(name: str) -> dict[str, Any]:
    """Return the page's description of a preset or method: its first paragraph, slider of h and parts."""
    if name in PRESETS:
        kind = "preset"
        docstring = PRESETS[name].__doc__ or ""
    else:
        kind = "method"
        docstring = known_methods()[name].__doc__ or ""
    first_paragraph = docstring.strip().split("\n\n")[0]

    partition = default_partition(name)
    ranges = _ranges(method_choices()[name])
    stepsize_range = ranges.get(("", "h"), FALLBACK_STEPSIZE_RANGE)
    assert isinstance(partition.h, float)
    return {
        "name": name,
        "kind": kind,
        "about": " ".join(first_paragraph.split()),
        "h": _slider(STEPSIZE, stepsize_range, partition.h),
        "parts": [_describe_part(str(key), method, ranges) for key, method in partition.methods.items()],
    }


def _describe_part(key: str, method: Method, ranges: Mapping[Location, Between]) -> dict[str, Any]:
    """Return the page's description of one part: its method, word, sliders and options.

    Parameters
    ----------
    key : str
        Name of the part.
    method : Method
        Method of the part, with its default coefficients.
    ranges : mapping from (part, coefficient) to Between
        Ranges that the arguments of the preset have.
    """
    hidden = method.idle - {"weight_decay"}  # coefficients that would replace those shown
    sliders = []
    options = []
    for name, argument in describe(type(method)).items():
        default = getattr(method, name)
        if argument.varies and name not in hidden:
            usual_range = method.searched.get(name) or _range_around(argument.default)
            sliders.append(_slider(argument, ranges.get((key, name), usual_range), default))
        elif argument.choices:
            choices = list(argument.choices)
            options.append({"name": name, "about": argument.text, "choices": choices, "default": default})

    return {
        "name": key,
        "method": type(method).__name__,
        "word": method.word if method.spelled else None,
        "letters": "".join(method.letters) if method.spelled else "",
        "coefficients": sliders,
        "options": options,
    }


def _slider(argument: Argument, searched: Between, default: float) -> dict[str, Any]:
    """Return the page's description of a slider.

    Parameters
    ----------
    argument : Argument
        The coefficient: its name, symbol, text and accepted values.
    searched : Between
        Range in which `tune` searches, and its scale. The slider's range is wider, includes the default value
        and stays within what is accepted.
    default : float
        Default value, which may be infinite.
    """
    accepted = argument.accepted or NON_NEGATIVE
    low, high = _widen(searched)
    if math.isfinite(default) and default > 0:
        low = min(low, default)
        high = max(high, default)
    low = max(low, accepted.low)
    high = min(high, math.nextafter(accepted.high, 0))

    return {
        "name": argument.name,
        "symbol": argument.symbol,
        "about": argument.text,
        "low": float(f"{low:.6g}"),
        "high": float(f"{high:.6g}"),
        "scale": searched.scale,
        "default": "inf" if math.isinf(default) else default,
        "zero": 0.0 in accepted,
        "infinite": accepted.infinite,
    }


def _widen(searched: Between) -> tuple[float, float]:
    """Return the ends of a range ten times as far out on its scale; a linear range stays as it is."""
    if searched.scale == "log":
        return searched.low / 10, 10 * searched.high
    if searched.scale == "complement":  # of 1 - x
        return 0.0, 1 - (1 - searched.high) / 10
    return searched.low, searched.high


def _range_around(default: object) -> Between:
    """Return the range of a coefficient that `tune` doesn't search for."""
    if not isinstance(default, float) or not 0 < default < math.inf:
        return FALLBACK_RANGE
    return between(default / 100, 100 * default)


def _ranges(choice: MethodChoice) -> dict[Location, Between]:
    """Return the range of each coefficient that an argument of a preset or method sets.

    An argument of a preset may set coefficients of several parts, so each is changed to see its effect.
    """
    required = _required_values(choice)
    default_values = _coefficient_values(choice.make(**required))
    ranges: dict[Location, Between] = {}
    for argument, searched in choice.searched.items():
        unusual_value = searched.at(0.123)  # surely none of the defaults
        changed_partition = choice.make(**{**required, argument: unusual_value})
        for location, value in _coefficient_values(changed_partition).items():
            if value != default_values[location]:
                ranges[location] = searched
    return ranges


def _coefficient_values(partition: Partition) -> dict[Location, object]:
    """Return the stepsize and all coefficients of the parts."""
    values: dict[Location, object] = {("", "h"): partition.h}
    for key, method in partition.methods.items():
        for name in coefficients(type(method)):
            values[str(key), name] = getattr(method, name)
    return values
