"""Turn networks, partitions and problems into plain values, to be written as text and read back, checked.

Plain values are those of JSON: texts, numbers, lists and dicts.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

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

RECIPES = {name: getattr(datasets, name) for name in ("spirals", "trigonometric", "rings", "blobs", "mnist")}
ARRAYS = ("X_train", "Y_train", "X_test", "Y_test", "shift", "scale", "target_shift", "target_scale")
WEIGHTS = ("weights_train", "weights_test")  # arrays that are None if examples have no weights


def methods_to_plain(methods: Methods) -> dict[str, Any]:
    """Return a partition as plain values: h, and the method of each part with its coefficients.

    Several named partitions are a dict of such dicts under the single key `methods`.
    """
    if not isinstance(methods, Partition):
        return {"methods": {name: methods_to_plain(partition) for name, partition in methods.items()}}
    parts = []
    for key, method in methods.methods.items():
        plain_key = list(key) if isinstance(key, tuple) else key
        parts.append({"part": plain_key, **_method_to_plain(method)})
    plain = {"h": _to_plain(methods.h), "parts": parts}
    if methods.posterior is not None:
        plain["posterior"] = _to_plain(asdict(methods.posterior))
    return plain


def methods_from_plain(plain: Mapping[str, Any]) -> Methods:
    """Return the partition, or the named partitions, that `methods_to_plain` turned into plain values."""
    if "parts" in plain:
        return _partition_from_plain(plain)
    return {name: _partition_from_plain(partition) for name, partition in plain["methods"].items()}


def _partition_from_plain(plain: Mapping[str, Any]) -> Partition:
    """Return the partition with these plain values."""
    methods = {}
    for entry in plain["parts"]:
        values = {name: _from_plain(value) for name, value in entry.items()}
        key = values.pop("part")
        if isinstance(key, list):
            key = tuple(key)
        method = find_method(values.pop("method"), values.pop("module", None))
        methods[key] = method(**values)
    posterior = Posterior(**plain["posterior"]) if "posterior" in plain else None
    return Partition(methods, _from_plain(plain["h"]), posterior)


def _method_to_plain(method: Method) -> dict[str, Any]:
    """Return the name of a method, the module that defines it if it is not heatbath's, and its values."""
    module = module_of(type(method))
    plain: dict[str, Any] = {"method": type(method).__name__}
    if module is not None:
        plain["module"] = module
    return plain | {name: _to_plain(getattr(method, name)) for name in names(type(method))}


def network_to_plain(network: MLP) -> dict[str, Any]:
    """Return a network as plain values, from which `MLP(**values)` makes it again."""
    return asdict(network) | {"hidden": list(network.hidden)}


def problem_to_plain(problem: Problem) -> dict[str, Any]:
    """Return a problem without its arrays, as plain values from which `problem_from_plain` makes it again.

    The recipe is None for a user's own data, or if it makes other data here: those are written as arrays.
    """
    digest = checksum(problem)
    try:  # a problem may have been edited since it was made by its recipe
        is_remade = problem.recipe is not None and checksum(_problem_by_recipe(problem.recipe)) == digest
    except (ValueError, TypeError, OSError):
        is_remade = False

    recipe = problem.recipe if is_remade else None
    plain: dict[str, Any] = {
        "name": problem.name,
        "task": problem.task,
        "features": list(problem.features),
        "targets": list(problem.targets),
        "recipe": recipe,
        "checksum": digest,
    }
    if problem.encoder is not None:
        plain["encoder"] = problem.encoder.plain()
    if problem.class_factors is not None:
        plain["class_factors"] = list(problem.class_factors)
    return plain


def problem_from_plain(
    plain: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], problem: Problem | None = None
) -> Problem:
    """Return the problem that `problem_to_plain` described, made by its recipe or from its arrays.

    Parameters
    ----------
    plain
        The description.
    arrays
        The arrays of the problem by name, which are needed if it has no recipe.
    problem
        The problem itself, which is then checked and returned; None to make it again.

    Raises
    ------
    ValueError
        If the checksum of the data is another one.
    """
    recipe = plain["recipe"]
    if problem is not None:
        if checksum(problem) != plain["checksum"]:
            raise ValueError(
                f"it is a run on another problem, {recipe or plain['name']}, and not on {problem!r}"
            )
        return problem

    remade = _problem_by_arrays(plain, arrays) if recipe is None else _problem_by_recipe(recipe)
    if checksum(remade) != plain["checksum"]:
        raise ValueError(
            f"the recipe {recipe} makes other data than the run had (another version of its source, or of "
            "NumPy's generator): pass problem= with the original data"
        )
    return remade


def _problem_by_recipe(recipe: Mapping[str, Any]) -> Problem:
    """Return the built-in problem that a recipe makes: its name and arguments."""
    arguments = dict(recipe)
    name = arguments.pop("name", None)
    if name not in RECIPES:
        raise ValueError(f"there is no problem {name!r}; accepted: {', '.join(RECIPES)}")
    problem = RECIPES[name](**arguments)
    assert isinstance(problem, Problem)
    return problem


def _problem_by_arrays(plain: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Problem:
    """Return the problem of a user with this description and these arrays."""
    values: dict[str, Any] = {name: plain[name] for name in ("name", "task", "features", "targets")}
    values |= {name: arrays[name] for name in ARRAYS}
    values |= {name: arrays.get(name) for name in WEIGHTS}
    if plain.get("encoder") is not None:
        from heatbath.datasets.tables import TableEncoder  # slow to import, and few runs need it

        values["encoder"] = TableEncoder.from_plain(plain["encoder"])
    return Problem(**values, class_factors=plain.get("class_factors"))


def checksum(problem: Problem) -> str:
    """Return the SHA-256 of everything in a problem but its recipe, in hexadecimal.

    First come its texts as JSON, then the shape and the numbers of each array. What a problem does not have
    is left out, so that files keep their checksums when problems gain new fields.
    """
    weights = [name for name in WEIGHTS if getattr(problem, name) is not None]
    texts: list[object] = [problem.name, problem.task, problem.features, problem.targets, *weights]
    if problem.encoder is not None:
        texts.append(problem.encoder.plain())
    if problem.class_factors is not None:
        texts.append(problem.class_factors)

    digest = hashlib.sha256(json.dumps(texts).encode())
    for name in (*ARRAYS, *weights):
        array = getattr(problem, name)
        digest.update(json.dumps(array.shape).encode())
        digest.update(np.ascontiguousarray(array, "<f8").data)
    return digest.hexdigest()


def _to_plain(value: Any) -> Any:
    """Return a coefficient or an option as plain values; as JSON has no infinity, it becomes "inf"."""
    if isinstance(value, (Schedule, SimulatedTempering)):
        value = to_plain(value)
    if isinstance(value, dict):
        return {name: _to_plain(single) for name, single in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_plain(single) for single in value]
    return "inf" if isinstance(value, float) and math.isinf(value) else value


def _from_plain(plain: Any) -> Any:
    """Return the coefficient or option with these plain values."""
    if isinstance(plain, list):
        return [_from_plain(single) for single in plain]
    if isinstance(plain, Mapping):
        return from_plain({name: _from_plain(single) for name, single in plain.items()})
    return math.inf if plain == "inf" else plain
