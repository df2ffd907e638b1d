"""The tables of what was measured, made of the files in benchmarks/results.

    python docs/measured.py

writes them anew, between the two marks on each page: <!-- benchmarks/streams.py --> (or, of one with several
tables, <!-- benchmarks/deep.py: language -->) and <!-- end -->. The table is what `table` of that file makes
of the results of its name, or what its `TABLES` have by that name. A test sees to it that pages are as they
would be made.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType

DOCS = Path(__file__).parent
BENCHMARKS = DOCS.parent / "benchmarks"
MARKED = re.compile(r"(<!-- benchmarks/(\w+)\.py(?:: (\w+))? -->\n).*?(?=<!-- end -->)", re.DOTALL)


def made(name: str, part: str | None = None) -> str:
    """Return the table of a benchmark, or how to make it if there are no results."""
    path = BENCHMARKS / "results" / f"{name}.json"
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if not known or (part and part not in known):
        return f"Not measured yet: `python benchmarks/{name}.py`."
    if str(BENCHMARKS) not in sys.path:
        sys.path.append(str(BENCHMARKS))  # last, so that none hides a library
    benchmark = _loaded(name)
    return str(benchmark.TABLES[part](known) if part else benchmark.table(known))


def _loaded(name: str) -> ModuleType:
    """Import a benchmark from its file: scripts beside this one may have its name."""
    spec = importlib.util.spec_from_file_location(f"benchmarks.{name}", BENCHMARKS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def measured(page: Path) -> str:
    """Return a page with its tables as they are made now."""
    text = page.read_text(encoding="utf-8")
    return MARKED.sub(lambda mark: f"{mark[1]}\n{made(mark[2], mark[3])}\n\n", text)


def pages() -> list[Path]:
    """Those that have tables."""
    return [page for page in sorted(DOCS.glob("*.md")) if MARKED.search(page.read_text(encoding="utf-8"))]


if __name__ == "__main__":
    for page in pages():
        page.write_text(measured(page), encoding="utf-8")
