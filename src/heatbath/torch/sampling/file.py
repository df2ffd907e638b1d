"""Write and read files of tensors and settings: safetensors with a checksum of everything, without pickle.

Other readers of safetensors can open them. Nothing in a file is executed, and a file that was truncated or
altered is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from heatbath._internal import atomic_write

KEY = "heatbath"  # of the settings in the metadata, where the checksum stands beside it
CHECKSUM_KEY = "sha256"
FORMAT = 1
SIZE_BYTES = 8  # at the start of a file, which hold the size of the header that follows
LONGEST_REASON = 200  # characters of another library's message in ours


def write(path: str | os.PathLike[str], kind: str, tensors: Mapping[str, Tensor], settings: object) -> None:
    """Write a file completely or not at all; it replaces a file of the same kind only.

    Parameters
    ----------
    path
        The file.
    kind
        What is in it, such as "sampler".
    tensors
        Tensors by name.
    settings
        Anything that can be written as JSON.

    Raises
    ------
    FileExistsError
        If there is a file of another kind, or a damaged one; it is left alone.
    """
    save = _import_safetensors().torch.save
    target = Path(os.path.realpath(path))
    atomic_write.check_place(target)
    if target.exists():
        try:
            read(target, kind)
        except ValueError as error:
            raise FileExistsError(f"{error}, so it is left alone: choose another name") from None

    separate = _without_shared_memory(tensors)
    header = json.dumps({"kind": kind, "format": FORMAT, "settings": settings}, allow_nan=False)
    metadata = {KEY: header, CHECKSUM_KEY: _checksum(separate, header)}
    atomic_write.write(target, save(separate, metadata))


def _without_shared_memory(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return contiguous tensors on the CPU; those that share memory are copied, as safetensors refuses it."""
    separate: dict[str, Tensor] = {}
    storages: set[int] = set()
    for name, tensor in tensors.items():
        contiguous = tensor.detach().cpu().contiguous()
        storage = contiguous.untyped_storage().data_ptr()
        separate[name] = contiguous.clone() if storage in storages else contiguous
        storages.add(storage)
    return separate


def read(path: str | os.PathLike[str], kind: str) -> tuple[dict[str, Tensor], Any]:
    """Return the tensors by name and the settings in a file; refuse one that is damaged or of another kind.

    Parameters
    ----------
    path
        The file.
    kind
        What must be in it, such as "sampler".

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it is truncated or altered, of another kind, or was written by a later version.
    """
    library = _import_safetensors()
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise atomic_write.failed(error, Path(path), "read") from None
    try:
        tensors = library.torch.load(content)
        metadata = _read_metadata(content)
        header_text = metadata[KEY]
        checksum = metadata[CHECKSUM_KEY]
    except (library.SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        reason = " ".join(str(error).split())[:LONGEST_REASON]
        raise ValueError(
            f"{path} is not a file of a {kind}, or it is truncated ({type(error).__name__}: {reason})"
        ) from None

    if checksum != _checksum(tensors, header_text):
        raise ValueError(f"{path} is damaged: its checksum is wrong; use another copy of it")
    header = json.loads(header_text)
    if header["kind"] != kind:
        raise ValueError(f"{path} is not a file of a {kind}, but of a {header['kind']}")
    if header["format"] > FORMAT:
        raise ValueError(
            f"{path} has format {header['format']}, and this version reads up to {FORMAT}: update heatbath"
        )
    return tensors, header["settings"]


def _read_metadata(content: bytes) -> Any:
    """Return the metadata of a safetensors file, which stand in its header, by name."""
    header_start = SIZE_BYTES
    header_size = int.from_bytes(content[:header_start], "little")
    header = json.loads(content[header_start : header_start + header_size])
    return header["__metadata__"]


def digest(tensors: Mapping[str, Tensor]) -> str:
    """Return a checksum of tensors, their types, shapes and names."""
    checksum = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        checksum.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        if tensor.numel():
            checksum.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return checksum.hexdigest()


def _checksum(tensors: Mapping[str, Tensor], text: str) -> str:
    """Return the checksum of tensors and the text in the metadata."""
    return hashlib.sha256(f"{digest(tensors)} {text}".encode()).hexdigest()


def _import_safetensors() -> ModuleType:
    """Return the package safetensors, which is an extra."""
    try:
        import safetensors
        import safetensors.torch
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"files of tensors need safetensors: pip install 'heatbath[torch]' ({error})"
        ) from None
    return safetensors
