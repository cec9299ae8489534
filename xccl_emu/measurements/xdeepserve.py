"""Figures of [xDeepServe], and numbers of its text."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from xccl_emu.errors import ConfigError
from xccl_emu.measurements import Measurement, Suite, Swept
from xccl_emu.options import option

if TYPE_CHECKING:
    from xccl_emu.bench.result import Result
    from xccl_emu.bench.setting import Setting

TRANSFERS_MAX = 1000
"""As `xccl_emu.bench.sendrecv.TRANSFERS_MAX`, which is not imported before a bench runs."""


@dataclass(frozen=True)
class SendRecv(Measurement):
    """Send and receive between two dies, as nccl-tests do: each size on each number of cores (Figure 5).

    Random bytes are moved and compared; "#wrong" counts bytes that did not arrive as they were sent. Time is virtual:
    it has no noise, and is from the start of send to its end, with the launch.
    """

    name = "sendrecv"
    suite = Suite(2, 6, 1.5, 1.0)

    begin: str = option("1K", "Least size; K, M and G are powers of 1024.", named=("-b", "--begin"))
    end: str = option("64M", "Largest size.", named=("-e", "--end"))
    factor: int = option(2, "From a size to the next.", named=("-f", "--factor"))
    iterations: int = option(
        1, "Transfers that the time is the mean of.", least=1, most=TRANSFERS_MAX, named=("-n", "--iterations")
    )
    warmup: int = option(1, "Transfers before them.", least=0, most=TRANSFERS_MAX, named=("-w", "--warmup"))
    cores: str = option("2,4,8,16,32,48", "Numbers of cores on each side.")
    to: str = option("pod", "Where the receiver is: sibling, node, pod, or several.")
    path: str = option("mtu", "mtu, dma or zero-copy.")
    slots: int = option(4, "Slots of each core's ring.", least=1)

    def rows(self, setting: "Setting") -> "list[Result]":
        """See the class."""
        from xccl_emu.bench.sendrecv import Sweep, sendrecv
        from xccl_emu.sizes import parse_whole, sizes_from

        sizes = sizes_from(self.begin, self.end, self.factor)
        to, cores = list(dict.fromkeys(self.to.split(","))), parse_whole("--cores", self.cores)
        return sendrecv(setting, Sweep(sizes, cores, to, self.iterations, self.warmup, self.path, self.slots))


@dataclass(frozen=True)
class Dispatch(Swept):
    """Pull dispatch and combine by batch, and which of them is faster (Figure 6).

    With --sweep, every EP degree with every batch instead, on all cores: bench dispatch --sweep ep=8:768 batch=1:128.
    A range doubles from its beginning, and has its end.
    """

    name = "dispatch"
    suite = Suite(3, 4, 9.0, 2.0)

    ranks: int = option(128, "Ranks, one a die.", least=2, most=768)
    batches: str = option("1,2,4,8,16,32,64,128", "Tokens of each rank.")
    cores: int = option(48, "Cores used on each die.", least=1, most=48)

    @property
    def cores_used(self) -> int:
        """As asked for."""
        return self.cores

    def rows(self, setting: "Setting") -> "list[Result]":
        """See the class."""
        from xccl_emu.bench.dispatch import dispatch
        from xccl_emu.sizes import parse_whole

        return dispatch(setting, self.ranks, parse_whole("--batches", self.batches), self.cores)


@dataclass(frozen=True)
class A2E(Measurement):
    """A2E and E2A of three domains, each of 160 attention dies of 96 tokens, and 288 expert dies.

    Through the data buffers with batches in parts. Beside that a call of one domain alone, in one part, and by URMA.
    """

    name = "a2e"
    suite = Suite(7, 2, 12.0, 3.2)

    def rows_in_suite(self, setting: "Setting") -> "list[Result]":
        """Return the rows of variants; the others are made with the budget."""
        from xccl_emu.bench.a2e import rows_beside

        return rows_beside(setting)


@dataclass(frozen=True)
class Iteration(Measurement):
    """Dispatch and combine in an iteration of decode: 288 dies, 120 tokens each, 576 expert slots (Figure 20)."""

    name = "iteration"
    suite = Suite(5, 1, 21.0, 3.5)


@dataclass(frozen=True)
class Eplb(Measurement):
    """What replicas of hot experts are worth to a layer on 288 dies, 120 tokens each (Figure 11b).

    Loads are as skewed as those measured of DeepSeek-V3, or are read from a file: as `run dispatch --routing` takes it.
    """

    name = "eplb"

    routing: str | None = option(None, "Measured loads of each layer's experts.", metavar="FILE")
    layer: int | None = option(None, "Which layer of that file [default: 30]", least=0)

    def rows(self, setting: "Setting") -> "list[Result]":
        """See the class."""
        from xccl_emu.bench.eplb import eplb
        from xccl_emu.routing import load_expert_loads

        if self.layer is not None and not self.routing:
            raise ConfigError(f"--layer {self.layer}: needs --routing FILE, whose layer it is")
        layer = 30 if self.layer is None else self.layer
        return eplb(setting, loads=load_expert_loads(self.routing).layer(layer) if self.routing else None)


@dataclass(frozen=True)
class Tpot(Measurement):
    """The decode budget of disaggregated attention and experts.

    Layers of three domains with two microbatches each are run through the persistent streams; TPOT follows from these.
    """

    name = "tpot"
    suite = Suite(6, 0, 12.0, 3.2)

    def rows_in_suite(self, setting: "Setting") -> "list[Result]":
        """Layers that are run are for the rows of A2E, too."""
        from xccl_emu.bench.tpot import a2e_and_tpot

        return a2e_and_tpot(setting)
