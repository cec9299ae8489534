"""Compiled functions of the package, kept on disk by what they depend on.

Numba's own cache names a function by the file that holds it and by when that file was written.  Here a folder belongs
to a family of functions and to the state of the sources that the family depends on (`cache.folder_of`), and each
function and signature has one file in it.  So an edit elsewhere compiles nothing, two checkouts share what is the same
in both, and a damaged file is compiled again.
"""

import hashlib
import os
import pickle
from collections.abc import Callable
from typing import Any

from numba import njit
from numba.core import compiler, serialize
from numba.core.caching import _Cache
from numba.core.dispatcher import Dispatcher

from xccl_emu.jit import cache
from xccl_emu.jit.parts import CompiledPart, ShortLoopsCompiler, WholeCompiler


def compiled(long_loops: bool = True, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """`numba.njit` with these options and NumPy's error model: a part of what calls it, kept where the host calls it.

    Other threads of the host go on while it runs (`nogil`), so one of them can end a process that does not come back.
    Without ``long_loops`` none is unrolled or vectorized: of a search that is a third of the code, and of what it takes
    to compile.  A function of another package is compiled, and not kept.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        made = njit(error_model="numpy", nogil=True, **options)(function)
        if isinstance(made, Dispatcher):
            _adapt(made, _family_of(function), WholeCompiler if long_loops else ShortLoopsCompiler)
        return made

    return decorate


def _family_of(function: Callable[..., Any]) -> str:
    package, _, rest = function.__module__.partition(".")
    family = rest.partition(".")[0]
    return family if package == "xccl_emu" and family in cache.FAMILIES else ""


def _adapt(made: Any, family: str, compiler_class: type[WholeCompiler]) -> None:
    """Compiled code that calls the function gets it as a part; the host, or who takes its address, as a whole."""
    part = CompiledPart(made)
    made.get_call_template, made.get_overload = part.get_call_template, part.get_overload
    made._compiler.pipeline_class = compiler_class
    if family:
        made._cache = Kept(made.py_func, family)


class Kept(_Cache):  # type: ignore[misc]
    """The cache of one function: what Numba's dispatcher asks before it compiles and stores afterwards."""

    def __init__(self, function: Callable[..., Any], family: str) -> None:
        self._name = f"{function.__module__.removeprefix('xccl_emu.')}.{function.__qualname__}"
        self._family = family

    @property
    def cache_path(self) -> str:
        """The folder of the family."""
        return cache.folder_of(self._family)

    def _file_of(self, signature: Any, codegen: Any) -> str:
        key = hashlib.blake2b(repr((signature, codegen.magic_tuple())).encode(), digest_size=8).hexdigest()
        return os.path.join(self.cache_path, f"{self._name}-{key}")

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        """Return what was kept for the signature; None if there is nothing, or nothing whole."""
        target_context.refresh()
        path = self._file_of(signature, target_context.codegen())
        content = cache.read_kept(path)
        if content is None:
            cache.tell_compiling(self._family)
            content = cache.read_kept(path)  # a listener may have waited for another process that compiles it
        if content is None:
            return None
        return compiler.CompileResult._rebuild(target_context, *pickle.loads(content))

    def save_overload(self, signature: Any, result: Any) -> None:
        """Keep a result for the next process, if it can be kept and the folder can be written."""
        if result.lifted or result.library.has_dynamic_globals:
            return
        cache.keep(self._file_of(signature, result.codegen), serialize.dumps(result._reduce()))

    def enable(self) -> None:
        """Always on."""

    def disable(self) -> None:
        """Always on."""

    def flush(self) -> None:
        """Nothing is held back."""
