"""How much memory a process may plan with: of its control groups, and of its address space."""

import resource
from pathlib import Path

import pytest

from xccl_emu.base import free_memory


def test_the_least_of_all_control_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group within others has no more than each of these leaves; caches that are given back count as free."""
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    for folder, limit, used in ((inner, "max", 1000), (tmp_path / "a", "60000", 20000), (tmp_path, "90000", 20000)):
        (folder / "memory.max").write_text(limit)
        (folder / "memory.current").write_text(str(used))
    (tmp_path / "a" / "memory.stat").write_text("anon 7\ninactive_file 10000\n")
    monkeypatch.setattr(free_memory, "_GROUPS", tmp_path)
    monkeypatch.setattr(free_memory, "_own_group", lambda: "a/b")
    assert free_memory.available_bytes() == int(50000 * 0.92)


def test_address_space_is_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """What RLIMIT_AS leaves beyond what is mapped; never less than nothing."""
    mapped = 1024 * (free_memory._field("/proc/self/status", "VmSize:") or 0)
    for more, left in ((1 << 30, 0.92 * (1 << 30)), (-1, 0)):
        monkeypatch.setattr(resource, "getrlimit", lambda what, more=more: (mapped + more, mapped + more))
        assert free_memory.available_bytes() == pytest.approx(left, abs=1 << 25)


def test_the_peak_is_measured() -> None:
    """It has what was touched, and stays."""
    before = free_memory.peak_bytes()
    held = bytearray(1 << 26)
    held[:: 1 << 12] = b"1" * (1 << 14)
    assert free_memory.peak_bytes() >= max(before, 1 << 26)
