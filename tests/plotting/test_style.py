"""Pictures fit their figures, look as in a paper, and touch nothing else."""

import subprocess
import sys
from itertools import pairwise

import matplotlib
import matplotlib.pyplot as plt
import pytest
from matplotlib.figure import Figure

from heatbath import plotting
from heatbath.plotting import style
from tests.plotting.pictures import PICTURES
from tests.runs import SPIRALS


def printed(figure):
    figure.draw_without_rendering()
    return figure.canvas.get_renderer() if hasattr(figure.canvas, "get_renderer") else figure._get_renderer()


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_drawn_on_the_given_axes_and_nothing_global_changes(name):
    before, open_figures = dict(matplotlib.rcParams), plt.get_fignums()
    ax = Figure(figsize=(4, 3), layout="constrained").subplots()
    made = PICTURES[name](ax)
    assert made is ax
    assert ax.has_data()
    new = PICTURES[name](None)
    assert new is not ax
    assert new.figure.get_figwidth() == 3.4
    plotting.embed(new)
    assert dict(matplotlib.rcParams) == before
    assert plt.get_fignums() == open_figures


@pytest.mark.parametrize(
    "ends", [(0.0098, 0.0118), (1.1, 1.9), (2.1, 4.9), (0.9, 6.0), (3e-5, 0.9), (210, 490)]
)
def test_a_logarithmic_axis_has_at_least_two_numbers(ends):
    """That holds however short the axis is."""
    ax = Figure(figsize=(3.4, 2.6)).subplots()
    ax.plot([0, 1], ends)
    style.set_log_scale(ax)
    low, high = ax.get_ylim()
    ax.figure.draw_without_rendering()
    marks = [(tick.get_loc(), tick.label1.get_text()) for tick in ax.yaxis.get_major_ticks()]
    shown = [text for place, text in marks if low <= place <= high and text]
    assert 2 <= len(set(shown)) == len(shown) <= 8


@pytest.mark.parametrize("name", PICTURES)
@pytest.mark.parametrize("place", ["column", "page"])
def test_nothing_is_cut_off_and_the_legend_hides_nothing(name, place):
    ax = None if place == "column" else plotting.panels(columns=2)[1]
    ax = PICTURES[name](ax)
    figure = ax.figure
    renderer = printed(figure)
    inside = figure.get_tightbbox(renderer)  # in inches
    width, height = figure.get_size_inches()
    assert inside.x0 > -0.02
    assert inside.y0 > -0.02
    assert inside.x1 < width + 0.02
    assert inside.y1 < height + 0.02
    legend = ax.get_legend()
    if legend is not None:
        lowest = min(ax.get_window_extent(renderer).y0, ax.xaxis.label.get_window_extent(renderer).y0)
        assert legend.get_window_extent(renderer).y1 <= lowest + 1
    labels = ax.xaxis.get_ticklabels()
    spans = sorted(
        (t.get_window_extent(renderer).x0, t.get_window_extent(renderer).x1) for t in labels if t.get_text()
    )
    assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))


def test_the_first_picture_loads_matplotlib_and_none_loads_pyplot(tmp_path):
    code = (
        "import sys; from heatbath import plotting, datasets; assert 'matplotlib' not in sys.modules; "
        "plotting.save(plotting.data(datasets.rings()), 'rings'); assert 'matplotlib' in sys.modules; "
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert {p.name for p in tmp_path.iterdir()} == {"rings.png", "rings.svg"}


def test_panels_are_in_reading_order_and_have_the_requested_size():
    axes = plotting.panels(2, 3, width=6.0, height=2.5)
    figure = axes[0].figure
    assert figure.get_size_inches().tolist() == [6.0, 2.5]
    assert axes == figure.axes
    assert axes[1].get_position().x0 > axes[0].get_position().x0
    assert axes[3].get_position().y1 < axes[0].get_position().y0
    assert plotting.panels()[0].figure.get_figwidth() == 7.0
    with pytest.raises(ValueError, match="rows must be a whole number >= 1"):
        plotting.panels(0)


def test_an_ax_of_another_type_is_refused():
    with pytest.raises(TypeError, match="ax must be an Axes of matplotlib, or None"):
        plotting.data(SPIRALS, ax="left")


def test_lines_differ_in_colour_and_dashes():
    looks = [(own["color"], own["linestyle"]) for own in map(style.line_style, range(49))]
    assert len(set(looks)) == 49
    assert len({c for c, _ in looks[:7]}) == len({d for _, d in looks[:7]}) == 7


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e-4, "$10^{-4}$"),
        (0.01, "$10^{-2}$"),
        (4e-2, "0.04"),
        (2.5e-3, r"$2.5 \cdot 10^{-3}$"),
        (-1e-4, "$-10^{-4}$"),
        (0.1, "0.1"),
        (0, "0"),
        (250, "250"),
        (20000.0, r"$2 \cdot 10^{4}$"),
        (float("inf"), r"$\infty$"),
        ("Linear(...)", "Linear(...)"),
    ],
)
def test_numbers_are_printed_as_in_a_paper(value, text):
    assert style.format_number(value) == text


def test_quantities_have_the_papers_symbols():
    assert style.quantity_label("sigma") == r"$\sigma_A$"
    assert style.quantity_label("hidden.tau") == r"$\tau$ (hidden)"
    assert style.quantity_label("accuracy") == "accuracy"
