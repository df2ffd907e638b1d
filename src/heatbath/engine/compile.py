"""How the engine's functions are compiled and cached.

Numba's cache looks at the file that a function stands in, and would go on running old code after an edit to a
function inlined from another file. So the cache folder is named after a hash of all the engine's sources (and
of what else compiled code depends on): other sources, another folder. It lies in HEATBATH_CACHE, or in the
user's cache folder; where neither can be written, every process compiles for itself, and says so once.

Only whole loops are cached, and the functions that they are made of are always inlined into them. Otherwise
a loop would call whichever version of a function the process has: its own copy, one compiled by itself, or
one from the cache. These round differently, and results would depend on what happened to be compiled before.
"""

from __future__ import annotations

import hashlib
import os
import platform
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba

import heatbath.networks
import heatbath.noise
import heatbath.operations
import heatbath.tasks

config: Any = numba.config  # whose attributes are made when Numba is imported

# sums and products may be fused, reordered and approximated, but NaN and infinity stay what they are:
# fastmath=True would delete the checks that find a diverged chain
FASTMATH = {"contract", "reassoc", "arcp", "nsz", "afn"}


def _sources() -> str:
    """A hash of the engine's sources, and of the versions that compiled code depends on."""
    digest = hashlib.sha256(f"{numba.__version__} {platform.python_version()} {platform.machine()}".encode())
    asked = (heatbath.noise, heatbath.operations, heatbath.networks, heatbath.tasks)  # for constants
    for path in [*sorted(Path(__file__).parent.glob("*.py")), *(Path(str(m.__file__)) for m in asked)]:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _cache_folder() -> str | None:
    """The folder for compiled code, made and tried out; None where there is no such place."""
    home = os.environ.get("HEATBATH_CACHE")
    base = (
        Path(home) if home else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "heatbath"
    )
    folder = base / f"kernels-{_sources()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        warnings.warn(
            f"compiled code cannot be kept in {folder} ({error}), so every process compiles anew, for some "
            "20 s; set HEATBATH_CACHE to a folder that can be written",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
    return str(folder)


_FOLDER = _cache_folder()


def compiled(function: Callable[..., Any] | None = None, *, cache: bool = False, **options: Any) -> Any:
    """Compile without the lock; a decorator, with or without options. `cache` is for whole loops only."""
    if function is None:
        return lambda function: compiled(function, cache=cache, **options)
    before = config.CACHE_DIR  # read when a function is decorated, and left as it was for everyone else
    config.CACHE_DIR = _FOLDER or ""
    try:
        options |= {"cache": _FOLDER is not None} if cache else {"forceinline": True}
        return numba.njit(nogil=True, **options)(function)
    finally:
        config.CACHE_DIR = before
