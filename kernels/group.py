"""What the cores of one group do together."""

from xccl_emu.lang import arrive, await_group


def barrier(step, sync):
    """Wait until every core of the group is here.  It orders the cores only: fence first what others shall see."""
    phase = yield arrive(step=step, sync=sync)
    yield await_group(phase, step=step, sync=sync)


def align(nbytes: int) -> int:
    """Round up to whole pieces of 32 bytes."""
    return (nbytes + 31) // 32 * 32
