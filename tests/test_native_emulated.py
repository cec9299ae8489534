"""Functions of the emulator's machine as C++: the bits that its machine code leaves, and the rights that it gives."""

import ctypes
import os
import subprocess
from typing import Any

import numpy as np
import pytest
from foreign_support import has_compiler

from xccl_emu.base.errors import KernelError
from xccl_emu.jit.kept import compiled
from xccl_emu.lang import abi, kernel, load
from xccl_emu.lang import maps as mp
from xccl_emu.lang import operations as ops
from xccl_emu.lang import requests as rq
from xccl_emu.lang.foreign import compiler
from xccl_emu.machine import Pod, small_pod
from xccl_emu.machine.device import access, pipes
from xccl_emu.machine.device import layout as ms
from xccl_emu.native import emulated, host, program

pytestmark = pytest.mark.skipif(not has_compiler(False), reason="no C++ compiler: C++ is not tested here")
_EXPORTED = """
extern "C" void computed(Bytes memory, word *st, word ub, word at, word op) { pipes__compute(memory, st, ub, at, op); }
extern "C" int checked(word *st, word core, word base, word op) {
  return ops::VECTORS >> op & 1 ? access_check_vector(st, core, base, op)
         : op == rq::OP_CHOOSE || op == rq::OP_POLL_ANY ? access_check_choice(st, core, base, op)
         : access_check(st, core, base, op);
}
"""
SPECIAL = [0x7F800000, 0xFF800000, 0x7FC00000, 0x80000000, 0, 1, 0x00800000, 0x7F7FFFFF, 0x477FE000, 0x33000000]
"""FP32: infinities, a NaN, zeros, the least and largest numbers, some that FP16 has at its ends."""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The functions, compiled by themselves."""
    base = (program.HERE / "emulated.h").read_text()
    text = "\n".join([(program.HERE / "host.h").read_text(), program.constants(), base, emulated.text(), _EXPORTED])
    made = tmp_path_factory.mktemp("emulated") / "emulated.so"
    command = [*compiler.compiler(False, os.environ), *host.FLAGS, "-o", str(made)]
    subprocess.run(command, input=text, text=True, check=True)
    return ctypes.CDLL(str(made))


def _word(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


UB, COUNT, SOURCE, TARGET, OTHER = 64, 256, 0, 2048, 12288
_VECTORS = [
    *((rq.OP_V_QUANTIZE, (SOURCE, TARGET, COUNT, dtype, rule)) for dtype in (0, 1) for rule in range(4)),
    *((rq.OP_V_DEQUANTIZE, (SOURCE, TARGET, COUNT, OTHER, rule)) for rule in range(4)),
    *((rq.OP_V_AXPY, (SOURCE, TARGET, weight, COUNT, d)) for d in (0, 1, 2) for weight in (0x3FC00000, 0x7F800000)),
    *((op, (SOURCE, TARGET, COUNT, dtype)) for op in (rq.OP_V_ADD, rq.OP_V_WIDEN, rq.OP_V_NARROW) for dtype in (0, 1)),
    (rq.OP_V_ADD, (SOURCE, TARGET, COUNT, rq.FP32)),
    (rq.OP_V_SCALE, (TARGET, COUNT, 0x3EAAAAAB)), (rq.OP_V_FILL, (TARGET, 37, 0x1A5)),
    (rq.OP_V_COUNT, (SOURCE, TARGET, COUNT, -5, 1 << 40)), (rq.OP_V_COUNT, (SOURCE, TARGET, COUNT, 1 << 33, 1 << 40)),
    (rq.OP_V_COPY, (SOURCE, TARGET, COUNT, 0, 0)),
]  # fmt: skip


def _request(op: int, operands: tuple[int, ...]) -> np.ndarray:
    """Words of state with a request at 300, in the order of its row."""
    state = np.zeros(400, np.int64)
    state[300 : 301 + len(operands)] = (op, *operands)
    return state


@compiled()
def _computed(memory, state, ub, at, op):
    pipes._compute(memory, state, ub, at, op)


def _maps() -> list[tuple[int, tuple[int, ...]]]:
    """Each function that a `v_map` may have, with a scalar or with what is in the buffer."""
    others = [(f, 0x3FC03F00 if f >> mp.SCALAR_SHIFT & 1 else OTHER) for f in sorted(mp.KNOWN)]
    return [(rq.OP_V_COPY, (SOURCE, TARGET, COUNT, *other)) for other in others]


def _with_one_nan(memory: np.ndarray) -> np.ndarray:
    """FP32 values, each NaN of the same bits: which of two NaNs a sum is, is left to a compiler."""
    values = memory.view(np.float32).copy()
    values[np.isnan(values)] = np.nan
    return values.view(np.uint32)


@pytest.mark.parametrize("special", [False, True], ids=["random", "special"])
def test_vector_instructions_leave_the_emulators_bits(library: Any, special: bool) -> None:
    """Each instruction, function, type and rule makes of random bits, infinities and NaNs what machine code makes."""
    rng = np.random.default_rng(5)
    for op, operands in [*_VECTORS, *_maps()]:
        memory, state = rng.integers(0, 256, 1 << 14, np.uint8), _request(op, operands)
        if special:
            memory[: 4 * 1024].view(np.uint32)[:] = rng.choice(SPECIAL, 1024)
        both = memory.copy(), memory.copy()
        _computed(both[0], state, UB, 300, op)
        library.computed(_word(both[1]), _word(state), *map(ctypes.c_longlong, (UB, 300, op)))
        assert (both[0] != memory).any()
        made = [_with_one_nan(each) for each in both]
        np.testing.assert_array_equal(*made, err_msg=f"{rq.OPERATIONS[op]}{operands}")


def test_rights_are_the_emulators(library: Any) -> None:
    """A request with operands drawn at random is refused where machine code refuses it, with the same error."""
    rng, n_refused = np.random.default_rng(6), 0
    pod = Pod(small_pod(2, app_bytes=4096, meta_bytes=4096, managed_bytes=0))
    pod.launch(idle, 0, [0], {"word": pod.meta(1)}, [pod.grant_meta("rw", 1), pod.grant_meta("r", 0)])
    pod.activate()
    core, base = 0, int(pod.state[ms.CORE_BASE])
    word = pod.meta(1)
    interesting = [0, 1, 2, 3, 4, 8, 16, 32, 64, 96, 100, 256, word, word + 8, word + 4092, pod.meta(0), -1, 1 << 60]
    asked = [op for op, row in enumerate(rq.TABLE) if row.name not in ("fail", "return")]
    for _ in range(20_000):
        op = int(rng.choice(asked))
        state = pod.state.copy()
        at = base + abi.REQUEST
        state[at] = op
        state[at + 1 : at + 9] = rng.choice(interesting, 8)
        state[at + abi.REQUEST_WORDS - 1] = 3
        mine = state.copy()
        right = _checked(state, core, base, op)
        assert bool(library.checked(_word(mine), *map(ctypes.c_longlong, (core, base, op)))) == right
        np.testing.assert_array_equal(mine, state, err_msg=rq.OPERATIONS[op])
        n_refused += not right
    assert 1000 < n_refused < 19_000


@compiled()
def _checked(st, core, base, op):
    if ops.VECTORS >> op & 1:
        return access.check_vector(st, core, base, op)
    if op == rq.OP_CHOOSE or op == rq.OP_POLL_ANY:
        return access.check_choice(st, core, base, op)
    return access.check(st, core, base, op)


@kernel
def idle(word):
    yield load(word)


def some_total(a):
    total = 0
    for each in a.tolist():
        total += each
    return total


def test_what_is_not_among_it_is_refused() -> None:
    """A method of an array that the C++ has not is refused with its text."""
    with pytest.raises(KernelError, match=r"some_total: 'a\.tolist.*' is not among what C"):
        [*emulated._Function(some_total).lines("some_total")]
