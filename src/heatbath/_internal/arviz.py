"""Convert groups of data sets for ArviZ, an optional dependency."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import arviz
    import xarray as xr


def for_arviz(groups: Mapping[str, xr.Dataset]) -> arviz.InferenceData | xr.DataTree:
    """Return data sets as one object for ArviZ: an InferenceData before its version 1.0, then a DataTree.

    Parameters
    ----------
    groups
        The data sets by the names of their groups, such as `posterior`.

    Raises
    ------
    ModuleNotFoundError
        If ArviZ is not installed.
    """
    try:
        with warnings.catch_warnings():  # it announces its next version once a day
            warnings.simplefilter("ignore", FutureWarning)
            import arviz
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"to_arviz needs ArviZ: pip install 'heatbath[arviz]' ({error})") from None
    from xarray import DataTree

    library = {"inference_library": "heatbath", "inference_library_version": version("heatbath")}
    labelled = {name: group.assign_attrs(library) for name, group in groups.items()}
    if int(arviz.__version__.partition(".")[0]) < 1:
        return arviz.InferenceData(**labelled)  # type: ignore[arg-type]
    return DataTree.from_dict(labelled)
