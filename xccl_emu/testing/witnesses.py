"""Violations as text and as files."""

from pathlib import Path

from xccl_emu.base.errors import ConfigError
from xccl_emu.check.trial import Checkable
from xccl_emu.check.verdict import Verdict, Violation
from xccl_emu.check.witness.replay_file import Witness

WIDTH = 120


def headline(verdict: Verdict) -> str:
    """Return the verdict in a line: what was found, in which protocol, under which order."""
    sizes = " ".join(f"{name}={value}" for name, value in verdict.configuration.items())
    parts = [f"{verdict.protocol} {sizes}".strip(), f"order {verdict.order}", verdict.policy]
    parts += [f"seed {verdict.seed}"] if verdict.policy != "exhaustive" else []
    parts += [f"without {', '.join(verdict.without)}"] if verdict.without else []
    parts += [f"fault {verdict.fault}"] if verdict.fault else []
    found = verdict.violation
    what = f"{verdict.verdict}: {found.kind}" if found is not None else verdict.verdict
    reason = f": {verdict.reason}" if found is None and verdict.reason else ""
    return f"{what} ({'; '.join(parts)}){reason}"


def witness_text(checkable: Checkable, verdict: Verdict, *, width: int = WIDTH) -> str:
    """The run that leads to the violation, as a plain table ``width`` columns wide, what is wrong at its end, and what
    else was found.

    Raises ConfigError if the verdict has no violation.
    """
    import io

    from rich.console import Console

    from xccl_emu.check.witness.render import print_others, print_witness

    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=False, color_system=None, emoji=False, soft_wrap=False)
    print_witness(console, checkable.build(verdict.order, verdict.without), _violation(verdict))
    print_others(console, verdict.others)
    return "\n".join(line.rstrip() for line in out.getvalue().rstrip().splitlines())


def witness_picture(checkable: Checkable, verdict: Verdict) -> str:
    """The run as a picture, in SVG: lanes for cores, pipes and memories, arrows where writes leave and land.

    Raises ConfigError as `witness_text`.
    """
    from xccl_emu.check.witness import highlight, picture, render, tracer

    found = _violation(verdict)
    run = tracer.steps(checkable.build(verdict.order, verdict.without), found.actions.tolist())
    return picture.svg(run, render.rows(run, highlight.marks(run, found)))


def witness_line(checkable: Checkable, verdict: Verdict) -> str:
    """The violation as one line, which `replay` takes in place of a path; raises ConfigError as `witness_text`."""
    return _witness(checkable, verdict).to_line()


def save_witness(checkable: Checkable, verdict: Verdict, path: str | Path) -> Path:
    """Write the replay file of the violation, with the folders above it; returns its path."""
    return _saved(_witness(checkable, verdict), Path(path))


def keep_witness(checkable: Checkable, verdict: Verdict, folder: Path, of: str) -> Path:
    """The same in a folder, under a name that begins with whose it is and that no other violation has."""
    witness = _witness(checkable, verdict)
    return _saved(witness, folder / witness.file_name(of))


def _witness(checkable: Checkable, verdict: Verdict) -> Witness:
    return Witness.of(checkable, _violation(verdict), verdict.order, verdict.without, verdict.fault)


def _saved(witness: Witness, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    witness.save(path)
    return path


def replay(checkable: Checkable, path: str | Path) -> Violation | None:
    """Replay a file, or a line of `witness_line`, on the protocol that it was written for; None if it shows none now.

    Raises ReplayError if the file is damaged, or of another protocol, configuration or version of the kernels.
    """
    from xccl_emu.check.sampling.sample import replay as judge

    witness = Witness.load(path)
    return judge(witness.trial(checkable), witness.actions, witness.loop)


def _violation(verdict: Verdict) -> Violation:
    if verdict.violation is None:
        raise ConfigError("verdict", verdict.verdict, "there is no violation to show")
    return verdict.violation
