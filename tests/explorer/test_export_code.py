"""Runs written as code make the same runs again."""

import os
import shlex
import subprocess
from contextlib import suppress
from functools import partial

import numpy as np
import pytest

import heatbath as hb
from heatbath.cli import main
from heatbath.cli.report import figures
from heatbath.explorer import export_code, method_menu
from tests.explorer.pages import stream_of
from tests.processes import run_in_copy


def run_from_python(stream):
    """Return the run that the exported Python makes."""
    names = {}
    exec(export_code.run_code(stream, "python"), names)
    return names["run"]


def run_from_commands(stream, folder):
    """Return the run that the exported commands make, split into words as a shell does."""
    command = export_code.run_code(stream, "command")
    launcher = folder / "heatbath"
    launcher.write_text("#!/bin/sh\nprintf '%s\\0' \"$@\" '' >> arguments\n")
    launcher.chmod(0o755)
    path = os.pathsep.join([str(folder), os.environ["PATH"]])
    done = subprocess.run(
        ["sh", "-c", command], cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    calls = [words.split("\0") for words in (folder / "arguments").read_text().split("\0\0")[:-1]]
    calls[-1] += ["--out", "out"]  # a folder that the test knows
    done = run_in_copy(partial(all_of, [[*words, "--threads", "1"] for words in calls]), folder)
    assert done.returncode == 0, done.stderr
    return hb.load(folder / "out" / "run.nc")


def all_of(calls):
    for words in calls:
        try:
            main(words)
        except SystemExit as ended:
            if ended.code:
                raise


def test_every_method_can_be_written_as_python_and_as_a_command(monkeypatch):
    understood = []
    monkeypatch.setattr(
        "heatbath.cli.commands._execute", lambda command, plan, *given: understood.append(plan)
    )
    for name in method_menu.method_names():
        stream = stream_of(runs={"A": {"method": name}})
        stream.work(60, 20)
        run = run_from_python(stream)
        assert np.array_equal(run.theta, stream.live.theta), name
        words = shlex.split(export_code.run_code(stream, "command"))
        assert words[0] == "heatbath"
        with suppress(SystemExit):
            main(words[1:])
        assert (understood[-1].partition, understood[-1].steps) == (run.partition, 20), name
    assert len(understood) == len(method_menu.method_names())


@pytest.mark.parametrize(
    "given",
    [
        {"runs": {"A": {"method": "LOL", "parts": {"hidden": {"word": "OBABO"}}}}},
        {"problem": {"kind": "points", "points": [[i / 7, (i * i) % 5 / 3, i % 2] for i in range(30)]}},
    ],
    ids=["a preset", "drawn points with changes"],
)
@pytest.mark.slow
def test_a_command_makes_the_same_run_bit_for_bit(given, tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "draw_figures", lambda *arguments: [])
    stream = stream_of(**given)
    stream.work(60, 30)
    if "problem" in given:
        stream.change({"h": 0.2, "parts": {"hidden": {"tau": 1e-3}}})
        stream.work(60, 20)
        stream.change({"anneal": {"factor": 0.1, "steps": 100}})
    stream.work(60, 25)
    expected = run_from_python(stream)
    assert np.array_equal(expected.theta, stream.live.theta)
    assert np.array_equal(run_from_commands(stream, tmp_path).theta, stream.live.theta)


@pytest.mark.slow
def test_a_command_has_every_phase_and_parts_that_no_preset_has(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "draw_figures", lambda *arguments: [])
    stream = stream_of()
    stream.change({"parts": {"output": {"weight_decay": 0.1}}})  # the preset has one for all
    stream.work(60, 30)
    stream.change({"parts": {"hidden": {"tau": 1e-3}}})
    stream.work(60, 20)
    stream.change({"parts": {"hidden": {"word": "BAFEFAB"}}})
    stream.work(60, 25)
    stream.change({"method": "LOL", "parts": {"hidden": {"tau": 1e-4}}})
    stream.work(60, 25)
    assert len(stream.phases) == 2
    assert np.array_equal(run_from_python(stream).theta, stream.live.theta)
    assert np.array_equal(run_from_commands(stream, tmp_path).theta, stream.live.theta)


def test_a_run_without_steps_can_be_written_as_code():
    stream = stream_of()
    assert f"steps={export_code.DEFAULT_STEPS}" in export_code.run_code(stream, "python")
