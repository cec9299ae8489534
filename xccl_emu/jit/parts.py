"""Functions compiled as parts of what calls them.

Numba makes a library of each function: it links what the function calls into it, optimises all of that, makes machine
code of it, and begins again in the caller.  Of a chain of calls the last function is optimised at every level.  A part
stops before that: it is LLVM IR, which each whole (a function that the host calls, or that is called by address)
links once, with the parts of its parts, and then optimises.
"""

import contextlib
import functools
import gc
import operator
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from llvmlite import binding as llvm
from numba import config, types
from numba.core import compiler, ir, sigutils, typed_passes, typing, untyped_passes
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import FunctionPass, PassManager, register_pass

from xccl_emu.jit.bare import BareArray, bare


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
        """With all that it calls: for functions that are no wholes, such as other people's."""
        first, *others = _with_callees([self])
        module = first.alone().clone()
        for library in others:
            module.link_in(_module_of(library), preserve=True)
        return module


def _with_callees(libraries: list[Any]) -> list[Any]:
    """Libraries, and after each part what it calls, each once."""
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


class _ShortLoopsLibrary(_WholeLibrary):
    """Optimised once, and no loop made longer; Numba does it twice, the first time for reference counts."""

    def _optimize_final_module(self) -> None:
        options = llvm.create_pipeline_tuning_options(speed_level=int(config.OPT))
        options.loop_unrolling = options.loop_vectorization = options.slp_vectorization = False
        builder = llvm.create_pass_builder(self._codegen._tm, options)
        builder.getModulePassManager().run(self._final_module, builder)


class _Flags(compiler.Flags):  # type: ignore[misc]
    """Flags that compare what was set: Numba looks each operator up by them, and compares all that there are."""

    __slots__ = ()

    def __hash__(self) -> int:
        return hash(frozenset(self._values))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Flags) and self._values == other._values


_OPERATORS = frozenset(each for each in vars(operator).values() if callable(each))
_SIMPLE = (types.Number, types.Boolean, BareArray)


class _Typing:
    """A typing context that remembers what operators make of numbers and bare arrays; Numba would try all again."""

    def __init__(self, usual: Any) -> None:
        self._usual, self._known = usual, dict[Any, Any]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._usual, name)

    def resolve_function_type(self, function: Any, args: Any, kws: Any) -> Any:
        """The signature of a call."""
        operation = getattr(function, "typing_key", function)
        if kws or operation not in _OPERATORS or not all(isinstance(kind, _SIMPLE) for kind in args):
            return self._usual.resolve_function_type(function, args, kws)
        return self._remembered(operation, args, lambda plain: self._usual.resolve_function_type(function, plain, kws))

    def resolve_setitem(self, *args: Any) -> Any:
        """The signature of ``array[index] = value``."""
        return self._remembered(operator.setitem, args, lambda plain: self._usual.resolve_setitem(*plain))

    def _remembered(self, operation: Any, args: Any, resolve: Any) -> Any:
        """Forget which types are literals: that makes no difference, but among literals, which Numba may compare."""
        if not all(isinstance(kind, types.Literal) for kind in args):
            args = tuple(map(types.unliteral, args))
        if (operation, args) not in self._known:
            self._known[operation, args] = resolve(args)
        return self._known[operation, args]


_typing = functools.cache(_Typing)


@register_pass(mutates_CFG=False, analysis_only=False)
class _NamesOfModules(FunctionPass):  # type: ignore[misc]
    """``module.NAME`` is the constant or function of that name: Numba would infer it as an attribute, which is slow."""

    _name = "names_of_modules"

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        """Replace each by the global that it is, and drop the loads of modules."""
        for block in state.func_ir.blocks.values():
            modules = {
                each.target.name: each.value.value
                for each in block.find_insts(ir.Assign)
                if isinstance(each.value, ir.Global) and isinstance(each.value.value, ModuleType)
            }
            for each in block.find_insts(ir.Assign):
                value = each.value
                if isinstance(value, ir.Expr) and value.op == "getattr" and value.value.name in modules:
                    each.value = ir.Global(value.attr, getattr(modules[value.value.name], value.attr), value.loc)
            block.body = [
                each for each in block.body if not isinstance(each, ir.Assign) or each.target.name not in modules
            ]
        return True


_PASSES = (
    untyped_passes.TranslateByteCode,
    _NamesOfModules,
    untyped_passes.FixupArgs,
    untyped_passes.IRProcessing,
    untyped_passes.GenericRewrites,
    untyped_passes.ReconstructSSA,
    typed_passes.NopythonTypeInference,
    typed_passes.PreLowerStripPhis,
    typed_passes.IRLegalization,
    typed_passes.AnnotateTypes,
    typed_passes.NativeLowering,
    typed_passes.NoPythonBackend,
)
"""Half of Numba's: device code has no closures, no array expressions, nothing to inline and nothing to unroll."""


@contextlib.contextmanager
def _nothing_collected() -> Iterator[None]:
    """A compiler makes many objects and few cycles: looking for those took 6% of its time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class WholeCompiler(compiler.CompilerBase):  # type: ignore[misc]
    """Numba's compiler, with a library that gathers parts."""

    _library: Any = _WholeLibrary

    def compile_extra(self, function: Any) -> Any:
        """Compile a Python function."""
        self.state.library = self._library(self.state.targetctx.codegen(), function.__qualname__)
        self.state.library.enable_object_caching()
        self.state.typingctx = _typing(self.state.typingctx)
        flags = self.state.flags = _Flags(self.state.flags)
        if any(isinstance(kind, BareArray) for kind in self.state.args):  # nobody calls it from Python
            flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
        with _nothing_collected():
            return super().compile_extra(function)

    def define_pipelines(self) -> list[Any]:
        """Return what is done to a function, in order."""
        manager = PassManager("device")
        for each in _PASSES:
            manager.add_pass(each, each.__name__)
        manager.finalize()
        return [manager]


class ShortLoopsCompiler(WholeCompiler):
    """For a function with its parts whose loops go round a few times, and that count no references.

    Its arguments are arrays that do not overlap.
    """

    _library = _ShortLoopsLibrary

    def compile_extra(self, function: Any) -> Any:
        """Compile a Python function: what it stores to one array changes no other."""
        self.state.flags.noalias = True
        return super().compile_extra(function)


class _PartCompiler(WholeCompiler):
    """As far as IR, without the wrappers for callers in Python and C."""

    _library = _PartLibrary

    def compile_extra(self, function: Any) -> Any:
        """Lower a Python function."""
        flags = self.state.flags
        flags.no_compile = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
        return super().compile_extra(function)


class CompiledPart:
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
