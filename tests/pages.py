"""Helpers for tests of written pages: their snippets, run as a reader would."""

import re
import subprocess
import sys


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
    """Run the snippets of a page in a folder, with warnings as errors."""
    program = folder / f"{page.stem}.py"
    program.write_text(snippets(page), encoding="utf-8")
    return run_python("-W", "error", str(program), cwd=folder)
