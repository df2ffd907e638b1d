"""A run of the explorer: its records, its losses, and its changes."""

import time
from itertools import count
from types import SimpleNamespace

from heatbath.explorer.run_stream import View
from heatbath.explorer.session import make_streams
from heatbath.explorer.settings import read_settings
from heatbath.runs.live import LiveRun
from tests.explorer.pages import SMALL, session_without_workers
from tests.patience import PATIENCE


def test_records_are_as_dense_on_a_busy_computer(monkeypatch):
    stream = make_streams(read_settings(SMALL), lambda *message: None)["A"]
    stream.prepare()
    ticks = count(0.0, 0.001)  # what it takes itself, on any machine
    clock = SimpleNamespace(thread_time=lambda: next(ticks), perf_counter=time.perf_counter)
    monkeypatch.setattr("heatbath.explorer.run_stream.time", clock)
    stream.work(PATIENCE, 1)
    note = LiveRun.note

    def late(live, **how):
        time.sleep(0.05)  # others have the core
        return note(live, **how)

    monkeypatch.setattr(LiveRun, "note", late)
    monkeypatch.setattr("heatbath.explorer.run_stream.FREE_RECORD_SECONDS", 0.15)
    stream.work(PATIENCE, 9)
    assert [point.step for point in stream.trace] == list(range(1, 11))


def test_losses_are_computed_rarely_while_a_run_plays_and_always_when_it_is_paused(monkeypatch):
    _, streams, _ = session_without_workers()
    stream, look, asked = streams["A"], LiveRun.look, []

    def watched(live, X=None, **how):
        if X is not None:
            asked.append(how["losses"])
        return look(live, X, **how)

    monkeypatch.setattr(LiveRun, "look", watched)
    monkeypatch.setattr("heatbath.explorer.run_stream.LOSSES_SECONDS", PATIENCE)
    first = stream.picture(View(size=64), playing=True)
    stream.work(PATIENCE, 20)
    second = stream.picture(View(size=64), playing=True)
    assert second.losses == first.losses
    assert (second.map != first.map).any()
    third = stream.picture(View(size=64))
    assert third.losses != first.losses
    stream.rewind()
    assert stream.picture(View(size=64), playing=True).losses == first.losses
    monkeypatch.setattr("heatbath.explorer.run_stream.LOSSES_SECONDS", 0.0)
    stream.picture(View(size=64), playing=True)
    assert asked == [True, False, True, True, True]


def test_a_change_before_those_of_a_link_is_inserted_and_the_link_stays_valid():
    later = [[50, {"h": 0.2}], [60, {"parts": {"hidden": {"tau": 1e-3}}}]]
    runs = {"A": {"method": "AdLaLa", "history": later}, "B": {"method": "Adam"}}
    _, streams, said = session_without_workers(runs=runs)
    stream = streams["A"]
    stream.work(PATIENCE, 20)
    stream.change({"h": 0.05})
    stream.rewind(7)
    rewound = said[-1]
    assert rewound["history"] == later  # all that is still to come
    stream.work(PATIENCE, 20)
    stream.change({"h": 0.07})
    wanted = [[20, {"h": 0.07}], *later]
    assert [list(entry) for entry in stream.all_changes()] == wanted
    runs["A"]["history"] = wanted
    read_settings({**SMALL, "runs": runs})  # is not refused
    stream.work(PATIENCE, 35)
    assert (stream.run.base_partition.h, stream.run.base_partition.methods["hidden"].tau) == (0.2, 1e-4)
    stream.change({"method": "Adam"})
    assert "step 60" in said[-2]["text"]  # Adam has no such part
    assert said[-1]["history"] == [list(entry) for entry in stream.all_changes()]
    assert [step for step, _ in stream.all_changes()] == [20, 50, 55]


def test_a_change_at_the_step_of_a_links_change_comes_after_it():
    runs = {"A": {"method": "AdLaLa", "history": [[0, {"h": 0.2}]]}, "B": {"method": "Adam"}}
    _, streams, _ = session_without_workers(runs=runs)
    streams["A"].change({"h": 0.05})
    streams["A"].work(PATIENCE, 1)
    assert streams["A"].run.base_partition.h == 0.05
    assert [change["h"] for _, change in streams["A"].all_changes()] == [0.2, 0.05]


def test_setting_the_present_heat_is_no_change():
    _, streams, said = session_without_workers()
    streams["A"].set_heat(1.0, 5)
    assert (said[-1]["type"], said[-1]["id"], said[-1]["entry"]) == ("changed", 5, None)
    assert streams["A"].all_changes() == ()
