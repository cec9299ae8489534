"""Lamport's all-reduce cleans the buffer of the next call, in which a faster rank has published already.

    xccl-emu check corpus/next_buffer_cleaned/next_buffer_cleaned.py:Broken
"""

from dataclasses import dataclass

from xccl_emu.check.verdict import DATA_RACE
from xccl_emu.protocol.corpus import Member
from xccl_emu.protocols.collectives.lamport import Lamport

MEMBER = Member(
    ("vllm-project/vllm#53000", "coreweave/ml-containers#215", "coreweave/ml-containers#216"), DATA_RACE,
    "two calls; a rank that is a call ahead",
)  # fmt: skip


@dataclass(frozen=True)
class Mended(Lamport):
    """A rank empties buffer (call + 2) % 3, the buffer of the call before."""


@dataclass(frozen=True)
class Broken(Mended):
    """A rank empties buffer (call + 1) % 3, the buffer of the next call."""

    emptied = 1
