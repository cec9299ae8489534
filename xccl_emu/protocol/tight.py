"""The least pod on which a protocol fits: a search copies and hashes all of it."""

from collections.abc import Callable

from xccl_emu.errors import CapacityError
from xccl_emu.kernels.group import align
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import GIB, MIB, PodSpec, small_pod
from xccl_emu.protocol.regions import Regions


def tight_pod(dies: int, cores: int, ub_bytes: int, lay_out: Callable[[Pod], Regions]) -> PodSpec:
    """A pod as large as everything is that ``lay_out`` puts on a large one.

    It returns the regions of the metadata and managed areas; what is in use of app data the pod knows.
    """
    try:
        roomy, regions = _laid_out(dies, cores, GIB, lay_out)
    except CapacityError:
        roomy, regions = _laid_out(dies, cores, 24 * GIB, lay_out)
    app = max(roomy.mark_app().values())
    room = {"app_bytes": app, "meta_bytes": regions.meta_end, "managed_bytes": align(regions.managed_end)}
    return small_pod(dies, cores, **room, ub_bytes=align(ub_bytes))


def _laid_out(dies: int, cores: int, room: int, lay_out: Callable[[Pod], Regions]) -> tuple[Pod, Regions]:
    pod = Pod(small_pod(dies, cores, app_bytes=room, meta_bytes=4 * MIB, managed_bytes=room, ub_bytes=MIB))
    return pod, lay_out(pod)
