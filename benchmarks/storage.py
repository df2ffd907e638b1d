"""The memory of runs in a folder: it does not grow with the chains, though what is written does.

Chains of AdLaLa on spirals (20 hidden units, 81 parameters), 500 steps, of which 150 networks and 20 records
are kept: 50 kB for a chain. Each run is in a process of its own with a limit on its data of 4 GB, as if that
were all there is: in the folder (`folder=`), then read again (the mean accuracy at each record, and the
predictions of all networks of the first 1,000 chains); and in memory, if that fits. Printed are the size of
the results, the most memory that the process had, and the seconds.

    python benchmarks/storage.py [--chains 1000 10000 100000] [--memory]
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIMIT = 4 * 10**9


def train(chains: int, folder: str | None) -> None:
    """Train, in a folder or in memory."""
    import heatbath as hb

    problem = hb.datasets.spirals(n_train=500, n_test=100)
    hb.train(
        problem, hb.Dense((20,)), hb.AdLaLa(), steps=500, batch=10, chains=chains, record=20, samples=150,
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


def apart(task: str, chains: int, folder: str | None) -> dict[str, float]:
    """What a task takes in a process of its own: seconds and gigabytes."""
    begin = time.perf_counter()
    command = [sys.executable, __file__, "--task", task, "--chains", str(chains), "--folder", folder or ""]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return {"seconds": float("nan"), "memory": float("nan")}
    return {"seconds": time.perf_counter() - begin, "memory": float(done.stdout.split()[-1])}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--chains", type=int, nargs="+", default=[1000, 10_000, 100_000])
    parser.add_argument("--memory", action="store_true", help="and in memory, as long as that fits")
    parser.add_argument("--task", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.task:
        resource.setrlimit(resource.RLIMIT_DATA, (LIMIT, LIMIT))
        {"train": train, "read": read}[given.task](given.chains[0], given.folder or None)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6)
        return
    train(32, None)  # so that all is compiled
    results = {}
    heads = ("files", "GB", "written, s", "memory, GB", "read, s", "memory, GB")
    print(f"{'chains':>8}" + "".join(f"{head:>12}" for head in heads))
    for chains in given.chains:
        with tempfile.TemporaryDirectory(dir=os.environ.get("HEATBATH_STORAGE")) as place:
            folder = str(Path(place) / "run")
            written = apart("train", chains, folder)
            size = sum(path.stat().st_size for path in Path(folder).iterdir()) / 1e9
            files = len(list(Path(folder).iterdir()))
            looked = apart("read", chains, folder)
        results[chains] = {"files": files, "gigabytes": size, "written": written, "read": looked}
        numbers = (size, written["seconds"], written["memory"], looked["seconds"], looked["memory"])
        line = f"{chains:>8}{files:>12}" + "".join(f"{number:>12.2f}" for number in numbers)
        if given.memory:
            here = apart("train", chains, None)
            results[chains]["here"] = here
            line += f"   in memory: {here['seconds']:.1f} s, {here['memory']:.2f} GB"
        print(line, flush=True)
    path = Path(__file__).parent / "results" / "storage.json"
    path.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
