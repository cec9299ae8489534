"""What the server does for a group of ranks: sessions on emulated pods, one for each shape of what moves."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xccl_emu.errors import ConfigError
from xccl_emu.machine.pod import Pod
from xccl_emu.protocol import tight_pod
from xccl_emu.protocols.deepep.session import DeepEp, DeepEpConfig, deepep_buffer_bytes
from xccl_emu.testing.watched import Watched
from xccl_emu.timing.run import VirtualTime
from xccl_emu.torch.wire import Arrays, Message

Asked = Sequence[tuple[Message, Arrays]]
"""What each rank asks, by number."""
TIME = "time"


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
    cores: int = 4
    """Cores of a rank."""
    without: tuple[str, ...] = ()
    """Synchronizations that are switched off."""
    witnesses: str = "witnesses"
    """Folder for replay files of violations."""

    def pod(self, config: DeepEpConfig) -> Pod:
        """A pod on which a group of this configuration just fits."""
        spec = tight_pod(
            config.n_ranks, config.cores, deepep_buffer_bytes(config), lambda pod: DeepEp(pod, config).layout
        )
        if self.policy == TIME:
            return Pod(spec, policy=VirtualTime(), without=self.without)
        policy = Watched(self.policy, schedules=self.schedules, seed=self.seed, witnesses=Path(self.witnesses))
        return Pod(spec, order=self.order, policy=policy, without=self.without)


@dataclass
class _Session:
    """A session on its pod, and the choices of its dispatches."""

    group: DeepEp
    dispatched: int = 0
    choices: list[NDArray[Any]] = field(default_factory=list)
    """[rank] those of the last dispatch."""


@dataclass
class Group:
    """The ranks of a group, as the server serves them."""

    settings: Settings
    size: int
    sessions: dict[str, _Session] = field(default_factory=dict)
    """By shape."""
    handles: dict[int, tuple[str, list[NDArray[Any]]]] = field(default_factory=dict)
    """Shape and choices of each dispatch, by number."""
    sent: list[Asked] = field(default_factory=list)
    """What was sent and is not yet received."""

    def serve(self, call: str, asked: Asked) -> list[tuple[Message, Arrays]]:
        """Make a call of all ranks; ConfigError for one that there is not."""
        known: dict[str, Callable[[Asked], list[tuple[Message, Arrays]]]] = {
            "dispatch": self._dispatch, "combine": self._combine, "dispatch_send": self._send,
            "combine_send": self._send, "dispatch_recv": self._receive, "combine_recv": self._receive,
        }  # fmt: skip
        if call not in known:
            raise ConfigError(f"call={call!r}: must be one of {', '.join(known)}")
        return known[call](asked)

    def _session(self, shape: Message) -> tuple[str, _Session]:
        name = repr(sorted(shape.items()))
        if name not in self.sessions:
            config = DeepEpConfig(n_ranks=self.size, cores=self.settings.cores, **shape)
            self.sessions[name] = _Session(DeepEp(self.settings.pod(config), config))
        return name, self.sessions[name]

    def _dispatch(self, asked: Asked) -> list[tuple[Message, Arrays]]:
        name, session = self._session(asked[0][0]["shape"])
        choices = [arrays["topk"].copy() for _, arrays in asked]
        received = session.group.dispatch([arrays["x"] for _, arrays in asked], choices)
        session.choices = choices
        number = len(self.handles) + 1
        self.handles[number] = name, choices
        took = self._took_us(session)
        return [
            ({"handle": number, "us": us}, {"x": r.x, "scales": r.scales, "source": r.source, "token": r.token,
              "choice": r.choice, "counts": r.counts})
            for r, us in zip(received, took, strict=True)
        ]  # fmt: skip

    def _combine(self, asked: Asked) -> list[tuple[Message, Arrays]]:
        number = asked[0][0]["handle"]
        if number not in self.handles:
            raise ConfigError(f"handle={number}: no dispatch of this group has it")
        name, choices = self.handles[number]
        session = self.sessions[name]
        if not all(map(np.array_equal, choices, session.choices)):
            raise ConfigError(f"handle={number}: the result of its dispatch was overwritten by one with other choices")
        for rank, (_, arrays) in enumerate(asked):
            session.group.expert_output(rank)[:] = arrays["y"]
        out = session.group.combine([arrays["weights"] for _, arrays in asked])
        took = self._took_us(session)
        return [({"handle": number, "us": us}, {"out": each}) for each, us in zip(out, took, strict=True)]

    def _send(self, asked: Asked) -> list[tuple[Message, Arrays]]:
        """Keep what is sent until it is received."""
        self.sent.append([(said, {name: array.copy() for name, array in arrays.items()}) for said, arrays in asked])
        number = asked[0][0].get("handle", len(self.handles) + 1)
        return [({"handle": number}, {})] * self.size

    def _receive(self, asked: Asked) -> list[tuple[Message, Arrays]]:
        return self.serve(asked[0][0]["call"].removesuffix("_recv"), self.sent.pop(0))

    def _took_us(self, session: _Session) -> list[float]:
        """Virtual time of each rank in the last run; 0 where there is none."""
        policy = session.group.pod.policy
        if not isinstance(policy, VirtualTime):
            return [0.0] * self.size
        by_die = policy.timing.by_die_us
        return [by_die[session.group.die_of(rank)] for rank in range(self.size)]
