"""Trackers: with stand-ins for the interfaces of the packages, and with these where they are installed."""

import inspect
import json
import math
import re
import runpy
import struct
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import xarray as xr

import heatbath as hb
from heatbath._internal.warnings import UntrackedWarning
from heatbath.runs import trackers
from heatbath.runs.trackers import Tracker
from tests.patience import PATIENCE, wait_until

NAMES = ("tensorboard", "mlflow", "wandb")
NAN = math.nan
NETWORK = hb.MLP((5,))


@pytest.fixture(scope="module")
def problem():
    return hb.datasets.spirals(n_train=50, n_test=20)


def train(problem, progress=None, **options):
    return hb.train(problem, NETWORK, hb.AdLaLa(), 2000, 10, record=20, progress=progress, **options)


def progress_at(step, steps=100, loss=NAN, heat=None, **more):
    return hb.Progress(step, steps, 0.0, loss, heat or {"all": 0.5 + step}, **more)


def tracker_into(points, **options):
    return Tracker(lambda values, step, when: points.append((step, dict(values))), **options)


def expected_points(seen):
    """Return the points that a tracker without a limit in time writes for this progress."""
    points, last = [], None
    for now in seen:
        values = {f"temperature/{part}": heat for part, heat in now.temperature.items()}
        values["steps_per_second"] = now.speed
        if not math.isnan(now.loss) and (now.loss, now.accuracy) != last:
            last = now.loss, now.accuracy
            values |= {"loss": now.loss, "accuracy": now.accuracy}
        points.append((now.step, values))
    return points


def tracked(problem, tracker, **options):
    """Return a run that was tracked, and all of its progress."""
    seen = []

    def record_and_track(progress):
        seen.append(progress)
        tracker(progress)

    return train(problem, record_and_track, **options), seen


# What is written, and when


def test_a_run_is_written_point_by_point_as_its_progress_says_and_its_bits_are_the_same(problem):
    points = []
    with tracker_into(points, every=0) as tracker:
        run, seen = tracked(problem, tracker, chains=2)
    assert len(seen) > 3
    assert points == expected_points(seen)
    assert points[-1][0] == 2000
    assert points[-1][1]["loss"] == float(run.loss("test")[:, -1].mean())
    xr.testing.assert_identical(run.data, train(problem, chains=2).data)


def test_at_most_one_point_a_second_is_written_and_the_last_one_always(monkeypatch):
    clock = SimpleNamespace(now=1000.0, monotonic=lambda: clock.now, time=lambda: clock.now)
    monkeypatch.setattr(trackers, "time", clock)
    points = []
    tracker = tracker_into(points)
    for step in range(1, 36):
        tracker(progress_at(step, 35))
        clock.now += 0.125
    assert [step for step, _ in points] == [1, 9, 17, 25, 33, 35]


def test_the_last_step_has_been_written_when_a_run_is_over_and_all_when_it_is_closed(monkeypatch):
    monkeypatch.setattr(trackers, "PATIENCE", PATIENCE)
    points = []

    def log(values, step, when):
        time.sleep(0.02)  # a server takes its time
        points.append(step)

    tracker = Tracker(log, every=0)
    for step in (1, 2, 3):
        tracker(progress_at(step, 3))
    assert points == [1, 2, 3]
    tracker(progress_at(4, 5))
    tracker.close()
    assert points == [1, 2, 3, 4]


def test_a_step_is_written_once_and_a_loss_only_when_it_is_new():
    points = []
    with tracker_into(points, every=0) as tracker:
        for step, loss in ((1, 2.0), (1, 2.0), (2, 2.0), (3, 1.5), (4, 1.5)):
            tracker(progress_at(step, loss=loss))  # without an accuracy, as of a regression
    assert [(step, values.get("loss")) for step, values in points] == [
        (1, 2.0),
        (2, None),
        (3, 1.5),
        (4, None),
    ]


def test_a_loss_that_comes_between_two_points_is_in_the_second(monkeypatch):
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now, time=lambda: clock.now)
    monkeypatch.setattr(trackers, "time", clock)
    points = []
    with tracker_into(points) as tracker:
        for step, loss in enumerate((3.0, 3.0, 2.0, 2.0, 2.0), start=1):
            tracker(progress_at(step, loss=loss))
            clock.now += 0.3
    assert [(step, values.get("loss")) for step, values in points] == [(1, 3.0), (5, 2.0)]


@pytest.mark.parametrize("bad", [NAN, math.inf, -math.inf])
def test_what_is_not_finite_is_left_out(bad):
    points = []
    with tracker_into(points, every=0) as tracker:
        tracker(progress_at(1, loss=bad, accuracy=0.5, heat={"hidden": bad, "output": 0.25}))
        tracker(progress_at(2, loss=bad, accuracy=bad, heat={"hidden": bad}))
    assert points == [(1, {"accuracy": 0.5, "temperature/output": 0.25})]


def test_what_was_waiting_at_the_end_is_written():
    """Ctrl-C ends a run at any step."""
    points = []

    def work():
        with tracker_into(points, every=1e9) as tracker:
            for step in (1, 2, 3):
                tracker(progress_at(step))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    assert [step for step, _ in points] == [1, 3]


def test_points_of_a_search_are_separate_and_never_the_last(problem):
    points = []
    with tracker_into(points, every=1e9) as tracker:
        tracker(progress_at(1, 1, loss=3.0, finding=True))
        tracker(progress_at(2, 2, loss=2.0, finding=True))  # there was more to do than it thought
        assert [step for step, _ in points] in ([], [1])
    heat = "finding/temperature/all"
    assert points == [(1, {heat: 1.5, "finding/loss": 3.0}), (2, {heat: 2.5, "finding/loss": 2.0})]

    points.clear()
    with tracker_into(points) as tracker:
        warnings.simplefilter("ignore", hb.SearchEdgeWarning)
        hb.tune(problem, NETWORK, ["AdLaLa"], steps=200, candidates=4, progress=tracker)
    assert points[-1][0] > 400
    assert {name.partition("/")[0] for _, values in points for name in values} == {"finding"}


def test_blocks_of_an_executor_and_a_run_that_is_resumed_are_tracked(problem):
    points, grid = [], hb.AdLaLa(h=[0.1, 0.2])
    with ThreadPoolExecutor(1) as one, tracker_into(points, every=0) as tracker:
        run = hb.sweep(problem, NETWORK, grid, 60, 10, record=2, executor=one, progress=tracker)
        run.resume(40, progress=tracker)
    assert [step for step, _ in points] == sorted({step for step, _ in points})
    by_step = dict(points)
    assert by_step[60]["loss"] == pytest.approx(float(run.loss("test")[:, -1].mean()), rel=1e-12)
    assert {"loss", "temperature/hidden", "temperature/output"} <= set(by_step[100])


# Trackers that fail


@contextmanager
def tracker_warnings():
    """Yield a list of the warnings in the context, all of which must be UntrackedWarning at this file."""
    messages = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield messages
    origins = {(warning.category, Path(warning.filename)) for warning in caught}
    assert origins <= {(UntrackedWarning, Path(__file__))}
    messages += [str(warning.message) for warning in caught]


def wait_for_writes(tracker):
    """Wait until the tracker's thread has written all it can."""
    tracker._thread.join()


def test_a_tracker_that_fails_for_a_while_gets_every_point_later_with_its_time():
    points, down = [], threading.Event()

    def log(values, step, when):
        if down.is_set():
            raise ConnectionError("no route")
        points.append((step, when))

    with tracker_warnings() as messages, Tracker(log, every=0, name="MLflow") as tracker:
        for step in range(1, 10):
            (down.set if 3 <= step < 7 else down.clear)()
            tracker(progress_at(step))
            wait_for_writes(tracker)
    assert messages == ["MLflow cannot be written, and the run goes on: ConnectionError: no route"]
    assert [step for step, _ in points] == list(range(1, 10))
    assert [when for _, when in points] == sorted(when for _, when in points)


def test_a_tracker_that_is_gone_does_not_change_the_run_and_warns_of_what_is_missing(problem):
    def log(values, step, when):
        raise OSError(28, "No space left on device")

    with tracker_warnings() as messages, Tracker(log, every=0) as tracker:
        run, seen = tracked(problem, tracker)
    xr.testing.assert_identical(run.data, train(problem).data)
    first, last = messages
    assert first.startswith("the tracker cannot be written, and the run goes on: OSError")
    assert last.startswith(f"the tracker: {len(seen)} points or settings could not be written: OSError")


def test_a_run_does_not_wait_for_a_tracker_that_does_not_answer(problem, monkeypatch):
    monkeypatch.setattr(trackers, "PATIENCE", 0.01)
    answers, points = threading.Event(), []

    def log(values, step, when):
        answers.wait(PATIENCE)
        points.append(step)

    with Tracker(log, every=0) as tracker:
        _, seen = tracked(problem, tracker)
        assert not points
        answers.set()
        monkeypatch.setattr(trackers, "PATIENCE", PATIENCE)
    assert points == [now.step for now in seen]


def test_no_more_points_are_kept_than_memory_has_room_for(monkeypatch):
    monkeypatch.setattr(trackers, "MOST_JOBS", 5)

    def log(values, step, when):
        raise ConnectionError("gone")

    with tracker_warnings() as messages, Tracker(log, every=0) as tracker:
        for step in range(1, 10):
            tracker(progress_at(step))
            wait_for_writes(tracker)
        assert len(tracker._jobs) == 5
    assert messages[1:] == ["the tracker: 9 points or settings could not be written: ConnectionError: gone"]


def test_settings_that_are_refused_do_not_stand_in_the_way_of_points(problem):
    points = []

    def refuse(values):
        raise ValueError("Changing param values is not allowed")

    with tracker_warnings() as messages, tracker_into(points, settings=refuse, every=0) as tracker:
        run = train(problem, tracker)
        tracker.log_settings(run)
        run.resume(100, progress=tracker)
    assert points[-1][0] == 2100
    first, last = messages
    assert first.endswith("ValueError: Changing param values is not allowed")
    assert last == "the tracker: 1 points or settings could not be written"


# The three packages


def module(monkeypatch, name, **contents):
    """Put a module with these contents in place of the one with this name, and return it."""
    stand_in = ModuleType(name)
    vars(stand_in).update(contents)
    monkeypatch.setitem(sys.modules, name, stand_in)
    return stand_in


@contextmanager
def recording_end(ends, run):
    """Yield the run, and append to `ends` how the context ended."""
    try:
        yield run
    except BaseException as error:
        ends.append(type(error).__name__)
        raise
    else:
        ends.append("well")


def stand_in_for_tensorboard(monkeypatch, points, settings, ends):
    class Writer:
        def __init__(self, folder):
            self.folder = folder

        def add_event(self, event):
            if isinstance(event.summary, dict):
                settings.update(event.summary)
            else:
                points.append((event.step, {one.tag: one.simple_value for one in event.summary.value}))

        def flush(self):
            pass

        def close(self):
            ends.append("well")

    class Summary(SimpleNamespace):
        Value = SimpleNamespace

    for name in (
        "",
        ".compat",
        ".compat.proto",
        ".plugins",
        ".plugins.hparams",
        ".summary",
        ".summary.writer",
    ):
        module(monkeypatch, f"tensorboard{name}")
    module(monkeypatch, "tensorboard.compat.proto.event_pb2", Event=SimpleNamespace)
    module(monkeypatch, "tensorboard.compat.proto.summary_pb2", Summary=Summary)
    module(monkeypatch, "tensorboard.plugins.hparams.summary_v2", hparams_pb=dict)
    module(monkeypatch, "tensorboard.summary.writer.event_file_writer", EventFileWriter=Writer)


def stand_in_for_mlflow(monkeypatch, points, settings, ends):
    class Client:
        def log_batch(self, run_id, metrics=(), params=(), *, synchronous):
            assert run_id == "a run"
            assert synchronous
            assert len(params) <= 100
            settings.update({one.key: one.value for one in params})
            if metrics:
                ((step, _),) = {(one.step, one.timestamp) for one in metrics}
                points.append((step, {one.key: one.value for one in metrics}))

    class Metric(SimpleNamespace):
        def __init__(self, key, value, timestamp, step):
            assert isinstance(timestamp, int)
            super().__init__(key=key, value=value, timestamp=timestamp, step=step)

    class Param(SimpleNamespace):
        def __init__(self, key, value):
            super().__init__(key=key, value=value)

    run = SimpleNamespace(info=SimpleNamespace(run_id="a run"))
    there = module(
        monkeypatch,
        "mlflow",
        active_run=lambda: None,
        start_run=lambda: recording_end(ends, run),
        MlflowClient=Client,
    )
    module(monkeypatch, "mlflow.entities", Metric=Metric, Param=Param)
    return there, "active_run", run


def stand_in_for_wandb(monkeypatch, points, settings, ends):
    class Run:
        config = SimpleNamespace(update=lambda values, allow_val_change: settings.update(values))
        axes = {}  # noqa: RUF012

        def define_metric(self, name, step_metric):
            self.axes[name] = step_metric

        def log(self, values):
            for name in values.keys() - {"step"}:
                assert self.axes.get(name, self.axes.get(f"{name.partition('/')[0]}/*")) == "step"
            points.append((values["step"], {name: values[name] for name in values.keys() - {"step"}}))

    run = Run()
    return module(monkeypatch, "wandb", run=None, init=lambda: recording_end(ends, run)), "run", run


@pytest.fixture(params=NAMES)
def package(request, monkeypatch, tmp_path):
    """Make trackers of the stand-in for a package, and keep what was written to it."""
    points, settings, ends = [], {}, []
    stand_in = globals()[f"stand_in_for_{request.param}"]
    active = stand_in(monkeypatch, points, settings, ends)
    make = getattr(trackers, request.param)
    begin = (lambda **options: make(tmp_path, **options)) if request.param == "tensorboard" else make
    return SimpleNamespace(
        name=request.param, begin=begin, active=active, points=points, settings=settings, ends=ends
    )


WITH_RUNS = pytest.mark.parametrize("package", ["mlflow", "wandb"], indirect=True)


def test_a_package_gets_the_points_and_the_settings_of_a_run_that_is_begun_and_ended(package, problem):
    with package.begin(every=0) as tracker:
        run, seen = tracked(problem, tracker)
        tracker.log_settings(run)
        assert package.ends == []
    assert package.points == expected_points(seen)
    assert package.ends == ["well"]
    text = str if package.name == "mlflow" else lambda value: value
    assert package.settings == {name: text(value) for name, value in trackers.settings_of(run).items()}


@WITH_RUNS
def test_a_run_that_ends_with_an_error_is_marked_as_failed(package):
    with pytest.raises(ZeroDivisionError), package.begin():
        raise ZeroDivisionError
    assert package.ends == ["ZeroDivisionError"]


@WITH_RUNS
@pytest.mark.parametrize("given", [True, False])
def test_a_run_of_the_user_is_written_to_and_not_ended(package, given, monkeypatch):
    there, name, run = package.active
    if not given:
        monkeypatch.setattr(there, name, (lambda: run) if name == "active_run" else run)
    with package.begin(**({"run": run} if given else {})) as tracker:
        tracker(progress_at(1))
    assert package.points == [(1, {"temperature/all": 1.5})]
    assert package.ends == []


def test_a_tracker_that_cannot_begin_leaves_nothing_open(package):
    with pytest.raises(ValueError, match="every must be >= 0 and finite, got -1"):
        package.begin(every=-1)
    assert package.ends in (["well"], ["ValueError"])
    if package.name != "tensorboard":
        with pytest.raises(TypeError, match=r"run must be a run of .*, or None; got 'a name'"):
            package.begin(run="a name")


def test_names_are_those_that_mlflow_accepts(monkeypatch):
    points, settings = [], {}
    stand_in_for_mlflow(monkeypatch, points, settings, [])
    with trackers.mlflow() as tracker:
        tracker(progress_at(1, heat={"layers.0, (bias)": 2.0}))
    assert points == [(1, {"temperature/layers.0_ _bias_": 2.0})]


def test_mlflow_is_given_a_hundred_settings_at_a_time(monkeypatch):
    settings, many = {}, {f"setting{n}": n for n in range(250)}
    stand_in_for_mlflow(monkeypatch, [], settings, [])
    monkeypatch.setattr(trackers, "settings_of", lambda run: many)
    with trackers.mlflow() as tracker:
        tracker.log_settings(None)
    assert settings == {name: str(value) for name, value in many.items()}


@pytest.mark.parametrize("name", NAMES)
def test_without_a_package_the_extra_is_named_and_the_module_can_be_imported(name, monkeypatch, tmp_path):
    for other in NAMES:
        monkeypatch.setitem(sys.modules, other, None)
    make = runpy.run_path(trackers.__file__)[name]
    with pytest.raises(
        ModuleNotFoundError, match=rf"needs {name}, an extra: pip install 'heatbath\[{name}\]'"
    ):
        make(*([tmp_path] if name == "tensorboard" else []))


def test_settings_are_flat_and_named_by_method_and_part(problem):
    methods = {
        "one": hb.LaLa(h=0.1, gamma=2.0, posterior=hb.Posterior()),
        "two": hb.Partition(hb.Adam(), hb.schedules.Piecewise((0.1, 0.2), (50,))),
    }
    settings = trackers.settings_of(hb.compare(problem, NETWORK, methods, 60, 10, record=1, chains=2))
    assert all(isinstance(value, bool | int | float | str) for value in settings.values())
    assert settings["problem"] == "spirals"
    assert settings["network.hidden"] == "[5]"
    assert (settings["steps"], settings["batch"], settings["chains"]) == (60, 10, 2)
    assert settings["one.h"] == 0.1
    assert (settings["one.hidden.method"], settings["one.hidden.gamma"]) == ("Langevin", 2.0)
    assert settings["one.posterior.noise"] == "sampled"
    assert settings["two.all.beta1"] == 0.9
    assert settings["two.h"] == "{'schedule': 'Piecewise', 'values': [0.1, 0.2], 'steps': [50]}"
    assert not {"records", "losses", "one.output.tau"} & set(settings)


# What the documentation shows

ROOT = Path(__file__).parents[2]


def test_the_page_runs_with_stand_ins(monkeypatch, tmp_path):
    """The first three snippets run; the last is that of the example."""
    points, settings, ends, files = [], {}, [], []
    stand_in_for_tensorboard(monkeypatch, points, settings, ends)
    mlflow, _, active = stand_in_for_mlflow(monkeypatch, points, settings, ends)
    wandb, _, run = stand_in_for_wandb(monkeypatch, points, settings, ends)
    monkeypatch.setattr(mlflow, "active_run", lambda: active)
    mlflow.log_artifact = files.append
    run.log_artifact = lambda path, type: files.append(path)
    wandb.init = lambda project: recording_end(ends, run)
    monkeypatch.chdir(tmp_path)
    shown = re.findall(
        r"^```py\n(.*?)^```", (ROOT / "docs" / "tracking.md").read_text(), re.DOTALL | re.MULTILINE
    )
    assert len(shown) == 4
    code = "".join(shown[:3])
    assert code.count("20_000") == 3
    exec(code.replace("20_000", "20"), {})
    assert [step for step, _ in points if step == 20] == [20] * 3
    assert settings["hidden.tau"] == 1e-4
    assert ends == ["well"] * 3
    assert files == ["run.nc"] * 2


@pytest.mark.slow
def test_the_example_for_torch_records_losses_and_temperatures(monkeypatch, tmp_path, capsys):
    pytest.importorskip("torch")
    points = []
    stand_in_for_tensorboard(monkeypatch, points, {}, [])
    monkeypatch.setattr(sys, "argv", ["tracked.py", "--steps", "200", "--folder", str(tmp_path)])
    runpy.run_path(str(ROOT / "examples" / "tracked.py"), run_name="__main__")
    assert f"tensorboard --logdir {tmp_path}" in capsys.readouterr().out
    assert (points[0][0], points[-1][0]) == (50, 200)
    names = {"loss", "steps_per_second", "temperature/0", "temperature/2"}  # the layers of a Sequential
    assert all(set(values) == names for _, values in points)
    assert 0.1 < points[-1][1]["loss"] < 1.5


# With the packages themselves


def events(folder):
    """Return the events of the single file in a folder."""
    from tensorboard.compat.proto.event_pb2 import Event

    (path,) = Path(folder).glob("*tfevents*")
    content, place = path.read_bytes(), 0
    while place < len(content):  # length, its checksum, an event, its checksum
        (length,) = struct.unpack_from("<Q", content, place)
        yield Event.FromString(content[place + 12 : place + 12 + length])
        place += 16 + length


@pytest.mark.filterwarnings("ignore")  # warnings of other libraries
def test_tensorboard_itself_has_the_values_in_single_precision(problem, tmp_path):
    pytest.importorskip("tensorboard")
    with trackers.tensorboard(tmp_path / "new", every=0) as tracker:
        run, seen = tracked(problem, tracker)
        tracker.log_settings(run)
    first, *written, last = events(tmp_path / "new")
    assert first.file_version == "brain.Event:2"
    read = [(one.step, {v.tag: v.simple_value for v in one.summary.value}) for one in written]
    single = [
        (n, {k: float(np.float32(v)) for k, v in values.items()}) for n, values in expected_points(seen)
    ]
    assert read == single
    assert b"hidden.sigma" in last.summary.value[0].metadata.plugin_data.content
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        trackers.tensorboard(tmp_path / "file")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_mlflow_itself_has_the_values(problem, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    pytest.importorskip("alembic")
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/runs.db")
    with trackers.mlflow(every=0) as tracker:
        run, seen = tracked(problem, tracker)
        tracker.log_settings(run)
        number = mlflow.active_run().info.run_id
    client = mlflow.MlflowClient()
    there = client.get_run(number)
    assert there.info.status == "FINISHED"
    assert there.data.params == {name: str(value) for name, value in trackers.settings_of(run).items()}
    for name in ("loss", "temperature/hidden", "steps_per_second"):
        read = [(one.step, one.value) for one in client.get_metric_history(number, name)]
        assert read == [(step, values[name]) for step, values in expected_points(seen) if name in values]


def history(folder):
    """Return what was logged to the single run in a folder: chunks in blocks of 32 KiB with checksums."""
    from wandb.proto.wandb_internal_pb2 import Record

    (path,) = Path(folder).rglob("*.wandb")
    content, place, record = path.read_bytes(), 7, b""
    while place + 7 <= len(content):  # it may still be growing
        if (room := -place % 2**15) < 7:
            place += room
        _, length, kind = struct.unpack_from("<IHB", content, place)
        record += content[place + 7 : place + 7 + length]
        place += 7 + length
        if place <= len(content) and kind in (1, 4):  # the whole, or the last of several
            items = Record.FromString(record).history.item
            values = {one.key or ".".join(one.nested_key): json.loads(one.value_json) for one in items}
            record = b""
            if "step" in values:
                yield values.pop("step"), {name: v for name, v in values.items() if not name.startswith("_")}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_wandb_itself_has_the_values(problem, tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    for name, value in {"MODE": "offline", "DIR": str(tmp_path), "SILENT": "true"}.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    with trackers.wandb(every=0) as tracker:
        run, seen = tracked(problem, tracker)
        tracker.log_settings(run)
        assert dict(wandb.run.config) == trackers.settings_of(run)
    assert wandb.run is None
    wait_until(lambda: len(list(history(tmp_path))) == len(seen))  # W&B writes it when the run has ended
    assert list(history(tmp_path)) == expected_points(seen)


@pytest.mark.parametrize("name", NAMES)
def test_a_tracker_is_under_fifty_lines(name):
    assert len(inspect.getsource(getattr(trackers, name)).splitlines()) < 50
