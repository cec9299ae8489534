"""The shipped protocols as things to check: right as they are, the same each time, and every byte of them named."""

import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from xccl_emu.base.errors import ConfigError
from xccl_emu.check.trial import Trial
from xccl_emu.machine.pod import ORDERS, POLICIES
from xccl_emu.protocol import Case
from xccl_emu.protocol.case import reached_syncs
from xccl_emu.protocol.registry import make, names, proofs
from xccl_emu.protocols.pull.case import MoeCase

CONFIGURATIONS = proofs()
OTHERS: dict[str, Case] = {
    "sendrecv on three dies": make("sendrecv", ranks=3, cores=2, chunks=3),
    "a ring of exchanges by DMA": make("sendrecv-both", ranks=3, cores=2, chunks=5, slots=2, path="dma"),
    "asynchronous by DMA": make("sendrecv-async", path="dma", chunks=3, slots=2),
    "two experts, unquantized": make("moe", experts=2, top_k=3, quantized=False, seed=5),
    "moe by DMA": make("moe", path="dma", top_k=2, rounds=1),
    "a true token": MoeCase(tokens=1, rounds=1, granules=224),
}
"""More that the options allow."""
ALL = {**CONFIGURATIONS, **OTHERS}
THERE = {(f"eplb-loop: {row}", "slot 1") for row in ("two periods", "a period of two iterations")}
"""Bytes that are there before: the first map has expert 0 in this slot, and the last period chooses it again."""


def different(trial: Trial) -> list[str]:
    """What does not hold the expected bytes."""
    memory = trial.pod.memory
    return [e.name for e in trial.expected if memory[e.address : e.address + len(e.data)].tobytes() != e.data]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("what", ALL)
def test_runs_end_with_the_expected_bytes(what: str, order: str) -> None:
    """Under both simple policies each configuration ends with the bytes that the payload or the oracle says, and does
    not begin with them."""
    for policy in POLICIES:
        trial = ALL[what].build(order)
        trial.pod.policy = policy
        before = different(trial)
        assert all((e.name in before) != ((what, e.name) in THERE) for e in trial.expected if any(e.data))
        trial.pod.run()
        assert different(trial) == []


@pytest.mark.parametrize("what", ALL)
def test_two_builds_are_the_same(what: str) -> None:
    """Memory, state, launches, expectations and labels do not change from build to build: schedules replay."""
    one, other = (ALL[what].build("relaxed") for _ in range(2))
    assert np.array_equal(one.pod.memory, other.pod.memory)
    assert np.array_equal(one.pod.state, other.pod.state)
    assert one.pod.fingerprint() == other.pod.fingerprint()
    expected = [[replace(each, judge=None) for each in trial.expected] for trial in (one, other)]
    assert expected[0] == expected[1]
    assert (one.filled, one.labels) == (other.filled, other.labels)


@pytest.mark.parametrize("what", ALL)
def test_labels_lie_side_by_side_inside_of_the_pod(what: str) -> None:
    """No two labels have a byte or a name in common, each lies on the die or CPU that it names, and none is empty."""
    trial = ALL[what].build("relaxed")
    spec, die_bytes = trial.pod.spec, trial.pod.spec.die_bytes
    ranges = sorted((label.address, label.address + label.nbytes) for label in trial.labels)
    assert all(end <= start for (_, end), (start, _) in pairwise(ranges))
    assert len({label.name for label in trial.labels}) == len(trial.labels)
    for label in trial.labels:
        assert label.nbytes > 0
        last = label.address + label.nbytes - 1
        assert label.name.startswith(f"{spec.home(label.address // die_bytes)}.")
        assert last // die_bytes == label.address // die_bytes < spec.n_homes


@pytest.mark.parametrize("what", ALL)
def test_every_byte_that_a_kernel_may_touch_has_a_name(what: str) -> None:
    """Whatever address a report has to print, there is a label for it; what is filled and expected is named too."""
    trial = ALL[what].build("relaxed")
    spec = trial.pod.spec
    named = np.zeros(spec.memory_bytes, bool)
    for label in trial.labels:
        named[label.address : label.address + label.nbytes] = True
    for grant in (g for core in trial.pod.active_cores() for g in trial.pod.grants_of(core)):
        for die in range(spec.n_dies) if grant.die is None else [grant.die]:
            assert named[die * spec.die_bytes + grant.start : die * spec.die_bytes + grant.end].all(), grant
    for start, nbytes in [(b.address, b.nbytes) for b in trial.filled] + [
        (e.address, len(e.data)) for e in trial.expected
    ]:
        assert named[start : start + nbytes].all()


@pytest.mark.parametrize("what", ALL)
def test_what_is_filled_differs_from_memory_never_written(what: str) -> None:
    """Payloads have no zero byte and no two equal granules; and everything that is not zero counts as filled."""
    trial = ALL[what].build("relaxed")
    spec = trial.pod.spec
    rest = trial.pod.memory[: spec.n_dies * spec.die_bytes].copy().reshape(spec.n_dies, -1)
    rest[:, spec.meta_start : spec.managed_start] = 0
    for buffer in trial.filled:
        rest.reshape(-1)[buffer.address : buffer.address + buffer.nbytes] = 0
    assert not rest.any()
    payloads = {label.name: label for label in trial.labels if label.name.endswith((".source", ".x"))}
    within = [b for b in trial.filled for at in payloads.values() if 0 <= b.address - at.address < at.nbytes]
    data = np.concatenate([np.zeros(0, np.uint8), *(trial.pod.view(b) for b in within)])  # may be no call at all
    assert data.all()
    granules = data.reshape(-1, 32)
    assert len(np.unique(granules, axis=0)) == len(granules)


@pytest.mark.parametrize("what", [what for what in ALL if what.startswith("sendrecv") or "exchange" in what])
def test_each_channel_answers_for_its_own_part(what: str) -> None:
    """What is expected of send and receive covers the targets, each part twice: by the core that may write it, and by
    the one that sends it. Channels stay apart, which lets a search take them one by one."""
    trial = ALL[what].build("relaxed")
    spec = trial.pod.spec
    for e in trial.expected:
        (core,) = e.cores
        if e.name.endswith("its sender"):
            continue
        die, start = divmod(e.address, spec.die_bytes)
        assert core // spec.cores_per_die == die
        windows = [g for g in trial.pod.grants_of(core) if g.die == die and "w" in g.rights]
        assert any(g.start <= start and start + len(e.data) <= g.end for g in windows)
    targets = [label for label in trial.labels if label.name.endswith(".target")]
    assert sum(len(e.data) for e in trial.expected) == 2 * sum(label.nbytes for label in targets)
    assert 2 * len({e.address for e in trial.expected}) == len(trial.expected)


@pytest.mark.parametrize("name", names())
def test_a_configuration_makes_the_case_again(name: str) -> None:
    """Name and configuration say all: what they make is equal, as a replay file needs it."""
    for case in [make(name), *(case for case in ALL.values() if case.name == name)]:
        assert make(case.name, **case.configuration) == case
        assert all(type(value) in (int, str) for value in case.configuration.values())


@pytest.mark.parametrize("name", names())
def test_syncs_are_those_of_what_is_launched(name: str) -> None:
    """The names that a case lists are the names in its kernels, each once."""
    case = make(name)
    kernels = case.build("sc").pod.kernels
    assert set(case.syncs) == {site.sync for kernel in kernels for site in kernel.sites} - {""}
    assert len(set(case.syncs)) == len(case.syncs)


def test_reached_syncs_leave_out_other_paths() -> None:
    """Send and receive by mtu reach all names but those of DMA and of a cache, and the reverse."""
    cache = {"ack line", "tail line"}
    dma = {"DMA before tail", "tails in order", "DMA before ack"}
    mtu = {"chunk in buffer", "data before tail", "half sent", "half free", "chunk read", "slot read"}
    case = make("sendrecv")
    assert reached_syncs(case) == set(case.syncs) - dma - cache
    assert reached_syncs(make("sendrecv-dma")) == set(case.syncs) - mtu - cache
    assert reached_syncs(make("dispatch")) < reached_syncs(make("moe")) < set(make("moe").syncs)


def test_a_synchronization_can_be_left_out() -> None:
    """`without` reaches the pod, which knows the names of all its kernels and refuses others when it runs."""
    trial = make("moe").build("sc", ["slots cleared"])
    assert trial.pod.without == {"slots cleared"}
    trial.pod.run()
    with pytest.raises(ConfigError, match="without="):
        make("moe").build("sc", ["tail"]).pod.run()


@pytest.mark.parametrize(
    ("name", "sizes", "message"),
    [
        ("sendrev", {}, "protocol 'sendrev': must be a name that xccl-emu list prints, or FILE.py:NAME; did you mean "),
        ("sendrecv", {"tokens": 3}, "tokens=3: sendrecv has no such size, but ranks, cores, slots"),
        ("sendrecv", {"ranks": 1}, "ranks=1: must be at least 2"),
        ("sendrecv", {"slots": 0}, "slots=0: must be at least 1"),
        ("sendrecv", {"chunks": 1.5}, "chunks=1.5: must be a whole number"),
        ("sendrecv", {"path": "pigeon"}, "path='pigeon': must be one of mtu, dma, zero-copy"),
        ("sendrecv-both", {"rounds": 2}, "rounds=2: must be at most 1"),
        ("sendrecv-async", {"path": "zero-copy"}, "path='zero-copy': must be one of mtu, dma"),
        ("dispatch", {"kind": "gather"}, "kind='gather': dispatch has no such size, but ranks, "),
        ("dispatch", {"granules": 0}, "granules=0: must be at least 1"),
        ("combine", {"granules": 3}, "granules=3: must be even where nothing is quantized"),
        ("moe", {"top_k": 3}, "top_k=3: there are 2 experts"),
        ("moe", {"tokens": 0}, "tokens=0: must be one number or 2"),
        ("moe", {"tokens": (1, -1)}, "tokens='1,-1': must be one number or 2"),
        ("moe", {"tokens": "1,2,3"}, "tokens='1,2,3': must be one number or 2"),
        ("moe", {"tokens": "few"}, "tokens='few': must be a whole number, or one for each rank"),
        ("moe", {"path": "zero-copy"}, "path='zero-copy': must be one of mtu, dma"),
    ],
)
def test_refusals_name_the_size(name: str, sizes: dict[str, Any], message: str) -> None:
    """What there is no case for is refused before anything is built."""
    with pytest.raises(ConfigError, match=message):
        make(name, **sizes).build("sc")


def test_building_compiles_nothing() -> None:
    """Cases are made, built and asked for their synchronizations without Numba."""
    code = (
        "import sys\nfrom xccl_emu.protocol.registry import make, names\n"
        "for name in names(): make(name).build('relaxed'); make(name).syncs\n"
        "print('numba' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "False"


def test_a_name_is_looked_for_before_all_is_imported() -> None:
    """What a misspelled name may mean is found without modules of other protocols."""
    code = (
        "import sys\nfrom xccl_emu.protocol.registry import alike\n"
        "print(*alike('sendrec')[:1], 'xccl_emu.protocols.deepep.case' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown == "sendrecv False\n"
