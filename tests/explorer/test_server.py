"""The server of the explorer, as a page sees it."""

import gc
import socket
import threading
import time
import urllib.error
import urllib.request
import warnings
from contextlib import suppress

import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

import heatbath as hb
from heatbath.engine import compile
from heatbath.explorer.messages import MAX_SESSIONS
from heatbath.explorer.run_stream import RunStream
from heatbath.explorer.session import Session
from tests.explorer.pages import Page, connected
from tests.patience import wait_until


def run_of_copied_python(page, run):
    """Return the run that "copy as Python" makes."""
    names = {}
    text = page.ask("code", run=run, **{"as": "python"})["text"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hb.DivergedWarning)
        exec(text, names)
    return names["run"]


def last_step(traces, run):
    """Return the last step in a message `traces`, or 0 if the message belongs to the other run."""
    return traces["runs"].get(run, {}).get("step", [0])[-1]


def download(served, page, run, tmp_path):
    base, _, query = served.url.partition("?")
    with urllib.request.urlopen(f"{base}run/{page.hello['session']}/{run}.nc?{query}") as answer:
        content = answer.read()
    path = tmp_path / f"{run}.nc"
    path.write_bytes(content)
    return hb.load(path)


def test_hello_has_everything_that_a_page_needs_to_begin(page):
    hello = page.hello
    assert hello["version"] == hb.__version__
    names = [method["name"] for method in hello["catalogue"]["methods"]]
    assert {"AdLaLa", "LOL", "LaLa", "AdLAdL", "Adam", "Langevin"} <= set(names)
    assert "Frozen" not in names
    assert len(hello["scenes"]) == 6
    for settings in [hello["defaults"], *(scene["settings"] for scene in hello["scenes"])]:
        ready = page.ask("setup", settings=settings)
        assert ready["type"] == "ready"
        assert page.ask("setup", settings=ready["settings"])["settings"] == ready["settings"]


def test_every_method_of_the_catalogue_runs_with_its_defaults_and_at_the_ends_of_its_sliders(page):
    for method in page.hello["catalogue"]["methods"]:
        page.setup(runs={"A": {"method": method["name"]}, "B": {"method": method["name"]}})
        page.steps(3)
        for end in ("low", "high"):
            parts = {
                part["name"]: {c["name"]: c[end] for c in part["coefficients"]} for part in method["parts"]
            }
            answer = page.ask("change", run="A", h=method["h"][end], parts=parts)
            assert answer["type"] == "changed", answer


def test_a_frame_shows_the_predictions_of_the_networks(page):
    ready = page.setup()
    page.steps(200)
    page.send("view", map="chain", chain=1, size=64)
    frame = page.frame()
    assert frame["steps"] == {"A": 200, "B": 200}
    left, right, bottom, top = ready["domain"]
    share = (np.arange(64) + 0.5) / 64
    X = np.array([[left + s * (right - left), top - t * (top - bottom)] for t in share for s in share])
    for name in "AB":
        run = run_of_copied_python(page, name)
        expected = run.outputs(X)[1, :, 0]
        shown = np.frombuffer(frame["maps"][name], np.uint8) / 255
        assert np.abs(shown - expected).max() < 0.51 / 255
        losses = frame["losses"][:4] if name == "A" else frame["losses"][4:]
        found = [run.loss(s)[:, -1].mean() for s in ("train", "test")]
        found += [run.accuracy(s)[:, -1].mean() for s in ("train", "test")]
        np.testing.assert_allclose(losses, found, rtol=1e-5)
    page.send("view", map="sd")
    expected = 2 * run_of_copied_python(page, "A").outputs(X)[:, :, 0].std(axis=0)
    shown = np.frombuffer(page.frame()["maps"]["A"], np.uint8) / 255
    assert np.abs(shown - expected).max() < 0.51 / 255


def test_a_frame_comes_only_when_requested_and_if_something_is_new(page):
    page.setup()
    first = page.frame()
    page.send("ready", frame=first["number"])  # paused: nothing new
    page.ask("speed", speed=None)
    page.ask("play")
    second = page.wait("frame")
    assert second["number"] == first["number"] + 1
    before = page.seen["frame"]
    for _ in range(3):
        page.wait("traces")
    assert page.seen["frame"] == before
    page.send("hide")
    page.send("ready", frame=second["number"])
    page.ask("word", run="A", part="hidden", text="BACDEDCAB")
    time.sleep(0.2)
    page.ask("pause")
    assert page.seen["frame"] == before
    page.send("show")
    assert page.wait("frame")["steps"]["A"] > second["steps"]["A"]


def test_pages_that_stay_paused_are_still_answered(served, page):
    page.setup()
    page.frame()
    page.send("ready", frame=1)
    time.sleep(0.1)
    with Page(served) as other:
        other.setup()
        other.steps(5)
    assert page.steps(1) == {"A": 1, "B": 1}


def test_steps_are_made_exactly_and_pause_stops_them(page):
    page.setup()
    assert page.steps(7) == {"A": 7, "B": 7}
    page.ask("play")
    page.wait("traces")
    page.ask("pause")
    steps = page.steps(1)
    assert page.steps(1) == {name: n + 1 for name, n in steps.items()}
    assert page.steps(1000) == {name: n + 1001 for name, n in steps.items()}


def test_a_change_during_a_run_changes_the_trajectory_and_the_code_reproduces_it(served, page, tmp_path):
    page.setup()
    page.ask("play")
    page.wait("traces", where=lambda m: last_step(m, "A") > 500)
    changed = page.ask("change", run="A", parts={"hidden": {"tau": 2e-3}}, h=0.12)
    assert changed["step"] > 0
    assert changed["parts"]["hidden"]["tau"] == 2e-3
    assert changed["parts"]["hidden"]["sigma"] == 0.01
    for on in (True, False):
        page.wait("traces", where=lambda m, n=changed["step"]: last_step(m, "A") > n)
        changed = page.ask("heat", run="A", on=on, factor=20)
    page.ask("pause")
    steps = page.steps(1)
    run = run_of_copied_python(page, "A")
    assert run.step == steps["A"]
    assert len(run.partition.methods["hidden"].tau.values) == 4
    file = download(served, page, "A", tmp_path)
    assert file.partition == run.partition
    assert np.array_equal(file.theta, run.theta)
    assert len(file.data["record"]) > 50
    assert np.array_equal(file.replay().theta, run.theta)
    assert np.array_equal(file.resume(10).theta, run.resume(10).theta)
    page.steps(10)
    assert np.array_equal(run_of_copied_python(page, "A").theta, run.resume(10).theta)
    plain = hb.train(file.problem, file.network, hb.AdLaLa(), steps["A"], 8, 2)
    assert not np.array_equal(plain.theta, run.theta)


def test_another_word_or_method_begins_a_new_phase_and_the_code_has_it(page):
    page.setup()
    page.steps(40)
    page.ask("change", run="A", parts={"hidden": {"word": "BAFEFAB"}})
    page.steps(30)
    page.ask("change", run="A", h=0.05)
    page.steps(30)
    changed = page.ask("change", run="A", method="LOL", parts={"hidden": {"tau": 1e-4}})
    assert (changed["step"], changed["method"]) == (100, "LOL")
    assert page.steps(20)["A"] == 120
    run = run_of_copied_python(page, "A")
    assert (run.step, run.plan.seed) == (20, 2)
    before = run.theta
    page.ask("change", run="A", method="SGD")  # and no step of it
    assert np.array_equal(run_of_copied_python(page, "A").theta, before)
    command = page.ask("code", run="A", **{"as": "command"})["text"]
    assert command.count("heatbath train") == 3


def test_a_link_with_a_history_reproduces_the_run(page):
    page.setup()
    history = []
    for steps, change in (
        (30, {"h": 0.2}),
        (20, {"parts": {"hidden": {"word": "BAFEFAB"}}}),
        (0, {"anneal": {"factor": 0.1, "steps": 100}}),
        (30, {"parts": {"output": {"gamma": 3.0}}}),
    ):
        if steps:
            page.steps(steps)
        history.append(page.ask("change", run="A", **change)["entry"])
    history.append(page.ask("heat", run="A", on=True)["entry"])
    page.steps(20)
    history.append(page.ask("change", run="A", h=0.1)["entry"])  # while it is hot
    page.steps(20)
    history.append(page.ask("heat", run="A", on=False)["entry"])
    page.steps(20)
    expected = run_of_copied_python(page, "A").theta
    page.setup(runs={"A": {"method": "AdLaLa", "history": history}, "B": {"method": "Adam"}})
    page.steps(140)
    assert np.array_equal(run_of_copied_python(page, "A").theta, expected)
    page.ask("reset")  # as it is now, without a history
    page.steps(140)
    assert not np.array_equal(run_of_copied_python(page, "A").theta, expected)


def test_both_runs_have_the_same_start_and_mini_batches(page):
    page.setup(runs={"A": {"method": "SGD", "h": 0.1}, "B": {"method": "SGD", "h": 0.1}})
    page.steps(50)
    frame = page.frame()
    assert frame["maps"]["A"] == frame["maps"]["B"]


def test_drawn_points_and_tables_train(page, tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    points = [[round(float(x), 3), round(float(y), 3), int(x > 0)] for x, y in rng.normal(size=(40, 2))]
    ready = page.setup(problem={"kind": "points", "points": points})
    assert sorted(ready["train"] + ready["test"]) == sorted(points)
    page.steps(50)
    assert np.array_equal(run_of_copied_python(page, "B").theta, run_of_copied_python(page, "B").theta)
    text = "left,right,kind\n" + "".join(f"{x},{y},{'no' if c else 'yes'}\n" for x, y, c in points)
    ready = page.setup(problem={"kind": "csv", "text": text, "target": None})
    assert ready["settings"]["problem"]["target"] == "kind"
    assert ready["targets"] == ["no", "yes"]
    page.steps(50)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "table.csv").write_text(text)
    assert run_of_copied_python(page, "A").step == 50


def test_a_diverged_run_is_reported_and_can_be_rewound_while_the_other_continues(page):
    page.setup(runs={"A": {"method": "LaLa"}, "B": {"method": "Adam"}})
    page.ask("play")
    page.wait("traces", where=lambda m: last_step(m, "A") > 200)
    page.ask("change", run="A", parts={"hidden": {"tau": 1e60}})
    diverged = page.wait("diverged")
    assert (diverged["run"], diverged["living"] + diverged["chains"]) == ("A", 2)
    assert diverged["part"] in ("hidden", "output")
    while diverged["living"]:
        diverged = page.wait("diverged")
    b = page.ask("speed", speed=None)["steps"]["B"]
    page.wait("traces", where=lambda m: last_step(m, "B") > b)
    state = page.ask("pause")
    assert state["steps"]["B"] > b
    assert state["steps"]["A"] <= diverged["step"] + 10_000
    frame = page.frame()
    assert np.isnan(frame["losses"][:4]).all()
    assert np.isfinite(frame["losses"][4:]).all()
    refused = page.ask("change", run="A", parts={"hidden": {"word": "OBABO"}})
    assert "diverged" in refused["text"]
    rewound = page.ask("rewind", run="A")
    assert rewound["step"] < diverged["step"]
    assert rewound["parts"]["hidden"]["tau"] < 1
    assert rewound["history"] == []
    frame = page.frame()
    assert np.isfinite(frame["losses"]).all()
    last = rewound["step"] + 30
    page.send("step", steps=30)
    page.wait("traces", where=lambda m: last_step(m, "A") == last)  # which may come before the answer
    assert page.ask("pause")["steps"]["A"] == last
    assert run_of_copied_python(page, "A").step == last


def test_joined_traces_are_logarithmically_dense_and_never_too_long(page):
    page.setup()
    page.ask("play")
    trace = {}
    while not trace or trace["step"][-1] < 20_000:
        new = page.wait("traces", where=lambda m: "A" in m["runs"])["runs"]["A"]
        k = new.pop("from")
        for name in new:
            if name == "step":
                trace["step"] = trace.get("step", [])[:k] + new["step"]
            else:
                for values in new[name].values():
                    assert len(values) == len(new["step"])
    steps = [step for step in trace["step"] if step]  # that of the start is there if it was told of in time
    assert steps[:10] == list(range(1, 11))
    assert steps == sorted(set(steps))
    assert len(steps) < 400
    ratios = np.array(steps[1:]) / np.array(steps[:-1])
    assert ratios[np.array(steps[1:]) > 100].max() < 1.5
    assert set(new["temperature"]) == {"hidden", "output"}
    assert set(new["xi"]) == {"hidden"}


def test_a_word_is_checked_and_not_applied(page):
    page.setup()
    good = page.ask("word", run="A", part="output", text="ABOBA")
    assert good["ok"]
    assert [(tile["letter"], tile["share"]) for tile in good["letters"]] == [
        ("A", 0.5), ("B", 0.5), ("O", 1.0), ("B", 0.5), ("A", 0.5),
    ]  # fmt: skip
    assert good["gradients"] == 1
    for text, said in (
        ("XYZ", "'X' is not a letter"),
        ("BAB", "missing: O"),
        ("", "1 to 64"),
        ("BA" * 33, ""),
    ):
        bad = page.ask("word", run="A", part="output", text=text)
        assert not bad["ok"]
        assert said in bad["text"]
    assert not page.ask("word", run="A", part="output", text="BOA", gamma="inf")["ok"]
    assert not page.ask("word", run="B", part="all", text="M")["ok"]
    assert not page.ask("word", run="A", part="nowhere", text="BAOAB")["ok"]
    refused = page.ask("change", run="A", parts={"output": {"word": "XYZ"}})
    assert (refused["type"], refused["field"]) == ("error", "parts.output.word")
    page.steps(5)
    assert run_of_copied_python(page, "A").partition.methods["output"].word == "BAOAB"


def test_lines_join_the_start_and_the_ends(page):
    page.setup()
    page.steps(100)
    lines = page.ask("line")["lines"]
    assert set(lines) == {"start-A", "start-B", "A-B"}
    runs = {name: run_of_copied_python(page, name) for name in "AB"}
    for name, key in (("A", "start-A"), ("B", "start-B")):
        at = {a: loss for a, loss in zip(lines[key]["at"], lines[key]["train"], strict=True)}
        assert at[1.0] == pytest.approx(runs[name].loss("train")[0, -1].item(), rel=1e-4)
    page.ask("play")
    assert "pause first" in page.ask("line")["text"]


def test_units_are_lines_in_the_users_coordinates(page):
    points = [[100.0 + i, 5.0 * (i % 7), i % 2] for i in range(40)]
    text = "x,y,c\n" + "".join(f"{x},{y},{'ab'[c]}\n" for x, y, c in points)
    page.setup(problem={"kind": "csv", "text": text, "target": "c"})
    page.send("view", units=True, chain=1)
    page.frame()
    units = page.wait("units")["runs"]["A"]
    assert len(units) == 5
    assert max(abs(v) for *_, v in units) == pytest.approx(1)
    assert all(len(line) == 4 for line in units)
    page.setup(network={"hidden": [3, 3]})
    page.frame()
    assert page.wait("units")["runs"] == {}


def test_two_pages_are_independent(served):
    with Page(served) as one, Page(served) as two:
        assert one.hello["session"] != two.hello["session"]
        one.setup()
        two.setup(seed=7)
        one.ask("play")
        assert two.steps(10) == {"A": 10, "B": 10}
        one.ask("pause")
        assert two.ask("pause")["steps"] == {"A": 10, "B": 10}


def test_a_page_that_returns_in_time_gets_its_runs_and_no_other_page_does(patient_server):
    with Page(patient_server) as page:
        page.setup()
        page.steps(20)
        entry = page.ask("change", run="A", h=0.07)["entry"]
        page.steps(5)
        key = page.hello["session"]
        with Page(patient_server, session=key) as other:  # a copy of the window, while the first is there
            assert other.hello["session"] != key
        session = session_of(page)
    assert wait_until(lambda: not session.attached)
    with Page(patient_server, session=key) as page:
        assert page.hello["session"] == key
        settings = page.wait("ready")["settings"]
        assert settings["runs"]["A"]["history"] == [entry]
        assert page.wait("state")["steps"] == {"A": 25, "B": 25}
        now = page.wait("changed")
        assert (now["run"], now["h"], now["replayed"]) == ("A", 0.07, True)
        assert page.wait("traces")["runs"]["A"]["from"] == 0
        page.frame()
        assert page.steps(5)["A"] == 30


def session_of(page):
    """Return the server's end of a page."""
    (session,) = [one for one in sessions() if type(one) is Session and one.key == page.hello["session"]]
    return session


def sessions():
    gc.collect()
    return [thing for thing in gc.get_objects() if type(thing) in (Session, RunStream, hb.LiveRun)]


@pytest.mark.slow
def test_fifty_pages_opened_and_closed_leave_no_thread_and_no_memory_behind(served, monkeypatch):
    monkeypatch.setattr("heatbath.explorer.server.RETURN_SECONDS", 0.1)

    def visit():
        with Page(served) as page:
            page.setup()
            page.ask("play")
            page.frame()

    for _ in range(10):  # what is made once is made now
        visit()
    assert wait_until(lambda: not sessions(), apart=0.1)
    gc.freeze()  # so that only what is made from here on is looked through again and again
    threads, objects = {thread.name for thread in threading.enumerate()}, len(gc.get_objects())
    for _ in range(40):
        visit()
    assert wait_until(lambda: not sessions(), apart=0.1)
    assert wait_until(lambda: {thread.name for thread in threading.enumerate()} <= threads)
    assert len(gc.get_objects()) - objects < 20 * 40  # a session alone has hundreds


def test_the_run_of_a_page_that_was_just_closed_can_still_be_downloaded(patient_server, tmp_path):
    with Page(patient_server) as page:
        page.setup()
        page.steps(5)
    assert download(patient_server, page, "A", tmp_path).step == 5


def test_a_closed_page_ends_its_work_at_once(patient_server):
    with Page(patient_server) as page:
        page.setup()
        page.ask("play")
        page.wait("traces")
    session = session_of(page)
    assert wait_until(lambda: not session.attached)
    with session.wake.__self__._lock:
        pass  # no worker is any more about to hold a run since before that
    assert wait_until(lambda: not any(stream.held for stream in session.streams.values()))
    steps = [stream.step for stream in session.streams.values()]
    time.sleep(0.2)
    assert [stream.step for stream in session.streams.values()] == steps


def test_too_many_pages_get_a_message(served, monkeypatch):
    monkeypatch.setattr("heatbath.explorer.server.RETURN_SECONDS", 0.1)
    pages = []
    try:
        while len(pages) < MAX_SESSIONS + 8:
            pages.append(Page(served))
            if pages[-1].hello["type"] == "busy":
                break
        assert pages[-1].hello["type"] == "busy"
        assert "close one" in pages[-1].hello["text"]
        pages[0].setup()
    finally:
        for page in pages:
            page.close()
    assert wait_until(lambda: not sessions(), apart=0.1)


def test_a_page_that_sends_too_many_messages_is_warned_and_then_disconnected(served, page, monkeypatch):
    page.setup()
    page.steps(1)
    monkeypatch.setattr("heatbath.explorer.server.MAX_MESSAGES_PER_SECOND", 5)  # which any machine can send
    with Page(served) as other:
        other.setup()
        warned = False
        with pytest.raises(ConnectionClosed) as closed:  # noqa: PT012
            while True:
                other.send("word", run="A", part="hidden", text="BAFEFAB")
                time.sleep(0.002)
                while True:
                    try:
                        message = other.next(timeout=0)
                    except TimeoutError:
                        break
                    warned = warned or "messages a second" in message.get("text", "")
        assert warned
        assert closed.value.rcvd.code == 1008
    assert page.steps(3) == {"A": 4, "B": 4}


def test_an_internal_error_ends_one_run_and_a_reset_restarts_it(page, monkeypatch):
    page.setup()
    page.steps(3)
    note = RunStream._record

    def broken(stream):
        if stream.name == "A":
            raise ZeroDivisionError("on purpose")
        note(stream)

    monkeypatch.setattr(RunStream, "_record", broken)
    monkeypatch.setattr("tests.explorer.pages.FAULTS", True)
    page.send("step", steps=100)
    assert "error of the explorer" in page.wait("error")["text"]
    assert page.wait("state")["steps"]["B"] == 103
    frame = page.frame()
    assert np.isnan(frame["losses"][0])
    assert frame["losses"][4] > 0
    monkeypatch.undo()
    page.ask("reset")
    assert page.steps(5) == {"A": 5, "B": 5}


def test_compilation_is_reported(page, monkeypatch):
    def prepare(live):
        compile.report("compiling run chains (one at a time, float32): once, for some 10 s")

    monkeypatch.setattr(hb.LiveRun, "prepare", prepare)
    page.setup()
    told = [page.wait("compiling") for _ in range(4)]
    for run in "AB":
        assert [m["done"] for m in told if m["run"] == run] == [False, True]
    assert "some 10 s" in told[0]["text"]


def test_large_networks_have_coarser_maps_and_the_same_runs(page):
    page.setup(network={"hidden": [200, 200]}, chains=2)
    page.steps(20)
    page.ask("change", run="A", h=0.05)
    page.steps(20)
    assert page.frame()["size"] < (100, 100)
    assert len(page.ask("code", run="A", **{"as": "python"})["text"]) < 1000
    assert np.isfinite(run_of_copied_python(page, "A").theta).all()


def test_changes_are_limited_and_heat_can_always_be_ended(page, monkeypatch):
    monkeypatch.setattr("heatbath.explorer.run_stream.MAX_CHANGES", 3)
    page.setup()
    page.ask("change", run="A", h=0.1)
    page.ask("change", run="A", h=0.2)
    page.ask("heat", run="A", on=True)
    assert "at most 3 changes" in page.ask("change", run="A", h=0.3)["text"]
    assert page.ask("heat", run="A", on=False)["heat"] == 1
    assert page.ask("change", run="B", h=0.3)["type"] == "changed"


def test_many_simultaneous_changes_are_all_answered(page):
    page.setup()
    page.ask("play")
    numbers = [page.send("change", run="A", h=0.1 + i / 1000) for i in range(40)]
    answered = [page.wait("changed")["id"] for _ in numbers]
    assert answered == numbers
    page.ask("pause")
    run = run_of_copied_python(page, "A")
    assert run.partition.h.values[-1] == 0.139


# Who may come in


def status(url, **headers):
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def test_pages_of_other_origins_and_hosts_are_refused(served):
    address = served.url.replace("http", "ws", 1) + "socket"
    with pytest.raises(InvalidStatus) as refused, connected(address, origin="http://evil.example"):
        pass
    assert refused.value.response.status_code == 403
    here = {"sock": socket.create_connection(("127.0.0.1", served.port))}
    with pytest.raises(InvalidStatus) as refused, connected("ws://evil.example/socket", **here):
        pass
    assert refused.value.response.status_code == 403
    for host in ("evil.example", "127.0.0.1.evil.example", "127.evil.example", "["):
        assert status(served.url, Host=host) == 403
    for host in ("localhost", "127.0.0.1", f"127.1.2.3:{served.port}", "[::1]:80"):
        assert status(served.url, Host=host) == 200
    with pytest.raises(InvalidStatus) as refused, connected(address, origin="http://["):
        pass
    assert refused.value.response.status_code == 403
    with connected(address, origin=served.url.rstrip("/")) as welcome:
        assert "hello" in welcome.recv()


def test_another_host_needs_the_token():
    with hb.explore("127.0.0.2", browser=False) as local:
        assert "token" not in local.url
    with hb.explore("0.0.0.0", browser=False) as guarded:
        base = f"http://127.0.0.1:{guarded.port}/"
        assert guarded.url.endswith(f"?token={guarded.token}")
        assert status(base) == 403
        assert status(f"{base}?token=wrong") == 403
        assert status(f"{base}page/main.js") != 403  # as everyone has it
        assert status(f"{base}run/x/A.nc") == 403
        assert status(f"{base}run/x/A.nc?token={guarded.token}") == 404
        address = f"ws://127.0.0.1:{guarded.port}/socket"
        with pytest.raises(InvalidStatus), connected(address):
            pass
        options = {"origin": "http://evil.example"}  # for which the token is no excuse
        with pytest.raises(InvalidStatus), connected(f"{address}?token={guarded.token}", **options):
            pass
        guarded.url = f"{base}?token={guarded.token}"
        with Page(guarded) as one, Page(guarded) as two:  # two pages with one token
            one.setup()
            two.setup()
            assert one.steps(2) == two.steps(2)


def test_only_files_of_the_page_are_served(served):
    for name in (
        "../server.py",
        "..%2fserver.py",
        "%2e%2e/server.py",
        ".hidden.js",
        "server.py",
        "nothing.js",
        "",
    ):
        assert status(f"{served.url}page/{name}") == 404, name
    assert status(f"{served.url}run/nobody/A.nc") == 404


def test_messages_are_not_compressed(served):
    with connected(served.url.replace("http", "ws", 1) + "socket") as plain:
        assert plain.protocol.extensions == []


def test_a_closed_server_leaves_no_thread_and_frees_its_port():
    before = {thread.ident for thread in threading.enumerate()}
    for port in range(10_000, 30_000):  # which systems give to no one who does not ask for them
        with suppress(OSError):
            server = hb.explore(port=port, browser=False)
            break
    with Page(server) as page:
        page.setup()
        page.ask("play")
        server.close()
    assert not server.running
    assert wait_until(lambda: {thread.ident for thread in threading.enumerate()} <= before)
    with hb.explore(port=port, browser=False) as again:
        assert again.port == port
        with pytest.raises(OSError, match="choose another --port"):
            hb.explore(port=port, browser=False)
