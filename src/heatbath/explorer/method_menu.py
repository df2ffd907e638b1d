"""What the page can offer: methods with their parts, coefficients and words, from those that are registered.

Nothing is named by hand but what letters do and how coefficients are written. A coefficient's slider goes
from a tenth of the range in which `tune` looks for it to ten times that.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from dataclasses import MISSING, fields
from functools import lru_cache
from typing import Any

from heatbath._internal.checks import POSITIVE, Interval
from heatbath.methods import Method, known_methods
from heatbath.methods.letters import Letter
from heatbath.methods.partition import Partition
from heatbath.methods.presets import PRESETS, SEARCHED
from heatbath.methods.ranges import Between, between

SYMBOLS = {
    "tau": "τ", "gamma": "γ", "sigma": "σ", "epsilon": "ε", "mu": "μ", "beta1": "β₁", "beta2": "β₂",
    "alpha": "α", "weight_decay": "λ",
}  # fmt: skip
LETTERS = {
    "A": ("θ += t p", "Drift: the parameters move with their momenta."),
    "B": ("p += t G", "Kick: the momenta follow the force, the negative gradient."),
    "O": ("dp = -γ p dt + √(2γτ) dW", "Ornstein-Uhlenbeck: friction and noise of one temperature."),
    "C": ("dp = -ξ p dt", "Friction ξ, which the thermostat moves."),
    "D": ("dp = σ dW", "Driving noise."),
    "E": ("dξ = ε (p·p - Nτ) dt", "Thermostat: ξ rises where it is too hot, and falls where it is too cold."),
    "F": ("dp = -ξ p dt + σ dW", "Friction ξ and driving noise together."),
}
SPARE = between(1e-7, 1e-1)  # of a coefficient that nobody looks for, and that is 0 where it is not said


def names() -> list[str]:
    """What a run's method may be called: presets, and methods that move, for all parts."""
    return [*PRESETS, *(name for name, kind in known_methods().items() if kind.letters)]


@lru_cache(maxsize=64)
def _default(name: str, kind: Any) -> Partition:  # one that was registered anew is another
    if kind is None:
        given = _needed(inspect.signature(PRESETS[name]).parameters, SEARCHED[name])
        return PRESETS[name](**given)
    given = _needed(inspect.signature(kind).parameters, kind.searched)
    return Partition(kind(**given), kind.searched["h"].at(0.5))


def default(name: str) -> Partition:
    """The partition of a method or preset where nothing is said."""
    kind: Any = None if name in PRESETS else known_methods()[name]
    return _default(name, kind)


def _needed(parameters: Mapping[str, inspect.Parameter], searched: Mapping[str, Between]) -> dict[str, float]:
    """Values for what has none: the middle of where it is looked for."""
    missing = [
        name
        for name, parameter in parameters.items()
        if parameter.default is inspect.Parameter.empty
        or (parameter.default is None and name in ("tau", "sigma"))
    ]
    return {name: searched.get(name, SPARE).at(0.5) for name in missing}


def catalogue() -> dict[str, Any]:
    """Methods and letters, as the page gets them."""
    letters: dict[str, dict[str, str]] = {}
    for name in names():
        for method in default(name).methods.values():
            if method.spelled:
                for letter, meaning in method.letters.items():
                    letters.setdefault(letter, _letter(letter, meaning))
    return {"methods": [_method(name) for name in names()], "letters": letters}


def _letter(letter: str, meaning: Letter) -> dict[str, str]:
    if letter in LETTERS:
        formula, about = LETTERS[letter]
        return {"symbol": formula, "about": about}
    does = {
        "moves θ": meaning.moves, "needs the gradient": meaning.kicks, "draws noise": meaning.draws,
        "reads p·p": meaning.reads,
    }  # fmt: skip
    about = ", ".join(what for what, holds in does.items() if holds)
    return {"symbol": letter, "about": about and f"{about[0].upper()}{about[1:]}."}


def _method(name: str) -> dict[str, Any]:
    partition, preset = default(name), name in PRESETS
    about = (PRESETS[name] if preset else known_methods()[name]).__doc__ or ""
    ranges = _ranges(name)
    h = ranges.get(("", "h"), between(1e-3, 1.0))
    assert isinstance(partition.h, float)
    return {
        "name": name,
        "kind": "preset" if preset else "method",
        "about": " ".join(about.strip().split("\n\n")[0].split()),
        "h": _slider("h", "Stepsize.", h, partition.h, POSITIVE),
        "parts": [_part(str(key), method, ranges) for key, method in partition.methods.items()],
    }


def _part(key: str, method: Method, ranges: Mapping[tuple[str, str], Between]) -> dict[str, Any]:
    sliders, options = [], []
    others = method.idle - {"weight_decay"}  # which would take the place of those that there are
    for f in fields(method):
        value, about = getattr(method, f.name), f.metadata.get("text", "")
        if f.metadata.get("varies") and f.name not in others:
            range = ranges.get((key, f.name)) or method.searched.get(f.name) or _around(f.default)
            sliders.append(_slider(f.name, about, range, value, f.metadata["accepted"]))
        elif "choices" in f.metadata:
            options.append(
                {"name": f.name, "about": about, "choices": list(f.metadata["choices"]), "default": value}
            )
    return {
        "name": key,
        "method": type(method).__name__,
        "word": method.word if method.spelled else None,
        "letters": "".join(method.letters) if method.spelled else "",
        "coefficients": sliders,
        "options": options,
    }


def _slider(name: str, about: str, range: Between, value: float, accepted: Interval) -> dict[str, Any]:
    low, high = _widened(range)
    if math.isfinite(value) and value > 0:
        low, high = min(low, value), max(high, value)
    return {
        "name": name,
        "symbol": SYMBOLS.get(name, name),
        "about": about,
        "low": float(f"{max(low, accepted.low):.6g}"),
        "high": float(f"{min(high, math.nextafter(accepted.high, 0)):.6g}"),
        "scale": range.scale,
        "default": "inf" if math.isinf(value) else value,
        "zero": 0.0 in accepted,
        "infinite": accepted.infinite,
    }


def _widened(range: Between) -> tuple[float, float]:
    """Ten times as far as is looked."""
    if range.scale == "log":
        return range.low / 10, 10 * range.high
    if range.scale == "complement":
        return 0.0, 1 - (1 - range.high) / 10
    return range.low, range.high


def _around(default: Any) -> Between:
    """The range of a coefficient that nobody looks for."""
    if default is MISSING or not isinstance(default, float) or not 0 < default < math.inf:
        return SPARE
    return between(default / 100, 100 * default)


def _ranges(name: str) -> dict[tuple[str, str], Between]:
    """Where the coefficients of parts are looked for, and h under ("", "h").

    Which coefficients an argument of a preset sets is seen by setting it.
    """
    if name not in PRESETS:
        kind = known_methods()[name]
        return {("" if n == "h" else "all", n): range for n, range in kind.searched.items()}
    given = _needed(inspect.signature(PRESETS[name]).parameters, SEARCHED[name])
    before = _values(default(name))
    ranges: dict[tuple[str, str], Between] = {}
    for argument, range in SEARCHED[name].items():
        after = _values(PRESETS[name](**{**given, argument: range.at(0.123)}))
        ranges |= {place: range for place, value in after.items() if before[place] != value}
    return ranges


def _values(partition: Partition) -> dict[tuple[str, str], Any]:
    values: dict[tuple[str, str], Any] = {("", "h"): partition.h}
    for key, method in partition.methods.items():
        values |= {(str(key), f.name): getattr(method, f.name) for f in fields(method)}
    return values
