"""The sum of a token's contributions, which every combine ends with.

In the data buffer stand, from ``acc`` on: the FP32 accumulator, places for `LOADS` contributions, two for outputs; so
some contributions are on their way while another is added, and one output leaves while the next is summed.  After them
a contribution that came as INT8 is widened to FP32.
"""

from xccl_emu import lang as xl
from xccl_emu.kernels.experts.counts import INDEX_BYTES
from xccl_emu.kernels.experts.parameters import Buffers, Group
from xccl_emu.kernels.group import drain, drain_halves, hand_over

LOADS = 4
"""Contributions that have a place: enough to hide the latency of a read after the transfers before it."""


SCALE_BYTES = 4
"""Bytes of the FP32 scale that follows a row of INT8."""


def sum_bytes(hidden: int, narrowed: int = 0) -> int:
    """Bytes of the data buffer that sums take."""
    return wide_at(hidden) + (4 * hidden if narrowed else 0)


def wide_at(hidden: int) -> int:
    """Return where a contribution is widened to FP32, from the accumulator on."""
    return outputs_at(hidden) + 4 * hidden


def contribution_bytes(hidden: int, narrowed: int) -> int:
    """Bytes of a contribution on its way: elements of two bytes, or INT8 and their scale."""
    return hidden + SCALE_BYTES if narrowed else 2 * hidden


def contribution_stride(hidden: int, narrowed: int) -> int:
    """Bytes from a contribution to the next one, in whole granules."""
    return hidden + 32 if narrowed else 2 * hidden


def outputs_at(hidden: int) -> int:
    """Return where the two places for outputs are, from the accumulator on."""
    return 4 * hidden + LOADS * 2 * hidden


def add_contribution(source, acc, turn, k, weight, c: Group, step):
    """Load the contribution of choice ``k`` and add it: weighed, or as it is if it is the shared expert's.

    What came as INT8 is widened first: value times scale, rounded to FP32.
    """
    dtype = c.dtype
    place = turn % LOADS
    at = acc + 4 * c.hidden + place * 2 * c.hidden
    if turn >= LOADS:
        yield xl.wait_flag(xl.VECTOR, xl.MTU_IN, place, sync="contribution used")
    yield xl.mtu_in(source, at, contribution_bytes(c.hidden, c.narrowed), step=step)
    yield from hand_over(xl.MTU_IN, xl.VECTOR, place, "contribution in")
    if c.narrowed:
        yield xl.v_dequantize(at, acc + wide_at(c.hidden), c.hidden, at + c.hidden, step=step)
        at = acc + wide_at(c.hidden)
        dtype = xl.FP32
    if c.shared and k == c.top_k - 1:
        yield xl.v_add(at, acc, c.hidden, dtype, step=step)
    else:
        yield xl.v_axpy(at, acc, weight, c.hidden, dtype, step=step)
    yield xl.set_flag(xl.VECTOR, xl.MTU_IN, place, sync="contribution used")


def sum_token(t, came, turn, acc, c: Group, b: Buffers, step):
    """Add up what has come for a token, in order of its choices; masked ones are left out, and not read.

    Contributions lie at ``came`` by token and choice; returns the next turn.
    """
    yield xl.v_fill(acc, 4 * c.hidden, step=step)
    for k in range(c.top_k):
        slot = yield xl.load(b.topk + t * INDEX_BYTES + 4 * k, 4, step=step)
        if slot >= 0:
            weight = yield xl.load(b.weights + t * INDEX_BYTES + 4 * k, 4, step=step)
            yield from add_contribution(came + (t * c.top_k + k) * 2 * c.hidden, acc, turn, k, weight, c, step)
            turn = turn + 1
    return turn


def write_sum(t, first, acc, c: Group, b: Buffers, step):
    """Round the sum of token ``t``, the core's first being ``first``, and write it out."""
    half = (t - first) % 2
    at = acc + outputs_at(c.hidden) + half * 2 * c.hidden
    if t - first >= 2:
        yield xl.wait_flag(xl.MTU_OUT, xl.VECTOR, half, sync="sum left")
    yield xl.v_narrow(acc, at, c.hidden, c.dtype, step=step)
    yield from hand_over(xl.VECTOR, xl.MTU_OUT, half, "sum made")
    yield xl.mtu_out(at, b.out + t * 2 * c.hidden, 2 * c.hidden, step=step)
    yield xl.set_flag(xl.MTU_OUT, xl.VECTOR, half, sync="sum left")


def sum_tokens(first, last, came, acc, c: Group, b: Buffers, step):
    """Sum up tokens ``first`` to before ``last``; all their contributions have come."""
    turn = 0
    for t in range(first, last):
        turn = yield from sum_token(t, came, turn, acc, c, b, step)
        yield from write_sum(t, first, acc, c, b, step)
    yield from drain_sums(turn, last - first)


def drain_sums(contributions, tokens):
    """Consume the flags that the last contributions and sums left set."""
    yield from drain(xl.VECTOR, xl.MTU_IN, contributions, LOADS, "contribution used")
    yield from drain_halves(xl.MTU_OUT, xl.VECTOR, tokens, "sum left")
