"""What is said while something is compiled."""

import importlib.util
import threading

import numpy as np

from heatbath.engine.compile import report, reporting
from tests.patience import PATIENCE

PROBE = """
from heatbath.engine.compile import compiled

@compiled
def piece(x):
    return x[0] + 1

@compiled(cache=True)
def some_probe(x):
    return piece(x)
"""


def load(path):
    specification = importlib.util.spec_from_file_location("probe", path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module.some_probe


def test_what_is_compiled_is_said_once_and_not_when_it_is_kept(tmp_path):
    path = tmp_path / "probe.py"
    path.write_text(PROBE)
    said = []
    with reporting(said.append):
        for probe in (load(path), load(path)):  # the second is another process, as far as the cache knows
            for _ in range(2):
                assert probe(np.zeros(1, np.float32)) == 1
    assert said == ["compiling some probe (float32): once, for some 10 s"]
    with reporting(said.append):
        load(path)(np.zeros(1))
    assert said[1:] == ["compiling some probe (float64): once, for some 10 s"]


def test_without_a_listener_it_is_said_in_a_terminal_only(tmp_path, capsys, monkeypatch):
    path = tmp_path / "probe.py"
    path.write_text(PROBE)
    load(path)(np.zeros(1, np.float32))
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    load(path)(np.zeros(1))
    assert capsys.readouterr().err == "heatbath: compiling some probe (float64): once, for some 10 s\n"


def test_each_thread_is_told_of_what_it_compiles_itself():
    said, inside, ready = {"one": [], "two": []}, threading.Barrier(2), threading.Barrier(2)

    def listen(name):
        with reporting(said[name].append):
            inside.wait(PATIENCE)  # both listen by now
            report(name)
            ready.wait(PATIENCE)

    threads = [threading.Thread(target=listen, args=(name,)) for name in said]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == {"one": ["one"], "two": ["two"]}
