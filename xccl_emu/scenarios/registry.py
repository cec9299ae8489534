"""The scenarios by the names that the command knows."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from xccl_emu.errors import ConfigError
from xccl_emu.scenarios.a2e import A2ECheck
from xccl_emu.scenarios.common import Scenario
from xccl_emu.scenarios.fused import FusedCheck
from xccl_emu.scenarios.moe import MoeCheck
from xccl_emu.scenarios.sendrecv import SendRecvCheck

_Kind = type[SendRecvCheck] | type[MoeCheck] | type[FusedCheck] | type[A2ECheck]

_KINDS: dict[str, tuple[_Kind, Mapping[str, Any]]] = {
    "sendrecv": (SendRecvCheck, {}),
    "sendrecv-dma": (SendRecvCheck, {"path": "dma"}),
    "sendrecv-zero-copy": (SendRecvCheck, {"path": "zero-copy"}),
    "sendrecv-async": (SendRecvCheck, {"asynchronous": True}),
    "sendrecv-both": (SendRecvCheck, {"both_ways": True}),
    "dispatch": (MoeCheck, {"kind": "dispatch"}),
    "combine": (MoeCheck, {"kind": "combine", "quantized": False}),
    "moe": (MoeCheck, {"kind": "moe"}),
    "fused": (FusedCheck, {"cores": 2}),
    "a2e": (A2ECheck, {}),
    "a2e-urma": (A2ECheck, {"path": "urma"}),
    "a2e-pull": (A2ECheck, {"pull": True}),
}

NAMES = tuple(_KINDS)
"""Names of all scenarios."""


def make(name: str, **sizes: Any) -> Scenario:
    """The scenario of that name with its usual sizes, some of them changed.

    Raises ConfigError for an unknown name, a size that the scenario does not have, or one out of range.
    """
    if not isinstance(name, str) or name not in _KINDS:
        raise ConfigError(f"protocol {name!r}: must be one of {', '.join(NAMES)}")
    kind, usual = _KINDS[name]
    known = [each.name for each in fields(kind)]
    unknown = [size for size in sizes if size not in known]
    if unknown:
        raise ConfigError(f"{unknown[0]}={sizes[unknown[0]]!r}: {name} has no such size, but {', '.join(known)}")
    return kind(**{**usual, **sizes})
