"""`heatbath info` and `heatbath explore`: describe this installation, and serve the live page."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated

import typer

from heatbath.cli.errors import FAILURE, USAGE, Json, as_json, emit, ending

PACKAGES = ("heatbath", "numpy", "numba", "scipy", "xarray", "matplotlib", "torch", "arviz", "pyarrow")


def info(json: Json = False) -> None:
    """Print versions, number of threads, the folder of compiled code, and where MNIST is found."""
    with ending(FAILURE):
        facts = _facts()
        if json:
            emit(as_json(facts))
        else:
            emit("".join(f"{name:12} {fact}\n" for name, fact in facts.items()))


def _facts() -> dict[str, str]:
    """Return what `heatbath info` prints, as text by name.

    These are the versions of Python and packages, the number of threads, and where compiled code, data files
    and MNIST are found.
    """
    from heatbath.datasets.mnist import MNIST, files_in, search_folders
    from heatbath.engine import compile as kernels
    from heatbath.engine.threads import thread_count

    facts = {"python": platform.python_version()}
    for name in PACKAGES:
        facts[name] = _version(name)
    facts["threads"] = str(thread_count())
    facts["kernels"] = _compiled_kernels(kernels._FOLDER)

    folders = search_folders()
    data_folder = folders[0]
    facts["data"] = str(data_folder) if data_folder.is_dir() else f"{data_folder} (missing)"
    with_mnist = [folder for folder in folders if len(files_in(folder)) == len(MNIST)]
    facts["MNIST"] = f"in {with_mnist[0]}" if with_mnist else "missing: downloaded when it is first needed"
    return facts


def _compiled_kernels(cache: str | os.PathLike[str] | None) -> str:
    """Return how many functions are compiled in this folder, which is None if they aren't kept."""
    if not cache:
        return "not kept: set HEATBATH_CACHE to a folder"
    count = len(list(Path(cache).rglob("*.nbc")))
    if not count:
        return f"none yet: the first run compiles for about 10 s, in {cache}"
    return f"{count} compiled, in {cache}"


def _version(name: str) -> str:
    """Return the version of an installed package, or "not installed"."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def explore(
    host: Annotated[
        str,
        typer.Option(help="Address to serve on; other computers need the token in the link."),
    ] = "127.0.0.1",
    port: Annotated[int | None, typer.Option(help="Port to serve on (default: any free port).")] = None,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
    json: Json = False,
) -> None:
    """Watch two methods train live in the browser, and change their temperatures while they train.

    Press Ctrl-C to stop.

    heatbath explore

    heatbath explore --host 0.0.0.0 --port 8000 --no-browser
    """
    from heatbath.explorer import explore as start

    with ending(USAGE):
        served = start(host, port, browser)
    with served, suppress(KeyboardInterrupt), ending(FAILURE):
        if json:
            emit(as_json({"url": served.url}))
        else:
            emit(f"explorer: {served.url} (press Ctrl-C to stop)\n")
        served.wait()
