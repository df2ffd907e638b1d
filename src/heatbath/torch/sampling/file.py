"""Files of tensors and settings: safetensors, with a checksum of everything in the metadata, without pickle.

Other readers of safetensors open them, too. Nothing in a file is executed, and one that was truncated or
altered is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from heatbath._internal import atomic_write

KEY = "heatbath"  # of the settings in the metadata; the checksum is beside it
FORMAT = 1


def write(path: str | os.PathLike[str], kind: str, tensors: Mapping[str, Tensor], settings: Any) -> None:
    """Write a file, replacing one of the same kind; any other is left alone."""
    save = _library().torch.save
    target = Path(os.path.realpath(path))
    atomic_write.check_place(target)
    if target.exists():
        try:
            read(target, kind)
        except ValueError as error:
            raise FileExistsError(f"{error}, so it is left alone: choose another name") from None
    plain: dict[str, Tensor] = {}
    homes: set[int] = set()
    for name, tensor in tensors.items():
        own = tensor.detach().cpu().contiguous()
        home = own.untyped_storage().data_ptr()
        plain[name] = own.clone() if home in homes else own  # tied ones are written twice: none may share
        homes.add(home)
    text = json.dumps({"kind": kind, "format": FORMAT, "settings": settings}, allow_nan=False)
    metadata = {KEY: text, "sha256": _checksum(plain, text)}
    atomic_write.write(target, save(plain, metadata))


def read(path: str | os.PathLike[str], kind: str) -> tuple[dict[str, Tensor], Any]:
    """The tensors and settings in a file of a kind."""
    library = _library()
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise atomic_write.failed(error, Path(path), "read") from None
    try:
        tensors = library.torch.load(content)
        size = int.from_bytes(content[:8], "little")
        metadata = json.loads(content[8 : 8 + size])["__metadata__"]
        text, checksum = metadata[KEY], metadata["sha256"]
    except (library.SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(
            f"{path} is not a file of a {kind}, or it is truncated ({type(error).__name__}: {reason})"
        ) from None
    if checksum != _checksum(tensors, text):
        raise ValueError(f"{path} is damaged: its checksum is wrong; take another copy of it")
    there = json.loads(text)
    if there["kind"] != kind:
        raise ValueError(f"{path} is not a file of a {kind}, but of a {there['kind']}")
    if there["format"] > FORMAT:
        raise ValueError(
            f"{path} has format {there['format']}, and this version reads up to {FORMAT}: update heatbath"
        )
    return tensors, there["settings"]


def digest(tensors: Mapping[str, Tensor]) -> str:
    """A checksum of tensors by name."""
    total = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        if tensor.numel():
            total.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return total.hexdigest()


def _checksum(tensors: Mapping[str, Tensor], text: str) -> str:
    return hashlib.sha256(f"{digest(tensors)} {text}".encode()).hexdigest()


def _library() -> Any:
    try:
        import safetensors
        import safetensors.torch
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"files of tensors need safetensors: pip install 'heatbath[torch]' ({error})"
        ) from None
    return safetensors
