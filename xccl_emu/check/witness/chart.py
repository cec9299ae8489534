"""A run as a Mermaid sequence chart: cores, the memories of dies, and what passes between them."""

from collections.abc import Iterator

from xccl_emu.check.witness.highlight import LOOP, ROUND
from xccl_emu.check.witness.render import RenderedRow, rows
from xccl_emu.check.witness.trace import PERFORM, RunTrace, TraceStep
from xccl_emu.lang import operations as ops

_LOCAL = ops.names(ops.FLAGS)
_REPLACED = {";": ",", "#": "no. ", "\n": " ", "%": " percent "}


def mermaid(trace: RunTrace, marked: dict[int, str] | None = None) -> str:
    """The chart as text.  Flags, and what stays in a data buffer, are left out.

    Cores and memories of dies are participants.  An open arrow is a write that leaves its core, a closed one a write
    that becomes visible, a dashed one something that is read.
    """
    lines = rows(trace, marked)
    arrows = [text for line in lines for text in _marked(trace, line)]
    last = ["end"] if any(line.mark == LOOP for line in lines) else []
    last += [f"Note over {core_name(trace, one.step.core)}: blocked, {_text(one.why)}" for one in trace.waiting]
    return "\n".join(["sequenceDiagram", *(f"    {text}" for text in (*_participants(trace), *arrows, *last)), ""])


def core_name(trace: RunTrace, core: int) -> str:
    """The participant that a core is."""
    die, on_die = divmod(core, trace.cores_per_die)
    return f"d{die}c{on_die}"


def _participants(trace: RunTrace) -> Iterator[str]:
    """Yield the participants: for each die its cores, then its memory, as far as they take part."""
    cores = sorted({step.core for step in trace.steps})
    touched = {trace.die_of(access.start) for step in trace.steps for access in step.accesses}
    touched |= {trace.die_of(write.address) for write in trace.writes}
    for die in range(trace.n_homes):
        for core in cores:
            if core // trace.cores_per_die == die:
                yield f"participant {core_name(trace, core)} as {trace.home(die)}.core{core % trace.cores_per_die}"
        if die in touched:
            yield f"participant m{die} as memory of {trace.home(die)}"


def _marked(trace: RunTrace, line: RenderedRow) -> list[str]:
    """A line's arrow or note; on red ground, and in any case there, if it is marked.  A loop begins with its first."""
    texts = list(_arrows(trace, line))
    if line.mark == LOOP:
        return [f"loop {ROUND}", *texts]
    if not line.mark:
        return texts
    note = f"Note over {core_name(trace, line.step.core)}: {_text(f'{line.numbers} {line.mark} {line.step.words()}')}"
    return ["rect rgb(255, 210, 210)", *(f"    {text}" for text in texts or [note]), "end"]


def _arrows(trace: RunTrace, line: RenderedRow) -> Iterator[str]:
    """Yield what a line of the table is in the chart: an arrow, a note, or nothing."""
    step, core = line.step, core_name(trace, line.step.core)
    text = _text(f"{line.numbers} {line.mark} {step.words()} {step.value}")
    if step.switched_off or (step.operation == "fault" and not step.landed):
        yield f"Note over {core}: {text}"
    elif step.pipe == PERFORM and step.address is not None:
        yield f"{core}->>m{trace.die_of(step.address)}: {text} at {_text(step.place)}"
    elif step.issues or step.operation in _LOCAL:
        return
    elif step.left or step.landed:
        yield from _writes(trace, step, core, text)
    elif step.address is not None and (die := trace.die_of(step.address)) >= 0:
        yield f"m{die}-->>{core}: {text} at {_text(step.place)}"
    elif step.address is None:
        yield f"Note over {core}: {text}"


def _writes(trace: RunTrace, step: TraceStep, core: str, text: str) -> Iterator[str]:
    """Writes that leave their core; under `sc`, and of an atomic, they are visible at once."""
    first = trace.writes[step.left[0]]
    arrow = "->>" if first.visible == step.number else "-)"
    yield f"{core}{arrow}m{trace.die_of(first.address)}: {text} at {_text(step.place)}"


def _text(words: str) -> str:
    """Words that Mermaid takes as they are: no separators, comments or line breaks."""
    for bad, good in _REPLACED.items():
        words = words.replace(bad, good)
    return " ".join(words.split())
