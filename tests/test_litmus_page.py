"""Litmus programs of docs/machine.md: the search finds the table, commands end as it says, its code counts dumps."""

import re
import shlex
from pathlib import Path

import pytest

from tests.cli_support import printed
from tests.foreign_support import has_compiler
from xccl_emu.doors.ascendc import litmus

pytestmark = pytest.mark.skipif(not has_compiler(False), reason="no C++ compiler: Ascend C is not tested here")
MODELS = {
    "sc": ("sc", "visible"), "fifo": ("fifo", "visible"), "relaxed": ("relaxed", "visible"),
    "unordered": ("unordered", "visible"), "visible": ("relaxed", "visible"), "empty": ("relaxed", "empty"),
}  # fmt: skip


@pytest.fixture
def page(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The page; files go to an empty folder."""
    monkeypatch.chdir(tmp_path)
    text = (repository / "docs" / "machine.md").read_text("utf-8")
    return text.partition("\n## Litmus programs\n")[2].partition("\n## ")[0]


def test_the_table_names_what_comes_on_the_weaker_machine_alone(page: str) -> None:
    """Each row: an outcome that the weaker one allows and the stronger one does not."""
    rows = re.findall(r"^\| `(\w+)`, `(\w+)` \| (\w+) \| `([^`]+)`", page, re.MULTILINE)
    rows += [("visible-fifo", "empty-fifo", *found) for found in re.findall(r"fifo` \| (\w+) \| `([^`]+)`", page)[-1:]]
    assert len(rows) == 5
    on_fifo = {"visible-fifo": ("fifo", "visible"), "empty-fifo": ("fifo", "empty")}
    for stronger, weaker, name, outcome in rows:
        program, asked = litmus.programs()[name], set(outcome.split())
        machines = [(MODELS | on_fifo)[each] for each in (stronger, weaker)]
        may = [
            any(asked <= set(litmus.text_of(each).split()) for each in litmus.allowed(program, *machine))
            for machine in machines
        ]
        assert may == [False, True], (name, machines)


def test_the_commands_end_as_the_page_says(page: str) -> None:
    """The list prints four programs; the emulated machine's file is read, and says what to set."""
    listed, read, emulate = re.findall(r"^    xccl-emu (.*)$", page, re.MULTILINE)
    assert "MP_f_po" in printed(*shlex.split(listed))
    command, _, file = emulate.partition(" > ")
    Path(file).write_text(printed(*shlex.split(command)))
    assert "set --order relaxed --barrier visible" in printed(*shlex.split(read))


def test_the_code_makes_a_results_file_of_dumps(page: str) -> None:
    """What a device would leave in memory, written by the emulated one."""
    for name in ("MP", "SB"):
        litmus.ran(litmus.programs()[name], "fifo", "visible", "one", 40).tofile(f"{name}.bin")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(code, {})
    assert {name: sum(told.values()) for name, told in litmus.read(Path("results.csv")).items()} == {"MP": 40, "SB": 40}
