"""The configurations in which every shipped protocol is to be verified, and the true size of a token."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from xccl_emu.scenarios.common import Scenario
from xccl_emu.scenarios.moe import KINDS, MoeCheck
from xccl_emu.scenarios.sendrecv import SendRecvCheck

TRUE_PIECES = {"dispatch": 224, "combine": 448, "moe": 224}
"""Pieces of a token at hidden size 7168: with the slot behind it 240 of a message, and 448 of a row that comes back."""


def _sendrecv() -> Iterator[tuple[str, Scenario]]:
    yield "one core", SendRecvCheck()
    yield "one core, longer", SendRecvCheck(chunks=32, pieces=8)
    yield "four cores", SendRecvCheck(cores=4)
    yield "both directions on one core", SendRecvCheck(slots=2, chunks=4, both_ways=True)
    yield "asynchronous", SendRecvCheck(slots=2, chunks=4, asynchronous=True)
    yield "DMA", SendRecvCheck(slots=2, chunks=4, path="dma")
    yield "zero-copy", SendRecvCheck(slots=2, chunks=4, path="zero-copy")
    yield "three transfers back to back", SendRecvCheck(slots=2, chunks=3, pieces=2, rounds=3)


def _moe(kind: str) -> Iterator[tuple[str, MoeCheck]]:
    # A row that comes back has at least two pieces, because hidden states have a multiple of 32 elements.
    quantized, least = kind != "combine", 2 if kind == "combine" else 1
    yield "two ranks, two tokens", MoeCheck(kind, 2, 1, 2, 4, rounds=2, quantized=quantized)
    yield "three ranks, one token", MoeCheck(kind, 3, 1, 1, 2, rounds=3, quantized=quantized)
    yield "four ranks, one token", MoeCheck(kind, 4, 1, 1, least, rounds=1, quantized=quantized)
    yield "a rank with no tokens", MoeCheck(kind, 2, 1, (2, 0), 4, rounds=3, quantized=quantized)
    yield "two cores a rank", MoeCheck(kind, 2, 2, 2, 4, rounds=2, quantized=quantized)


def configurations() -> Mapping[str, Scenario]:
    """All of them, by protocol and what is particular, as in ``"dispatch: two ranks, two tokens"``."""
    named = {f"sendrecv: {what}": scenario for what, scenario in _sendrecv()}
    return named | {f"{kind}: {what}": scenario for kind in KINDS for what, scenario in _moe(kind)}


def true_size(scenario: MoeCheck) -> MoeCheck:
    """The same configuration with tokens of the true size."""
    return replace(scenario, pieces=TRUE_PIECES[scenario.kind])
