"""Large compiled functions, called by address.

Numba compiles a callee again as a part of each of its callers.  What is large and used in several places (the step of
the machine, taking an action, a transition) is therefore compiled once, and called by the address that the book
keeps.  All have one signature: memory, state, book, rows, named, and two numbers.
"""

from collections.abc import Callable

from numba import config, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from xccl_emu.check.book import HANDLES
from xccl_emu.machine.layout import ACTORS_PER_CORE
from xccl_emu.machine.single import act_at
from xccl_emu.machine.words import jit

linked = njit(cache=True, error_model="numpy", _nrt=False, no_cfunc_wrapper=True)
"""For functions that are called by address."""

STEP, LOOK, TAKE, SETTLE_ALL, TRANSITION, FIND_RACE, RECORDED_STEP = range(7)

if config.DISABLE_JIT:
    _FUNCTIONS: dict[int, Callable[..., int]] = {}

    def handle_of(function):
        """A number by which `call_at` finds a function."""
        _FUNCTIONS[id(function)] = function
        return id(function)

    def call_at(handle, mem, st, ck, rows, named, a, b):
        return _FUNCTIONS[int(handle)](mem, st, ck, rows, named, a, b)

else:
    _SIGNATURE = types.int64(
        types.Array(types.uint8, 1, "C"),
        types.Array(types.int64, 1, "C"),
        types.Array(types.int64, 1, "C"),
        types.Array(types.int64, 2, "C"),
        types.Array(types.int64, 1, "C"),
        types.int64,
        types.int64,
    )

    def handle_of(function):
        """The address of a compiled function."""
        compiled = function.get_compile_result(_SIGNATURE)
        return compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name)

    @intrinsic
    def _call_at(typingctx, address, mem, st, ck, rows, named, a, b):
        def codegen(context, builder, sig, args):
            convention = context.call_conv
            kind = convention.get_function_type(_SIGNATURE.return_type, _SIGNATURE.args)
            pointer = builder.inttoptr(args[0], kind.as_pointer())
            status, result = convention.call_function(
                builder, pointer, _SIGNATURE.return_type, _SIGNATURE.args, args[1:]
            )
            with cgutils.if_unlikely(builder, status.is_error):  # a kernel's arithmetic failed
                convention.return_status_propagate(builder, status)
            return result

        return types.int64(types.int64, *_SIGNATURE.args), codegen

    @jit
    def call_at(handle, mem, st, ck, rows, named, a, b):
        """Call a function by its handle."""
        return _call_at(handle, mem, st, ck, rows, named, a, b)


@jit
def machine_step(mem, st, ck, core, pipe, choice):
    """One action of the machine."""
    return act_at(ck[HANDLES + STEP], mem, st, core * ACTORS_PER_CORE + pipe, choice)


@jit
def look(mem, st, ck, rows, named, i, what):
    """`moves.look_at`."""
    return call_at(ck[HANDLES + LOOK], mem, st, ck, rows, named, i, what)


@jit
def take(mem, st, ck, rows, named, i, what):
    """`moves.take_action`; ``what`` is at_once << 24 | pipe << 16 | choice."""
    return call_at(ck[HANDLES + TAKE], mem, st, ck, rows, named, i, what)


@jit
def settle_all(mem, st, ck, rows, named, i):
    """`settle.settle_everyone`."""
    return call_at(ck[HANDLES + SETTLE_ALL], mem, st, ck, rows, named, i, 0)


@jit
def transition(mem, st, ck, rows, named, mover, n):
    """`settle.make_transition`."""
    return call_at(ck[HANDLES + TRANSITION], mem, st, ck, rows, named, mover, n)


@jit
def find_race(mem, st, ck, rows, named, cores):
    """`races.find_race_of`."""
    return call_at(ck[HANDLES + FIND_RACE], mem, st, ck, rows, named, cores, 0)


@jit
def recorded_step(mem, st, ck, rows, named, core, what):
    """`record.step_recorded`; ``what`` as for `take`."""
    return call_at(ck[HANDLES + RECORDED_STEP], mem, st, ck, rows, named, core, what)
