"""Processes that are killed at a moment of their work, which is the same on every machine."""

import os
import signal
import warnings


def forked(work):
    """Start some work in a silent copy of this process: its number."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads, which do nothing here
        child = os.fork()
    if child == 0:
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(1, 2)
            work()
        finally:  # whatever happens, the child is no second copy of the tests
            os._exit(0)
    return child


def was_killed(child):
    """Whether a process was killed, when it has ended."""
    status = os.waitpid(child, 0)[1]
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def dies_at(work, is_last, midway=False):
    """Do some work in a process that is killed as soon as it has written a file that `is_last`: was it?

    `midway` is when its content is on the disk, and the file is not in its place.
    """
    replace = os.replace

    def deadly(part, target):
        last = is_last(target)
        if not (last and midway):
            replace(part, target)
        if last:
            os.kill(os.getpid(), signal.SIGKILL)

    def begin():
        os.replace = deadly
        work()

    return was_killed(forked(begin))
