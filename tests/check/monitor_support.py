"""What the tests of sampled runs share: small kernels as trials, and what sampling them finds."""

from collections.abc import Mapping, Sequence

from xccl_emu.check.sampling.sample import PORTFOLIO, sample
from xccl_emu.check.trial import Expected, Trial
from xccl_emu.check.verdict import Violation
from xccl_emu.lang.kernel import Kernel
from xccl_emu.machine.launch import Grant
from xccl_emu.machine.pod import Buffer, Pod
from xccl_emu.machine.spec import small_pod

ORDERS = ("sc", "fifo", "relaxed", "unordered")
Side = tuple[Kernel, int, int, Mapping[str, int]]
"""Kernel, die, core, arguments."""


def make_pod(dies: int = 2, cores: int = 2, order: str = "relaxed", without: Sequence[str] = ()) -> Pod:
    """A pod of a few hundred bytes an area."""
    spec = small_pod(dies, cores, app_bytes=512, meta_bytes=256, managed_bytes=256, ub_bytes=256, flight_granules=16)
    return Pod(spec, order=order, without=without)


def app(pod: Pod, die: int = 0) -> int:
    """First byte of a die's app data area."""
    return die * pod.spec.die_bytes


def trial_of(pod: Pod, sides: Sequence[Side], filled: bool = True, expected: Sequence[Expected] = ()) -> Trial:
    """A trial of kernels that may touch everything; the app data areas are as if the host had filled them."""
    for kernel, die, core, arguments in sides:
        pod.launch(kernel, die, [core], arguments, [Grant(None, 0, pod.spec.die_bytes, "rw")])
    areas = (Buffer(die, app(pod, die), pod.spec.app_bytes) for die in range(pod.spec.n_dies))
    return Trial(pod, tuple(expected), tuple(areas) if filled else ())


def found(trial: Trial) -> Violation | None:
    """What a few schedules of every policy find."""
    return sample(trial, schedules=60 * len(PORTFOLIO)).violation


def kind_of(trial: Trial) -> str | None:
    """The kind of it."""
    violation = found(trial)
    return None if violation is None else violation.kind
