"""Loops of compiled code on the threads of torch's OpenMP.

After an operation of torch, its threads spin for some milliseconds in case there is more to do. Threads of
our own would share the cores with them, so torch's threads do our work, too. OpenMP libraries export the
function by which compilers start a parallel region, and `for_each` calls it, without Python and its lock.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.callconv import excinfo_ptr_t

from heatbath.engine.simd import intrinsic

_FORKED = 0x40  # PF_FORKNOEXEC of Linux, in the flags of /proc/self/stat: a copy that runs no other program


def _is_forked() -> bool:
    """Return whether this process was forked: OpenMP would wait for threads that stayed in its parent."""
    try:
        flags = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[6]
    except OSError:  # not Linux
        return True
    return bool(int(flags) & _FORKED)


_process_with_openmp = -1 if _is_forked() else os.getpid()


def parallel_region() -> int:
    """Return the address of GOMP_parallel in the OpenMP that torch uses, for `for_each`, or 0 without one.

    On Linux torch makes its OpenMP, whether GNU's, LLVM's or Intel's, known to the whole process. It can't be
    used on other systems, or in a forked child.
    """
    return _region_address() if os.getpid() == _process_with_openmp else 0


@cache
def _region_address() -> int:
    """Return the address of GOMP_parallel in this process, or 0 if it isn't loaded."""
    function = getattr(ctypes.CDLL(None), "GOMP_parallel", None)
    return (ctypes.cast(function, ctypes.c_void_p).value or 0) if function else 0


# What the threads of a region share: the arguments, the next i and its end, the code and cause of a failure
ARGUMENTS, NEXT, COUNT, ERROR_CODE, ERROR_CAUSE = range(5)
_ERROR_TYPE = ir.IntType(32)


@intrinsic
def for_each(
    typing_context: Any, region: Any, threads: Any, count: Any, function: Any, arguments: Any
) -> Any:
    """Call function(i, *arguments) for every i below `count` on several threads, and wait for all of them.

    Each thread takes the next i until there is none, so it doesn't matter how many threads OpenMP grants. The
    first exception of a thread ends its work, and is raised in the caller.

    Parameters
    ----------
    region : int
        What `parallel_region` returns; with 0 the calling thread does everything.
    threads : int
        The number of threads to ask for.
    count : int
        The end of i.
    function : a function that Numba has compiled for these arguments
    arguments : tuple
    """
    call = function.get_call_type(typing_context, (types.intp, *arguments), {})
    overload = function.dispatcher.overloads[call.args]

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        """Generate a function for a thread, a call of it on all threads, and the error that follows."""
        region_address, thread_number, end, _, packed_arguments = values
        word, no_error = end.type, _ERROR_TYPE(0)
        contents = (packed_arguments, word(0), end, no_error, excinfo_ptr_t(None))
        shared = cgutils.alloca_once(builder, ir.LiteralStructType([value.type for value in contents]))
        for k, value in enumerate(contents):
            builder.store(value, cgutils.gep_inbounds(builder, shared, 0, k))

        kind = ir.FunctionType(ir.VoidType(), [shared.type])
        body = ir.Function(builder.module, kind, builder.module.get_unique_name("for_each.body"))
        body.linkage = "internal"
        context.add_linking_libs([overload.library])
        status = _write_thread_body(context, body, overload.fndesc, call)
        _call_on_threads(builder, region_address, thread_number, body, shared)

        failed = builder.load(cgutils.gep_inbounds(builder, shared, 0, ERROR_CODE))
        with cgutils.if_unlikely(builder, cgutils.is_not_null(builder, failed)):
            cause = builder.load(cgutils.gep_inbounds(builder, shared, 0, ERROR_CAUSE))
            context.call_conv.return_status_propagate(builder, status._replace(code=failed, excinfoptr=cause))
        return context.get_dummy_value()

    return types.none(types.intp, types.intp, types.intp, function, arguments), codegen


def _call_on_threads(builder: Any, region: Any, threads: Any, body: Any, shared: Any) -> None:
    """Generate a call of `body` with the shared data: by GOMP_parallel on some threads, or here.

    Parameters
    ----------
    builder : llvmlite's IRBuilder
    region, threads : LLVM integers
        The address of GOMP_parallel, or 0 to call `body` in this thread alone, and the number of threads.
    body : LLVM function
    shared : LLVM pointer to the shared data
    """
    number = ir.IntType(32)
    with builder.if_else(cgutils.is_null(builder, region)) as (alone, together):
        with alone:
            builder.call(body, [shared])
        with together:
            kind = ir.FunctionType(ir.VoidType(), [body.type, shared.type, number, number])
            gomp_parallel = builder.inttoptr(region, kind.as_pointer())
            no_flags = number(0)
            builder.call(gomp_parallel, [body, shared, builder.trunc(threads, number), no_flags])


def _write_thread_body(context: Any, body: Any, callee: Any, call: Any) -> Any:
    """Write the code that each thread runs on the shared data into the LLVM function `body`.

    It takes the next i atomically, calls the function with it, and repeats this until i reaches the end or a
    call fails; then the failure is stored in the shared data.

    Parameters
    ----------
    context : Numba's target context
    body : LLVM function of a pointer to the shared data, without code yet
    callee, call : Numba's description of the function to call, and its signature

    Returns
    -------
    Numba's description of the status of a call
    """
    builder = ir.IRBuilder(body.append_basic_block("entry"))
    shared = [cgutils.gep_inbounds(builder, body.args[0], 0, k) for k in range(5)]
    arguments = cgutils.unpack_tuple(builder, builder.load(shared[ARGUMENTS]))
    end = builder.load(shared[COUNT])
    take, work, fail, leave = (body.append_basic_block(name) for name in ("take", "work", "fail", "leave"))
    builder.branch(take)

    builder.position_at_end(take)
    i = builder.atomic_rmw("add", shared[NEXT], end.type(1), "monotonic")
    builder.cbranch(builder.icmp_signed("<", i, end), work, leave)

    builder.position_at_end(work)
    status, _ = context.call_internal_no_propagate(builder, callee, call, [i, *arguments])
    builder.cbranch(status.is_error, fail, take)

    builder.position_at_end(fail)
    builder.store(status.excinfoptr, shared[ERROR_CAUSE])
    builder.store(status.code, shared[ERROR_CODE])
    builder.branch(leave)

    builder.position_at_end(leave)
    builder.ret_void()
    return status
