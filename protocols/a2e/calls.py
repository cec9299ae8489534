"""Calls between attention dies and expert dies: batches, buffers, checks and results, however the data travels.

`session` and `pull` are two ways.
"""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xccl_emu.base.errors import ConfigError
from xccl_emu.base.options import whole
from xccl_emu.kernels.experts.parameters import Buffers as Addresses
from xccl_emu.lang import Kernel
from xccl_emu.machine.launch import Launch
from xccl_emu.machine.pod import Pod
from xccl_emu.protocols.a2e.config import A2EConfig
from xccl_emu.protocols.a2e.layout import DiesLayout
from xccl_emu.protocols.communicator import (
    Communicator,
    Progress,
    all_or_none,
    configured,
    index_of,
    listed,
    one_for_each,
)
from xccl_emu.protocols.experts import layout as app
from xccl_emu.protocols.experts.config import check_tokens, check_weights
from xccl_emu.protocols.experts.layout import Received, as_arrays


class Call(NamedTuple):
    """One microbatch: for each attention die of the domain whose turn it is.

    The batches may differ in size, and some may have no tokens.
    """

    tokens: Sequence[NDArray[Any]]
    """[T, hidden] of the group's type, T up to tokens_max."""
    topk: Sequence[NDArray[Any]]
    """[T, top_k] integers: expert slots, or -1 for a masked choice; none twice in a row."""
    weights: Sequence[NDArray[np.float32]]
    """[T, top_k] float32 gate weights; the shared expert's is not used."""


class AttentionExperts(Communicator):
    """Attention dies and expert dies with a protocol between them.

    Raises ConfigError or CapacityError for what does not fit the pod; then nothing is allocated.
    """

    name: str
    """Name of the protocol, in `stats`."""
    kernels: ClassVar[tuple[Kernel, ...]]
    """What `launch` launches."""
    lays_out: ClassVar[type[DiesLayout]]
    """What says where everything is."""

    def __init__(
        self, pod: Pod, config: A2EConfig | None = None, *, first_die: int = 0, managed_offset: int = 0,
        field_offset: int = 0, **sizes: Any,
    ) -> None:  # fmt: skip
        config = self.config = configured(A2EConfig, config, sizes)
        self.layout: DiesLayout = self.lays_out(config, pod.spec, first_die, managed_offset, field_offset)
        self.first_die = self.layout.first_die
        self.experts = app.allocate(pod, config, self.layout.dies[: config.n_experts], config.calls_kept)
        """The app buffers of each expert die."""
        super().__init__(pod)

    def _cores_on(self, die: int) -> int:
        c = self.config
        return c.expert_cores if die < self.first_die + c.n_experts else c.microbatches * c.cores

    @abstractmethod
    def launch(self, calls: "Calls") -> None:
        """Put the kernels that carry out these calls on their cores."""

    @abstractmethod
    def commit(self, calls: "Calls", call: int, topk: Sequence[NDArray[Any]]) -> None:
        """Commit memory that a call is about to fill, except for its app buffers; a hint that only saves time."""

    def run(self, calls: Iterable[Call], progress: Progress | None = None) -> list[list[NDArray[Any]]]:
        """Start all kernels, let the calls through, stop them; returns [call][attention die] outputs [T, hidden].

        No calls at all are possible: the kernels start and stop.

        Raises ConfigError, before anything moves, for wrong shapes, types, slots, or (quantized) a NaN or infinity.
        """
        self.check_ready(*self.kernels)
        mark = self.pod.mark_app()
        try:
            made = Calls(self, calls)
            made.launch()
            self.run_launched(progress)
            return [[made.output(c, i).copy() for i in range(self.config.n_attention)] for c in range(made.n_calls)]
        finally:
            self.pod.release_app(mark)

    def layer(
        self, tokens: Sequence[NDArray[Any]], topk: Sequence[NDArray[Any]], weights: Sequence[NDArray[np.float32]],
        progress: Progress | None = None,
    ) -> list[NDArray[Any]]:  # fmt: skip
        """Run a call of the first domain: arrays for each of its attention dies, and outputs, as `run` has them."""
        return self.run([Call(tokens, topk, weights)], progress)[0]

    def run_launched(self, progress: Progress | None = None) -> None:
        """Run what is launched, as ``stats[name]``."""
        self.run_as(self.name, progress)


def of_cores(kernel: Kernel, cores: int, own: app.Buffered) -> dict[str, Any]:
    """Return the arguments of a kernel on some cores of a die that name them, and the die's buffers that it touches."""
    at = {name: own[name].address for name in app.touched_by(kernel) if name in own}
    given = {"batches": at.pop("batches")} if "batches" in at else {}
    return {"core": range(cores), "b": Addresses(**at), **given}


class Calls:
    """Some calls: their buffers on the attention dies, and the launch of all kernels that carry them out.

    Raises ConfigError, before anything moves, for what `AttentionExperts.run` refuses; CapacityError if the buffers do
    not fit.
    """

    def __init__(self, owner: AttentionExperts, calls: Iterable[Call]) -> None:
        self.owner, self.pod, self.config = owner, owner.pod, owner.config
        self._launches: list[Launch] = []
        calls = listed("calls", calls, "a list of calls, each (tokens, topk, weights)")
        given = [_as_arrays(self.config, c, call) for c, call in enumerate(calls)]
        for c, call in enumerate(given):
            _check_call(self.config, c, call)
        self.lengths = [[len(x) for x in call.tokens] for call in given]
        """[call][attention die] tokens."""
        self.batches = self._allocate_batches()
        """[turn][attention die] app buffers; a turn belongs to a domain, or to one of its microbatches."""
        for c, call in enumerate(given):
            self._commit(c, call.topk)
            for own, batch in zip(self.batches[c % self.config.turns], zip(*call, strict=True), strict=True):
                app.fill(self.pod, self.config, own, c // self.config.turns, *batch)

    # ---- before the run

    def _allocate_batches(self) -> list[list[app.Buffered]]:
        c = self.config
        with all_or_none(self.pod):
            return [
                app.allocate(
                    self.pod, c, self.dies(turn), dict.fromkeys(app.OF_TOKENS, len(range(turn, self.n_calls, c.turns)))
                )
                for turn in range(c.turns)
            ]

    @property
    def n_calls(self) -> int:
        """Return the number of calls, of all domains."""
        return len(self.lengths)

    def dies(self, call: int) -> range:
        """The attention dies of the domain that has a call."""
        first = self.owner.first_die + self.config.attention_die(call, 0)
        return range(first, first + self.config.n_attention)

    def _commit(self, call: int, topk: Sequence[NDArray[Any]]) -> None:
        """Commit what a call will fill: what it has batches for, and of the rows those that there will be."""
        c = self.config
        slots = np.concatenate([choices[choices >= 0].astype(np.int64) for choices in topk])
        for die, n in enumerate(np.bincount(slots // c.local_experts, minlength=c.n_experts).tolist()):
            for name in ("recv_x", "y"):
                self._commit_rows(self.owner.experts[die], name, call % c.depth, n)
        for i, choices in enumerate(topk):
            for name in ("x", "out"):
                self._commit_rows(self.batches[call % c.turns][i], name, call // c.turns, len(choices))
        self.owner.commit(self, call, topk)

    def _commit_rows(self, own: app.Buffered, name: str, i: int, n: int) -> None:
        nbytes = n * app.table(self.config)[name][0]
        self.pod.commit(app.row_of(self.config, own, name, i, 0, nbytes), nbytes)

    def launch(self) -> None:
        """Put all kernels on their cores; they run with the pod's next run, until the calls are done."""
        self.owner.check_ready()
        self.owner.zero_fields()
        self.owner.launch(self)
        self._launches = [launch for _, launches in self.owner.on_cores() for launch in launches if launch]

    # ---- after the run; ConfigError for a call or die that there is not, and as long as the calls have not run

    def _check_run(self, call: int) -> None:
        if not self._launches or not all(launch.results for launch in self._launches):
            raise ConfigError("call", call, "the calls have not run to their end")

    def output(self, call: int, i: int) -> NDArray[Any]:
        """Return what a call gave its i-th attention die: a view [T, hidden], valid until the next launch."""
        call, i = index_of("call", call, self.n_calls), index_of("i", i, self.config.n_attention)
        self._check_run(call)
        c, first = self.config, call // self.config.turns * self.config.tokens_max
        rows = self.pod.payload(self.batches[call % c.turns][i]["out"], c.numpy_dtype(), (-1, c.hidden))
        return np.asarray(rows[first : first + self.lengths[call][i]])

    def received(self, call: int, die: int) -> Received:
        """Return what a call brought to an expert die; views, valid until the next launch.

        "Source ranks" are the attention dies of the domain.  Raises ConfigError for a call whose memory has been used
        again: the last ``depth`` ones are kept.
        """
        c, call = self.config, whole("call", call)
        buffers = self.owner.experts[index_of("die", die, c.n_experts)]
        if not self.n_calls - c.depth <= call < self.n_calls or call < 0:
            raise ConfigError("call", call, f"of {self.n_calls} calls the last {c.depth} are kept")
        self._check_run(call)
        table = self.pod.view(buffers["counts"], np.int32, (c.depth + 1, -1))[call % (c.depth + 1)]
        counts = table[: c.local_experts * c.n_attention].reshape(c.local_experts, c.n_attention)
        return Received.of(self.pod, c, buffers, counts, call % c.depth * c.rows_max)


def _as_arrays(config: A2EConfig, c: int, call: Call) -> Call:
    """Return the call with an array for each attention die; ConfigError for anything else."""
    try:
        tokens, topk, weights = call
    except (TypeError, ValueError) as error:
        raise ConfigError(f"call {c}: must be (tokens, topk, weights)") from error
    named = [(f"call {c}: {name}", given) for name, given in zip(Call._fields, (tokens, topk, weights), strict=True)]
    dies = config.n_attention, "attention dies"
    return Call(*(as_arrays(name, one_for_each(name, given, *dies)) for name, given in named))


def _check_call(config: A2EConfig, c: int, call: Call) -> None:
    """Raises ConfigError, naming call, attention die ("rank"), token and value, for what cannot be sent."""
    for i, (x, choices, weights) in enumerate(zip(*call, strict=True)):
        try:
            check_tokens(config, i, x, choices)
            check_weights(config, f"weights of rank {i}", weights, len(x))
        except ConfigError as error:
            raise ConfigError(f"call {c}: {error}") from error
