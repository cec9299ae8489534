"""The configurations in which every shipped protocol is to be verified, and the true size of a token."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from xccl_emu.protocol.registry import found
from xccl_emu.scenarios.a2e import A2ECheck
from xccl_emu.scenarios.common import Scenario
from xccl_emu.scenarios.fused import FusedCheck
from xccl_emu.scenarios.moe import KINDS, MoeCheck
from xccl_emu.scenarios.registry import maker_of
from xccl_emu.scenarios.sendrecv import SendRecvCheck

TRUE_PIECES = {"dispatch": 224, "combine": 448, "moe": 224, "fused": 224}
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


def _fused() -> Iterator[tuple[str, FusedCheck]]:
    usual = FusedCheck(ranks=2, cores=2, tokens=2, rounds=3)
    yield "two ranks, two tokens", usual
    yield "three ranks, one token", replace(usual, ranks=3, tokens=1)
    yield "one core", replace(usual, cores=1)
    yield "two experts a die", replace(usual, experts=2, top_k=2)
    yield "a masked choice", replace(usual, masked=True)
    yield "a rank with no tokens", replace(usual, tokens="2,0")
    yield "SDMA", replace(usual, path="sdma")
    yield "late quantization", replace(usual, early_quantization=False)
    yield "nothing quantized", replace(usual, quantized=False, pieces=2)
    yield "no allocation in advance", replace(usual, preallocated=False)
    yield "no pipeline", replace(usual, pipelined=False)


def _a2e() -> Iterator[tuple[str, A2ECheck]]:
    usual = A2ECheck()
    yield "a2e: two attention dies, three expert dies", usual
    yield "a2e: three calls, two of them at once", replace(usual, rounds=3, depth=2)
    yield "a2e: no call at all", replace(usual, rounds=0)
    yield "a2e: an attention die with no tokens", replace(usual, tokens="1,0")
    yield "a2e: a masked choice", replace(usual, masked=True, top_k=2, pieces=2)
    yield "a2e: two domains", A2ECheck(domains=2, attention=1, experts=2, rounds=4, tokens=2)
    yield "a2e: two domains, two calls at once", A2ECheck(domains=2, attention=1, experts=1, rounds=3, depth=2)
    yield "a2e: two cores", A2ECheck(attention=1, experts=2, tokens=2, top_k=2, cores=2)
    yield "a2e: two experts a die", A2ECheck(attention=1, experts=2, local=2, tokens=2, top_k=2)
    yield "a2e: URMA", replace(usual, path="urma")
    descriptors_again = A2ECheck(attention=1, experts=1, tokens=9, rounds=1, path="urma")
    yield "a2e: URMA, every descriptor used again", descriptors_again
    yield "a2e-pull: two attention dies, three expert dies", replace(usual, pull=True)


def configurations() -> Mapping[str, Scenario]:
    """All of them, by protocol and what is particular, as in ``"dispatch: two ranks, two tokens"``."""
    named = {f"sendrecv: {what}": scenario for what, scenario in _sendrecv()}
    named |= {f"{kind}: {what}": scenario for kind in KINDS for what, scenario in _moe(kind)}
    named |= {f"fused: {what}": scenario for what, scenario in _fused()} | dict(_a2e())
    return named | {f"{name}: {what}": case for name in found() for what, case in proofs_of(name).items()}


Layers = TypeVar("Layers", MoeCheck, FusedCheck)


def true_size(scenario: Layers) -> Layers:
    """The same configuration with tokens of the true size."""
    return replace(scenario, pieces=TRUE_PIECES[scenario.name])


def proofs_of(name: str) -> Mapping[str, Scenario]:
    """Those of one protocol, by what is particular."""
    maker, _ = maker_of(name)
    if hasattr(maker, "proofs"):
        own: Mapping[str, Scenario] = maker.proofs()
        return own
    return {what: scenario for what, scenario in configurations().items() if scenario.name == name}
