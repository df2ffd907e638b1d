"""What a run file holds: a run's data, its plan as text, the versions that made it, and the user's arrays."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Hashable
from importlib.metadata import version
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import xarray as xr

from heatbath.datasets import Problem
from heatbath.runs.grid import same_until
from heatbath.runs.dataset import check
from heatbath.partition import Partition
from heatbath.runs import file as files
from heatbath.runs import plain as texts
from heatbath.runs.plan import Plan

DIMENSIONS = {
    "X_train": ("set", "training", "feature"),
    "Y_train": ("set", "training", "target"),
    "X_test": ("set", "testing", "feature"),
    "Y_test": ("set", "testing", "target"),
    "shift": ("feature",),
    "scale": ("feature",),
    "target_shift": ("target",),
    "target_scale": ("target",),
    "start": ("chain", "parameter"),
    "X_average": ("point", "feature"),
}

_problems: WeakKeyDictionary[Plan, dict[str, Any]] = WeakKeyDictionary()


def pack(plan: Plan, step: int, data: xr.Dataset, title: str) -> xr.Dataset:
    """All of it as one data set with the text in its attributes."""
    settings = to_plain(plan)
    arrays = {"start": plan.start, "X_average": plan.average}
    if settings["problem"]["recipe"] is None:
        arrays |= {name: getattr(plan.problem, name) for name in texts.ARRAYS}
    packages = {name: version(name) for name in ("heatbath", "numpy", "numba", "xarray")}
    attributes = {
        "title": title,
        "heatbath_format": files.FORMAT,
        "heatbath_version": packages["heatbath"],
        "step": step,
        "settings": _readable(settings),
        "versions": json.dumps({"python": platform.python_version(), **packages}),
    }
    named = {name: (DIMENSIONS[name], values) for name, values in arrays.items() if values is not None}
    return _in_order(data.assign(named)).assign_attrs(attributes)


def unpack(
    path: str | os.PathLike[str], packed: xr.Dataset, problem: Problem | None
) -> tuple[Plan, int, xr.Dataset]:
    """The plan, the step and the data in a data set that `pack` made; `problem` in place of the recipe."""
    try:
        plain = json.loads(packed.attrs["settings"])
        told = plain.pop("problem")
        arrays = {name: packed[name].values for name in DIMENSIONS if name in packed}
        if problem is None:
            problem = texts.problem_from_plain(told, arrays)
        elif texts.checksum(problem) != told["checksum"]:
            raise ValueError(
                f"it is a run on another problem, {told['recipe'] or told['name']}, and not on {problem!r}"
            )
        network, methods = texts.network_from_plain(plain.pop("network")), plain.pop("partition")
        partition: Any = (
            texts.partition_from_plain(methods)
            if "parts" in methods
            else {name: texts.partition_from_plain(own) for name, own in methods["methods"].items()}
        )
        plan = Plan(
            problem=problem, network=network, partition=partition, start=arrays.get("start"),
            average=arrays.get("X_average"), **plain,
        )  # fmt: skip
        data = packed.drop_vars(arrays).drop_attrs()
        step = int(packed.attrs["step"])
        if not 0 <= step <= plan.steps:
            raise ValueError(f"it stands at step {step} of {plan.steps}")
        plan.check_memory(1)
        check(plan, step, data)
    except OSError as error:
        raise type(error)(f"{path}: its data cannot be had ({error}): pass problem=") from None
    except MemoryError as error:
        raise MemoryError(f"{path}: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path} is not a run that can be read: {error}") from error
    return plan, step, data


def _in_order(data: xr.Dataset) -> xr.Dataset:
    """The same in an order and with types that do not depend on whether it has been in a file before."""

    def plain(name: Hashable) -> tuple[tuple[Hashable, ...], Any]:
        values = data[name].values
        return data[name].dims, values.astype(object) if values.dtype.kind == "U" else values

    names = sorted(data.data_vars, key=str), sorted(data.coords, key=str)
    return xr.Dataset(*({name: plain(name) for name in own} for own in names))


def _readable(settings: dict[str, Any]) -> str:
    """JSON, a line for each setting, lists of numbers on one line."""
    text = json.dumps(settings, indent=1, allow_nan=False)
    return re.sub(r"\[\s+([-+.\deE,\s]*?)\s+\]", lambda found: f"[{' '.join(found[1].split())}]", text)


def to_plain(plan: Plan) -> dict[str, Any]:
    """A plan as plain values, without its arrays."""
    methods = plan.partition
    if plan not in _problems:  # takes a while for large data, and a run has many checkpoints
        _problems[plan] = texts.problem_to_plain(plan.problem)
    return {
        "problem": _problems[plan],
        "network": texts.network_to_plain(plan.network),
        "partition": texts.partition_to_plain(methods)
        if isinstance(methods, Partition)
        else {"methods": {name: texts.partition_to_plain(own) for name, own in methods.items()}},
        **plan.settings(),
    }


def check_same(path: str | os.PathLike[str], found: Plan, plan: Plan, step: int | None = None) -> None:
    """Refuse a file of another run: all that was set must be equal, or all that decides it up to `step`."""
    here, there = to_plain(plan), to_plain(found)
    wrong = [name for name in here if here[name] != there[name]]
    if step is not None:
        wrong = [name for name in wrong if name not in ("steps", "record", "records", "losses", "partition")]
        done = [[n for n in one.records if n <= step] for one in (found, plan)]
        wrong += ["records"] if done[0] != done[1] else []
        methods = found.named, plan.named
        same = methods[0].keys() == methods[1].keys() and all(
            same_until(own, methods[1][name], step) for name, own in methods[0].items()
        )
        wrong += [] if same else ["partition"]
    for name in ("start", "average"):
        if not np.array_equal(getattr(found, name), getattr(plan, name)):  # None is equal to None only
            wrong.append(name)
    if wrong:
        raise ValueError(
            f"{path} is of another run, with other {', '.join(wrong)}: it is left alone. Choose another "
            "name, or go on from it with load(...).resume(...)"
        )
