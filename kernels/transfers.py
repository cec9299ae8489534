"""Transfers one after the other between the own die and another: what tables of links are measured with."""

from xccl_emu.lang import DMA, MTU_IN, MTU_OUT, SCALAR, dma, kernel, mtu_in, mtu_out, set_flag, wait_flag

DESCRIPTORS = 8
"""Of DMA, that a core may have rung at once."""


@kernel
def write_blocks(source, target, nbytes, times):
    """Load a block of the own die, then write it ``times`` times, to places one behind the other."""
    yield mtu_in(source, 0, nbytes)
    yield set_flag(MTU_IN, MTU_OUT, 0, sync="block in buffer")
    yield wait_flag(MTU_IN, MTU_OUT, 0, sync="block in buffer")
    for i in range(times):
        yield mtu_out(0, target + i * nbytes, nbytes)


@kernel
def read_blocks(source, target, nbytes, times):
    """Read ``times`` blocks that lie one behind the other, into two halves in turn, and store the last."""
    for i in range(times):
        yield mtu_in(source + i * nbytes, i % 2 * nbytes, nbytes)
    yield set_flag(MTU_IN, MTU_OUT, 0, sync="blocks in buffer")
    yield wait_flag(MTU_IN, MTU_OUT, 0, sync="blocks in buffer")
    yield mtu_out((times - 1) % 2 * nbytes, target, nbytes)


@kernel
def copy_blocks(source, target, nbytes, times):
    """Have the DMA engine copy ``times`` blocks that lie one behind the other, as many at once as a core may ring."""
    for i in range(times):
        if i >= DESCRIPTORS:
            yield wait_flag(DMA, SCALAR, i % DESCRIPTORS, sync="block copied")
        yield dma(source + i * nbytes, target + i * nbytes, nbytes, i % DESCRIPTORS)
    for i in range(max(0, times - DESCRIPTORS), times):
        yield wait_flag(DMA, SCALAR, i % DESCRIPTORS, sync="block copied")
