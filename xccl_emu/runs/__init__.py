"""Protocols at full size, on the whole pod: `xccl-emu run`, each held against its oracle.

A module of this package has the options of one, and nothing that takes time to import; `jobs` has what is done.
"""

import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from xccl_emu.options import option

if TYPE_CHECKING:
    from xccl_emu.stage import Stage


@dataclass(frozen=True)
class Run:
    """What all of them are asked."""

    name: ClassVar[str] = ""
    """Of the command."""

    order: str = option("sc", "Memory order: sc, fifo or relaxed.")
    policy: str = option("round-robin", "Which core steps next: round-robin or random.")
    seed: int = option(0, "Seed of the payload, the routing and the random policy.", least=0)

    def start(self, stage: "Stage", say: Callable[[str], None]) -> Any:
        """Do it; the result has what is ``wrong``, a ``table`` and a ``closing`` line.  ``say`` tells a note first."""
        raise NotImplementedError(f"{type(self).__name__}.start")


@dataclass(frozen=True)
class LayerRun(Run):
    """Of a layer of a mixture of experts."""

    tokens: int = option(60, "Tokens of each rank.", least=0)
    hidden: int = option(7168, "Elements of a hidden state, a multiple of 32.", least=32)
    top_k: int | None = option(None, "Routed experts of a token [default: 8]", least=1, most=15)
    routing: Path | None = option(None, "Expert loads (JSON) or recorded choices (JSONL).")
    layer: int | None = option(None, "Layer of the loads [default: the first MoE layer]", least=0)
    dtype: str = option("bf16", "Type of hidden states: bf16 or fp16.")
    quantizer: str = option("xccl", "Whose rule makes the INT8: xccl or cann.")


@dataclass(frozen=True)
class GroupRun(LayerRun):
    """Where every rank has tokens and experts."""

    ranks: int | None = option(None, "Ranks, one a die", least=2, most=768)
    rounds: int = option(1, "Layers one after the other, each with other tokens.", least=1)
    at_once: int | None = option(
        None, "Tokens of a rank that go at once, the others behind them [default: all, or what fits]", least=1
    )  # fmt: skip
    cores: int = option(4, "Cores used on each die.", least=1, most=48)
    path: str = option("", "How data travels.")
    counting: str = option("auto", "How places of messages are counted: auto, vector or scalar.")
    quantized: bool = option(True, "INT8 on the wire.", named=("--quantize/--no-quantize",))
    redundant: int | None = option(0, "Replicas of the hottest routed experts.", least=0)
    redundant_slots: int = option(
        0, "Slots for replicas alone on every die [0: on dies or in slots behind the experts]", least=0
    )


def found() -> Mapping[str, type[Run]]:
    """Every run that there is, by name."""
    modules = [import_module(f"{__name__}.{each.name}") for each in pkgutil.iter_modules(__path__) if not each.ispkg]
    kinds = [kind for module in modules for kind in vars(module).values() if isinstance(kind, type)]
    return {kind.name: kind for kind in kinds if issubclass(kind, Run) and kind.name}
