"""What the server does for a group of ranks: sessions on emulated pods, one for each shape of what moves."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xccl_emu.base.errors import ConfigError
from xccl_emu.doors.torch.wire import Arrays, Message
from xccl_emu.kernels.deepep.dispatch import SETS, SIGNAL_BYTES
from xccl_emu.kernels.experts.counts import INDEX_BYTES
from xccl_emu.lang.requests import OP_POLL, SCALAR
from xccl_emu.machine.pod import Buffer, Pod
from xccl_emu.protocol import Regions, tight_pod
from xccl_emu.protocols.deepep.calls import DispatchHandle, LowLatency
from xccl_emu.protocols.deepep.normal import NormalConfig, NormalMode
from xccl_emu.protocols.deepep.session import DeepEpConfig
from xccl_emu.protocols.experts.config import EpConfig
from xccl_emu.protocols.fused.session import FusedConfig, FusedExpertParallel
from xccl_emu.testing.watched import Watched
from xccl_emu.timing.device import layout as tl
from xccl_emu.timing.run import VirtualTime

Each = Sequence[tuple[Message, Arrays]]
"""What each rank asks, or is answered, by number."""
TIME = "time"
_TABLES_BYTES = 1 << 16
"""Room for tables of launches, where several calls are judged together."""


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
        if self.policy == TIME:
            return Session(Pod(spec, policy=VirtualTime(), without=self.without), config)
        policy = Watched(
            self.policy, schedules=self.schedules, seed=self.seed, witnesses=Path(self.witnesses),
            replay=self.replay or None, together=self.together,
        )  # fmt: skip
        return Session(Pod(spec, order=self.order, policy=policy, without=self.without), config)


def _kind(config: EpConfig) -> Any:
    """Class of the group that has such a configuration."""
    kinds = {DeepEpConfig: LowLatency, NormalConfig: NormalMode, FusedConfig: FusedExpertParallel}
    return kinds[type(config)]


def _written_bytes(config: EpConfig) -> int:
    """Return what the host of a rank writes for a call at most: tokens with tables of choices and weights, or rows."""
    tokens = config.tokens_max * (max(config.row_bytes, config.payload_bytes) + 2 * INDEX_BYTES)
    return max(tokens, config.rows_max * config.row_bytes)


class Session:
    """A group on a pod, with room for statistics of each rank."""

    def __init__(self, pod: Pod, config: EpConfig) -> None:
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

    def took_us(self) -> list[float]:
        """Virtual time of each rank in the last run; 0 where there is none."""
        ranks = range(self.group.config.n_ranks)
        policy = self.group.pod.policy
        if not isinstance(policy, VirtualTime):
            return [0.0 for _ in ranks]
        by_die = policy.timing.by_die_us
        return [by_die[self.group.die_of(rank)] for rank in ranks]


@dataclass
class _Dispatch:
    """A dispatch that ranks have a handle of."""

    session: Session
    handle: DispatchHandle | None
    """None in normal mode and of the fused kernels, which hold one result."""
    choices: list[NDArray[Any]]
    """[rank] its tokens' ones."""


@dataclass
class ServedGroup:
    """The ranks of a group, as the server serves them."""

    settings: Settings
    size: int
    sessions: dict[str, Session] = field(default_factory=dict)
    """By shape."""
    dispatches: list[_Dispatch] = field(default_factory=list)

    def serve(self, call: str, asked: Each, absent: Collection[int] = ()) -> list[tuple[Message, Arrays]]:
        """Make a call of all ranks: ``dispatch`` or ``combine``, or a phase of it, ``dispatch_send`` and so on; in
        normal mode ``dispatch_rows`` or ``combine_rows``; ``dispatch_fused`` or ``combine_fused``, by FusedDispatch and
        FusedCombine; or ``clean``, for which the kernels have nothing to do.

        absent: ranks that have left or are masked, whose arrays are not looked at.  Their dies run the kernels, with no
        tokens of their own, and no choice of the others names an expert there.

        Raises ConfigError for a call that there is not, or not without all ranks, and what a session raises.
        """
        if call == "clean":
            return [({}, {}) for _ in asked]
        if absent:
            asked = self._without(absent, call, asked)
        if call == "dispatch_rows":
            return self._dispatch_rows(asked)
        if call == "combine_rows":
            return self._combine_rows(asked)
        if call == "dispatch_fused":
            return self._dispatch_fused(asked)
        if call == "combine_fused":
            return self._combine_fused(asked)
        what, _, phase = call.partition("_")
        if what not in ("dispatch", "combine") or phase not in ("", "send", "recv"):
            raise ConfigError("call", call, "must be dispatch or combine, or end in _send or _recv")
        return self._dispatch(phase, asked) if what == "dispatch" else self._combine(phase, asked)

    def _without(self, absent: Collection[int], call: str, asked: Each) -> Each:
        """Return what is asked, for kernels that know nothing of absent ranks."""
        said = asked[0][0]
        if call.endswith(("_rows", "_fused")):
            raise ConfigError(f"{call} without ranks {sorted(absent)}: needs all ranks")
        if call.endswith("_recv"):
            return [(said, {} if rank in absent else arrays) for rank, (_, arrays) in enumerate(asked)]
        if call.startswith("dispatch"):
            local = said["shape"]["local_experts"]
            arrays = next(arrays for rank, (_, arrays) in enumerate(asked) if rank not in absent)
            theirs = {rank: {name: array[:0] for name, array in arrays.items() if name != "stats"} for rank in absent}
        else:
            made = self._current(said["handle"])
            local, sent = made.session.group.config.local_experts, made.choices
            theirs = {
                rank: {"topk": np.full_like(sent[rank], -1), "weights": np.zeros(sent[rank].shape, np.float32)}
                for rank in absent
            }

        def of(rank: int, arrays: Arrays) -> Arrays:
            topk = arrays["topk"]
            return {**arrays, "topk": np.where(np.isin(topk // local, [*absent]), -1, topk).astype(topk.dtype)}

        return [(said, theirs[rank] if rank in absent else of(rank, arrays)) for rank, (_, arrays) in enumerate(asked)]

    def _dispatch(self, phase: str, asked: Each) -> list[tuple[Message, Arrays]]:
        if phase == "recv":
            number = asked[0][0]["handle"]
            made = self._made(number)
            made.session.log_waits(asked[0][0])
            received = made.session.group.dispatch_recv(made.handle, made.session.put_stats(asked))
        else:
            session = self._session(asked[0][0]["shape"])
            session.log_waits(asked[0][0])
            choices = [arrays["topk"].copy() for _, arrays in asked]
            tokens = [arrays["x"] for _, arrays in asked]
            if phase == "send":
                handle, received = session.group.dispatch_send(tokens, choices), []
            else:
                handle, received = session.group.dispatch_whole(tokens, choices, session.put_stats(asked))
            made = _Dispatch(session, handle, choices)
            self.dispatches.append(made)
            number = len(self.dispatches)
        answers: list[Arrays] = [
            {"x": r.x, "scales": r.scales, "source": r.source, "token": r.token, "choice": r.choice,
             "counts": r.counts, "stats": made.session.stats(rank)}
            for rank, r in enumerate(received)
        ]  # fmt: skip
        return self._told(number, made.session, answers)

    def _combine(self, phase: str, asked: Each) -> list[tuple[Message, Arrays]]:
        said, number = asked[0][0], asked[0][0]["handle"]
        made = self._current(number)
        if made.handle is None:
            raise ConfigError("handle", number, "is of another mode than this combine")
        group, out = made.session.group, []
        made.session.log_waits(said)
        if phase != "recv":
            if group.config.opaque_bytes:  # nothing else is of the type of what comes back
                group.config = replace(group.config, dtype=said["dtype"])
            for rank, (_, arrays) in enumerate(asked):
                if "y" in arrays:  # else of an absent rank, and nobody's choices name what it sends
                    group.expert_output(rank, made.handle.place)[:] = arrays["y"]
            weights, topk = ([arrays[name] for _, arrays in asked] for name in ("weights", "topk"))
            if phase == "send":
                group.combine_send(made.handle, weights, topk)
            else:
                out = group.combine_whole(made.handle, weights, topk)
        else:
            out = group.combine_recv(made.handle)
        replicas = said.get("replicas", 1)
        answers = [
            {f"out{other}": out[other] for other in range(first, first + replicas)}
            for first in (rank // replicas * replicas for rank in range(len(out)))
        ]
        return self._told(number, made.session, answers)

    def _dispatch_rows(self, asked: Each) -> list[tuple[Message, Arrays]]:
        session = self._session(asked[0][0]["shape"], NormalConfig)
        tokens, topk, weights = ([arrays[name] for _, arrays in asked] for name in ("x", "topk", "weights"))
        arrived = session.group.dispatch_rows(tokens, topk, weights)
        self.dispatches.append(_Dispatch(session, None, [choices.copy() for choices in topk]))
        answers: list[Arrays] = [
            {"x": a.x, "token": a.token, "experts": a.experts, "weights": a.weights, "counts": a.counts}
            for a in arrived
        ]
        return self._told(len(self.dispatches), session, answers)

    def _combine_rows(self, asked: Each) -> list[tuple[Message, Arrays]]:
        number, session = self._returned(asked, NormalMode)
        return self._told(number, session, [{"out": out} for out in session.group.combine_rows()])

    def _returned(self, asked: Each, kind: type[Any]) -> tuple[int, Session]:
        """Rows of experts in their place, where one result is held: its dispatch and its session."""
        number = asked[0][0]["handle"]
        made = self._current(number)
        if not isinstance(made.session.group, kind):
            raise ConfigError("handle", number, "is of another mode than this combine")
        if made is not self._last(made.session):
            raise ConfigError("handle", number, "its result was replaced by one of other choices")
        for rank, (_, arrays) in enumerate(asked):
            made.session.group.expert_output(rank)[:] = arrays["y"]
        return number, made.session

    def _dispatch_fused(self, asked: Each) -> list[tuple[Message, Arrays]]:
        session = self._session(asked[0][0]["shape"], FusedConfig)
        tokens, topk = ([arrays[name] for _, arrays in asked] for name in ("x", "topk"))
        received = session.group.dispatch(tokens, topk)
        self.dispatches.append(_Dispatch(session, None, [choices.copy() for choices in topk]))
        names = ("x", "scales", "source", "token", "choice", "counts")
        answers = [{name: getattr(each, name) for name in names} for each in received]
        return self._told(len(self.dispatches), session, answers)

    def _combine_fused(self, asked: Each) -> list[tuple[Message, Arrays]]:
        number, session = self._returned(asked, FusedExpertParallel)
        if any(
            not np.array_equal(a["topk"], sent) for (_, a), sent in zip(asked, self._made(number).choices, strict=True)
        ):
            raise ConfigError(f"expert_ids: must be the ones of dispatch {number}")
        outputs = session.group.combine([arrays["weights"] for _, arrays in asked])
        return self._told(number, session, [{"out": out} for out in outputs])

    def _told(self, number: int, session: Session, answers: Sequence[Arrays]) -> list[tuple[Message, Arrays]]:
        """Return each rank's answer: number of the dispatch, time of its kernel, and arrays, if there are any."""
        arrays = answers or [{}] * self.size
        return [
            ({"handle": number, "us": us}, {**each, **session.waits(rank)})
            for rank, (us, each) in enumerate(zip(session.took_us(), arrays, strict=True))
        ]

    def _session(self, shape: Message, kind: type[EpConfig] = DeepEpConfig) -> Session:
        name = repr((kind.__name__, sorted(shape.items())))
        if name not in self.sessions:
            cores = self.settings.cores
            cores += cores % 2 if kind is NormalConfig else 0
            self.sessions[name] = self.settings.session(kind(n_ranks=self.size, cores=cores, **shape))
        return self.sessions[name]

    def _made(self, number: int) -> _Dispatch:
        if not 1 <= number <= len(self.dispatches):
            raise ConfigError("handle", number, "no dispatch of this group has it")
        return self.dispatches[number - 1]

    def _current(self, number: int) -> _Dispatch:
        """The dispatch, or if the last one with the same choices has replaced its result, that one.

        A handle says where rows came from, which is the same for both; rows are the caller's.
        """
        made = self._made(number)
        last = self._last(made.session)
        return last if all(map(np.array_equal, made.choices, last.choices)) else made

    def _last(self, session: Session) -> _Dispatch:
        return next(each for each in reversed(self.dispatches) if each.session is session)
