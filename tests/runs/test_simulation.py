"""Simulations: chains that diverge, Ctrl-C, and whom warnings are shown to."""

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import heatbath as hb
from heatbath._internal.interrupts import deferred_interrupts
from heatbath.runs import file
from tests.patience import PATIENCE
from tests.runs import SMALL, SPIRALS, Interrupting, differences


def train_three_chains(**options):
    settings = {"steps": 200, "batch": 20, "chains": 3, "record": 5, "seed": 1, **options}
    return hb.train(SPIRALS, SMALL, settings.pop("partition", hb.AdLaLa()), **settings)


# Chains that diverge


def test_a_chain_that_diverges_is_reported_with_step_and_part_and_the_others_go_on():
    start = np.tile(SMALL.start(2, 1, [0], 1), (3, 1))
    start[1, 60:] = 3e38
    with pytest.warns(
        RuntimeWarning, match=r"diverged and stopped: chain 1 at step \d+ in '(hidden|output)'"
    ):
        run = train_three_chains(
            start=start, partition=hb.Partition({"hidden": hb.SGD(), "output": hb.SGD()}, 0.1)
        )
    assert run.died.tolist()[::2] == [-1, -1]
    assert run.died[1] >= 0
    assert np.isnan(run.loss("test")[1, -1])
    assert np.isfinite(run.loss("test")[[0, 2]]).all()


def test_when_all_chains_diverge_the_error_suggests_a_smaller_h():
    with pytest.raises(
        FloatingPointError, match=r"all chains diverged \(chain 0 at step .*choose a smaller h"
    ):
        train_three_chains(partition=hb.Partition(hb.SGD(weight_decay=1.0), 1e6))


# Where warnings point


def one_that_diverges():
    start = np.tile(SMALL.start(2, 1, [0], 1), (3, 1))
    start[1, 60:] = 3e38
    return {"steps": 20, "batch": 20, "chains": 3, "record": 1, "start": start}


SGD = hb.Partition(hb.SGD(), 0.1)
CALLS = {  # each on one line, whose number is that of the warning
    "train": lambda: hb.train(SPIRALS, SMALL, SGD, **one_that_diverges()),
    "sweep": lambda: hb.sweep(SPIRALS, SMALL, hb.Partition(hb.SGD(), [0.1, 0.2]), **one_that_diverges()),
    "compare": lambda: hb.compare(SPIRALS, SMALL, {"a": SGD}, **one_that_diverges()),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_divergence_is_shown_at_the_users_call(call):
    with pytest.warns(hb.DivergedWarning, match="diverged and stopped: chain 1") as caught:
        run = call()
    assert [(w.filename, w.lineno) for w in caught] == [(__file__, call.__code__.co_firstlineno)]
    with pytest.warns(hb.DivergedWarning) as caught:
        run.replay()
    assert caught[0].filename == __file__


def test_a_divergence_in_a_resume_or_a_fit_is_shown_at_the_users_call_too():
    run = train_three_chains(partition=hb.Partition(hb.SGD(weight_decay=1.0), 0.1), steps=20)
    altered = run.data.copy(deep=True)
    altered["theta"][1] = 1e38
    with pytest.warns(hb.DivergedWarning) as caught:
        hb.Run(run.plan, run.step, altered).resume(20)
    assert caught[0].filename == __file__
    X = np.random.default_rng(0).standard_normal((60, 2))
    options = {"method": hb.LaLa(0.1, 1.0, 1e-3), "steps": 4, "samples": 1, "random_state": 0}
    model = hb.ThermodynamicRegressor(hidden=(20,), **options).fit(X, X[:, 0])
    model.run_.data["theta"][1] = 1e38
    with pytest.warns(hb.DivergedWarning) as caught:
        model.partial_fit(X, X[:, 0])
    assert caught[0].filename == __file__


def test_an_interruption_and_a_checkpoint_that_fails_are_shown_at_the_users_call(tmp_path, monkeypatch):
    with pytest.warns(hb.InterruptedWarning, match="interrupted at step") as caught:
        run = train_three_chains(steps=3000, progress=Interrupting(1))
    assert caught[0].filename == __file__
    with pytest.warns(hb.InterruptedWarning) as caught:
        run.resume(progress=Interrupting(1))
    assert caught[0].filename == __file__

    write, calls = file.write, []

    def fail(*arguments):
        calls.append(arguments)
        if len(calls) > 1:
            raise OSError("no room")
        write(*arguments)

    monkeypatch.setattr(file, "write", fail)
    with pytest.warns(RuntimeWarning, match="the checkpoint at step 200 failed") as caught:
        train_three_chains(checkpoint=tmp_path / "run.nc")
    assert {w.filename for w in caught} == {__file__}


def test_the_classes_of_warnings_can_be_told_apart():
    assert issubclass(hb.DivergedWarning, RuntimeWarning)
    assert issubclass(hb.InterruptedWarning, RuntimeWarning)
    assert not issubclass(hb.InterruptedWarning, hb.DivergedWarning)


# Ctrl-C


@pytest.mark.parametrize("nth", [1, 3, 6])
def test_a_run_interrupted_by_ctrl_c_continues_as_if_nothing_had_happened(nth):
    options = {"record": 10, "chains": 3, "seed": 1, "samples": 20, "average": SPIRALS.X_test[0]}
    whole = hb.train(SPIRALS, SMALL, hb.AdLaLa(), 3000, 20, **options)
    with pytest.warns(RuntimeWarning, match=r"interrupted at step \d+ of 3000: resume\(\) continues"):
        part = hb.train(SPIRALS, SMALL, hb.AdLaLa(), 3000, 20, progress=Interrupting(nth), **options)
    assert 0 < part.step < 3000
    assert repr(part).startswith(f"Run: step {part.step:,} of 3,000, batch 20")
    assert part.data["step"].values.tolist() == [n for n in range(300, 3001, 300) if n <= part.step]
    assert differences(part.resume(), whole) == []
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_ctrl_c_interrupts_at_once():
    def press_twice():
        with deferred_interrupts() as interrupted:
            os.kill(os.getpid(), signal.SIGINT)
            while not interrupted():
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(PATIENCE)

    with pytest.raises(KeyboardInterrupt):
        press_twice()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_of_a_program_that_handles_it_itself_is_left_to_it():
    seen = []
    usual = signal.signal(signal.SIGINT, lambda *_: seen.append(1))
    try:
        run = train_three_chains(partition=hb.LOL(), progress=Interrupting(1))
    finally:
        signal.signal(signal.SIGINT, usual)
    assert seen == [1]
    assert run.finished


def test_training_in_another_thread_does_not_touch_signals():
    runs = []
    worker = threading.Thread(target=lambda: runs.append(train_three_chains(partition=hb.LOL())))
    worker.start()
    worker.join()
    assert runs[0].finished


def test_ctrl_c_from_outside_ends_a_script_in_order(tmp_path):
    """A signal arrives in the middle of a long run with a checkpoint, as it would from a terminal."""
    path = tmp_path / "run.nc"
    code = f"""
import warnings, heatbath as hb
problem = hb.datasets.spirals(n_train=200, n_test=100)
show = lambda progress: print(progress.step, flush=True)
path = {str(path)!r}
run = hb.train(problem, hb.MLP((20,)), hb.AdLaLa(), 10**9, 20, progress=show, checkpoint=path, every=3600)
print("stopped", run.step)
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert "interrupted at step" in err
    stopped = int(out.rpartition("stopped")[2])
    assert hb.load(path).step == stopped  # the checkpoint has it all
