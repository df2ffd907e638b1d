"""Launching runs: checkpoints that a call continues, replaces or leaves alone."""

import errno
import os

import numpy as np
import pytest

import heatbath as hb
from heatbath.runs import file
from tests.runs import SHORT, SMALL, SPIRALS, Interrupting, differences, small_run


def test_a_checkpoint_that_fails_is_a_warning_and_the_run_continues(tmp_path, monkeypatch):
    path = tmp_path / "run.nc"
    real, calls = os.fsync, []

    def fail_later(handle):
        calls.append(handle)
        if len(calls) > 4:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(handle)

    monkeypatch.setattr(os, "fsync", fail_later)
    with pytest.warns(RuntimeWarning, match=r"the checkpoint at step \d+ failed, and the run continues"):
        run = small_run(steps=3000, checkpoint=path, every=0)
    assert differences(run, small_run(steps=3000)) == []
    monkeypatch.undo()
    assert differences(hb.load(path).resume(), run) == []


def test_memory_that_runs_out_in_a_checkpoint_is_a_warning(tmp_path, monkeypatch):
    calls, real = [], file.write

    def write(*arguments):
        calls.append(1)
        if len(calls) > 1:
            raise MemoryError("no room")
        real(*arguments)

    monkeypatch.setattr(file, "write", write)
    with pytest.warns(
        RuntimeWarning, match="the checkpoint at step 40 failed, and the run continues: no room"
    ):
        assert small_run(checkpoint=tmp_path / "run.nc").finished


def test_the_same_call_continues_from_its_checkpoint(tmp_path):
    path = tmp_path / "run.nc"
    options = {"steps": 3000, "samples": 10, "checkpoint": path}
    with pytest.warns(RuntimeWarning, match="interrupted at step"):
        part = small_run(**options, progress=Interrupting(3))
    assert hb.load(path).step == part.step < 3000
    with pytest.raises(ValueError, match=r"run.nc is of another run, with other seed: it is left alone"):
        small_run(**options | {"seed": 8})
    assert hb.load(path).step == part.step
    seen = []
    run = small_run(**options, progress=seen.append)
    assert seen[0].first == part.step
    assert differences(run, small_run(steps=3000, samples=10)) == []
    finished = path.stat().st_mtime_ns
    assert differences(small_run(**options), run) == []
    assert path.stat().st_mtime_ns == finished  # nothing was left to do


def test_a_checkpoint_of_another_problem_or_start_is_left_alone(tmp_path):
    path = tmp_path / "run.nc"
    small_run(checkpoint=path)
    before = path.read_bytes()
    other = hb.datasets.spirals(turns=4, n_train=200, n_test=100)
    with pytest.raises(
        ValueError, match=r"run.nc is not a run that can be read: it is a run on another problem"
    ):
        hb.train(other, SMALL, hb.AdLaLa(), checkpoint=path, **SHORT)
    with pytest.raises(ValueError, match=r"of another run, with other partition, start"):
        hb.train(SPIRALS, SMALL, hb.LOL(), checkpoint=path, start=np.zeros(81), **SHORT)
    with pytest.raises(ValueError, match=r"of another run, with other seed"):
        small_run(seed=8).resume(5, checkpoint=path)
    (tmp_path / "bad.nc").write_bytes(before[:-10])
    with pytest.raises(ValueError, match=r"bad.nc is truncated"):
        small_run(checkpoint=tmp_path / "bad.nc")
    assert path.read_bytes() == before
    assert (tmp_path / "bad.nc").read_bytes() == before[:-10]


def test_a_resumed_run_writes_over_its_own_checkpoint(tmp_path):
    path = tmp_path / "run.nc"
    small_run(checkpoint=path)
    longer = hb.load(path).resume(20, hb.AdLaLa(h=0.1), checkpoint=path)
    assert differences(hb.load(path), longer) == []
    assert hb.load(path).step == 60


def test_an_interrupted_resume_continues_from_its_checkpoint_when_called_again(tmp_path):
    """A script that loads a base and resumes it to a checkpoint, killed, and run again."""
    base, path = small_run(), tmp_path / "long.nc"
    whole = base.resume(3000, hb.AdLaLa(h=0.1))
    with pytest.warns(RuntimeWarning, match="interrupted"):
        part = base.resume(3000, hb.AdLaLa(h=0.1), checkpoint=path, progress=Interrupting(4))
    assert hb.load(path).step == part.step > base.step
    seen = []
    again = base.resume(3000, hb.AdLaLa(h=0.1), checkpoint=path, progress=seen.append)
    assert seen[0].first == part.step
    assert differences(again, whole) == []


def test_a_resume_never_takes_the_place_of_another_run(tmp_path):
    path = tmp_path / "run.nc"
    long = small_run(steps=100, checkpoint=path)
    before = path.read_bytes()
    lol = hb.train(SPIRALS, SMALL, hb.LOL(), **SHORT)
    with pytest.raises(ValueError, match=r"of another run, with other partition, steps"):
        lol.resume(10, checkpoint=path)  # the file is further along
    with pytest.raises(ValueError, match=r"of another run, with other steps"):
        small_run().resume(10, checkpoint=path)
    with pytest.raises(ValueError, match=r"of another run, with other partition: it is left alone"):
        hb.train(SPIRALS, SMALL, hb.LOL(), **(SHORT | {"steps": 100})).resume(10, checkpoint=path)
    with pytest.raises(ValueError, match=r"of another run, with other records"):
        small_run(steps=100, record=4).resume(10, checkpoint=path)
    with pytest.raises(ValueError, match=r"of another run, with other partition"):
        small_run(steps=50, record=1).resume(50, hb.AdLaLa(h=0.1), record=1).resume(10, checkpoint=path)
    assert path.read_bytes() == before
    long.resume(10, hb.AdLaLa(h=0.1), checkpoint=path)
    assert hb.load(path).step == 110


def test_record_zero_is_noted_once_whatever_happens_at_the_start(tmp_path):
    def fail(now):
        raise RuntimeError

    options = {"steps": 100, "record": [0, 50], "checkpoint": tmp_path / "run.nc"}
    with pytest.raises(RuntimeError):
        small_run(**options, progress=fail)
    assert hb.load(tmp_path / "run.nc").step == 0
    run = small_run(**options)
    assert run.data["step"].values.tolist() == [0, 50, 100]
    assert differences(run, small_run(steps=100, record=[0, 50])) == []


def test_a_run_whose_chains_all_diverged_says_so_again_from_its_checkpoint(tmp_path):
    options = {"partition": hb.Partition(hb.SGD(weight_decay=1.0), 1e6), "checkpoint": tmp_path / "run.nc"}
    for _ in range(2):
        with pytest.raises(FloatingPointError, match=r"all chains diverged \(chain 0 at step"):
            hb.train(SPIRALS, SMALL, **options, **SHORT)


def test_bad_intervals_are_refused(tmp_path):
    with pytest.raises(ValueError, match="every must be >= 0"):
        small_run(checkpoint=tmp_path / "run.nc", every=-1)
