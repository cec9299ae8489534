"""Options of ``xccl-emu run sendrecv``."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xccl_emu.options import option
from xccl_emu.runs import Run

if TYPE_CHECKING:
    from xccl_emu.bench.stage import Stage


@dataclass(frozen=True)
class SendRecvRun(Run):
    """Send a payload from die to die and compare what arrived byte by byte; exit code 1 if a byte is wrong."""

    name = "sendrecv"

    file: Path | None = option(None, "File to send [default: random bytes]")
    nbytes: str | None = option(
        None, "Random bytes in place of a file; K, M and G are powers of 1024 [default: 1M]"
    )
    source: int | None = option(None, "Die that sends [default: 0]", least=0, most=767)
    target: int | None = option(None, "Die that receives [default: 767]", least=0, most=767)
    permutation: bool = option(False, "Every die sends to a random other at once.", named=("--permutation",))
    cores: int = option(2, "Cores on each side.", least=1, most=48)
    slots: int = option(4, "Slots of each core's ring.", least=1)
    path: str = option("mtu", "mtu, dma or zero-copy.")
    rounds: int = option(1, "Transfers one after the other over the same ring.", least=1)

    def start(self, stage: "Stage", say: Callable[[str], None]) -> Any:
        """As `Run.start`."""
        from xccl_emu.runs.jobs.sendrecv import run_sendrecv

        return run_sendrecv(self, stage)
