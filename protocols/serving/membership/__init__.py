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

NOT_THERE, COMES_BACK, LIVES_AGAIN = 1, 2, 3
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
        0, "The lost rank, 1: is not there at first, and joins at any moment; 2: comes back when it was given up;"
        " 3: does so where its die begins again (--fault revive).",
        of=range(4), advanced=True,
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lost > self.ranks:
            raise ConfigError("lost", self.lost, f"must be a rank, 0 to {self.ranks - 1}, or {self.ranks} for none")
        if self.joins and self.lost == self.ranks:
            raise ConfigError("joins", self.joins, f"must be 0 with lost={self.lost}, which is no rank that could join")
        if self.joins and self.timed:
            raise ConfigError("joins", self.joins, "must be 0 with timed=1: who joins has no time-outs")

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
        said_bytes = 32 * (bool(self.timed or self.joins) + (self.joins == LIVES_AGAIN))
        app = (self.ranks + 1) * self.iterations * nbytes + said_bytes
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
        given_up = pod.alloc(supervisor, 16) if self.timed else None
        for me in range(self.ranks):
            own = bench.filled(me, sent[me], "own")
            spare = bench.filled(me, sent[me - 1], "spare")
            out = pod.alloc(me, (self.ranks - 1) * self.iterations * nbytes)
            bench.label_buffer(out, "out")
            says = self.timed or (self.joins and me == self.lost)
            said = pod.alloc(me, 16) if says else None
            lives = None
            if self.joins == LIVES_AGAIN and me == self.lost:
                lives = bench.filled(me, np.zeros(4, np.int64), "lives")
            if said is not None:
                heard, end = (Buffer(me, field.at(me), 8) for field in (word, over))
                ready = Buffer(me, readies.at(me), self.ranks * membership.FIELD_BYTES)
                self._judge(bench, me, _Leaves(out, said, heard, end, ready, given_up, lives))
            elif me != self.lost:
                for j, expert in self._gets(me).items():
                    at = out.address + j * sent[0].nbytes
                    bench.expect(at, sent[expert], f"rank {me}, expert {expert}", owners=f"die{me}")
            sends = [2 * me + k for k in range(2)]
            mine = known._replace(me=me, readies=readies.at(0).only(me), dones=dones.at(supervisor).only(me))
            if said is not None and self.timed:
                mine = mine._replace(said=said.address)
            both = rows.at(0).only(*sends, *(2 * self.ranks + i for i in sends))
            places = membership.MemberRows(nbytes, both, fields.at(0).only(*sends))
            given = {"own": own.address, "spare": spare.address, "out": out.address, "joined": 0, "lives": 0}
            args: dict[str, Any] = {**given, "w": places}
            if me != self.lost or self.joins not in (NOT_THERE, LIVES_AGAIN):
                pod.launch(membership.rank, me, [0], {**args, "g": mine}, after=streams)
            if said is not None and self.joins:
                args |= {"g": mine._replace(joins=joins.at(supervisor)), "joined": said.address}
                args["lives"] = lives.address if lives is not None else 0
                pod.launch(membership.rank, me, [0], args, after=streams)
        streams.put()
        suspect = self.lost if self.lost < self.ranks else membership.NOBODY
        if given_up is not None:
            bench.label_buffer(given_up, "said")
            known = known._replace(said=given_up.address)
        if self.joins:
            known = known._replace(joins=joins.at(supervisor))
        args = {"suspect": suspect, "heir": heir}
        pod.launch(membership.supervise, supervisor, [0], {**args, "g": known})
        bench.tolerates("stop", "cut", "stall", *(("revive",) if self.joins == LIVES_AGAIN else ()))
        if self.timed or self.lost < self.ranks:
            bench.recovers(*(range(supervisor + 1) if self.timed else [self.lost]))

    def _gets(self, me: int) -> dict[int, int]:
        """Experts that a rank gets rows of, by their places in what it leaves."""
        there = {j: (me + j + 1) % self.ranks for j in range(self.ranks - 1)}
        return {j: expert for j, expert in there.items() if self.spares or expert != self.lost}

    def _judge(self, bench: Bench, me: int, left: "_Leaves") -> None:
        """Judge what a rank says by the rows that it has, and by what it and the supervisor know."""
        rows, there, name, owner = self.rows(), self._gets(me), f"rank {me}", f"die{me}"
        bench.label_buffer(left.said, "said")
        if left.given_up is None:
            bench.judged_by(_Joined(rows, there), left.said, left.out, name=name, owners=owner)
            taken_in = _TakenIn(self.iterations, me, left.lives is not None)
            by = left.said, left.word, left.ready, *(() if left.lives is None else (left.lives,))
            bench.judged_by(taken_in, *by, name=f"{name} taken in", owners="drained")
        else:
            right = _Said(rows, there, me)
            bench.judged_by(right, left.said, left.out, left.word, left.end, name=name, owners=owner)
            both = _Supervised(self.iterations, self.ranks, me == self.lost)
            owners = [owner, f"die{self.ranks}"]
            bench.judged_by(both, left.given_up, left.said, name=f"supervisor, {name}", owners=owners)

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
        "a rank whose die may begin again": dict(ranks=2, lost=1, joins=3),
    }


@dataclass(frozen=True)
class _Leaves:
    """Where a rank leaves what it says, and which words it says that by."""

    out: Buffer
    said: Buffer
    word: Buffer
    end: Buffer
    ready: Buffer
    """[ranks] fields: where the others are."""
    given_up: Buffer | None
    """What the supervisor says; None where ranks join."""
    lives: Buffer | None
    """In how many lives a rank has begun; None where its die does not begin again."""


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
    """What a rank has left that may be taken in: rows of the iterations that it says."""

    def __call__(self, joined: NDArray[np.uint8], out: NDArray[np.uint8]) -> bool | str:
        first, end = joined.view(np.int64).tolist()
        if not 0 <= first <= end <= self.rows.shape[1]:
            return f"it has rows of iterations {first} up to {end}"
        return self.right(out, first, end)


@dataclass(frozen=True)
class _TakenIn:
    """Which rows a rank must have when all has ended, by the words on its die.

    Not taken in, it has none; lost once more, any; else those from the least iteration that another one announced.  A
    member from the start has all as long as it is not lost, and none if it begins again and is not taken in then.
    """

    iterations: int
    me: int
    member: bool
    """Whether it is one from the start, which says in how many lives it has begun."""

    def __call__(
        self, joined: NDArray[np.uint8], word: NDArray[np.uint8], ready: NDArray[np.uint8], *lives: NDArray[np.uint8]
    ) -> bool | str:
        has, (epoch, lost) = joined.view(np.int64).tolist(), _epoch_and_lost(word)
        others = np.delete(ready.view(np.int64)[:: membership.FIELD_BYTES // 8], self.me)
        least = int((others % membership.EPOCH).min())
        taken_in = epoch > 0 and lost == membership.NOBODY and least < self.iterations
        wanted = [least, self.iterations] if taken_in else [0, 0]
        if self.member and epoch == 0 and lives[0].view(np.int64)[0] == 1:
            wanted = [0, self.iterations]
        lost_again = epoch > (not self.member) and lost == self.me
        return lost_again or has == wanted or f"it has rows of iterations {has}, not {wanted}"


@dataclass(frozen=True)
class _Said(_Left):
    """What a rank has left that may give up waiting: its rows as far as it says, or all.

    It names nobody only if it has heard of the end, or that it is given up; another rank, or the supervisor if it is
    through.  Time-outs may pass wrongly: so which rank it names, and whether it has any rows, is not judged.
    """

    me: int

    def __call__(
        self, said: NDArray[np.uint8], out: NDArray[np.uint8], word: NDArray[np.uint8], end: NDArray[np.uint8]
    ) -> bool | str:
        through, silent = said.view(np.int64).tolist()
        ranks, iterations = self.rows.shape[:2]
        epoch, lost = _epoch_and_lost(word)
        if not (0 <= through <= iterations and -1 <= silent <= ranks and silent != self.me):
            return f"it has {through} iterations, and has waited for {silent}"
        if through < iterations and silent == ranks:
            return "it waits for the supervisor before it is through"
        if silent < 0 and not (epoch and lost == self.me) and not (end.any() and through == iterations):
            return "it is not through, or has not heard of the end, and nobody is said to be lost"
        if through == iterations and 0 <= silent < ranks and epoch == 0:
            return "it is through, and waits for another rank though none is given up"
        return self.right(out, 0, through)


@dataclass(frozen=True)
class _Supervised:
    """What the supervisor and a rank have left: it says that it has waited in vain for nobody only if the rank, unless
    it may be given up, is through.  Whom it names is not judged."""

    iterations: int
    ranks: int
    lost: bool
    """May the rank be given up?"""

    def __call__(self, given_up: NDArray[np.uint8], said: NDArray[np.uint8]) -> bool | str:
        nothing, silent = given_up.view(np.int64).tolist()
        if nothing or not -1 <= silent < self.ranks:
            return f"the supervisor says {nothing}, {silent}"
        through = int(said.view(np.int64)[0])
        right = silent >= 0 or self.lost or through == self.iterations
        return right or "nobody is said to be lost, and it is not through"


def _epoch_and_lost(word: NDArray[np.uint8]) -> tuple[int, int]:
    """Epoch and lost rank of a word of the supervisor, as it lies in memory."""
    value = int(word.view(np.int64)[0])
    return value // membership.EPOCH, value % membership.HEIR
