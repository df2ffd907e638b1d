"""Wait for what must happen. No test may count on how soon: a machine may be slow, or stall."""

import time

PATIENCE = 300.0  # seconds: only what never happens takes so long


def wait_until(holds, apart=0.01):
    """Return True as soon as `holds()` is true, and False if it is not before all patience is lost."""
    end = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(apart)
    return True
