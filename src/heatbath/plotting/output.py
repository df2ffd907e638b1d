"""Pictures as files and as text."""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from heatbath._internal.atomic_write import check_place, write
from heatbath._internal.checks import whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DPI = 200
METADATA = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}


def save(picture: Figure | Axes, path: str | os.PathLike[str]) -> tuple[Path, Path]:
    """Write a figure as PNG (200 dots per inch) and as SVG beside it, and return their paths.

    An ending .png or .svg of the path is replaced by both, others are kept. Each file is there whole or not
    at all, and the same picture makes the same bytes.
    """
    figure = _figure(picture)
    given = Path(path)
    stem = given.with_suffix("") if given.suffix.lower() in (".png", ".svg") else given
    png, svg = (stem.with_name(f"{stem.name}.{kind}") for kind in METADATA)
    for target in (png, svg):
        check_place(target)
    contents = dict(zip((png, svg), _render(figure, ("png", "svg"), DPI), strict=True))
    for target, content in contents.items():
        write(target, content)
    return png, svg


def embed(picture: Figure | Axes, width: int = 1000) -> str:
    """A figure as a data URI of a PNG, for HTML that needs no other file; at most `width` pixels wide."""
    figure = _figure(picture)
    dpi = min(DPI, whole("width", width, low=1) / figure.get_figwidth())
    return "data:image/png;base64," + base64.b64encode(_render(figure, ("png",), dpi)[0]).decode()


def _figure(picture: object) -> Figure:
    """The whole figure that an Axes is on."""
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    figure = picture.figure.figure if isinstance(picture, Axes) else picture
    if not isinstance(figure, Figure):
        raise TypeError(f"a Figure or an Axes of matplotlib is needed, got {picture!r}")
    return figure


def _render(figure: Figure, kinds: Sequence[str], dpi: float) -> list[bytes]:
    """The bytes of a picture in each kind: no date, no version, and names within an SVG that do not change.

    It is laid out once, for the first. A layout begins where the last one ended, and would differ in the last
    digits: the next picture begins anew.
    """
    import matplotlib

    before = [(ax, ax.get_position(original=True), ax.get_in_layout()) for ax in figure.axes]
    engine, buffers = figure.get_layout_engine(), [io.BytesIO() for _ in kinds]
    with matplotlib.rc_context({"svg.hashsalt": "heatbath"}):
        for kind, buffer in zip(kinds, buffers, strict=True):
            figure.savefig(buffer, format=kind, dpi=dpi, metadata=METADATA[kind])
            figure.set_layout_engine("none")
    figure.set_layout_engine(engine)
    for ax, place, laid_out in before:
        ax.set_position(place)
        ax.set_in_layout(laid_out)  # which set_position has ended
    return [buffer.getvalue() for buffer in buffers]
