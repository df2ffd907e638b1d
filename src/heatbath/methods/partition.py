"""Define partitions, which give each part of a network its method.

A network is a sequence of named layers, each with the sizes of its tensors, such as
`{"fc1": (200, 100), "fc2": (100, 1)}`. Its parameters are numbered in that order, weight then bias, as
torch's `parameters_to_vector` does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import accumulate, chain, pairwise
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
    """Layers that share one method and one thermostat.

    Attributes
    ----------
    name : str
        Its name, such as "hidden1".
    key : str, int or tuple
        The key of the partition that made it: the rule "hidden" makes the parts `hidden1`, `hidden2`, ...
    method : Method
        Its method.
    layers : tuple of str
        The names of its layers.
    tensors : tuple of range
        The positions of its tensors among all parameters.
    """

    name: str
    key: Key
    method: Method
    layers: tuple[str, ...]
    tensors: tuple[range, ...]

    @property
    def size(self) -> int:
        """Number of its parameters."""
        return sum(map(len, self.tensors))

    @cached_property
    def thermostats(self) -> tuple[int, ...]:
        """Number of parameters that each of its ξ acts on; empty for a method without ξ."""
        return self.method.thermostats([len(span) for span in self.tensors])


@dataclass(frozen=True, init=False, repr=False)
class Partition:
    """Methods for the parts of a network, and one stepsize h for all of them. An immutable value.

    Parameters
    ----------
    methods : Method or mapping
        One method for a single part, `all`, or a method for each key:

        - `"hidden"`: one part for every layer except the last, called `hidden` or `hidden1`, `hidden2`, ...
        - `"output"`: the last layer.
        - the name of a layer, or its index (negative indices count from the end).
        - a tuple of these: all its layers joined into one part, with one ξ for Adaptive Langevin.
        - `"rest"`: one part for every layer without another key.
    h : float, schedule, list, range or "auto"
        The stepsize. With "auto", `train` finds it.
    posterior : Posterior, optional
        Sets the temperatures and priors of all parts, so leave these out of the methods. (Adaptive Langevin
        keeps its temperature, which is the one that its other coefficients are meant for.)

    Raises
    ------
    TypeError, ValueError
        If a key, a method or a stepsize is not valid, or methods don't go together or with the posterior.

    Examples
    --------
    >>> import heatbath as hb
    >>> partition = hb.Partition({"hidden": hb.AdaptiveLangevin(), "output": hb.Langevin(1.0, 1e-4)}, h=0.1)
    >>> [part.name for part in partition.parts({"first": (200, 100), "last": (100, 1)})]
    ['hidden', 'output']
    """

    assigned: frozenset[tuple[Key, Method]]
    h: Coefficient
    posterior: Posterior | None = None

    def __init__(
        self, methods: Method | Mapping[Key, Method], h: Stepsize, posterior: Posterior | None = None
    ) -> None:
        """Check that keys, methods, stepsize and posterior are valid and go together, and store them.

        A single method is the part "all".
        """
        by_part = methods if isinstance(methods, Mapping) else {"all": methods}
        if not by_part:
            raise ValueError("Partition: at least one part is needed, got none")
        by_key = {_checked_key(key): method for key, method in by_part.items()}
        for key, method in by_key.items():
            _check_method(key, method)
        _check_words(by_key.values())
        _check_tempering(by_key.values())
        _check_posterior(by_key, posterior)

        store(self, assigned=frozenset(by_key.items()), h=_checked_stepsize(h), posterior=posterior)

    def __getstate__(self) -> dict[str, object]:
        """Return the fields alone for pickles and copies, which don't depend on what has been cached."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def methods(self) -> dict[Key, Method]:
        """Method of each key, as a copy in a fixed order, with "rest" last."""
        return dict(self._methods)

    @cached_property
    def _methods(self) -> dict[Key, Method]:
        """Method of each key in a fixed order, with "rest" last."""
        return dict(sorted(self.assigned, key=lambda pair: (_is_rest(pair[0]), str(pair[0]))))

    def __repr__(self) -> str:
        """Return the call that makes it."""
        return self._call(repr)

    @property
    def code(self) -> str:
        """Python expression that makes it, with the names of heatbath."""
        return self._call(lambda method: method.code)

    def _call(self, format_method: Callable[[Method], str]) -> str:
        """Return the call that makes it, with methods as `format_method` writes them."""
        parts = {key: format_method(method) for key, method in self.methods.items()}
        items = ", ".join(f"{key!r}: {text}" for key, text in parts.items())
        methods = parts["all"] if list(parts) == ["all"] else f"{{{items}}}"
        posterior = "" if self.posterior is None else f", posterior={self.posterior!r}"
        return f"Partition({methods}, h={self.h!r}{posterior})"

    @property
    def finds_stepsize(self) -> bool:
        """True if h is "auto", so that `train` finds it."""
        return isinstance(self.h, str)

    def at_stepsize(self, h: Coefficient) -> Partition:
        """Return the partition with another stepsize."""
        return self._with_same_methods(_checked_stepsize(h), self.posterior)

    @property
    def finds_prior(self) -> bool:
        """True if the prior of its posterior is "auto", so that `train` finds it."""
        return self.posterior is not None and self.posterior.prior == "auto"

    def at_prior(self, prior: Prior) -> Partition:
        """Return the partition with another prior of its posterior."""
        if self.posterior is None:
            raise ValueError(f"only a partition with a posterior has a prior to change, got {self!r}")
        return self._with_same_methods(self.h, replace(self.posterior, prior=prior))

    def _with_same_methods(self, h: Stepsize, posterior: Posterior | None) -> Partition:
        """Return the partition with a stepsize and a posterior, whose methods have been checked already."""
        partition = object.__new__(Partition)
        store(partition, assigned=self.assigned, h=h, posterior=posterior)
        return partition

    def cooled(self, step: int, factor: float = 30.0) -> Partition:
        """Return the partition with a lower temperature from `step` on.

        A run that is cooled at its end finds better single networks. If no part has a temperature, the
        stepsize is lowered instead.

        Parameters
        ----------
        step : int
            The first step at the lower temperature.
        factor : float, optional
            What temperatures are divided by. A stepsize is divided by its square root.

        Returns
        -------
        Partition
            The same methods with schedules.

        Raises
        ------
        ValueError
            If a posterior or simulated tempering sets the temperature.

        Examples
        --------
        >>> import heatbath as hb
        >>> hb.LOL(tau=1e-3).cooled(45_000, factor=100).methods["hidden"].tau
        Piecewise(values=(0.001, 1e-05), steps=(45000,))
        """
        factor = real("cooled: factor", factor, Interval(low=1.0))
        step = whole("cooled: step", step, low=1)
        if self.posterior is not None or self.tempering is not None:
            raise ValueError(
                "a partition whose posterior or simulated tempering sets its temperature cannot be cooled: "
                f"leave that out, or don't cool; got {self!r}"
            )
        methods = {key: method.cooled(step, factor) for key, method in self.methods.items()}
        if methods == self.methods:
            return self.at_stepsize(falling(self.h, math.sqrt(factor), step))
        return Partition(methods, self.h)

    @cached_property
    def tempering(self) -> SimulatedTempering | None:
        """Ladder of its parts with simulated tempering, or None."""
        return next(iter(_ladders(self.methods.values())), None)

    def axes(self) -> dict[str, tuple[Value, ...]]:
        """Return the axes of a sweep, with their values.

        An axis has the name of its coefficient, such as `h` or `tau`. Parts with the same list for a
        coefficient share the axis, so a preset's `tau` is one axis. If their lists differ, each has its own
        axis, such as `hidden.tau` and `output.tau`.
        """
        axes = _shared({key: method.axes() for key, method in self.methods.items()})
        return {"h": self.h, **axes} if isinstance(self.h, tuple) else axes

    def ranges(self) -> dict[str, Between]:
        """Return the ranges in which `tune` searches, named and shared like the axes of a sweep."""
        ranges = _shared({key: method.ranges() for key, method in self.methods.items()})
        return {"h": self.h, **ranges} if isinstance(self.h, Between) else ranges

    def at(self, values: Mapping[str, float]) -> Partition:
        """Return the partition with a value instead of each range that `tune` searches.

        Parameters
        ----------
        values : mapping of str to float
            A value for each of the names in `ranges()`.

        Raises
        ------
        ValueError
            If a value is missing, or there is one for another name.
        """
        ranges = self.ranges()
        if values.keys() != ranges.keys():
            needed = ", ".join(ranges) or "none"
            raise ValueError(f"a value is needed for each of the ranges {needed}, got {', '.join(values)}")

        # Parts with the same range of a coefficient share its value, whatever the axis is called.
        value_of: dict[tuple[str, Between], float] = {}
        for axis, searched in ranges.items():
            coefficient_name = axis.rpartition(".")[2]
            value_of.setdefault((coefficient_name, searched), values[axis])

        methods: dict[Key, Method] = {}
        for key, method in self.methods.items():
            part_values = {name: value_of[name, searched] for name, searched in method.ranges().items()}
            methods[key] = replace(method, **part_values)
        h = value_of["h", self.h] if isinstance(self.h, Between) else self.h
        return Partition(methods, h, self.posterior)

    def parts(self, layers: Layers) -> tuple[Part, ...]:
        """Return the parts of a network, in the order of their first layers.

        Parameters
        ----------
        layers : mapping of str to sequence of int
            The sizes of the tensors of each layer, such as `{"fc1": (200, 100), "fc2": (100, 1)}`.

        Returns
        -------
        tuple of Part
            For each key one part, but for "hidden" and "rest" a part for each layer.

        Raises
        ------
        ValueError
            If a layer has no method or two, or a key doesn't fit the network.
        """
        layer_tensors = _tensors(layers)
        layer_names = tuple(layers)
        key_of_layer: dict[str, Key] = {}
        parts: list[Part] = []
        for key, method in self.methods.items():
            members = _members(key, layer_names, tuple(key_of_layer))
            _assign(members, key, key_of_layer)
            ordered_members = sorted(members, key=layer_names.index)
            for name, part_layers in _split_into_parts(key, ordered_members, layer_names):
                spans = chain.from_iterable(layer_tensors[layer] for layer in part_layers)
                parts.append(Part(name, key, method, part_layers, tuple(spans)))

        _check_part_names(parts)
        unassigned = [layer for layer in layer_names if layer not in key_of_layer]
        if unassigned:
            raise ValueError(
                f"no method for layer {_listed(unassigned)}: name it, or add 'rest' "
                f"(given: {', '.join(map(repr, self.methods))})"
            )
        return tuple(sorted(parts, key=lambda part: layer_names.index(part.layers[0])))


def _assign(layers: Sequence[str], key: Key, assigned: dict[str, Key]) -> None:
    """Add layers with their key to `assigned`; raise ValueError if one of them has a key already."""
    for layer in layers:
        if layer in assigned:
            raise ValueError(
                f"layer {layer!r} is assigned twice, by {assigned[layer]!r} and by {key!r}: "
                "each layer belongs to one part"
            )
        assigned[layer] = key


def _check_part_names(parts: Sequence[Part]) -> None:
    """Raise ValueError if two parts have the same name."""
    names = [part.name for part in parts]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"two parts would be called {name!r}: rename that layer of the network")


T = TypeVar("T", bound=Hashable)


def _shared(values_by_part: Mapping[Key, Mapping[str, T]]) -> dict[str, T]:
    """Merge the coefficients of all parts into one dict.

    A coefficient with the same value in all parts that have it keeps its name. Otherwise each of its values
    is named after the first part that has it, such as `hidden.tau`.
    """
    parts_by_value: dict[str, dict[T, str]] = {}  # for each coefficient, the first part with each value
    for key, coefficients in values_by_part.items():
        part = "+".join(map(str, key)) if isinstance(key, tuple) else str(key)
        for name, value in coefficients.items():
            parts_by_value.setdefault(name, {}).setdefault(value, part)
    shared: dict[str, T] = {}
    for name, part_of_value in parts_by_value.items():
        has_one_value = len(part_of_value) == 1
        for value, part in part_of_value.items():
            axis = name if has_one_value else f"{part}.{name}"
            shared[axis] = value
    return shared


def _ladders(methods: Collection[Method]) -> set[SimulatedTempering]:
    """Return the different ladders of simulated tempering among methods."""
    return {method.tempering for method in methods if method.tempering}


def _checked_stepsize(h: Stepsize) -> Stepsize:
    """Return a stepsize with numbers as float and a list as tuple; raise an error unless it is valid."""
    return h if h == "auto" else coefficient("Partition: h", h, POSITIVE)


def _is_rest(key: Key) -> bool:
    """Return True if a key is "rest", or contains it."""
    return key == "rest" or (isinstance(key, tuple) and "rest" in key)


def _check_method(key: Key, method: object) -> None:
    """Raise TypeError if the value of a key isn't a registered method."""
    if not isinstance(method, Method):
        raise TypeError(
            f"Partition: part {key!r} must have a method such as Langevin(gamma=1.0, tau=1e-4), "
            f"got {method!r}"
        )
    check_known(type(method))


def _check_words(methods: Collection[Method]) -> None:
    """Raise ValueError if words differ and one of them needs more than one gradient per step.

    A loop then has no common step in which every part gets the gradients that its word needs.
    """
    words = {method.spelling for method in methods if method.moves}
    if len(words) < 2:
        return
    for method in methods:
        needed = gradients(method.substeps)
        if needed > 1:
            raise ValueError(
                f"Partition: {method.word!r} needs {needed} gradients per step, so all parts must share "
                f"that word; got {', '.join(sorted(words))}. Parts can have different words if each word "
                "needs one gradient per step"
            )


def _check_tempering(methods: Collection[Method]) -> None:
    """Raise ValueError if parts have different ladders of simulated tempering."""
    ladders = _ladders(methods)
    if len(ladders) > 1:
        raise ValueError(
            "Partition: tempered parts share one rung, so they must have the same SimulatedTempering; got "
            f"{', '.join(map(repr, ladders))}"
        )


def _check_posterior(methods: Mapping[Key, Method], posterior: object) -> None:
    """Raise an error unless either the methods or the posterior set each temperature and prior.

    Raises
    ------
    TypeError
        If `posterior` is neither a `Posterior` nor None.
    ValueError
        If nothing sets a temperature, or both set a temperature or prior.
    """
    if not isinstance(posterior, Posterior | None):
        raise TypeError(f"Partition: posterior must be a Posterior or None, got {posterior!r}")
    find_problem = _problem_without_posterior if posterior is None else _problem_with_posterior
    for key, method in methods.items():
        problem = find_problem(method)
        if problem:
            raise ValueError(f"Partition: part {key!r} is {method!r}: {problem}")


def _problem_without_posterior(method: Method) -> str:
    """Return what keeps a method from running without a posterior, or an empty string."""
    if method.needs_temperature:
        return f"it needs {method.thermal}, or the partition needs posterior=Posterior()"
    return ""


def _problem_with_posterior(method: Method) -> str:
    """Return what a method sets although the posterior sets it, or an empty string."""
    if method.prior != 0 or method.tempering:
        return "with a posterior leave out weight_decay and simulated tempering"
    if method.may_leave_temperature and not method.needs_temperature:
        return f"the posterior sets {method.thermal}, so leave it out"
    return ""


def _checked_key(key: object) -> Key:
    """Return a key of a partition with indices as int. Raises TypeError if it isn't valid."""
    if isinstance(key, tuple) and key:
        return tuple(_checked_single(item, key) for item in key)
    return _checked_single(key, key)


def _checked_single(item: object, key: object) -> str | int:
    """Return a name, or an index as int. The error for anything else shows the whole key."""
    if isinstance(item, str):
        return item
    if isinstance(item, (int, np.integer)) and not isinstance(item, bool):
        return int(item)
    raise TypeError(
        "Partition: a key must be 'hidden', 'output', 'rest', the name of a layer, its index, or a tuple "
        f"of these; got {key!r}"
    )


def _tensors(layers: Layers) -> dict[str, tuple[range, ...]]:
    """Return the positions of each layer's tensors among all parameters, layer by layer.

    Raises
    ------
    ValueError, TypeError
        If there is no layer, or a layer has no sizes that are whole numbers above 0.
    """
    if not layers:
        raise ValueError("a network needs at least one layer, got none")
    spans: dict[str, tuple[range, ...]] = {}
    layer_start = 0
    for name, sizes in layers.items():
        if not isinstance(sizes, Sequence) or not sizes:
            raise ValueError(
                f"layer {name!r} must have the sizes of its tensors, such as (200, 100); got {sizes!r}"
            )
        label = f"layer {name!r}: the size of a tensor"
        tensor_sizes = [whole(label, size, low=1) for size in sizes]
        boundaries = list(accumulate(tensor_sizes, initial=layer_start))
        spans[name] = tuple(range(start, stop) for start, stop in pairwise(boundaries))
        layer_start = boundaries[-1]
    return spans


def _members(key: Key, layers: tuple[str, ...], assigned: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the layers that a key selects.

    Parameters
    ----------
    key : str, int or tuple
        A key of a partition.
    layers : tuple of str
        All layers of the network.
    assigned : tuple of str
        The layers that "rest" doesn't select, because earlier keys did.

    Raises
    ------
    ValueError
        If a key doesn't fit the network.
    """
    if isinstance(key, tuple):
        members: tuple[str, ...] = ()
        for item in sorted(key, key=_is_rest):  # "rest" comes last, since it selects what remains
            members += _members(item, layers, assigned + members)
        return members
    if isinstance(key, int):
        if not -len(layers) <= key < len(layers):
            raise ValueError(f"there is no layer {key}: this network has {len(layers)}, {_listed(layers)}")
        return (layers[key],)

    rules = {
        "all": layers,
        "hidden": layers[:-1],
        "output": layers[-1:],
        "rest": tuple(layer for layer in layers if layer not in assigned),
    }
    if key in rules:
        return _members_of_rule(key, rules[key], layers)
    if key not in layers:
        raise ValueError(
            f"there is no layer {key!r}: accepted are {_listed(layers)}, their indices, 'hidden', "
            "'output' and 'rest'"
        )
    return (key,)


def _members_of_rule(rule: str, selected: tuple[str, ...], layers: tuple[str, ...]) -> tuple[str, ...]:
    """Return the layers that a rule selects; raise ValueError if it is ambiguous or selects none."""
    if rule in layers and rule != "all" and selected != (rule,):
        raise ValueError(
            f"{rule!r} is a rule, which here selects {_listed(selected)}, and also the name of a layer: use "
            "indices"
        )
    if rule == "hidden" and not selected:
        raise ValueError(f"'hidden' selects no layer: this network has only {_listed(layers)}")
    return selected


def _split_into_parts(
    key: Key, members: Sequence[str], layers: Sequence[str]
) -> list[tuple[str, tuple[str, ...]]]:
    """Return the name and the layers of each part that a key makes.

    Parameters
    ----------
    key : str, int or tuple
        A key of a partition. "hidden" and "rest" make a part for each layer.
    members : sequence of str
        The layers that the key selects, in order.
    layers : sequence of str
        All layers of the network.
    """
    if not members:
        return []
    if key in ("hidden", "rest"):
        if len(members) == 1:
            return [(str(key), (members[0],))]
        return [(f"{key}{number}", (layer,)) for number, layer in enumerate(members, start=1)]

    def item_name(item: str | int) -> str:
        """Return the name of a layer for its index; words stay as they are."""
        return layers[item] if isinstance(item, int) else item

    items = key if isinstance(key, tuple) else (key,)
    part_name = "+".join(map(item_name, items))
    return [(part_name, tuple(members))]


def _listed(layers: Sequence[str]) -> str:
    """Return the names of layers in quotes, with commas between them."""
    return ", ".join(map(repr, layers))
