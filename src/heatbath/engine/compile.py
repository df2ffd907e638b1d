"""How the engine's functions are compiled and cached.

Numba's cache looks at the file in which a function stands, so it would run old code after an edit to a
function inlined from another file. Therefore the cache folder is named after a hash of all the engine's
sources, and of what else compiled code depends on: other sources, another folder. It lies in HEATBATH_CACHE
or in the user's cache folder. Where neither can be written, every process compiles for itself and warns once.

Only whole loops are cached. The functions that they are made of, the pieces, aren't called from Python: they
are lowered without being optimised, linked into the loops and optimised there, once. (Numba would optimise
each of them by itself, and again in every function that calls it, and make machine code of it every time:
that took eight times as long.) Some are inlined and some are called, which changes no result: there are no
fast-math flags.

This needs private parts of Numba, listed here in one place: `JITCodeLibrary` has hooks for optimisation,
which `_PieceLibrary` and `_LoopLibrary` replace; `NativeLowering` is the pass that makes LLVM code, which
`_LowerLoop` and `_LowerPiece` replace; `DefaultPassBuilder` lists the passes of a pipeline (`_pipeline`).
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

config: Any = numba.config  # its attributes are made when Numba is imported


def sources() -> str:
    """Return a hash of the engine's sources, and of the versions that compiled code depends on."""
    digest = hashlib.sha256(f"{numba.__version__} {platform.python_version()} {platform.machine()}".encode())
    engine = sorted(Path(__file__).parent.glob("*.py"))
    with_constants = [random, operations, dense, tasks]  # modules whose constants are compiled in
    for path in [*engine, *(Path(str(module.__file__)) for module in with_constants)]:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _cache_folder() -> str | None:
    """Return the folder for compiled code after making it; None, with a warning, if it can't be written."""
    user_cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    cache = os.environ.get("HEATBATH_CACHE") or Path(user_cache) / "heatbath"
    folder = Path(cache) / f"kernels-{sources()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        warnings.warn(
            f"compiled code cannot be kept in {folder} ({error}), so every process compiles it again, which "
            "takes some 10 s: set HEATBATH_CACHE to a folder that can be written",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
    return str(folder)


_FOLDER = _cache_folder()


class _PieceLibrary(JITCodeLibrary):
    """Code that is only linked into loops: it is optimised there, as part of them, and not by itself."""

    def _optimize_functions(self, module: Any) -> None:
        module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True


class _LoopLibrary(JITCodeLibrary):
    """A loop with everything in it, optimised once; vectors are written as such, so LLVM needn't find any."""

    def _optimize_functions(self, module: Any) -> None:
        module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        manager, builder = self._codegen._module_pass_manager(
            opt=1, loop_vectorize=False, slp_vectorize=False
        )
        manager.run(self._final_module, builder)


@register_pass(mutates_CFG=True, analysis_only=False)
class _LowerLoop(NativeLowering):
    _name = "heatbath_lower_loop"

    def run_pass(self, state: Any) -> bool:
        """Make the code of a loop, which Python calls and the cache keeps."""
        state.library = _LoopLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return bool(super().run_pass(state))


class _LowerPiece(LoweringPass):
    """Lower a function that is only called in compiled code, so it has no entry for Python."""

    _name = "heatbath_lower_piece"
    apart = False

    def __init__(self) -> None:
        LoweringPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        """Make LLVM code of a function that Numba has typed, and keep it in `state`, without optimising it.

        This is Numba's `NativeLowering` without an entry for Python; `apart` keeps LLVM from inlining it.
        """
        context, flags = state.targetctx, state.flags
        library = state.library = _PieceLibrary(context.codegen(), state.func_id.func_qualname)
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
        entry = {}.popitem  # type: ignore[var-annotated] # a placeholder: Numba wants a built-in function
        context.insert_user_function(entry, description, [library])
        state.reload_init.extend(library._reload_init)
        state["cr"] = _LowerResult(description, lower.call_helper, cfunc=entry, env=lower.env)
        return True


@register_pass(mutates_CFG=True, analysis_only=False)
class _LowerInlined(_LowerPiece):
    _name = "heatbath_lower_inlined"


@register_pass(mutates_CFG=True, analysis_only=False)
class _LowerApart(_LowerPiece):
    _name = "heatbath_lower_apart"
    apart = True


@contextmanager
def once() -> Iterator[None]:
    """Keep other processes on this computer from compiling meanwhile: they then find it done in the cache.

    Without a folder for compiled code, or without locks on files, each process compiles for itself.
    """
    if _FOLDER is None or fcntl is None:
        yield
        return
    with open(Path(_FOLDER) / "lock", "ab") as file:
        with contextlib.suppress(OSError):  # a network's file system may have none
            fcntl.flock(file, fcntl.LOCK_EX)
        yield  # closing the file releases the lock


_listener: ContextVar[Callable[[str], None] | None] = ContextVar("listener", default=None)


@contextmanager
def reporting(listener: Callable[[str], None]) -> Iterator[None]:
    """Call a listener with a line of text before this thread compiles something, which takes some seconds.

    Without a listener the text goes to stderr, if that is a terminal. Each thread has its own listener.
    """
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def _report_compilation(state: Any) -> None:
    """Report which loop is compiled, in which layout and precision; `state` is Numba's, of a compilation."""
    classes = [getattr(kind, "instance_class", Any).__name__ for kind in state.args]
    details = [LAYOUTS[name] for name in classes if name in LAYOUTS]
    precision = re.search(r"float(32|64)", str(state.args))
    if precision:
        details.append(precision[0])
    name = state.func_id.func_name.replace("_", " ")
    report(f"compiling {name} ({', '.join(details)}): once, for some 10 s")


def report(text: str) -> None:
    """Send a line of text to this thread's listener, or to stderr if that is a terminal."""
    listener = _listener.get()
    if listener is not None:
        listener(text)
    elif sys.stderr is not None and sys.stderr.isatty():
        print(f"heatbath: {text}", file=sys.stderr, flush=True)


LAYOUTS = {"Alone": "one at a time", "Wide": "with BLAS", "LaneGroup": "in lanes"}


# The engine's code has no closures, array expressions, parallel loops or exceptions that need rewriting
_NOT_NEEDED = (
    untyped_passes.WithLifting, untyped_passes.InlineClosureLikes, untyped_passes.RewriteDynamicRaises,
    untyped_passes.MakeFunctionToJitFunction, untyped_passes.InlineInlinables,
    untyped_passes.FindLiterallyCalls, untyped_passes.LiteralUnroll,
    untyped_passes.LiteralPropagationSubPipelinePass, typed_passes.InlineOverloads,
    typed_passes.NopythonRewrites, typed_passes.NoPythonSupportedFeatureValidation,
    typed_passes.DumpParforDiagnostics,
)  # fmt: skip


def _pipeline(lowering: Any) -> Any:
    """Return a compiler class with Numba's passes that are needed, and with our own lowering pass.

    `lowering` is `_LowerLoop`, `_LowerInlined` or `_LowerApart`, which takes the place of `NativeLowering`.
    """

    class Pipeline(CompilerBase):
        def _compile_core(self) -> Any:
            """Compile as Numba does, without garbage collection; report it first if it is a loop."""
            if lowering is _LowerLoop:
                _report_compilation(self.state)
            was_collecting = gc.isenabled()
            gc.disable()  # it would visit the many objects of a compilation again and again
            try:
                return super()._compile_core()
            finally:
                if was_collecting:
                    gc.enable()

        def define_pipelines(self) -> list[Any]:
            """Return the passes: Numba's own of three stages, but for those that the engine doesn't need."""
            manager = PassManager("heatbath")
            for stage in ("untyped", "typed", "nopython_lowering"):
                default = getattr(DefaultPassBuilder, f"define_{stage}_pipeline")(self.state)
                needed_passes = [entry for entry in default.passes if entry[0] not in _NOT_NEEDED]
                for numba_pass, description in needed_passes:
                    is_lowering = numba_pass is NativeLowering
                    manager.passes.append((lowering if is_lowering else numba_pass, description))
            manager.finalize()
            return [manager]

    return Pipeline


_LOOP, _INLINED, _APART = map(_pipeline, (_LowerLoop, _LowerInlined, _LowerApart))


def compiled(
    function: Callable[..., Any] | None = None, *, cache: bool = False, apart: bool = False, **options: Any
) -> Any:
    """Compile a function, which releases Python's lock; a decorator, with or without options.

    Parameters
    ----------
    function : callable, optional
    cache : bool
        Compile a whole loop, which Python calls and the cache keeps. Otherwise the function is a piece that
        only compiled code calls.
    apart : bool
        Keep the code of a piece apart, and call it, instead of inlining it wherever it is called.
    **options
        Passed on to `numba.njit`.
    """
    if function is None:
        return lambda function: compiled(function, cache=cache, apart=apart, **options)
    previous = config.CACHE_DIR  # Numba reads it when a function is decorated
    config.CACHE_DIR = _FOLDER or ""
    try:
        if cache:
            options |= {"pipeline_class": _LOOP, "cache": _FOLDER is not None}
        else:
            options |= {"pipeline_class": _APART if apart else _INLINED, "forceinline": not apart}
            options |= {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
        return numba.njit(nogil=True, error_model="numpy", **options)(function)
    finally:
        config.CACHE_DIR = previous
