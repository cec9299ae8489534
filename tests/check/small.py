"""Protocols of two dies of which one waits for the other, and how to make more of them."""

from xccl_emu.lang import Kernel, fail, kernel, load, poll_eq, quiet, store
from xccl_emu.machine import Pod, small_pod
from xccl_emu.testing import Bench, protocol

GAVE_UP = 9


@kernel
def say(flag):
    """Set a flag."""
    yield store(flag, 1)
    yield quiet()


@kernel
def wait(flag):
    """Wait for a flag, for ever if it must be."""
    yield poll_eq(flag, 1)


@kernel
def look_for_ever(flag):
    """Wait for a flag by loads."""
    seen = 0
    while seen != 1:
        seen = yield load(flag, sync="flag")


@kernel
def wait_and_fail(flag):
    """Wait for a flag as long as it takes to look often, then end in an error."""
    for _ in range(200):
        seen = yield load(flag, sync="flag")
        if seen == 1:
            return
    yield fail(GAVE_UP, 0)


KERNELS = {"wait": wait, "look": look_for_ever, "fail": wait_and_fail}


def on_dies(bench: Bench, kernels: dict[int, Kernel]) -> Pod:
    """A pod of two dies with a kernel on each, whose one argument is a flag in the metadata area of die 1."""
    pod = bench.pod(small_pod(2, app_bytes=64, meta_bytes=64, managed_bytes=0))
    for die, each in kernels.items():
        pod.launch(each, die, [0], {each.params[0]: pod.meta(1)}, [pod.grant_meta("rw", 1)])
    return pod


@protocol
def waiting(bench: Bench, how: str = "wait", may_block: int = 1, declared: int = 1, silent: int = 0) -> None:
    """Die 1 waits for die 0, which may say nothing; whoever gives up may have declared it."""
    if declared:
        bench.stop(GAVE_UP, "gave up")
    bench.tolerates("stop", "cut", may_block=bool(may_block))
    on_dies(bench, {1: KERNELS[how]} if silent else {0: say, 1: KERNELS[how]})
