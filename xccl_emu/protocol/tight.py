"""The least pod on which a protocol fits: a search copies and hashes all of it."""

from collections.abc import Callable

from xccl_emu.kernels.group import align
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import GIB, MIB, PodSpec, small_pod
from xccl_emu.protocol.regions import Regions


def tight_pod(dies: int, cores: int, ub_bytes: int, lay_out: Callable[[Pod], Regions]) -> PodSpec:
    """A pod as large as everything is that ``lay_out`` puts on a large one.

    It returns the regions of the metadata and managed areas; what is in use of app data the pod knows.
    """
    roomy = Pod(small_pod(dies, cores, app_bytes=GIB, meta_bytes=MIB, managed_bytes=GIB, ub_bytes=MIB))
    regions = lay_out(roomy)
    app = max(roomy.mark_app().values())
    room = {"app_bytes": app, "meta_bytes": regions.meta_end, "managed_bytes": align(regions.managed_end)}
    return small_pod(dies, cores, **room, ub_bytes=align(ub_bytes))
