"""CPU sockets: memory behind that of all dies, which cores read and write by grants, and cores that are scalar."""

import numpy as np
import pytest

from xccl_emu import lang as xl
from xccl_emu.base.errors import AccessError, ConfigError
from xccl_emu.kernels.transfers import copy_blocks, read_blocks, write_blocks
from xccl_emu.machine.launch import Grant, Launch
from xccl_emu.machine.pod import Buffer, Pod
from xccl_emu.machine.report import symbolic
from xccl_emu.machine.spec import CLOUDMATRIX384, small_pod
from xccl_emu.timing.run import VirtualTime
from xccl_emu.timing.topologies import topology
from xccl_emu.timing.trace import trace

SPEC = small_pod(2, 1).with_(cpus_per_node=2)


def test_where_cpus_are() -> None:
    """Their memory follows that of the dies, and the data buffers follow it; CloudMatrix384 has four a node."""
    pod = Pod(SPEC)
    assert [pod.cpu(number) for number in range(4)] == [2, 3, 4, 5]
    assert pod.address(pod.cpu(3), 8) == 5 * SPEC.die_bytes + 8
    assert len(pod.memory) >= 6 * SPEC.die_bytes + 2 * SPEC.ub_bytes
    assert symbolic(pod, pod.address(3, 16)) == "cpu1.app+0x10"
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
    """Numbers out of range are refused."""
    pod = Pod(SPEC)
    with pytest.raises(ConfigError, match="number=4: the pod has 4 CPUs"):
        pod.cpu(4)
    with pytest.raises(ConfigError, match="die=6: the pod has dies 0 to 1"):
        pod.alloc(6, 32)
    with pytest.raises(ConfigError, match="die=6: the pod has dies 0 to 1"):
        pod.launch(write_blocks, 6, [0], {}, [])
    with pytest.raises(ConfigError, match="cpus_per_node=-1"):
        small_pod(2).with_(cpus_per_node=-1)


@xl.kernel
def serve(request, source, target, nbytes, answer):
    """Copy by DMA when it is asked to, then say so."""
    yield xl.poll_eq(request, 1)
    yield xl.dma(source, target, nbytes, 0)
    yield xl.wait_flag(xl.DMA, xl.SCALAR, 0)
    yield xl.store(answer, 1)


@xl.kernel
def ask(request, answer):
    """Ask a server, and wait until it is done."""
    yield xl.store(request, 1)
    yield xl.poll_eq(answer, 1)


@xl.kernel
def request_of(which):
    """One request, of a pipe or of the data buffer."""
    if which == 0:
        yield xl.mtu_in(0, 0, 32)
    elif which == 1:
        yield xl.mtu_out(0, 0, 32)
    elif which == 2:
        yield xl.put(0, 1)
    elif which == 3:
        yield xl.add(0, 1)
    elif which == 4:
        yield xl.ub_load(0)
    elif which == 5:
        yield xl.ub_store(0, 1)
    elif which == 6:
        yield xl.v_fill(0, 32)
    elif which == 7:
        yield xl.set_flag(xl.SCALAR, xl.VECTOR, 0)
    elif which == 8:
        yield xl.wait_flag(xl.MTU_IN, xl.SCALAR, 0)
    else:
        yield xl.poll_line_eq(0, 0, 32, 1, 0)


def _served(pod: Pod, data: np.ndarray) -> tuple[Launch, Buffer]:
    """A core of CPU 1 that copies from its memory to die 0, which asks it."""
    cpu = pod.cpu(1)
    source, target = pod.put(cpu, data), pod.alloc(0, data.size)
    words = {"request": pod.meta(cpu, 64), "answer": pod.meta(0)}
    args = {**words, "source": source.address, "target": target.address, "nbytes": data.size}
    grants = [pod.grant(source, "r"), pod.grant(target, "w"), pod.grant_meta("rw", cpu), pod.grant_meta("w", 0)]
    served = pod.launch(serve, cpu, [0], args, grants)
    pod.launch(ask, 0, [0], words, [pod.grant_meta("r", 0), pod.grant_meta("w", cpu)])
    return served, target


@pytest.mark.parametrize("order", ["sc", "fifo", "relaxed", "unordered"])
def test_a_kernel_runs_on_a_cpu(order: str) -> None:
    """Its scalar unit and DMA serve a die in every order; a replay does the same, and traffic counts for the CPU."""
    pods = [Pod(SPEC, order=order, policy="random", record=True) for _ in range(2)]
    data, made = np.arange(96, dtype=np.uint8), []
    for pod in pods:
        made.append(_served(pod, data)[1])
    pods[0].run()
    assert (pods[0].view(made[0]) == data).all()
    traffic = pods[0].traffic()
    assert (traffic.writes[pods[0].cpu(1)], traffic.flags[0]) == (1, 1)
    pods[1].replay(pods[0].schedule)
    assert pods[1].digest() == pods[0].digest()


@pytest.mark.parametrize("which", range(10))
def test_a_cpu_has_no_pipe_and_no_data_buffer(which: int) -> None:
    """What needs one ends the run, and the error says why."""
    pod = Pod(SPEC)
    cpu = pod.cpu(0)
    pod.launch(request_of, cpu, [0], {"which": which}, [Grant(None, 0, SPEC.die_bytes, "rw")])
    with pytest.raises(AccessError, match=r"cpu 0 core 0.*a core of a CPU has a scalar unit and DMA"):
        pod.run()


def test_cores_of_a_cpu_are_taken_once() -> None:
    """They are numbered as those of a die are."""
    pod = Pod(SPEC)
    _served(pod, np.zeros(32, np.uint8))
    with pytest.raises(ConfigError, match="core 0 of cpu 1 is taken"):
        pod.launch(ask, pod.cpu(1), [0], {"request": 0, "answer": 0}, [])


def test_a_cpu_takes_time_as_its_paths_do() -> None:
    """In virtual time its reads and writes go over the paths between NPUs and CPUs, and the log has its actions."""
    clock = VirtualTime(log=True)
    pod = Pod(CLOUDMATRIX384, policy=clock)
    served, target = _served(pod, np.ones(4096, np.uint8))
    pod.run()
    assert (pod.view(target) == 1).all()
    core = served.die * CLOUDMATRIX384.cores_per_die
    assert 2.0 < clock.timing.finished_us[core] <= clock.timing.latency_us < 15.0
    names = [e["args"]["name"] for e in trace(clock.timing).events if e["name"] == "process_name"]
    assert names == ["die 0 (chip 0, node 0)", "cpu 1 (node 0)"]


def test_a_fabric_without_cpus_runs_none() -> None:
    """Nodes of MixServe's clusters have no CPUs on the fabric."""
    pod = Pod(CLOUDMATRIX384, policy=VirtualTime(topology("atlas-800t-a2")))
    pod.launch(ask, pod.cpu(0), [0], {"request": 0, "answer": 0}, [])
    with pytest.raises(ConfigError, match="has no CPUs; this run has a core or memory of one"):
        pod.run()
