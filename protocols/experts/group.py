"""Expert-parallel groups, however their data travels: calls, checks and results."""

from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from xccl_emu.base.errors import ConfigError
from xccl_emu.kernels.experts import dummy as expert_kernel
from xccl_emu.kernels.experts.parameters import Buffers, Group
from xccl_emu.lang import Kernel
from xccl_emu.lang.in_turn import in_turn
from xccl_emu.machine.pod import Buffer, Pod
from xccl_emu.protocol import Bench
from xccl_emu.protocol.streams import Streams
from xccl_emu.protocols.communicator import (
    Communicator,
    Progress,
    configured,
    index_of,
    listed,
    number_in,
    one_for_each,
)
from xccl_emu.protocols.experts import layout as app
from xccl_emu.protocols.experts.config import EpConfig, check_finite, check_tokens, check_weights
from xccl_emu.protocols.experts.layout import EXPERT, LAYER, C, GroupLayout, Received, as_arrays

Args = Mapping[str, int | Sequence[int]]
"""What a launch gives a kernel; a record is a sequence of integers, too."""
PerRound = Sequence[Sequence[NDArray[Any]]]
"""[round][rank] arrays."""


@dataclass(eq=False)
class Phase:
    """A kernel of a group."""

    part: str
    """The part of a layer that it is, or belongs to."""
    kernel: Kernel


DUMMY = Phase(EXPERT, expert_kernel.dummy_expert)


class PhaseOfRound(NamedTuple):
    """A phase of one of several rounds."""

    phase: Phase
    number: int
    """Which round."""
    ahead: int = 0
    """Calls that are launched and not run when this one is, as far as they are counted together."""


NOTHING, SENT, DISPATCHED, SENT_BACK, COMBINED = range(5)
"""Which results a round has; sent is what some have not received yet."""


class ExpertGroup(Communicator, Generic[C]):
    """An expert-parallel group: dispatch, a dummy expert, combine.

    Rounds may follow each other without reset.  A group has app buffers for several ``rounds`` if they are to go on at
    each rank's own pace (`run_rounds`); single calls use the first round's buffers.

    All that it knows from round to round is in the pod's memory, so it goes along with snapshots.
    """

    dispatches: ClassVar[Phase]
    combines: ClassVar[Phase]
    """What `dispatch` and `combine` launch."""

    lays_out: ClassVar[type[GroupLayout[Any]]]
    """What says where everything is."""

    kind: ClassVar[type[EpConfig]] = EpConfig
    """Its configuration, whose fields may be given by name in its place."""

    def __init__(
        self, pod: Pod, config: C | None = None, *, rounds: int = 1, managed_offset: int = 0, field_offset: int = 0,
        **sizes: Any,
    ) -> None:  # fmt: skip
        config = self.config = cast(C, configured(self.kind, config, sizes))
        """The group's size and the shape of what it moves."""
        self.n_rounds = number_in("rounds", rounds, 1, 1 << 20)
        self.layout: GroupLayout[C] = self.lays_out(config, pod, managed_offset, field_offset)
        self.buffers = app.allocate(pod, config, self.layout.dies, dict.fromkeys(app.table(config), self.n_rounds))
        """[rank] app buffers of all rounds."""
        self._rounds = [[app.part_of(own, i, self.n_rounds) for own in self.buffers] for i in range(self.n_rounds)]
        self.lent: Mapping[str, Sequence[Buffer]] = {}
        """Buffers of the caller, for each rank, which launches take in place of the group's own."""
        self._rows_committed = [[0] * config.n_ranks for _ in range(self.n_rounds)]
        super().__init__(pod)
        for phase in (self.dispatches, DUMMY, self.combines):
            pod.switches.know(phase.kernel)
        self.zero_fields()

    def _cores_on(self, die: int) -> int:
        return self.config.cores

    @abstractmethod
    def next_dispatch(self) -> int:
        """Event ID of the next dispatch, from 1 on."""

    @abstractmethod
    def _places(self, phase: Phase, ahead: int) -> Args:
        """Arguments of a phase beyond rank, core, tokens, shape and buffers, or more; see `PhaseOfRound.ahead`."""

    def _all_places(self) -> Args:
        """Return the places that a whole layer uses, for kernels that make rounds of it."""
        raise NotImplementedError(f"{type(self).__name__}._all_places")

    def steps(self, rounds: int) -> Iterator[PhaseOfRound]:
        """Yield what each rank launches in this many rounds, in order."""
        for i in range(rounds):
            yield from (PhaseOfRound(phase, i, i) for phase in (self.dispatches, DUMMY, self.combines))

    def die_of(self, rank: int) -> int:
        """The die that a rank is on; here and below ConfigError for a rank, or number of a round, that there is not."""
        return self.config.first_die + self._check_rank(rank)

    def n_tokens(self, rank: int, number: int = 0) -> int:
        """Tokens of a rank in its last dispatch in the buffers of that round."""
        return int(self.pod.view(self._of(rank, number)["batches"], np.int32)[0])

    # ---- dispatch

    def dispatch(
        self, tokens: Sequence[NDArray[Any]], topk: Sequence[NDArray[Any]], progress: Progress | None = None
    ) -> list[Received]:
        """Send every token to the ranks of its experts.

        tokens: for each rank [T, hidden] of the group's type, T up to tokens_max and different from rank to rank.
        topk: for each rank [T, top_k] integers, expert slots or -1 for a masked choice, none twice in a row
        unless the group takes ``repeats``: then each is a message of its own, in order of the choices.

        Raises ConfigError, before anything moves, for wrong shapes, types, slots, or (quantized) a NaN or infinity.
        """
        self.check_ready(self.dispatches.kernel)
        self._fill_dispatch(tokens, topk, 0)
        self._run(PhaseOfRound(self.dispatches, 0), DISPATCHED, progress)
        return [self.received(rank) for rank in range(self.config.n_ranks)]

    def _fill_dispatch(self, tokens: Sequence[NDArray[Any]], topk: Sequence[NDArray[Any]], number: int) -> None:
        """Check a batch, and put it into the buffers of a round."""
        tokens, topk = self._per_rank("tokens", tokens), self._per_rank("topk", topk)
        for rank, (x, choices) in enumerate(zip(tokens, topk, strict=True)):
            check_tokens(self.config, rank, x, choices)
        self._begin(number)
        for rank, (x, choices) in enumerate(zip(tokens, topk, strict=True)):
            app.fill(self.pod, self.config, self._of(rank, number), 0, x, choices)
        self._commit_rows(topk, number)

    def _begin(self, number: int) -> None:
        """Begin a round, which has no results yet."""
        self._stage(number)[0] = NOTHING

    def _commit_rows(self, topk: Sequence[NDArray[Any]], number: int) -> None:
        """Commit what the rows of a round will fill; the buffers are sized for the worst case."""
        slots = np.concatenate([choices[choices >= 0].astype(np.int64) for choices in topk])
        rows = np.bincount(slots // self.config.local_experts, minlength=self.config.n_ranks)
        committed = self._rows_committed[number]
        for rank, n in enumerate(rows.tolist()):
            if n > committed[rank]:
                self.pod.commit(self._of(rank, number)["recv_x"], n * self.config.payload_bytes)
                self.pod.commit(self._of(rank, number)["y"], n * self.config.row_bytes)
                committed[rank] = n

    def shape(self) -> Group:
        """The kernels' record of the group."""
        c = self.config
        return c.group(c.n_ranks, c.cores, self.pod.spec.die_bytes, self.layout.first(self.layout.tallies))

    def received(self, rank: int, number: int = 0) -> Received:
        """Return what dispatch brought to a rank; ConfigError if nothing was dispatched."""
        c, own = self.config, self._of(rank, number)
        self._check_stage("received", DISPATCHED, number)
        counts = self.pod.view(own["counts"], np.int32)[: c.n_slots].reshape(c.local_experts, c.n_ranks)
        return Received.of(self.pod, c, own, counts)

    # ---- experts

    def run_dummy(self, progress: Progress | None = None) -> None:
        """Compute, on each rank, the dummy expert on what was received (`kernels/experts/dummy.py`).

        Raises ConfigError, before anything moves, if nothing was dispatched.
        """
        self._run_dummy(0, progress)

    def _run_dummy(self, number: int, progress: Progress | None = None) -> None:
        """The same in a round."""
        self.check_ready(DUMMY.kernel)
        self._check_stage("run_dummy", DISPATCHED, number)
        if 0 < self.config.opaque_bytes < self.config.row_bytes:
            must = f"{self.config.row_bytes} or more for the dummy expert"
            raise ConfigError("opaque_bytes", self.config.opaque_bytes, f"must be {must}")
        self._run(PhaseOfRound(DUMMY, number), int(self._stage(number)[0]), progress)

    def expert_output(self, rank: int, number: int = 0) -> NDArray[Any]:
        """[rows, hidden] view to write a rank's expert outputs into, in the order of the received rows.

        Read-only where the pod's policy moves no data.

        Raises ConfigError if nothing was dispatched.
        """
        self._check_stage("expert_output", DISPATCHED, number)
        return self._states(rank, number, "y")[: len(self.received(rank, number).x)]

    # ---- combine

    def combine(self, weights: Sequence[NDArray[np.float32]], progress: Progress | None = None) -> list[NDArray[Any]]:
        """Bring the experts' outputs back and sum them for each token of the last dispatch.

        weights: for each rank [T, top_k] float32 gate weights; the shared expert's is not used.
        Returns for each rank [T, hidden] of the group's type: views, valid until the next combine.

        Raises ConfigError, before anything moves, for wrong shapes or types, if nothing was dispatched, or (quantized
        on the way back) for a NaN or infinity among the experts' outputs.
        """
        self.check_ready(self.combines.kernel)
        self._fill_combine(weights, 0)
        self._run(PhaseOfRound(self.combines, 0), COMBINED, progress)
        return [self.output(rank) for rank in range(self.config.n_ranks)]

    def _fill_combine(self, weights: Sequence[NDArray[np.float32]], number: int) -> None:
        """Check gate weights, and put them into the buffers of a round, which then has no outputs."""
        self._check_stage("combine", DISPATCHED, number)
        weights = self._per_rank("weights", weights)
        for rank, table in enumerate(weights):
            check_weights(self.config, f"weights of rank {rank}", table, self.n_tokens(rank, number))
            if self.config.quantized_back:
                check_finite(self.config, f"expert_output of rank {rank}, row", self.expert_output(rank, number))
        self._stage(number)[0] = DISPATCHED
        for rank, table in enumerate(weights):
            app.fill_weights(self.pod, self.config, self._of(rank, number), 0, table)

    def output(self, rank: int, number: int = 0) -> NDArray[Any]:
        """Return what combine gave a rank: [T, hidden]; ConfigError if nothing was combined since the last dispatch."""
        n_tokens = self.n_tokens(rank, number)
        self._check_stage("output", COMBINED, number)
        return self._states(rank, number, "out")[:n_tokens]

    # ---- a layer, and several rounds

    def layer(
        self, tokens: Sequence[NDArray[Any]], topk: Sequence[NDArray[Any]], weights: Sequence[NDArray[np.float32]],
        progress: Progress | None = None,
    ) -> list[NDArray[Any]]:  # fmt: skip
        """Dispatch, dummy expert and combine in one run: arrays for each rank, and outputs, as they have them.

        Raises as `run_rounds` does.
        """
        return self.run_rounds([tokens], [topk], [weights], progress=progress)[0]

    def run_rounds(
        self, tokens: PerRound, topk: PerRound, weights: PerRound, parts: Collection[str] = LAYER,
        progress: Progress | None = None,
    ) -> list[list[NDArray[Any]]]:  # fmt: skip
        """Dispatch, dummy expert and combine, round after round in one run.

        Each rank goes on at its own pace, so that a fast one may be ahead.

        tokens, topk, weights: [round][rank] arrays as `dispatch` and `combine` take them, for at most as many rounds
        as the group has buffers for.  parts: what each round has of a layer; the rest was run before.
        Returns [round][rank] outputs like `combine`.

        Raises ConfigError, before anything moves, for what `dispatch` or `combine` would refuse, or a pod with too few
        registers for all kernels in one; CapacityError if there is no room for the tables of launches.
        """
        kernels = dict.fromkeys(step.phase.kernel for step in self.steps(1) if step.phase.part in parts)
        self.check_ready(in_turn(tuple(kernels)))
        rounds = self.fill_rounds(tokens, topk, weights)
        mark = self.pod.mark_app()
        try:
            streams = Streams(Bench.around(self.pod), self.pod)
            self.launch_rounds(streams, rounds, parts)
            streams.put()
            self.run_as("rounds", progress)
        finally:
            self.pod.release_app(mark)
        for i in range(rounds):
            self._stage(i)[0] = COMBINED
        return [[self.output(rank, i) for rank in range(self.config.n_ranks)] for i in range(rounds)]

    def fill_rounds(self, tokens: PerRound, topk: PerRound, weights: PerRound) -> int:
        """Put the batches of all rounds into their buffers, as `run_rounds` does; returns how many there are."""
        must = "a list of rounds, each with an array for each rank"
        rounds = number_in("rounds of tokens", len(listed("tokens", tokens, must)), 1, self.n_rounds)
        given = {"tokens": tokens, "topk": topk, "weights": weights}
        columns = [
            [self._per_rank(f"{name} of round {i}", batch) for i, batch in enumerate(batches)]
            for name, arrays in given.items()
            for batches in [one_for_each(name, arrays, rounds, "rounds")]
        ]
        batches = [[*zip(*batch, strict=True)] for batch in zip(*columns, strict=True)]
        for i, batch in enumerate(batches):
            for rank, (x, choices, table) in enumerate(batch):
                check_tokens(self.config, rank, x, choices)
                check_weights(self.config, f"weights of round {i}, rank {rank}", table, len(x))
        for i, batch in enumerate(batches):
            self._begin(i)
            for rank, (x, choices, table) in enumerate(batch):
                app.fill(self.pod, self.config, self._of(rank, i), 0, x, choices, table)
        return rounds

    def launch_rounds(self, streams: Streams, rounds: int, parts: Collection[str] = LAYER) -> None:
        """Append ``rounds`` rounds, which are filled, to the streams."""
        for step in self.steps(rounds):
            if step.phase.part in parts:
                self._launch_all(step, streams)

    # ---- all of them

    def _run(self, step: PhaseOfRound, stage: int, progress: Progress | None = None) -> None:
        """Launch a phase on all ranks and run it; then the round has these results."""
        self._launch_all(step)
        self.run_as(step.phase.part, progress, ends=stage not in (SENT, SENT_BACK))
        self._stage(step.number)[0] = stage

    def _launch_all(self, step: PhaseOfRound, streams: Streams | None = None) -> None:
        """Launch a phase on all ranks, on the pod or after what streams have."""
        places = {"c": self.shape(), "core": range(self.config.cores), **self._places(step.phase, step.ahead)}
        for rank in range(self.config.n_ranks):
            args = self._args(rank, step, places)
            self.pod.launch(step.phase.kernel, self.die_of(rank), range(self.config.cores), args, after=streams)

    def _args(self, rank: int, step: PhaseOfRound, places: Args) -> Args:
        """Return a phase's arguments on a rank, with the buffers of the rank that it may touch."""
        phase = step.phase
        there = self._of(rank, step.number) | {name: lent[rank] for name, lent in self.lent.items()}
        addresses = {name: there[name].address for name in app.touched_by(phase.kernel) if name in there}
        own_b = Buffers(**{name: addresses[name] for name in Buffers._fields if name in addresses})
        given = {**places, **addresses, "rank": rank, "tokens": self.n_tokens(rank, step.number), "b": own_b}
        return {name: given[name] for name in phase.kernel.params}

    def _whole_rounds(self, rank: int) -> dict[str, Any]:
        """Return what a kernel that makes all rounds of a rank is given of the group and the rank's buffers."""
        held = [self.buffers[rank].get(name) for name in Buffers._fields]
        return {
            "core": range(self.config.cores), "c": self.shape(),
            "b": Buffers(*(buffer.address if buffer else 0 for buffer in held)),
            "stride": Buffers(*(buffer.nbytes // self.n_rounds if buffer else 0 for buffer in held)),
        }  # fmt: skip

    def _of(self, rank: int, number: int = 0) -> app.Buffered:
        """The app buffers of a rank in a round."""
        return self._rounds[index_of("round", number, self.n_rounds)][self._check_rank(rank)]

    def _states(self, rank: int, number: int, name: str) -> NDArray[Any]:
        """[rows, hidden] hidden states in a buffer."""
        buffer, c = self._of(rank, number)[name], self.config
        return self.pod.payload(buffer, c.numpy_dtype(), (-1, c.hidden))

    def _stage(self, number: int = 0) -> NDArray[np.int32]:
        """[1] view of the results that there are: a word in the pod's memory, so it is part of snapshots."""
        return self.pod.view(self._of(0, number)["batches"], np.int32)[1:]

    def _check_stage(self, what: str, least: int, number: int = 0) -> None:
        """Raises ConfigError for what needs results that there are not, or not yet, or no more."""
        stage = self._stage(number)[0]
        if stage < least:
            self._check_whole()
            raise ConfigError(f"{what}: nothing was {'dispatched' if stage < DISPATCHED else 'combined'}")

    def _check_rank(self, rank: int) -> int:
        return index_of("rank", rank, self.config.n_ranks)

    def _per_rank(self, name: str, given: Sequence[Any]) -> list[NDArray[Any]]:
        """An array for each rank; ConfigError for anything else."""
        return as_arrays(name, one_for_each(name, given, self.config.n_ranks, "ranks"))

    def zero_fields(self) -> None:
        """Zero the fields as any communicator does, and discard all results."""
        for i in range(self.n_rounds):
            self._stage(i)[0] = NOTHING
        super().zero_fields()
