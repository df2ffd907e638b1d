"""Hold back Ctrl-C while compiled code runs."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    pass
PATIENCE = 0.1  # seconds of compiled code at a time, so that Ctrl-C and progress stay responsive


@contextmanager
def deferred_interrupts() -> Iterator[Callable[[], bool]]:
    """Within, Ctrl-C raises nothing the first time: the function given tells whether it came.

    So the chains are never left in the middle of a call. A second Ctrl-C interrupts at once. In threads other
    than the main one, and where the program handles Ctrl-C in its own way, nothing is changed.
    """
    usual = signal.getsignal(signal.SIGINT)
    came = threading.Event()
    if threading.current_thread() is not threading.main_thread() or usual is not signal.default_int_handler:
        yield came.is_set
        return

    def note(number: int, frame: Any) -> None:
        signal.signal(signal.SIGINT, usual)
        came.set()

    signal.signal(signal.SIGINT, note)
    try:
        yield came.is_set
    finally:
        signal.signal(signal.SIGINT, usual)
