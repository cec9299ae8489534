"""A launch grants what the kernel's annotations say of what its arguments are addresses of."""

import pickle
from typing import Any, NamedTuple

import pytest

from xccl_emu import lang as xl
from xccl_emu.base.errors import ConfigError, KernelError
from xccl_emu.lang import Kernel
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.launch import Address, Grant
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import small_pod
from xccl_emu.protocol import Bench, Region, Regions
from xccl_emu.protocol.streams import Streams

DIES = 4


class Box(NamedTuple):
    """Where slots are, and how many."""

    slots: xl.Own[xl.Reads] | xl.Anywhere[xl.Writes]
    count: int


class Plain(NamedTuple):
    """The same, and nothing is said."""

    slots: int
    count: int


class Takes(Plain):
    """What `take` touches."""

    slots: xl.Updates


class Misspelt(Plain):
    """A field that the record lacks."""

    slot: xl.Reads


@xl.kernel
def put(own: xl.Reads, b: Box):
    """Take a record whose fields say what is touched."""
    yield xl.load(own + b.slots + b.count)


def first(b: Plain):
    """Take any such record."""
    yield xl.load(b.slots)


@xl.kernel
def take(b: Takes):
    """Take a record that derives from one."""
    yield from first(b)


@xl.kernel
def drop(b: Misspelt):
    """Annotate nothing."""
    yield xl.load(b.slots)


@xl.kernel
def both(source: xl.Reads, target: xl.Writes):
    """Take two addresses, which may be one."""
    yield xl.load(source + target)


@xl.kernel
def silent(address):
    """Say nothing."""
    yield xl.load(address)


@xl.kernel
def quoted(address: "xl.Raeds"):  # type: ignore[name-defined]
    """Name nothing."""
    yield xl.load(address)


def made() -> tuple[Bench, Pod, Region]:
    """A pod with eight slots on each die."""
    bench, regions = Bench("relaxed", ()), Regions(DIES)
    slots = regions.meta("slot", 8, 8)
    pod = bench.pod(regions.tight_pod(app_bytes=64, ub_bytes=32, cores=2))
    regions.place(bench, pod)
    return bench, pod, slots


def granted(pod: Pod, kernel: Kernel, die: int, **args: Any) -> set[Grant]:
    """What a launch grants."""
    return {*pod.launch(kernel, die, [0], args).grants}


def test_own_and_anywhere_and_a_buffer() -> None:
    """All of a region on the own die, what the launch names on every die, all of a buffer; nothing for plain fields."""
    _, pod, slots = made()
    own = pod.alloc(1, 24)
    box = Box(slots.at(0).only(2, range(4, 6)), 8)
    wanted = {pod.grant(own, "r"), slots.grant(1, "r"), slots.grant(None, "w", 2), slots.grant(None, "w", 4, 2)}
    assert granted(pod, put, 1, own=own.address, b=box) == wanted


@pytest.mark.parametrize(("die", "number"), [(1, 0), (3, 1)])
def test_a_share(die: int, number: int) -> None:
    """Each die has the part of what is shared out that is its turn's."""
    _, pod, slots = made()
    wanted = {slots.grant(die, "r"), slots.grant(None, "w", 4 * number, 4)}
    assert granted(pod, put, die, own=0, b=Box(slots.at(0).shared((1, 3)), 8)) == wanted


def test_without_a_share() -> None:
    """A die that is none of those is refused."""
    _, pod, slots = made()
    with pytest.raises(ConfigError, match=r"die=2: has no share: it is shared out among \[1, 3\]"):
        granted(pod, put, 2, own=0, b=Box(slots.at(0).shared((1, 3)), 8))


def test_no_leave_for_more_elements_than_there_are() -> None:
    """What follows the last element is another region's."""
    _, _, slots = made()
    assert [*slots.at(0, 5, 3).extent.parts] == [range(slots.at(0, 5), slots.at(0) + slots.size)]
    for beyond in (lambda: slots.at(0, 6, 3), lambda: slots.grant(0, "r", 6, 3)):
        with pytest.raises(ConfigError, match=r"slot\[8\]: there are elements 0 to 7"):
            beyond()


def test_a_share_among_nobody() -> None:
    """What is shared out among no die is nobody's, and not everybody's."""
    _, pod, slots = made()
    with pytest.raises(ConfigError, match=r"die=1: has no share: it is shared out among \[\]"):
        granted(pod, put, 1, own=0, b=Box(slots.at(0).shared(()), 8))


def test_what_is_given() -> None:
    """With no word on whose it is, it is where the address is, or on the dies that the launch names."""
    _, pod, slots = made()
    assert granted(pod, take, 0, b=Plain(slots.at(2), 8)) == {slots.grant(2, "rw")}
    assert granted(pod, take, 1, b=Plain(slots.at(2, 3), 8)) == {slots.grant(2, "rw", 3)}
    both = slots.at(0).on(2, 3).only(7)
    assert granted(pod, take, 2, b=Takes(both, 8)) == {slots.grant(2, "rw", 7), slots.grant(3, "rw", 7)}


def test_a_part_that_is_all_there_is() -> None:
    """What lies outside of it is granted on the own die neither."""
    _, pod, slots = made()
    wanted = {slots.grant(1, "r", 2, 3), slots.grant(None, "w", 2, 3)}
    assert granted(pod, put, 1, own=0, b=Box(slots.at(0, 2).within(range(2, 5)), 8)) == wanted


@pytest.mark.parametrize(("rights", "left"), [("r", {"r"}), ("w", {"w"}), ("rw", {"rw"}), ("", set())])
def test_what_a_launch_limits(rights: str, left: set[str]) -> None:
    """A launch leaves these rights, or none, of all that a kernel may do."""
    _, pod, slots = made()
    grants = granted(pod, take, 0, b=Plain(slots.at(2).limited(rights), 8))
    assert grants == {slots.grant(2, each) for each in left}


def test_a_sum_is_of_the_same() -> None:
    """An address plus a number, in either order, gives what the address gives; with a fraction it is none."""
    _, pod, slots = made()
    for core, address in enumerate((slots.at(2, 3) + 8, 8 + slots.at(2, 3))):
        assert pod.launch(take, 0, [core], {"b": Plain(address, 8)}).grants == (slots.grant(2, "rw", 3),)
    assert not isinstance(slots.at(2) + 0.5, Address)  # type: ignore[operator]


def test_rights_of_one_range_are_one_grant() -> None:
    """A buffer that a kernel reads by one argument and changes by another is granted once."""
    _, pod, slots = made()
    assert granted(pod, both, 2, source=slots.at(1, 1), target=slots.at(1, 1)) == {slots.grant(1, "rw", 1)}


def test_each_core_has_its_own_address() -> None:
    """What several cores are given by turns is granted to all of them, each range once."""
    _, pod, slots = made()
    launch = pod.launch(take, 0, [0, 1], {"b": Plain([slots.at(1, 0), slots.at(1, 1)], 8)})  # type: ignore[arg-type]
    assert {*launch.grants} == {slots.grant(1, "rw", 0), slots.grant(1, "rw", 1)}
    assert [words[0] for words in launch.args] == [slots.at(1, 0), slots.at(1, 1)]


def test_a_place_that_there_is_not() -> None:
    """A plain 0 grants nothing; a plain number that a kernel touches is refused, with its name."""
    _, pod, slots = made()
    assert granted(pod, take, 0, b=Plain(0, 8)) == set()
    with pytest.raises(ConfigError, match=r"kernel take: argument b.slots=\d+ is touched: must be an address from"):
        granted(pod, take, 1, b=Plain(int(slots.at(0)) + 32, 8))


@pytest.mark.parametrize(
    ("kernel", "error", "words"),
    [
        (silent, ConfigError, "kernel silent: says nothing of what it touches: annotate"),
        (quoted, KernelError, "'quoted': an annotation: .*Raeds"),
        (drop, KernelError, "Misspelt.slot: the record has no field of this name"),
    ],
)
def test_annotations_that_say_nothing(kernel: Kernel, error: type[Exception], words: str) -> None:
    """They are refused where grants are to follow from them."""
    _, pod, slots = made()
    name = kernel.params[0]
    with pytest.raises(error, match=words):
        granted(pod, kernel, 0, **{name: Plain(slots.at(0), 8) if name == "b" else slots.at(0)})


def test_grants_by_hand_count() -> None:
    """Where they are given, annotations are not asked."""
    _, pod, slots = made()
    assert pod.launch(take, 0, [0], {"b": Plain(32, 8)}, [slots.grant(3, "r")]).grants == (slots.grant(3, "r"),)


def test_more_ranges_than_a_core_has_room_for_are_refused() -> None:
    """Each second slot of four dies is more than a core holds, and none touches another: the pod stays as it was."""
    bench, regions = Bench("relaxed", ()), Regions(DIES)
    slots = regions.meta("slot", 8, 2 * ms.MAX_WINDOWS // DIES + 2)
    pod = bench.pod(regions.tight_pod(app_bytes=64, ub_bytes=32))
    regions.place(bench, pod)
    state, memory = pod.state.copy(), pod.memory.copy()
    every_second = slots.at(0).on(*range(DIES)).only(*range(0, 2 * ms.MAX_WINDOWS // DIES + 2, 2))
    with pytest.raises(ConfigError, match=f"grants.*{ms.MAX_WINDOWS}"):
        pod.launch(take, 0, [0], {"b": Plain(every_second, 8)})
    assert (pod.state == state).all()
    assert (pod.memory == memory).all()


def test_a_stream_is_launched_the_same_way() -> None:
    """After streams a launch grants the same, and cores run it, when they are put, after what they have."""
    bench, pod, slots = made()
    streams = Streams(bench, pod)
    for die in (1, 2):
        pod.launch(take, 0, [0], {"b": Plain(slots.at(die), 8)}, after=streams)
    pod.launch(take, 0, [1], {"b": Plain(slots.at(3), 8)}, after=streams)
    assert pod.active_cores() == []
    streams.put()
    assert {*pod.grants_of(0)} > {slots.grant(1, "rw"), slots.grant(2, "rw")}
    assert pod.grants_of(1) == (slots.grant(3, "rw"),)


def test_only_streams_come_before() -> None:
    """A list, which would take the launch and lose it, is refused."""
    _, pod, slots = made()
    with pytest.raises(ConfigError, match=r"after=\[\]: must be streams of launches"):
        pod.launch(take, 0, [0], {"b": Plain(slots.at(0), 8)}, after=[])  # type: ignore[arg-type]


def test_an_address_is_a_number() -> None:
    """It counts, prints and travels as one, and a copy knows what it is of."""
    _, pod, slots = made()
    at = slots.at(1, 2)
    assert (at, f"{at:#x}", at + 0) == (int(at), f"{int(at):#x}", int(at))
    assert pickle.loads(pickle.dumps(at)).extent == at.extent
    assert isinstance(pod.alloc(0, 8).address, Address)
    assert Pod(small_pod(1)).alloc(0, 8) == Pod(small_pod(1)).alloc(0, 8)
