"""What the monitor has found, in words: kind and message of a violation."""

from xccl_emu.check import messages, verdict
from xccl_emu.check.monitor import layout as at
from xccl_emu.check.sampling.watch import Monitor
from xccl_emu.lang.abi import REQUEST, REQUEST_WORDS
from xccl_emu.lang.requests import OP_RETURN
from xccl_emu.machine import layout as machine
from xccl_emu.machine import report
from xccl_emu.machine.stats import PIPE_NAMES

_KIND_OF_ERROR = {
    machine.ERR_ACCESS: verdict.AREA_VIOLATION,
    machine.ERR_FAIL: verdict.ASSERTION,
    machine.ERR_LEFT_SET: verdict.LEFTOVER,
}


def describe(monitor: Monitor, code: int) -> tuple[str, str]:
    """Kind and message of what the last replay has found; the pod must still be as it left it."""
    pod, m = monitor.trial.pod, monitor.m
    if code == at.FOUND_ERROR:
        error, given = int(pod.state[machine.ERROR]), int(pod.state[machine.ERROR_A])
        meaning = monitor.trial.stops.get(given, "") if error == machine.ERR_FAIL else ""
        message = str(report.violation(pod)) + (f" ({meaning})" if meaning else "")
        return _KIND_OF_ERROR.get(error, verdict.BAD_INSTRUCTION), message
    if code == at.FOUND_DEADLOCK:
        return verdict.DEADLOCK, str(report.deadlock(pod))
    if code == at.FOUND_LIVELOCK:
        return verdict.LIVELOCK, _livelock(monitor)
    if code == at.FOUND_WRONG:
        return verdict.WRONG_BITS, _wrong_bits(monitor)
    place = report.symbolic_byte(pod, int(m[at.V_AT]))
    if code == at.FOUND_UNWRITTEN:
        who = _who(monitor, at.V_CORE)
        return verdict.UNWRITTEN_READ, f"read of memory that was never written, at {place}: {who}"
    assert code == at.FOUND_RACE
    now, before = _who(monitor, at.V_CORE), _who(monitor, at.V_CORE_2)
    return _kind_of_race(monitor), f"nothing orders two accesses at {place}:\n  {before}\n  {now}"


def _who(monitor: Monitor, first: int) -> str:
    """Which engine of which core, by which instruction; ``first`` is `V_CORE` or `V_CORE_2`."""
    m, pod = monitor.m, monitor.trial.pod
    i, engine, site, flags = (int(m[first + k]) for k in range(4))
    core = int(m[int(m[at.CORE_NUMBER]) + i])
    pipe = PIPE_NAMES[min(engine, at.ENGINE_DMA)]
    return f"{'write' if flags & 1 else 'read'} ({pipe}) by {report.where(pod, core, site)}"


def _kind_of_race(monitor: Monitor) -> str:
    """Torn metadata if one of the two reads the metadata area, else a data race."""
    m, spec = monitor.m, monitor.trial.pod.spec
    start = int(m[at.V_AT])
    inside = start < int(m[at.BUFFERS_START])
    in_meta = inside and spec.meta_start <= start % spec.die_bytes < spec.managed_start
    both_write = int(m[at.V_FLAGS]) & int(m[at.V_FLAGS_2]) & 1
    return verdict.TORN_METADATA if in_meta and not both_write else verdict.DATA_RACE


def _wrong_bits(monitor: Monitor) -> str:
    pod, expected = monitor.trial.pod, monitor.trial.expected[int(monitor.m[at.V_SITE])]
    address = int(monitor.m[at.V_AT])
    got, want = int(pod.memory[address]), expected.data[address - expected.address]
    place = f"{report.symbolic(pod, address)}, byte {address - expected.address} of {len(expected.data)}"
    return (
        f"{expected.name} is wrong at {place}: {got:#04x} instead of {want:#04x}, judged "
        f"{messages.moment(monitor.trial, expected)}; {report.last_writer(pod, address)}"
    )


def _livelock(monitor: Monitor) -> str:
    pod = monitor.trial.pod
    st = pod.state
    lines = [f"the run does not end: {int(monitor.m[at.TAKEN])} actions, others take {monitor.limits.typical}"]
    for core in pod.active_cores():
        base = pod.core_base(core)
        if st[base + machine.STATUS] == machine.STATUS_RUNNING:
            site = machine.AT_END if st[base + REQUEST] == OP_RETURN else int(st[base + REQUEST + REQUEST_WORDS - 1])
            lines.append(f"  {report.where(pod, core, site)}")
    return "\n".join(lines)
