"""A thread pool of our own for compiled code that releases Python's lock.

Numba's own threading layers either load a second OpenMP runtime beside torch's, which kills forked children,
or abort when two Python threads enter at once. This pool does neither: it is made when it is first needed,
and again in a forked child.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from itertools import pairwise
from typing import Any

from threadpoolctl import ThreadpoolController

from heatbath._internal.checks import whole

_pools: dict[int, ThreadPoolExecutor] = {}
os.register_at_fork(after_in_child=_pools.clear)

BLOCKS_PER_THREAD = 4  # so that a slow thread doesn't hold up the others


class _BlasLimit:
    """How many callers need BLAS to have one thread, and how many it had before the first of them."""

    controller: ThreadpoolController | None = None  # finding the libraries takes some 30 ms
    original: Any = None

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all callers."""
        self.lock = threading.Lock()
        self.users = 0


_blas = _BlasLimit()
os.register_at_fork(after_in_child=_blas.clear)  # where nobody needs it yet


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread in the whole process: there are threads enough, and results stay the same.

    The number of BLAS threads belongs to the process, so callers are counted. The first one remembers the
    number and the last one restores it. If each caller set and restored it, one that ends in between would
    undo the limit for the others, or leave it for good. Each caller sets the limit again, since other code
    may have changed it.
    """
    with _blas.lock:
        if _blas.controller is None:
            import_module("scipy.linalg.cython_blas")  # which compiled code has; it is not found before
            _blas.controller = ThreadpoolController()
        limits = _blas.controller.limit(limits=1, user_api="blas")
        if _blas.users == 0:
            _blas.original = limits
        _blas.users += 1
    try:
        yield
    finally:
        with _blas.lock:
            _blas.users -= 1
            if _blas.users == 0:
                _blas.original.restore_original_limits()


def thread_count(threads: int | None = None, default: int | None = None) -> int:
    """Return the number of threads to use: the first of these that is set.

    They are `threads`, the environment variable HEATBATH_THREADS, `default`, and the number of cores that
    this process may use.

    Raises
    ------
    ValueError
        If `threads` or the environment variable isn't a whole number >= 1.
    """
    if threads is not None:
        return whole("threads", threads, low=1)
    setting = os.environ.get("HEATBATH_THREADS")
    if setting is not None:
        return _threads_from_environment(setting)
    if default is not None:
        return default
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _threads_from_environment(setting: str) -> int:
    """Return the number that HEATBATH_THREADS is set to; raise ValueError if it isn't a whole one >= 1."""
    if not setting.isdecimal() or int(setting) < 1:
        raise ValueError(
            f"HEATBATH_THREADS must be a whole number >= 1, got {setting!r}: change it, or unset it "
            "to use all cores"
        )
    return int(setting)


def spread(work: Callable[[int, int], None], count: int, threads: int, even: bool = False) -> None:
    """Call work(first, stop) for blocks that cover range(count), on several threads, and wait for all.

    Parameters
    ----------
    work : callable (first, stop)
    count : int
        How much work there is.
    threads : int
        The largest number of threads.
    even : bool
        Whether the work takes equally long everywhere: then each thread has one block, and the calling thread
        does its share. Otherwise each has a few, so that a slow thread doesn't hold up the others.
    """
    if threads == 1 or count == 1:
        work(0, count)
        return

    pool = _pool_of(threads)
    most_blocks = threads if even else BLOCKS_PER_THREAD * threads
    blocks = min(count, most_blocks)
    spans = list(pairwise([count * i // blocks for i in range(blocks + 1)]))
    own_spans = spans[:1] if even else []
    futures = [pool.submit(work, *span) for span in spans[len(own_spans) :]]
    for span in own_spans:
        work(*span)
    for future in futures:
        future.result()


def _pool_of(threads: int) -> ThreadPoolExecutor:
    """Return the pool with so many threads, which is made when it is first needed."""
    pool = _pools.get(threads)
    if pool is None:
        pool = _pools.setdefault(threads, ThreadPoolExecutor(threads, thread_name_prefix="heatbath"))
    return pool
