"""What the user is told before a run starts."""

import tomllib
from dataclasses import replace

import numpy as np

import heatbath as hb
from heatbath.cli.introduction import introduce, target_note
from heatbath.datasets import from_arrays


def test_what_is_to_be_predicted_is_said_at_the_start(streamed, tmp_path, capsys):
    told = tomllib.loads((streamed / "settings.toml").read_text())["problem"]
    run = hb.load(streamed / "run.nc")
    assert target_note(run.problem, told) == "target kind: 2 classes, blue (19), red (11)"
    X, whole = np.arange(40.0)[:, None], np.arange(40) % 3
    section = {"target": "size"}
    classes = from_arrays(X, whole)
    hint = "; if these are numbers to predict, use --task regression"
    assert target_note(classes, section) == f"target size: 3 classes, 0 (14), 1 (13), 2 (13){hint}"
    assert target_note(classes, section | {"task": "classes"}).endswith("2 (13)")
    numbers = from_arrays(X, np.column_stack([whole, whole]), task="regression", standardise=True)
    hint = "; if they count something, use --task counts"
    assert target_note(numbers, {"target": ["size", "age"]}) == f"targets size, age: numbers{hint}"
    many = from_arrays(X, np.arange(40) % 25)
    assert target_note(many, section).endswith(f"{hint}; if they are labels of classes, use --task classes")
    assert target_note(from_arrays(X, np.arange(40) ** 2), section).endswith(hint)  # all are different
    introduce(replace(run.problem, class_factors=None), {"problem": told}, is_default=False)
    assert "target kind: 2 classes" in capsys.readouterr().err
