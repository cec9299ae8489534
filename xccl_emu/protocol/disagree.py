"""A rank that calls with another size than the others do, as a host does that has counted otherwise.

Its kernels are launched as if all ranks had its sizes: their cores, their arguments, and where they look for fields
and blocks.  Where a call by its sizes gives the same as one by theirs, all must get that.  Where it does not, nobody
says what outputs are to be: then a check judges what blocks, races, reads what nobody wrote, or is out of place.
Predicates cannot be compared: where one judges an output (`Bench.judged_by`), no output is judged.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Protocol

from xccl_emu.base.errors import ConfigError
from xccl_emu.check.trial import Trial
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import PodSpec
from xccl_emu.protocol.bench import Bench, Shared, launches, of_spec, room_for


class Called(Protocol):
    """What this needs of a case (`Case`)."""

    pod_sizes: Mapping[str, int | str]

    def spec(self) -> PodSpec:
        """Return the pod that it asks for."""

    def lay_out(self, bench: Bench) -> None:
        """Launch it."""


def one_size(said: str) -> tuple[int, str, str]:
    """Return die, name of a size and value of ``N:SIZE=VALUE``; ConfigError for other text."""
    die, colon, one = said.partition(":")
    name, equals, value = one.partition("=")
    if not (die.isdecimal() and colon and equals):
        raise ConfigError("rank", said, "must be N:SIZE=VALUE, such as 1:tokens=3")
    return int(die), name.replace("-", "_"), value


def build(said: str, case: Called, other: Called, order: str, without: Collection[str], payload: bool) -> Trial:
    """Build a case in which the rank on one die is launched as another case launches it."""
    die, specs = one_size(said)[0], [case.spec(), other.spec()]
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
