"""Figures of [xDeepServe], and numbers of its text."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from xccl_emu.base.errors import ConfigError
from xccl_emu.base.options import option
from xccl_emu.papers.measurements import Measurement, Suite, Swept

if TYPE_CHECKING:
    from xccl_emu.papers.bench.result import Result
    from xccl_emu.papers.bench.serve import ServedRequests
    from xccl_emu.papers.bench.setting import Setting

TRANSFERS_MAX = 1000
"""As `xccl_emu.papers.bench.sendrecv.TRANSFERS_MAX`, which is not imported before a bench runs."""


@dataclass(frozen=True)
class SendRecvMeasurement(Measurement):
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
        from xccl_emu.base.sizes import parse_whole, sizes_from
        from xccl_emu.papers.bench.sendrecv import Sweep, sendrecv

        sizes = sizes_from(self.begin, self.end, self.factor)
        to, cores = list(dict.fromkeys(self.to.split(","))), parse_whole("--cores", self.cores)
        return sendrecv(setting, Sweep(sizes, cores, to, self.iterations, self.warmup, self.path, self.slots))


@dataclass(frozen=True)
class DispatchMeasurement(Swept):
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
        """Return the number of cores that was asked for."""
        return self.cores

    def rows(self, setting: "Setting") -> "list[Result]":
        """See the class."""
        from xccl_emu.base.sizes import parse_whole
        from xccl_emu.papers.bench.dispatch import dispatch

        return dispatch(setting, self.ranks, parse_whole("--batches", self.batches), self.cores)


@dataclass(frozen=True)
class A2EMeasurement(Measurement):
    """A2E and E2A of three domains, each of 160 attention dies of 96 tokens, and 288 expert dies.

    Through the data buffers with batches in parts. Also a call of one domain alone, in one part, and by URMA.
    """

    name = "a2e"
    suite = Suite(7, 2, 12.0, 3.2)

    def rows_in_suite(self, setting: "Setting") -> "list[Result]":
        """Return the rows of variants; the others are made with the budget."""
        from xccl_emu.papers.bench.a2e import rows_beside

        return rows_beside(setting)


@dataclass(frozen=True)
class IterationMeasurement(Measurement):
    """Dispatch and combine in an iteration of decode: 288 dies, 120 tokens each, 576 expert slots (Figure 20)."""

    name, module = "iteration", "dispatch"
    suite = Suite(5, 1, 21.0, 4.0)


@dataclass(frozen=True)
class EplbMeasurement(Measurement):
    """What replicas of hot experts are worth to a layer on 288 dies, 120 tokens each (Figure 11b).

    Loads are as skewed as those measured of DeepSeek-V3, or are read from a file: as `run dispatch --routing` takes it.
    """

    name = "eplb"
    suite = Suite(14, 1, 21.0, 4.5)

    routing: str | None = option(None, "Measured loads of each layer's experts.", metavar="FILE")
    layer: int | None = option(None, "Which layer of that file [default: 30]", least=0)

    def rows(self, setting: "Setting") -> "list[Result]":
        """See the class."""
        from xccl_emu.papers.bench.eplb import eplb
        from xccl_emu.routing import load_expert_loads

        if self.layer is not None and not self.routing:
            raise ConfigError(f"--layer {self.layer}: needs --routing FILE, whose layer it is")
        layer = 30 if self.layer is None else self.layer
        return eplb(setting, loads=load_expert_loads(self.routing).layer(layer) if self.routing else None)


@dataclass(frozen=True)
class ServeMeasurement(Measurement):
    """Decode of a pod, step by step: arrivals, uneven experts, stragglers, and a die that is lost (Figure 20, 7.1).

    Dispatch and combine take what their kernels take at some sizes of a batch, run first; attention and computing of
    experts take as published, in proportion. Without options all groups are full, as in the paper. With --domains 3
    attention and experts are on dies of their own, 160 of a domain and 288, and A2E and E2A are run. With --prefill 4
    requests are served from arrival to last token: prefill, KV caches over a plane, and decode on 128 dies (7.2).
    """

    name = "serve"

    steps: int = option(
        10_000, "Decode steps; with --prefill it goes on until all that had arrived by then are served.", least=1,
        most=1_000_000,
    )  # fmt: skip
    ranks: int | None = option(
        None, "Dies, each a group of requests [default: 288, 160 a domain, or 128 with --prefill]", least=8, most=768
    )  # fmt: skip
    domains: int = option(
        0, "Domains of these dies, apart from dies of experts; 0 for experts on all of them.", least=0, most=8
    )  # fmt: skip
    expert_dies: int = option(288, "Dies of experts, with --domains.", least=2, most=768)
    batch: int | None = option(None, "Most requests of a group [default: 60, or 96 with --domains]", least=1, most=512)
    rate: float = option(0.0, "Requests a second; 0 for as many as fit.", least=0, most=100_000)
    prompt: int = option(2048, "Tokens of a prompt, in the mean.", least=1, most=131_072)
    output: int = option(2048, "Tokens of an answer, in the mean.", least=1, most=131_072)
    rebalance: int = option(1000, "Steps between two placements of replicas of experts; 0 for no replicas.", least=0)
    stall: float = option(0.0, "How often a group comes late to a step, 0 to 1.", least=0)
    stall_ms: float = option(100.0, "By how much.", least=0, most=1_000_000)
    lost_at: int | None = option(None, "The step in which a die stops.", least=0)
    lost: str = option("attention", "Which die that is, with --domains: attention or experts.")
    prefill: int = option(0, "Instances of prefill, 32 dies each; 0 for decode alone.", least=0, most=22)
    decode: int = option(1, "Instances of decode, with --prefill.", least=1, most=64)
    plane: str = option("ub", "The plane of KV caches, with --prefill: ub, rdma or vpc.")
    balance: str = option(
        "least-kv", "How a group of decode is chosen, with --prefill: least-kv, round-robin, or several."
    )  # fmt: skip

    def rows(self, setting: "Setting") -> "list[Result]":
        """See the class."""
        from xccl_emu.papers.bench.serve import ServedRequests, ServingPod, serve
        from xccl_emu.papers.bench.serve_apart import APART, serve_apart

        if self.lost not in ("attention", "experts"):
            raise ConfigError(f"--lost {self.lost}: must be attention or experts")
        if self.stall > 1:
            raise ConfigError(f"--stall {self.stall}: must be 0 to 1")
        if not self.domains:
            self._refuse(("lost", "expert_dies"), "--domains")
        if not self.prefill:
            self._refuse(("decode", "plane", "balance"), "--prefill")
        lost_at = -1 if self.lost_at is None else self.lost_at
        workload = ServedRequests(
            self.steps, self.rate, self.prompt, self.output, self.rebalance, self.stall, self.stall_ms, lost_at,
            self.lost,
        )  # fmt: skip
        if self.prefill:
            return self.whole(setting, workload)
        if not self.domains:
            usual = ServingPod()
            return serve(
                setting, replace(usual, groups=self.ranks or usual.groups, batch=self.batch or usual.batch), workload
            )
        groups = self.ranks or 160 * self.domains
        apart = replace(APART, groups=groups, domains=self.domains, expert_dies=self.expert_dies,
                        batch=self.batch or APART.batch)  # fmt: skip
        return serve_apart(setting, apart, workload)

    def _refuse(self, names: tuple[str, ...], without: str) -> None:
        """Refuse options that mean nothing without another one."""
        for name in names:
            if (value := getattr(self, name)) != getattr(ServeMeasurement, name):
                raise ConfigError(f"--{name.replace('_', '-')} {value}: needs {without}")

    def whole(self, setting: "Setting", workload: "ServedRequests") -> "list[Result]":
        """Serve from arrival to last token."""
        from xccl_emu.papers.bench.serve_whole import WholeDeployment, serve_whole

        if self.domains:
            raise ConfigError(f"--domains {self.domains}: cannot be combined with --prefill")
        usual = WholeDeployment().pod
        pod = replace(usual, groups=self.ranks or usual.groups, batch=self.batch or usual.batch)
        of = WholeDeployment(self.prefill, self.decode, self.plane, pod)
        return [*serve_whole(setting, of, workload, [*dict.fromkeys(self.balance.split(","))])]


@dataclass(frozen=True)
class PrefillMeasurement(Measurement):
    """Prefill of requests that arrive: groups gather their status, the leader deals requests, longest first (7.2)."""

    name = "prefill"

    rate: float = option(1.0, "Requests a second, of all executors together.")
    prompt: int = option(13_000, "Tokens of a prompt, in the mean.", least=1, most=65_536)
    requests: int = option(20_000, "Requests.", least=1, most=10_000_000)

    def rows(self, setting: "Setting") -> "list[Result]":
        """See the class."""
        from xccl_emu.papers.bench.prefill import Executors, prefill

        if not self.rate > 0:
            raise ConfigError(f"--rate {self.rate}: must be above 0")
        return prefill(setting, Executors(rate=self.rate, prompt=self.prompt, requests=self.requests))


@dataclass(frozen=True)
class TpotMeasurement(Measurement):
    """The decode budget of disaggregated attention and experts.

    Layers of three domains with two microbatches each are run through the persistent streams; TPOT follows from these.
    """

    name, module = "tpot", "serve_apart"
    suite = Suite(6, 0, 12.0, 3.2)

    def rows_in_suite(self, setting: "Setting") -> "list[Result]":
        """Layers that are run are for the rows of A2E, too."""
        from xccl_emu.papers.bench.serve_apart import a2e_and_tpot

        return a2e_and_tpot(setting)
