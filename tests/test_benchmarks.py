"""The benchmarks: what judges a run finds what is wrong with one."""

import importlib.util
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
sys.path.append(str(BENCHMARKS))  # what they share; last, so that none hides a library


def load_script(name):
    """Return a script in the folder of the benchmarks, as a module."""
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def faults():
    pytest.importorskip("psutil", reason="the extra dask is not installed")
    return load_script("faults")


@pytest.fixture(scope="module")
def million():
    return load_script("million")


STORED = ["stored 0 256 0 3000 50", "stored 0 256 3000 6000 90"]


@pytest.mark.parametrize(
    ("lines", "again", "once"),
    [
        (["begun 0 256 0 6000 10", "begun 0 256 3000 6000 60", *STORED], 0, True),
        (["begun 0 256 0 6000 10", "begun 0 256 0 6000 40", "begun 0 256 3000 6000 60", *STORED], 0, True),
        (["begun 0 256 0 6000 10", "begun 16 32 0 6000 60", "begun 0 256 3000 6000 70", *STORED], 1, True),
        (["begun 0 256 0 6000 10", STORED[0]], 0, False),
    ],
)
def test_a_block_that_is_begun_after_it_was_stored_is_made_again(faults, tmp_path, lines, again, once):
    trial = faults.Trial("processes", "", None, tmp_path)
    trial.log.write_text("\n".join([*lines, lines[-1]]) + "\n")  # two drivers may note the same
    assert len(trial.made_again()) == again
    assert trial.is_whole() == once


COSTS = {"speed": 4e5, "state": {"block": 2e4, "chain": 4e3}, "drivers": [{"driver_wall": 1e-3}]}


@pytest.mark.parametrize(("cores", "share"), [(10, (0.97, 1.0)), (10_000, (0.0, 0.6))])
def test_a_simulated_driver_is_no_limit_for_ten_cores_and_one_for_ten_thousand(million, cores, share):
    run = million.simulated(40_000, cores, 20_000, COSTS, "state")
    assert run["bare"] == pytest.approx(40_000 * 20_000 / 4e5 / cores)
    assert share[0] < run["share"] <= share[1]
    assert run["driver"] * run["seconds"] == pytest.approx(
        run["blocks"] * (1e-3 + 2e4 / million.NETWORK) + 40_000 * 4e3 / million.NETWORK
    )


def test_the_simulated_driver_takes_all_chains_in_blocks_of_a_lane_group_at_least(million):
    run = million.simulated(1000, 3, 20_000, COSTS, "state")
    assert 1000 / (4 * 4e5 / 20_000) <= run["blocks"] <= 1000 / million.UNIT + 1
