"""Delay Ctrl-C while compiled code runs."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

PATIENCE = 0.1  # seconds of compiled code at a time, so that Ctrl-C and progress stay responsive


@contextmanager
def deferred_interrupts() -> Iterator[Callable[[], bool]]:
    """Delay the first Ctrl-C within a `with` block, so that no call is left half done.

    Yields
    ------
    function
        It returns True once Ctrl-C was pressed. A second Ctrl-C interrupts at once. In threads other than the
        main one, and in programs with their own handler for Ctrl-C, nothing is delayed, and it returns False.
    """
    default_handler = signal.getsignal(signal.SIGINT)
    interrupted = threading.Event()
    is_main_thread = threading.current_thread() is threading.main_thread()
    if not is_main_thread or default_handler is not signal.default_int_handler:
        yield interrupted.is_set
        return

    def record_interrupt(number: int, frame: FrameType | None) -> None:
        """Restore the usual handler, for a second Ctrl-C, and remember the first."""
        signal.signal(signal.SIGINT, default_handler)
        interrupted.set()

    signal.signal(signal.SIGINT, record_interrupt)
    try:
        yield interrupted.is_set
    finally:
        signal.signal(signal.SIGINT, default_handler)
