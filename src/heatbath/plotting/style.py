"""Set sizes, colours, dashes and labels of pictures, on each picture and never globally."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from heatbath._internal.checks import POSITIVE, is_real, real, whole

if TYPE_CHECKING:
    from matplotlib import axes, figure
    from matplotlib.axis import Axis
    from matplotlib.cm import ScalarMappable
    from matplotlib.colorbar import Colorbar

# As texts, because matplotlib is imported only when something is drawn
Axes: TypeAlias = "axes.Axes"
Figure: TypeAlias = "figure.Figure"

COLUMN_WIDTH, PAGE_WIDTH = 3.4, 7.0  # inches, of a column and of a page of a paper
TEXT_SIZE, SMALL_SIZE = 9, 8  # points
LEGEND_LINE_WIDTH = 34  # points of a legend's entry that its line and margins take
CHARACTER_WIDTH = 0.58  # of a legend's text, relative to the size of the type
LEGEND_ROOM = 1.2  # width that a legend may have, relative to its Axes
NARROW_LEGEND = 0.75  # of that width, up to which a legend is centred
POINTS_PER_INCH = 72
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # Okabe and Ito
DASHES: tuple[Any, ...] = (
    "-",
    (0, (5, 1.5)),
    (0, (6, 1.5, 1, 1.5)),
    (0, (1, 1)),
    (0, (3, 1)),
    (0, (9, 2)),
    (0, (4, 1, 1, 1, 1, 1)),
)
DIAGONAL: dict[str, Any] = {"color": "0.6", "linewidth": 0.8, "linestyle": (0, (4, 3)), "zorder": 1}
SYMBOLS = {
    "theta": r"$\theta$",
    "p": "$p$",
    "xi": r"$\xi$",
    "xi_start": r"$\xi$ at the start",
    "tau": r"$\tau$",
    "gamma": r"$\gamma$",
    "sigma": r"$\sigma_A$",
    "epsilon": r"$\epsilon$",
    "h": "$h$",
    "mu": r"$\mu$",
    "alpha": r"$\alpha$",
    "beta": r"$\beta$",
    "beta1": r"$\beta_1$",
    "beta2": r"$\beta_2$",
    "x1": "$x_1$",
    "x2": "$x_2$",
    "temperature": "kinetic temperature",
}


def panels(
    rows: int = 1, columns: int = 1, width: float = PAGE_WIDTH, height: float | None = None
) -> list[Axes]:
    """Return the Axes of a new figure, row by row.

    Parameters
    ----------
    rows, columns : int, optional
        Number of Axes (default 1 by 1).
    width : float, optional
        Width of the figure in inches; by default that of a page.
    height : float, optional
        Height in inches; by default Axes are four fifths as high as they are wide.

    Examples
    --------
    >>> import heatbath as hb
    >>> len(hb.plotting.panels(2, 3))
    6
    """
    from matplotlib.figure import Figure

    rows = whole("rows", rows, low=1)
    columns = whole("columns", columns, low=1)
    width = real("width", width, POSITIVE)
    if height is None:
        height = 0.8 * width / columns * rows
    height = real("height", height, POSITIVE)
    figure = Figure(figsize=(width, height), layout="constrained")
    return list(figure.subplots(rows, columns, squeeze=False).flat)


def axes_or_new(ax: object, height: float = 2.7) -> Axes:
    """Return `ax` if it is an Axes, or for None the Axes of a new figure as wide as a column.

    `height` is that of a new figure, in inches.
    """
    from matplotlib.axes import Axes

    if ax is None:
        return panels(width=COLUMN_WIDTH, height=height)[0]
    if not isinstance(ax, Axes):
        raise TypeError(f"ax must be an Axes of matplotlib, or None for a new figure; got {ax!r}")
    return ax


def line_style(index: int) -> dict[str, Any]:
    """Return colour and dashes of line number `index`; the first 49 lines differ."""
    cycle, colour_index = divmod(index, len(COLOURS))
    dash_index = (colour_index + cycle) % len(DASHES)
    return {"color": COLOURS[colour_index], "linestyle": DASHES[dash_index]}


def label_axes(ax: Axes, x: str, y: str, *, box: bool = False) -> None:
    """Set the labels of both axes and the size of the type; remove the upper and right spine unless `box`."""
    ax.set_xlabel(x, fontsize=TEXT_SIZE)
    ax.set_ylabel(y, fontsize=TEXT_SIZE)
    ax.tick_params(labelsize=SMALL_SIZE)
    if not box:
        ax.spines[["top", "right"]].set_visible(False)


def add_legend(ax: Axes) -> None:
    """Add a legend below the x axis, where it hides no line, in as many columns as fit.

    Call it when everything is drawn, because it shows the labels of what is on the Axes. Without any label no
    legend is added. A narrow legend is centred; a wide one is aligned right, so that it may extend to the
    left.
    """
    from matplotlib.transforms import ScaledTranslation

    handles, labels = ax.get_legend_handles_labels()
    if not labels:
        return
    figure = ax.figure.figure
    # All widths are in points; margins of the Axes may be covered
    available_width = LEGEND_ROOM * POINTS_PER_INCH * figure.get_figwidth() * ax.get_position().width
    columns, width = _legend_layout(labels, available_width)

    anchor: dict[str, Any] = {"loc": "upper right", "bbox_to_anchor": (1.0, 0.0)}
    is_narrow = width <= NARROW_LEGEND * available_width
    if is_narrow:
        anchor = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0)}
    below_labels = ScaledTranslation(0, -2.9 * TEXT_SIZE / POINTS_PER_INCH, figure.dpi_scale_trans)
    ax.legend(
        handles,
        labels,
        **anchor,
        bbox_transform=ax.transAxes + below_labels,
        ncols=columns,
        fontsize=SMALL_SIZE,
        frameon=False,
        handlelength=2.2,
        columnspacing=1.2,
    )


def _legend_layout(labels: list[str], available_width: float) -> tuple[int, float]:
    """Return the number of columns of a legend that fits an available width in points, and its own width.

    Columns are filled evenly, and are all as wide as the widest label if there are several rows.
    """
    widths = [LEGEND_LINE_WIDTH + CHARACTER_WIDTH * SMALL_SIZE * _printed_length(label) for label in labels]
    if sum(widths) <= available_width:
        return len(labels), sum(widths)
    most_columns = max(1, int(available_width / max(widths)))
    rows = math.ceil(len(labels) / most_columns)
    columns = math.ceil(len(labels) / rows)
    return columns, columns * max(widths)


def label_rows(ax: Axes, labels: Sequence[str], margin: float = 0.4) -> None:
    """Label rows at 0, 1, 2, ... from the top, and draw a vertical grid.

    The axis ends 1 - `margin` above the first row and below the last one.
    """
    ax.set_yticks(range(len(labels)), labels)
    ax.set_ylim(len(labels) - margin, margin - 1)
    ax.grid(axis="x", linewidth=0.4, alpha=0.5)
    ax.tick_params(axis="y", length=0)


def add_colour_bar(ax: Axes, mappable: ScalarMappable, label: str) -> Colorbar:
    """Add a labelled colour bar beside the Axes, of the same height, and return it."""
    bar = ax.figure.colorbar(mappable, cax=ax.inset_axes((1.04, 0.0, 0.05, 1.0)))
    bar.set_label(label, fontsize=TEXT_SIZE)
    bar.ax.tick_params(labelsize=SMALL_SIZE)
    return bar


def format_steps(axis: Axis) -> None:
    """Format the numbers of an axis as whole steps, with thousands separators."""
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10], integer=True))
    axis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def format_percent(*axes: Axis) -> None:
    """Format the numbers of axes, which are fractions, as percentages."""
    for axis in axes:
        axis.set_major_formatter(lambda fraction, _: f"{100 * fraction:.4g} %")


def format_short_numbers(axis: Axis) -> None:
    """Format large numbers of an axis in thousands, millions or billions: 250k, 1.5M, 2G.

    The unit is chosen from the present limits of the axis.
    """
    largest = max(map(abs, axis.get_view_interval()))

    def short_number(value: float, _: object) -> str:
        """Return a number in the unit that suits the largest one, with a typographic minus."""
        for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
            if largest >= 10 * size:
                return f"{value / size:,.4g}{letter}".replace("-", "−") if value else "0"
        return f"{value:g}".replace("-", "−")

    axis.set_major_formatter(short_number)


def set_log_scale(ax: Axes, bottom: float | None = None) -> None:
    """Make the y axis logarithmic, with few, short numbers; call it when everything is drawn."""
    ax.set_yscale("log", nonpositive="clip")
    ax.set_ylim(bottom=bottom)
    format_log_axis(ax.yaxis)


def format_log_axis(axis: Axis) -> None:
    """Set few, short numbers on a logarithmic axis, whose limits must be set.

    An axis of less than 0.7 decades has numbers at equal distances, one of less than 2.5 decades those that
    begin with 1, 2 or 5, and a longer one powers of ten. From 0.001 to 10,000 all are written without
    exponents.
    """
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, NullLocator

    low, high = sorted(axis.get_view_interval())
    decades = math.log10(high / low)
    if decades < 0.7:  # 1, 2 and 5 would leave one number, or none
        axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
        axis.set_minor_locator(NullLocator())
    elif decades < 2.5:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    else:
        axis.set_major_locator(LogLocator(subs=(1.0,)))

    has_plain_numbers = low >= 1e-3 and high <= 1e4
    if has_plain_numbers:
        axis.set_major_formatter(lambda value, _: f"{value:g}")
    else:
        axis.set_major_formatter(lambda value, _: format_number(value))
    axis.set_minor_formatter(NullFormatter())


def quantity_label(name: str) -> str:
    """Return the paper's symbol for a quantity, or the name itself.

    `hidden.tau` and `tau_output` are quantities of a part, whose name is added in brackets.
    """
    if name.endswith("_output"):
        part = "output"
        quantity = name.removesuffix("_output")
    else:
        part, _, quantity = name.rpartition(".")
    if part and quantity in SYMBOLS:
        return f"{SYMBOLS[quantity]} ({part})"
    return SYMBOLS.get(name, name)


def plain_label(name: str, max_length: int = 22) -> str:
    """Return a user's name as a label: in one line, shortened, and without mathematical markup."""
    line = " ".join(name.split())
    if len(line) > max_length:
        line = f"{line[: max_length - 1]}…"
    return line.replace("$", r"\$")


def format_number(value: object) -> str:
    """Return a number as a label: from 0.01 to 10⁴ with its digits, otherwise with a power of ten.

    Anything but a number is returned as its text.
    """
    if not is_real(value):
        return str(value)
    number = float(value)
    if math.isinf(number):
        return r"$\infty$" if number > 0 else r"$-\infty$"
    if number == 0 or math.isnan(number) or 0.01 < abs(number) < 1e4:
        return f"{number:g}"
    mantissa, exponent = f"{number:.3e}".split("e")
    factor = {"1": "", "-1": "-"}.get(f"{float(mantissa):g}", rf"{float(mantissa):g} \cdot ")
    return rf"${factor}10^{{{int(exponent)}}}$"


def _printed_length(label: str) -> int:
    """Return about how many characters of a label are printed, without mathematical markup."""
    return len(label.translate(dict.fromkeys(map(ord, "$\\{}^_"))))
