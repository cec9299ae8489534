"""The table of others' scripts: how far one came, from what it printed."""

from collections.abc import Callable
from types import ModuleType

import pytest

SPAWNED = """
-- Process 1 terminated with the following error:
Traceback (most recent call last):
  File "script.py", line 3, in work
{error}
"""
SAID = {
    "runs": (0, "ValueError: printed by the script itself"),
    "is not done in 1200 s": (None, "half"),
    "stops at `uccl`, which is not here": (
        1, "ModuleNotFoundError: uccl: xccl_emu.doors.torch does not have it: its runtime takes addresses",
    ),
    "stops at `deep_ep.ElasticBuffer`, which is not here": (
        1, SPAWNED.format(error="xccl_emu.doors.torch.names.NotHereError: deep_ep.ElasticBuffer: xccl_emu.doors.torch "
                                "does not have it; it has the legacy Buffer") + "RuntimeError: and then",
    ),
    "is refused: `ConfigError: bias=True: no kernel here adds one`": (
        1, SPAWNED.format(error="xccl_emu.base.errors.ConfigError: bias=True: no kernel here adds one"),
    ),
    "fails: `AssertionError: a / b`": (1, "OSError: first\n" + SPAWNED.format(error="AssertionError: a | b")),
    "fails: `ModuleNotFoundError: No module named 'own'`": (2, "E   ModuleNotFoundError: No module named 'own'"),
    "fails: `AssertionError: assert ranks == 8`": (
        1, SPAWNED.format(error="    assert ranks == 8\n           ^^^^^^^^^^\nAssertionError"),
    ),
    "fails: `exit code: 3`": (3, "nothing"),
}  # fmt: skip
"""What is said of a script: its exit code, and what it printed."""


@pytest.mark.parametrize("outcome", SAID)
def test_how_far_a_script_came(outcome: str, load_tool: Callable[[str], ModuleType]) -> None:
    """Whether it runs, stops at a name, is refused with a reason, or fails by itself."""
    assert load_tool("scripts_page").works(*SAID[outcome]) == outcome
