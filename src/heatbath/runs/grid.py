"""Grids: the points of a run, spanned by lists in coefficients or by named partitions.

The second half of this file changes coefficients in the middle of a run: the changed coefficient is a
`Piecewise` schedule, with one value before the step of the change and another one from there on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise, product
from typing import Any, NamedTuple, TypeAlias

from heatbath.methods import Method, choices, names
from heatbath.methods.partition import Partition
from heatbath.methods.schedules import Coefficient, Piecewise, SimulatedTempering, Value

Methods: TypeAlias = Partition | Mapping[str, Partition]

ONLY_COEFFICIENTS = "only coefficients may change in a run; for another method, train with start=run.theta"


class GridPoint(NamedTuple):
    """A point of a grid: its label on each axis, and its partition."""

    labels: dict[str, object]
    partition: Partition


class ConstantPiece(NamedTuple):
    """A value of a coefficient, and the step from which on it holds."""

    start: int
    value: Any


def partitions_by_name(methods: Methods) -> dict[str, Partition]:
    """Return the partitions by name; the name of a single one is empty."""
    return {"": methods} if isinstance(methods, Partition) else dict(methods)


def axes(methods: Methods) -> dict[str, tuple[object, ...]]:
    """Return the axes of a grid with their values: the lists of a partition, or the names of several methods.

    An axis has the name that it has in the partition, but that of the initial ξ is `xi_start`, since ξ itself
    is a result.
    """
    if not isinstance(methods, Partition):
        return {"method": tuple(methods)}
    return {_axis_label(name): values for name, values in methods.axes().items()}


def _axis_label(name: str) -> str:
    """Return the name of an axis in results, where `xi` is another one."""
    return "xi_start" if name == "xi" else name


def count_points(methods: Methods) -> int:
    """Return the number of points of a grid, without making them, as there may be too many."""
    return math.prod(map(len, axes(methods).values()))


def points(methods: Methods) -> list[GridPoint]:
    """Return the points of a grid, the last axis fastest. A partition without lists is one point."""
    if not isinstance(methods, Partition):
        return [GridPoint({"method": name}, partition) for name, partition in methods.items()]
    lists = methods.axes()
    return [_point_with(methods, lists, values) for values in product(*lists.values())]


def _point_with(
    partition: Partition, lists: Mapping[str, tuple[Value, ...]], values: tuple[Value, ...]
) -> GridPoint:
    """Return the point of a grid with one value of every list: its labels, and its partition.

    Parameters
    ----------
    partition
        The partition that spans the grid, with tuples of values as coefficients.
    lists
        These tuples by axis, such as `tau`, or `hidden.tau` where parts have different ones.
    values
        The value on each axis.
    """
    value_on = dict(zip(lists, values, strict=True))

    def chosen_value(name: str, value: Coefficient) -> Value:
        if not isinstance(value, tuple):
            return value  # type: ignore[return-value]
        axis = next(axis for axis in lists if axis.rpartition(".")[2] == name and lists[axis] == value)
        return value_on[axis]

    labels: dict[str, object] = {_axis_label(axis): value for axis, value in value_on.items()}
    return GridPoint(labels, _map_coefficients(partition, chosen_value))


def first_point(partition: Partition) -> Partition:
    """Return the partition with the first value of every list."""
    return _map_coefficients(partition, lambda _, value: value[0] if isinstance(value, tuple) else value)


def latest_coefficients(partition: Partition) -> Partition:
    """Return the partition with the last piece of every coefficient, which holds from the last change on."""
    return _map_coefficients(partition, lambda _, value: _pieces(value)[-1].value)


def _map_coefficients(partition: Partition, function: Callable[[str, Any], Any]) -> Partition:
    """Return the partition with `function(name, value)` in place of every value of its methods and of h.

    A method whose values all stay is reused, and so is the partition, as checking new ones takes time.
    """
    old_methods = partition.methods
    methods = {key: _map_values(method, function) for key, method in old_methods.items()}
    h = function("h", partition.h)
    if all(methods[key] is method for key, method in old_methods.items()):
        return partition if h is partition.h else partition.at_stepsize(h)
    return Partition(methods, h, partition.posterior)


def _map_values(method: Method, function: Callable[[str, Any], Any]) -> Method:
    """Return a method with `function(name, value)` in place of every value, or the method if all stay."""
    changed = {}
    for name in names(type(method)):
        value = getattr(method, name)
        new_value = function(name, value)
        if new_value is not value:
            changed[name] = new_value
    return replace(method, **changed) if changed else method


def last_change_step(partition: Partition) -> int:
    """Return the step from which on no coefficient changes from one piece to another; 0 without changes."""
    coefficients = [partition.h]
    for method in partition.methods.values():
        coefficients += vars(method).values()
    pieces = [coefficient for coefficient in coefficients if isinstance(coefficient, Piecewise)]
    return max((coefficient.steps[-1] for coefficient in pieces), default=0)


def change_coefficients(old: Partition, new: Partition, step: int) -> Partition:
    """Return the partition with the coefficients of `old` until `step`, and those of `new` from then on.

    Parameters
    ----------
    old
        The partition of a run so far.
    new
        A partition that differs in coefficients only, and neither in parts, methods, words nor the posterior.
        One value in place of a list of `old` is for all points of the sweep.
    step
        The first step with the new coefficients.

    Raises
    ------
    ValueError
        If anything else differs, or a list does not fit the axes of the sweep.
    """
    if old.methods.keys() != new.methods.keys():
        raise ValueError(
            f"a run continues with the parts it has, {', '.join(map(repr, old.methods))}; "
            f"got {', '.join(map(repr, new.methods))}. For other parts, train with start=run.theta"
        )
    if old.posterior != new.posterior:
        raise ValueError(
            f"a run continues with the posterior it has, {old.posterior}; got {new.posterior}. For "
            "another, train with start=run.theta"
        )
    methods = {
        key: _change_method(key, method, new.methods[key], step) for key, method in old.methods.items()
    }
    changed = Partition(methods, _join_values("h", old.h, new.h, step), old.posterior)

    # equal lists of several parts are one axis, which a change may split
    old_lengths = [(axis, len(coefficients)) for axis, coefficients in old.axes().items()]
    new_lengths = [(axis, len(coefficients)) for axis, coefficients in changed.axes().items()]
    if old_lengths != new_lengths:
        raise ValueError(
            f"a sweep continues with the axes it has, {', '.join(old.axes()) or 'none'}; "
            f"got {', '.join(changed.axes())}"
        )
    return changed


def _change_method(part: object, old: Method, new: Method, step: int) -> Method:
    """Return the method of a part with the coefficients of `old` until `step`, and then those of `new`.

    Raises ValueError if the methods have different types or options, such as the word: only coefficients may
    change. `part` is the name of the part in these errors.
    """
    if type(old) is not type(new):
        raise ValueError(
            f"part {part!r} continues as {type(old).__name__}, got {type(new).__name__}: {ONLY_COEFFICIENTS}"
        )
    options = choices(type(old))
    joined: dict[str, Any] = {}
    for name in names(type(old)):
        old_value = getattr(old, name)
        new_value = getattr(new, name)
        if name not in options:
            joined[name] = _join_values(f"part {part!r}: {name}", old_value, new_value, step)
        elif old_value != new_value:
            raise ValueError(
                f"part {part!r}: {name} is {old_value!r} and cannot change, got {new_value!r}: "
                f"{ONLY_COEFFICIENTS}"
            )
    return replace(old, **joined)


def _join_values(label: str, old: Coefficient, new: Coefficient, step: int) -> Coefficient:
    """Return the coefficient that is `old` until `step`, and `new` from then on.

    A tuple, which is an axis of a sweep, is joined value by value. `label` begins the errors.
    """
    if old == new:
        return old

    if isinstance(old, tuple):
        new_values = new if isinstance(new, tuple) else (new,) * len(old)
        if len(new_values) != len(old):
            raise ValueError(f"{label}: this axis has {len(old)} values, got {len(new_values)}")
        pairs = zip(old, new_values, strict=True)
        return tuple(_join_values(label, old_value, new_value, step) for old_value, new_value in pairs)  # type: ignore[misc]
    if isinstance(new, tuple):
        raise ValueError(f"{label} has one value and cannot become an axis of a sweep in a run: {new!r}")
    if isinstance(old, SimulatedTempering) or isinstance(new, SimulatedTempering):
        raise ValueError(f"{label}: a ladder cannot be changed in a run, from {old!r} to {new!r}")

    earlier_pieces = [piece for piece in _pieces(old) if piece.start < step]
    return _as_coefficient(earlier_pieces + _pieces_from(new, step))


def _pieces_from(value: Coefficient, step: int) -> list[ConstantPiece]:
    """Return the pieces of a coefficient that hold at `step` or later, the first of them from `step` on."""
    pieces = _pieces(value)
    while len(pieces) > 1 and pieces[1].start <= step:  # the first has ended
        pieces = pieces[1:]
    return [ConstantPiece(max(piece.start, step), piece.value) for piece in pieces]


def _as_coefficient(pieces: list[ConstantPiece]) -> Coefficient:
    """Return the coefficient with these pieces, where neighbours with equal values are one piece."""
    different = pieces[:1]
    for previous, piece in pairwise(pieces):
        if piece.value != previous.value:
            different.append(piece)
    if len(different) == 1:
        return different[0].value  # type: ignore[no-any-return]
    return Piecewise([piece.value for piece in different], [piece.start for piece in different[1:]])


def _pieces(value: Coefficient) -> list[ConstantPiece]:
    """Return the values of a coefficient in the order of time."""
    if not isinstance(value, Piecewise):
        return [ConstantPiece(0, value)]
    return [ConstantPiece(*pair) for pair in zip((0, *value.steps), value.values, strict=True)]


def is_same_until(a: Methods, b: Methods, step: int) -> bool:
    """Return True if two grids have the same names, parts and methods, and all coefficients before `step`."""
    partitions_of_a = partitions_by_name(a)
    partitions_of_b = partitions_by_name(b)
    if partitions_of_a.keys() != partitions_of_b.keys():
        return False
    return all(
        _is_same_partition_until(partition, partitions_of_b[name], step)
        for name, partition in partitions_of_a.items()
    )


def _is_same_partition_until(a: Partition, b: Partition, step: int) -> bool:
    """Return True if two partitions have the same parts, methods, posterior and coefficients to `step`."""
    if a.methods.keys() != b.methods.keys() or a.posterior != b.posterior:
        return False
    pairs: list[tuple[Any, Any]] = [(a.h, b.h)]
    for key, method_of_a in a.methods.items():
        method_of_b = b.methods[key]
        if type(method_of_a) is not type(method_of_b):
            return False
        for name in names(type(method_of_a)):
            pairs.append((getattr(method_of_a, name), getattr(method_of_b, name)))
    return all(_values_until(of_a, step) == _values_until(of_b, step) for of_a, of_b in pairs)


def _values_until(value: Any, step: int) -> list[Any]:
    """Return the pieces of a value that begin before `step`, or at 0; of a list, those of each value."""
    if isinstance(value, tuple):
        return [_values_until(single, step) for single in value]
    return [piece for piece in _pieces(value) if piece.start < max(step, 1)]
