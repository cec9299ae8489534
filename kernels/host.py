"""What a host does on its die between two launches, as a launch of its own."""

from xccl_emu import lang as xl

ROW_WORDS = 3
"""Words of a row: where bytes are, where they go, how many there are."""


@xl.kernel
def host_writes(table, rows):
    """Bring bytes that the host has to where it writes them, by the rows of a table."""
    for i in range(rows):
        source = yield xl.load(table + 8 * ROW_WORDS * i)
        target = yield xl.load(table + 8 * ROW_WORDS * i + 8)
        nbytes = yield xl.load(table + 8 * ROW_WORDS * i + 16)
        yield xl.dma(source, target, nbytes, 0)
        yield xl.wait_flag(xl.DMA, xl.SCALAR, 0)
