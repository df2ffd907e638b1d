"""Modules that an installation may lack: tests that need one are skipped, the others of a file run."""

import importlib
from types import ModuleType
from typing import Any

import pytest


class Missing:
    """A stand-in for a module that isn't installed; calling it or anything in it skips the test."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith(("_", "pytest")):
            raise AttributeError(attribute)
        return self

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return pytest.skip(f"{self._name} is not installed")

    def __iter__(self) -> Any:
        return self()


def optional(name: str, needs: str = "torch") -> ModuleType | Missing:
    """Return a module, or a stand-in for it where the package it needs isn't installed."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.partition(".")[0] not in (needs, "heatbath"):
            raise
        if is_installed(needs):
            raise
        return Missing(needs)


def is_installed(name: str) -> bool:
    """Return whether a package can be imported."""
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        return False
    return True
