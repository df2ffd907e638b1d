"""What every test may count on."""

import signal

import pytest


@pytest.fixture(autouse=True)
def ctrl_c_is_python_s():
    """Ctrl-C raises KeyboardInterrupt, also in tests started in the background, where it is ignored."""
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, usual)
