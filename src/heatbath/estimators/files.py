"""Files of fitted estimators: the file of the run, with the settings as text. Nothing in it is executed.

Loading restores values and types exactly. Values that can't be restored are refused when saving.
"""

from __future__ import annotations

import json
import os
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from heatbath.datasets.tasks import TASKS
from heatbath.methods.partition import Partition
from heatbath.runs import file
from heatbath.runs.run import Run
from heatbath.runs.serialise import methods_from_plain, methods_to_plain

if TYPE_CHECKING:
    from heatbath.estimators.base import Thermodynamic

LEARNED = ("feature_names_in_", "classes_", "_shape")  # fitted attributes that the run doesn't have
PLAIN = (bool, int, float, str, type(None))
LONGEST = 10_000  # longest text in an array, in characters


def save(estimator: Thermodynamic, path: str | os.PathLike[str]) -> None:
    """Write an estimator's run to a file, with its settings and fitted attributes as text."""
    settings = estimator.get_params(deep=False)
    if type(settings["random_state"]) not in PLAIN and not isinstance(settings["random_state"], np.generic):
        settings["random_state"] = None
    learned = {name: getattr(estimator, name) for name in LEARNED if hasattr(estimator, name)}
    parts = {
        part: {name: _plain(name, value) for name, value in values.items()}
        for part, values in (("settings", settings), ("learned", learned))
    }
    text = json.dumps({"kind": type(estimator).__name__, **parts})
    file.write(path, estimator.run_.to_xarray().assign_attrs(estimator=text))


def load(kind: type[Thermodynamic], path: str | os.PathLike[str]) -> Thermodynamic:
    """Return the estimator in a file that `save` wrote.

    Parameters
    ----------
    kind
        Class of the estimator.
    path
        The file.

    Raises
    ------
    ValueError
        If the file has a run only, an estimator of another class, or settings that don't fit its run.
    """
    packed = file.read(path)
    if "estimator" not in packed.attrs:
        raise ValueError(f"{path} has a run, and no estimator: heatbath.load reads it")

    run = Run(*file.unpack(path, packed, None))
    try:
        estimator = _rebuild(kind, json.loads(packed.attrs["estimator"]), run)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"{path} is not an estimator that can be read: {error}") from error

    estimator._store_run(run)
    estimator.n_features_in_ = run.problem.inputs
    if run.problem.encoder is not None:
        estimator.encoder_ = run.problem.encoder
        estimator.n_features_in_ = run.problem.encoder.n_features_in_
    return estimator


def _rebuild(kind: type[Thermodynamic], text: dict[str, Any], run: Run) -> Thermodynamic:
    """Return an estimator with its parameters and fitted attributes, without its run.

    Parameters
    ----------
    kind
        Class that the estimator must have.
    text
        Its class, parameters and fitted attributes, as `save` wrote them.
    run
        The run in the same file, whose data they must fit.
    """
    if text["kind"] != kind.__name__:
        raise ValueError(f"it is a {text['kind']}, and this is {kind.__name__}.load")
    parameters = {field.name for field in fields(kind)}
    unknown = sorted(set(text["settings"]) - parameters)
    if unknown:
        raise ValueError(f"there is no parameter {', '.join(unknown)}")

    settings = {name: _value(name, plain) for name, plain in text["settings"].items()}
    estimator = kind(**settings)
    plain_learned = text["learned"]
    learned = {name: _value(name, plain_learned[name]) for name in LEARNED if name in plain_learned}
    _check(learned, run)
    has_encoder = run.problem.encoder is not None
    if bool(estimator.encode) != has_encoder:
        raise ValueError(f"encode is {estimator.encode!r}, and its run has another encoder")
    for name, value in learned.items():
        setattr(estimator, name, value)
    return estimator


def _check(learned: dict[str, Any], run: Run) -> None:
    """Raise ValueError if fitted attributes don't belong to the data of the run.

    Parameters
    ----------
    learned
        Fitted attributes by name, as the file has them.
    run
        The run in the same file.
    """
    problem = run.problem
    if TASKS[problem.task].classes:
        name = "classes_"
        is_valid = _are_classes(learned[name], problem.targets)
    else:
        name = "_shape"
        target_shapes = [(1,), ()] if problem.outputs == 1 else [(problem.outputs,)]
        is_valid = learned[name] in target_shapes
    if is_valid and "feature_names_in_" in learned:
        name = "feature_names_in_"
        is_valid = _are_features(learned[name].tolist(), run)
    if not is_valid:
        raise ValueError(
            f"{name} is {learned[name]!r}, and its run is of {problem!r} with the targets "
            f"{', '.join(problem.targets)}"
        )


def _are_features(names: list[Any], run: Run) -> bool:
    """Return True if names are those of the features of a run, or of the columns of its table."""
    problem = run.problem
    if problem.encoder is not None:
        return names == list(problem.encoder.feature_names_in_)
    has_repeated_names = len(set(names)) < len(names)  # the run has other names then
    return tuple(names) == problem.features or (has_repeated_names and len(names) == problem.inputs)


def _are_classes(classes: Any, targets: tuple[str, ...]) -> bool:
    """Return True if classes are distinct, sorted and named as the targets of a run."""
    in_order = isinstance(classes, np.ndarray) and np.array_equal(np.unique(classes), classes)
    return in_order and tuple(map(str, classes)) == targets


def _plain(name: str, value: Any) -> Any:
    """Return a parameter or fitted attribute as values of JSON; `_value` restores it.

    Plain values and lists stay as they are. Other values become a dict with one key for the type: "tuple",
    "pairs" of a dict, "partition", "objects" of an array, or "array" with its type and shape.

    Parameters
    ----------
    name
        Name of the parameter, for errors.
    value
        Its value.

    Raises
    ------
    TypeError
        If the value has a type that can't be restored.
    """
    value_type = type(value)
    if value_type in PLAIN:
        return value
    if value_type is list:
        return [_plain(name, item) for item in value]
    if value_type is tuple:
        return {"tuple": [_plain(name, item) for item in value]}
    if value_type is dict:
        pairs = [[_plain(name, key), _plain(name, item)] for key, item in value.items()]
        return {"pairs": pairs}
    if isinstance(value, Partition):
        return {"partition": methods_to_plain(value)}

    is_array = value_type is np.ndarray
    if is_array and value.dtype == object and value.ndim == 1:
        return {"objects": [_plain(name, item) for item in value]}
    if (is_array or isinstance(value, np.generic)) and _can_be_written(value.dtype):
        shape = list(value.shape) if is_array else None
        return {"array": value.ravel().tolist(), "type": value.dtype.str, "shape": shape}
    raise TypeError(
        f"{name} cannot be written to a file, got {value!r} of type {value_type.__name__}: use plain numbers "
        "and text, and lists, tuples, dicts and arrays of them"
    )


def _can_be_written(kind: np.dtype[Any]) -> bool:
    """Return True if arrays of a type can be stored: numbers up to 8 bytes, and text that isn't too long."""
    return (kind.kind in "biuf" and kind.itemsize <= 8) or (kind.kind == "U" and kind.itemsize <= 4 * LONGEST)


def _value(name: str, plain: Any) -> Any:
    """Return the value that `_plain` has turned into values of JSON.

    Parameters
    ----------
    name
        Name of the parameter, for errors.
    plain
        The values of JSON.

    Raises
    ------
    ValueError
        If an array has a type other than numbers and text.
    """
    if isinstance(plain, list):
        return [_value(name, item) for item in plain]
    if not isinstance(plain, dict):
        return plain
    if "tuple" in plain:
        return tuple(_value(name, item) for item in plain["tuple"])
    if "pairs" in plain:
        return {_value(name, key): _value(name, item) for key, item in plain["pairs"]}
    if "partition" in plain:
        return methods_from_plain(plain["partition"])
    if "objects" in plain:
        return np.fromiter((_value(name, item) for item in plain["objects"]), object)
    dtype = np.dtype(plain["type"])
    if not _can_be_written(dtype):
        raise ValueError(f"{name} has the type {plain['type']!r}, accepted are numbers and text")
    array = np.array(plain["array"], dtype)
    if plain["shape"] is None:  # a single number
        return array[0]
    return array.reshape(plain["shape"])
