"""What all scenarios share."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from xccl_emu.check.trial import Expected, Label, Trial
from xccl_emu.check.witness.steps import steps
from xccl_emu.errors import ConfigError
from xccl_emu.lang import Kernel
from xccl_emu.machine.pod import Buffer, Pod
from xccl_emu.machine.spec import PodSpec, small_pod, whole
from xccl_emu.protocol.case import SIZE_MAX

FLIGHT_PIECES = 64
"""Writes in flight that a die holds at most."""


class Scenario(Protocol):
    """A `Checkable` that also tells the names of its synchronizations."""

    @property
    def name(self) -> str:
        """As the command knows it."""

    @property
    def configuration(self) -> Mapping[str, int | str]:
        """Sizes and choices, in the order in which reports print them."""

    @property
    def syncs(self) -> tuple[str, ...]:
        """Names of the synchronizations of its kernels, in the order of their sources."""

    def build(self, order: str, without: Collection[str] = ()) -> Trial:
        """Make a fresh pod of memory order ``order`` with some synchronizations switched off, kernels launched."""


def at_least(least: int, **sizes: int) -> None:
    """ConfigError for a size that is no whole number, below ``least`` or above `SIZE_MAX`."""
    for name, size in sizes.items():
        if isinstance(size, bool):
            raise ConfigError(f"{name}={size!r}: must be a whole number")
        if whole(name, size) < least:
            raise ConfigError(f"{name}={size}: must be at least {least}")
        if size > SIZE_MAX:
            raise ConfigError(f"{name}={size}: must be at most {SIZE_MAX}")


def switch(name: str, value: Any) -> bool:
    """True or False of what may also be 1 or 0; ConfigError for everything else, of which Python knows a truth too."""
    if isinstance(value, (bool, int)) and value in (0, 1):
        return bool(value)
    raise ConfigError(f"{name}={value!r}: must be 0 or 1")


def set_switches(scenario: object, *names: str) -> None:
    """Make True or False of some fields of a frozen scenario."""
    for name in names:
        object.__setattr__(scenario, name, switch(name, getattr(scenario, name)))


def check_seed(seed: int) -> None:
    """ConfigError for a seed that no generator takes."""
    if isinstance(seed, bool) or whole("seed", seed) < 0:
        raise ConfigError(f"seed={seed!r}: must be a whole number, at least 0")


def tight_pod(dies: int, cores: int, *, app: int, meta: int, managed: int, ub: int) -> PodSpec:
    """A pod with no more room than needed, because a search copies and hashes all of it; sizes in bytes."""
    return small_pod(
        dies, cores, app_bytes=app, meta_bytes=meta, managed_bytes=managed, ub_bytes=ub, flight_pieces=FLIGHT_PIECES
    )


def payload(nbytes: int, seed: int) -> NDArray[np.uint8]:
    """Bytes without a zero, so that they differ from memory that was never written, and no two pieces alike.

    The first two bytes of each piece count the pieces; those behind are random.
    """
    data = np.random.default_rng([seed, nbytes]).integers(1, 256, nbytes, dtype=np.uint8)
    numbers = np.arange(0, nbytes, 32)
    data[numbers] = 1 + (numbers // 32 + 7 * seed) % 255
    behind = numbers[numbers + 1 < nbytes]
    data[behind + 1] = 1 + (behind // 32 // 255 + seed) % 255
    return data


PROMISES = frozenset({"stop", "cut", "stall"})
"""Faults under which the shipped protocols never take wrong bits for right; who waits then, waits without end."""


def must_hold(name: str, buffer: Buffer, data: NDArray[Any], cores: Iterable[int] = ()) -> Expected:
    """What a buffer must hold when ``cores`` have returned; behind ``data`` zeros, as it was never written."""
    raw = data.tobytes()
    assert len(raw) <= buffer.nbytes, f"{name}: {len(raw)} bytes are expected of {buffer}"
    return Expected(name, buffer.address, raw.ljust(buffer.nbytes, b"\0"), tuple(cores))


def cores_on(pod: Pod, die: int, kernels: Iterable[Kernel]) -> list[int]:
    """Global numbers of the cores of a die on which one of the kernels is launched."""
    wanted = {kernel.name for kernel in kernels}
    launches = {core: pod.launch_of(core) for core in pod.active_cores() if core // pod.spec.cores_per_die == die}
    return [core for core, launch in launches.items() if launch is not None and launch.kernel.name in wanted]


def of_buffer(name: str, buffer: Buffer) -> Label:
    """The label of a buffer in an app data area."""
    return Label(f"die{buffer.die}.app.{name}", buffer.address, buffer.nbytes)


def reached_syncs(scenario: Scenario, order: str = "relaxed") -> frozenset[str]:
    """Names of the synchronizations that a run comes to; the others belong to paths that this configuration lacks."""
    trial = scenario.build(order)
    trial.pod.record = True
    trial.pod.run()
    trace = steps(scenario.build(order), trial.pod.schedule.actions.tolist())
    return frozenset(step.source.sync for step in trace.steps if step.source is not None and step.source.sync)
