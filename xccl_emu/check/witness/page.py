"""A violation as a page: its picture and steps, the source, and what flags and the racing bytes hold at each step."""

from collections.abc import Callable, Sequence

from xccl_emu.check.trial import Trial
from xccl_emu.check.verdict import Violation
from xccl_emu.check.witness import highlight, picture
from xccl_emu.check.witness.format import number
from xccl_emu.check.witness.render import RenderedRow, below, blocked, rows, short
from xccl_emu.check.witness.replayer import Replayer
from xccl_emu.check.witness.trace import RunTrace, steps
from xccl_emu.machine import report
from xccl_emu.pages.page import Page, PageLine

_COLUMNS = ("", "#", "who", "action", "where", "value")


def page(fresh: Callable[[], Trial], violation: Violation, title: str) -> str:
    """The page, as text.

    ``fresh`` makes the trial on which the violation is replayed, twice; ``title`` is what was checked.  Raises
    ReplayError if the violation's schedule is not one of it.
    """
    actions = violation.actions.tolist()
    trial = fresh()
    trace = steps(trial, actions)
    marked = highlight.marks(trace, violation)
    lines = rows(trace, marked)
    why = [(line, (one.why,)) for line, one in zip(blocked(trace), trace.waiting, strict=True)]
    words = _words(trial, trace, marked)
    headline, *more = short(violation.message).splitlines() or [""]
    head, body = picture.parts(trace, lines)
    return Page(
        title, [headline, *below(trace, marked), *(more[2:] if "A" in marked.values() else more)], picture.LEGEND,
        head, body, _COLUMNS, [_line(line, also, len(actions)) for line, also in [*((one, ()) for one in lines), *why]],
        row=picture.ROW, words=list(words), memory=_values(fresh(), actions, list(words.values())),
    ).text()  # fmt: skip


def _line(line: RenderedRow, more: Sequence[str], last: int) -> PageLine:
    step, source = line.step, line.step.source
    words = [step.words(), *(each.words() for each in line.also)]
    action = "; ".join([words[0], *(each.removeprefix("issue ") for each in words[1:])])
    place = "" if source is None else short(f"{source.file}:{source.line}, kernel {source.kernel}")
    who = f"{step.who}.{step.pipe}"
    texts = (f"step {line.numbers}: {who}" if line.numbers else f"never done: {who}", *words, step.place, step.value)
    before, after = (line.first - 1, line.last) if line.first else (last, last)
    return PageLine(
        (line.mark, line.numbers, who, action, step.place, step.value),
        [short(each) for each in (*texts, *more) if each],
        "marked" if line.mark else "off" if step.switched_off else "",
        *("", 0) if source is None else (source.file, source.line), place, before, after,
    )  # fmt: skip


def _words(trial: Trial, trace: RunTrace, marked: dict[int, str]) -> dict[str, int]:
    """Words of memory that somebody polls, adds to, or loads by name, or that are marked: in words, and where."""
    taken = [access for step in trace.steps for access in step.accesses if access.synchronizes and access.nbytes <= 8]
    raced = [access for step in trace.steps if step.number in marked for access in step.accesses]
    polled = [one.step.address or 0 for one in trace.waiting if one.step.operation == "poll"]
    found = {*(access.start for access in (*taken, *raced)), *polled}
    return {report.symbolic(trial.pod, at): at for at in sorted(found) if trace.die_of(at) >= 0}


def _values(trial: Trial, actions: Sequence[int], addresses: Sequence[int]) -> list[list[str]]:
    """Return what the words hold at first and after each action: [actions + 1][words]."""
    replayer, memory = Replayer(trial.pod), trial.pod.memory

    def words() -> list[str]:
        return [number(int.from_bytes(memory[at : at + 8].tobytes(), "little", signed=True)) for at in addresses]

    return [words(), *(words() for code in actions if replayer.take(code) is not None)]
