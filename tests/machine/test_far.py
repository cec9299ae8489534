"""Copies of large ranges that are in no cache: they leave what a plain copy leaves, and nothing else."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device import memory
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import small_pod

POD = Pod(small_pod(2, app_bytes=1 << 16))
POD.state[ms.ACTIONS] = 1 << 20  # so that nothing was written lately
SIZE = 1 << 15
SOURCE, TARGET = (POD.alloc(die, SIZE).address for die in range(2))
BYTES = np.random.default_rng(0).integers(0, 256, SIZE, np.uint8)


@pytest.mark.nojit
@pytest.mark.boundscheck
@pytest.mark.parametrize("copy", [memory.read_far, memory.write_far])
@given(begin=st.integers(0, 130), into=st.integers(0, 130), nbytes=st.integers(1, SIZE - 260))
def test_a_far_copy_is_a_copy(copy: Callable[..., None], begin: int, into: int, nbytes: int) -> None:
    """Whatever its size and wherever it begins in a line, the target alone changes, into what the source is."""
    POD.memory[SOURCE : SOURCE + SIZE], POD.memory[TARGET : TARGET + SIZE] = BYTES, 0
    copy(POD.memory, POD.state, TARGET + into, SOURCE + begin, nbytes)
    wanted = np.zeros(SIZE, np.uint8)
    wanted[into : into + nbytes] = BYTES[begin : begin + nbytes]
    assert (POD.memory[TARGET : TARGET + SIZE] == wanted).all()
    assert (POD.memory[SOURCE : SOURCE + SIZE] == BYTES).all()
