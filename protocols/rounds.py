"""Several rounds of a mixture-of-experts layer in one launch, so that a fast rank may be a round ahead of a slow one.

    outputs = Rounds.outputs_of(group, tokens, topk, weights)     # [round][rank]

or, to look at what every phase left, or to launch without running:

    rounds = Rounds(group, tokens, topk, weights)
    rounds.launch()
    pod.run()
    rounds.received(1, rank), rounds.output(1, rank)
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from xccl_emu.errors import ConfigError
from xccl_emu.kernels.moe import COMBINE, DISPATCH, EXPERT, moe_layers
from xccl_emu.kernels.parameters import Buffers as Addresses
from xccl_emu.kernels.parameters import Rounds as RoundsArgument
from xccl_emu.lang import Kernel
from xccl_emu.machine.launch import Grant, Launch
from xccl_emu.machine.pod import Buffer
from xccl_emu.machine.spec import whole
from xccl_emu.machine.stats import RunStats
from xccl_emu.protocols import expert_group
from xccl_emu.protocols.arguments import index_of, listed, one_for_each
from xccl_emu.protocols.communicator import Progress
from xccl_emu.protocols.expert_group import Args, ExpertGroup, Received, allocate, as_arrays, fill
from xccl_emu.protocols.expert_parallel import ExpertParallel
from xccl_emu.protocols.layout import check_tokens, check_weights

PerRank = Sequence[Sequence[NDArray[Any]]]
"""[round][rank] arrays."""

ALL = DISPATCH | EXPERT | COMBINE


def in_parts(batch: Sequence[NDArray[Any]], tokens_max: int) -> list[list[NDArray[Any]]]:
    """A batch [rank] whose arrays have a row for each token, in parts of at most ``tokens_max`` tokens: [part][rank].

    What is too large for the buffers of a group goes through them in rounds, a part in each.
    """
    parts = max(1, -(-max(map(len, batch)) // tokens_max))
    return [[rows[i * tokens_max : (i + 1) * tokens_max] for rows in batch] for i in range(parts)]


def _arrays(name: str, given: PerRank, n_ranks: int) -> list[list[NDArray[Any]]]:
    """[round][rank] arrays; ConfigError for what is something else."""
    rounds = enumerate(listed(name, given, "a list of rounds, each with an array for each rank"))
    named = ((f"{name} of round {i}", batch) for i, batch in rounds)
    return [as_arrays(what, one_for_each(what, batch, n_ranks, "ranks")) for what, batch in named]


_OF_EXPERT = {**expert_group.EXPERT.rights, "counts": "r"}
"""What the dummy expert may do in a launch of rounds, where it counts its rows itself."""


class GroupRounds(ABC):
    """The buffers of several rounds in the app data areas, one behind the other, and the launch that runs them.

    tokens, topk, weights: [round][rank] arrays as `ExpertGroup.dispatch` and `combine` take them; batches may differ
    from round to round and from rank to rank.

    Raises ConfigError, before anything moves, for what dispatch or combine would refuse, no round at all, or a pod with
    too few registers for the kernel; CapacityError if the buffers do not fit.
    """

    kernel: ClassVar[Kernel]
    """The kernel that runs all rounds."""
    parts: int = ALL
    """Which phases each round has."""

    def __init__(self, group: ExpertGroup[Any], tokens: PerRank, topk: PerRank, weights: PerRank) -> None:
        self.group, self.pod, self.config = group, group.pod, group.config
        n_ranks = self.config.n_ranks
        tokens, topk = _arrays("tokens", tokens, n_ranks), _arrays("topk", topk, n_ranks)
        weights = _arrays("weights", weights, n_ranks)
        self.n_rounds = len(tokens)
        self._check(tokens, topk, weights)
        self._lengths = [[len(x) for x in batch] for batch in tokens]
        self.buffers = allocate(self.pod, self.config, self.n_rounds)
        """The app buffers of each rank."""
        self._launches: list[Launch] = []
        for i in range(self.n_rounds):
            for rank in range(self.config.n_ranks):
                own = vars(self.buffers[rank])
                fill(self.pod, self.config, own, i, tokens[i][rank], topk[i][rank], weights[i][rank])

    @classmethod
    def outputs_of(
        cls, group: Any, tokens: PerRank, topk: PerRank, weights: PerRank, progress: Progress | None = None
    ) -> list[list[NDArray[Any]]]:
        """Make rounds, run them, and give their app memory back; returns copies of their outputs.

        Those are [round][rank] arrays, each [T, hidden] of the group's type.
        """
        group.check_ready(cls.kernel)
        mark = group.pod.mark_app()
        try:
            made = cls(group, tokens, topk, weights)
            made.run(progress)
            return [[made.output(i, rank).copy() for rank in range(group.config.n_ranks)] for i in range(made.n_rounds)]
        finally:
            group.pod.release_app(mark)

    @abstractmethod
    def _areas(self) -> Args:
        """The arguments that say where the protocol keeps what."""

    def _next_combine(self) -> int:
        """Event ID of the first round's combine; 0 where it has none."""
        return 0

    def _shared(self, rank: int) -> list[Grant]:
        """What the kernel may touch on a rank beside its app buffers."""
        grants = self.group.layout.dispatch_grants(rank) if self.parts & DISPATCH else []
        return [*dict.fromkeys(grants + (self.group.layout.combine_grants(rank) if self.parts & COMBINE else []))]

    def _rights(self) -> dict[str, str]:
        """What it may do with them: all that its phases may."""
        group, together = self.group, {"batches": "r"}
        phases = {DISPATCH: group.dispatches.rights, EXPERT: _OF_EXPERT, COMBINE: group.combines.rights}
        for part, rights in phases.items():
            for name, letters in rights.items() if self.parts & part else ():
                together[name] = "".join(sorted({*together.get(name, ""), *letters}))
        return together

    # ---- before the run

    def _check(self, tokens: PerRank, topk: PerRank, weights: PerRank) -> None:
        need = self.kernel.n_registers
        if need > self.pod.spec.registers:
            raise ConfigError(f"registers={self.pod.spec.registers}: rounds in one launch need a pod with {need}")
        if self.n_rounds == 0:
            raise ConfigError("tokens: no rounds")
        for name, given in (("tokens", tokens), ("topk", topk), ("weights", weights)):
            if len(given) != self.n_rounds:
                raise ConfigError(f"{name}: {len(given)} rounds, tokens has {self.n_rounds}")
        for i in range(self.n_rounds):
            for rank in range(self.config.n_ranks):
                check_tokens(self.config, rank, tokens[i][rank], topk[i][rank])
                what = f"weights of round {i}, rank {rank}"
                check_weights(self.config, what, weights[i][rank], len(tokens[i][rank]))

    def _states(self, i: int, buffer: Buffer) -> NDArray[Any]:
        """[rows, hidden] hidden states of round ``i`` in a buffer."""
        shape = (self.n_rounds, -1, self.config.hidden)
        rounds: NDArray[Any] = self.pod.payload(buffer, self.config.numpy_dtype(), shape)
        return np.asarray(rounds[i])

    def launch(self) -> None:
        """Put the kernel on the group's cores; it runs with the pod's next run."""
        c = self.config
        self.group.check_ready()
        self._launches = [
            self.pod.launch(self.kernel, c.first_die + rank, range(c.cores), self._args(rank), self._grants(rank))
            for rank in range(c.n_ranks)
        ]

    def _args(self, rank: int) -> dict[str, int | Sequence[int]]:
        group, buffers = self.group, {name: buffer.address for name, buffer in vars(self.buffers[rank]).items()}
        rounds = RoundsArgument(
            n_rounds=self.n_rounds,
            parts=self.parts,
            batches=buffers.pop("batches"),
            dispatch_event=group.next_dispatch(),
            combine_event=self._next_combine(),
            tokens_max=self.config.tokens_max,
            rows_max=self.config.rows_max,
        )
        own: dict[str, int | Sequence[int]] = {"rank": rank, "core": range(self.config.cores), "rounds": rounds}
        return {**own, "c": group.shape(), "b": Addresses(**buffers), **self._areas()}

    def _grants(self, rank: int) -> list[Grant]:
        own = vars(self.buffers[rank])
        return [*self._shared(rank), *(self.pod.grant(own[name], rights) for name, rights in self._rights().items())]

    def run(self, progress: Progress | None = None) -> RunStats:
        """Launch and run."""
        self.group.check_ready(self.kernel)
        self.launch()
        self.group.run_as("rounds", progress)
        return self.group.stats["rounds"]

    # ---- after the run: views; ConfigError for a round or rank that there is not, and as long as nothing has run

    def _check_result(self, i: int, rank: int) -> None:
        index_of("round", i, self.n_rounds)
        index_of("rank", rank, self.config.n_ranks)
        if not self._launches or not all(launch.results for launch in self._launches):
            raise ConfigError(f"round={i}: the rounds have not run to their end")

    def received(self, i: int, rank: int) -> Received:
        """What dispatch brought to a rank in round ``i``."""
        self._check_result(i, rank)
        c, own = self.config, vars(self.buffers[rank])
        counts = self.pod.view(own["counts"], np.int32, (self.n_rounds, -1))[i, : c.n_slots]
        return Received.of(self.pod, c, own, counts.reshape(c.local_experts, c.n_ranks), i * c.rows_max)

    def expert_output(self, i: int, rank: int) -> NDArray[Any]:
        """[rows, hidden] outputs of a rank's experts in round ``i``, in the order of the received rows."""
        rows = len(self.received(i, rank).x)
        return self._states(i, self.buffers[rank].y)[:rows]

    def output(self, i: int, rank: int) -> NDArray[Any]:
        """[T, hidden] sums that combine gave a rank in round ``i``."""
        self._check_result(i, rank)
        return self._states(i, self.buffers[rank].out)[: self._lengths[i][rank]]


class Rounds(GroupRounds):
    """Rounds of pull dispatch, dummy expert and pull combine (xDeepServe 3.2); see `GroupRounds`.

    parts: which phases each round has, `DISPATCH`, `EXPERT` and `COMBINE` in any sum.
    """

    group: ExpertParallel
    kernel = moe_layers

    def __init__(
        self, group: ExpertParallel, tokens: PerRank, topk: PerRank, weights: PerRank, parts: int = ALL
    ) -> None:
        if not 1 <= whole("parts", parts) <= ALL:
            raise ConfigError(f"parts={parts}: must be a sum of DISPATCH (1), EXPERT (2) and COMBINE (4)")
        self.parts = parts
        super().__init__(group, tokens, topk, weights)

    def _areas(self) -> Args:
        return {"dispatches": self.group.dispatch_areas(), "combines": self.group.combine_areas()}

    def _next_combine(self) -> int:
        return self.group.next_combine()
