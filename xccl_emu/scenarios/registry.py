"""The scenarios by the names that the command knows."""

from collections.abc import Callable
from functools import partial
from typing import Any

from xccl_emu.errors import ConfigError
from xccl_emu.scenarios.common import Scenario
from xccl_emu.scenarios.moe import MoeCheck
from xccl_emu.scenarios.sendrecv import SendRecvCheck

_FACTORIES: dict[str, Callable[..., Scenario]] = {
    "sendrecv": SendRecvCheck,
    "sendrecv-dma": partial(SendRecvCheck, path="dma"),
    "sendrecv-zero-copy": partial(SendRecvCheck, path="zero-copy"),
    "sendrecv-async": partial(SendRecvCheck, asynchronous=True),
    "sendrecv-both": partial(SendRecvCheck, both_ways=True),
    "dispatch": partial(MoeCheck, kind="dispatch"),
    "combine": partial(MoeCheck, kind="combine", quantized=False),
    "moe": partial(MoeCheck, kind="moe"),
}

NAMES = tuple(_FACTORIES)
"""Names of all scenarios."""


def make(name: str, **sizes: Any) -> Scenario:
    """The scenario of that name with its usual sizes, some of them changed.

    Raises ConfigError for an unknown name, a size that the scenario does not have, or one out of range.
    """
    if name not in _FACTORIES:
        raise ConfigError(f"protocol {name!r}: must be one of {', '.join(NAMES)}")
    try:
        return _FACTORIES[name](**sizes)
    except TypeError as error:
        raise ConfigError(f"protocol {name!r}: {error}") from error
