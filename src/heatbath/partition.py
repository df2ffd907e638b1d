"""Partitions: which part of a network has which method, and the presets of the paper.

A network is a sequence of named layers, each with the sizes of its tensors, such as
`{"fc1": (200, 100), "fc2": (100, 1)}`. Its parameters are numbered in that order, weight then bias, as
torch's `parameters_to_vector` does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeAlias, get_args

from heatbath.checks import POSITIVE, store, whole
from heatbath.methods import AdaptiveLangevin, Frozen, Langevin, Method, axes
from heatbath.schedules import Coefficient, SimulatedTempering, coefficient
from heatbath.splitting import gradients, parse

Layers: TypeAlias = Mapping[str, Sequence[int]]
Key: TypeAlias = str | int | tuple[str | int, ...]

RULES = ("hidden", "output", "rest", "all")


@dataclass(frozen=True)
class Part:
    """Layers that share one method and one thermostat, and where their tensors lie among all parameters."""

    name: str
    method: Method
    layers: tuple[str, ...]
    tensors: tuple[range, ...]

    @property
    def size(self) -> int:
        """How many parameters it has."""
        return sum(map(len, self.tensors))


@dataclass(frozen=True, init=False, repr=False)
class Partition:
    """Methods for the parts of a network, and one stepsize h for all of them: a value.

    `Partition(method, h)` is one part, `all`. `Partition({key: method, ...}, h)` names the parts:

    - `"hidden"`: one part for every layer but the last, called `hidden` or `hidden1`, `hidden2`, ...
    - `"output"`: the last layer.
    - a layer's name, or its index (negative ones count from the end).
    - a tuple of these: all its layers joined into one part, with one ξ if it is Adaptive Langevin.
    - `"rest"`: one part for every layer that no other key names.
    """

    methods: Mapping[Key, Method]
    h: Coefficient

    def __init__(self, methods: Method | Mapping[Key, Method], h: Coefficient) -> None:
        mapping: dict[Key, Method] = dict(methods) if isinstance(methods, Mapping) else {"all": methods}
        if not mapping:
            raise ValueError("Partition: at least one part is needed, got none")
        for key, method in mapping.items():
            _check_key(key)
            if not isinstance(method, get_args(Method)):
                raise TypeError(
                    f"Partition: part {key!r} must have a method such as Langevin(gamma=1.0, tau=1e-4), "
                    f"got {method!r}"
                )
        _check_words(mapping)
        _check_tempering(mapping)
        store(self, methods=mapping, h=coefficient("Partition: h", h, POSITIVE))

    def __hash__(self) -> int:
        return hash((frozenset(self.methods.items()), self.h))

    def __repr__(self) -> str:
        methods = self.methods["all"] if list(self.methods) == ["all"] else self.methods
        return f"Partition({methods!r}, h={self.h!r})"

    def axes(self) -> list[str]:
        """The coefficients that are axes of a sweep, such as `h` or `hidden.tau`."""
        named = [f"{key}.{name}" for key, method in self.methods.items() for name in axes(method)]
        return (["h"] if isinstance(self.h, tuple) else []) + named

    def parts(self, layers: Layers) -> tuple[Part, ...]:
        """The parts of a network with these layers, in the order of their first layers."""
        tensors = _tensors(layers)
        names = tuple(layers)
        owners: dict[str, Key] = {}
        parts = []
        for key in sorted(self.methods, key=_is_rest):  # the rest is what the others leave
            members = _members(key, names, owners)
            for layer in members:
                if layer in owners:
                    raise ValueError(
                        f"layer {layer!r} is assigned twice, by {owners[layer]!r} and by {key!r}: "
                        "each layer belongs to one part"
                    )
                owners[layer] = key
            for name, chosen in _named(key, members, names):
                spans = tuple(span for layer in chosen for span in tensors[layer])
                parts.append(Part(name, self.methods[key], chosen, spans))
        if unassigned := [layer for layer in names if layer not in owners]:
            raise ValueError(
                f"no method for layer {', '.join(map(repr, unassigned))}: name it, or add 'rest' "
                f"(given: {', '.join(map(repr, self.methods))})"
            )
        for i, part in enumerate(parts):
            if part.name in {other.name for other in parts[:i]}:
                raise ValueError(f"two parts would be called {part.name!r}: rename that layer of the network")
        return tuple(sorted(parts, key=lambda part: names.index(part.layers[0])))


def LaLa(
    h: Coefficient,
    gamma: Coefficient,
    tau: Coefficient,
    gamma_output: Coefficient | None = None,
    tau_output: Coefficient | None = None,
) -> Partition:
    """Langevin in layers: a friction and a temperature for the hidden layers, others for the output layer.

    Section 3.1 of the paper. None: as the hidden layers.
    """
    output = Langevin(_or(gamma_output, gamma), _or(tau_output, tau))
    return Partition({"hidden": Langevin(gamma, tau), "output": output}, h)


def LOL(
    h: Coefficient = 0.1, gamma: Coefficient = 0.01, tau: Coefficient = 1e-3, tau_output: Coefficient = 0.0
) -> Partition:
    """Langevin in the hidden layers, overdamped Langevin (BAOAB with γ = inf) in the output layer.

    Section 3.2 of the paper.
    """
    output = Langevin(gamma=float("inf"), tau=tau_output)
    return Partition({"hidden": Langevin(gamma, tau), "output": output}, h)


def AdLaLa(
    h: Coefficient = 0.15,
    tau: Coefficient = 1e-4,
    sigma: Coefficient = 0.01,
    epsilon: Coefficient = 0.1,
    gamma: Coefficient = 0.1,
    tau_output: Coefficient | None = None,
) -> Partition:
    """Adaptive Langevin in the hidden layers, Langevin with friction `gamma` in the output layer.

    Equation (8) of the paper; the defaults are its rules of thumb. `tau_output` None: as the hidden layers.
    """
    hidden = AdaptiveLangevin(tau, sigma, epsilon)
    return Partition({"hidden": hidden, "output": Langevin(gamma, _or(tau_output, tau))}, h)


def AdLAdL(
    h: Coefficient = 0.15,
    tau: Coefficient = 1e-4,
    sigma: Coefficient = 0.01,
    epsilon: Coefficient = 0.1,
    tau_output: Coefficient | None = None,
    sigma_output: Coefficient | None = None,
    epsilon_output: Coefficient | None = None,
) -> Partition:
    """Adaptive Langevin in every layer, each with a ξ of its own. Section 3.3 of the paper.

    None: as the hidden layers.
    """
    hidden = AdaptiveLangevin(tau, sigma, epsilon)
    output = AdaptiveLangevin(_or(tau_output, tau), _or(sigma_output, sigma), _or(epsilon_output, epsilon))
    return Partition({"hidden": hidden, "output": output}, h)


def _or(value: Coefficient | None, otherwise: Coefficient) -> Coefficient:
    return otherwise if value is None else value


def _is_rest(key: Key) -> bool:
    return key == "rest" or (isinstance(key, tuple) and "rest" in key)


def _check_words(methods: Mapping[Key, Method]) -> None:
    """Words may differ while each needs one gradient per step; otherwise all parts must share one."""
    words: dict[str | None, str] = {}
    many = None
    for method in methods.values():
        if isinstance(method, Frozen):
            continue
        word = getattr(method, "word", None)
        words[word] = word or type(method).__name__
        if word is not None and (needed := gradients(parse(word, type(method).__name__))) > 1:
            many = f"{word!r} needs {needed} gradients per step"
    if many and len(words) > 1:
        raise ValueError(
            f"Partition: {many}, so all parts must share that word; got {', '.join(words.values())}. "
            "Parts with different words must need one gradient per step each"
        )


def _check_tempering(methods: Mapping[Key, Method]) -> None:
    """One ladder serves all parts."""
    taus = [getattr(method, "tau", None) for method in methods.values()]
    ladders = {tau for tau in taus if isinstance(tau, SimulatedTempering)}
    if len(ladders) > 1:
        raise ValueError(
            f"Partition: one rung serves all parts, so tempered parts must share one SimulatedTempering; got "
            f"{', '.join(map(repr, ladders))}"
        )


def _check_key(key: object) -> None:
    """A key is a name, an index, or a tuple of them."""
    singles = key if isinstance(key, tuple) and key else (key,)
    if any(isinstance(single, bool) or not isinstance(single, (str, int)) for single in singles):
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


def _members(key: Key, layers: tuple[str, ...], owners: Mapping[str, Key]) -> tuple[str, ...]:
    """The layers that a key names; `owners` are the layers already assigned."""
    if isinstance(key, tuple):
        return tuple(layer for single in key for layer in _members(single, layers, owners))
    if isinstance(key, int):
        if not -len(layers) <= key < len(layers):
            raise ValueError(f"there is no layer {key}: this network has {len(layers)}, {_listed(layers)}")
        return (layers[key],)
    if key not in RULES:
        if key not in layers:
            raise ValueError(
                f"there is no layer {key!r}: accepted are {_listed(layers)}, their indices, 'hidden', "
                "'output' and 'rest'"
            )
        return (key,)
    chosen = {
        "all": layers,
        "hidden": layers[:-1],
        "output": layers[-1:],
        "rest": tuple(layer for layer in layers if layer not in owners),
    }[key]
    if not chosen and key != "rest":
        raise ValueError(f"{key!r} names no layer: this network has only {_listed(layers)}")
    if key in layers and chosen != (key,):
        raise ValueError(
            f"{key!r} is a rule, here for {_listed(chosen)}, and also the name of a layer: use indices"
        )
    return chosen


def _named(key: Key, members: tuple[str, ...], layers: tuple[str, ...]) -> list[tuple[str, tuple[str, ...]]]:
    """The parts that a key makes of its layers: their names and layers."""
    if key in ("hidden", "rest"):  # a part for each layer
        numbered = len(members) > 1
        return [(f"{key}{i}" if numbered else str(key), (layer,)) for i, layer in enumerate(members, start=1)]
    singles = key if isinstance(key, tuple) else (key,)
    name = "+".join(layers[single] if isinstance(single, int) else single for single in singles)
    return [(name, members)] if members else []


def _listed(layers: Sequence[str]) -> str:
    return ", ".join(map(repr, layers))
