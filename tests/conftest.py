"""What every test may count on."""

import gc
import os
import random
import signal
import sys
import warnings
from contextlib import suppress
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from tests.optional import is_installed

os.environ.setdefault(
    "OMP_WAIT_POLICY", "passive"
)  # torch's threads would spin against those of other workers


def data_beside(project):
    """Return the folder of data beside the project if it has MNIST, otherwise None."""
    folder = project.parent / "shared" / "data"
    return folder if (folder / "mnist").is_dir() else None


if beside := data_beside(Path(__file__).parent.parent):
    os.environ.setdefault("HEATBATH_DATA", str(beside))
gc.disable()  # until all tests are collected: next to nothing of what is imported is garbage


settings.register_profile(  # the same examples every time, however long they take
    "same",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("same")


def pytest_report_header():
    """Say at the top of a run that tests of torch are left out, if so."""
    return None if is_installed("torch") else "PyTorch is not installed: tests that need it are skipped"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Skip a test that asks for torch on its way, where torch is not installed."""
    try:
        return (yield)
    except ModuleNotFoundError as error:
        if is_installed("torch") or "torch" not in str(error):
            raise
        pytest.skip("torch is not installed")


def pytest_collection_finish():
    """Freeze what is imported, since the collector would scan its million objects again and again."""
    gc.freeze()
    gc.enable()


def pytest_configure(config):
    """Import ArviZ before the workers do, since two must not write its daily note at once."""
    if not hasattr(config, "workerinput"):
        with warnings.catch_warnings(), suppress(ImportError):
            warnings.simplefilter("ignore")
            import arviz  # noqa: F401


@pytest.fixture(autouse=True)
def ctrl_c_is_python_s():
    """Let Ctrl-C raise KeyboardInterrupt, also in tests started in the background, where it is ignored."""
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, usual)


@pytest.fixture(autouse=True)
def fix_unseeded_draws(monkeypatch):
    """Give code without a seed other numbers at every call, but the same ones each time a test runs."""
    made, seeds = np.random.default_rng, count()
    monkeypatch.setattr(
        np.random, "default_rng", lambda seed=None: made(next(seeds) if seed is None else seed)
    )
    np.random.seed(0)  # noqa: NPY002
    random.seed(0)


@pytest.fixture(autouse=True)
def fix_torch_seed():
    """Fix the seed of torch, from which optimisers without a seed take their noise."""
    if "torch" not in sys.modules:
        yield
        return
    import torch

    from heatbath.torch.optim.seeds import counted_anew

    torch.manual_seed(0)
    with counted_anew():
        yield
