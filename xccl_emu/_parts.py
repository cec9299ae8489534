"""Functions compiled as parts of what calls them.

Numba makes a library of each function: it links what the function calls into it, optimises all of that, makes machine
code of it, and begins anew in the caller.  Of a chain of calls the last function is optimised at every level.  A part
stops before that: it is LLVM IR, which each whole (a function that the host calls, or that is called by address)
links once, with the parts of its parts, and then optimises.
"""

from typing import Any

from llvmlite import binding as llvm
from numba import config, types
from numba.core import compiler, sigutils, typing
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler_lock import global_compiler_lock

from xccl_emu._bare import BareArray, bare


class _Library(JITCodeLibrary):  # type: ignore[misc]
    """What lowering has made is tidied up; what costs much, such as unrolling of loops, waits for the whole."""

    def _optimize_functions(self, module: Any) -> None:
        module.data_layout = self._codegen._data_layout
        options = llvm.create_pipeline_tuning_options(speed_level=min(1, config.OPT))
        options.loop_unrolling = False
        builder = llvm.create_pass_builder(self._codegen._tm, options)
        for function in module.functions:
            passes = builder.getFunctionPassManager()
            passes.run(function, builder)


class _PartLibrary(_Library):
    """IR as it was lowered, each function optimised by itself, and no machine code."""

    def finalize(self) -> None:
        """Nothing is linked, and nothing compiled."""
        self._finalize_dynamic_globals()
        self._finalized = True

    def alone(self) -> Any:
        """The module for linking, without what it calls."""
        return super()._get_module_for_linking()

    def _get_module_for_linking(self) -> Any:
        """With all that it calls: for functions that are no wholes, such as those of other people."""
        first, *others = _with_callees([self])
        module = first.alone().clone()
        for library in others:
            module.link_in(_module_of(library), preserve=True)
        return module


def _with_callees(libraries: list[Any]) -> list[Any]:
    """Libraries, and behind each part what it calls, each once."""
    known, waiting = dict[Any, None](), [*libraries]
    while waiting:
        library = waiting.pop(0)
        if library not in known and isinstance(library, _PartLibrary):
            waiting = [*library._linking_libraries, *waiting]
        known[library] = None
    return [*known]


def _module_of(library: Any) -> Any:
    return library.alone() if isinstance(library, _PartLibrary) else library._get_module_for_linking()


class _Alone:
    """A part, as a whole links it: the whole links what it calls too."""

    def __init__(self, part: _PartLibrary) -> None:
        self._reload_init, self._get_module_for_linking = part._reload_init, part.alone


class _WholeLibrary(_Library):
    """A function with all its parts, each linked once."""

    _linking_libraries: list[Any]

    def finalize(self) -> None:
        """Link everything, optimise it, and make machine code of it."""
        libraries = _with_callees(self._linking_libraries)
        self._linking_libraries = [_Alone(each) if isinstance(each, _PartLibrary) else each for each in libraries]
        super().finalize()


class WholeCompiler(compiler.Compiler):  # type: ignore[misc]
    """Numba's compiler, with a library that gathers parts."""

    _library: Any = _WholeLibrary

    def compile_extra(self, function: Any) -> Any:
        """Compile a Python function."""
        self.state.library = self._library(self.state.targetctx.codegen(), function.__qualname__)
        self.state.library.enable_object_caching()
        flags = self.state.flags
        if any(isinstance(kind, BareArray) for kind in self.state.args):  # nobody calls it from Python
            flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
        return super().compile_extra(function)


class _PartCompiler(WholeCompiler):
    """As far as IR, without the wrappers for callers in Python and C."""

    _library = _PartLibrary

    def compile_extra(self, function: Any) -> Any:
        """Lower a Python function."""
        flags = self.state.flags
        flags.no_compile = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
        return super().compile_extra(function)


class Part:
    """What Numba asks of a function that compiled code calls: its types, and by which key its code is found."""

    def __init__(self, dispatcher: Any) -> None:
        self._target, own = dispatcher.targetdescr, dispatcher._compiler
        self._compiler = type(own)(own.py_func, own.targetdescr, own.targetoptions, own.locals, _PartCompiler)
        self._results: dict[tuple[Any, ...], Any] = {}

    def get_call_template(self, args: Any, kws: Any) -> tuple[Any, ...]:
        """The signature for these arguments: a literal is a plain number, an array a bare one."""
        signature, folded = self._compiler.fold_argument_types(args, dict(kws))
        plain = tuple(bare(types.unliteral(kind)) for kind in folded)
        self._compile(plain)
        name = self._compiler.py_func.__name__
        made = self._results[plain].signature
        return typing.make_concrete_template(name, key=name, signatures=[made]), signature, plain, {}

    def get_overload(self, signature: Any) -> Any:
        """The key of the code for a signature."""
        return self._results[tuple(sigutils.normalize_signature(signature)[0])].library

    def _compile(self, args: tuple[Any, ...]) -> None:
        with global_compiler_lock:
            if args in self._results:
                return
            result = self._results[args] = self._compiler.compile(args, None)
            self._target.target_context.insert_user_function(result.library, result.fndesc, [result.library])
