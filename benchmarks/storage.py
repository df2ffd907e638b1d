"""The memory of runs in a folder: it does not grow with the chains, though what is written does.

Chains of AdLaLa on spirals (20 hidden units, 81 parameters), 500 steps, of which 150 networks and 20 records
are kept: 50 kB for a chain, 5 GB for 102,400. Each run is in a process of its own with a limit on its data of
4 GB, as if that were all there is: in the folder (`folder=`), then read again (the mean accuracy at each
record, and the predictions of all networks of the first 1,000 chains); and in memory, which fails where it
does not fit. Printed are the size of the results, the most memory that the process had (of its own, as the
system counts it from the start of the program), and the seconds.

    python benchmarks/storage.py [--chains 1024 10240 102400] [--results FILE]

The folders are in a temporary one; HEATBATH_STORAGE names another place for it.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from texts import in_markdown

LIMIT = 4 * 10**9
RESULTS = Path(__file__).parent / "results" / "storage.json"


def train(chains: int, folder: str | None) -> None:
    """Train, in a folder or in memory."""
    import heatbath as hb

    problem = hb.datasets.spirals(n_train=500, n_test=100)
    hb.train(
        problem, hb.MLP((20,)), hb.AdLaLa(), steps=500, batch=10, chains=chains, record=20, samples=150,
        folder=folder,
    )  # fmt: skip


def read(chains: int, folder: str) -> None:
    """Look at a run in a folder."""
    import heatbath as hb

    run = hb.load(folder)
    accuracy = run.accuracy("test").mean("chain").values
    assert accuracy.shape == (20,)
    some = hb.Run(run.plan, run.step, run.data.isel(chain=slice(0, 1000)))
    some.predict([[0.5, 1.0], [-1.0, 0.0]])


def most_memory() -> float:
    """Return the peak memory of this process in gigabytes.

    `getrusage` would return that of its parent if it was larger when this process started.
    """
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024 / 1e9


def apart(task: str, chains: int, folder: str | None) -> dict[str, Any]:
    """Run a task in a process of its own; return its seconds and gigabytes, or its error."""
    begin = time.perf_counter()
    command = [sys.executable, __file__, "--task", task, "--chains", str(chains), "--folder", folder or ""]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"ended with {done.returncode}"]
        return {"error": lines[-1]}
    return {"seconds": time.perf_counter() - begin, "memory": float(done.stdout.split()[-1])}


def _shown(result: dict[str, Any]) -> str:
    if "error" in result:
        return result["error"]
    return f"{result['seconds']:.1f} s, {result['memory']:.2f} GB"


def table(known: dict[str, Any]) -> str:
    """Measure the memory of runs in a folder, and of the same runs in memory."""

    def memory(about: dict[str, Any]) -> str:
        if "error" in about:
            return (
                "more than there is" if "MemoryError" in about["error"] else about["error"].partition(":")[0]
            )
        return f"{about['memory']:.2f} GB"

    rows = [
        [f"{int(chains):,}", f"{about['gigabytes']:.2f} GB", str(about["files"]),
         *(memory(about[key]) for key in ("written", "read", "here"))]
        for chains, about in known["chains"].items()
    ]  # fmt: skip
    head = ["chains", "results", "blocks", "memory with `folder=`", "to read it", "without `folder=`"]
    return in_markdown(head, rows)


def main() -> None:
    """Print what each takes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--chains", type=int, nargs="+", default=[1024, 10_240, 102_400])
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--task", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.task:
        resource.setrlimit(resource.RLIMIT_DATA, (LIMIT, LIMIT))
        {"train": train, "read": read}[given.task](given.chains[0], given.folder or None)
        print(most_memory())
        return
    train(32, None)  # so that all is compiled
    results: dict[str, Any] = {"limit": LIMIT / 1e9, "chains": {}}
    for chains in given.chains:
        with tempfile.TemporaryDirectory(dir=os.environ.get("HEATBATH_STORAGE")) as place:
            folder = Path(place) / "run"
            about: dict[str, Any] = {"written": apart("train", chains, str(folder))}
            sizes = [path.stat().st_size for path in folder.glob("chains-*.nc")]
            about |= {"files": len(sizes), "gigabytes": sum(sizes) / 1e9}
            about["read"] = apart("read", chains, str(folder))
        about["here"] = apart("train", chains, None)
        results["chains"][str(chains)] = about
        print(f"{chains} chains: {about['gigabytes']:.2f} GB in {about['files']} blocks")
        for key, name in (("written", "in a folder"), ("read", "read again"), ("here", "in memory")):
            print(f"    {name}: {_shown(about[key])}", flush=True)
        given.results.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
