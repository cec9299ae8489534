"""Protocol functions, and what is refused of them."""

from collections.abc import Callable

import numpy as np
import pytest

from tests.refused import refuses
from xccl_emu.base.errors import ConfigError
from xccl_emu.check.check import check
from xccl_emu.check.verdict import ASSERTION, UNWRITTEN_READ
from xccl_emu.lang import fail, kernel, load
from xccl_emu.machine import Pod, small_pod
from xccl_emu.protocol import Regions
from xccl_emu.protocol.owners import Owners
from xccl_emu.testing import Bench, Case, protocol

from .cases import tell, telling

SPEC = small_pod(1, app_bytes=1024, meta_bytes=64, managed_bytes=0)


def test_a_case_has_name_and_all_sizes() -> None:
    """By position, by name or by default; NumPy integers and truth values as plain integers."""

    @protocol
    def several(bench: Bench, dies: int = 2, path: str = "mtu", fast: int = 0) -> None:
        """No body is needed here."""

    case = several(np.int64(3), fast=True)
    assert case.configuration == {"dies": 3, "path": "mtu", "fast": 1}
    assert [type(value) for value in case.configuration.values()] == [int, str, int]
    assert (case.name, str(case)) == ("several", "several(dies=3, path='mtu', fast=1)")
    assert several.__doc__ == "No body is needed here."


@refuses(
    telling, ({"value": 1.5}, "value=1.5: must be"), ({"vaule": 1}, "telling: .*vaule"), ({"value": None}, "value=None")
)
def test_wrong_sizes_are_refused() -> None:
    """At once, before anything is built."""


def test_a_trial_knows_what_was_said_on_the_bench() -> None:
    """Expected bytes, filled buffers, labels, meanings of stops; the order and what is switched off are the pod's."""

    @protocol
    def talkative(bench: Bench) -> None:
        pod = bench.pod(SPEC)
        bench.filled(0, np.arange(5, dtype=np.uint8), "input")
        bench.wanted(0, np.full(3, 9, np.int16), "output")
        bench.expect(pod.meta(0), np.array([1]), "flag")
        bench.label("die0.flag", pod.meta(0), 32)
        bench.stop(4, "no such event")
        pod.launch(tell, 0, [0], {"word": pod.meta(0, 32), "flag": pod.meta(0), "value": 1}, [pod.grant_meta("w")])

    trial = talkative().build("fifo", ["flag"])
    assert [(e.name, e.data) for e in trial.expected] == [
        ("output of die 0", np.full(3, 9, np.int16).tobytes()),
        ("flag", np.array([1]).tobytes()),
    ]
    assert trial.pod.view(trial.filled[0]).tolist() == [0, 1, 2, 3, 4]
    assert [label.name for label in trial.labels] == ["die0.input", "die0.output", "die0.flag"]
    assert dict(trial.stops) == {4: "no such event"}
    assert (trial.pod.order, trial.pod.without) == ("fifo", {"flag"})


def no_pod(bench: Bench) -> None:
    """Forgets to make one."""
    bench.filled(0, np.zeros(4, np.uint8))


def nothing_launched(bench: Bench) -> None:
    """Forgets to launch."""
    bench.pod(SPEC)


@refuses(
    lambda function: protocol(function)().build("sc"),
    (no_pod, "make its pod first"),
    (nothing_launched, "launched no kernel"),
)
def test_functions_that_build_nothing_to_check_are_refused() -> None:
    """The error says what is missing, when the case is built."""


def test_each_build_is_a_pod_of_its_own() -> None:
    """Two builds of a case are alike and share nothing."""
    one, other = (telling().build("relaxed").pod for _ in range(2))
    assert isinstance(telling(), Case)
    assert isinstance(one, Pod)
    assert one is not other
    assert one.fingerprint() == other.fingerprint()


def two_tell(bench: Bench, owners: Owners) -> None:
    """Two cores of two dies, one kernel each on core 1 of die 0 and core 0 of die 1."""
    pod = bench.pod(small_pod(2, 2, app_bytes=64, meta_bytes=64, managed_bytes=0))
    bench.wanted(0, np.array([1]), "word", owners=owners)
    for die, core in ((0, 1), (1, 0)):
        pod.launch(tell, die, [core], {"word": pod.meta(die), "flag": pod.meta(die, 32), "value": 1}, [])


@pytest.mark.parametrize(
    ("owners", "cores"),
    [
        ((), (1,)), ("die0", (1,)), ("die1.core0", (2,)), (2, (2,)), (["die1", 1, "die1.core0"], (2, 1)),
        ("drained", ()),
    ],
)
def test_owners_are_dies_or_cores(owners: Owners, cores: tuple[int, ...]) -> None:
    """Dies stand for their cores that run a kernel; nobody named are those of the die of the bytes, or none at all."""
    bench = Bench("relaxed", ())
    two_tell(bench, owners)
    assert bench.trial().expected[0].cores == cores


def test_bytes_of_a_die_without_kernels_are_their_writers() -> None:
    """Owners are those whose grants let them write there, and not who may only read."""
    bench = Bench("relaxed", ())
    pod = bench.pod(small_pod(2, 3, app_bytes=64, meta_bytes=64, managed_bytes=0))
    out = bench.wanted(1, np.array([1]), "word")
    grants = [[pod.grant(out, "r")], [pod.grant(out, "rw")], [pod.grant_meta("w")]]
    for core, each in enumerate(grants):
        args = {"word": out.address, "flag": pod.meta(0), "value": 1}
        pod.launch(tell, 0, [core], args, each)
    assert bench.trial().expected[0].cores == (1,)


@pytest.mark.parametrize("owners", ["die2", "die0.core0", 0, 7, -1, "core1", "", True, [1, None]])
def test_wrong_owners_are_refused(owners: Owners) -> None:
    """The error names them, and what would be right."""
    bench = Bench("relaxed", ())
    two_tell(bench, owners)
    with pytest.raises(ConfigError, match=r"owners=.*('die1'|kernels run on die0.core1 \(number 1\)|'die1.core0')"):
        bench.trial()


def on_a_bench(call: Callable[[Bench], None]) -> None:
    """What is called there."""
    bench = Bench("relaxed", ())
    bench.pod(SPEC)
    call(bench)


@refuses(
    on_a_bench,
    (lambda bench: bench.tolerates("melt"), "faults='melt': must be of stop, cut"),
    (lambda bench: bench.tolerates("stop:die1"), "faults='stop:die1'.* without dies"),
    (lambda bench: bench.tolerates("stop", may_block=2), "may_block=2: must be True or False"),
    (lambda bench: bench.fill(1 << 40, np.array([1])), "are not all in the memory of dies"),
    (lambda bench: bench.set_meta(1, 0, np.array([1])), "die=1: the pod has dies 0 to 0"),
    (lambda bench: bench.set_meta(0, 65, np.array([1])), "offset=65: the metadata area"),
    (lambda bench: bench.set_meta(0, 60, np.array([1])), "8 bytes at offset 60 do not fit .* has 64"),
    (lambda bench: bench.pod(SPEC), "has one already"),
)
def test_wrong_faults_and_metadata_are_refused() -> None:
    """The error names the argument, its value and what would be right; a second pod is refused, too."""


@pytest.mark.parametrize("name", ["sizes", "name", "configuration", "build", "syncs", "papers"])
def test_a_field_that_every_case_has_is_refused(name: str) -> None:
    """When the case is declared, by its name."""
    body = {"__annotations__": {name: int}, name: 1}
    with pytest.raises(ConfigError, match=rf"Mine.{name}: every case has a '{name}' of its own"):
        type("Mine", (Case,), body)


@kernel
def look(word):
    """Fails unless a word is 7."""
    seen = yield load(word)
    if seen != 7:
        yield fail(1, seen)


@protocol
def looked_at(bench: Bench, filled: int = 1, meta: int = 0) -> None:
    """A word of the managed area, or of the metadata, filled before the run or not."""
    regions = Regions(1)
    word = (regions.meta if meta else regions.managed)("word", 8)
    pod = bench.pod(regions.tight_pod(app_bytes=32, ub_bytes=32))
    regions.place(bench, pod)
    if filled:
        bench.fill(word.at(0), np.array([7]))
    pod.launch(look, 0, [0], {"word": word.at(0)}, [word.grant(0, "r")])


@pytest.mark.parametrize("policy", ["exhaustive", "eager"])
def test_a_managed_area_can_be_filled(policy: str) -> None:
    """What is filled counts as written, in the search and under the monitor; what is not is found."""
    assert check(looked_at(), policy=policy, schedules=1).ok
    broken = check(looked_at(filled=0), policy=policy, schedules=1)
    assert broken.violation.kind == UNWRITTEN_READ


@pytest.mark.parametrize("policy", ["exhaustive", "eager"])
def test_metadata_can_be_filled(policy: str) -> None:
    """Metadata count as filled, with zeros; what a host fills there is filled as well, and is not zero."""
    assert check(looked_at(meta=1), policy=policy, schedules=1).ok
    assert check(looked_at(filled=0, meta=1), policy=policy, schedules=1).violation.kind == ASSERTION


def test_what_is_filled_lies_on_one_die() -> None:
    """An array that begins on one die and ends on the next is refused."""
    bench = Bench("sc", ())
    pod = bench.pod(SPEC.with_(nodes=1, chips_per_node=1, dies_per_chip=2))
    with pytest.raises(ConfigError, match=r"array: its 16 bytes at .* go beyond die 0"):
        bench.fill(pod.spec.die_bytes - 8, np.zeros(2, np.int64))
