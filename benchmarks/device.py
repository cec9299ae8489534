"""The kernels of the benchmarks: loops that do one thing."""

from xccl_emu.kernels.common import copy_through_buffer
from xccl_emu.lang import DMA, MTU_IN, SCALAR, dma, kernel, poll_eq, quiet, set_flag, store, ub_store, wait_flag


@kernel
def scalar_steps(n):
    """``n`` stores to the data buffer: steps without payload."""
    for i in range(n):
        yield ub_store(0, i)


@kernel
def flag_steps(n):
    """``n`` events, set and waited for by way of a pipe."""
    for _i in range(n):
        yield set_flag(MTU_IN, SCALAR, 0)
        yield wait_flag(MTU_IN, SCALAR, 0)


@kernel
def copies(source, target, nbytes, half_bytes, rounds):
    """Copy ``nbytes`` through the data buffer in parts of ``half_bytes``, ``rounds`` times over."""
    for _i in range(rounds):
        yield from copy_through_buffer(source, target, nbytes, half_bytes, 1)
        yield quiet()


@kernel
def dma_copies(source, target, n, nbytes):
    """``n`` copies of ``nbytes`` by DMA, one after the other."""
    for i in range(n):
        yield dma(source + i * nbytes, target + i * nbytes, nbytes, 0)
        yield wait_flag(DMA, SCALAR, 0)


@kernel
def ping_pong(mine, other, first, n):
    """``n`` rounds: the player that is ``first`` writes i to the other's word, which answers with i."""
    for i in range(1, n + 1):
        if first:
            yield store(other, i)
            yield poll_eq(mine, i)
        else:
            yield poll_eq(mine, i)
            yield store(other, i)
