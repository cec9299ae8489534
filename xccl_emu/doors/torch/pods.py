"""What the server does for a group of ranks: sessions on emulated pods, one for each shape of what moves."""

import inspect
import itertools
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from xccl_emu.base.errors import ConfigError
from xccl_emu.doors.torch.gate import SERVED, check_said
from xccl_emu.doors.torch.moves import GRANULE, Moves, PairTransfers, PodSession, room_for
from xccl_emu.doors.torch.wire import Arrays, Message
from xccl_emu.kernels.deepep.dispatch import SETS, SIGNAL_BYTES
from xccl_emu.kernels.experts.counts import INDEX_BYTES
from xccl_emu.lang import Kernel
from xccl_emu.lang.requests import OP_POLL, SCALAR
from xccl_emu.machine.pod import Buffer, Pod
from xccl_emu.machine.spec import PodSpec
from xccl_emu.protocol import Regions, tight_pod
from xccl_emu.protocols.deepep.calls import DispatchHandle, LowLatency
from xccl_emu.protocols.deepep.normal import NormalConfig, NormalMode
from xccl_emu.protocols.deepep.session import DeepEpConfig
from xccl_emu.protocols.experts.config import EpConfig
from xccl_emu.protocols.experts.group import Phase
from xccl_emu.protocols.fused.session import FusedConfig, FusedExpertParallel
from xccl_emu.testing.watched import Watched
from xccl_emu.timing.device import layout as tl
from xccl_emu.timing.run import VirtualTime

S = TypeVar("S", bound=PodSession)
Each = Sequence[tuple[Message, Arrays]]
"""What each rank asks, or is answered, by number."""
TIME = "time"
_TABLES_BYTES = 1 << 16
"""Room for tables of launches, where several calls are judged together."""
_HANDLES_MOST = 1 << 12
"""Dispatches of a group that are remembered."""
_BIASES = 2
"""Rows for each token that a sum may begin with, in normal mode."""


@dataclass(frozen=True)
class Settings:
    """How calls are run; one for all groups of a script."""

    policy: str = TIME
    """``"time"`` for virtual time, or a sampling policy of `Watched`."""
    order: str = "relaxed"
    """Memory order where schedules are drawn."""
    seed: int = 0
    schedules: int = 1
    """Drawn for each run."""
    together: int = 1
    """Calls that are judged together, as if hosts did not wait between them."""
    cores: int = 4
    """Cores of a rank."""
    without: tuple[str, ...] = ()
    """Synchronizations that are switched off."""
    witnesses: str = "witnesses"
    """Folder for replay files of violations."""
    replay: str = ""
    """Such a file: the call of that number is run by its schedule."""
    timeout_s: float = 0.0
    """How long a call may wait for its ranks; 0 for as long as it takes."""
    memory_gib: float = 0.0
    """What the server may hold before pods that were used longest ago are given back; 0 for half of this computer's."""

    def full(self) -> bool:
        """Does this process hold more than it may?"""
        page, most = os.sysconf("SC_PAGE_SIZE"), self.memory_gib * (1 << 30)
        held = int(Path("/proc/self/statm").read_text().split()[1])
        return page * held > (most or page * os.sysconf("SC_PHYS_PAGES") // 2)

    def session(self, config: EpConfig) -> "Session":
        """A session of this configuration on a pod on which it just fits."""

        def lay_out(pod: Pod) -> Regions:
            session = Session(pod, config)
            for die in session.group.layout.dies if self.together > 1 else ():
                pod.alloc(die, _TABLES_BYTES + self.together * _written_bytes(config))
            layout: Regions = session.group.layout
            return layout

        ub_bytes = _kind(config).lays_out.ub_bytes(config)
        spec = tight_pod(config.n_ranks, config.cores, ub_bytes, lay_out)
        return Session(self._pod(spec, self.together, self.replay or None), config)

    def moves(self, kind: type[Moves], ranks: int, nbytes: int) -> Moves:
        """A session of this kind; its calls are judged one by one, as hosts wait between them, and never replayed."""
        return kind(self._pod, ranks, self.cores, nbytes)

    def _pod(self, spec: PodSpec, together: int = 1, replay: str | None = None) -> Pod:
        """A pod for which it is no mistake to switch off what only others of the script have."""
        pod = self._made(spec, together, replay)
        for kernel in _kernels() if self.without else ():
            pod.switches.know(kernel)
        return pod

    def _made(self, spec: PodSpec, together: int, replay: str | None) -> Pod:
        if self.policy == TIME:
            return Pod(spec, policy=VirtualTime(), without=self.without)
        policy = Watched(
            self.policy, schedules=self.schedules, seed=self.seed, witnesses=Path(self.witnesses), replay=replay,
            together=together,
        )  # fmt: skip
        return Pod(spec, order=self.order, policy=policy, without=self.without)


_KINDS: Mapping[type[EpConfig], Any] = {
    DeepEpConfig: LowLatency, NormalConfig: NormalMode, FusedConfig: FusedExpertParallel
}  # fmt: skip
"""By configuration, the class of its groups."""


def _kernels() -> Iterator[Kernel]:
    """All kernels that a call may launch."""
    for kind in _KINDS.values():
        for _, phase in inspect.getmembers(kind, lambda each: isinstance(each, Phase)):
            yield phase.kernel
    for moves in (Moves, PairTransfers):
        yield from moves.kernels


def _kind(config: EpConfig) -> Any:
    """Class of the group that has such a configuration."""
    return _KINDS[type(config)]


def _written_bytes(config: EpConfig) -> int:
    """Return what the host of a rank writes for a call at most: tokens with tables of choices and weights, or rows
    and biases."""
    tokens = config.tokens_max * (max(config.row_bytes, config.payload_bytes) + 2 * INDEX_BYTES)
    return max(tokens, (config.rows_max + _BIASES * config.tokens_max) * config.row_bytes)


class Session(PodSession):
    """A group on a pod, with room for statistics of each rank."""

    def __init__(self, pod: Pod, config: EpConfig) -> None:
        self.pod, self.ranks = pod, config.n_ranks
        self.group = _kind(config)(pod, config)
        self._stats = [pod.alloc(die, 4 * config.local_experts) for die in self.group.layout.dies]
        pod.labels.add(self.group.layout.labels())
        pod.labels.add(
            (f"{pod.spec.home(buffer.die)}.app.{name}", buffer.address, buffer.nbytes)
            for buffers in self.group.buffers
            for name, buffer in buffers.items()
        )

    def put_stats(self, asked: Each) -> list[Buffer] | None:
        """Return what ranks have counted so far, for a kernel to add to; None if they want none."""
        if not any("stats" in arrays for _, arrays in asked):
            return None
        for buffer, (_, arrays) in zip(self._stats, asked, strict=True):
            self.group.pod.view(buffer, np.int32)[:] = arrays.get("stats", 0)
        return self._stats

    def stats(self, rank: int) -> NDArray[np.int32]:
        """[local experts] what a rank has counted."""
        counts: NDArray[np.int32] = self.group.pod.view(self._stats[rank], np.int32)
        return counts

    def log_waits(self, said: Message) -> None:
        """Have the next run note how long it waited, if a call asks for it; ConfigError where times are not virtual."""
        policy, wanted = self.group.pod.policy, bool(said.get("waits"))
        if isinstance(policy, VirtualTime):
            policy.log = wanted
        elif wanted:
            raise ConfigError("wait_recv_cost_stats: times are virtual without --policy alone")

    def waits(self, rank: int) -> Arrays:
        """``waits``: [ranks] int64, nanoseconds that the cores of a rank waited for each source in the last run, as far
        as that was asked for.

        A core waits for one signal after the other: what passes meanwhile for later ones is not counted there.
        """
        pod, c = self.group.pod, self.group.config
        if not isinstance(pod.policy, VirtualTime) or not pod.policy.log:
            return {}
        die, sets, records = self.group.die_of(rank), self.group.sets(), pod.policy.timing.records
        waited = np.zeros(c.n_ranks, np.int64)
        for core in range(die * pod.spec.cores_per_die, (die + 1) * pod.spec.cores_per_die):
            own = records[(records[:, tl.RECORD_CORE] == core) & (records[:, tl.RECORD_ENGINE] == SCALAR)]
            own = own[np.argsort(own[:, tl.RECORD_END], kind="stable")]
            since = np.diff(own[:, tl.RECORD_END], prepend=0)  # a poll begins when what is before it has ended
            at = own[:, tl.RECORD_READ] - sets.signals - die * pod.spec.die_bytes
            polls = (own[:, tl.RECORD_OP] == OP_POLL) & (at >= 0) & (at < SETS * sets.signals_step)
            source = at[polls] % sets.signals_step // (SIGNAL_BYTES * c.local_experts)
            np.add.at(waited, source, since[polls])
        return {"waits": waited // 1000}


@dataclass
class _Dispatch:
    """A dispatch that ranks have a handle of."""

    session: Session | None
    """None where its pod was given back."""
    handle: DispatchHandle | None
    """None in normal mode and of the fused kernels, which hold one result."""
    choices: list[NDArray[Any]]
    """[rank] its tokens' ones."""


@dataclass
class ServedGroup:
    """The ranks of a group, as the server serves them."""

    settings: Settings
    size: int
    sessions: dict[str, PodSession] = field(default_factory=dict)
    """By shape, the one that was used last at the end."""
    dispatches: dict[int, _Dispatch] = field(default_factory=dict)
    """By the number of its handle."""
    drawn_before: int = 0
    """Schedules of sessions that are gone."""

    def __post_init__(self) -> None:
        self._numbers = itertools.count(1)

    def serve(self, call: str, asked: Each, absent: Collection[int] = ()) -> list[tuple[Message, Arrays]]:
        """Make a call of all ranks: ``dispatch`` or ``combine``, or a phase of it, ``dispatch_send`` and so on; in
        normal mode ``dispatch_rows`` or ``combine_rows``; ``dispatch_fused`` or ``combine_fused``, by FusedDispatch and
        FusedCombine; ``barrier``; ``gather`` of bytes, and ``transfer`` of them from rank 0 to rank 1; ``clean``, for
        which the kernels do nothing; or ``agree``, by which hosts learn the largest and the sum of their numbers.

        absent: ranks that have left or are masked, whose arrays are not looked at.  Their dies run the kernels, with no
        tokens of their own, and no choice of the others names an expert there.

        Raises ConfigError, before anything is copied, for a call that there is not, or not without all ranks, and for
        arrays that are not as its row of `SERVED`; and what a session raises.
        """
        said = check_said({"call": call, **asked[0][0]})
        if said == "clean":
            return [({}, {}) for _ in asked]
        serves: Mapping[str, Callable[[str, str, Each, Collection[int]], list[tuple[Message, Arrays]]]]
        serves = {
            "dispatch_rows": self._dispatch_rows, "combine_rows": self._combine_rows,
            "dispatch_fused": self._dispatch_fused, "combine_fused": self._combine_fused, "agree": _agree,
            "barrier": self._move, "gather": self._move, "transfer": self._move,
        }  # fmt: skip
        if absent and said in serves:
            raise ConfigError(f"{call} without ranks {sorted(absent)}: needs all ranks")
        what = self._dispatch if call.startswith("dispatch") else self._combine
        return serves.get(call, what)(call, call.partition("_")[2], asked, absent)

    def give_back(self, names: Collection[str]) -> None:
        """Forget the sessions of these shapes, and with them what their dispatches brought."""
        gone = [self.sessions.pop(name) for name in names]
        self.drawn_before += sum(session.drawn() for session in gone)
        for made in self.dispatches.values():
            if any(made.session is session for session in gone):
                made.session = None

    def drawn(self) -> int:
        """Return how many schedules the group's calls were judged by."""
        return self.drawn_before + sum(session.drawn() for session in self.sessions.values())

    def _look(
        self, call: str, session: Session, asked: Each, absent: Collection[int], held: Sequence[dict[str, int]] = ()
    ) -> None:  # fmt: skip
        """Raises ConfigError unless each rank's arrays are as the call's row has them; held: sizes of each rank's."""
        c = session.group.config
        sizes = {
            "columns": c.opaque_bytes or c.hidden, "token_dtype": np.dtype(c.token_dtype()).name, "hidden": c.hidden,
            "row_dtype": np.dtype(c.numpy_dtype()).name, "top_k": c.top_k, "local_experts": c.local_experts,
        }  # fmt: skip
        for rank, (_, arrays) in enumerate(asked):
            if rank not in absent:
                SERVED[call].check(f"{call} of rank {rank}", arrays, {**sizes, **held[rank]} if held else sizes)

    def _without(self, absent: Collection[int], call: str, asked: Each) -> Each:
        """Return what is asked, for kernels that know nothing of absent ranks."""
        said = asked[0][0]
        if not absent:
            return asked
        if call.endswith("_recv"):
            return [(said, {} if rank in absent else arrays) for rank, (_, arrays) in enumerate(asked)]
        if call.startswith("dispatch"):
            local = said["shape"]["local_experts"]
            arrays = next(arrays for rank, (_, arrays) in enumerate(asked) if rank not in absent)
            theirs = {rank: {name: array[:0] for name, array in arrays.items() if name != "stats"} for rank in absent}
        else:
            made, session = self._current(said["handle"])
            local, sent = session.group.config.local_experts, made.choices
            theirs = {
                rank: {"topk": np.full_like(sent[rank], -1), "weights": np.zeros(sent[rank].shape, np.float32)}
                for rank in absent
            }

        def of(rank: int, arrays: Arrays) -> Arrays:
            topk = arrays["topk"]
            return {**arrays, "topk": np.where(np.isin(topk // local, [*absent]), -1, topk).astype(topk.dtype)}

        return [(said, theirs[rank] if rank in absent else of(rank, arrays)) for rank, (_, arrays) in enumerate(asked)]

    def _dispatch(self, call: str, phase: str, asked: Each, absent: Collection[int]) -> list[tuple[Message, Arrays]]:
        said = asked[0][0]
        if phase == "recv":
            number = said["handle"]
            made, session = self._made(number)
            self._look(call, session, asked, absent)
            session.log_waits(said)
            asked = self._without(absent, call, asked)
            group, handle = self._in_phases(made, session)
            received = group.dispatch_recv(handle, session.put_stats(asked))
        else:
            session = self._session(_resolved(said["shape"], asked))
            self._look(call, session, asked, absent)
            session.log_waits(said)
            asked = self._without(absent, call, asked)
            choices, tokens = ([arrays[name] for _, arrays in asked] for name in ("topk", "x"))
            if phase == "send":
                handle, received = session.group.dispatch_send(tokens, choices), []
            else:
                handle, received = session.group.dispatch_whole(tokens, choices, session.put_stats(asked))
            number = self._numbered(session, handle, choices)
        answers: list[Arrays] = [
            {"x": r.x, "scales": r.scales, "source": r.source, "token": r.token, "choice": r.choice,
             "counts": r.counts, "stats": session.stats(rank)}
            for rank, r in enumerate(received)
        ]  # fmt: skip
        return self._answers(number, session, answers)

    def _combine(self, call: str, phase: str, asked: Each, absent: Collection[int]) -> list[tuple[Message, Arrays]]:
        said, number = asked[0][0], asked[0][0]["handle"]
        made, session = self._current(number)
        group, handle = self._in_phases(made, session)
        out, replicas = [], said.get("replicas", 1)
        if replicas < 1 or self.size % replicas:
            raise ConfigError("replicas", replicas, f"must divide {self.size} ranks")
        session.log_waits(said)
        if phase == "recv":
            out = group.combine_recv(handle)
        else:
            self._check_held(number, made, session)
            if group.config.opaque_bytes:  # nothing else is of the type of what comes back
                group.config = replace(group.config, dtype=said.get("dtype", "bf16"))
            places = [group.expert_output(rank, handle.place) for rank in range(self.size)]
            self._look(call, session, asked, absent, [{"rows": len(place)} for place in places])
            asked = self._without(absent, call, asked)
            for place, (_, arrays) in zip(places, asked, strict=True):
                if "y" in arrays:  # else of an absent rank, and nobody's choices name what it sends
                    place[:] = arrays["y"]
            weights, topk = ([arrays[name] for _, arrays in asked] for name in ("weights", "topk"))
            if phase == "send":
                group.combine_send(handle, weights, topk)
            else:
                out = group.combine_whole(handle, weights, topk)
        answers = [
            {f"out{other}": out[other] for other in range(first, first + replicas)}
            for first in (rank // replicas * replicas for rank in range(len(out)))
        ]
        return self._answers(number, session, answers)

    def _dispatch_rows(self, call: str, _: str, asked: Each, absent: Collection[int]) -> list[tuple[Message, Arrays]]:
        session = self._session(asked[0][0]["shape"], NormalConfig)
        self._look(call, session, asked, absent)
        tokens, topk, weights = ([arrays[name] for _, arrays in asked] for name in ("x", "topk", "weights"))
        arrived = session.group.dispatch_rows(tokens, topk, weights)
        answers: list[Arrays] = [
            {"x": a.x, "token": a.token, "experts": a.experts, "weights": a.weights, "counts": a.counts}
            for a in arrived
        ]
        return self._answers(self._numbered(session, None, topk), session, answers)

    def _combine_rows(self, call: str, _: str, asked: Each, absent: Collection[int]) -> list[tuple[Message, Arrays]]:
        number, session = self._returned(call, asked, NormalMode)
        given = [arrays["weights"] for _, arrays in asked if "weights" in arrays]
        if len(given) not in (0, self.size):
            raise ConfigError(f"weights: must come from all {self.size} ranks, or none")
        bias = [arrays.get("bias", ()) for _, arrays in asked]
        answers = [{"out": out} for out in session.group.combine_rows(given or None, bias)]
        for rank, answer in enumerate(answers if given else ()):
            answer["weights"] = session.group.weights(rank)
        return self._answers(number, session, answers)

    def _returned(self, call: str, asked: Each, kind: type[Any]) -> tuple[int, Session]:
        """Rows of experts in their place, where one result is held: its dispatch and its session."""
        number = asked[0][0]["handle"]
        made, session = self._current(number)
        if not isinstance(session.group, kind):
            raise ConfigError("handle", number, "is of another mode than this combine")
        self._check_held(number, made, session, most=1)
        places = [session.group.expert_output(rank) for rank in range(self.size)]
        sent = map(session.group.n_tokens, range(self.size))
        held = [{"rows": len(place), "tokens": n} for place, n in zip(places, sent, strict=True)]
        self._look(call, session, asked, (), held)
        for place, (_, arrays) in zip(places, asked, strict=True):
            place[:] = arrays["y"]
        return number, session

    def _dispatch_fused(self, call: str, _: str, asked: Each, absent: Collection[int]) -> list[tuple[Message, Arrays]]:
        session = self._session(asked[0][0]["shape"], FusedConfig)
        self._look(call, session, asked, absent)
        tokens, topk = ([arrays[name] for _, arrays in asked] for name in ("x", "topk"))
        received = session.group.dispatch(tokens, topk)
        names = ("x", "scales", "source", "token", "choice", "counts")
        answers = [{name: getattr(each, name) for name in names} for each in received]
        return self._answers(self._numbered(session, None, topk), session, answers)

    def _combine_fused(self, call: str, _: str, asked: Each, absent: Collection[int]) -> list[tuple[Message, Arrays]]:
        number, session = self._returned(call, asked, FusedExpertParallel)
        sent = self.dispatches[number].choices
        if any(not np.array_equal(a["topk"], choices) for (_, a), choices in zip(asked, sent, strict=True)):
            raise ConfigError(f"expert_ids: must be the ones of dispatch {number}")
        outputs = session.group.combine([arrays["weights"] for _, arrays in asked])
        return self._answers(number, session, [{"out": out} for out in outputs])

    def _move(self, call: str, _: str, asked: Each, absent: Collection[int]) -> list[tuple[Message, Arrays]]:
        nbytes, room = (GRANULE, GRANULE) if call == "barrier" else room_for(asked[0][0]["shape"])
        for rank, (_said, arrays) in enumerate(asked):
            SERVED[call].check(f"{call} of rank {rank}", arrays, {"nbytes": nbytes})
        kind = PairTransfers if call == "transfer" else Moves
        session = self._kept(f"{kind.__name__} {room}", lambda: self.settings.moves(kind, self.size, room))
        got = session.run(call, [arrays.get("x") for _, arrays in asked])
        return [({"us": us}, arrays) for us, arrays in zip(session.took_us(), got, strict=True)]

    def _answers(self, number: int, session: Session, answers: Sequence[Arrays]) -> list[tuple[Message, Arrays]]:
        """Return each rank's answer: number of the dispatch, time of its kernel, and arrays, if there are any."""
        arrays = answers or [{}] * self.size
        return [
            ({"handle": number, "us": us}, {**each, **session.waits(rank)})
            for rank, (us, each) in enumerate(zip(session.took_us(), arrays, strict=True))
        ]

    # ---- sessions

    def _session(self, shape: Message, kind: type[EpConfig] = DeepEpConfig) -> Session:
        """The session of a shape; of others, those that were used longest ago are given back where memory is short."""
        own: dict[str, Any] = {"n_ranks": self.size, "cores": self.settings.cores}
        if kind is NormalConfig:
            own |= {"cores": own["cores"] + own["cores"] % 2, "weighed": True, "repeats": True, "biases": _BIASES}
        strange = shape.keys() - {each.name for each in fields(kind)} | shape.keys() & {*own, "first_die"}
        if strange:
            raise ConfigError(f"shape: {min(strange)}: a shape has no such size")
        name = repr((kind.__name__, sorted(shape.items())))
        return self._kept(name, lambda: self.settings.session(kind(**own, **shape)))

    def _kept(self, name: str, make: Callable[[], S]) -> S:
        """The session of this name, the one that was used last; it is made if there is none."""
        session = self.sessions.pop(name, None)
        while session is None and self.settings.full() and self.sessions:
            self.give_back([next(iter(self.sessions))])
        self.sessions[name] = kept = cast(S, session) if session else make()
        return kept

    # ---- handles

    def _numbered(self, session: Session, handle: DispatchHandle | None, choices: list[NDArray[Any]]) -> int:
        """Number of a dispatch that was made; its choices are kept once where the one before had the same."""
        last = self._held(session)[:1]
        same = last and all(map(np.array_equal, last[0].choices, choices))
        kept = last[0].choices if same else [each.copy() for each in choices]
        number = next(self._numbers)
        self.dispatches[number] = _Dispatch(session, handle, kept)
        self.dispatches.pop(number - _HANDLES_MOST, None)
        return number

    def _made(self, number: int) -> tuple[_Dispatch, Session]:
        made = self.dispatches.get(number)
        if made is None:
            raise ConfigError("handle", number, "no dispatch of this group has it")
        if made.session is None:
            raise ConfigError("handle", number, "its pod was given back after an error, or for want of memory")
        return made, made.session

    def _current(self, number: int) -> tuple[_Dispatch, Session]:
        """The dispatch, or if the last one with the same choices has replaced its result, that one; and its session.

        A handle says where rows came from, which is the same for both; rows are the caller's.
        """
        made, session = self._made(number)
        last = self._held(session)[0]
        return (last if all(map(np.array_equal, made.choices, last.choices)) else made), session

    def _check_held(self, number: int, made: _Dispatch, session: Session, most: int = 2) -> None:
        """Raises ConfigError if a result is held no longer."""
        if not any(made is each for each in self._held(session)[:most]):
            raise ConfigError("handle", number, "its result was replaced by one of other choices")

    def _held(self, session: Session) -> list[_Dispatch]:
        """Dispatches of a session, the last one first."""
        return [each for each in reversed(self.dispatches.values()) if each.session is session]

    def _in_phases(self, made: _Dispatch, session: Session) -> tuple[Any, DispatchHandle]:
        """The group of a dispatch in low-latency mode, and its handle there; ConfigError for another mode."""
        if made.handle is None:
            number = next(number for number, each in self.dispatches.items() if each is made)
            raise ConfigError("handle", number, "is of another mode than this combine")
        return session.group, made.handle


def _resolved(shape: Message, asked: Each) -> Message:
    """Return a shape that may have ``repeats`` with them only if a token names an expert twice: they take memory."""
    if shape.get("repeats") is not True:
        return shape
    given = (arrays.get("topk", np.zeros(0)) for _, arrays in asked)
    tables = (np.sort(topk) for topk in given if topk.ndim == 2 and topk.dtype.kind == "i")
    return {**shape, "repeats": any(((t[:, 1:] == t[:, :-1]) & (t[:, 1:] >= 0)).any() for t in tables)}


def _agree(call: str, _: str, asked: Each, absent: Collection[int]) -> list[tuple[Message, Arrays]]:
    sizes: Message = {}
    for rank, (_said, arrays) in enumerate(asked):
        sizes = SERVED[call].check(f"{call} of rank {rank}", arrays, sizes)
    numbers = np.stack([arrays["numbers"] for _, arrays in asked])
    return [({}, {"most": numbers.max(0), "sum": numbers.sum(0)}) for _ in asked]
