"""A letter from die 0 to die 1: it is written to a box, and a flag announces it.

    xccl-emu check examples/mailbox.py:mailbox
    xccl-emu check examples/mailbox.py:mailbox --without "letter before flag"
"""

import numpy as np

from xccl_emu.lang import fence, kernel, load, poll_ge, put
from xccl_emu.machine import small_pod
from xccl_emu.protocol import Bench, protocol


@kernel
def post(box, flag, letter):
    """Write the letter, then raise the flag."""
    yield put(box, letter)
    yield fence(sync="letter before flag")
    yield put(flag, 1, sync="flag")


@kernel
def fetch(box, flag, out):
    """Wait for the flag, then copy the letter to ``out``."""
    yield poll_ge(flag, 1, sync="flag up")
    letter = yield load(box)
    yield put(out, letter)


@protocol
def mailbox(bench: Bench, letter: int = 42) -> None:
    """Post on die 0, fetch on die 1, which must have the letter when it returns."""
    pod = bench.pod(small_pod(dies=2))
    box, flag = pod.managed(1), pod.meta(1)
    out = bench.wanted(1, np.array([letter, 0, 0, 0]), "out", owners="die1")
    writes = [pod.grant_managed("w", 1), pod.grant_meta("w", 1)]
    pod.launch(post, 0, [0], {"box": box, "flag": flag, "letter": letter}, writes)
    reads = [pod.grant_managed("r", 1), pod.grant_meta("r", 1), pod.grant(out, "w")]
    pod.launch(fetch, 1, [0], {"box": box, "flag": flag, "out": out.address}, reads)
