"""Samples of a torch model: its states, collected while it is trained."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from heatbath._internal.arviz import for_arviz
from heatbath._internal.atomic_write import PART, Content, create, write
from heatbath._internal.checks import shown, whole
from heatbath.datasets.tasks import Task
from heatbath.methods.schedules import Cycle
from heatbath.torch.prediction.batchnorm import are_training, norms_of, renew_statistics, statistics_of

if TYPE_CHECKING:
    import arviz
    import xarray as xr
    from torch import Tensor, nn

    from heatbath.datasets.problem import Floats
from heatbath.torch.prediction.states import (
    check_module,
    is_chains,
    is_frozen,
    is_like,
    likeness,
    listed,
    tensors,
    text_of,
    whole_tensor,
)

SETTINGS = "samples.json"  # beside the samples in a folder: what made them
RENEWED = "renewed.json"  # and which of them have had their batch norms renewed


class Samples:
    """States of a model (parameters and buffers), taken while it is trained: never more than `most`.

    Call `take()` after every step. The first `burn_in` steps are not among the samples; then every `thin`-th
    is. Where there would be too many, every other one is dropped and `thin` doubles, so that those kept are
    always evenly spaced. They are copies in the CPU's memory, or files in `folder`, each there whole or not
    at all. Tied tensors are stored once, and what `get_extra_state` returns is not. Of a model that is
    sharded (`DTensor`) every process must take, in memory, and has the whole tensors.

    `when=` a `heatbath.methods.schedules.Cycle` takes the states that it says, at the end of each cycle, and
    `thin`
    counts these.

    Frozen parameters (`requires_grad=False`) are not stored, as they do not move: samples have those of the
    model, and are refused where these have changed since. So samples of adapters are small.

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
        when: Cycle | None = None,
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
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
        self._fresh: set[int] = set()  # samples whose batch norms have statistics of their own
        self._frozen: dict[str, list[float]] = {}  # what the tensors are like that are not stored
        self.folder = None if folder is None else Path(folder).resolve()  # also after a change of directory
        self.step = 0
        self._kept: dict[int, dict[str, Tensor] | Path] = {}  # by the number of the step
        if self.folder is not None:
            self._open(self.folder)

    def __repr__(self) -> str:
        where = "in memory" if self.folder is None else f"in {self.folder}"
        kept = f"{len(self)} of at most {self.most} states of {type(self.model).__name__}"
        every = f"every {self.thin} {'steps' if self.when is None else f'of {self.when!r}'}"
        return f"Samples({kept}, {every} after {self.burn_in}, at step {self.step}, {where})"

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def steps(self) -> list[int]:
        """The steps at which the samples were taken."""
        return list(self._kept)

    def take(self, steps: int | None = None) -> None:
        """Count a step, and keep the state if it is due.

        `steps`: how many have been made, where that is not one more than the last time: after a resume at a
        step of which there is no sample, such as `samples.take(optimizer.param_groups[0]["step"])`.
        """
        self.step = self.step + 1 if steps is None else whole("steps", steps, low=self.step + 1)
        place = self._place(self.step)
        if place <= 0 or place % self.thin or (self.when is not None and not self.when.collects(self.step)):
            return
        if len(self._kept) == self.most:
            self.thin *= 2
            self._thin_out()
            if place % self.thin:
                return
        values = tensors(self.model.state_dict(keep_vars=True))
        moving = {name: value for name, value in values.items() if not is_frozen(value)}
        copies = {id(value): whole_tensor(value).to("cpu", copy=True) for value in moving.values()}
        state = {name: copies[id(value)] for name, value in moving.items()}  # a tied tensor is there once
        for name in values.keys() - moving.keys() - self._frozen.keys():
            self._frozen[name] = likeness(values[name])
        self._kept[self.step] = state if self.folder is None else self._write(self.folder, state)
        if not are_training(self._module):
            self._fresh.add(self.step)

    @property
    def stale(self) -> list[int]:
        """The steps of samples with statistics of batch norms that are not their own: taken in training mode,
        and not renewed since."""
        return [step for step in self._kept if step not in self._fresh] if norms_of(self._module) else []

    def renew(self, batches: Any) -> None:
        """Give every sample the statistics of batch norms that its parameters have on training data.

        `batches` are a tensor, an array, or a loader that can be gone through again, which it is for each
        sample (see `renew_statistics`). Samples that are taken later are not renewed.
        """
        if not norms_of(self._module):
            return
        if any(hasattr(p, "full_tensor") for p in self._module.parameters()):
            raise RuntimeError("samples of a sharded model cannot be renewed: do it with the whole model")
        if isinstance(batches, Iterator):
            batches = list(batches)  # which are needed for every sample
        module, frozen = deepcopy(self._module), self._still()
        for step in self.stale:
            kept = self._kept[step]
            state = self._read(kept)
            state = state | self._renewed(module, frozen | state, batches)
            if isinstance(kept, Path):
                write(kept, partial(_save, state))
            else:
                self._kept[step] = state
            self._fresh.add(step)
            if self.folder is not None:
                write(self.folder / RENEWED, json.dumps(sorted(self._fresh)))

    def _renewed(self, module: nn.Module, state: dict[str, Tensor], batches: Any) -> dict[str, Tensor]:
        """The statistics of a sample, or of all chains in it."""
        import torch

        chains: Any = self.model
        several = is_chains(chains)
        every = []
        for own in chains.states(state) if several else [state]:
            module.load_state_dict(own, strict=False)
            renew_statistics(module, batches)
            every.append(statistics_of(module))
        if not several:
            return every[0]
        return {chains.place(n): torch.stack([own[n] for own in every]) for n in every[0]}

    @property
    def _module(self) -> nn.Module:
        """The model, or that of which there are many chains."""
        chains: Any = self.model
        module: nn.Module = chains.model if is_chains(chains) else chains
        return module

    def _place(self, step: int) -> int:
        """The number of a step, or of a state that the cycle says, since the burn-in."""
        if self.when is None:
            return step - self.burn_in
        return self.when.count(step) - self.when.count(self.burn_in)

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        frozen = self._still()
        for kept in list(self._kept.values()):
            yield frozen | self._read(kept)

    def _read(self, kept: dict[str, Tensor] | Path) -> dict[str, Tensor]:
        """A sample as it is stored."""
        import torch

        if not isinstance(kept, Path):
            return kept
        state: dict[str, Tensor] = torch.load(kept, map_location="cpu", weights_only=True)
        return state

    def _still(self) -> dict[str, Tensor]:
        """The tensors of the model that samples do not have, which must be as they were."""
        values = tensors(self.model.state_dict(keep_vars=True)) if self._frozen else {}
        if changed := sorted(n for n, old in self._frozen.items() if not is_like(values[n], old)):
            raise ValueError(
                "the samples have no values of what was frozen when they were taken, and that has changed in "
                f"the model since: {listed(changed)}. Use them with the model as it was"
            )
        return {name: whole_tensor(values[name]).to("cpu") for name in self._frozen}

    def resume(self, step: int, thin: int, states: Mapping[int, dict[str, Tensor]]) -> None:
        """Go on in memory from samples by the number of their step, at a step, with the `thin` of then. They
        are whole, and were taken in evaluation mode."""
        self.step, self.thin = whole("step", step, low=0), whole("thin", thin, low=1)
        self._kept, self._fresh = dict(states), set(states)

    def to_arviz(self, x: Any, *, task: Task, parameters: bool = False) -> arviz.InferenceData | xr.DataTree:
        """The samples for ArviZ: `prediction`, what they say of x, chain x draw x point x output.

        x and `task` are as in `predict`. Of `heatbath.torch.Chains` the chains are chains, and those that
        are not finite are left out; other models have one. The draws are called by their steps. Weights can
        be exchanged without changing the function, so that R-hat and ESS mean something for the function
        only; with `parameters` the parameters are there too, each by its name.

        An InferenceData for ArviZ before 1.0, a DataTree since. Needs the extra `heatbath[arviz]`.
        """
        from heatbath.torch.prediction.predict import outputs

        said = outputs(self.model, self, x, task=task)
        return for_arviz(
            {"posterior": by_chain(self.model, dict(zip(self.steps, self, strict=True)), said, parameters)}
        )

    def _thin_out(self) -> None:
        """Drop the samples that are not due at the present `thin`, the earliest first."""
        for step in [n for n in self._kept if self._place(n) % self.thin]:
            dropped = self._kept.pop(step)
            if isinstance(dropped, Path):
                dropped.unlink(missing_ok=True)

    def _write(self, folder: Path, state: dict[str, Tensor]) -> Path:
        self._claim(folder)
        path = folder / f"sample-{self.step:012d}.pt"
        _create(path, partial(_save, state))
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
            while self._place(self.steps[0]) > self.thin:  # the first is always at `thin`, doubled or not
                self.thin *= 2
            self._thin_out()  # what a program that was killed had still to drop
            self._fresh = self._known_fresh(folder)

    def _known_fresh(self, folder: Path) -> set[int]:
        """The samples in a folder that were renewed."""
        try:
            return {int(step) for step in json.loads((folder / RENEWED).read_text())}
        except FileNotFoundError:
            return set()
        except (OSError, ValueError, TypeError) as error:
            raise ValueError(f"{folder / RENEWED} is not as it was written ({error}): remove it") from None

    def _claim(self, folder: Path) -> None:
        """Write down what makes the samples in a folder, or see that it is the same."""
        if (folder / SETTINGS).exists():
            self._check(folder)
        else:
            content = {**self._settings, "tensors": self._shapes()}
            text = json.dumps(content | ({"frozen": self._frozen} if self._frozen else {}), indent=1)
            _create(folder / SETTINGS, text)

    def _check(self, folder: Path) -> None:
        """Refuse a folder whose samples are of another model, or were made with other settings."""
        remedy = "choose an empty folder, or the same model and settings"
        try:
            there = json.loads((folder / SETTINGS).read_text())
            settings, shapes = {name: there[name] for name in self._settings}, dict(there["tensors"])
            frozen = {str(name): [float(x) for x in like] for name, like in there.get("frozen", {}).items()}
            settings |= {"when": there["when"]} if "when" in there else {}
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
                f"{folder} has samples made with {text_of(settings)}, got {text_of(self._settings)}: {remedy}"
            )
        self._frozen |= frozen

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
        if is_chains(model):
            chains = [list(model.states(state)) for state in states.values()]
        for name, _ in (model.model if is_chains(model) else model).named_parameters():
            values = np.array([[own[name].double().numpy() for own in row] for row in chains])
            values = np.moveaxis(values, 0, 1)[alive]
            dims = [f"{name}_dim_{axis}" for axis in range(values.ndim - 2)]
            found[name] = (("chain", "draw", *dims), values)
    coordinates = {"chain": np.flatnonzero(alive), "draw": list(states)}
    return xr.Dataset(found, coords=coordinates)


def _save(state: dict[str, Tensor], file: IO[bytes]) -> None:
    import torch

    torch.save(state, file)


def _create(path: Path, content: Content) -> None:
    """Make a file that is there whole or not at all, and replaces no other."""
    try:
        create(path, content)
    except FileExistsError:
        raise FileExistsError(
            f"{path} is there already, or being written: another collector uses this folder. Give each a "
            "folder of its own, and with several processes take samples in one of them"
        ) from None
