"""Samples of a torch model: its states, collected while it is trained."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heatbath.checks import shown, whole
from heatbath.exporting import for_arviz
from heatbath.tasks import Task
from heatbath.writing import PART, Content, create

if TYPE_CHECKING:
    import arviz
    import xarray as xr
    from torch import Tensor, nn

    from heatbath.datasets.problem import Floats

SETTINGS = "samples.json"  # beside the samples in a folder: what made them
EXTRA = "_extra_state"  # torch's name for what get_extra_state returns: anything, so it is not kept


class Samples:
    """States of a model (parameters and buffers), taken while it is trained: never more than `most`.

    Call `take()` after every step. The first `burn_in` steps are not among the samples; then every `thin`-th
    is. Where there would be too many, every other one is dropped and `thin` doubles, so that those kept are
    always evenly spaced. They are copies in the CPU's memory, or files in `folder`, each there whole or not
    at all. Tied tensors are stored once, and what `get_extra_state` returns is not. Of a model that is
    sharded (`DTensor`) every process must take, in memory, and has the whole tensors.

    A folder that has samples of such a model, made with the same settings, is opened again: the samples are
    there, and the count of steps continues from the last of them, without another burn-in. To begin anew
    choose an empty folder. One folder is for one collector at a time: none replaces another one's files.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        burn_in: int = 0,
        thin: int = 1,
        most: int = 100,
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        check_module(model)
        self.model = model
        self.burn_in = whole("burn_in", burn_in, low=0)
        self.thin = whole("thin", thin, low=1)
        self.most = whole("most", most, low=2)
        self._settings = {"burn_in": self.burn_in, "thin": self.thin, "most": self.most}
        self.folder = None if folder is None else Path(folder).resolve()  # also after a change of directory
        self.step = 0
        self._kept: dict[int, dict[str, Tensor] | Path] = {}  # by the number of the step
        if self.folder is not None:
            self._open(self.folder)

    def __repr__(self) -> str:
        where = "in memory" if self.folder is None else f"in {self.folder}"
        kept = f"{len(self)} of at most {self.most} states of {type(self.model).__name__}"
        return f"Samples({kept}, every {self.thin} steps after {self.burn_in}, at step {self.step}, {where})"

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def steps(self) -> list[int]:
        """The steps at which the samples were taken."""
        return list(self._kept)

    def take(self) -> None:
        """Count a step, and keep the state if it is due."""
        self.step += 1
        since = self.step - self.burn_in
        if since <= 0 or since % self.thin:
            return
        if len(self._kept) == self.most:
            self.thin *= 2
            self._thin_out()
            if since % self.thin:
                return
        values = tensors(self.model.state_dict(keep_vars=True))
        copies = {id(value): _whole(value).to("cpu", copy=True) for value in values.values()}
        state = {name: copies[id(value)] for name, value in values.items()}  # a tied tensor is there once
        self._kept[self.step] = state if self.folder is None else self._write(self.folder, state)

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        import torch

        for kept in list(self._kept.values()):
            if isinstance(kept, Path):
                yield torch.load(kept, map_location="cpu", weights_only=True)
            else:
                yield kept

    def resume(self, step: int, thin: int, states: Mapping[int, dict[str, Tensor]]) -> None:
        """Go on in memory from samples by the number of their step, at a step, with the `thin` of then."""
        self.step, self.thin = whole("step", step, low=0), whole("thin", thin, low=1)
        self._kept = dict(states)

    def to_arviz(self, x: Any, *, task: Task, parameters: bool = False) -> arviz.InferenceData | xr.DataTree:
        """The samples for ArviZ: `prediction`, what they say of x, chain x draw x point x output.

        x and `task` are as in `predict`. Of `heatbath.torch.Chains` the chains are chains, and those that
        are not finite are left out; other models have one. The draws are called by their steps. Weights can
        be exchanged without changing the function, so that R-hat and ESS mean something for the function
        only; with `parameters` the parameters are there too, each by its name.

        An InferenceData for ArviZ before 1.0, a DataTree since. Needs the extra `heatbath[arviz]`.
        """
        from heatbath.prediction.models import outputs

        said = outputs(self.model, self, x, task=task)
        return for_arviz(
            {"posterior": by_chain(self.model, dict(zip(self.steps, self, strict=True)), said, parameters)}
        )

    def _thin_out(self) -> None:
        """Drop the samples that are not due at the present `thin`, the earliest first."""
        for step in [n for n in self._kept if (n - self.burn_in) % self.thin]:
            dropped = self._kept.pop(step)
            if isinstance(dropped, Path):
                dropped.unlink(missing_ok=True)

    def _write(self, folder: Path, state: dict[str, Tensor]) -> Path:
        import torch

        self._claim(folder)
        path = folder / f"sample-{self.step:012d}.pt"
        _create(path, lambda file: torch.save(state, file))
        return path

    def _open(self, folder: Path) -> None:
        """Begin in a folder, or continue with the samples that are there."""
        folder.mkdir(parents=True, exist_ok=True)
        for part in folder.glob(f"sample*{PART}"):
            part.unlink(missing_ok=True)  # of a program that was killed
        files = sorted(folder.glob(f"sample-{'[0-9]' * 12}.pt"))
        if files or (folder / SETTINGS).exists():
            self._check(folder)
        if files:
            self._kept = {int(path.stem.removeprefix("sample-")): path for path in files}
            self.step = self.steps[-1]
            while self.steps[0] - self.burn_in > self.thin:  # the first is always at `thin`, doubled or not
                self.thin *= 2
            self._thin_out()  # what a program that was killed had still to drop

    def _claim(self, folder: Path) -> None:
        """Write down what makes the samples in a folder, or see that it is the same."""
        if (folder / SETTINGS).exists():
            self._check(folder)
        else:
            text = json.dumps({**self._settings, "tensors": self._shapes()}, indent=1)
            _create(folder / SETTINGS, text)

    def _check(self, folder: Path) -> None:
        """Refuse a folder whose samples are of another model, or were made with other settings."""
        remedy = "choose an empty folder, or the same model and settings"
        try:
            there = json.loads((folder / SETTINGS).read_text())
            settings, shapes = {name: there[name] for name in self._settings}, dict(there["tensors"])
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise ValueError(
                f"{folder} has samples, and {SETTINGS}, which says what made them, is missing or not as it "
                f"was written ({type(error).__name__}): {remedy}"
            ) from None
        here = self._shapes()
        names = here.keys() | shapes.keys()
        if differ := sorted(name for name in names if here.get(name) != shapes.get(name)):
            raise ValueError(
                f"{folder} has samples of another model, which differs in {listed(differ)}: {remedy}"
            )
        if settings != self._settings:
            raise ValueError(
                f"{folder} has samples made with {_text(settings)}, got {_text(self._settings)}: {remedy}"
            )

    def _shapes(self) -> dict[str, str]:
        """What the model's tensors are like."""
        values = tensors(self.model.state_dict(keep_vars=True))
        return {name: f"{value.dtype} {tuple(value.shape)}" for name, value in values.items()}


def by_chain(
    model: Any, states: Mapping[int, Mapping[str, Tensor]], said: Floats, parameters: bool
) -> xr.Dataset:
    """What the samples of a model say, (chains, samples, points, ...), and their parameters if wanted, as a
    data set; the states are by the number of their step."""
    import numpy as np
    import xarray as xr

    alive = np.isfinite(said.reshape(len(said), -1)).all(axis=1)
    if not alive.any():
        raise ValueError("all chains diverged: there are no samples to give")
    last = [f"output_{axis}" for axis in range(1, said.ndim - 3)] + ["output"]  # of several axes too
    found = {"prediction": (("chain", "draw", "point", *last), said[alive])}
    if parameters:
        chains = [[own] for own in states.values()]
        if hasattr(model, "states"):
            chains = [list(model.states(state)) for state in states.values()]
        for name, _ in (model.model if hasattr(model, "states") else model).named_parameters():
            values = np.array([[own[name].double().numpy() for own in row] for row in chains])
            values = np.moveaxis(values, 0, 1)[alive]
            dims = [f"{name}_dim_{axis}" for axis in range(values.ndim - 2)]
            found[name] = (("chain", "draw", *dims), values)
    coordinates = {"chain": np.flatnonzero(alive), "draw": list(states)}
    return xr.Dataset(found, coords=coordinates)


def _whole(value: Any) -> Tensor:
    """A tensor, gathered where it is sharded over processes."""
    tensor: Tensor = value.detach()
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def check_module(model: object) -> None:
    """Refuse what is not a torch module."""
    from torch import nn

    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch module, got {shown(model)}")


def tensors(state: Mapping[str, Any]) -> dict[str, Tensor]:
    """The parameters and buffers in a state: what is no tensor is left out, and so is extra state."""
    from torch import Tensor

    return {
        name: value
        for name, value in state.items()
        if isinstance(value, Tensor) and name.rpartition(".")[2] != EXTRA
    }


def listed(names: list[str], most: int = 5) -> str:
    """Some names, for an error."""
    text = ", ".join(map(repr, names[:most])) or "none"
    return text + (f" and {len(names) - most} more" if len(names) > most else "")


def _text(settings: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in settings.items())


def _create(path: Path, content: Content) -> None:
    """Make a file that is there whole or not at all, and replaces no other."""
    try:
        create(path, content)
    except FileExistsError:
        raise FileExistsError(
            f"{path} is there already, or being written: another collector uses this folder. Give each a "
            "folder of its own, and with several processes take samples in one of them"
        ) from None
