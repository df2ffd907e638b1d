"""The command line given nonsense: whatever a file holds, mistakes are one line and never a traceback."""

import tomllib

import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st

from heatbath.cli import commands, main
from heatbath.cli.methods import known
from heatbath.cli.options import SECTIONS, SETTINGS
from heatbath.cli.report import figures

FEW = settings(max_examples=20)
ODD = st.one_of(
    st.sampled_from(
        [-1, 0, 1, 2, 7, 2**40, 2**70, 0.5, -0.5, 1e-4, 1e308, float("inf"), float("nan"), True, ""]
    ),
    st.sampled_from(
        ["1,2", "1:2:3", "0:1:2", "inf", "x", "BAOAB", "zero", "thermal", "tanh", "mean", "auto"]
    ),
    st.lists(st.sampled_from([0, 1, 3, 0.1, "x", 2**70, {}]), max_size=3),
    st.dictionaries(
        st.sampled_from(["schedule", "start", "steps"]), st.sampled_from(["Linear", 1, 0.1]), max_size=3
    ),
)
SANE = {
    "problem": {"name": "spirals", "n_train": 20, "n_test": 10},
    "network": {"hidden": [4]},
    "training": {"steps": 5, "batch": 5, "chains": 2},
}
BOUNDED = {"draws", "n_train", "n_test"}  # any number of data is accepted, and made


@st.composite
def draw_settings(draw):
    """Return settings with a few bad values or sections, or TOML that has nothing to do with settings."""
    made = {section: dict(values) for section, values in SANE.items()}
    made["method"] = {"name": draw(st.sampled_from([*known()])), "h": 0.1, "tau": 1e-4, "gamma": 1.0}
    for _ in range(draw(st.integers(0, 3))):
        setting = draw(st.sampled_from([s for s in SETTINGS if s.name not in BOUNDED]))
        made.setdefault(setting.section, {})[setting.name] = draw(ODD)
    for name in draw(st.lists(st.sampled_from([*SECTIONS, "methods", "command", "seed"]), max_size=1)):
        made[name] = draw(ODD)
    return made


def exit_code(capsys, *arguments):
    """Run a command, check that a failure prints at most one line, and return its exit code."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main([str(argument) for argument in arguments])
    err = capsys.readouterr().err
    lines = [line for line in err.splitlines() if not line.startswith(("preparing", "heatbath: warning"))]
    assert end.value.code in (0, 1, 2)
    assert len(lines) == (end.value.code != 0), err
    return end.value.code


@pytest.fixture
def read_only(monkeypatch, tmp_path):
    """Have commands read and check everything, but run nothing."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(commands, "_execute", lambda *arguments: None)
    return tmp_path


@st.composite
def draw_search_settings(draw):
    """Return the settings of a search, with a few bad values or sections."""
    method = {"name": draw(st.sampled_from([*known()])), "h": {"low": 0.1, "high": 0.2, "scale": "log"}}
    search = {"steps": 8, "batch": 5, "candidates": 2, "fresh": 1}
    made = {
        "problem": SANE["problem"],
        "network": SANE["network"],
        "search": search,
        "methods": {"A": method},
    }
    ends = st.fixed_dictionaries({"low": ODD, "high": ODD}, optional={"scale": ODD})
    for _ in range(draw(st.integers(0, 3))):
        name = draw(st.sampled_from([s.name for s in SETTINGS if s.section in ("search", "method")]))
        where = method if draw(st.booleans()) else search
        where[name] = draw(st.one_of(ODD, ends, st.sampled_from(["0.1..0.2", "2..1", "..", "0.1..x"])))
    return made


@FEW
@given(made=draw_search_settings())
def test_no_settings_of_a_search_make_a_traceback(read_only, capsys, made):
    (read_only / "settings.toml").write_text(tomli_w.dumps(made))
    exit_code(capsys, "tune", "--settings", read_only / "settings.toml")


@FEW
@given(made=draw_settings(), command=st.sampled_from(["train", "sweep", "compare"]))
def test_no_settings_make_a_traceback(read_only, capsys, made, command):
    (read_only / "settings.toml").write_text(tomli_w.dumps(made))
    exit_code(capsys, command, "--settings", read_only / "settings.toml")


@FEW
@given(text=st.text(st.sampled_from("[]{}=.,'\"\n# ab1-:\\\0é"), max_size=60))
def test_no_text_in_the_place_of_settings_makes_a_traceback(read_only, capsys, text):
    (read_only / "settings.toml").write_text(text)
    assert exit_code(capsys, "train", "--settings", read_only / "settings.toml") == 2


CELLS = st.one_of(
    st.sampled_from(["1", "-2.5", "1e400", "nan", "inf", "", "red", "1_0", '"', "é", "0x1", "true", " 3 "]),
    st.floats(-1e3, 1e3).map(str),
)


@FEW
@given(
    rows=st.lists(st.lists(CELLS, min_size=1, max_size=4), max_size=8),
    header=st.sampled_from(["a,b,y", "a,y", "y", "y,y,a", "", "a,b,c,y", "\ufeffa,y"]),
    task=st.sampled_from([[], ["--task", "regression"], ["--task", "classes"], ["--task", "binary"]]),
)
def test_no_csv_makes_a_traceback(read_only, capsys, rows, header, task):
    (read_only / "data.csv").write_text("\n".join([header, *map(",".join, rows)]), encoding="utf-8")
    options = ["--target", "y", "--method", "lol", *task]
    exit_code(capsys, "train", "--data", read_only / "data.csv", *options)


@settings(FEW, max_examples=8)
@given(content=st.binary(max_size=80), name=st.sampled_from(["data.csv", "data.parquet"]))
def test_no_bytes_make_a_traceback(read_only, capsys, content, name):
    (read_only / name).write_bytes(content)
    assert exit_code(capsys, "train", "--data", read_only / name, "--target", "y", "--method", "lol") == 2
    assert exit_code(capsys, "train", "--settings", read_only / name) == 2
    assert exit_code(capsys, "resume", read_only / name) == 2
    assert exit_code(capsys, "predict", read_only / name, read_only / name) in (1, 2)


@settings(FEW, max_examples=6)
@given(made=draw_settings())
def test_settings_that_are_accepted_run_to_the_end(tmp_path_factory, monkeypatch, capsys, made):
    """Otherwise one line says why they do not. The settings that runs write are accepted again."""
    folder = tmp_path_factory.mktemp("fuzz")
    monkeypatch.setattr(figures, "draw_figures", lambda *arguments: [])
    (folder / "settings.toml").write_text(tomli_w.dumps(made))
    if exit_code(capsys, "train", "--settings", folder / "settings.toml", "--out", folder / "run") == 0:
        assert tomllib.loads((folder / "run" / "settings.toml").read_text())["command"] == "train"
        again = ["--settings", folder / "run" / "settings.toml", "--out", folder / "again"]
        assert exit_code(capsys, "train", *again) == 0
        assert (folder / "run" / "run.nc").read_bytes() == (folder / "again" / "run.nc").read_bytes()
