"""Large compiled functions, called by address.

Numba compiles a callee again as a part of each of its callers.  What is large and used in several places (the step of
the machine, taking an action, a transition) is therefore compiled once, and called by an address that the checker state
keeps.  All have one signature: memory, state, checker state, rows, named, and two numbers.
"""

import functools

from numba import config, types
from numba.extending import intrinsic

from xccl_emu.check.search.device.checker_state import HANDLES
from xccl_emu.jit.kept import compiled
from xccl_emu.machine.device import words
from xccl_emu.machine.device.layout import ACTORS_PER_CORE
from xccl_emu.machine.device.single import act_once
from xccl_emu.machine.device.words import jit

linked = compiled(long_loops=False, _nrt=False, no_cfunc_wrapper=True)
"""For functions that are called by address."""

CLASSIFY, EXECUTE, RUN_LOCAL_ALL, TRANSITION, FIND_RACE, RECORDED_STEP = range(6)

_SIGNATURE = types.int64(
    types.Array(types.uint8, 1, "C"),
    types.Array(types.int64, 1, "C"),
    types.Array(types.int64, 1, "C"),
    types.Array(types.int64, 2, "C"),
    types.Array(types.int64, 1, "C"),
    types.int64,
    types.int64,
)


@functools.cache
def handle_of(function):
    """Return the number by which `call_at` finds a function."""
    return words.address_of(function, _SIGNATURE)


if config.DISABLE_JIT:

    def call_at(handle, mem, st, ck, rows, named, a, b):
        return words.function_at(handle)(mem, st, ck, rows, named, a, b)

else:

    @intrinsic
    def call_at(typingctx, handle, mem, st, ck, rows, named, a, b):
        """Call a function by its handle."""
        return words.calling(_SIGNATURE)


@jit
def machine_step(mem, st, core, pipe, choice):
    """One action of the machine."""
    return 1 if act_once(mem, st, core * ACTORS_PER_CORE + pipe, choice) else 0


@jit
def classify(mem, st, ck, rows, named, i, what):
    """`classify.classify_action`."""
    return call_at(ck[HANDLES + CLASSIFY], mem, st, ck, rows, named, i, what)


@jit
def execute(mem, st, ck, rows, named, i, what):
    """`moves.execute_action`; ``what`` is at_once << 24 | pipe << 16 | choice."""
    return call_at(ck[HANDLES + EXECUTE], mem, st, ck, rows, named, i, what)


@jit
def run_local_all(mem, st, ck, rows, named, i):
    """`run_local.run_local_of_all`."""
    return call_at(ck[HANDLES + RUN_LOCAL_ALL], mem, st, ck, rows, named, i, 0)


@jit
def transition(mem, st, ck, rows, named, process, n):
    """`run_local.make_transition`."""
    return call_at(ck[HANDLES + TRANSITION], mem, st, ck, rows, named, process, n)


@jit
def find_race(mem, st, ck, rows, named, cores):
    """`races.find_race_of`."""
    return call_at(ck[HANDLES + FIND_RACE], mem, st, ck, rows, named, cores, 0)


@jit
def recorded_step(mem, st, ck, rows, named, core, what):
    """`record.step_recorded`; ``what`` as for `execute`."""
    return call_at(ck[HANDLES + RECORDED_STEP], mem, st, ck, rows, named, core, what)
