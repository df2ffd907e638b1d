"""Partitions: which part of a network has which method.

A network is a sequence of named layers, each with the sizes of its tensors, such as
`{"fc1": (200, 100), "fc2": (100, 1)}`. Its parameters are numbered in that order, weight then bias, as
torch's `parameters_to_vector` does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TypeAlias, TypeVar

import numpy as np

from heatbath._internal.checks import POSITIVE, Interval, real, store, whole
from heatbath.methods import Method, check_known
from heatbath.methods.posterior import Posterior, Prior
from heatbath.methods.ranges import Between
from heatbath.methods.schedules import Coefficient, SimulatedTempering, Stepsize, Value, coefficient, falling
from heatbath.methods.splitting import gradients

Layers: TypeAlias = Mapping[str, Sequence[int]]
Key: TypeAlias = str | int | tuple[str | int, ...]


@dataclass(frozen=True)
class Part:
    """Layers that share one method and one thermostat, and where their tensors lie among all parameters.

    `key` is what named it in the partition: the rule "hidden" makes the parts `hidden1`, `hidden2`, ...
    """

    name: str
    key: Key
    method: Method
    layers: tuple[str, ...]
    tensors: tuple[range, ...]

    @property
    def size(self) -> int:
        """How many parameters it has."""
        return sum(map(len, self.tensors))

    @property
    def thermostats(self) -> tuple[int, ...]:
        """How many parameters each of its ξ serves, if it has any."""
        return self.method.thermostats([len(span) for span in self.tensors])


@dataclass(frozen=True, init=False, repr=False)
class Partition:
    """Methods for the parts of a network, and one stepsize h for all of them: a value.

    `Partition(method, h)` is one part, `all`. `Partition({key: method, ...}, h)` names the parts:

    - `"hidden"`: one part for every layer but the last, called `hidden` or `hidden1`, `hidden2`, ...
    - `"output"`: the last layer.
    - a layer's name, or its index (negative ones count from the end).
    - a tuple of these: all its layers joined into one part, with one ξ if it is Adaptive Langevin.
    - `"rest"`: one part for every layer that no other key names.

    `train` finds the stepsize where h is "auto", and the prior where that of the posterior is.

    A `posterior` sets the temperatures and priors of all parts, which methods then leave out. (Those of
    Adaptive Langevin have a temperature for which its other coefficients are meant.)
    """

    assigned: frozenset[tuple[Key, Method]]
    h: Coefficient
    posterior: Posterior | None = None

    def __init__(
        self, methods: Method | Mapping[Key, Method], h: Stepsize, posterior: Posterior | None = None
    ) -> None:
        given = methods if isinstance(methods, Mapping) else {"all": methods}
        if not given:
            raise ValueError("Partition: at least one part is needed, got none")
        mapping = {_checked_key(key): method for key, method in given.items()}
        for key, method in mapping.items():
            if not isinstance(method, Method):
                raise TypeError(
                    f"Partition: part {key!r} must have a method such as Langevin(gamma=1.0, tau=1e-4), "
                    f"got {method!r}"
                )
            check_known(type(method))
        _check_words(mapping.values())
        _check_tempering(mapping.values())
        _check_posterior(mapping, posterior)
        store(
            self,
            assigned=frozenset(mapping.items()),
            h=h if h == "auto" else coefficient("Partition: h", h, POSITIVE),
            posterior=posterior,
        )

    @property
    def methods(self) -> dict[Key, Method]:
        """The method of each key, as a copy, in a fixed order with the rest last."""
        return dict(sorted(self.assigned, key=lambda pair: (_is_rest(pair[0]), str(pair[0]))))

    def __repr__(self) -> str:
        return self._call(repr)

    @property
    def code(self) -> str:
        """The Python expression that makes it, where the names of heatbath are known."""
        return self._call(lambda method: method.code)

    def _call(self, spelled: Callable[[Method], str]) -> str:
        parts = {key: spelled(method) for key, method in self.methods.items()}
        named = ", ".join(f"{key!r}: {text}" for key, text in parts.items())
        methods = parts["all"] if list(parts) == ["all"] else f"{{{named}}}"
        posterior = "" if self.posterior is None else f", posterior={self.posterior!r}"
        return f"Partition({methods}, h={self.h!r}{posterior})"

    @property
    def finds_stepsize(self) -> bool:
        """Whether h is "auto"."""
        return isinstance(self.h, str)

    def at_stepsize(self, h: Coefficient) -> Partition:
        """The same with another stepsize."""
        return Partition(self.methods, h, self.posterior)

    @property
    def finds_prior(self) -> bool:
        """Whether the prior of its posterior is "auto"."""
        return self.posterior is not None and self.posterior.prior == "auto"

    def at_prior(self, prior: Prior) -> Partition:
        """The same with another prior of its posterior."""
        if self.posterior is None:
            raise ValueError(f"a partition without a posterior has no prior to change: {self!r}")
        return Partition(self.methods, self.h, replace(self.posterior, prior=prior))

    def cooled(self, step: int, factor: float = 30.0) -> Partition:
        """The same until `step`, and colder by a factor from there on: for single networks at a run's end.

        Parts with a temperature have it divided by the factor; where no part has one, h is, by its square
        root.

        >>> import heatbath as hb
        >>> hb.LOL(tau=1e-3).cooled(45_000, factor=100).methods["hidden"].tau
        Piecewise(values=(0.001, 1e-05), steps=(45000,))
        """
        factor = real("cooled: factor", factor, Interval(low=1.0))
        step = whole("cooled: step", step, low=1)
        if self.posterior is not None or self.tempering is not None:
            raise ValueError(
                f"a posterior or a ladder sets its temperature: it cannot be cooled; got {self!r}"
            )
        methods = {key: method.cooled(step, factor) for key, method in self.methods.items()}
        if methods == self.methods:
            return self.at_stepsize(falling(self.h, math.sqrt(factor), step))
        return Partition(methods, self.h)

    @property
    def tempering(self) -> SimulatedTempering | None:
        """The ladder of its tempered parts, if it has any."""
        return next(iter(_ladders(self.methods.values())), None)

    def axes(self) -> dict[str, tuple[Value, ...]]:
        """The axes of a sweep and their values.

        An axis bears its coefficient's name, such as `h` or `tau`: parts that are given the same list for
        the same coefficient share the axis (so a preset's `tau` is one). Where their lists differ, there is
        an axis for each, such as `hidden.tau` and `output.tau`.
        """
        named = _shared({key: method.axes() for key, method in self.methods.items()})
        return {"h": self.h, **named} if isinstance(self.h, tuple) else named

    def ranges(self) -> dict[str, Between]:
        """The coefficients that are to be looked for, and where; named and shared as the axes of a sweep."""
        named = _shared({key: method.ranges() for key, method in self.methods.items()})
        return {"h": self.h, **named} if isinstance(self.h, Between) else named

    def at(self, values: Mapping[str, float]) -> Partition:
        """The partition with a value in place of each of its ranges, by their names."""
        ranges = self.ranges()
        if values.keys() != ranges.keys():
            raise ValueError(f"the ranges are {', '.join(ranges) or 'none'}, got {', '.join(values)}")

        def chosen(name: str, range: Between) -> float:
            places = (axis for axis in ranges if axis.rpartition(".")[2] == name and ranges[axis] == range)
            return values[next(places)]

        methods = {
            key: replace(method, **{name: chosen(name, range) for name, range in method.ranges().items()})
            for key, method in self.methods.items()
        }
        h = chosen("h", self.h) if isinstance(self.h, Between) else self.h
        return Partition(methods, h, self.posterior)

    def parts(self, layers: Layers) -> tuple[Part, ...]:
        """The parts of a network with these layers, in the order of their first layers."""
        tensors = _tensors(layers)
        names = tuple(layers)
        owners: dict[str, Key] = {}
        parts: list[Part] = []
        for key, method in self.methods.items():
            members = _members(key, names, tuple(owners))
            for layer in members:
                if layer in owners:
                    raise ValueError(
                        f"layer {layer!r} is assigned twice, by {owners[layer]!r} and by {key!r}: "
                        "each layer belongs to one part"
                    )
                owners[layer] = key
            for name, chosen in _named(key, sorted(members, key=names.index), names):
                if name in {part.name for part in parts}:
                    raise ValueError(f"two parts would be called {name!r}: rename that layer of the network")
                spans = tuple(span for layer in chosen for span in tensors[layer])
                parts.append(Part(name, key, method, chosen, spans))
        if unassigned := [layer for layer in names if layer not in owners]:
            raise ValueError(
                f"no method for layer {_listed(unassigned)}: name it, or add 'rest' "
                f"(given: {', '.join(map(repr, self.methods))})"
            )
        return tuple(sorted(parts, key=lambda part: names.index(part.layers[0])))


T = TypeVar("T", bound=Hashable)


def _shared(given: Mapping[Key, Mapping[str, T]]) -> dict[str, T]:
    """What parts have for their coefficients, by the coefficients' names where all have the same."""
    found: dict[str, dict[T, str]] = {}  # coefficient: {what it has: the first part with that}
    for key, coefficients in given.items():
        part = "+".join(map(str, key)) if isinstance(key, tuple) else str(key)
        for name, value in coefficients.items():
            found.setdefault(name, {}).setdefault(value, part)
    return {
        name if len(groups) == 1 else f"{part}.{name}": value
        for name, groups in found.items()
        for value, part in groups.items()
    }


def _ladders(methods: Collection[Method]) -> set[SimulatedTempering]:
    return {method.tempering for method in methods if method.tempering}


def _is_rest(key: Key) -> bool:
    return key == "rest" or (isinstance(key, tuple) and "rest" in key)


def _check_words(methods: Collection[Method]) -> None:
    """Words may differ while each needs one gradient per step; otherwise all parts must share one."""
    words = {method.spelling for method in methods if method.moves}
    for method in methods:
        needed = gradients(method.substeps)
        if needed > 1 and len(words) > 1:
            raise ValueError(
                f"Partition: {method.word!r} needs {needed} gradients per step, so all parts must share "
                f"that word; got {', '.join(sorted(words))}. Parts with different words must need one "
                "gradient per step each"
            )


def _check_tempering(methods: Collection[Method]) -> None:
    """One ladder serves all parts."""
    ladders = _ladders(methods)
    if len(ladders) > 1:
        raise ValueError(
            f"Partition: one rung serves all parts, so tempered parts must share one SimulatedTempering; got "
            f"{', '.join(map(repr, ladders))}"
        )


def _check_posterior(methods: Mapping[Key, Method], posterior: object) -> None:
    """Temperatures and priors are given by the methods or by the posterior."""
    if not isinstance(posterior, Posterior | None):
        raise TypeError(f"Partition: posterior must be a Posterior or None, got {posterior!r}")
    for key, method in methods.items():
        told = f"Partition: part {key!r} is {method!r}"
        if posterior is None and method.needs_temperature:
            raise ValueError(f"{told}: it needs {method.thermal}, or the partition posterior=Posterior()")
        if posterior is not None and (method.prior != 0 or method.tempering):
            raise ValueError(f"{told}: with a posterior leave out weight_decay and simulated tempering")
        if posterior is not None and method.may_leave_temperature and not method.needs_temperature:
            raise ValueError(f"{told}: the posterior sets {method.thermal}, so leave it out")


def _checked_key(key: object) -> Key:
    """A key is a name, an index, or a tuple of them."""
    if isinstance(key, tuple) and key:
        return tuple(_checked_single(single, key) for single in key)
    return _checked_single(key, key)


def _checked_single(single: object, key: object) -> str | int:
    if isinstance(single, str):
        return single
    if isinstance(single, (int, np.integer)) and not isinstance(single, bool):
        return int(single)
    raise TypeError(
        "Partition: a part is named by 'hidden', 'output', 'rest', a layer's name, its index, or a tuple "
        f"of these; got {key!r}"
    )


def _tensors(layers: Layers) -> dict[str, tuple[range, ...]]:
    """The positions of each layer's tensors among all parameters."""
    if not layers:
        raise ValueError("a network needs at least one layer, got none")
    spans: dict[str, tuple[range, ...]] = {}
    begin = 0
    for name, sizes in layers.items():
        if not isinstance(sizes, Sequence) or not sizes:
            raise ValueError(
                f"layer {name!r} must have the sizes of its tensors, such as (200, 100); got {sizes!r}"
            )
        label = f"layer {name!r}: the size of a tensor"
        ends = list(accumulate((whole(label, size, low=1) for size in sizes), initial=begin))
        spans[name] = tuple(map(range, ends[:-1], ends[1:]))
        begin = ends[-1]
    return spans


def _members(key: Key, layers: tuple[str, ...], taken: tuple[str, ...]) -> tuple[str, ...]:
    """The layers that a key names; `taken` are those that were named before."""
    if isinstance(key, tuple):
        members: tuple[str, ...] = ()
        for single in sorted(key, key=_is_rest):
            members += _members(single, layers, taken + members)
        return members
    if isinstance(key, int):
        if not -len(layers) <= key < len(layers):
            raise ValueError(f"there is no layer {key}: this network has {len(layers)}, {_listed(layers)}")
        return (layers[key],)
    if key == "all":
        return layers
    rules = {
        "hidden": layers[:-1],
        "output": layers[-1:],
        "rest": tuple(layer for layer in layers if layer not in taken),
    }
    if key not in rules:
        if key not in layers:
            raise ValueError(
                f"there is no layer {key!r}: accepted are {_listed(layers)}, their indices, 'hidden', "
                "'output' and 'rest'"
            )
        return (key,)
    chosen = rules[key]
    if key in layers and chosen != (key,):
        raise ValueError(
            f"{key!r} is a rule, here for {_listed(chosen)}, and also the name of a layer: use indices"
        )
    if key == "hidden" and not chosen:
        raise ValueError(f"'hidden' names no layer: this network has only {_listed(layers)}")
    return chosen


def _named(key: Key, members: Sequence[str], layers: Sequence[str]) -> list[tuple[str, tuple[str, ...]]]:
    """The parts that a key makes of its layers: their names and layers."""
    if key in ("hidden", "rest"):  # a part for each layer
        numbered = len(members) > 1
        return [(f"{key}{i}" if numbered else str(key), (layer,)) for i, layer in enumerate(members, start=1)]
    singles = key if isinstance(key, tuple) else (key,)
    name = "+".join(layers[single] if isinstance(single, int) else single for single in singles)
    return [(name, tuple(members))] if members else []


def _listed(layers: Sequence[str]) -> str:
    return ", ".join(map(repr, layers))
