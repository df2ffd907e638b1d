"""Helpers for tests of written pages: their snippets, run as a reader would."""

import re
import subprocess
import sys
import warnings
from contextlib import chdir
from functools import partial

from tests.processes import run_in_copy, run_script


def run_python(*arguments, **options):
    """Run a new Python interpreter, check that it succeeds, and return what it prints."""
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, **options
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def snippets(page):
    """Return all Python on a page, one snippet after the other, each at the line where it stands."""
    text = page.read_text(encoding="utf-8")
    found = list(re.finditer(r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE))
    assert len(found) == len(re.findall(r"^\s*```+ *python", text, flags=re.MULTILINE)), "a snippet is missed"
    lines = []
    for match in found:
        lines += [""] * (text.count("\n", 0, match.start(1)) - len(lines))
        lines += match[1].splitlines()
    return "\n".join(lines)


def run_snippets(page, folder):
    """Run the snippets of a page in a folder, with warnings as errors and the imports of this process.

    They run in a copy of this process, where whatever they register is gone afterwards. Those of torch, which
    hangs after a fork, run in this process, and those that start processes in an interpreter of their own.
    """
    text = snippets(page)
    program = folder / f"{page.stem}.py"
    program.write_text(text, encoding="utf-8")
    if 'if __name__ == "__main__":' in text:
        run_python("-W", "error", str(program), cwd=folder)
    elif "torch" in text:
        with chdir(folder), warnings.catch_warnings():
            warnings.simplefilter("error")
            exec(compile(text, program, "exec"), {"__name__": "__main__"})
    else:
        done = run_in_copy(partial(run_with_errors, program), folder)
        assert done.returncode == 0, done.stderr


def run_with_errors(program):
    """Run a file as Python does with the option -W error."""
    warnings.simplefilter("error")
    run_script(program)()
