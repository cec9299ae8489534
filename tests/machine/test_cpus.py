"""CPU sockets in the address space: memory behind that of all dies, which cores read and write by grants."""

import numpy as np
import pytest

from xccl_emu.errors import AccessError, ConfigError
from xccl_emu.kernels.transfers import copy_blocks, read_blocks, write_blocks
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.report import symbolic
from xccl_emu.machine.spec import CLOUDMATRIX384, small_pod

SPEC = small_pod(2, 1).with_(cpus_per_node=2)


def test_where_cpus_are() -> None:
    """Their memory follows that of the dies, and the data buffers follow it; CloudMatrix384 has four a node."""
    pod = Pod(SPEC)
    assert [pod.cpu(number) for number in range(4)] == [2, 3, 4, 5]
    assert pod.address(pod.cpu(3), 8) == 5 * SPEC.die_bytes + 8
    assert len(pod.memory) >= 6 * SPEC.die_bytes + 2 * SPEC.ub_bytes
    assert symbolic(pod, pod.address(3, 16)) == "cpu1+0x10"
    assert CLOUDMATRIX384.n_homes == 768 + 192


@pytest.mark.parametrize("order", ["sc", "fifo", "relaxed"])
@pytest.mark.parametrize("kernel", [write_blocks, read_blocks, copy_blocks])
def test_cores_read_and_write_memory_of_cpus(kernel: object, order: str) -> None:
    """What goes to a CPU's memory and what comes from there arrives, by the cores and by DMA, in every memory order."""
    pod = Pod(SPEC, order=order)
    data = np.arange(256, dtype=np.uint8)
    here, there = (pod.cpu(1), 0) if kernel is read_blocks else (0, pod.cpu(3))
    source, target = pod.put(here, data), pod.alloc(there, 256)
    args = {"source": source.address, "target": target.address, "nbytes": 256, "times": 1}
    pod.launch(kernel, 0, [0], args, [pod.grant(source, "r"), pod.grant(target, "w")])  # type: ignore[arg-type]
    pod.run()
    assert (pod.view(target) == data).all()


def test_a_grant_for_any_die_is_for_none_of_the_cpus() -> None:
    """Memory of a CPU has to be granted by itself."""
    pod = Pod(SPEC)
    source, far = pod.alloc(0, 32), pod.alloc(pod.cpu(0), 32)
    args = {"source": source.address, "target": far.address + SPEC.meta_start, "nbytes": 32, "times": 1}
    pod.launch(write_blocks, 0, [0], args, [pod.grant(source, "r"), pod.grant_meta("w")])
    with pytest.raises(AccessError, match="cpu0"):
        pod.run()


def test_there_is_no_such_cpu() -> None:
    """Numbers out of range are refused, and so is a kernel on a CPU."""
    pod = Pod(SPEC)
    with pytest.raises(ConfigError, match="number=4: the pod has 4 CPUs"):
        pod.cpu(4)
    with pytest.raises(ConfigError, match="die=6: the pod has dies 0 to 1"):
        pod.alloc(6, 32)
    with pytest.raises(ConfigError, match="die=2: the pod has dies 0 to 1"):
        pod.launch(write_blocks, 2, [0], {}, [])
    with pytest.raises(ConfigError, match="cpus_per_node=-1"):
        small_pod(2).with_(cpus_per_node=-1)
