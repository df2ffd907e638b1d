"""How the engine's functions are compiled and cached.

Numba's cache looks at the file that a function stands in, and would go on running old code after an edit to a
function inlined from another file. So the cache folder is named after a hash of all the engine's sources (and
of what else compiled code depends on): other sources, another folder. It lies in HEATBATH_CACHE, or in the
user's cache folder; where neither can be written, every process compiles for itself, and says so once.

Only whole loops are cached. The functions that they are made of, the pieces, are not for Python to call: they
are lowered without being optimised, linked into the loops and optimised there, once. (Numba would optimise
each of them by itself, and again in every function that calls it, and make machine code of it every time:
that took eight times as long.) Some are inlined and some are called, which changes no result: there are no
fast-math flags.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import os
import platform
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numba
from numba.core import typed_passes, untyped_passes
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder, _LowerResult
from numba.core.compiler_machinery import LoweringPass, PassManager, register_pass
from numba.core.funcdesc import PythonFunctionDescriptor
from numba.core.lowering import Lower
from numba.core.typed_passes import NativeLowering

from heatbath.datasets import tasks
from heatbath.methods import operations
from heatbath.models import dense
from heatbath.reference import random

try:
    import fcntl
except ModuleNotFoundError:  # on Windows
    fcntl = None  # type: ignore[assignment]

config: Any = numba.config  # whose attributes are made when Numba is imported


def sources() -> str:
    """A hash of the engine's sources, and of the versions that compiled code depends on."""
    digest = hashlib.sha256(f"{numba.__version__} {platform.python_version()} {platform.machine()}".encode())
    asked = (random, operations, dense, tasks)  # for constants
    for path in [*sorted(Path(__file__).parent.glob("*.py")), *(Path(str(m.__file__)) for m in asked)]:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _cache_folder() -> str | None:
    """The folder for compiled code, made and tried out; None where there is no such place."""
    home = os.environ.get("HEATBATH_CACHE")
    base = (
        Path(home) if home else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "heatbath"
    )
    folder = base / f"kernels-{sources()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        warnings.warn(
            f"compiled code cannot be kept in {folder} ({error}), so every process compiles anew, for some "
            "10 s; set HEATBATH_CACHE to a folder that can be written",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
    return str(folder)


_FOLDER = _cache_folder()


class _Piece(JITCodeLibrary):
    """Code that is only linked into loops: it is optimised there, as part of them, and not by itself."""

    def _optimize_functions(self, module: Any) -> None:
        module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True


class _Whole(JITCodeLibrary):
    """A loop with everything in it, optimised once. Vectors are written as such and not looked for."""

    def _optimize_functions(self, module: Any) -> None:
        module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        manager, builder = self._codegen._module_pass_manager(
            opt=1, loop_vectorize=False, slp_vectorize=False
        )
        manager.run(self._final_module, builder)


@register_pass(mutates_CFG=True, analysis_only=False)
class _LowerWhole(NativeLowering):
    _name = "heatbath_lower_whole"

    def run_pass(self, state: Any) -> bool:
        """Make the code of a loop, which Python calls and the cache keeps."""
        state.library = _Whole(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return bool(super().run_pass(state))


class _Lower(LoweringPass):
    """Lower a function that is only called in compiled code: there is nothing for Python to call."""

    _name = "heatbath_lower_piece"
    apart = False

    def __init__(self) -> None:
        LoweringPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        """Make the code of a function."""
        context, flags = state.targetctx, state.flags
        library = state.library = _Piece(context.codegen(), state.func_id.func_qualname)
        library._reload_init.update(state.reload_init)
        description = PythonFunctionDescriptor.from_specialized_function(
            state.func_ir, state.typemap, state.return_type, state.calltypes, mangler=context.mangler,
            inline=flags.forceinline, noalias=flags.noalias, abi_tags=[flags.get_mangle_string()],
        )  # fmt: skip
        with context.push_code_library(library):
            lower = Lower(context, library, description, state.func_ir, metadata=state.metadata)
            lower.lower()
        if self.apart:
            library._final_module.get_function(description.llvm_func_name).add_function_attribute("noinline")
        entry = {}.popitem  # type: ignore[var-annotated] # stands for it: Numba asks for something built in
        context.insert_user_function(entry, description, [library])
        state.reload_init.extend(library._reload_init)
        state["cr"] = _LowerResult(description, lower.call_helper, cfunc=entry, env=lower.env)
        return True


@register_pass(mutates_CFG=True, analysis_only=False)
class _LowerInlined(_Lower):
    _name = "heatbath_lower_inlined"


@register_pass(mutates_CFG=True, analysis_only=False)
class _LowerApart(_Lower):
    _name = "heatbath_lower_apart"
    apart = True


@contextmanager
def once() -> Iterator[None]:
    """Within, no other process on this computer compiles: the first one does, and the others find it done.

    Where there is no folder for compiled code, or no lock on files to be had, each compiles for itself.
    """
    if _FOLDER is None or fcntl is None:
        yield
        return
    with open(Path(_FOLDER) / "lock", "ab") as file:
        with contextlib.suppress(OSError):  # a network's file system may have none
            fcntl.flock(file, fcntl.LOCK_EX)
        yield  # closing the file gives the lock back


_listener: ContextVar[Callable[[str], None] | None] = ContextVar("listener", default=None)


@contextmanager
def reporting(listener: Callable[[str], None]) -> Iterator[None]:
    """Have a listener told when this thread compiles something, which takes some seconds, before it does.

    Without one it is said on stderr, if that is a terminal. (Others, which compile for themselves, have
    listeners of their own.)
    """
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def _report(state: Any) -> None:
    """Say what is compiled now: the loop, for which numbers, in which layout."""
    numbers = re.search(r"float(32|64)", str(state.args))
    layouts = [getattr(kind, "instance_class", Any).__name__ for kind in state.args]
    details = [LAYOUTS[name] for name in layouts if name in LAYOUTS] + ([numbers[0]] if numbers else [])
    report(
        f"compiling {state.func_id.func_name.replace('_', ' ')} ({', '.join(details)}): once, for some 10 s"
    )


def report(text: str) -> None:
    """Tell the listener, or a terminal."""
    if (listener := _listener.get()) is not None:
        listener(text)
    elif sys.stderr is not None and sys.stderr.isatty():
        print(f"heatbath: {text}", file=sys.stderr, flush=True)


LAYOUTS = {"Alone": "one at a time", "Wide": "with BLAS", "Group": "in lanes"}


# There are no closures, array expressions, parallel loops or exceptions to be rewritten in the engine's code
_NOT_NEEDED = (
    untyped_passes.WithLifting, untyped_passes.InlineClosureLikes, untyped_passes.RewriteDynamicRaises,
    untyped_passes.MakeFunctionToJitFunction, untyped_passes.InlineInlinables,
    untyped_passes.FindLiterallyCalls, untyped_passes.LiteralUnroll,
    untyped_passes.LiteralPropagationSubPipelinePass, typed_passes.InlineOverloads,
    typed_passes.NopythonRewrites, typed_passes.NoPythonSupportedFeatureValidation,
    typed_passes.DumpParforDiagnostics,
)  # fmt: skip


def _pipeline(lower: Any) -> Any:
    class Pipeline(CompilerBase):
        def _compile_core(self) -> Any:
            if lower is _LowerWhole:
                _report(self.state)
            collecting = gc.isenabled()
            gc.disable()  # which would go through all that has been made, again and again
            try:
                return super()._compile_core()
            finally:
                if collecting:
                    gc.enable()

        def define_pipelines(self) -> list[Any]:
            manager = PassManager("heatbath")
            for stage in ("untyped", "typed", "nopython_lowering"):
                for one, text in getattr(DefaultPassBuilder, f"define_{stage}_pipeline")(self.state).passes:
                    if one not in _NOT_NEEDED:
                        manager.passes.append((lower if one is NativeLowering else one, text))
            manager.finalize()
            return [manager]

    return Pipeline


_WHOLE, _INLINED, _APART = map(_pipeline, (_LowerWhole, _LowerInlined, _LowerApart))


def compiled(
    function: Callable[..., Any] | None = None, *, cache: bool = False, apart: bool = False, **options: Any
) -> Any:
    """Compile without the lock; a decorator, with or without options. `cache` is for whole loops only."""
    if function is None:
        return lambda function: compiled(function, cache=cache, apart=apart, **options)
    before = config.CACHE_DIR  # read when a function is decorated, and left as it was for everyone else
    config.CACHE_DIR = _FOLDER or ""
    try:
        if cache:
            options |= {"pipeline_class": _WHOLE, "cache": _FOLDER is not None}
        else:
            options |= {
                "pipeline_class": _APART if apart else _INLINED, "forceinline": not apart,
                "no_cpython_wrapper": True, "no_cfunc_wrapper": True,
            }  # fmt: skip
        return numba.njit(nogil=True, error_model="numpy", **options)(function)
    finally:
        config.CACHE_DIR = before
