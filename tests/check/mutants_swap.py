"""Bugs in changes of experts while layers run."""

from xccl_emu.protocols.serving.swap import DispatchSwap, FusedSwap

from .kinds import FAILED, LOCKED, RACE, TORN, WRONG
from .mutants import Of, bug

PULL = DispatchSwap(granules=1, tokens="2,0")
FUSED = FusedSwap(granules=1, tokens="2,0")

of, of_swap, of_messages = Of("serving.reconfigure"), Of("serving.swap"), Of("experts.messages")

# ---- what is in the kernels

GRACE = "    if s.grace:\n"
TABLE = "(version % 2 * s.experts + e) * FIELD_BYTES"
LOADED = "    yield xl.mtu_out(0, s.weights + slot * s.nbytes, s.nbytes, step=3)\n"
ENABLED = "    yield from publish(2 * i + 2, expert, slot, between, s)\n"
ANY = RACE | WRONG | FAILED | TORN


def of_case(name: str, case: DispatchSwap | FusedSwap) -> tuple:
    """Bugs of the swap, the same however tokens travel."""
    return (
        bug(f"{name}: no grace period", case, ANY, of(GRACE, "    if s.grace == 2:\n"), quick=True),
        bug(f"{name}: one table for all maps", case, ANY, of(TABLE, "e * FIELD_BYTES"),
            of("(version % 2 * s.experts + expert)", "expert")),
        bug(f"{name}: weights with no quiet", case, ANY, of.without("weights before map")),
        bug(f"{name}: the slot is enabled before it is loaded", case, ANY,
            of(ENABLED, ""), of(LOADED, ENABLED + LOADED)),
        bug(f"{name}: messages without the version of their map", case, WRONG | FAILED,
            of_messages("    if version:\n", "    if version < 0:\n")),
        bug(f"{name}: a rank that has ended does not say so", case, LOCKED,
            of_swap("if core == 0:\n        yield from leave", "if core < 0:\n        yield from leave")),
    )  # fmt: skip


KNOWN = of_case("dispatch-swap", PULL)
OWN = of_case("fused-swap", FUSED)
