"""Checks that refuse a plan before anything is computed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike

from heatbath._internal.checks import choice, real, whole
from heatbath.datasets.problem import Floats
from heatbath.methods import Method
from heatbath.methods.partition import Partition

Call: TypeAlias = Literal["train", "sweep", "compare"]


def check_type(name: str, value: object, kind: type) -> None:
    """Raise TypeError unless the value is of this type."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be a {kind.__name__}, got {value!r} of type {type(value).__name__}")


def check_methods(methods: object, call: Call | None) -> None:
    """Check that `methods` is what a public function needs: one partition, or a dict of partitions by name.

    Parameters
    ----------
    methods
        The argument that the user has passed.
    call
        "train" needs a partition without lists, "sweep" one with lists, "compare" a dict of partitions
        without lists; None accepts all three.

    Raises
    ------
    TypeError, ValueError
        If it is something else, or leaves a coefficient to be found.
    """
    if call is not None:
        choice("call", call, get_args(Call))
    if isinstance(methods, Method):
        raise TypeError(
            f"a method needs a stepsize: say Partition({methods!r}, h=0.1), with an h of your choice"
        )

    if call == "compare" or (call is None and isinstance(methods, Mapping)):
        _check_comparison(methods)
        return

    check_type("partition", methods, Partition)
    assert isinstance(methods, Partition)
    _check_nothing_to_find(methods)
    if call == "train":
        _check_no_lists("train", methods)
    elif call == "sweep" and not methods.axes():
        raise ValueError(
            "a sweep needs several values of some coefficient, such as tau=[1e-5, 1e-4], or --tau 1e-5,1e-4 "
            f"on the command line; got {methods!r}"
        )


def _check_comparison(methods: object) -> None:
    """Raise unless this is a dict of partitions by name, each without lists."""
    if not isinstance(methods, Mapping) or not methods or not all(isinstance(name, str) for name in methods):
        raise TypeError(
            f"compare needs a dict of partitions by name, such as {{'LOL': LOL()}}; got {methods!r}"
        )
    for name, partition in methods.items():
        check_type("partition", partition, Partition)
        _check_nothing_to_find(partition)
        _check_no_lists(f"compare ({name})", partition)


def _check_nothing_to_find(partition: Partition) -> None:
    """Raise if a range or h="auto" stands for a number; a posterior itself refuses a prior to be found."""
    ranges = partition.ranges()
    if ranges:
        raise ValueError(
            "a range is for tune, which looks for a value in it: give one value here for "
            f"{', '.join(ranges)}, got {', '.join(map(repr, ranges.values()))}"
        )
    if partition.finds_stepsize:
        raise ValueError("h='auto' is found by train, for one partition: give a stepsize here, such as h=0.1")


def _check_no_lists(call: str, partition: Partition) -> None:
    """Raise if a coefficient has several values."""
    axes = partition.axes()
    if axes:
        raise ValueError(f"{call} needs one value of {', '.join(axes)}: several are the axes of a sweep")


def checked_histogram(histogram: object) -> tuple[float, float, int]:
    """Return `histogram` as (low, high, bins), or raise."""
    if not isinstance(histogram, (list, tuple)) or len(histogram) != 3:
        raise TypeError(f"histogram must be (low, high, bins) such as (-3, 3, 60), got {histogram!r}")
    low = real("histogram: low", histogram[0])
    high = real("histogram: high", histogram[1])
    if low >= high:
        raise ValueError(f"histogram: low must be below high, got {histogram!r}")
    return low, high, whole("histogram: bins", histogram[2], low=1)


def checked_start(start: ArrayLike, parameters: int, chains: int, points: int) -> Floats:
    """Return the parameters at the start as an array with a row for each chain of each point, or raise.

    Parameters
    ----------
    start
        One row for all chains, a row for each chain of a point, or a row for each chain of each point.
    parameters, chains, points
        The number of parameters, of chains of each point, and of points.
    """
    theta = _finite_array("start", start)
    chain_count = chains * points
    if theta.shape == (parameters,):
        return np.tile(theta, (chain_count, 1))
    if theta.shape == (chains, parameters):
        return np.tile(theta, (points, 1))
    if theta.shape != (chain_count, parameters):
        raise ValueError(
            f"start must have shape ({parameters},) or ({chain_count}, {parameters}), got {theta.shape}"
        )
    return theta


def checked_average(inputs: ArrayLike, features: int) -> Floats:
    """Return the inputs at which outputs are averaged as an array (examples, features), or raise."""
    x = _finite_array("average", inputs)
    if x.ndim != 2 or x.shape[1] != features:
        raise ValueError(f"average must have shape (examples, {features}), got {x.shape}")
    return x


def _finite_array(name: str, values: ArrayLike) -> Floats:
    """Return values as an array in double precision, or raise ValueError unless all are finite numbers."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be an array of numbers: {error}") from None
    if not np.isfinite(array).all():
        raise ValueError(f"{name} holds values that are not finite")
    return array
