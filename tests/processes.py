"""Work in a copy of this process, which has all imports already; and copies that are killed in its midst.

What torch's OpenMP does after a fork hangs: work that needs it gets an interpreter of its own.
"""

import os
import runpy
import signal
import sys
import tempfile
import traceback
import warnings
from subprocess import CompletedProcess


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


def done_apart(work, folder=None):
    """Do some work in a copy of this process: its code and what it says, as `subprocess.run` has them."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:

        def begin():
            code = 1
            for place, file in ((1, out), (2, err)):
                os.dup2(file.fileno(), place)
            sys.stdout, sys.stderr = (
                os.fdopen(place, "w", closefd=False, encoding="utf-8") for place in (1, 2)
            )
            try:
                if folder is not None:
                    os.chdir(folder)
                work()
                code = 0
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)

        code = os.waitstatus_to_exitcode(os.waitpid(forked(begin), 0)[1])
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode())
    return CompletedProcess([], code, *texts)


def script(path, *arguments):
    """Work: run a file as Python does."""

    def work():
        sys.argv = [str(path), *arguments]
        runpy.run_path(str(path), run_name="__main__")

    return work


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
