"""Tell the user, before a run starts, how the table is read and which defaults apply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heatbath.cli.errors import complain
from heatbath.cli.options import Settings
from heatbath.cli.report.baseline import BALANCED
from heatbath.datasets import Problem
from heatbath.datasets.from_arrays import MOSTLY
from heatbath.datasets.problem import Floats
from heatbath.datasets.tables.sniff import NUMERAL
from heatbath.datasets.tasks import TASKS
from heatbath.evaluation.baseline_models import in_user_units

MOST_COLUMN_NOTES = 20
MOST_CLASSES = 10  # that a note names


def introduce(problem: Problem, settings: Settings, is_default: bool) -> None:
    """Print on stderr how the table is read, what is predicted, and how the posterior is sampled by default.

    Parameters
    ----------
    problem
        The problem, with an encoder if its data come from a table.
    settings
        The complete settings of the run.
    is_default
        True if the user named no method.
    """
    if problem.encoder is not None:
        notes = problem.encoder.brief_notes()
        for note in notes[:MOST_COLUMN_NOTES]:
            complain(note)
        if len(notes) > MOST_COLUMN_NOTES:
            complain(f"{len(notes) - MOST_COLUMN_NOTES:,} more notes are in report.html")
        complain(target_note(problem, settings["problem"]))

    if problem.class_factors is not None:
        complain(f"warning: {BALANCED}")
    if is_default:
        complain(_default_note(problem, settings["training"]))


def _default_note(problem: Problem, training: Mapping[str, Any]) -> str:
    """Say how the posterior is sampled; `training` has the complete settings of the training."""
    is_full = training["batch"] == problem.X_train.shape[1]
    gradients = "full gradients" if is_full else f"batches of {training['batch']:,}"
    steps = f"at most {training['budget']:,}" if "budget" in training else f"{training['steps']:,}"
    return (
        f"no --method, so the posterior is sampled: {training['chains']} chains of {steps} steps with "
        f"{gradients}, after {training['warm']:,} steps of Adam"
    )


def target_note(problem: Problem, section: Mapping[str, Any]) -> str:
    """Say what is predicted, and which --task to choose if that isn't what the user means.

    Parameters
    ----------
    problem
        The problem, with the targets of all examples.
    section
        Settings of the problem, with the target columns and perhaps the task.
    """
    target = section["target"]
    columns = [target] if isinstance(target, str) else target
    label = "target" if len(columns) == 1 else "targets"

    Y = in_user_units(problem, np.concatenate([problem.Y_train[0], problem.Y_test[0]]))
    if TASKS[problem.task].classes:
        description, hint = _class_note(problem.targets, Y[:, 0].astype(np.int64))
    elif problem.task == "regression":
        description = "numbers"
        hint = _number_hint(Y)
    else:
        description = "counts"
        hint = ""

    note = f"{label} {', '.join(columns)}: {description}"
    return note if "task" in section else note + hint


def _class_note(names: Sequence[str], labels: NDArray[np.int64]) -> tuple[str, str]:
    """Return a list of the classes with their numbers of rows, and a hint if their names are numbers.

    Parameters
    ----------
    names
        Names of the classes.
    labels
        Class index of each row.
    """
    counts = np.bincount(labels, minlength=len(names))
    classes = [f"{name} ({count:,})" for name, count in zip(names, counts, strict=True)]
    note = f"{len(names)} classes, {', '.join(classes[:MOST_CLASSES])}"
    if len(names) > MOST_CLASSES:
        note += f" and {len(names) - MOST_CLASSES:,} more"
    are_numbers = all(NUMERAL.fullmatch(name) for name in names)
    hint = "; if these are numbers to predict, use --task regression" if are_numbers else ""
    return note, hint


def _number_hint(Y: Floats) -> str:
    """Return a hint if targets, (rows, columns), are whole numbers: they could be counts or classes."""
    if not np.allclose(Y, np.abs(np.round(Y)), rtol=1e-9, atol=1e-9):
        return ""
    hint = "; if they count something, use --task counts"
    could_be_classes = Y.shape[1] == 1 and len(np.unique(Y)) <= MOSTLY * len(Y)
    if could_be_classes:
        hint += "; if they are labels of classes, use --task classes"
    return hint
