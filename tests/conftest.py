"""What every test may count on."""

import os
import signal
import warnings
from contextlib import suppress

import pytest

os.environ.setdefault(
    "OMP_WAIT_POLICY", "passive"
)  # torch's threads would spin against those of other workers


def pytest_configure(config):
    """Import ArviZ before the workers do: two must not write at once what it notes once a day."""
    if not hasattr(config, "workerinput"):
        with warnings.catch_warnings(), suppress(ImportError):
            warnings.simplefilter("ignore")
            import arviz  # noqa: F401


@pytest.fixture(autouse=True)
def ctrl_c_is_python_s():
    """Ctrl-C raises KeyboardInterrupt, also in tests started in the background, where it is ignored."""
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, usual)
