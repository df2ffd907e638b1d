"""Fitted estimators in files: that of their run, with their settings as text. Nothing in it is executed."""

from __future__ import annotations

import json
import os
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from heatbath.partition import Partition
from heatbath.runs import file
from heatbath.runs.plain import methods_from_plain, methods_to_plain
from heatbath.runs.run import Run

if TYPE_CHECKING:
    from heatbath.estimators.base import Thermodynamic

LEARNED = ("n_features_in_", "feature_names_in_", "classes_", "n_iter_", "loss_curve_", "_shape")
KINDS = "biufU"  # of classes that can be written: numbers, truth values and text


def save(estimator: Thermodynamic, path: str | os.PathLike[str]) -> None:
    """Write the run and, as text in its attributes, the settings and what was learned of the data."""
    settings = {name: _plain(name, value) for name, value in estimator.get_params(deep=False).items()}
    learned = {name: _plain(name, getattr(estimator, name)) for name in LEARNED if hasattr(estimator, name)}
    text = json.dumps({"kind": type(estimator).__name__, "settings": settings, "learned": learned})
    file.write(path, estimator.run_.to_xarray().assign_attrs(estimator=text))


def load(kind: type[Thermodynamic], path: str | os.PathLike[str]) -> Thermodynamic:
    """The estimator of this kind in a file that `save` wrote."""
    packed = file.read(path)
    if "estimator" not in packed.attrs:
        raise ValueError(f"{path} has a run, and no estimator: heatbath.load reads it")
    run = Run(*file.unpack(path, packed, None))
    try:
        text = json.loads(packed.attrs["estimator"])
        if text["kind"] != kind.__name__:
            raise ValueError(f"it is a {text['kind']}, and this is {kind.__name__}.load")
        known = {field.name for field in fields(kind)}
        if unknown := sorted(set(text["settings"]) - known):
            raise ValueError(f"there is no parameter {', '.join(unknown)}")
        estimator = kind(**{name: _value(name, value) for name, value in text["settings"].items()})
        learned = {name: _value(name, text["learned"][name]) for name in LEARNED if name in text["learned"]}
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"{path} is not an estimator that can be read: {error}") from error
    for name, value in learned.items():
        setattr(estimator, name, value)
    estimator.run_ = run
    return estimator


def _plain(name: str, value: Any) -> Any:
    """A setting, or what was learned, as plain values."""
    if isinstance(value, Partition):
        return {"partition": methods_to_plain(value)}
    if isinstance(value, np.ndarray):
        if value.dtype.kind == "O":
            value = value.astype(str)
        if value.dtype.kind not in KINDS:
            raise TypeError(f"{name} of type {value.dtype} cannot be written: use numbers or text")
        return {"array": value.tolist(), "type": value.dtype.str}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (list, tuple)):
        return [_plain(name, one) for one in value]
    if isinstance(value, dict):
        return {"pairs": [[_plain(name, key), _plain(name, one)] for key, one in value.items()]}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return None if name == "random_state" else _refuse(name, value)


def _refuse(name: str, value: Any) -> None:
    raise TypeError(f"{name} cannot be written to a file, got {value!r} of type {type(value).__name__}")


def _value(name: str, plain: Any) -> Any:
    """What `_plain` wrote."""
    if isinstance(plain, dict) and "partition" in plain:
        return methods_from_plain(plain["partition"])
    if isinstance(plain, dict) and "array" in plain:
        kind = np.dtype(plain["type"])
        if kind.kind not in KINDS:
            raise ValueError(f"{name} has the type {plain['type']!r}, accepted are numbers and text")
        array = np.array(plain["array"], kind)
        return array.astype(object) if name == "feature_names_in_" else array
    if isinstance(plain, dict):
        return {_value(name, key): _value(name, one) for key, one in plain["pairs"]}
    if isinstance(plain, list):
        return tuple(_value(name, one) for one in plain) if name != "loss_curve_" else plain
    return plain
