"""Pictures as files, and embedded in HTML."""

import base64
import io
import os
import xml.etree.ElementTree as ET

import pytest
from matplotlib.figure import Figure
from PIL import Image

from heatbath import plotting
from tests.plotting.pictures import PICTURES, on_line


def test_a_picture_is_saved_as_png_and_svg_with_the_same_bytes_every_time(tmp_path):
    first, again = PICTURES["classifier"](None), PICTURES["classifier"](None)
    figures = {"one": first, "two": first, "three.png": again}
    files = {name: plotting.save(ax, tmp_path / name) for name, ax in figures.items()}
    png, svg = files["one"]
    assert (png, svg) == (tmp_path / "one.png", tmp_path / "one.svg")
    assert files["three.png"] == (tmp_path / "three.png", tmp_path / "three.svg")
    for made in files.values():
        assert [path.read_bytes() for path in made] == [png.read_bytes(), svg.read_bytes()]
    with Image.open(png) as image:
        image.load()
        assert image.width == 680
        assert "Software" not in image.info
    assert ET.parse(svg).getroot().tag.endswith("svg")
    assert "<dc:date>" not in svg.read_text()
    assert len(list(tmp_path.iterdir())) == 6


def test_other_file_endings_are_kept(tmp_path):
    made = plotting.save(PICTURES["line"](None).figure, tmp_path / "tau.0.1")
    assert [path.name for path in made] == ["tau.0.1.png", "tau.0.1.svg"]
    made = plotting.save(PICTURES["line"](None), str(tmp_path / "x.SVG"))
    assert [path.name for path in made] == ["x.png", "x.svg"]


def test_a_picture_that_cannot_be_written_leaves_existing_files_unchanged(tmp_path, monkeypatch):
    (tmp_path / "x.png").write_bytes(b"before")

    def fails(*names):
        raise OSError("no space")

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(OSError, match="no space"):
        plotting.save(PICTURES["line"](None), tmp_path / "x")
    assert (tmp_path / "x.png").read_bytes() == b"before"
    assert [path.name for path in tmp_path.iterdir()] == ["x.png"]
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        plotting.save(PICTURES["line"](None), tmp_path / "nowhere" / "x")
    with pytest.raises(TypeError, match="a Figure or an Axes of matplotlib is needed, got 'x'"):
        plotting.save("x", tmp_path / "x")


@pytest.mark.parametrize(("asked", "wide"), [(300, 300), (5000, 680)])
def test_an_embedded_picture_is_a_png_of_at_most_the_requested_width(asked, wide):
    text = plotting.embed(PICTURES["line"](None), width=asked)
    head, _, body = text.partition(",")
    assert head == "data:image/png;base64"
    with Image.open(io.BytesIO(base64.b64decode(body))) as image:
        assert image.width == wide
    with pytest.raises(ValueError, match="width must be a whole number >= 1"):
        plotting.embed(PICTURES["line"](None), width=0)


def test_axes_of_a_subfigure_are_saved_with_the_whole_figure():
    figure = Figure(figsize=(4, 2), layout="constrained")
    left, _ = figure.subfigures(1, 2)
    ax = plotting.line(on_line([0.1, 1.0, 1.3, 0.9, 0.2]), ax=left.subplots())
    text = plotting.embed(ax, width=200)
    with Image.open(io.BytesIO(base64.b64decode(text.partition(",")[2]))) as image:
        assert image.size == (200, 100)
