"""The emulated machine: pods, launches, runs, schedules."""

from xccl_emu.machine.launch import Grant, Launch
from xccl_emu.machine.pod import Buffer, Pod, Snapshot
from xccl_emu.machine.schedule import Schedule
from xccl_emu.machine.spec import CLOUDMATRIX384, PodSpec, small_pod
from xccl_emu.machine.stats import RunStats

__all__ = [
    "CLOUDMATRIX384",
    "Buffer",
    "Grant",
    "Launch",
    "Pod",
    "PodSpec",
    "RunStats",
    "Schedule",
    "Snapshot",
    "small_pod",
]
