"""Checks that refuse a plan before anything is computed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias, get_args

import numpy as np

from heatbath._internal.checks import choice, real, whole
from heatbath.datasets import Problem
from heatbath.methods import Method
from heatbath.methods.partition import Partition
from heatbath.runs.serialise import (
    checksum,
)

Call: TypeAlias = Literal["train", "sweep", "compare"]


def same_problem(one: Problem, two: Problem) -> bool:
    """Return whether two problems have the same data."""
    return one is two or checksum(one) == checksum(two)


def check_type(name: str, value: object, kind: type) -> None:
    """Raise TypeError unless the value is of this type."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be a {kind.__name__}, got {value!r} of type {type(value).__name__}")


def check_methods(methods: object, call: Call | None) -> None:
    """Refuse what is no partition, nor partitions by name, or not what a call needs."""
    if call is not None:
        choice("call", call, get_args(Call))
    if isinstance(methods, Method):
        raise TypeError(
            f"a method needs a stepsize: say Partition({methods!r}, h=0.1), with an h of your choice"
        )
    if call == "compare" or (call is None and isinstance(methods, Mapping)):
        if not isinstance(methods, Mapping) or not methods or not all(isinstance(n, str) for n in methods):
            raise TypeError(
                f"compare needs a dict of partitions by name, such as {{'LOL': LOL()}}; got {methods!r}"
            )
        for name, partition in methods.items():
            check_type("partition", partition, Partition)
            _check_known(partition)
            _check_single(f"compare ({name})", partition)
        return
    check_type("partition", methods, Partition)
    assert isinstance(methods, Partition)
    _check_known(methods)
    if call == "train":
        _check_single("train", methods)
    elif call == "sweep" and not methods.axes():
        raise ValueError(
            "a sweep needs several values of some coefficient, such as tau=[1e-5, 1e-4], or --tau 1e-5,1e-4 "
            f"on the command line; got {methods!r}"
        )


def _check_known(partition: Partition) -> None:
    """Refuse a partition with coefficients that are not known; a posterior refuses a prior that is not."""
    if ranges := partition.ranges():
        raise ValueError(
            f"a range is for tune, which looks for a value in it: say one here for {', '.join(ranges)}, got "
            f"{', '.join(map(repr, ranges.values()))}"
        )
    if partition.finds_stepsize:
        raise ValueError("h='auto' is found by train, for one partition: say a stepsize here, such as h=0.1")


def _check_single(what: str, partition: Partition) -> None:
    """Refuse a partition with lists."""
    if axes := partition.axes():
        raise ValueError(f"{what} needs one value of {', '.join(axes)}: several are the axes of a sweep")


def checked_record(record: object) -> int | tuple[int, ...]:
    """Return `record` as a count or a tuple of steps, or raise."""
    if isinstance(record, (list, tuple, range, np.ndarray)):
        if not len(record):
            raise ValueError("record must be a number of records or a list of steps, got an empty one")
        return tuple(whole("record: a step", step, low=0) for step in record)
    return whole("record", record, low=1)


def check_range(record: object, low: int, high: int) -> None:
    """Refuse a list of steps of which some are not between the two."""
    if isinstance(record, (list, tuple, range, np.ndarray)):
        for step in record:
            whole("record: a step", step, low=low, high=high + 1)


def checked_histogram(histogram: object) -> tuple[float, float, int]:
    """Return `histogram` as (low, high, bins), or raise."""
    if not isinstance(histogram, (list, tuple)) or len(histogram) != 3:
        raise TypeError(f"histogram must be (low, high, bins) such as (-3, 3, 60), got {histogram!r}")
    low, high = real("histogram: low", histogram[0]), real("histogram: high", histogram[1])
    if low >= high:
        raise ValueError(f"histogram: low must be below high, got {histogram!r}")
    return low, high, whole("histogram: bins", histogram[2], low=1)
