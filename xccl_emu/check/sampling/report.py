"""What the monitor has found, in words: kind and message of a violation."""

from collections.abc import Callable, Sequence

from xccl_emu.check import messages, verdict
from xccl_emu.check.device.monitor import layout as ml
from xccl_emu.check.sampling.watch import Monitor
from xccl_emu.lang.requests import SCALAR
from xccl_emu.machine import report
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.stats import PIPE_NAMES


def describe(monitor: Monitor, code: int) -> tuple[str, str]:
    """Kind and message of what the last replay has found; the pod must still be as it left it."""
    pod, m = monitor.trial.pod, monitor.m
    if code == ml.FOUND_ERROR:
        error, given = int(pod.state[ms.ERROR]), int(pod.state[ms.ERROR_A])
        meaning = monitor.trial.stops.get(given, "") if error == ms.ERR_FAIL else ""
        message = str(report.violation(pod)) + (f" ({meaning})" if meaning else "")
        return messages.error_kind(pod), message
    if code == ml.FOUND_DEADLOCK:
        return verdict.DEADLOCK, str(report.deadlock(pod))
    if code == ml.FOUND_LIVELOCK:
        return verdict.LIVELOCK, _livelock(monitor)
    if code == ml.FOUND_WRONG:
        return verdict.WRONG_BITS, messages.wrong_bits(monitor.trial, monitor.trial.expected[int(m[ml.V_SITE])])
    if code == ml.FOUND_SET_AGAIN:
        return verdict.BAD_INSTRUCTION, _set_again(monitor)
    place = report.symbolic_byte(pod, int(m[ml.V_AT]))
    if code == ml.FOUND_UNWRITTEN:
        who = _who(monitor, ml.V_CORE)
        return verdict.UNWRITTEN_READ, f"read of memory that was never written, at {place}: {who}"
    assert code == ml.FOUND_RACE
    now, before = _who(monitor, ml.V_CORE), _who(monitor, ml.V_CORE_2)
    both_write = bool(m[ml.V_FLAGS] & m[ml.V_FLAGS_2] & 1)
    hint = messages.hint(pod, [_core_and_site(monitor, first) for first in (ml.V_CORE, ml.V_CORE_2)])
    kind = messages.race_kind(pod, int(m[ml.V_AT]), both_write)
    return kind, f"nothing orders two accesses at {place}:\n  {before}\n  {now}{hint}"


def _set_again(monitor: Monitor) -> str:
    m, places = monitor.m, [_core_and_site(monitor, first) for first in (ml.V_CORE_2, ml.V_CORE)]
    before, now = (report.where(monitor.trial.pod, *place) for place in places)
    source, target = PIPE_NAMES[int(m[ml.V_ENGINE])], PIPE_NAMES[int(m[ml.V_ENGINE_2])]
    event = f"event {int(m[ml.V_AT])} from {source} to {target}"
    return f"{event} {messages.SET_AGAIN}:\n  wait by {before}\n  set by {now}"


def _who(monitor: Monitor, first: int) -> str:
    """Name the core, the engine and the instruction of an access; ``first`` is `V_CORE` or `V_CORE_2`."""
    engine, flags = int(monitor.m[first + 1]), int(monitor.m[first + 3])
    pipe = PIPE_NAMES[min(engine, ml.ENGINE_DMA)]
    where = report.where(monitor.trial.pod, *_core_and_site(monitor, first))
    return f"{'write' if flags & 1 else 'read'} ({pipe}) by {where}"


def _core_and_site(monitor: Monitor, first: int) -> tuple[int, int]:
    """Global number of a core and its instruction; ``first`` is `V_CORE` or `V_CORE_2`."""
    m = monitor.m
    return int(m[int(m[ml.CORE_NUMBER]) + int(m[first])]), int(m[first + 2])


def _livelock(monitor: Monitor) -> str:
    pod = monitor.trial.pod
    lines = [f"the run does not end: {int(monitor.m[ml.TAKEN])} actions, others take {monitor.limits.typical}"]
    return "\n".join([*lines, *(f"  {line}" for line in messages.not_done(pod))])


def asks(code: int) -> Callable[[Pod], str]:
    """Return a function that says what the core of the next action asks for; nothing for actions of pipes and dies."""
    core, pipe = divmod(code >> ms.CHOICE_BITS, ms.ACTORS_PER_CORE)
    return lambda pod: report.request(pod, core) if core < pod.spec.n_cores and pipe == SCALAR else ""


def describe_round(pod: Pod, loop: int, sites: Sequence[str]) -> str:
    """The message of a livelock, the pod standing at the end of a loop in which its cores asked for ``sites``."""
    steps = "this step leads" if loop == 1 else f"these {loop} steps lead"
    lines = [f"livelock: {steps} back to the same state, and can go on for ever"]
    lines += [f"  not done: {line}" for line in messages.not_done(pod)]
    lines += [f"  in the loop: {site}" for site in dict.fromkeys(sites) if site]
    return "\n".join(lines)
