"""The look of the pictures: sizes, colours, dashes and symbols, set on each picture and never globally."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from heatbath._internal.checks import POSITIVE, is_real, real, whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.colorbar import Colorbar

COLUMN, PAGE = 3.4, 7.0  # widths in inches, of a column and of a page of a paper
TEXT, SMALL = 9, 8  # sizes of type in points
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


def panels(rows: int = 1, columns: int = 1, width: float = PAGE, height: float | None = None) -> list[Axes]:
    """Axes of a new figure, row by row; sizes in inches (the height as if each were a column's picture)."""
    from matplotlib.figure import Figure

    rows, columns = whole("rows", rows, low=1), whole("columns", columns, low=1)
    width = real("width", width, POSITIVE)
    height = 0.8 * width / columns * rows if height is None else real("height", height, POSITIVE)
    figure = Figure(figsize=(width, height), layout="constrained")
    return list(figure.subplots(rows, columns, squeeze=False).flat)


def axes_or_new(ax: object, height: float = 2.7) -> Axes:
    """`ax`, if it is an Axes, or the Axes of a new figure as wide as a column."""
    from matplotlib.axes import Axes

    if ax is None:
        return panels(width=COLUMN, height=height)[0]
    if not isinstance(ax, Axes):
        raise TypeError(f"ax must be an Axes of matplotlib, or None for a new figure; got {ax!r}")
    return ax


def look(place: int) -> dict[str, Any]:
    """Colour and dashes of the line number `place`: 49 of them differ."""
    again, colour = divmod(place, len(COLOURS))
    return {"color": COLOURS[colour], "linestyle": DASHES[(colour + again) % len(DASHES)]}


def dress(ax: Axes, x: str, y: str, *, box: bool = False) -> None:
    """Name the axes, and leave out what does not tell anything."""
    ax.set_xlabel(x, fontsize=TEXT)
    ax.set_ylabel(y, fontsize=TEXT)
    ax.tick_params(labelsize=SMALL)
    if not box:
        ax.spines[["top", "right"]].set_visible(False)


def key(ax: Axes) -> None:
    """A legend under the axis, where it hides no line, in as many columns as there is room for."""
    from matplotlib.transforms import ScaledTranslation

    handles, labels = ax.get_legend_handles_labels()
    if not labels:
        return
    figure = ax.figure.figure
    room = 1.2 * 72 * figure.get_figwidth() * ax.get_position().width  # in points, with the margins
    widths = [34 + 0.58 * SMALL * _printed(label) for label in labels]  # a line and its characters
    columns = len(labels) if sum(widths) <= room else max(1, int(room / max(widths)))
    rows = math.ceil(len(labels) / columns)
    columns = math.ceil(len(labels) / rows)
    needed = sum(widths) if rows == 1 else columns * max(widths)
    centred = needed <= 0.75 * room  # a wide one is at the right, with room under the numbers on the left
    below = ScaledTranslation(0, -2.9 * TEXT / 72, figure.dpi_scale_trans)  # under ticks and label
    ax.legend(
        handles,
        labels,
        loc="upper center" if centred else "upper right",
        bbox_to_anchor=(0.5 if centred else 1.0, 0.0),
        bbox_transform=ax.transAxes + below,
        ncols=columns,
        fontsize=SMALL,
        frameon=False,
        handlelength=2.2,
        columnspacing=1.2,
    )


def colour_bar(ax: Axes, shades: Any, label: str) -> Colorbar:
    """A bar beside the Axes, as high as they are, that says what the colours mean."""
    bar = ax.figure.colorbar(shades, cax=ax.inset_axes((1.04, 0.0, 0.05, 1.0)))
    bar.set_label(label, fontsize=TEXT)
    bar.ax.tick_params(labelsize=SMALL)
    return bar


def steps_on(axis: Axis) -> None:
    """Steps as whole numbers, with separators of thousands."""
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10], integer=True))
    axis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def percent_on(axis: Axis) -> None:
    """Shares as percentages."""
    axis.set_major_formatter(lambda share, _: f"{100 * share:.4g} %")


def short_on(axis: Axis) -> None:
    """Large numbers in thousands or millions: 250k, 1.5M."""

    def text(value: float, _: object) -> str:
        for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
            if widest >= 10 * size:
                return f"{value / size:,.4g}{letter}".replace("-", "−") if value else "0"
        return f"{value:g}".replace("-", "−")

    widest = max(map(abs, axis.get_view_interval()))
    axis.set_major_formatter(text)


def logarithmic(ax: Axes, bottom: float | None = None) -> None:
    """A logarithmic y axis with few, short numbers; to be called when all is drawn."""
    ax.set_yscale("log", nonpositive="clip")
    ax.set_ylim(bottom=bottom)
    powers_on(ax.yaxis)


def powers_on(axis: Axis) -> None:
    """Few, short numbers on a logarithmic axis, whose ends are set."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, NullLocator

    low, high = sorted(axis.get_view_interval())
    decades = math.log10(high / low)
    if decades < 0.7:  # 1, 2 and 5 would leave one number, or none
        axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
        axis.set_minor_locator(NullLocator())
    else:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if decades < 2.5 else (1.0,)))
    plain = low >= 1e-3 and high <= 1e4
    axis.set_major_formatter(lambda value, _: f"{value:g}" if plain else number(value))
    axis.set_minor_formatter(NullFormatter())


def symbol(name: str) -> str:
    """What a quantity is called in the paper; `hidden.tau` and `tau_output` are those of a part."""
    part, _, quantity = name.rpartition(".")
    if name.endswith("_output"):
        part, quantity = "output", name.removesuffix("_output")
    if part and quantity in SYMBOLS:
        return f"{SYMBOLS[quantity]} ({part})"
    return SYMBOLS.get(name, name)


def as_text(name: str, most: int = 22) -> str:
    """A name of the user's as it is printed: in one line, not too long, and never taken for mathematics."""
    line = " ".join(name.split())
    return (line if len(line) <= most else f"{line[: most - 1]}…").replace("$", r"\$")


def number(value: object) -> str:
    """A number as it is printed: 0.04 and 250 with their digits, 10⁻² and others with a power of ten."""
    if not is_real(value):
        return str(value)
    given = float(value)
    if math.isinf(given):
        return r"$\infty$" if given > 0 else r"$-\infty$"
    if given == 0 or math.isnan(given) or 0.01 < abs(given) < 1e4:
        return f"{given:g}"
    mantissa, exponent = f"{given:.3e}".split("e")
    factor = {"1": "", "-1": "-"}.get(f"{float(mantissa):g}", rf"{float(mantissa):g} \cdot ")
    return rf"${factor}10^{{{int(exponent)}}}$"


def _printed(label: str) -> int:
    """About how many characters are printed, without the marks of mathematics."""
    return len(label.translate(dict.fromkeys(map(ord, "$\\{}^_"))))
