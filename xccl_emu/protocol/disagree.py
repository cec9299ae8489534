"""A rank that calls with another size than the others do, as a host does that has counted otherwise.

Its kernels are launched as if all ranks had its sizes: their cores, their arguments, and where they look for fields
and blocks.  Where a call by its sizes gives the same as one by theirs, all must get that.  Where it does not, nobody
says what outputs are to be: then a check judges what blocks, races, reads what nobody wrote, or is out of place.
Predicates cannot be compared: where one judges an output (`Bench.judged_by`), no output is judged.
"""

from collections.abc import Collection
from dataclasses import replace

from xccl_emu.base.errors import ConfigError
from xccl_emu.check.trial import Trial
from xccl_emu.machine.pod import Pod
from xccl_emu.protocol.bench import of_spec
from xccl_emu.protocol.case import Case, FunctionCase
from xccl_emu.protocol.sequence import Shared, launches, room_for


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
    specs = [case.spec(), other.spec()]
    if die >= (n_dies := specs[0].n_dies):
        raise ConfigError("rank", said, f"out of range 0..{n_dies - 1}")
    if specs[1].n_dies != n_dies:
        raise ConfigError("rank", said, f"is of a pod with {specs[1].n_dies} dies, this one has {n_dies}")
    spec = room_for(specs).with_(**of_spec(case.pod_sizes))

    pod, *pods = (Pod(spec, order=order, without=without) for _ in range(3))
    benches = [Shared(each, case.pod_sizes) for each in pods]
    for bench, which in zip(benches, (case, other), strict=True):
        bench.payload = payload
        which.lay_out(bench)
    theirs, own = (bench.trial() for bench in benches)
    pod.memory[:] = theirs.pod.memory
    first, nbytes = die * spec.die_bytes, spec.die_bytes
    pod.span(first, nbytes)[:] = own.pod.span(first, nbytes)
    for each in (one for of in (theirs, own) for one in launches(of.pod) if (one.die == die) == (of is own)):
        pod.launch(each.kernel, each.die, each.cores, each.named, each.grants)
    running = {*pod.active_cores()}

    def here(address: int, of: Trial) -> bool:
        return (address // spec.die_bytes == die) == (of is own)

    outputs = [[each.data for each in of.expected if each.judge is None] for of in (theirs, own)]
    judged = any(each.judge for of in (theirs, own) for each in of.expected)
    same = outputs[0] == outputs[1] and not judged
    expected = [e for of in (theirs, own) for e in of.expected if same and here(e.ranges[0][0], of)]
    return replace(
        theirs,
        pod=pod,
        expected=tuple(replace(e, cores=tuple(core for core in e.cores if core in running)) for e in expected),
        filled=tuple(b for of in (theirs, own) for b in of.filled if here(b.address, of)),
        labels=tuple(b for of in (theirs, own) for b in of.labels if here(b.address, of)),
    )
