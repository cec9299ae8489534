"""The scenarios by the names that the command knows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from xccl_emu.errors import ConfigError
from xccl_emu.protocol import registry
from xccl_emu.scenarios.a2e import A2ECheck
from xccl_emu.scenarios.common import Scenario
from xccl_emu.scenarios.fused import FusedCheck
from xccl_emu.scenarios.moe import MoeCheck
from xccl_emu.scenarios.sendrecv import SendRecvCheck


@dataclass(frozen=True)
class Shipped:
    """A scenario that ships: what makes it, which of its sizes are not the usual ones, and what it is."""

    maker: registry.Maker
    usual: Mapping[str, Any]
    about: str


SHIPPED = {
    "sendrecv": Shipped(SendRecvCheck, {}, "Send and receive through a ring of slots"),
    "sendrecv-dma": Shipped(SendRecvCheck, {"path": "dma"}, "The same, each chunk copied by a DMA engine"),
    "sendrecv-zero-copy": Shipped(SendRecvCheck, {"path": "zero-copy"}, "Read from the sender's buffer, no ring"),
    "sendrecv-async": Shipped(SendRecvCheck, {"asynchronous": True}, "isend and irecv, in passes until both are done"),
    "sendrecv-both": Shipped(SendRecvCheck, {"both_ways": True}, "Each core sends and receives in turn"),
    "dispatch": Shipped(MoeCheck, {"kind": "dispatch"}, "Pull dispatch of tokens to the dies of their experts"),
    "combine": Shipped(MoeCheck, {"kind": "combine", "quantized": False}, "Pull combine of what the experts return"),
    "moe": Shipped(MoeCheck, {"kind": "moe"}, "Dispatch, a stand-in expert, combine, in one launch"),
    "fused": Shipped(FusedCheck, {"cores": 2}, "CANN's FusedDispatch and FusedCombine"),
    "a2e": Shipped(A2ECheck, {}, "Attention and experts on dies of their own, through trampolines"),
    "a2e-urma": Shipped(A2ECheck, {"path": "urma"}, "The same by URMA: DMA descriptors"),
    "a2e-pull": Shipped(A2ECheck, {"pull": True}, "The same by plain pull, without trampolines"),
}

NAMES = tuple(SHIPPED)
"""Names of all scenarios."""


def make(name: str, **sizes: Any) -> Scenario:
    """The scenario of that name, or of ``file.py:Name``, with its usual sizes, some of them changed.

    Raises ConfigError for an unknown name, a size that the scenario does not have, or one out of range.
    """
    maker, usual = maker_of(name)
    made: Scenario = registry.make(maker, name.rpartition(":")[2], {**usual, **sizes})
    return made


def maker_of(name: str) -> tuple[registry.Maker, Mapping[str, Any]]:
    """What makes the scenario of a name, and sizes that differ from its usual ones; ConfigError if there is none."""
    if isinstance(name, str) and name in SHIPPED:
        return SHIPPED[name].maker, SHIPPED[name].usual
    if isinstance(name, str) and ":" in name:
        return registry.of_file(name), {}
    found = registry.found()
    if not isinstance(name, str) or name not in found:
        raise ConfigError(f"protocol {name!r}: must be one of {', '.join((*NAMES, *found))}, or FILE.py:NAME")
    return found[name], {}
