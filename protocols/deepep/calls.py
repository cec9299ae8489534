"""DeepEP's low-latency calls as its users make them: in two phases, with handles, several results held at once.

group = LowLatency(pod, DeepEpConfig(n_ranks=4, top_k=2, hidden=128), rounds=2)
handle = group.dispatch_send(tokens, topk)
...                                              # something else, on all ranks
received = group.dispatch_recv(handle)           # DeepEP's hook
group.expert_output(rank, handle.place)[:] = ... # on each rank: rows leave from there, nothing is copied before
group.combine_send(handle, weights)
outputs = group.combine_recv(handle)

`dispatch_whole` and `combine_whole` are both phases in one launch.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xccl_emu.base.errors import ConfigError
from xccl_emu.kernels.experts.counts import INDEX_BYTES
from xccl_emu.lang import Kernel
from xccl_emu.machine.pod import Buffer, Pod
from xccl_emu.protocols.communicator import allocate_on, one_for_each
from xccl_emu.protocols.deepep.session import DeepEp, DeepEpConfig
from xccl_emu.protocols.experts.group import COMBINED, DISPATCHED, DUMMY, SENT, SENT_BACK, Phase, PhaseOfRound
from xccl_emu.protocols.experts.layout import COLUMNS, Received, whole_rows

Tables = Sequence[NDArray[Any]]
"""For each rank a table with a row for each token."""


class DispatchHandle(NamedTuple):
    """A dispatch, for the calls after it."""

    place: int
    """Which of the group's results it is, as `received`, `expert_output` and `output` take it."""
    number: int
    """Number of the dispatch, from 1 on."""


class LowLatency(DeepEp):
    """A group whose calls have phases; ``rounds`` is how many results it holds, and a dispatch replaces the oldest.

    Between the phases of a call no other one may be sent, since it would clean the signals that are still to be read;
    results stay until they are replaced, so that the experts of one compute while another is on its way.
    """

    def __init__(
        self, pod: Pod, config: DeepEpConfig, *, rounds: int = 2, managed_offset: int = 0, field_offset: int = 0
    ) -> None:
        super().__init__(pod, config, rounds=rounds, managed_offset=managed_offset, field_offset=field_offset)
        self._chosen = allocate_on(pod, self.layout.dies, {"topk": config.tokens_max * INDEX_BYTES})
        for place in range(self.n_rounds):
            self._numbered(place)[0] = 0

    # ---- dispatch

    def dispatch_send(self, tokens: Tables, topk: Tables) -> DispatchHandle:
        """The send phase of a dispatch, with what `dispatch` takes.

        Raises ConfigError, before anything moves, where `dispatch` does, or while another call is not received.
        """
        handle = self._dispatched(self.sends, tokens, topk)
        self._run(PhaseOfRound(self.sends, handle.place), SENT)
        return handle

    def dispatch_recv(self, handle: DispatchHandle, stats: Sequence[Buffer] | None = None) -> list[Received]:
        """The receive phase; returns for each rank what has come: views, valid until the result is replaced.

        stats: app data of each rank, an int32 for each of its experts, to which the rows that the expert got are added.
        Raises ConfigError, before anything moves, for a handle that has nothing to receive, or other statistics.
        """
        self._check_sent(handle, SENT, self.receives)
        with self._lends(stats=self._table("stats", stats, 4 * self.config.local_experts)):
            self._run(PhaseOfRound(self.receives, handle.place, -1), DISPATCHED)
        return self._results(handle)

    def dispatch_whole(
        self, tokens: Tables, topk: Tables, stats: Sequence[Buffer] | None = None
    ) -> tuple[DispatchHandle, list[Received]]:
        """Both phases in one launch."""
        with self._lends(stats=self._table("stats", stats, 4 * self.config.local_experts)):
            handle = self._dispatched(self.dispatches, tokens, topk)
            self._run(PhaseOfRound(self.dispatches, handle.place), DISPATCHED)
        return handle, self._results(handle)

    def run_dummy_on(self, handle: DispatchHandle) -> None:
        """The dummy expert on what was received, as `run_dummy`."""
        self._check_current(handle)
        self._run_dummy(handle.place)

    # ---- combine

    def combine_send(self, handle: DispatchHandle, weights: Tables, topk: Tables | None = None) -> None:
        """The send phase of a combine of a dispatch; a dispatch may have several combines.

        weights: for each rank [T, top_k] float32.  topk: for each rank [T, top_k] integers, the choices of dispatch, or
        -1 for one that is left out; None for the choices of dispatch.

        Raises ConfigError, before anything moves, for weights or choices that are not so, a handle whose result is
        replaced or not received, or while another call is not received.
        """
        self._combined(handle, self.sends_back, weights, topk)
        self._run(PhaseOfRound(self.sends_back, handle.place), SENT_BACK)

    def combine_recv(self, handle: DispatchHandle, out: Sequence[Buffer] | None = None) -> list[NDArray[Any]]:
        """The receive phase; returns for each rank [T, hidden] of the group's type: views.

        out: app data of each rank, a row for each of its tokens, into which the kernel writes; None for the group's
        own, valid until the next combine of that handle.
        Raises ConfigError, before anything moves, for a handle that has nothing to receive, or another ``out``.
        """
        self._check_sent(handle, SENT_BACK, self.receives_back)
        with self._lends_for(handle, out):
            self._run(PhaseOfRound(self.receives_back, handle.place, -1), COMBINED)
        return self._outputs(handle, out)

    def combine_whole(
        self, handle: DispatchHandle, weights: Tables, topk: Tables | None = None, out: Sequence[Buffer] | None = None
    ) -> list[NDArray[Any]]:
        """Both phases in one launch."""
        self._check_current(handle)
        with self._lends_for(handle, out):
            self._combined(handle, self.combines, weights, topk)
            self._run(PhaseOfRound(self.combines, handle.place), COMBINED)
        return self._outputs(handle, out)

    # ---- what is held

    def check_ready(self, *kernels: Kernel) -> None:
        """Check as any group does; and nothing is sent while a call is not received."""
        super().check_ready(*kernels)
        waiting = [place for place in range(self.n_rounds) if self._stage(place)[0] in (SENT, SENT_BACK)]
        may = (self.receives.kernel, self.receives_back.kernel, DUMMY.kernel)
        if waiting and not {*kernels} <= {*may}:
            raise ConfigError(f"dispatch {self._number(waiting[0])}: its call was sent and not received yet")

    def _begin(self, number: int) -> None:
        """Handles of what was there are of no use any more."""
        super()._begin(number)
        self._numbered(number)[0] = 1 + max(map(self._number, range(self.n_rounds)))

    def _number(self, place: int) -> int:
        """Number of the dispatch whose result is there."""
        return int(self._numbered(place)[0])

    def _numbered(self, place: int) -> NDArray[np.int32]:
        """[1] view of it: a word in the pod's memory, as the stage is."""
        return self.pod.view(self._of(0, place)["batches"], np.int32)[2:]

    def _dispatched(self, phase: Phase, tokens: Tables, topk: Tables) -> DispatchHandle:
        """A batch in place of the oldest result."""
        self.check_ready(phase.kernel)
        place = min(range(self.n_rounds), key=self._number)
        self._fill_dispatch(tokens, topk, place)
        return DispatchHandle(place, self._number(place))

    def _combined(self, handle: DispatchHandle, phase: Phase, weights: Tables, topk: Tables | None) -> None:
        """Weights and choices of a combine in their buffers."""
        self.check_ready(phase.kernel)
        self._check_current(handle)
        own = [self._choices_of(rank, handle) for rank in range(self.config.n_ranks)]
        chosen = own if topk is None else self._per_rank("topk", topk)
        for rank, (choices, sent) in enumerate(zip(chosen, own, strict=True)):
            _check_chosen(rank, choices, sent)
        self._fill_combine(weights, handle.place)
        for buffers, choices in zip(self._chosen, chosen, strict=True):
            self.pod.view(buffers["topk"], np.int32, (-1, COLUMNS))[: len(choices)] = whole_rows(choices)

    def _choices_of(self, rank: int, handle: DispatchHandle) -> NDArray[np.int32]:
        """[T, top_k] choices of the dispatch."""
        table = self.pod.view(self._of(rank, handle.place)["topk"], np.int32, (-1, COLUMNS))
        return table[: self.n_tokens(rank, handle.place), : self.config.top_k]

    def _results(self, handle: DispatchHandle) -> list[Received]:
        return [self.received(rank, handle.place) for rank in range(self.config.n_ranks)]

    def _outputs(self, handle: DispatchHandle, out: Sequence[Buffer] | None) -> list[NDArray[Any]]:
        if out is None:
            return [self.output(rank, handle.place) for rank in range(self.config.n_ranks)]
        shape = -1, self.config.hidden
        return [self.pod.payload(buffer, self.config.numpy_dtype(), shape) for buffer in out]

    # ---- buffers of the caller

    @contextmanager
    def _lends(self, **lent: Sequence[Buffer] | None) -> Iterator[None]:
        """Lend these buffers, in place of the group's own, to what runs within."""
        self.lent = {name: buffers for name, buffers in lent.items() if buffers is not None}
        try:
            yield
        finally:
            self.lent = {}

    def _lends_for(self, handle: DispatchHandle, out: Sequence[Buffer] | None) -> Any:
        """Lend a combine its choices, and the places of its outputs."""
        sizes = [self.n_tokens(rank, handle.place) * self.config.row_bytes for rank in range(self.config.n_ranks)]
        return self._lends(topk=[each["topk"] for each in self._chosen], out=self._table("out", out, *sizes))

    def _table(self, name: str, given: Sequence[Buffer] | None, *sizes: int) -> Sequence[Buffer] | None:
        """Checked: app data of each rank, of these sizes in bytes, one for all or for each."""
        if given is None:
            return None
        buffers = one_for_each(name, given, self.config.n_ranks, "ranks")
        wanted = sizes if len(sizes) == len(buffers) else sizes * len(buffers)
        for rank, (buffer, nbytes) in enumerate(zip(buffers, wanted, strict=True)):
            if not isinstance(buffer, Buffer) or (buffer.die, buffer.nbytes) != (self.die_of(rank), nbytes):
                must = f"{nbytes} bytes of app data of die {self.die_of(rank)}"
                raise ConfigError(f"{name} of rank {rank}: {buffer!r} must be {must}")
            self.pod.view(buffer)
        return buffers

    def _check_current(self, handle: DispatchHandle) -> None:
        if not isinstance(handle, DispatchHandle) or not 0 <= handle.place < self.n_rounds:
            raise ConfigError("handle", handle, "must be one that a dispatch gave")
        if handle.number != self._number(handle.place):
            last = self._number(handle.place)
            raise ConfigError("handle", handle, f"dispatch {last} has replaced its result")

    def _check_sent(self, handle: DispatchHandle, stage: int, phase: Phase) -> None:
        self._check_current(handle)
        self.check_ready(phase.kernel)
        if self._stage(handle.place)[0] != stage:
            raise ConfigError("handle", handle, f"its {phase.part} was not sent, or is received")


def _check_chosen(rank: int, choices: NDArray[Any], sent: NDArray[np.int32]) -> None:
    """ConfigError for choices of combine that dispatch did not make."""
    if choices.shape != sent.shape or not np.issubdtype(choices.dtype, np.integer):
        must = f"{list(sent.shape)} integers"
        raise ConfigError(f"topk of rank {rank}: {list(choices.shape)} {choices.dtype}, must be {must}")
    wrong = np.argwhere((choices != sent) & (choices != -1))
    if len(wrong):
        token, k = wrong[0]
        must = f"{sent[token, k]}, as dispatched, or -1"
        raise ConfigError(f"topk of rank {rank}, token {token}, choice {k}: {choices[token, k]} must be {must}")
