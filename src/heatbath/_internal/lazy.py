"""Import the names of a package when they are first used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_names(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package that imports each of its names on first use.

    Parameters
    ----------
    package : str
        The name of the package.
    homes : mapping of str to str
        For each name, "module" if it is a module, or "module:name" for a name in a module.
    """

    def get(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}; it has {', '.join(homes)}")
        module_name, _, attribute = homes[name].partition(":")
        module = import_module(module_name)
        return getattr(module, attribute) if attribute else module

    return get, lambda: list(homes)
