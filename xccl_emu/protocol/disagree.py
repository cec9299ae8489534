"""A rank that calls with another size than the others do, as a host does that has counted otherwise.

Its kernels are launched as if all ranks had its sizes: their number of cores, their arguments, and where they look for
fields and blocks are by its own count.  Nobody says what such a call is to give.  The others must get what they would
have without it, and the rank what it would have if all had its sizes; where it blocks, overwrites or misreads, the
check finds a violation of one of its kinds.
"""

from collections.abc import Collection
from dataclasses import replace

from xccl_emu.base.errors import ConfigError
from xccl_emu.check.trial import Expected, Trial
from xccl_emu.machine.pod import Pod
from xccl_emu.protocol.bench import OF_SPEC
from xccl_emu.protocol.case import Case, FunctionCase
from xccl_emu.protocol.sequence import Shared, launches, room


def parsed(case: Case, said: str) -> tuple[int, Case]:
    """Return the die of the rank, and the case with its size; ConfigError for what no rank can call with."""
    die, colon, one = said.partition(":")
    name, equals, text = one.partition("=")
    name = name.replace("-", "_")
    if not (die.isdecimal() and colon and equals):
        raise ConfigError("rank", said, "must be N:SIZE=VALUE, such as 1:tokens=3")
    sizes = [*(case.values if isinstance(case, FunctionCase) else (each.name for each in case.sizes()))]
    if name not in sizes:
        raise ConfigError("rank", said, f"{case.name} has no such size, but {', '.join(sizes)}")
    other = case.resized({name: int(text) if text.isdecimal() else text})  # type: ignore[dict-item]
    if other.configuration == case.configuration:
        raise ConfigError("rank", said, "is what all ranks call with")
    return int(die), other


def build(case: Case, said: str, order: str, without: Collection[str], payload: bool) -> Trial:
    """Build a case in which one rank, on the die of that number, is launched as another case launches it."""
    die, other = parsed(case, said)
    of_spec = {name: value for name, value in case.pod_sizes.items() if name in OF_SPEC}
    spec = room([case.spec(), other.spec()]).with_(**of_spec)
    if die >= spec.n_dies:
        raise ConfigError("rank", said, f"out of range 0..{spec.n_dies - 1}")

    def laid_out(which: Case) -> Trial:
        bench = Shared(Pod(spec, order=order, without=without), case.pod_sizes)
        bench.payload = payload
        which.lay_out(bench)
        return bench.trial()

    theirs, own = laid_out(case), laid_out(other)
    pod = Pod(spec, order=order, without=without)
    there = slice(die * spec.die_bytes, (die + 1) * spec.die_bytes)
    pod.memory[:] = theirs.pod.memory
    pod.memory[there] = own.pod.memory[there]
    for trial in (theirs, own):
        for each in launches(trial.pod):
            if (each.die == die) == (trial is own):
                pod.launch(each.kernel, each.die, each.cores, each.named, each.grants)
    running = {*pod.active_cores()}

    def due(each: Expected) -> Expected:
        return replace(each, cores=tuple(core for core in each.cores if core in running))

    def here(address: int, of: Trial) -> bool:
        return (address // spec.die_bytes == die) == (of is own)

    return replace(
        theirs,
        pod=pod,
        expected=tuple(due(e) for of in (theirs, own) for e in of.expected if here(e.ranges[0][0], of)),
        filled=tuple(b for of in (theirs, own) for b in of.filled if here(b.address, of)),
        labels=tuple(b for of in (theirs, own) for b in of.labels if here(b.address, of)),
        stops={**own.stops, **theirs.stops},
    )
