"""The engine of this folder and the one before chains were computed in lanes, each in processes of its own.

The earlier one comes from the history of the repository. Where that is not at hand (a shallow clone, an
sdist) there is none, and whatever compares with it leaves it out.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from work import Case

COMMIT = "b3eddae"
HERE = Path(__file__).parent


@dataclasses.dataclass(frozen=True)
class Version:
    """A version's sources, None for those that are installed, and where it keeps compiled code."""

    source: Path | None = None
    cache: Path | None = None

    def environment(self) -> dict[str, str]:
        """Return the environment variables of its processes."""
        changed = dict(os.environ)
        if self.source:
            changed["PYTHONPATH"] = str(self.source)
        if self.cache:
            changed["HEATBATH_CACHE"] = str(self.cache)
        return changed

    def run(self, code: str) -> str:
        """Run code in a new process; return what it prints."""
        command = [sys.executable, "-P", "-W", "ignore", "-c", code]
        return subprocess.run(
            command, check=True, env=self.environment(), text=True, stdout=subprocess.PIPE
        ).stdout


@contextlib.contextmanager
def earlier() -> Iterator[Version | None]:
    """Yield the version of COMMIT in a temporary folder, or None."""
    archive = ["git", "-C", str(HERE.parent), "archive", COMMIT, "src"]
    try:
        tar = subprocess.run(archive, check=True, capture_output=True).stdout
    except (OSError, subprocess.CalledProcessError):
        print(f"the engine before ({COMMIT}) is left out: it is not in the history of this folder")
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=BytesIO(tar)) as packed:
            packed.extractall(folder, filter="data")
        yield Version(Path(folder) / "src", Path(folder) / "cache")


class Engine:
    """A process that runs cases with a version, and waits in between."""

    def __init__(self, version: Version) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", str(HERE / "work.py")],
            env=version.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def seconds(self, case: Case) -> list[float]:
        """Return the time of each call."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(dataclasses.asdict(case)) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        answer = json.loads(line) if line else "the process ended"
        if isinstance(answer, str):
            raise RuntimeError(answer)
        return answer

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *error: object) -> None:
        with self._process:  # closes its input, at which it ends, and waits
            pass
