"""What has become slower since a revision: both run the same jobs in turns, in one process each.

The revision is the argument, else SINCE (`make bench SINCE=REVISION`), else the last tag; without a tag it is left out.
A number is the median of the ratios of the pairs, so a machine that is busy, or slow today, slows both.
"""

import contextlib
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
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


class Side:
    """One checkout, measured in a process of its own."""

    def __init__(self, tree: Path) -> None:
        command = [sys.executable, str(ROOT / "benchmarks" / "since_jobs.py"), str(tree)]
        environment = {**os.environ, "PYTHONPATH": str(tree)}
        self._process = subprocess.Popen(
            command, cwd=tree, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def rate(self, job: str) -> float | None:
        """The rate of a job; None if this checkout cannot do it."""
        ask, answer = self._process.stdin, self._process.stdout
        assert ask is not None
        assert answer is not None
        ask.write(f"{job}\n")
        ask.flush()
        told = answer.readline().strip()
        return float(told) if told else None

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def ratio(then: Side, now: Side, job: str, pairs: int) -> float | None:
    """Median of the ratios of pairs, each side first in every other one; None if a side cannot do the job."""
    ratios = []
    for pair in range(pairs):
        sides: Sequence[Side] = (then, now) if pair % 2 else (now, then)
        rates = {id(side): side.rate(job) for side in sides}
        before, after = rates[id(then)], rates[id(now)]
        if before is None or after is None:
            return None
        ratios.append(after / before)
    return statistics.median(ratios)


def compare(revision: str, jobs: Sequence[str], pairs: int) -> Report:
    """Run each job in pairs."""
    report = Report(f"Of what {revision} does")
    with checkout(revision) as tree:
        then, now = Side(tree), Side(ROOT)
        for job in jobs:
            found = ratio(then, now, job, pairs)
            if found is None:
                report.notes.append(f"{job}: cannot be compared with {revision}")
            else:
                report.at_least(job, found, LEAST)
        then.close()
        now.close()
    fell = [row.what for row in report.rows if row.met is False]
    report.notes.append(f"fell by more than {1 - LEAST:.0%}: {', '.join(fell) or 'nothing'}")
    return report


def main() -> None:
    """Compare, and print the table."""
    command = parser(__doc__)
    command.add_argument("revision", nargs="?", default=os.environ.get("SINCE", ""), help="what to compare with")
    command.add_argument("--pairs", type=int, default=7, help="how often each job is run by both")
    command.add_argument("--job", action="append", choices=sorted(JOBS), help="only this one; may be repeated")
    options = command.parse_args()
    revision = options.revision or last_tag()
    if not revision:
        print("left out: there is no tag; give a revision, as in make bench SINCE=REVISION")
        return
    compare(revision, options.job or list(JOBS), options.pairs).finish(options.json)


if __name__ == "__main__":
    main()
