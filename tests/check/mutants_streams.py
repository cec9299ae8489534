"""Bugs in the hand-over of microbatches between two streams."""

from dataclasses import replace

from xccl_emu.protocols.serving.two_streams import PrefillStreams, TwoStreams

from .kinds import LOCKED, RACE, TORN, UNWRITTEN, WRONG
from .mutants import Of, bug

SIZES = dict(cores=1, tokens=1, rounds=2)
DECODE, PREFILL = TwoStreams(**SIZES), PrefillStreams(**SIZES, path="sdma")
BAD = RACE | WRONG | UNWRITTEN | TORN

of = Of("serving.two_streams")


def of_case(name: str, case: TwoStreams) -> tuple:
    """Bugs of the hand-over, the same whatever a stream does."""
    return (
        bug(f"{name}: no event is awaited", case, BAD,
            of("xl.poll_ge(word, least,", "xl.poll_ge(word, 0,"), quick=True),
        bug(f"{name}: the event of the layer before is enough", case, BAD,
            of("xl.poll_ge(word, least,", "xl.poll_ge(word, least - 1,")),
        bug(f"{name}: attention takes what it gave away, not what came back", case, WRONG | RACE,
            of("    if first:\n", "    if first >= 0:\n")),
        bug(f"{name}: each core of a stream records the event", replace(case, attention=2, tokens=2), BAD,
            of("    if core == 0:\n", "    if core >= 0:\n")),
        bug(f"{name}: no core records the event", case, LOCKED, of("    if core == 0:\n", "    if core < 0:\n")),
    )  # fmt: skip


KNOWN = of_case("two-streams", DECODE)
OWN = of_case("prefill-streams", PREFILL)
