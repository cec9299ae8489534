"""Calls of the API with arguments that make no sense: each returns, or raises an error of the emulator."""

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.hostile_support import NUMBERS, OTHERS, each_kind_once, outcome
from xccl_emu import routing
from xccl_emu.base import sizes
from xccl_emu.base.errors import XcclEmuError
from xccl_emu.check import faults
from xccl_emu.check.check import check
from xccl_emu.check.witness.replay_file import Witness
from xccl_emu.kernels import sendrecv as device
from xccl_emu.machine.pod import Buffer, Pod
from xccl_emu.machine.schedule import Schedule
from xccl_emu.machine.spec import PodSpec, small_pod
from xccl_emu.papers.bench import sweep
from xccl_emu.papers.bench.sendrecv import Sweep
from xccl_emu.protocol.registry import make, names
from xccl_emu.protocols.a2e.config import A2EConfig
from xccl_emu.protocols.experts.config import EpConfig
from xccl_emu.protocols.fused.session import FusedConfig
from xccl_emu.protocols.pull.session import ExpertParallel
from xccl_emu.protocols.sendrecv.session import SendRecv

ARGUMENTS_MAX = 2
"""Arguments of a call that are replaced at once, most often one."""


@dataclass(frozen=True)
class Entry:
    """A way in: a function, and arguments that are right."""

    name: str
    call: Callable[..., Any]
    right: Mapping[str, Any]


class World:
    """A pod, a communicator and a group that hostile calls are made on; made anew now and then."""

    def __init__(self) -> None:
        self.pod = Pod(small_pod(2, 3, ub_bytes=1 << 15))
        self.comm = SendRecv(self.pod, slots=2, slot_bytes=64, channels_max=2)
        self.here, self.there = self.pod.put(0, np.arange(100, dtype=np.uint8)), self.pod.alloc(1, 100)
        pod = Pod(small_pod(2, ub_bytes=1 << 15))
        self.group = ExpertParallel(pod, EpConfig(n_ranks=2, hidden=32, top_k=1, tokens_max=4))
        self.handles: list[Any] = []

    def begin(self, call: str, **named: Any) -> None:
        """Start an asynchronous call, and keep its handle."""
        self.handles.append(getattr(self.comm, call)(**named))

    def go_on(self, how: str, which: Any) -> None:
        """A pass of a handle, or all."""
        if isinstance(which, int) and 0 <= which < len(self.handles):
            getattr(self.handles[which], how)()


def transfers_of(world: World) -> list[Entry]:
    """Send and receive, in every way."""
    comm, here, there = world.comm, world.here, world.there
    how = {"event_id": 7, "cores": 1, "path": "mtu"}
    more = {**how, "recv_event_id": None}
    back = Buffer(0, here.address + 64, 32)
    return [
        Entry("transfer", comm.transfer, {"source": here, "target": there, **more}),
        Entry("send", comm.send, {"source": here, "target_die": 1, **how}),
        Entry("recv", comm.recv, {"target": there, "source_die": 0, **how}),
        Entry("isend", partial(world.begin, "isend"), {"source": here, "target_die": 1, **how}),
        Entry("irecv", partial(world.begin, "irecv"), {"target": there, "source_die": 0, **how}),
        Entry("exchange", comm.exchange, {"source": Buffer(0, here.address, 32), "target_die": 1, "target": back,
                                          "source_die": 1, **more}),
        Entry("run", comm.run, {}), Entry("run", comm.run, {}), Entry("reset", comm.reset, {}),
        *(Entry(how, partial(world.go_on, how), {"which": 0}) for how in ("test", "wait")),
    ]  # fmt: skip


def pod_calls_of(world: World) -> list[Entry]:
    """What a pod is asked for."""
    pod, here = world.pod, world.here
    launch = {"kernel": device.send_zero_copy, "die": 0, "cores": [0], "args": {"nbytes": 3}, "grants": []}
    return [
        Entry("alloc", pod.alloc, {"die": 0, "nbytes": 64}),
        Entry("meta", pod.meta, {"die": 0, "offset": 32}),
        Entry("address", pod.address, {"die": 0, "offset": 32}),
        Entry("view", lambda die, address, nbytes, **how: pod.view(Buffer(die, address, nbytes), **how),
              {"die": 0, "address": here.address, "nbytes": 8, "dtype": np.int32, "shape": (2,)}),
        Entry("put", pod.put, {"die": 0, "array": np.zeros(2)}),
        Entry("grant", pod.grant, {"buffer": here, "rights": "rw"}),
        Entry("launch", pod.launch, launch),
        Entry("Pod", Pod, {"spec": small_pod(2), "order": "fifo", "policy": "random", "seed": 3, "record": True,
                           "without": []}),
        Entry("small_pod", small_pod, {"dies": 2, "cores": 1, "app_bytes": 64, "meta_bytes": 64, "managed_bytes": 64,
                                       "ub_bytes": 64, "flight_granules": 8}),
        Entry("PodSpec", PodSpec, {"name": "p", "nodes": 1, "chips_per_node": 1, "dies_per_chip": 2, "cores_per_die": 1,
                                   "die_bytes": 1 << 12, "meta_bytes": 64, "managed_bytes": 64, "ub_bytes": 64,
                                   "flight_granules": 8, "registers": 16}),
        Entry("SendRecv", SendRecv, {"pod": Pod(small_pod(2, 2)), "slots": 2, "slot_bytes": 64, "channels_max": 1,
                                     "managed_offset": 0, "field_offset": 0}),
    ]  # fmt: skip


def groups_of(world: World) -> list[Entry]:
    """Configurations of expert-parallel groups, and their calls."""
    common = {"hidden": 32, "top_k": 1, "dtype": "bf16", "quantized": True, "quantizer": "xccl", "shared": False}
    ranks = {"n_ranks": 2, "local_experts": 1, "tokens_max": 4, "cores": 1, "first_die": 0, **common}
    rows = [np.zeros((3, 32), ml_dtypes.bfloat16)] * 2
    choices = [np.zeros((3, 1), np.int32)] * 2
    return [
        Entry("EpConfig", EpConfig, {**ranks, "path": "mtu"}),
        Entry("FusedConfig", FusedConfig, {**ranks, "path": "aiv", "pipelined": True, "preallocated": True}),
        Entry("A2EConfig", A2EConfig, {**common, "n_domains": 1, "n_attention": 1, "n_experts": 2, "local_experts": 1,
                                       "tokens_max": 4, "path": "mtu", "depth": 1, "cores": 1, "a2e_cores": 1}),
        Entry("dispatch", world.group.dispatch, {"tokens": rows, "topk": choices}),
        Entry("combine", world.group.combine, {"weights": [np.ones((3, 1), np.float32)] * 2}),
        Entry("received", world.group.received, {"rank": 0}),
        Entry("output", world.group.output, {"rank": 0}),
    ]  # fmt: skip


def place(**named: Any) -> None:
    """Eight experts and replicas on four ranks."""
    routing.place_experts(4, 8, redundancy=routing.Redundancy(loads=[1.0] * 8, **named))


def numbers_and_names() -> list[Entry]:
    """What is parsed, placed and read."""
    case = make("sendrecv", slots=1, chunks=1, granules=1)
    limits = {"order": "sc", "policy": "random", "schedules": 1, "seconds": 1.0, "seed": 0, "without": (), "fault": "",
              "max_states": 9, "reduction": "full"}  # fmt: skip
    return [
        Entry("parse_size", lambda text: sizes.parse_size("-b", str(text)), {"text": "1K"}),
        Entry("parse_whole", lambda text: sizes.parse_whole("-b", str(text)), {"text": "1,2"}),
        Entry("parse_axes", lambda text: sweep.parse_axes([str(text)]), {"text": "ep=8:16"}),
        Entry("faults", lambda text: faults.parse(str(text)), {"text": "stop:die1@3"}),
        Entry("Sweep", Sweep, {"iterations": 1, "warmup": 0}),
        Entry("place", place, {"n_replicas": 1, "slots_per_rank": 0}),
        Entry("Witness", lambda name: Witness.load(Path(str(name).replace("\0", "0"))), {"name": "none.json"}),
        Entry("Schedule", lambda name: Schedule.load(str(name).replace("\0", "0")), {"name": "none.npz"}),
        Entry("make", lambda name, size, value: make(name, **{str(size): value}),
              {"name": names()[0], "size": "cores", "value": 1}),
        Entry("check", lambda **named: check(case, **named), limits),
    ]  # fmt: skip


def hostile(entry: Entry, rng: random.Random) -> dict[str, Any]:
    """The right arguments, some of them replaced; now and then none."""
    arguments = dict(entry.right)
    for name in rng.sample(sorted(arguments), min(len(arguments), rng.randint(0, ARGUMENTS_MAX))):
        arguments[name] = rng.choice(NUMBERS if rng.random() < 0.7 else OTHERS)
    return arguments


def told(name: str, arguments: Mapping[str, Any]) -> str:
    """A call as one would write it."""
    return f"{name}({', '.join(f'{key}={value!r:.60}' for key, value in arguments.items())})"


def entries_of(world: World) -> list[Entry]:
    """All ways in; transfers twice, as what comes of them depends on those before."""
    transfers = transfers_of(world)
    return [*transfers, *transfers, *pod_calls_of(world), *groups_of(world), *numbers_and_names()]


def compile_all() -> None:
    """Call everything as it should be called, so that compiling is not in the time that a call may take."""
    for entry in entries_of(World()):
        with suppress(XcclEmuError):
            entry.call(**entry.right)


def assault(calls: int, seed: int) -> list[str]:
    """So many calls; those that ended in anything but success or an error of the emulator, each kind once."""
    compile_all()
    return each_kind_once(calls_of(calls, random.Random(seed)))


def calls_of(calls: int, rng: random.Random) -> Iterator[tuple[str, str]]:
    """For each call its kind of end, and what was wrong with it."""
    entries: list[Entry] = []
    for number in range(calls):
        if number % 200 == 0:
            entries = entries_of(World())
        entry = rng.choice(entries)
        arguments = hostile(entry, rng)
        text = told(entry.name, arguments)
        wrong = outcome(text, partial(entry.call, **arguments))
        yield f"{entry.name} {wrong.removeprefix(text)[:40]}", wrong


def test_some_hostile_calls() -> None:
    """Three hundred calls with numbers and things that nobody should give: no error is untyped."""
    assert assault(300, seed=1) == []


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(10, 20))
def test_two_hundred_thousand_hostile_calls(seed: int) -> None:
    """Twenty thousand in each of ten: no error is untyped, and each comes to an end."""
    assert assault(20_000, seed) == []
