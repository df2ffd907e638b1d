"""Folders of runs: claimed, released, and left alone."""

from pathlib import Path

from tests.cli.arguments import ADLALA, SMALL


def test_runs_without_a_name_get_a_folder_of_their_own(tmp_path, monkeypatch, call, no_pictures):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert call("train", *SMALL, "--method", "sgd", "--h", "0.1")[0] == 0
    assert sorted(path.name for path in Path("runs").iterdir()) == ["spirals-sgd-1", "spirals-sgd-2"]


def test_a_folder_that_holds_something_is_left_alone(trained, refused, tmp_path):
    before = {path.name: path.read_bytes() for path in trained.iterdir()}
    line = refused("train", *SMALL, "--method", "lol", "--out", trained)
    assert f"heatbath resume {trained}" in line
    assert {path.name: path.read_bytes() for path in trained.iterdir()} == before
    (tmp_path / "letter.txt").write_text("dear")
    assert "is not empty" in refused("train", *SMALL, "--method", "lol", "--out", tmp_path)
    assert "cannot be made" in refused("train", *SMALL, *ADLALA, "--out", tmp_path / "letter.txt", code=1)
