"""Settings files: what they contain, which options override them, and what is refused."""

import shutil
import tomllib
from pathlib import Path

import pytest

import heatbath as hb
from heatbath.cli.plans import prepare_run
from heatbath.cli.settings import merge_settings, read_settings


def test_settings_toml_is_complete(trained):
    """The file has all that decides the run, whatever the defaults become."""
    told = tomllib.loads((trained / "settings.toml").read_text())
    assert told["command"] == "train"
    assert told["problem"]["turns"] == 2
    assert told["method"] == {
        "name": "adlala", "h": 0.2, "tau": 2e-4, "sigma": 0.01, "epsilon": 0.03, "gamma": 0.1,
        "word": "BACDEDCAB", "word_output": "BAOAB", "xi": 0.1, "friction": "map", "thermostat": "part",
        "kinetic": "sum", "weight_decay": 0.0, "frequency": 0.0, "damping": 0.0,
    }  # fmt: skip
    assert told["network"] == {"hidden": [8], "activation": "relu", "init": "torch", "scale": 0.01}
    assert {"steps", "batch", "chains", "seed", "record", "samples", "dtype"} <= set(told["training"])


def test_options_win_over_the_file_and_another_method_leaves_nothing_of_the_old_one(trained):
    _, file = read_settings(trained / "settings.toml", "train")
    _, same = prepare_run(
        "train", merge_settings(file, {"method": {"tau": "3e-4"}, "training": {"steps": 70}}, [])
    )
    assert same["method"]["tau"] == 3e-4
    assert same["method"]["h"] == 0.2
    assert same["training"]["steps"] == 70
    plan, other = prepare_run("train", merge_settings(file, {"method": {"name": "lol"}}, []))
    assert plan.partition == hb.LOL()
    assert other["method"]["tau"] == 1e-3
    rings = merge_settings(file, {"problem": {"name": "rings"}}, [])["problem"]
    assert rings == {"name": "rings"}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("[problem", "is not a TOML file"),
        ("a = " + "[" * 5000, "is not a TOML file"),
        (
            "[optimiser]\nh = 1",
            "'optimiser' is not a section; accepted: problem, network, posterior, training",
        ),
        ("[method]\nlr = 1", "method has no lr; accepted: name, h, tau"),
        ("command = 'compare'", "is for heatbath compare, not for heatbath train"),
        ("command = 3", "command must be one of train, compare, sweep, tune, got 3"),
        ("method = 3", "'method' is not a section"),
        ("[problem]\nname = 'spirals'\nturns = 'four'", "turns must be a number"),
        ("[problem]\nname = ['spirals']", "there is no problem"),
        ("[network]\nhidden = 3", "hidden must be a list"),
        ("[training]\nrecord = [1, 2]", "record must be a whole number"),
        ("[method]\ntau = {schedule = 'Stairs'}", "a schedule is a dict"),
        ("[training]\nsteps = 2020-01-01", "steps must be a whole number"),
        ("[posterior]\nwidth = 1", "posterior has no width; accepted: prior, noise, temperature"),
        ("[posterior]\nprior = {}", "prior must be a list of numbers"),
    ],
)
def test_mistakes_in_settings_are_one_line(content, told, refused, tmp_path):
    file = tmp_path / "settings.toml"
    file.write_text(content)
    options = [] if "name" in content else ["--problem", "spirals"]
    assert told in refused(
        "train", "--settings", file, *options, "--method", "lol", "--out", tmp_path / "run"
    )
    assert list(tmp_path.iterdir()) == [file]


def test_settings_that_were_edited_do_not_go_on_with_the_old_run(trained, refused, tmp_path):
    folder = Path(shutil.copytree(trained, tmp_path / "run"))
    text = (folder / "settings.toml").read_text()
    (folder / "settings.toml").write_text(text.replace("tau = 0.0002", "tau = 0.0003"))
    before = (folder / "run.nc").read_bytes()
    assert "is of another run, with other partition" in refused("resume", folder, code=1)
    assert (folder / "run.nc").read_bytes() == before
