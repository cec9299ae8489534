"""Members of the corpus whose kernels are in Ascend C too: found and proved as those in Python."""

from pathlib import Path

import pytest

from tests.foreign_support import ROOT, has_compiler
from xccl_emu.base.sizes import some
from xccl_emu.check.check import check
from xccl_emu.check.verdict import VERIFIED
from xccl_emu.protocol import registry
from xccl_emu.protocol.corpus import members

pytestmark = pytest.mark.skipif(not has_compiler(False), reason="no C++ compiler: Ascend C is not tested here")
NAMES = sorted(path.parent.name for path in (ROOT / "corpus").glob("*/in_ascendc.py"))


@pytest.mark.parametrize("name", NAMES)
def test_a_member_in_ascend_c_is_as_that_in_python(name: str) -> None:
    """Broken it has the same violation, at a line of the C++ source; mended it is verified; and its page says so."""
    (member,) = members((name,))
    broken, mended = (
        check(registry.of_file(f"{member.folder}/in_ascendc.py:{case}")(), **member.options)
        for case in ("Broken", "Mended")
    )
    assert broken.violation is not None
    assert (broken.violation.kind, mended.verdict) == (member.finding, VERIFIED)
    assert f"{name}.cpp" in str(broken.violation)
    page = " ".join(Path(member.page).read_text("utf-8").split())
    assert f"`in_ascendc.py:Broken` has a {member.finding}, found after {some(broken.states, 'states')}" in page
    assert f"`in_ascendc.py:Mended` is verified, {some(mended.states, 'states')}." in page


def test_there_are_four_of_them() -> None:
    """A member that is lost is noticed."""
    assert len(NAMES) == 4


@pytest.mark.parametrize("name", NAMES)
def test_what_is_mended_is_so_by_both_readings(name: str) -> None:
    """A mend waits for visibility where it needs it, and the store that is issued is wrong by one reading alone."""
    (member,) = members((name,))

    def of(case: str, barrier: str) -> str:
        return check(registry.make(f"{member.folder}/in_ascendc.py:{case}", barrier=barrier), **member.options).verdict

    assert {of("Mended", barrier) for barrier in ("visible", "empty")} == {VERIFIED}
    assert (of("Broken", "visible") == VERIFIED) == (name == "store_issued")
