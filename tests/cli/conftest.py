"""How the tests call commands."""

import numpy as np
import pytest

from heatbath import plotting
from heatbath.cli import main
from heatbath.cli.report import figures
from heatbath.plotting import output
from tests.cli.arguments import ADLALA, QUICK, REGRESSION, SMALL, TABLE, Input


@pytest.fixture
def call(capsys):
    """Return a function that runs a command and returns its exit code, stdout and stderr."""

    def called(*arguments):
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return end.value.code, out, err

    return called


@pytest.fixture
def no_pictures(monkeypatch):
    """Have commands draw no figures."""
    monkeypatch.setattr(figures, "draw_figures", lambda *arguments: [])


@pytest.fixture
def svg_only(monkeypatch):
    """Save figures as SVG only, since drawing them takes longest."""

    def save(picture, path):
        output._figure(picture).savefig(path.with_suffix(".svg"))
        return path, path.with_suffix(".svg")

    monkeypatch.setattr(plotting, "save", save)


@pytest.fixture
def refused(call):
    """Return a function that checks that a command fails with one line, and returns the line."""

    def called(*arguments, code=2):
        found, out, err = call(*arguments)
        lines = [line for line in err.splitlines() if not line.startswith("preparing")]
        assert (found, out, len(lines)) == (code, "", 1), (found, out, err)
        assert lines[0].startswith("heatbath: ")
        return lines[0]

    return called


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """Return the folder of a run of AdLaLa with samples."""
    folder = tmp_path_factory.mktemp("cli") / "run"
    with pytest.raises(SystemExit) as end:
        main(["train", *SMALL, *ADLALA, "--samples", "5", "--out", str(folder)])
    assert end.value.code == 0
    return folder


@pytest.fixture
def table(tmp_path):
    """Write a CSV file with three classes and one with numbers to predict, and return the first."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 3))
    kinds = np.array(["blue", "green", "red"])[(X[:, 0] > 0).astype(int) + (X[:, 1] > 0)]
    for name, target in (("kind", kinds), ("size", 100 + X @ [1.0, 2.0, 0.0])):
        rows = [["a", "b", "c", name], *([*x, y] for x, y in zip(X.tolist(), target.tolist(), strict=True))]
        (tmp_path / f"{name}.csv").write_text("\n".join(",".join(map(str, row)) for row in rows) + "\n")
    return tmp_path / "kind.csv"


@pytest.fixture(scope="session")
def sampled(tmp_path_factory):
    """Return a folder with a CSV file, whose target has noise of 5, and a run that samples the posterior."""
    folder, rng = tmp_path_factory.mktemp("posterior"), np.random.default_rng(0)
    X = rng.standard_normal((60, 2))
    rows = np.column_stack([X, 100 + 20 * X[:, 0] + 5 * rng.standard_normal(60)])
    np.savetxt(folder / "size.csv", rows, delimiter=",", header="a,b,size", comments="")
    method = ["--method", "lala:h=0.1,gamma=1", "--prior", "0.8,1.2", "--temperature", "0.9"]
    data = ["--data", str(folder / "size.csv"), *REGRESSION, "--out", str(folder / "run")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "draw_figures", lambda *arguments: [])
        with pytest.raises(SystemExit) as end:
            main(["train", *data, *method])
    assert end.value.code == 0
    return folder


@pytest.fixture
def in_empty_folder(tmp_path, monkeypatch):
    """Change to an empty folder."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def streamed(tmp_path_factory):
    """Return the folder of a run whose table came from the standard input."""
    folder = tmp_path_factory.mktemp("streamed") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "draw_figures", lambda *arguments: [])
        patch.setattr("sys.stdin", Input(TABLE.encode()))
        with pytest.raises(SystemExit) as end:
            main(["train", "--data", "-", *QUICK, "--out", str(folder)])
    assert end.value.code == 0
    return folder
