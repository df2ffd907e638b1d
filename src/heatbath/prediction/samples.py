"""Samples of a torch model: its states, collected while it is trained."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heatbath.checks import shown, whole
from heatbath.writing import PART, Content, create

if TYPE_CHECKING:
    from torch import Tensor, nn

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
