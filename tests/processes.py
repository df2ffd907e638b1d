"""Run work in copies of this process, which have all imports already, or kill such a copy in mid-work.

torch's OpenMP hangs after a fork, so work that needs it runs in an interpreter of its own.
"""

import os
import runpy
import signal
import sys
import tempfile
import traceback
import warnings
from subprocess import CompletedProcess


def start_copy(work):
    """Start some work in a silent copy of this process, and return the process id."""
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


def run_in_copy(work, folder=None):
    """Run some work in a copy of this process, and return its code and output like `subprocess.run`."""
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

        code = os.waitstatus_to_exitcode(os.waitpid(start_copy(begin), 0)[1])
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode())
    return CompletedProcess([], code, *texts)


def run_script(path, *arguments):
    """Return work for `run_in_copy` that runs a file as Python does."""

    def work():
        sys.argv = [str(path), *arguments]
        runpy.run_path(str(path), run_name="__main__")

    return work


def was_killed(child):
    """Wait for a process to end, and return True if it was killed."""
    status = os.waitpid(child, 0)[1]
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def killed_after_writing(work, is_last, midway=False):
    """Run work in a process that is killed once it has written a file that `is_last`; return if it was.

    With `midway` it is killed when the content is on the disk but the file is not in its place yet.
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

    return was_killed(start_copy(begin))
