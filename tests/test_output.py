"""Files that are written: whole or not at all, and never in the place of what is no regular file."""

import os
import stat
import subprocess
import threading
from pathlib import Path

import pytest

from tests.cli_support import python
from xccl_emu.base.errors import ConfigError, OutputError
from xccl_emu.base.output import check_writable, read_bytes, write_text
from xccl_emu.cli.files import check_file, writing


def test_a_file_is_made_and_replaced(tmp_path: Path) -> None:
    """It holds what was written, keeps its rights, and nothing else is in the folder."""
    file = tmp_path / "a.json"
    write_text(file, "one")
    file.chmod(0o640)
    write_text(file, "two é")
    assert file.read_text("utf-8") == "two é"
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_new_file_has_the_rights_of_any_other(tmp_path: Path) -> None:
    """Not those of a temporary one, which nobody else may read."""
    write_text(tmp_path / "a", "one")
    (tmp_path / "b").write_text("two")
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode


def test_a_fifo_stays_one(tmp_path: Path) -> None:
    """Whoever reads it gets what was written."""
    fifo, got = tmp_path / "pipe", list[str]()
    os.mkfifo(fifo)
    reader = threading.Thread(target=lambda: got.append(fifo.read_text()))
    reader.start()
    write_text(fifo, "through")
    reader.join(10)
    assert got == ["through"]
    assert stat.S_ISFIFO(fifo.stat().st_mode)


def test_a_device_stays_one(tmp_path: Path) -> None:
    """/dev/null takes it, by its name and by a link to it."""
    link = tmp_path / "link"
    link.symlink_to("/dev/null")
    for path in ("/dev/null", link):
        write_text(path, "gone")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    assert link.is_symlink()


def test_links_are_followed(tmp_path: Path) -> None:
    """A symbolic link stays and its file is replaced, one that leads to nothing makes it; further names stay too."""
    (tmp_path / "folder").mkdir()
    file, link = tmp_path / "folder" / "real", tmp_path / "link"
    link.symlink_to(file)
    write_text(link, "made")
    assert (link.is_symlink(), file.read_text()) == (True, "made")
    os.link(file, tmp_path / "second")
    write_text(link, "again")
    assert (tmp_path / "second").read_text() == "again"


def test_what_is_beside_stays(tmp_path: Path) -> None:
    """A file of the name that a half made one might have is left alone."""
    (tmp_path / "t.json.part").write_text("mine")
    write_text(tmp_path / "t.json", "yours")
    assert (tmp_path / "t.json.part").read_text() == "mine"


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    """Whole or not at all: what stood there stands, and no half made file is left."""
    file = tmp_path / "a"
    file.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_text(file, "new \udcff")
    assert file.read_text() == "old"
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("redirected", [False, True])
def test_stdout_by_another_name(tmp_path: Path, redirected: bool) -> None:
    """/dev/stdout stays what it is, a pipe or a file, and has all that was printed, in order."""
    code = "from xccl_emu.base.output import write_text as w; print('a'); w('/dev/stdout', 'b\\n'); print('c')"
    file = tmp_path / "out"
    with file.open("w") as to:
        done = python(code, capture_output=False, stdout=to if redirected else subprocess.PIPE, check=True)
    assert (file.read_text() if redirected else done.stdout) == "a\nb\nc\n"
    assert Path("/dev/stdout").is_symlink()


def test_asking_leaves_nothing(tmp_path: Path) -> None:
    """Whether a path can be written is asked without making a file or changing one."""
    check_writable(tmp_path / "new")
    (tmp_path / "old").write_text("old")
    check_writable(tmp_path / "old")
    assert (os.listdir(tmp_path), (tmp_path / "old").read_text()) == (["old"], "old")


@pytest.mark.parametrize("path", [".", "/nowhere/at/all", "/proc/nothing", "a/" + "x" * 300, "x" * 300, "/dev/null/a"])
def test_where_nothing_can_be_written(path: str) -> None:
    """A folder, a folder that is not there, and names that no file can have are refused by the option."""
    with pytest.raises(ConfigError, match=r"^--out .*: (must be a file in a folder|cannot be written)"):
        check_file("--out", Path(path))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_told_with_the_option() -> None:
    """Found out only by writing: the option, the path and the reason."""
    said = r"^--chart /dev/full: cannot be written \(No space left on device\)"
    with pytest.raises(OutputError, match=said), writing("--chart", Path("/dev/full")):
        write_text("/dev/full", "x" * 100_000)


def test_a_file_without_end_is_not_read_to_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A device that always has more, or a file that is too large, is an OSError, not all of the memory."""
    monkeypatch.setattr("xccl_emu.base.output._READ_BYTES_MAX", 10)
    (tmp_path / "ten").write_bytes(b"0123456789")
    assert read_bytes(tmp_path / "ten") == b"0123456789"
    with pytest.raises(OSError, match="larger than 1 GiB"):
        read_bytes("/dev/zero")
