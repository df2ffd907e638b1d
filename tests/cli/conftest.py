"""How the tests call commands."""

import pytest

from heatbath.cli import main
from heatbath.cli.report import figures


@pytest.fixture
def call(capsys):
    """Call a command: its code, and what it says on stdout and stderr."""

    def called(*arguments):
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return end.value.code, out, err

    return called


@pytest.fixture
def no_pictures(monkeypatch):
    monkeypatch.setattr(figures, "draw_figures", lambda *arguments: [])


@pytest.fixture
def refused(call):
    """Call a command that must fail, in one line; the line."""

    def called(*arguments, code=2):
        found, out, err = call(*arguments)
        lines = [line for line in err.splitlines() if not line.startswith("preparing")]
        assert (found, out, len(lines)) == (code, "", 1), (found, out, err)
        assert lines[0].startswith("heatbath: ")
        return lines[0]

    return called
