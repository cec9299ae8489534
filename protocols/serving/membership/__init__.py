"""Going on with fewer ranks as a case: ranks that exchange rows of experts, and a supervisor that may give one up."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from xccl_emu.base.errors import ConfigError
from xccl_emu.kernels.serving import membership
from xccl_emu.machine.pod import Buffer
from xccl_emu.protocol import Bench, Case, Preset, Regions, choice, payload, read_papers, size, switch
from xccl_emu.protocol.streams import Streams

NOT_THERE, COMES_BACK = 1, 2
"""What may be of a rank that joins."""


@dataclass(frozen=True)
class Membership(Case):
    """``ranks`` get rows of each other's experts; rank ``lost`` may be given up at any moment, dead or alive."""

    papers = read_papers("serving.membership")
    presets: ClassVar[tuple[Preset, ...]] = (
        Preset(
            "membership",
            "A rank is lost, and the others finish without it (xDeepServe 6.2)",
            {},
            {"ranks": 2, "iterations": 2, "lost": 1},
        ),
    )

    ranks: int = size(3, "Ranks, each with an expert.", least=2, most=128)
    iterations: int = size(1, "Iterations.", most=1 << 10)
    lost: int = size(2, "Rank that may be given up; the number of ranks for none.", least=0, most=128)
    spares: int = size(1, "Whether each rank has the weights of the expert before its own too.", least=0, most=1)
    granules: int = size(1, "Granules of 32 bytes of a row.", most=128)
    seed: int = size(0, "Of the rows.", least=0, most=None)
    timed: int = switch(0, "Do all give up waiting at any moment, so that the supervisor may stop too?", advanced=True)
    joins: int = choice(
        0, "The lost rank, 1: is not there at first, and joins at any moment; 2: comes back when it was given up.",
        of=range(3), advanced=True,
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lost > self.ranks:
            raise ConfigError("lost", self.lost, f"must be a rank, 0 to {self.ranks - 1}, or {self.ranks} for none")
        if self.joins and (self.timed or self.lost == self.ranks):
            raise ConfigError("joins", self.joins, "goes with a rank that is lost, and not with timed=1")

    def rows(self) -> NDArray[np.uint8]:
        """Rows of the experts, [ranks, iterations, bytes]."""
        return payload(self.payload_bytes, self.seed).reshape(self.ranks, self.iterations, 32 * self.granules)

    @property
    def payload_bytes(self) -> int:
        """Rows of all experts."""
        return self.ranks * self.iterations * 32 * self.granules

    def lay_out(self, bench: Bench) -> None:
        """Places for rows by sender on each die, so that who was given up writes to none of the others'."""
        nbytes, supervisor = 32 * self.granules, self.ranks
        regions = Regions(self.ranks + 1)
        rows = regions.managed("row", membership.HEADER_BYTES + nbytes, 4 * self.ranks)
        fields = regions.meta("field", membership.FIELD_BYTES, 2 * self.ranks)
        readies, dones = (regions.meta(name, membership.FIELD_BYTES, self.ranks) for name in ("ready", "done"))
        word, over = (regions.meta(name, membership.FIELD_BYTES) for name in ("word", "end"))
        joins = regions.meta("join", membership.FIELD_BYTES) if self.joins else word
        app = (self.ranks + 1) * self.iterations * nbytes + 32 * bool(self.timed or self.joins)
        app += Streams.table_bytes(2 * (self.joins == COMES_BACK), membership.rank)
        pod = regions.pod(bench, app_bytes=app, ub_bytes=2 * (membership.HEADER_BYTES + nbytes))
        known = membership.MembershipRank(
            0, self.ranks, self.iterations, readies.at(0), word.at(0), over.at(0), dones.at(supervisor),
            rows.at(1) - rows.at(0), 0, membership.NOBODY, membership.NOBODY, 0, 0,
        )  # fmt: skip
        heir = (self.lost + 1) % self.ranks if self.spares else membership.NOBODY
        if self.joins:
            known = known._replace(joins=joins.at(supervisor).limited(""))
        if self.joins == NOT_THERE:
            known = known._replace(lost=self.lost, heir=heir)
        sent, streams = self.rows(), Streams(bench, pod)
        for me in range(self.ranks):
            own = bench.filled(me, sent[me], "own")
            spare = bench.filled(me, sent[me - 1], "spare")
            out = pod.alloc(me, (self.ranks - 1) * self.iterations * nbytes)
            bench.label_buffer(out, "out")
            says = self.timed or (self.joins and me == self.lost)
            said = pod.alloc(me, 16) if says else None
            self._expect(bench, me, out, said)
            sends = [2 * me + k for k in range(2)]
            mine = known._replace(me=me, readies=readies.at(0).only(me), dones=dones.at(supervisor).only(me))
            if said is not None and self.timed:
                mine = mine._replace(said=said.address)
            both = rows.at(0).only(*sends, *(2 * self.ranks + i for i in sends))
            places = membership.MemberRows(nbytes, both, fields.at(0).only(*sends))
            given = {"own": own.address, "spare": spare.address, "out": out.address, "joined": 0}
            args: dict[str, Any] = {**given, "w": places}
            if me != self.lost or self.joins != NOT_THERE:
                pod.launch(membership.rank, me, [0], {**args, "g": mine}, after=streams)
            if said is not None and self.joins:
                args |= {"g": mine._replace(joins=joins.at(supervisor)), "joined": said.address}
                pod.launch(membership.rank, me, [0], args, after=streams)
        streams.put()
        suspect = self.lost if self.lost < self.ranks else membership.NOBODY
        if self.timed:
            bench.label_buffer(said := pod.alloc(supervisor, 16), "said")
            known = known._replace(said=said.address)
        if self.joins:
            known = known._replace(joins=joins.at(supervisor))
        args = {"suspect": suspect, "heir": heir}
        pod.launch(membership.supervise, supervisor, [0], {**args, "g": known})
        bench.tolerates("stop", "cut", "stall")
        if self.timed or self.lost < self.ranks:
            bench.recovers(*(range(supervisor + 1) if self.timed else [self.lost]))

    def _expect(self, bench: Bench, me: int, out: Buffer, said: Buffer | None) -> None:
        """Expect the rows of others' experts at a rank, all of them or those that it says it has."""
        rows, name, owner = self.rows(), f"rank {me}", f"die{me}"
        there = {j: (me + j + 1) % self.ranks for j in range(self.ranks - 1)}
        there = {j: expert for j, expert in there.items() if self.spares or expert != self.lost}
        if said is not None:
            right = _Said(rows, there, me == self.lost) if self.timed else _Joined(rows, there)
            bench.label_buffer(said, "said")
            bench.judged_by(right, said, out, name=name, owners=owner)
        elif me != self.lost:
            for j, expert in there.items():
                at = out.address + j * rows[0].nbytes
                bench.expect(at, rows[expert], f"{name}, expert {expert}", owners=owner)

    proof_rows: ClassVar = {
        "three ranks, the last is given up": {},
        "the first is given up": dict(lost=0),
        "the second is given up": dict(lost=1),
        "no rank is given up": dict(lost=3),
        "nobody has its expert": dict(spares=0),
        "two ranks, two iterations": dict(ranks=2, iterations=2, lost=1),
        "all give up waiting": dict(ranks=2, lost=2, timed=1),
        "a rank joins": dict(ranks=2, lost=1, joins=1),
        "a rank comes back": dict(ranks=2, lost=1, joins=2),
    }


@dataclass(frozen=True)
class _Left:
    """What a rank has left of others' rows."""

    rows: NDArray[np.uint8]
    """Rows of all experts, [ranks, iterations, bytes]."""
    experts: Mapping[int, int]
    """Experts that it gets rows of, by their places in what it has left."""

    def right(self, out: NDArray[np.uint8], first: int, end: int) -> bool | str:
        """Say whether the rows of some iterations are there."""
        each = out.reshape(len(self.rows) - 1, self.rows.shape[1], -1)
        wrong = [e for j, e in self.experts.items() if (each[j, first:end] != self.rows[e, first:end]).any()]
        return f"rows of experts {wrong}" if wrong else True


@dataclass(frozen=True)
class _Joined(_Left):
    """What a rank has left that was taken in: rows of the iterations that it says."""

    def __call__(self, joined: NDArray[np.uint8], out: NDArray[np.uint8]) -> bool | str:
        first, end = joined.view(np.int64).tolist()
        return self.right(out, first, end)


@dataclass(frozen=True)
class _Said(_Left):
    """What a rank has left that may give up waiting: its rows as far as it says, or all."""

    lost: bool
    """May it be given up itself?"""

    def __call__(self, said: NDArray[np.uint8], out: NDArray[np.uint8]) -> bool | str:
        through, silent = said.view(np.int64).tolist()
        ranks, iterations = self.rows.shape[:2]
        all_through = through == iterations
        if not all_through and silent == ranks:
            return "it waits for the supervisor before it is through"
        if not all_through and silent < 0 and not self.lost:
            return "it is not through, and nobody is said to be lost"
        return self.right(out, 0, through)
