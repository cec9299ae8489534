"""`xccl-emu scaffold`: a case with holes from an operator's folder, whose holes fail by name, and which then runs."""

import shutil
from pathlib import Path

import pytest

from tests.cli_support import printed, refusal
from tests.foreign_support import ROOT, has_compiler
from xccl_emu.base.errors import ConfigError, ToFillError
from xccl_emu.check import check, verdict
from xccl_emu.doors import ascendc
from xccl_emu.doors.ascendc import scaffold
from xccl_emu.protocol import folder as folders
from xccl_emu.protocol import registry

OPERATORS = ROOT / "tests" / "operators"
needs_cxx = pytest.mark.skipif(not has_compiler(False), reason="no C++ compiler: Ascend C is not tested here")

ELEMENTS = "8 * self.blocks"
THERE = 'windows["{}"].at((me + 1) % self.ranks)'
GIVEN = 'windows["{}"].grant((me + 1) % self.ranks, "w")'
FILLED = {
    "pass_on": {
        "default of blocks": "1",
        "input x": f"np.arange(1, 1 + 2 * {ELEMENTS} * self.ranks).reshape(self.ranks, -1)",
        "oracle of y": f'np.roll(given["x"][:, {ELEMENTS} :], 1, axis=0)',
        "region of window": f'regions.managed("window", 4 * {ELEMENTS})', "region of nextWindow": "None",
        "region of flag": 'regions.meta("flag")', "region of nextFlag": "None",
        "bytes of the data buffer": f"4 * {ELEMENTS}",
        "address of window": 'windows["window"].at(me)', "address of nextWindow": THERE.format("window"),
        "address of flag": 'windows["flag"].at(me)', "address of nextFlag": THERE.format("flag"),
        "grant of window": 'windows["window"].grant(me, "r")', "grant of nextWindow": GIVEN.format("window"),
        "grant of flag": 'windows["flag"].grant(me, "r")', "grant of nextFlag": GIVEN.format("flag"),
        "tiling offsets": f"[{ELEMENTS}, 0]", "tiling row.elements": ELEMENTS,
    },
    "scale_rows": {
        "tiling key": "2",
        "input inRows": "np.arange(1, 1 + 16 * self.rows * self.ranks).reshape(self.ranks, self.rows, 16)",
        "input mask": "None",
        "oracle of outRows": '3 * given["inRows"]',
        "bytes of workspaceGM": "64 * self.rows", "bytes of the data buffer": "64",
        "tiling shape.rows": "self.rows", "tiling shape.elements": "16", "tiling factor": "3.0",
    },
}  # fmt: skip
"""What a user puts into each hole, by operator."""
CASES = {"pass_on": "PassOn", "scale_rows": "ScaleRows"}


def copied(name: str, tmp_path: Path) -> Path:
    """The folder of an operator of ours, elsewhere."""
    return Path(shutil.copytree(OPERATORS / name, tmp_path / name))


def fill(file: Path, what: str, value: str) -> None:
    """Put a value into a hole."""
    hole = f'to_fill("{what}")'
    text = file.read_text("utf-8")
    assert text.count(hole) == 1
    file.write_text(text.replace(hole, value), "utf-8")


@needs_cxx
@pytest.mark.parametrize("name", CASES)
def test_each_hole_fails_by_name_until_it_is_filled(name: str, tmp_path: Path) -> None:
    """A check ends at the first hole with its name and line; when all are filled the operator is verified."""
    said = printed("scaffold", str(copied(name, tmp_path)))
    file = tmp_path / f"{name}_case.py"
    case = f"{file}:{CASES[name]}"
    holes = [*scaffold.holes_of(file.read_text("utf-8"))]
    assert [what for _, what in holes] == [*FILLED[name]]
    assert said.count("to fill: ") == len(holes) == file.read_text("utf-8").count("# to fill:") - 1
    assert f"to fill: {holes[0][1]} " in refusal("check", case)
    for line, what in holes:
        with pytest.raises(ToFillError, match=rf"^to fill: {what}$") as error:
            registry.make(case).build("sc")
        assert folders.place_of(error.value) == f"{file}:{line}"
        fill(file, what, FILLED[name][what])
    assert check.check(registry.make(case, ranks=2)).verdict == verdict.VERIFIED


@pytest.mark.parametrize(
    ("gone", "missing"),
    [
        ("op_host/scale_rows_def.cpp", "no declaration: looked for `class NAME : public OpDef` in op_host/*.cpp"),
        ("op_kernel/scale_rows_tiling.h", "no tiling struct: looked for BEGIN_TILING_DATA_DEF"),
        ("op_kernel/scale_rows.cpp", "no kernel: looked for `extern \"C\" __global__ __aicore__ void NAME(`"),
    ],
)
def test_a_part_that_is_missing_is_named(gone: str, missing: str, tmp_path: Path) -> None:
    """A folder without one of the three is refused with what was looked for, and no file is written."""
    folder = copied("scale_rows", tmp_path)
    (folder / gone).unlink()
    said = refusal("scaffold", str(folder))
    assert f"is no folder of an operator; {missing}" in said
    assert said.count("looked for") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["scale_rows"]


def test_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    """A file, and a path at which there is nothing."""
    for path in (tmp_path / "none", Path(__file__)):
        assert "must be the folder of an operator, with op_host and op_kernel in it" in refusal("scaffold", str(path))


def test_nothing_is_overwritten_unless_forced(tmp_path: Path) -> None:
    """A file that is there stays, and `-` prints the case as it would be written."""
    folder, file = copied("pass_on", tmp_path), tmp_path / "pass_on_case.py"
    file.write_text("mine", "utf-8")
    assert "--force overwrites it" in refusal("scaffold", str(folder))
    text = printed("scaffold", str(folder), "--output", "-")
    assert file.read_text("utf-8") == "mine"
    printed("scaffold", str(folder), "--force")
    assert file.read_text("utf-8") == text


def test_one_of_several_operators_is_chosen(tmp_path: Path) -> None:
    """A folder of two asks which one, proposes what may be meant, and each has its own kernel and struct."""
    folder = copied("pass_on", tmp_path)
    shutil.copytree(OPERATORS / "scale_rows", folder, dirs_exist_ok=True)
    assert "--op must be one of PassOn, ScaleRows" in refusal("scaffold", str(folder))
    assert "--op ScaleRow: must be one of PassOn, ScaleRows; did you mean ScaleRows?" in (
        refusal("scaffold", str(folder), "--op", "ScaleRow")
    )
    for name, struct in (("PassOn", "PassOnTilingData"), ("ScaleRows", "ScaleRowsTiling")):
        assert f'ascendc.Tiling("{struct}"' in printed("scaffold", str(folder), "--op", name, "--output", "-")


def changed(tmp_path: Path, file: str, old: str, new: str) -> list[str]:
    """The names of holes of an operator of ours in which a text is another one."""
    path = copied("pass_on", tmp_path) / file
    text = path.read_text("utf-8")
    assert text.count(old) >= 1
    path.write_text(text.replace(old, new), "utf-8")
    written = printed("scaffold", str(tmp_path / "pass_on"), "--output", "-")
    compile(written, "case", "exec")
    return [what for _, what in scaffold.holes_of(written)]


@pytest.mark.parametrize(
    ("file", "old", "new", "hole"),
    [
        ("op_kernel/pass_on.cpp", "GM_ADDR x", "GM_ADDR rows", "parameter of x"),
        ("op_kernel/pass_on.cpp", "GM_ADDR flag,", "GM_ADDR flag, uint32_t rounds,", "value of rounds"),
        ("op_kernel/pass_on.cpp", "TPipe pipe;", "GM_ADDR c = GetHcclContext<1>(); TPipe pipe;", "address of context1"),
        ("op_kernel/pass_on.cpp", "TPipe pipe;", "Keep(workspace); TPipe pipe;", "bytes of workspace"),
        ("op_host/pass_on.cpp", "ge::DT_FLOAT", "ge::DT_COMPLEX64", "types of x"),
    ],
)
def test_what_cannot_be_derived_is_a_hole(file: str, old: str, new: str, hole: str, tmp_path: Path) -> None:
    """What the folder of `pass_on` says is a hole where it says something else, or nothing."""
    assert hole not in FILLED["pass_on"]
    assert hole in changed(tmp_path, file, old, new)


def test_a_field_that_no_struct_can_have_is_refused(tmp_path: Path) -> None:
    """A struct of the host that is not there is named with its header; so is one that `host_tiling` is asked for."""
    header = copied("pass_on", tmp_path) / "op_host/pass_on_tiling.h"
    with pytest.raises(ConfigError, match="did you mean PassOnTilingData"):
        ascendc.host_tiling(header, "PassOnTiling")
    header.write_text(header.read_text("utf-8").replace("STRUCT(PassOnRow, row)", "STRUCT(TCube, row)"), "utf-8")
    said = refusal("scaffold", str(tmp_path / "pass_on"))
    assert "struct='TCube': pass_on_tiling.h and what it includes have no such struct" in said
