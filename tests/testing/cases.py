"""Small protocols for the tests: one that is right, and one that is wrong under relaxed order alone."""

import numpy as np

from xccl_emu.lang import kernel, load, poll_ge, put, quiet, store
from xccl_emu.machine import small_pod
from xccl_emu.testing import Bench, protocol


@kernel
def tell(word, flag, value):
    """Write a word, then the flag that announces it."""
    yield store(word, value)
    yield quiet(sync="word before flag")
    yield put(flag, 1, sync="flag")


@kernel
def hear(word, flag, out):
    """Copy the announced word."""
    yield poll_ge(flag, 1, sync="flag seen")
    value = yield load(word)
    yield store(out, value)


@protocol
def telling(bench: Bench, value: int = 7) -> None:
    """Die 0 tells die 1 a number."""
    pod = bench.pod(small_pod(2, app_bytes=64, meta_bytes=64, managed_bytes=0, ub_bytes=32))
    word, flag = pod.meta(1, 32), pod.meta(1)
    bench.label("die1.word", word, 8)
    out = bench.wanted(1, np.array([value]), "copy", owners="die1")
    pod.launch(tell, 0, [0], {"word": word, "flag": flag, "value": value}, [pod.grant_meta("w", 1)])
    grants = [pod.grant_meta("r", 1), pod.grant(out, "w")]
    pod.launch(hear, 1, [0], {"word": word, "flag": flag, "out": out.address}, grants)


@kernel
def write(word, value):
    """Write a word."""
    yield put(word, value)


@protocol
def late(bench: Bench, value: int = 7, written: int = 7) -> None:
    """Die 0 writes a word of die 1, whose kernel may have returned before."""
    pod = bench.pod(small_pod(2, app_bytes=32, meta_bytes=64, managed_bytes=0, ub_bytes=32))
    bench.expect(pod.meta(1), np.array([value]), "word")
    for die in range(2):
        pod.launch(write, die, [0], {"word": pod.meta(1, 32 * die), "value": written}, [pod.grant_meta("w", 1)])
