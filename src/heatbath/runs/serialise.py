"""Networks, partitions and problems as plain values, to be written as text and read back, checked."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from heatbath import datasets
from heatbath.datasets import Problem
from heatbath.methods import Method, find_method, module_of, names
from heatbath.methods.partition import Partition
from heatbath.methods.posterior import Posterior
from heatbath.methods.schedules import Schedule, SimulatedTempering, from_plain, to_plain
from heatbath.models.dense import MLP
from heatbath.runs.grid import Methods

if TYPE_CHECKING:
    from heatbath.datasets.tables import TableEncoder

RECIPES = {name: getattr(datasets, name) for name in ("spirals", "trigonometric", "rings", "blobs", "mnist")}
ARRAYS = ("X_train", "Y_train", "X_test", "Y_test", "shift", "scale", "target_shift", "target_scale")
WEIGHTS = ("weights_train", "weights_test")  # arrays that need not be there


def methods_to_plain(methods: Methods) -> dict[str, Any]:
    """A partition as a dict of plain values: h, and the method of each part by name, with all its values.

    Of several named partitions, a dict of such dicts under the one key `methods`.
    """
    if not isinstance(methods, Partition):
        return {"methods": {name: methods_to_plain(partition) for name, partition in methods.items()}}
    parts = [
        {"part": list(key) if isinstance(key, tuple) else key}
        | _named(type(method))
        | {name: _plain(getattr(method, name)) for name in names(type(method))}
        for key, method in methods.methods.items()
    ]
    plain = {"h": _plain(methods.h), "parts": parts}
    if methods.posterior is not None:
        plain["posterior"] = _plain(asdict(methods.posterior))
    return plain


def methods_from_plain(plain: Mapping[str, Any]) -> Methods:
    """The partition, or the named partitions, that `methods_to_plain` wrote."""
    if "parts" in plain:
        return _partition(plain)
    return {name: _partition(entry) for name, entry in plain["methods"].items()}


def _partition(plain: Mapping[str, Any]) -> Partition:
    methods = {}
    for entry in plain["parts"]:
        values = {name: _value(value) for name, value in entry.items()}
        key, kind = values.pop("part"), find_method(values.pop("method"), values.pop("module", None))
        methods[tuple(key) if isinstance(key, list) else key] = kind(**values)
    posterior = Posterior(**plain["posterior"]) if "posterior" in plain else None
    return Partition(methods, _value(plain["h"]), posterior)


def _named(kind: type[Method]) -> dict[str, str]:
    """A method's name and, where it is not heatbath's own, the module that defines it."""
    module = module_of(kind)
    return {"method": kind.__name__} | ({} if module is None else {"module": module})


def network_to_plain(network: MLP) -> dict[str, Any]:
    """A network as a dict of plain values: `MLP(**values)` is the network again."""
    return asdict(network) | {"hidden": list(network.hidden)}


def problem_to_plain(problem: Problem) -> dict[str, Any]:
    """A problem without its arrays: a recipe that makes it again, or None, and a checksum of everything."""
    digest = checksum(problem)
    try:  # a problem may have been edited since it was made by its recipe
        remade = problem.recipe is not None and checksum(_problem(problem.recipe)) == digest
    except (ValueError, TypeError, OSError):
        remade = False
    return {
        "name": problem.name,
        "task": problem.task,
        "features": list(problem.features),
        "targets": list(problem.targets),
        "recipe": problem.recipe if remade else None,
        "checksum": digest,
        **({} if problem.encoder is None else {"encoder": problem.encoder.plain()}),
        **({} if problem.class_factors is None else {"class_factors": list(problem.class_factors)}),
    }


def problem_from_plain(
    plain: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], given: Problem | None = None
) -> Problem:
    """The problem that `problem_to_plain` described: the one that is `given`, or made again by its recipe, or
    from its arrays. Its checksum must agree."""
    recipe = plain["recipe"]
    if given is not None:
        if checksum(given) != plain["checksum"]:
            raise ValueError(
                f"it is a run on another problem, {recipe or plain['name']}, and not on {given!r}"
            )
        return given
    if recipe is None:
        names: dict[str, Any] = {name: plain[name] for name in ("name", "task", "features", "targets")}
        names |= {name: arrays.get(name) for name in WEIGHTS}
        names["encoder"] = _encoder(plain.get("encoder"))
        names["class_factors"] = plain.get("class_factors")
        problem = Problem(**(names | {name: arrays[name] for name in ARRAYS}))
    else:
        problem = _problem(recipe)
    if checksum(problem) != plain["checksum"]:
        raise ValueError(
            f"the recipe {recipe} makes other data than the run had (another version of its source, or of "
            "NumPy's generator): pass problem= with the original data"
        )
    return problem


def checksum(problem: Problem) -> str:
    """SHA-256 of all that a problem is, but its recipe."""
    digest = hashlib.sha256()
    weights = [name for name in WEIGHTS if getattr(problem, name) is not None]
    names: list[object] = [problem.name, problem.task, problem.features, problem.targets, *weights]
    if problem.encoder is not None:
        names.append(problem.encoder.plain())
    if problem.class_factors is not None:
        names.append(problem.class_factors)
    digest.update(json.dumps(names).encode())
    for array in (getattr(problem, name) for name in (*ARRAYS, *weights)):
        digest.update(json.dumps(array.shape).encode())
        digest.update(np.ascontiguousarray(array, "<f8").data)
    return digest.hexdigest()


def _encoder(plain: object) -> TableEncoder | None:
    from heatbath.datasets.tables import TableEncoder  # scikit-learn takes a second, and few runs need it

    return None if plain is None else TableEncoder.from_plain(plain)


def _problem(recipe: Mapping[str, Any]) -> Problem:
    arguments = dict(recipe)
    name = arguments.pop("name", None)
    if name not in RECIPES:
        raise ValueError(f"there is no problem {name!r}; accepted: {', '.join(RECIPES)}")
    problem = RECIPES[name](**arguments)
    assert isinstance(problem, Problem)
    return problem


def _plain(value: Any) -> Any:
    """A coefficient or an option; JSON has no infinity, so it becomes a word."""
    if isinstance(value, (Schedule, SimulatedTempering)):
        value = to_plain(value)
    if isinstance(value, dict):
        return {name: _plain(single) for name, single in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(single) for single in value]
    return "inf" if isinstance(value, float) and math.isinf(value) else value


def _value(plain: Any) -> Any:
    if isinstance(plain, list):
        return [_value(single) for single in plain]
    return from_plain(_with_infinities(plain)) if isinstance(plain, Mapping) else _with_infinities(plain)


def _with_infinities(plain: Any) -> Any:
    if isinstance(plain, Mapping):
        return {name: _with_infinities(single) for name, single in plain.items()}
    if isinstance(plain, list):
        return [_with_infinities(single) for single in plain]
    return math.inf if plain == "inf" else plain
