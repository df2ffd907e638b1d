"""Files and folders written by earlier versions: they load, and continue as they would have there.

tests/files has a run of format 1 that was interrupted (float64, schedules, θ seen at the kick), one with
shuffled epochs and a ladder, a comparison of four methods, and a folder of the command line with a run that
was killed. expected.json is what the version that wrote them had in them, and made of them.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import heatbath as hb
from heatbath.cli import main
from heatbath.runs import file
from tests.runs import differences

FILES = Path(__file__).parent.parent / "files"
EXPECTED = json.loads((FILES / "expected.json").read_text())


def check(run, expected):
    assert run.step == expected["step"]
    assert run.data["step"].values.tolist() == expected["records"]
    assert dict(run.data.sizes) == expected["sizes"]
    assert sorted(map(str, run.data.variables)) == expected["names"]
    assert run.died.tolist() == expected["died"]
    tolerance = 1e-10 if run.plan.dtype == "float64" else 1e-4  # which rounding reaches on other machines
    np.testing.assert_allclose(run.theta, expected["theta"], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ["interrupted", "tempered", "comparison"])
def test_a_file_of_format_1_loads_and_continues_as_it_would_have(name, tmp_path):
    path = FILES / f"{name}.nc"
    assert file.read(path).attrs["heatbath_format"] == 1
    run = hb.load(path)
    check(run, EXPECTED[name]["loaded"])
    assert run.plan.chains == 2
    assert run.plan.shuffled == (name == "tempered")
    with pytest.warns(
        RuntimeWarning, match="begun by an earlier heatbath .* not bit for bit as it would have there"
    ):
        longer = run.resume(EXPECTED[name]["steps"])
    check(longer, EXPECTED[name]["resumed"])
    longer.save(tmp_path / "now.nc")
    assert file.read(tmp_path / "now.nc").attrs["heatbath_format"] == file.FORMAT == 3
    again = hb.load(tmp_path / "now.nc")
    assert differences(again, longer) == []
    assert again.former == longer.former == run.former != ""
    with pytest.warns(RuntimeWarning, match="the run that is made now differs from it"):
        again.replay()


def test_a_checkpoint_of_format_1_is_continued_by_the_same_call(tmp_path):
    shutil.copy(FILES / "interrupted.nc", tmp_path / "run.nc")
    before = hb.load(tmp_path / "run.nc")
    with pytest.warns(RuntimeWarning, match="begun by an earlier heatbath"):
        run = hb.train(
            before.problem, before.network, before.partition, 60, 4, 2, record=5, samples=4, dtype="float64",
            checkpoint=tmp_path / "run.nc", seed=before.plan.seed,
        )  # fmt: skip
    check(run, EXPECTED["interrupted"]["resumed"])


def test_a_folder_of_the_command_line_is_resumed(tmp_path, capsys):
    """Its settings.toml says `epochs`."""
    folder = tmp_path / "folder"
    shutil.copytree(FILES / "folder", folder)
    assert "epochs = true" in (folder / "settings.toml").read_text()
    check(hb.load(folder / "run.nc"), EXPECTED["folder"]["loaded"])
    with pytest.raises(SystemExit) as end:
        main(["resume", str(folder), "--json"])
    assert end.value.code == 0
    run = hb.load(folder / "run.nc")
    assert run.plan.shuffled
    check(run, EXPECTED["folder"]["resumed"])
    assert json.loads(capsys.readouterr().out)["steps"] == 80


def test_every_setting_has_a_single_name(tmp_path, capsys):
    """A control: what was written before is read, but options have no second name."""
    with pytest.raises(SystemExit) as end:
        main(["train", "--problem", "spirals", "--method", "lol", "--epochs"])
    assert end.value.code == 2
    assert "--epochs" in capsys.readouterr().err
    with pytest.raises(TypeError, match="epochs"):
        hb.train(hb.datasets.spirals(n_train=9), hb.MLP((2,)), hb.LOL(), 5, epochs=True)
    with pytest.raises(TypeError, match="there is no option repeats"):
        hb.sweep(hb.datasets.spirals(n_train=9), hb.MLP((2,)), hb.LOL(tau=[0.0, 0.1]), 5, repeats=2)
