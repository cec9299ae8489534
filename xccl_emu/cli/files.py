"""Files that a command writes: it checks that it can before the run, and reports a failure afterwards in one line.

Among them are replay files, which are read again.
"""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xccl_emu.base.errors import ConfigError, OutputError, ReplayError
from xccl_emu.base.output import check_writable, write_bytes

if TYPE_CHECKING:
    from xccl_emu.check.trial import Checkable
    from xccl_emu.check.verdict import Verdict
    from xccl_emu.check.witness.replay_file import Witness


WITNESSES = Path("witnesses")
"""The folder of replay files that nobody names."""
FORMATS = (".png", ".svg", ".pdf")
"""Endings of a plot."""


def check_file(option: str, path: Path | None) -> None:
    """ConfigError, naming the option, if a file cannot be written there; nothing is asked of None."""
    if path is None:
        return
    try:
        check_writable(path)
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise ConfigError(f"{option} {path}: must be a file in a folder that exists") from error
    except (OSError, ValueError) as error:
        raise ConfigError(f"{option} {path}: cannot be written ({_why(error)})") from error


def check_plot(path: Path | None) -> None:
    """Raises ConfigError, before anything runs, if matplotlib is missing, or the file has no known format or cannot be
    written."""
    check_file("--plot", path)
    if path is None:
        return
    if path.suffix.lower() not in FORMATS:
        raise ConfigError(f"--plot {path}: must end with {', '.join(FORMATS)}")
    try:
        import matplotlib as mpl  # noqa: F401
    except ImportError as error:
        raise ConfigError(f"--plot {path}: needs matplotlib; install xccl_emu[plot]") from error


@contextmanager
def writing(option: str, path: Path) -> Iterator[None]:
    """Write a file that an option names; OutputError if that fails."""
    try:
        yield
    except OSError as error:
        raise OutputError(f"{option} {path}: cannot be written ({_why(error)})") from error


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure of matplotlib to the file of ``--plot``; OutputError if it cannot be written."""
    content = io.BytesIO()
    figure.savefig(content, format=path.suffix[1:].lower(), dpi=150)
    with writing("--plot", path):
        write_bytes(path, content.getvalue())


def save_witness(checkable: "Checkable", verdict: "Verdict", out: Path | None) -> tuple[Path | None, str]:
    """Write the replay file of a verdict's violation, to ``--out`` or named by what was found; or why there is none."""
    from xccl_emu.check.witness.replay_file import Witness

    assert verdict.violation is not None
    witness = Witness.of(checkable, verdict.violation, verdict.order, verdict.without, verdict.fault)
    path = out or WITNESSES / witness.file_name()
    try:
        with writing("--out", path):
            if out is None:
                WITNESSES.mkdir(exist_ok=True)
            witness.save(path)
    except OutputError as error:
        return None, str(error)
    return path, ""


def protocol_of(witness: "Witness", path: Path) -> str:
    """The protocol of a replay file; ConfigError if it is in a file that is gone, which the user has to say."""
    from xccl_emu.protocol.registry import is_known

    if Path(witness.file.rpartition(":")[0]).is_file():
        return witness.file
    if not is_known(witness.protocol):
        how = f"which `xccl-emu list` does not have; give its file too, as FILE.py:{witness.protocol}"
        raise ConfigError(f"--replay {path}: is of protocol {witness.protocol!r}, {how}")
    return witness.protocol


def replayed(witness: "Witness", checkable: "Checkable", path: Path) -> "Verdict":
    """Return what the schedule of a replay file shows today; ConfigError if it is one of something else."""
    from xccl_emu.check.sampling.sample import replay
    from xccl_emu.check.verdict import UNFINISHED, VIOLATION, Verdict

    try:
        violation = replay(witness.trial(checkable), witness.actions, witness.loop)
    except ReplayError as error:
        raise ConfigError(f"--replay {path}: {error}") from error
    return Verdict(
        VIOLATION if violation else UNFINISHED, witness.protocol, witness.configuration, witness.order, "replay", 0,
        witness.without, witness.fault, actions=len(witness.actions), violation=violation,
        reason="" if violation else "the schedule of the file shows no violation any more",
    )  # fmt: skip


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
