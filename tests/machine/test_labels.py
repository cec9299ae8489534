"""Names for ranges of memory: the nearest label, else die, area and offset."""

from hypothesis import given
from hypothesis import strategies as st

from xccl_emu.machine.pod import Pod
from xccl_emu.machine.report import symbolic, symbolic_byte
from xccl_emu.machine.spec import small_pod
from xccl_emu.machine.state import Labels

ranges = st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 60), st.integers(0, 30)), max_size=8)


@given(ranges, st.integers(-5, 100))
def test_a_byte_is_named_by_the_label_that_begins_last(labels: list[tuple[str, int, int]], byte: int) -> None:
    """A byte is named by a label that begins last among those that hold it, with the offset; else it has no name."""
    known = Labels()
    known.add(labels[:3])
    known.add(labels)
    starts = {(start, name) for name, start, nbytes in labels if start <= byte < start + nbytes}
    last = max((start for start, _ in starts), default=0)
    offset = f"+{byte - last:#x}" if byte > last else ""
    assert known.name(byte) in ({name + offset for start, name in starts if start == last} or {""})


def test_reports_use_labels_where_there_are_any() -> None:
    """A labelled range, an area without a label, a data buffer, and an address behind all dies."""
    pod = Pod(small_pod(2, 2, app_bytes=1024, meta_bytes=512, managed_bytes=512, ub_bytes=64))
    pod.labels.add([("die1.meta.tail[0→1]", pod.meta(1, 32), 32)])
    assert symbolic(pod, pod.meta(1, 48)) == "die1.meta.tail[0→1]+0x10"
    assert symbolic(pod, pod.meta(1, 64)) == "die1.meta+0x40"
    assert symbolic_byte(pod, pod.meta(1, 32)) == "die1.meta.tail[0→1]"
    behind = 2 * pod.spec.die_bytes
    assert symbolic(pod, behind) == f"{behind:#x} (no die)"
    assert symbolic_byte(pod, behind + 3 * 64 + 8) == "die1.core1.ub+0x8"
