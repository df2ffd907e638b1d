"""Collect states of a torch model while it is trained, in memory or in a folder, for predictions."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import xarray as xr
from torch import Tensor, nn

from heatbath._internal.arviz import for_arviz
from heatbath._internal.atomic_write import PART, Content, create, write
from heatbath._internal.checks import shown, whole
from heatbath.datasets.problem import Floats
from heatbath.datasets.tasks import Task
from heatbath.methods.schedules import Cycle
from heatbath.torch.prediction.batchnorm import (
    copy_statistics,
    find_norms,
    has_training_norms,
    renew_statistics,
)
from heatbath.torch.prediction.predict import outputs
from heatbath.torch.prediction.states import (
    Fingerprint,
    check_module,
    fingerprint,
    gather_tensor,
    has_fingerprint,
    is_chains,
    names_text,
    select_tensors,
    settings_text,
    single_module,
    single_states,
)

if TYPE_CHECKING:
    import arviz

SETTINGS = "samples.json"  # file in a folder of samples: the settings and the model's tensors
RENEWED = "renewed.json"  # file beside it: the steps of samples with renewed batch-norm statistics
PREFIX = "sample-"  # of the file of one sample, followed by the number of the step in twelve digits
FOLDER_REMEDY = "choose an empty folder, or the same model and settings"


class Samples:
    """States of a model (parameters and buffers), collected while it is trained: at most `most` of them.

    Call `take()` after every step. The first `burn_in` steps give no samples; then every `thin`-th step gives
    one. When there would be more than `most`, every other sample is dropped and `thin` doubles, so that the
    samples are always evenly spaced. They are copies in the CPU's memory, or files in `folder`, each written
    completely or not at all.

    Parameters
    ----------
    model
        A module, or `heatbath.torch.Chains`. Tied tensors are stored once, and the result of
        `get_extra_state` is not stored. If the model is sharded (`DTensor`), every process must take samples,
        in memory, and each has the complete tensors.
    burn_in
        Number of steps before the first sample is due.
    thin
        Number of steps from one sample to the next; with `when`, the number of states of the cycle.
    most
        Largest number of samples that are kept, at least 2.
    when
        A `heatbath.methods.schedules.Cycle`, to take states at the end of each of its cycles only.
    folder
        Where to store the samples. A folder with samples of the same model and settings is opened again: the
        samples are there, and the steps are counted on from the last of them, without another burn-in. To
        start from nothing choose an empty folder. One folder is for one collector at a time: none replaces
        the files of another.

    Notes
    -----
    Frozen parameters (`requires_grad=False`) are not stored, because they don't change: samples contain those
    of the model, and raise an error if these have changed. So samples of adapters are small.

    Examples
    --------
    >>> import torch
    >>> from heatbath.torch import Samples
    >>> model = torch.nn.Linear(2, 1)
    >>> samples = Samples(model, burn_in=10, thin=5)
    >>> for _ in range(30):  # in place of 30 steps of training
    ...     taken = samples.take()
    >>> len(samples)
    4
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        burn_in: int = 0,
        thin: int = 1,
        most: int = 100,
        when: Cycle | None = None,
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        """Check the arguments, and open the folder if there is one."""
        check_module(model)
        self.model = model
        self.burn_in = whole("burn_in", burn_in, low=0)
        self.thin = whole("thin", thin, low=1)
        self.most = whole("most", most, low=2)
        if not isinstance(when, Cycle | None):
            raise TypeError(f"when must be a heatbath.methods.schedules.Cycle, got {shown(when)}")
        self.when = when

        self._settings: dict[str, Any] = {"burn_in": self.burn_in, "thin": self.thin, "most": self.most}
        if when is not None:
            self._settings["when"] = asdict(when)
        self._renewed: set[int] = set()  # steps of samples with batch-norm statistics of their own
        self._frozen: dict[str, Fingerprint] = {}  # fingerprints of the tensors that are not stored
        self.folder = None if folder is None else Path(folder).resolve()  # also after a change of directory
        self.step = 0
        self._stored: dict[int, dict[str, Tensor] | Path] = {}  # by the number of the step
        if self.folder is not None:
            self._open(self.folder)

    def __repr__(self) -> str:
        location = "in memory" if self.folder is None else f"in {self.folder}"
        count = f"{len(self)} of at most {self.most} states of {type(self.model).__name__}"
        unit = "steps" if self.when is None else f"of {self.when!r}"
        spacing = f"every {self.thin} {unit}"
        return f"Samples({count}, {spacing} after {self.burn_in}, at step {self.step}, {location})"

    def __len__(self) -> int:
        return len(self._stored)

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        frozen = self._frozen_tensors()
        for stored in list(self._stored.values()):
            yield frozen | _load(stored)

    @property
    def steps(self) -> list[int]:
        """Numbers of the steps at which the samples were taken."""
        return list(self._stored)

    # Taking samples

    def take(self, steps: int | None = None) -> None:
        """Count a step, and store the state of the model if a sample is due.

        Parameters
        ----------
        steps
            Number of steps made so far, where that is not one more than at the last call: after resuming at
            a step without a sample, for example `samples.take(optimizer.param_groups[0]["step"])`.
        """
        next_step = self.step + 1
        self.step = next_step if steps is None else whole("steps", steps, low=next_step)
        if self.when is not None and not self.when.collects(self.step):
            return
        position = self._position(self.step)
        if position <= 0 or position % self.thin:
            return
        if len(self._stored) == self.most:
            self.thin *= 2
            self._drop_samples()
            if position % self.thin:
                return

        state = self._copy_state()
        self._stored[self.step] = state if self.folder is None else self._write(self.folder, state)
        if not has_training_norms(single_module(self.model)):
            self._renewed.add(self.step)

    def _position(self, step: int) -> int:
        """Return the number of steps since the burn-in, or of states of the cycle."""
        if self.when is None:
            return step - self.burn_in
        return self.when.count(step) - self.when.count(self.burn_in)

    def _drop_samples(self) -> None:
        """Drop the samples that are not due at the present `thin`, the earliest first."""
        for step in self.steps:
            if self._position(step) % self.thin == 0:
                continue
            stored = self._stored.pop(step)
            if isinstance(stored, Path):
                stored.unlink(missing_ok=True)

    def _copy_state(self) -> dict[str, Tensor]:
        """Return copies of the parameters that move and of all buffers, by name; tied tensors share one copy.

        The fingerprints of frozen parameters are recorded instead, so that a later change shows.
        """
        state: dict[str, Tensor] = {}
        copies: dict[int, Tensor] = {}  # by the id of the tensor
        for name, tensor in self._model_tensors().items():
            moves = tensor.requires_grad or not isinstance(tensor, nn.Parameter)  # buffers always move
            if moves and id(tensor) not in copies:
                copies[id(tensor)] = gather_tensor(tensor).to("cpu", copy=True)
            if moves:
                state[name] = copies[id(tensor)]
            elif name not in self._frozen:
                self._frozen[name] = fingerprint(tensor)
        return state

    def _model_tensors(self) -> dict[str, Tensor]:
        """Return the tensors of the model by name; parameters are parameters."""
        return select_tensors(self.model.state_dict(keep_vars=True))

    def _frozen_tensors(self) -> dict[str, Tensor]:
        """Return the frozen parameters of the model by name, which samples don't contain.

        Raises
        ------
        ValueError
            If one has changed since the first sample: the samples don't belong to the model any more.
        """
        if not self._frozen:
            return {}
        tensors = self._model_tensors()
        frozen = self._frozen.items()
        changed = [name for name, recorded in frozen if not has_fingerprint(tensors[name], recorded)]
        if changed:
            raise ValueError(
                "the samples don't contain what was frozen when they were taken, and that has changed in the "
                f"model since: {names_text(sorted(changed))}. Use the samples with the model as it was"
            )
        return {name: gather_tensor(tensors[name]).to("cpu") for name in self._frozen}

    def resume(self, step: int, thin: int, states: Mapping[int, dict[str, Tensor]]) -> None:
        """Continue in memory at a step, from complete samples that were taken in evaluation mode.

        Parameters
        ----------
        step
            Number of steps made so far.
        thin
            The spacing of the samples.
        states
            The samples by the number of their step, in order.
        """
        self.step = whole("step", step, low=0)
        self.thin = whole("thin", thin, low=1)
        self._stored = dict(states)
        self._renewed = set(states)

    # Batch norms

    @property
    def stale(self) -> list[int]:
        """Steps of the samples whose batch-norm statistics are running means over other parameters.

        These samples were taken in training mode and not renewed since.
        """
        if not find_norms(single_module(self.model)):
            return []
        return [step for step in self._stored if step not in self._renewed]

    def renew(self, batches: object) -> None:
        """Compute the batch-norm statistics of every stale sample by a pass over training data.

        Samples that are taken later are not renewed. A model without batch norms is left alone.

        Parameters
        ----------
        batches
            A tensor, an array, or a loader, which is iterated once for each sample; see `renew_statistics`.

        Raises
        ------
        RuntimeError
            If the model is sharded.
        """
        original = single_module(self.model)
        if not find_norms(original):
            return
        if any(hasattr(p, "full_tensor") for p in original.parameters()):
            raise RuntimeError("samples of a sharded model cannot be renewed: do it with the complete model")
        if isinstance(batches, Iterator):
            batches = list(batches)  # because every sample needs them

        module = deepcopy(original)
        frozen = self._frozen_tensors()
        for step in self.stale:
            state = _load(self._stored[step])
            statistics = self._renewed_statistics(module, frozen | state, batches)
            stored = self._stored[step]
            if isinstance(stored, Path):
                write(stored, partial(_save, state | statistics))
            else:
                self._stored[step] = state | statistics
            self._renewed.add(step)
            if self.folder is not None:
                write(self.folder / RENEWED, json.dumps(sorted(self._renewed)))

    def _renewed_statistics(
        self, module: nn.Module, state: dict[str, Tensor], batches: object
    ) -> dict[str, Tensor]:
        """Return the batch-norm statistics of a sample for its parameters; those of all chains are stacked.

        Parameters
        ----------
        module
            A working copy of the module, whose parameters and statistics change.
        state
            The complete sample, with frozen parameters.
        batches
            Training data, as in `renew`.
        """
        if not is_chains(self.model):
            return _statistics_of_state(module, state, batches)

        by_chain = [_statistics_of_state(module, chain, batches) for chain in self.model.states(state)]
        stacked: dict[str, Tensor] = {}
        for name in by_chain[0]:
            stacked[self.model.place(name)] = torch.stack([statistics[name] for statistics in by_chain])
        return stacked

    # Export

    def to_arviz(
        self, x: object, *, task: Task, parameters: bool = False
    ) -> arviz.InferenceData | xr.DataTree:
        """Return the samples' predictions for ArviZ: `prediction`, (chain, draw, point, output).

        Weights of hidden units can be exchanged without changing the function, so R-hat and ESS are
        meaningful for predictions only. Needs the extra `heatbath[arviz]`.

        Parameters
        ----------
        x, task
            Inputs and task, as in `predict`.
        parameters
            Add every parameter under its name.

        Returns
        -------
        arviz.InferenceData or xarray.DataTree
            An InferenceData for ArviZ before 1.0, a DataTree since. Draws are labelled by their steps. The
            chains of `heatbath.torch.Chains` are chains, without those that are not finite; other models have
            one chain.
        """
        predictions = outputs(self.model, self, x, task=task)
        states = dict(zip(self.steps, self, strict=True))
        return for_arviz({"posterior": samples_dataset(self.model, states, predictions, parameters)})

    # The folder

    def _open(self, folder: Path) -> None:
        """Create the folder, or continue with the samples in it.

        Step, spacing and renewed statistics are then those of the samples. A folder of another model or with
        other settings is refused.
        """
        folder.mkdir(parents=True, exist_ok=True)
        for part in folder.glob(f"sample*{PART}"):
            part.unlink(missing_ok=True)  # left behind by a program that was killed
        files = sorted(folder.glob(f"{PREFIX}{'[0-9]' * 12}.pt"))
        if files or (folder / SETTINGS).exists():
            self._adopt_folder(folder)
        if not files:
            return

        self._stored = {int(path.stem.removeprefix(PREFIX)): path for path in files}
        self.step = self.steps[-1]
        while self._position(self.steps[0]) > self.thin:  # the first sample is always at `thin`
            self.thin *= 2
        self._drop_samples()  # which a program that was killed may not have finished
        self._renewed = _read_renewed(folder)

    def _write(self, folder: Path, state: dict[str, Tensor]) -> Path:
        """Write a sample to a new file, and return its path.

        The first one writes the settings to a new folder; a folder with other settings is refused.
        """
        if (folder / SETTINGS).exists():
            self._adopt_folder(folder)
        else:
            content = self._settings | {"tensors": self._tensor_descriptions()}
            if self._frozen:
                content["frozen"] = self._frozen
            _create(folder / SETTINGS, json.dumps(content, indent=1))
        path = folder / f"{PREFIX}{self.step:012d}.pt"
        _create(path, partial(_save, state))
        return path

    def _adopt_folder(self, folder: Path) -> None:
        """Add the fingerprints of frozen parameters in a folder to those of this object.

        A folder with samples of another model, or with other settings, is refused.
        """
        recorded = _read_settings(folder, list(self._settings))
        expected_tensors = self._tensor_descriptions()
        names = expected_tensors.keys() | recorded.tensors.keys()
        different = [name for name in names if expected_tensors.get(name) != recorded.tensors.get(name)]
        if different:
            raise ValueError(
                f"{folder} has samples of another model, which differs in {names_text(sorted(different))}: "
                f"{FOLDER_REMEDY}"
            )
        if recorded.settings != self._settings:
            raise ValueError(
                f"{folder} has samples made with {settings_text(recorded.settings)}, got "
                f"{settings_text(self._settings)}: {FOLDER_REMEDY}"
            )
        self._frozen |= recorded.frozen

    def _tensor_descriptions(self) -> dict[str, str]:
        """Return type and shape of the model's tensors as text, by name."""
        tensors = self._model_tensors()
        return {name: f"{tensor.dtype} {tuple(tensor.shape)}" for name, tensor in tensors.items()}


def samples_dataset(
    model: nn.Module, states: Mapping[int, Mapping[str, Tensor]], predictions: Floats, parameters: bool
) -> xr.Dataset:
    """Return predictions of samples as a data set, and their parameters if wanted.

    Chains whose predictions are not all finite are left out.

    Parameters
    ----------
    model
        A module, or `Chains` of one.
    states
        Samples by the number of their step.
    predictions
        Predictions of each, (chains, samples, points, ..., outputs).
    parameters
        Add the parameters, each under its name.

    Returns
    -------
    xarray.Dataset
        `prediction`, (chain, draw, point, ..., output), and each parameter, (chain, draw, ...). Chains keep
        their numbers, and draws are labelled by the steps.
    """
    alive = np.isfinite(predictions.reshape(len(predictions), -1)).all(axis=1)
    if not alive.any():
        raise ValueError("all chains have diverged: there are no finite samples; choose a smaller stepsize")

    inner_count = predictions.ndim - 4  # besides chains, draws, points and the last axis of outputs
    inner_axes = [f"output_{axis}" for axis in range(1, inner_count + 1)]
    variables = {"prediction": (("chain", "draw", "point", *inner_axes, "output"), predictions[alive])}
    if parameters:
        samples = [list(single_states(model, state)) for state in states.values()]
        for name, _ in single_module(model).named_parameters():
            draws = [_stack_parameter(name, sample) for sample in samples]
            by_chain = np.stack(draws, axis=1)[alive]
            axes = [f"{name}_dim_{axis}" for axis in range(by_chain.ndim - 2)]
            variables[name] = (("chain", "draw", *axes), by_chain)
    coordinates = {"chain": np.flatnonzero(alive), "draw": list(states)}
    return xr.Dataset(variables, coords=coordinates)


def _stack_parameter(name: str, states: Sequence[Mapping[str, Tensor]]) -> Floats:
    """Return the parameter with this name in the states of all chains, (chains, ...)."""
    return np.stack([state[name].double().numpy() for state in states])


def _statistics_of_state(
    module: nn.Module, state: Mapping[str, Tensor], batches: object
) -> dict[str, Tensor]:
    """Load a state into a module, and return copies of its batch-norm statistics for these parameters.

    Parameters
    ----------
    module
        A working copy, whose parameters and statistics change.
    state
        The complete state of a single module.
    batches
        Training data, as in `renew_statistics`.
    """
    module.load_state_dict(state, strict=False)
    renew_statistics(module, batches)
    return copy_statistics(module)


class _FolderSettings(NamedTuple):
    """Content of the file of settings in a folder of samples.

    Attributes
    ----------
    settings
        Settings of the collector, by name.
    tensors
        Type and shape of the model's tensors as text, by name.
    frozen
        Fingerprints of the parameters that are not stored, by name.
    """

    settings: dict[str, Any]
    tensors: dict[str, str]
    frozen: dict[str, Fingerprint]


def _read_settings(folder: Path, names: list[str]) -> _FolderSettings:
    """Return what the file of settings in a folder of samples holds.

    Parameters
    ----------
    folder
        The folder.
    names
        Settings that must be there.

    Raises
    ------
    ValueError
        If the file is missing or was altered.
    """
    try:
        content = json.loads((folder / SETTINGS).read_text())
        settings = {name: content[name] for name in names}
        if "when" in content:
            settings["when"] = content["when"]
        frozen = {name: Fingerprint(*map(float, pair)) for name, pair in content.get("frozen", {}).items()}
        return _FolderSettings(settings, dict(content["tensors"]), frozen)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(
            f"{folder} has samples, and {SETTINGS}, which holds their settings, is missing or was altered "
            f"({type(error).__name__}): {FOLDER_REMEDY}"
        ) from None


def _read_renewed(folder: Path) -> set[int]:
    """Return the steps of samples in a folder whose batch-norm statistics were renewed."""
    try:
        return {int(step) for step in json.loads((folder / RENEWED).read_text())}
    except FileNotFoundError:
        return set()
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(f"{folder / RENEWED} was altered ({error}): remove it") from None


def _load(stored: dict[str, Tensor] | Path) -> dict[str, Tensor]:
    """Return a sample without frozen parameters, from memory or from its file."""
    if not isinstance(stored, Path):
        return stored
    state: dict[str, Tensor] = torch.load(stored, map_location="cpu", weights_only=True)
    return state


def _save(state: dict[str, Tensor], file: IO[bytes]) -> None:
    """Write a state to an open file."""
    torch.save(state, file)


def _create(path: Path, content: Content) -> None:
    """Create a file, completely or not at all; refuse to replace one."""
    try:
        create(path, content)
    except FileExistsError:
        raise FileExistsError(
            f"{path} exists, or is being written: another collector uses this folder. Give each its own "
            "folder, and with several processes take samples in only one of them"
        ) from None
