"""A thread pool of our own for compiled code that releases the lock.

Numba's own threading layers either load a second OpenMP runtime beside torch's, which kills forked children,
or abort when two Python threads enter at once. This pool does neither: it is made when first needed, and made
anew in a forked child.
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


class _Blas:
    """How many need BLAS to have one thread, and how many it had before the first of them."""

    found: ThreadpoolController | None = None  # finding the libraries takes some 30 ms
    limits: Any = None

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.lock, self.count = threading.Lock(), 0


_blas = _Blas()
os.register_at_fork(after_in_child=_blas.clear)  # where nobody needs it yet


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Within, BLAS has one thread, in the whole process: there are threads enough, and results stay the same.

    Its number of threads belongs to the process. So those who need this are counted: the first sets it, and
    the last one gives back what it was. If each set and restored it, whoever ends in between would undo it
    for the others, or leave it at one for good. Everyone who comes sets it to one, as others than these may
    have set it in between.
    """
    with _blas.lock:
        if _blas.found is None:
            import_module("scipy.linalg.cython_blas")  # which compiled code has; it is not found before
            _blas.found = ThreadpoolController()
        limits = _blas.found.limit(limits=1, user_api="blas")
        if _blas.count == 0:
            _blas.limits = limits
        _blas.count += 1
    try:
        yield
    finally:
        with _blas.lock:
            _blas.count -= 1
            if _blas.count == 0:
                _blas.limits.restore_original_limits()


def thread_count(threads: int | None = None, default: int | None = None) -> int:
    """The threads asked for, or HEATBATH_THREADS, or the default, or one for each core that may be used."""
    if threads is not None:
        return whole("threads", threads, low=1)
    setting = os.environ.get("HEATBATH_THREADS")
    if setting is not None:
        if not setting.isdecimal() or int(setting) < 1:
            raise ValueError(f"HEATBATH_THREADS must be a whole number >= 1, got {setting!r}")
        return int(setting)
    if default is not None:
        return default
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def spread(work: Callable[[int, int], None], count: int, threads: int, even: bool = False) -> None:
    """Call work(begin, end) for blocks that cover range(count), on up to `threads` threads.

    There are a few blocks a thread, so that one that is slow does not hold up the rest; for `even` work one
    is enough, and this thread does its share.
    """
    if threads == 1 or count == 1:
        work(0, count)
        return
    pool = _pools.get(threads)
    if pool is None:
        pool = _pools.setdefault(threads, ThreadPoolExecutor(threads, thread_name_prefix="heatbath"))
    blocks = min(count, threads if even else 4 * threads)
    first, *others = pairwise([count * i // blocks for i in range(blocks + 1)])
    waiting = [pool.submit(work, *block) for block in (others if even else (first, *others))]
    if even:
        work(*first)
    for done in waiting:
        done.result()
