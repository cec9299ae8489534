"""The least pod on which a protocol fits: a search copies and hashes all of it."""

from collections.abc import Callable

from xccl_emu.kernels.group import align
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import GIB, MIB, PodSpec, small_pod


def tight_pod(dies: int, cores: int, ub_bytes: int, lay_out: Callable[[Pod], tuple[int, int]]) -> PodSpec:
    """A pod as large as everything is that ``lay_out`` puts on a large one.

    ``lay_out`` returns the bytes of the metadata and managed areas that are in use; those of app data the pod knows.
    """
    roomy = Pod(small_pod(dies, cores, app_bytes=GIB, meta_bytes=MIB, managed_bytes=GIB, ub_bytes=MIB))
    meta, managed = lay_out(roomy)
    app = max(roomy.mark_app().values())
    room = {"app_bytes": app, "meta_bytes": meta, "managed_bytes": align(managed)}
    return small_pod(dies, cores, **room, ub_bytes=align(ub_bytes))
