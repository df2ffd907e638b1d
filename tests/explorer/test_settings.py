"""Settings, the catalogue they come from, scenes, and runs as code."""

import json
import signal
import subprocess
import sys
import types
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest

import heatbath as hb
from heatbath.explorer import settings as settings
from heatbath.explorer.loss_lines import RunStates, losses_on_lines
from heatbath.explorer.session import make_streams
from heatbath.methods.schedules import Exponential
from tests.explorer.pages import SMALL, stream_of
from tests.patience import PATIENCE

SCENES = json.loads((Path(settings.__file__).parent / "scenes.json").read_text(encoding="utf-8"))


def test_complete_settings_are_read_unchanged():
    for given in ({}, SMALL, *(scene["settings"] for scene in SCENES)):
        plain = settings.read_settings(given).as_json
        again = settings.read_settings(json.loads(json.dumps(plain, allow_nan=False)))
        assert again.as_json == plain
        assert again.runs == settings.read_settings(given).runs


def test_presets_equal_those_of_the_library():
    assert settings.read_settings({"runs": {"A": {"method": "AdLaLa"}}}).runs["A"].partition() == hb.AdLaLa()
    assert settings.read_settings({"runs": {"A": {"method": "LOL"}}}).runs["A"].partition() == hb.LOL()
    given = {"method": "LOL", "parts": {"output": {"gamma": 2, "tau": 1e-5}, "hidden": {"gamma": "inf"}}}
    made = settings.read_settings({"runs": {"A": given}}).runs["A"].partition()
    assert made == hb.LaLa(0.1, float("inf"), 1e-3, 2.0, 1e-5)


def test_annealing_reaches_its_factor_after_its_steps():
    run = settings.read_settings({"runs": {"A": {"method": "LOL"}}}).runs["A"]
    cold = run.with_change({"anneal": {"factor": 0.01, "steps": 100}}, step=50)
    tau = cold.partition().methods["hidden"].tau
    assert isinstance(tau, Exponential)
    assert tau(50) == pytest.approx(1e-3)
    assert tau(100) == pytest.approx(1e-4)
    assert tau(150) == tau(1000) == pytest.approx(1e-5)
    assert cold.partition().methods["output"].tau == 0
    later = cold.partition(phase_start=80).methods["hidden"].tau  # of a phase that begins at step 80
    assert [later(n) for n in (0, 20, 70, 99)] == pytest.approx([tau(n + 80) for n in (0, 20, 70, 99)])
    assert cold.partition(phase_start=500).methods["hidden"].tau == pytest.approx(1e-5)
    sgld = settings.read_settings({"runs": {"A": {"method": "SGLD", "parts": {"all": {"sigma": 0.1}}}}}).runs[
        "A"
    ]
    assert sgld.with_temperatures_times(4.0).base_partition.methods["all"].sigma == pytest.approx(
        0.2
    )  # σ² is a temperature


def test_after_a_reset_annealing_begins_at_step_0():
    stream = stream_of()
    stream.work(60, 60)
    stream.change({"anneal": {"factor": 0.01, "steps": 10}})
    stream.change({"h": 0.1})
    again = settings.settings_after_reset(stream.settings, {"A": stream}).runs["A"]
    usual = stream.run.base_partition.methods["hidden"].tau
    assert again.partition().methods["hidden"].tau == Exponential(usual, 0.01 * usual, 10)
    assert stream.run.partition().methods["hidden"].tau(60) == pytest.approx(usual)


def test_annealing_that_begins_too_late_is_refused_with_the_steps_it_needs():
    run = settings.read_settings({"runs": {"A": {"method": "LOL"}}}).runs["A"]
    with pytest.raises(settings.SettingsError, match="from step 10,000,000 on, temperatures can") as found:
        run.with_change({"anneal": {"factor": 0.01, "steps": 20_000}}, step=10_000_000)
    least = int(str(found.value).split("within ")[1].split()[0].replace(",", ""))
    late = run.with_change({"anneal": {"factor": 0.01, "steps": least}}, step=10_000_000)
    assert late.partition().methods["hidden"].tau(10_000_000) == pytest.approx(1e-3)


def test_the_limit_of_rows_holds_for_all_line_endings():
    for end in ("\n", "\r", "\r\n"):
        text = end.join(["a,b,c", *(f"{i / 2},{i % 7},{'xy'[i % 2]}" for i in range(settings.MAX_EXAMPLES))])
        assert settings.read_settings({"problem": {"kind": "csv", "text": text}}).problem.inputs == 2
        with pytest.raises(settings.SettingsError, match="1 to 5000 rows"):
            settings.read_settings({"problem": {"kind": "csv", "text": f"{text}{end}1,2,x"}})
    with pytest.raises(settings.SettingsError, match="the table is empty"):
        settings.read_settings({"problem": {"kind": "csv", "text": "\ufeff"}})


def test_a_table_without_a_header_is_refused_with_advice():
    rows = [f"{i / 2},{i % 7},{'xy'[i % 2]}" for i in range(40)]
    for text in (rows, [f"{row[:-1]}{i % 2}" for i, row in enumerate(rows)]):
        with pytest.raises(
            settings.SettingsError, match=r"would be called 0.0, 0.*x1,x2,class above the rows"
        ):
            settings.read_settings({"problem": {"kind": "csv", "text": "\n".join(text)}})
    given = {"kind": "csv", "text": "\n".join(["1st,2,class", *rows])}
    assert settings.read_settings({"problem": given}).problem.inputs == 2


# Scenes


def test_scenes_have_a_title_and_two_sentences():
    assert len({scene["name"] for scene in SCENES}) == 6
    for scene in SCENES:
        assert set(scene) == {"name", "title", "text", "settings"}
        assert scene["text"].count(". ") == 1
        assert scene["text"].endswith(".")


def run_scene(name, steps, change=None):
    """Return both runs of a scene after some steps; `change` is made to run A half way."""
    given = settings.read_settings(next(scene for scene in SCENES if scene["name"] == name)["settings"])
    streams = make_streams(given, lambda *message: None)
    looks = []
    for stream in streams.values():
        live = stream.live
        live.advance(steps // 2)
        if change and stream.name == "A":
            live.change(stream.run.with_change(change).partition())
        middle = live.look(stream.domain.grid(40))
        live.advance(steps - live.step)
        looks += [middle, live.look(stream.domain.grid(40))]
    return looks


@pytest.mark.slow
def test_scenes_show_what_their_texts_claim():
    # some 100,000 steps are made in the twenty seconds that one plays a scene
    (a0, a1, b0, b1) = run_scene("temperature", 40_000)
    assert np.abs(a1.outputs - a0.outputs).mean() < 0.05 < np.abs(b1.outputs - b0.outputs).mean()
    assert min(a1.accuracy[:, 1].mean(), b1.accuracy[:, 1].mean()) > 0.95
    (_, a1, _, b1) = run_scene("tuned", 60_000)
    assert a1.accuracy[:, 1].mean() > 0.94 > 0.9 > b1.accuracy[:, 1].mean()
    (a0, a1, _, b1) = run_scene("band", 60_000, {"parts": {"hidden": {"tau": 3e-4}}})
    assert a0.accuracy[:, 1].mean() < 0.65 < 0.9 < a1.accuracy[:, 1].mean()
    assert b1.accuracy[:, 1].mean() < 0.92
    (_, a1, _, b1) = run_scene("noise", 60_000)
    assert a1.accuracy[:, 1].mean() < 0.55 < 0.85 < b1.accuracy[:, 1].mean()
    assert a1.xi["hidden"].max() < 0.2 < 1 < b1.xi["hidden"].min()
    (a0, a1, b0, b1) = run_scene("overfitting", 40_000)
    assert b1.loss[:, 1].mean() > 1.2 * b0.loss[:, 1].mean() > 1.5 * a1.loss[:, 1].mean()
    assert b1.accuracy[:, 0].mean() > 0.999
    (_, a1, _, b1) = run_scene("uncertainty", 20_000)
    assert a1.outputs.std(axis=0).mean() > 2 * b1.outputs.std(axis=0).mean()


# Flights


def diverged(stream):
    for _ in range(4):
        stream.live._seconds_since_saving = 1.0  # as if what there is had taken a while
        stream.work(60, 20)
    stream.change({"parts": {"hidden": {"tau": 1e60}}})
    stream.work(60, 100)
    assert not stream.alive


def history_makes_the_same(stream):
    run = {"method": "LaLa", "history": [list(entry) for entry in stream.history]}
    again = stream_of(runs={"A": run})
    again.work(60, stream.step)
    return np.array_equal(again.live.theta, stream.live.theta)


def test_a_rewind_releases_a_heat_button():
    stream = stream_of(runs={"A": {"method": "LaLa"}})
    stream.work(60, 30)
    cold = stream.run
    stream.set_heat(100.0)
    stream.work(60, 20)
    diverged(stream)
    stream.set_heat(1.0)
    stream.rewind()
    assert 30 < stream.step < 130
    assert stream.run == cold
    stream.work(60, 20)
    assert stream.live.partition.methods["hidden"].tau.values[-1] == cold.base_partition.methods["hidden"].tau
    assert history_makes_the_same(stream)


def test_rewinding_twice_to_one_state_sends_the_same_settings():
    stream = stream_of(runs={"A": {"method": "LaLa"}})
    stream.work(60, 30)
    diverged(stream)
    stream.rewind()
    stream.change({"h": 0.123})
    stream.work(60, 5)
    stream.rewind()
    stream.work(60, 20)
    assert stream.run.base_partition.h == 0.123 == stream.live.partition.h.values[-1]
    assert history_makes_the_same(stream)


# Starting


def is_served(url):
    """Return True if a server answers at this address, even with an error page."""
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE):
            return True
    except urllib.error.HTTPError:
        return True


def test_the_command_starts_a_server_and_ctrl_c_ends_it():
    command = [sys.executable, "-c", "from heatbath.cli import main; main()", "explore", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        line = process.stdout.readline()
        url = line.split()[1]
        try:
            assert is_served(url)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert process.returncode == 0
    assert errors == ""


def test_a_notebook_shows_the_page_in_a_frame_once_the_server_has_started(monkeypatch):
    shown = []
    display = types.ModuleType("IPython.display")
    display.IFrame = lambda address, width, height: address

    def show(address):
        shown.append((address, is_served(address)))  # it must by now

    display.display = show
    ipython = types.ModuleType("IPython")
    ipython.get_ipython = lambda: types.SimpleNamespace(config={"IPKernelApp": {}})
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    with hb.explore() as server:
        assert shown == [(server.url, True)]
    display.display = shown.append
    monkeypatch.setenv("JUPYTERHUB_SERVICE_PREFIX", "/user/someone/")
    with hb.explore() as server:
        assert shown[-1] == f"/user/someone/proxy/{server.port}/?token={server.token}"


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(ImportError, match=r"needs uvicorn, an extra: pip install 'heatbath\[explorer\]'"):
        hb.explore(browser=False)
    with pytest.raises(TypeError, match="port must be a whole number"):
        hb.explore(port="80", browser=False)


def test_a_table_with_too_many_columns_is_refused_before_it_is_read(monkeypatch):
    monkeypatch.setattr("heatbath.datasets.tables.read_table", None)
    for mark in ",;\t":
        text = "a title\r" + mark.join(f"x{i}" for i in range(51)) + "\n"
        with pytest.raises(settings.SettingsError, match=r"at most 50 columns.*lines of 51"):
            settings.read_settings({"problem": {"kind": "csv", "text": text, "target": None}})


@pytest.mark.parametrize(
    ("hidden", "points", "count"), [(100, 1000, 61), (1000, 1000, 61), ([400, 400], 1000, 13)]
)
def test_loss_lines_of_large_networks_have_fewer_points_including_both_ends(
    monkeypatch, hidden, points, count
):
    def line(problem, network, one, two, at, split, threads):
        return {"loss": types.SimpleNamespace(values=at)}

    monkeypatch.setattr("heatbath.explorer.loss_lines.landscape.line", line)
    given = settings.read_settings({
        "problem": {"kind": "blobs", "points": points}, "network": {"hidden": np.atleast_1d(hidden).tolist()},
    })  # fmt: skip
    ends = RunStates(np.zeros((1, 1)), np.zeros((1, 1)))
    found = losses_on_lines(given, {"A": ends, "B": ends}, 0)
    at = found["A-B"]["at"]
    assert len(at) == count
    assert {0.0, 1.0} <= set(at)
