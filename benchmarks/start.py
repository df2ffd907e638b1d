"""The time to the first result: a new process that imports heatbath and trains for ten steps.

Each is run with nothing compiled yet, in an empty folder for compiled code, and again with that folder as it
was left; by this engine and by the engine before, in turns. In seconds, medians: of the process from its
start to its end, and of the call of `hb.train` in it. One chain and 32 chains are compiled apart where they
are computed in different layouts.
"""

import argparse
import dataclasses
import statistics
import tempfile
import time
from pathlib import Path

from versions import Version, earlier

FIRST = """
import time
import heatbath as hb
problem = hb.datasets.spirals()
begin = time.perf_counter()
hb.train(problem, hb.MLP((100,)), hb.AdLaLa(), 10, 20, {chains}, record=1)
print(time.perf_counter() - begin)
"""


def seconds(version: Version, chains: int) -> tuple[float, float]:
    """Of a new process, and of the call in it."""
    begin = time.perf_counter()
    call = float(version.run(FIRST.format(chains=chains)))
    return time.perf_counter() - begin, call


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    states = ("nothing compiled yet", "compiled code at hand")
    with earlier() as before:
        versions = {"engine": Version()} | ({"engine before": before} if before else {})
        print(f"{'seconds':<45}{'process':>9}{'call':>9}")
        for chains in (1, 32):
            times: dict[tuple[str, str], list[tuple[float, float]]] = {}
            for _ in range(repeats):
                for name, version in versions.items():
                    with tempfile.TemporaryDirectory() as folder:
                        empty = dataclasses.replace(version, cache=Path(folder))
                        for state in states:
                            times.setdefault((state, name), []).append(seconds(empty, chains))
            for state in states:
                for name in versions:
                    process, call = map(statistics.median, zip(*times[state, name], strict=True))
                    print(
                        f"{state}, {chains:>2} chains, {name:<13}".ljust(45) + f"{process:>9.2f}{call:>9.2f}"
                    )


if __name__ == "__main__":
    main()
