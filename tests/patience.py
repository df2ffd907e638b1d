"""Waiting for what must happen. No test may count on how soon: a machine may be slow, or stall."""

import time

PATIENCE = 300.0  # seconds: only what never happens takes so long


def wait_until(holds, apart=0.01):
    """Whether something came true: at once when it does, and not before all patience is lost where not."""
    end = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(apart)
    return True
