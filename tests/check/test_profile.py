"""The profile of a search counts each state once, and names what a core keeps that makes states differ."""

from pathlib import Path

from tests.cli_support import as_json, printed
from tests.foreign_support import PING, needs_compiler
from tests.test_foreign_dead import RING, Ring, needs_x86
from xccl_emu.check import check
from xccl_emu.check.search.profiled import profile
from xccl_emu.check.verdict import ProfiledSite
from xccl_emu.lang.foreign import c_kernel
from xccl_emu.protocol import Case


def of(case: Case) -> tuple[ProfiledSite, ...]:
    """The profile of a case under relaxed."""
    return profile(case.build("relaxed", ()), 10_000)


def in_c(folder: Path, text: str) -> Case:
    """The ring by kernels in C."""
    file = folder / "ring.c"
    file.write_text(f'#include "xccl_emu.h"\n{text}')
    made: Case = type("RingInC", (Ring,), {"kernels": (c_kernel(file, "produce"), c_kernel(file, "consume"))})()
    return made


def test_each_state_but_the_first_has_a_request() -> None:
    """The search sees as many states, and none but the first is reached by nothing."""
    seen = of(Ring())
    assert sum(one.states for one in seen) + 1 == check.check(Ring()).states
    assert [one.states + one.alike for one in seen] == sorted((one.states + one.alike for one in seen), reverse=True)


def test_what_is_kept_for_later_is_named() -> None:
    """Between its loads and its compare and swap a producer keeps a number, and nothing else makes states alike."""
    kept = {one.request.partition(" ")[0]: one.kept for one in of(Ring()) if one.alike}
    assert kept.keys() <= {"load", "compare_swap", "poll_ne"}
    assert any("number" in word for word in kept["load"])


def test_of_many_states_the_first_are_looked_at() -> None:
    """The limit is that of a search."""
    assert 90 <= sum(one.states for one in profile(Ring().build("relaxed", ()), 100)) <= 200


@needs_compiler
@needs_x86
def test_c_kernels_have_the_profile_of_python_kernels(tmp_path: Path) -> None:
    """As many states by each request; a dead variable that must stay in memory shows as a word of the stack."""
    counts = [
        sorted((one.kernel, one.states, one.alike) for one in of(case)) for case in (Ring(), in_c(tmp_path, RING))
    ]
    assert counts[0] == counts[1]
    call = '(uint32_t)xccl_load(freed, 8, .sync = "freed")'
    kept = in_c(
        tmp_path, RING.replace(f"uint32_t free = {call}", f"volatile int64_t last = {call}; uint32_t free = last")
    )
    (first,) = (one for one in of(kept) if one.request.endswith("(reserved)"))
    assert first.alike
    assert [word[:5] for word in first.kept] == ["stack"]
    assert sum(one.states for one in of(kept)) > sum(states for _, states, _ in counts[0])


@needs_compiler
def test_the_command_prints_it() -> None:
    """As a table, and in the JSON; null if nobody asks."""
    out = printed("check", f"{PING}:Ping", "--profile", "--confirm-seconds", "0")
    assert "what makes states" in out
    said = as_json("check", f"{PING}:Ping", "--profile", "--confirm-seconds", "0")
    assert sum(one["states"] for one in said["profile"]) + 1 == said["states"]
    assert as_json("check", f"{PING}:Ping", "--confirm-seconds", "0")["profile"] is None
