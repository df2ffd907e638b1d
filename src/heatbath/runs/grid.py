"""Grids: the points of a run, spanned by lists in coefficients or by named partitions; and coefficients that
change on the way."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple, TypeAlias

from heatbath.methods import Method, choices, names
from heatbath.methods.partition import Partition
from heatbath.methods.schedules import Coefficient, Piecewise, SimulatedTempering, Value

Methods: TypeAlias = Partition | Mapping[str, Partition]


class GridPoint(NamedTuple):
    """A point of a grid: what it is called on each axis, and its partition."""

    labels: dict[str, Any]
    partition: Partition


def named(methods: Methods) -> dict[str, Partition]:
    """The partitions by name; a single one has none."""
    return {"": methods} if isinstance(methods, Partition) else dict(methods)


def axes(methods: Methods) -> dict[str, tuple[Any, ...]]:
    """The axes of a grid with their values: those of a partition's lists, or the `method` of a comparison.

    An axis is called as in the partition, but `xi_start` where ξ starts, since ξ itself is a result.
    """
    if isinstance(methods, Partition):
        return {"xi_start" if name == "xi" else name: values for name, values in methods.axes().items()}
    return {"method": tuple(methods)}


def size(methods: Methods) -> int:
    """How many points a grid has: it may be too large to be made."""
    return math.prod(map(len, axes(methods).values()))


def points(methods: Methods) -> list[GridPoint]:
    """The points of a grid; the last axis runs fastest. A partition without lists is one point."""
    if not isinstance(methods, Partition):
        return [GridPoint({"method": name}, partition) for name, partition in methods.items()]
    swept, names = methods.axes(), list(axes(methods))
    if not swept:
        return [GridPoint({}, methods)]
    grid = []
    for chosen in product(*(range(len(values)) for values in swept.values())):
        place = dict(zip(swept, chosen, strict=True))

        def pick(name: str, value: Coefficient, place: dict[str, int] = place) -> Value:
            if not isinstance(value, tuple):
                return value  # type: ignore[return-value]
            candidates = (axis for axis in swept if axis.rpartition(".")[2] == name and swept[axis] == value)
            return value[place[next(candidates)]]  # type: ignore[no-any-return]

        at_point = {key: replace(method, **_picked(method, pick)) for key, method in methods.methods.items()}
        values = (swept[axis][i] for axis, i in place.items())
        grid.append(
            GridPoint(
                dict(zip(names, values, strict=True)),
                Partition(at_point, pick("h", methods.h), methods.posterior),
            )
        )
    return grid


def first(partition: Partition) -> Partition:
    """The first point of a grid."""

    def pick(name: str, value: Coefficient) -> Value:
        return value[0] if isinstance(value, tuple) else value  # type: ignore[return-value]

    methods = {key: replace(method, **_picked(method, pick)) for key, method in partition.methods.items()}
    return Partition(methods, pick("h", partition.h), partition.posterior)


def _picked(method: Method, pick: Callable[[str, Coefficient], Value]) -> dict[str, Any]:
    return {name: pick(name, getattr(method, name)) for name in names(type(method))}


def changed(before: Partition, after: Partition, step: int) -> Partition:
    """The partition that has the coefficients of `before` until `step`, and those of `after` from then on.

    Only coefficients may differ: the parts, their methods and words stay. `after` may have one value where
    `before` has a list, for all points of the sweep.
    """
    if before.methods.keys() != after.methods.keys():
        raise ValueError(
            f"a run continues with the parts it has, {', '.join(map(repr, before.methods))}; "
            f"got {', '.join(map(repr, after.methods))}. For other parts, train anew with start=run.theta"
        )
    if before.posterior != after.posterior:
        raise ValueError(
            f"a run continues with the posterior it has, {before.posterior}; got {after.posterior}. For "
            "another, train anew with start=run.theta"
        )
    joined = Partition(
        {key: _changed_method(key, old, after.methods[key], step) for key, old in before.methods.items()},
        _joined("h", before.h, after.h, step),
        before.posterior,
    )
    old_axes, new_axes = before.axes(), joined.axes()
    if [(name, len(old_axes[name])) for name in old_axes] != [(n, len(v)) for n, v in new_axes.items()]:
        raise ValueError(
            f"a sweep continues with the axes it has, {', '.join(old_axes) or 'none'}; "
            f"got {', '.join(new_axes)}"
        )
    return joined


def last_change(partition: Partition) -> int:
    """The step from which on no coefficient changes from one piece to another."""
    values = [partition.h, *(v for m in partition.methods.values() for v in vars(m).values())]
    return max((value.steps[-1] for value in values if isinstance(value, Piecewise)), default=0)


def latest(partition: Partition) -> Partition:
    """The partition with the last piece of every coefficient, as it is from the last change on."""

    def pick(name: str, value: Coefficient) -> Any:
        return _pieces(value)[-1][1]

    methods = {key: replace(method, **_picked(method, pick)) for key, method in partition.methods.items()}
    return Partition(methods, pick("h", partition.h), partition.posterior)


def same_until(one: Methods, two: Methods, step: int) -> bool:
    """Whether two grids are the same up to a step: names, parts, methods, and all coefficients before it."""
    some, others = named(one), named(two)
    return some.keys() == others.keys() and all(
        _same_partition_until(partition, others[name], step) for name, partition in some.items()
    )


def _same_partition_until(one: Partition, two: Partition, step: int) -> bool:
    if one.methods.keys() != two.methods.keys() or one.posterior != two.posterior:
        return False
    pairs: list[tuple[Any, Any]] = [(one.h, two.h)]
    for key, method in one.methods.items():
        other = two.methods[key]
        if type(method) is not type(other):
            return False
        pairs += [(getattr(method, name), getattr(other, name)) for name in names(type(method))]
    return all(_until(a, step) == _until(b, step) for a, b in pairs)


def _until(value: Any, step: int) -> Any:
    if isinstance(value, tuple):
        return [_until(single, step) for single in value]
    return [piece for piece in _pieces(value) if piece[0] < max(step, 1)]


def _changed_method(key: object, old: Method, new: Method, step: int) -> Method:
    hint = "only coefficients may change in a run; for another method, train anew with start=run.theta"
    if type(old) is not type(new):
        raise ValueError(f"part {key!r} continues as {type(old).__name__}, got {type(new).__name__}: {hint}")
    values: dict[str, Any] = {}
    for name in names(type(old)):
        before, after = getattr(old, name), getattr(new, name)
        if name in choices(type(old)):
            if before != after:
                raise ValueError(f"part {key!r}: {name} is {before!r} and stays so, got {after!r}: {hint}")
            values[name] = before
        else:
            values[name] = _joined(f"part {key!r}: {name}", before, after, step)
    return replace(old, **values)


def _joined(label: str, before: Coefficient, after: Coefficient, step: int) -> Coefficient:
    if before == after:
        return before
    if isinstance(before, tuple):
        others = after if isinstance(after, tuple) else (after,) * len(before)
        if len(others) != len(before):
            raise ValueError(f"{label}: this axis has {len(before)} values, got {len(others)}")
        return tuple(_joined(label, *pair, step) for pair in zip(before, others, strict=True))  # type: ignore[misc]
    if isinstance(after, tuple):
        raise ValueError(f"{label} has one value and cannot become an axis of a sweep on the way: {after!r}")
    if isinstance(before, SimulatedTempering) or isinstance(after, SimulatedTempering):
        raise ValueError(f"{label}: a ladder cannot be changed on the way, from {before!r} to {after!r}")
    pieces = [(start, value) for start, value in _pieces(before) if start < step]
    later = [(max(start, step), value) for start, value in _pieces(after)]
    # of what `after` has before the change, only the piece in force at the change counts
    pieces += [piece for i, piece in enumerate(later) if i + 1 == len(later) or later[i + 1][0] > step]
    kept = [piece for i, piece in enumerate(pieces) if i == 0 or piece[1] != pieces[i - 1][1]]
    if len(kept) == 1:
        return kept[0][1]  # type: ignore[no-any-return]
    return Piecewise([value for _, value in kept], [start for start, _ in kept[1:]])


def _pieces(value: Coefficient) -> list[tuple[int, Any]]:
    """The values of a coefficient in the order of time, each with the step it begins at."""
    if not isinstance(value, Piecewise):
        return [(0, value)]
    return list(zip((0, *value.steps), value.values, strict=True))
