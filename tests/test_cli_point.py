"""A sweep of which some points cannot be: the others are shown, and each that cannot be with its reason."""

import re
from pathlib import Path

import pytest

from tests.cli_support import invoke

CASE = '''
from xccl_emu.lang import fence, kernel
from xccl_emu.machine import small_pod
from xccl_emu.protocol import Bench, protocol


@kernel
def nothing():
    """Does nothing much."""
    yield fence()


@protocol
def many(bench: Bench, grants: int = 1) -> None:
    """A launch with some grants."""
    pod = bench.pod(small_pod(1))
    pod.launch(nothing, 0, [0], {}, [pod.grant_meta("r")] * grants)
'''


def test_a_point_that_cannot_be_does_not_take_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 3; the limit of grants says the kernel, the die, and what helps.  A bench of that alone is refused."""
    monkeypatch.chdir(tmp_path)
    Path("many.py").write_text(CASE)
    code, out, errors = invoke("bench", "many.py:many", "--grants", "1,2,40")
    said = "grants=40: kernel nothing on die 0: 40 grants: a core has more grants (at most 30)"
    assert code == 3
    assert len(re.findall(r"│ +[12] │ .* │ +0 │", out)) == 2
    assert re.search(r"grants=40 \(1\) .* failed", out)
    assert said in errors
    assert "1 of 3 failed:" in errors
    assert invoke("bench", "many.py:many", "--grants", "40")[0] == 2
