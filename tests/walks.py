"""Trace calls through the modules of heatbath: what ARCHITECTURE.md shows and its test compares.

`python -m tests.walks` prints the modules that each walk enters, in the order of first entry.
"""

import sys
import tempfile
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

import heatbath as hb

SOURCE = str(Path(hb.__file__).parent)


def entered_modules(call: Callable[[], object]) -> list[str]:
    """Return the modules of heatbath whose functions a call runs, in the order of first entry."""
    modules: dict[str, None] = {}

    def note(frame: object, event: str, _: object) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(SOURCE):
            parts = Path(path).relative_to(SOURCE).with_suffix("").parts
            modules.setdefault(".".join(parts))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return [name for name in modules if not name.endswith("__init__")]


def train_to_file() -> None:
    """Train three chains and save the run."""
    problem = hb.datasets.spirals(n_train=200, n_test=50)
    run = hb.train(problem, hb.MLP((20,)), hb.AdLaLa(h=0.2), steps=200, chains=3, record=4, threads=1)
    with tempfile.TemporaryDirectory() as folder:
        run.save(Path(folder) / "run.nc")


def fit() -> None:
    """Fit the regressor with its defaults."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    y = X[:, 0] + 0.1 * rng.standard_normal(60)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        hb.ThermodynamicRegressor(random_state=0, refine=0.1, threads=1).fit(X, y)


def command_line_on_a_table() -> None:
    """Train on a CSV file by the command line."""
    from contextlib import redirect_stderr, redirect_stdout, suppress
    from io import StringIO

    from heatbath.cli import main

    rng = np.random.default_rng(0)
    numbers = enumerate(rng.standard_normal((90, 2)))
    rows = [f"{a:.3f},{'uvw'[i % 3]},{a + 0.1 * noise:.3f}" for i, (a, noise) in numbers]
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "t.csv"
        table.write_text("\n".join(["a,b,y", *rows]))
        command = ["train", "--data", str(table), "--target", "y", "--refine", "0.1", "--threads", "1"]
        argv, sys.argv = sys.argv, ["heatbath", *command, "--out", str(Path(folder) / "out")]
        try:
            with redirect_stdout(StringIO()), redirect_stderr(StringIO()), suppress(SystemExit):
                main()
        finally:
            sys.argv = argv
        assert (Path(folder) / "out" / "report.html").exists()


def torch_step() -> Callable[[], None]:
    """Return a step of AdLaLa that has made others before."""
    import torch

    from heatbath.torch import AdLaLa

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(2, 100), torch.nn.ReLU(), torch.nn.Linear(100, 1))
    optimizer = AdLaLa(model, lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(4, 2)).square().mean().backward()
        optimizer.step()
    return optimizer.step


def second_frame() -> Callable[[], None]:
    """Return a frame of an explorer's page whose two runs have made steps before."""
    from heatbath.explorer.session import Session, make_streams
    from heatbath.explorer.settings import read_settings

    session = Session(lambda message: None, lambda: None)
    settings = read_settings({})
    session.install(settings, make_streams(settings, lambda message: None), "")
    for stream in session.streams.values():
        stream.prepare()
    session.play(True)

    def serve() -> None:
        session.request_frame()
        for stream in session.streams.values():
            session.serve(stream)

    serve()
    return serve


def explorer_frame() -> Callable[[], None]:
    """Return the second frame of a session; one before compiled how temperatures are measured."""
    second_frame()()
    return second_frame()


def warm(call: Callable[[], None]) -> Callable[[], Callable[[], None]]:
    """Return a maker of a call that has run once before, so that imports and compilation don't count."""

    def make() -> Callable[[], None]:
        call()
        return call

    return make


WALKS: dict[str, Callable[[], Callable[[], None]]] = {  # each makes the call to trace
    "Train and save": warm(train_to_file),
    "Fit an estimator": warm(fit),
    "The command line on a table": warm(command_line_on_a_table),
    "A torch step": torch_step,
    "A frame of the explorer": explorer_frame,
}

if __name__ == "__main__":
    for title, make in WALKS.items():
        print(f"### {title}\n\n{', '.join(f'`{name}`' for name in entered_modules(make()))}\n")
