"""Small granules that several kernels share."""

from xccl_emu import lang as xl


def hand_over(source, target, event, sync, step=0):
    """Let pipe ``target`` go on, or the scalar unit, when pipe ``source`` has done all that was issued to it so far."""
    yield xl.set_flag(source, target, event, step=step, sync=sync)
    yield xl.wait_flag(source, target, event, step=step, sync=sync)


def barrier(step, sync):
    """Wait until every core of the group is here.  It orders the cores only: quiet first what others shall see."""
    phase = yield xl.arrive(step=step, sync=sync)
    yield xl.await_group(phase, step=step, sync=sync)


def drain(source, target, turns, places, sync):
    """Consume the flags that the last of ``turns`` uses of some places left set from pipe source to pipe target."""
    for i in range(min(turns, places)):
        yield xl.wait_flag(source, target, (turns - 1 - i) % places, sync=sync)


def drain_halves(source, target, turns, sync):
    """Drain two halves that are used in turn."""
    yield from drain(source, target, turns, 2, sync)


def align(nbytes: int) -> int:
    """Round up to whole granules of 32 bytes."""
    return (nbytes + 31) // 32 * 32
