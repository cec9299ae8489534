"""Transfers one after the other between the own die and another: what tables of links are measured with."""

from typing import NamedTuple

from xccl_emu import lang as xl
from xccl_emu.kernels.group import hand_over

DESCRIPTORS = 8
"""DMA descriptors that a core may have rung at once."""


class Scatter(NamedTuple):
    """How blocks are written to many dies."""

    dies: int
    nbytes: int
    times: int
    drawn: int
    """1: each goes to a die that is drawn."""
    slots: int
    """Places on each die; each block takes one that is drawn."""
    die_bytes: int


@xl.kernel
def write_blocks(source, target, nbytes, times):
    """Load a block of the own die, then write it ``times`` times, to consecutive places."""
    yield xl.mtu_in(source, 0, nbytes)
    yield from hand_over(xl.MTU_IN, xl.MTU_OUT, 0, "block in buffer")
    for i in range(times):
        yield xl.mtu_out(0, target + i * nbytes, nbytes)


@xl.kernel
def read_blocks(source, target, nbytes, times):
    """Read ``times`` consecutive blocks, into two halves in turn, and store the last."""
    for i in range(times):
        yield xl.mtu_in(source + i * nbytes, i % 2 * nbytes, nbytes)
    yield from hand_over(xl.MTU_IN, xl.MTU_OUT, 0, "blocks in buffer")
    yield xl.mtu_out((times - 1) % 2 * nbytes, target, nbytes)


@xl.kernel
def copy_blocks(source, target, nbytes, times):
    """Have the DMA engine copy ``times`` consecutive blocks, as many at once as a core may ring."""
    for i in range(times):
        if i >= DESCRIPTORS:
            yield xl.wait_flag(xl.DMA, xl.SCALAR, i % DESCRIPTORS, sync="block copied")
        yield xl.dma(source + i * nbytes, target + i * nbytes, nbytes, i % DESCRIPTORS)
    for i in range(max(0, times - DESCRIPTORS), times):
        yield xl.wait_flag(xl.DMA, xl.SCALAR, i % DESCRIPTORS, sync="block copied")


@xl.kernel
def scatter_blocks(shape: Scatter, source, target, own, die, seed):
    """Load a block, then write it again and again to dies of other chips: from ``die`` on to one after the other, or
    as they are drawn; ``own`` is the die that it runs on.  Draws are Park and Miller's, ``seed`` 1 to 2^31 - 2.
    """
    yield xl.mtu_in(source, 0, shape.nbytes)
    yield from hand_over(xl.MTU_IN, xl.MTU_OUT, 0, "block in buffer")
    for _ in range(shape.times):
        seed = seed * 48271 % 2147483647
        die = seed % shape.dies if shape.drawn else (die + 1) % shape.dies
        if die // 2 == own // 2:
            die = (die + 2) % shape.dies
        slot = seed // shape.dies % shape.slots
        yield xl.mtu_out(0, target + die * shape.die_bytes + slot * shape.nbytes, shape.nbytes)
