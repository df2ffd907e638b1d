"""Write pictures as files, and as text for HTML."""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Sequence
from pathlib import Path

from heatbath._internal.atomic_write import check_place, write
from heatbath._internal.checks import whole
from heatbath.plotting.style import Axes, Figure

DPI = 200
METADATA = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}


def save(picture: Figure | Axes, path: str | os.PathLike[str]) -> tuple[Path, Path]:
    """Write a figure as PNG (200 dots per inch) and as SVG beside it.

    Each file is written completely or not at all, and the same picture always has the same bytes.

    Parameters
    ----------
    picture : Figure or Axes
        The figure, or any of its Axes.
    path : path-like
        Path of the files. An ending .png or .svg is replaced by both; other endings are kept.

    Returns
    -------
    (Path, Path)
        Paths of the PNG and of the SVG.
    """
    figure = _figure(picture)
    path = Path(path)
    stem = path.with_suffix("") if path.suffix.lower() in (".png", ".svg") else path
    png_path = stem.with_name(f"{stem.name}.png")
    svg_path = stem.with_name(f"{stem.name}.svg")
    check_place(png_path)
    check_place(svg_path)

    png, svg = _render(figure, ("png", "svg"), DPI)
    write(png_path, png)
    write(svg_path, svg)
    return png_path, svg_path


def embed(picture: Figure | Axes, width: int = 1000) -> str:
    """Return a figure as a data URI of a PNG, for HTML without other files.

    Parameters
    ----------
    picture : Figure or Axes
        The figure, or any of its Axes.
    width : int, optional
        Largest width in pixels (default 1000).

    Returns
    -------
    str
        Text that begins with "data:image/png;base64,".
    """
    figure = _figure(picture)
    dpi = min(DPI, whole("width", width, low=1) / figure.get_figwidth())
    (png,) = _render(figure, ("png",), dpi)
    return "data:image/png;base64," + base64.b64encode(png).decode()


def _figure(picture: object) -> Figure:
    """Return the figure of an Axes, or the figure itself."""
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    figure = picture.figure.figure if isinstance(picture, Axes) else picture
    if not isinstance(figure, Figure):
        raise TypeError(f"a Figure or an Axes of matplotlib is needed, got {picture!r}")
    return figure


def _render(figure: Figure, kinds: Sequence[str], dpi: float) -> list[bytes]:
    """Return a figure as files in memory, with the same bytes whenever it is called.

    The files contain no date, no version and no random identifiers. The figure is laid out once, for the
    first kind. A layout depends in its last digits on the one before it, so the figure's positions and layout
    engine are restored in the end.

    Parameters
    ----------
    figure : Figure
        The figure.
    kinds : sequence of str
        "png" or "svg", for each file.
    dpi : float
        Dots per inch of a PNG.

    Returns
    -------
    list of bytes
        Content of the file of each kind.
    """
    import matplotlib

    positions = [(ax, ax.get_position(original=True), ax.get_in_layout()) for ax in figure.axes]
    layout_engine = figure.get_layout_engine()

    contents = []
    with matplotlib.rc_context({"svg.hashsalt": "heatbath"}):
        for kind in kinds:
            buffer = io.BytesIO()
            figure.savefig(buffer, format=kind, dpi=dpi, metadata=METADATA[kind])
            contents.append(buffer.getvalue())
            figure.set_layout_engine("none")

    figure.set_layout_engine(layout_engine)
    for ax, position, in_layout in positions:
        ax.set_position(position)
        ax.set_in_layout(in_layout)  # set_position removes the Axes from the layout
    return contents
