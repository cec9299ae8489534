"""What has become slower since a revision: both run the same jobs in turns, in a process each, and that several times.

The revision is the argument, else SINCE (`make bench SINCE=REVISION`), else the last tag; without a tag it is left out.
A machine that is busy, or slow today, slows both of a pair.  Where a process has its memory is luck that stays with it
(the same checkout twice has come out at 0.83), so each job is started several times.
"""

import contextlib
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from pathlib import Path

from harness import Report, parser
from since_jobs import JOBS

ROOT = Path(__file__).resolve().parents[1]
LEAST = 0.95
"""A ratio below this is a loss."""


def last_tag() -> str:
    """The tag before HEAD; empty if there is none."""
    asked = ["git", "describe", "--tags", "--abbrev=0"]
    return subprocess.run(asked, cwd=ROOT, capture_output=True, text=True).stdout.strip()


@contextlib.contextmanager
def checkout(revision: str) -> Iterator[Path]:
    """The files of a revision, in a folder for as long as they are needed."""
    packed = subprocess.run(["git", "archive", revision], cwd=ROOT, capture_output=True, check=True).stdout
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=BytesIO(packed)) as files:
            files.extractall(folder, filter="data")
        yield Path(folder)


@contextlib.contextmanager
def side(tree: Path, job: str) -> Iterator[Callable[[], float | None]]:
    """A job on one checkout in a process of its own: its rate each time, None if this checkout cannot do it."""
    command = [sys.executable, str(ROOT / "benchmarks" / "since_jobs.py"), str(tree), job]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    with subprocess.Popen(
        command, cwd=tree, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        ask, answer = process.stdin, process.stdout
        assert ask is not None
        assert answer is not None

        def rate() -> float | None:
            print(file=ask, flush=True)
            told = answer.readline().strip()
            return float(told) if told else None

        yield rate


def ratio(tree: Path, job: str, starts: int, pairs: int) -> float | None:
    """Median over processes of the median of their pairs, each side first in every other one; None if one cannot."""
    found = measured(tree, job, starts, pairs)
    return None if found is None else found[1]


def measured(tree: Path, job: str, starts: int, pairs: int) -> tuple[float, float] | None:
    """Return the best rate now too, before `ratio`."""
    medians, best = [], 0.0
    for _ in range(starts):
        with side(tree, job) as then, side(ROOT, job) as now:
            ratios = []
            for pair in range(pairs):
                before, after = (then(), now()) if pair % 2 else (now(), then())[::-1]
                if before is None or after is None:
                    return None
                ratios.append(after / before)
                best = max(best, after)
        medians.append(statistics.median(ratios))
    return best, statistics.median(medians)


def compare(revision: str, jobs: Sequence[str], starts: int, pairs: int) -> Report:
    """Run each job in pairs."""
    report = Report(f"Of what {revision} does")
    with checkout(revision) as tree:
        for job in jobs:
            found = ratio(tree, job, starts, pairs)
            if found is None:
                report.notes.append(f"{job}: cannot be compared with {revision}")
            else:
                report.at_least(job, found, LEAST)
    fell = [row.what for row in report.rows if row.met is False]
    report.notes.append(f"fell by more than {1 - LEAST:.0%}: {', '.join(fell) or 'nothing'}")
    return report


def main() -> None:
    """Compare, and print the table."""
    command = parser(__doc__)
    command.add_argument("revision", nargs="?", default=os.environ.get("SINCE", ""), help="what to compare with")
    command.add_argument("--starts", type=int, default=5, help="how often both processes of a job are started")
    command.add_argument("--pairs", type=int, default=3, help="how often they run it")
    command.add_argument("--job", action="append", choices=sorted(JOBS), help="only this one; may be repeated")
    options = command.parse_args()
    revision = options.revision or last_tag()
    if not revision:
        print("left out: there is no tag; give a revision, as in make bench SINCE=REVISION")
        return
    compare(revision, options.job or list(JOBS), options.starts, options.pairs).finish(options.json)


if __name__ == "__main__":
    main()
