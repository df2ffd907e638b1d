"""Samples for ArviZ, an extra."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import arviz


def for_arviz(
    posterior: Mapping[str, Any],
    dims: Mapping[str, list[str]],
    coords: Mapping[str, Any],
    sample_stats: Mapping[str, Any] | None = None,
) -> arviz.InferenceData:
    """Arrays (chain, draw, ...) as ArviZ takes them."""
    try:
        with warnings.catch_warnings():  # once a day it announces its next version
            warnings.simplefilter("ignore", FutureWarning)
            import arviz
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"to_arviz needs ArviZ, an extra: pip install 'heatbath[arviz]' ({error})"
        ) from None
    return arviz.from_dict(  # type: ignore[no-any-return]
        posterior=posterior,
        sample_stats=sample_stats,
        dims=dims,
        coords=coords,
        attrs={"inference_library": "heatbath", "inference_library_version": version("heatbath")},
    )
