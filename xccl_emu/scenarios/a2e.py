"""A2E and E2A, with trampolines and persistent kernels or as plain pull, as things to check (xDeepServe 3.3, 5.2).

Everything runs in one launch: streams start, calls pass through, the end passes through, streams return.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from xccl_emu.check.trial import Expected, Label, Trial
from xccl_emu.errors import ConfigError
from xccl_emu.kernels.a2e import attention
from xccl_emu.kernels.a2e_expert import a2e_stream, compute_stream
from xccl_emu.kernels.a2e_parameters import WRONG_CALL
from xccl_emu.kernels.a2e_pull import pull_attention, pull_expert
from xccl_emu.kernels.a2e_return import e2a_stream
from xccl_emu.kernels.counts import INDEX_BYTES
from xccl_emu.kernels.group import align
from xccl_emu.lang import Kernel
from xccl_emu.machine.pod import Buffer, Pod
from xccl_emu.machine.spec import PodSpec
from xccl_emu.protocol.case import names_of_syncs
from xccl_emu.protocols import a2e_layout, a2e_pull
from xccl_emu.protocols.a2e import A2E
from xccl_emu.protocols.a2e_calls import Call, Calls
from xccl_emu.protocols.a2e_layout import A2EConfig
from xccl_emu.protocols.a2e_pull import A2EPull
from xccl_emu.scenarios.a2e_data import Image, make_calls
from xccl_emu.scenarios.common import (
    PROMISES,
    at_least,
    check_seed,
    cores_on,
    must_hold,
    of_buffer,
    set_switches,
    tight_pod,
)
from xccl_emu.scenarios.moe import ROOMY, tokens_of

_KERNELS = {False: (attention, a2e_stream, compute_stream, e2a_stream), True: (pull_attention, pull_expert)}
"""Of trampolines, and of plain pull: first that of the attention dies."""


@dataclass(frozen=True)
class A2ECheck:
    """A few attention dies, expert dies and trampolines; ``rounds`` calls, one domain after the other.

    A token is ``pieces`` pieces of 32 bytes on its way to the experts, with a slot of 512 bytes behind it, and twice as
    many on its way back.

    Raises ConfigError for sizes below their least, and what A2E would refuse.
    """

    domains: int = 1
    attention: int = 2
    """Attention dies of a domain, and trampolines."""
    experts: int = 3
    """Expert dies, of which the first are trampolines."""
    local: int = 1
    """Experts on each."""
    tokens: int | str | Sequence[int] = 1
    """Of each attention die in a call, or of all; one may have none.  As text: ``"1,0"``."""
    pieces: int = 1
    top_k: int = 1
    rounds: int = 2
    cores: int = 1
    """Of an attention die, and of each stream."""
    depth: int = 1
    pull: bool = False
    """Without trampolines; then there is one domain, and ``cores`` are all of a die."""
    masked: bool = False
    """Is the first choice of the first token of every call masked?"""
    path: str = "mtu"
    seed: int = 0
    """Of hidden states and weights."""

    def __post_init__(self) -> None:
        at_least(1, domains=self.domains, attention=self.attention, experts=self.experts, local=self.local)
        at_least(1, cores=self.cores, pieces=self.pieces, top_k=self.top_k, depth=self.depth)
        at_least(0, rounds=self.rounds)
        check_seed(self.seed)
        set_switches(self, "masked", "pull")
        object.__setattr__(self, "tokens", tokens_of(self.tokens, self.attention))
        if self.top_k > self.experts * self.local:
            raise ConfigError(f"top_k={self.top_k}: there are {self.experts * self.local} experts")
        if self.pull and (self.domains, self.depth) != (1, 1):
            raise ConfigError(f"domains={self.domains}, depth={self.depth}: a2e-pull has one of each")
        self._config()  # refuses the rest

    @property
    def name(self) -> str:
        """As the command knows it."""
        return "a2e-pull" if self.pull else "a2e"

    @property
    def configuration(self) -> Mapping[str, int | str]:
        """Sizes, in the order in which reports print them."""
        names = (
            "domains", "attention", "experts", "local", "tokens", "pieces", "top_k", "rounds", "cores", "depth",
            "pull", "masked", "path", "seed",
        )  # fmt: skip
        values = {name: getattr(self, name) for name in names}
        switches = {"masked": int(self.masked), "pull": int(self.pull)}
        return values | {"tokens": ",".join(map(str, self._lengths))} | switches

    @property
    def syncs(self) -> tuple[str, ...]:
        """Names of the synchronizations of its kernels."""
        return names_of_syncs(_KERNELS[self.pull])

    def build(self, order: str, without: Collection[str] = ()) -> Trial:
        """The pod with all kernels launched, and what its app buffers must hold at the end."""
        given = make_calls(self._config(), self._lengths, self.rounds, self.masked, self.seed)
        calls = self._calls(Pod(self._spec(given), order=order, without=without), given)
        calls.launch()
        image = Image(calls.config, given, ends=not self.pull)
        expected = [*self._expected_outputs(calls, image), *self._expected_rows(calls, image)]
        return Trial(calls.pod, tuple(expected), tuple(self._filled(calls)), tuple(labels_of(calls)), _STOPS, PROMISES)

    def _expected_outputs(self, calls: Calls, image: Image) -> Iterator[Expected]:
        for domain, dies in enumerate(calls.batches):
            for i, buffers in enumerate(dies):
                out = buffers["out"]
                if out.nbytes:
                    name = f"outputs of attention die {i} of domain {domain}"
                    cores = cores_on(calls.pod, out.die, _KERNELS[self.pull])
                    yield must_hold(name, out, image.outputs(domain, i), cores)

    def _expected_rows(self, calls: Calls, image: Image) -> Iterator[Expected]:
        for die, buffers in enumerate(calls.owner.experts):
            for name, data in image.rows(die).items():
                cores = cores_on(calls.pod, buffers[name].die, [self._writer(name)])
                yield must_hold(f"{name} of expert die {die}", buffers[name], data, cores)

    def _writer(self, name: str) -> Kernel:
        """Which kernel answers for what is in a buffer of an expert die."""
        if self.pull:
            return pull_expert
        return compute_stream if name == "y" else a2e_stream

    def _filled(self, calls: Calls) -> Iterator[Buffer]:
        """The parts of the buffers that hold something when the run begins."""
        c = calls.config
        strides = {"x": (c.row_bytes, c.row_bytes), "topk": (INDEX_BYTES, INDEX_BYTES)}
        for call, lengths in enumerate(calls.lengths):
            for i, n in enumerate(lengths):
                buffers, r = calls.batches[call % c.n_domains][i], call // c.n_domains
                yield Buffer(buffers["batches"].die, buffers["batches"].address + 4 * r, 4)
                for name, (stride, nbytes) in (strides | {"weights": (INDEX_BYTES, 4 * c.top_k)}).items():
                    for t in range(n):
                        row = buffers[name].address + (r * c.tokens_max + t) * stride
                        yield Buffer(buffers[name].die, row, nbytes)

    # ---- what it is made of

    @property
    def _lengths(self) -> tuple[int, ...]:
        assert isinstance(self.tokens, tuple)
        return self.tokens

    def _config(self) -> A2EConfig:
        return A2EConfig(
            self.domains, self.attention, self.experts, self.local, hidden=32 * self.pieces, top_k=self.top_k,
            tokens_max=max(1, *self._lengths), path=self.path, depth=self.depth, cores=self.cores,
            a2e_cores=self.cores, compute_cores=self.cores, e2a_cores=self.cores,
        )  # fmt: skip

    def _calls(self, pod: Pod, given: Sequence[Call]) -> Calls:
        return Calls((A2EPull if self.pull else A2E)(pod, self._config()), given)

    def _spec(self, given: Sequence[Call]) -> PodSpec:
        """As large as everything is on a pod that is large enough."""
        c = self._config()
        cores = max(c.cores, c.expert_cores)
        roomy = self._calls(Pod(tight_pod(c.n_dies, cores, **ROOMY)), given)
        return tight_pod(
            c.n_dies, cores, app=max(roomy.pod.mark_app().values()), meta=roomy.owner.meta[1],
            managed=align(roomy.owner.managed[1]),
            ub=align((a2e_pull if self.pull else a2e_layout).buffer_bytes(c)),
        )  # fmt: skip


_STOPS = {WRONG_CALL: "a field speaks of another call than the next"}


def labels_of(calls: Calls) -> Iterator[Label]:
    """Fields and regions, on every die also those that it does not use, and app buffers."""
    pod, owner = calls.pod, calls.owner
    for die in range(owner.first_die, owner.first_die + calls.config.n_dies):
        for name, (start, nbytes) in owner.regions().items():
            area = "managed" if start >= pod.spec.managed_start else "meta"
            if nbytes:
                yield Label(f"die{die}.{area}.{name}", pod.address(die, start), nbytes)
    for buffers in [*owner.experts, *(buffers for dies in calls.batches for buffers in dies)]:
        yield from (of_buffer(name, buffer) for name, buffer in buffers.items() if buffer.nbytes)
