"""Many jobs: how many run at once, what becomes of those that fail, what ends them, and what is kept then."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest

from tests.cli_support import interrupted
from xccl_emu.base import early, free_memory
from xccl_emu.base.errors import ConfigError, UnfinishedError
from xccl_emu.base.jobs import (
    LOCAL,
    EndedJob,
    Gathered,
    Job,
    Stopped,
    collect,
    in_parts,
    interrupts_held,
    run_jobs,
    take_all,
)

WHERE = [{"workers": 1}, {"workers": 2}, pytest.param({"dask": LOCAL}, marks=pytest.mark.slow)]
"""This process, others, and a cluster."""


class Parts(Gathered):
    """What parts came to, of which nothing is counted."""

    COUNTED = ()


def double(number: int) -> int:
    """What a job does."""
    return 2 * number


def die(number: int) -> int:
    """A job that the system kills."""
    os.kill(os.getpid(), signal.SIGKILL)
    return number


def fail(number: int) -> int:
    """A job that cannot be done."""
    raise ConfigError("number", number, "must be a job that can be done")


def free_bytes() -> int:
    """What a job may plan with."""
    return free_memory.available_bytes()


BY_ZERO = "cannot be shared among nobody"


def mistake(number: int) -> int:
    """A job with an error that nobody foresaw."""
    raise ZeroDivisionError(BY_ZERO)


def test_all_jobs_are_run() -> None:
    """Each result comes with the number of its job, also if only one fits at a time."""
    jobs = [Job(str(i), partial(double, i), 10) for i in range(3)]
    assert {one.number: one.result for one in run_jobs(jobs, free_bytes=15)} == {0: 0, 1: 2, 2: 4}


def test_memory_is_divided_among_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of two plans with half of what was free when they began, whatever its job is."""
    monkeypatch.setattr(free_memory, "available_bytes", lambda: 1000)
    assert [one.result for one in run_jobs([Job("", free_bytes)] * 2, 2)] == [500, 500]


def test_results_come_as_they_are_done() -> None:
    """A short job is yielded while a long one before it still runs, and to stop taking ends that one."""
    started = time.monotonic()
    done = run_jobs([Job("long", partial(time.sleep, 60)), Job("short", partial(time.sleep, 0))], 2)
    assert next(done).job.name == "short"
    done.close()
    assert time.monotonic() - started < 50


def test_here_each_runs_when_it_is_asked_for() -> None:
    """With one worker a job runs in this process, in order, and only when the one before it has been taken."""
    ran = list[int]()
    done = run_jobs([Job(str(i), partial(ran.append, i)) for i in range(3)], 1)
    for number in range(3):
        assert next(done).number == number
        assert ran == [*range(number + 1)]


@pytest.mark.filterwarnings("default")  # what Dask's own threads do while they end is not ours
@pytest.mark.parametrize("where", WHERE)
def test_a_failed_job_is_a_row(where: dict[str, object]) -> None:
    """It says why, the others have their results, and all are named once more when all have ended."""
    if "dask" in where:
        pytest.importorskip("distributed")
    jobs = [Job("first", partial(fail, 7)), Job("second", partial(double, 4)), Job("third", partial(fail, 8))]
    rows = dict[int, tuple[str, int]]()

    def take(one: EndedJob[int]) -> None:
        rows[one.number] = (one.failure, 0 if one.failure else one.result)

    stopped = take_all(run_jobs(jobs, **where), take)  # type: ignore[arg-type]
    said = [f"number={number}: must be a job that can be done" for number in (7, 8)]
    assert rows == {0: (said[0], 0), 1: ("", 8), 2: (said[1], 0)}
    assert stopped is not None
    assert stopped.code == 0
    assert sorted(stopped.why.splitlines()) == [f"  first: {said[0]}", f"  third: {said[1]}", "2 of 3 failed:"]


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_that_nobody_foresaw_is_a_row_and_ends_the_command(workers: int) -> None:
    """Its row has its type, the others have their results, and it is raised last, with the name of its job."""
    made = [Job("odd", partial(mistake, 1)), Job("even", partial(double, 4))]
    found = collect(made, lambda *_: None, workers=workers)
    assert (found.done, [one.failure for one in found.failed]) == ({1: 8}, [f"ZeroDivisionError: {BY_ZERO}"])
    assert found.stopped is not None
    with pytest.raises(ZeroDivisionError) as raised:
        found.stopped.end()
    assert raised.value.__notes__ == ["in odd"]


@pytest.mark.parametrize(
    ("error", "stopped"),
    [(KeyboardInterrupt(), Stopped("interrupted", 130)), (SystemExit(143), Stopped("terminated", 143)),
     (UnfinishedError("no end"), Stopped("1 of 3 failed:\n  1: no end"))],
)  # fmt: skip
def test_a_signal_keeps_what_is_done(error: BaseException, stopped: Stopped) -> None:
    """What came before it has been taken, nothing after it is begun, and it is said and not raised; a failure alone
    ends nothing."""

    def job(number: int) -> int:
        if number == 1:
            raise error
        return number

    taken = list[int]()
    done = run_jobs([Job(str(i), partial(job, i)) for i in range(3)], 1)
    assert take_all(done, lambda one: taken.append(one.number)) == stopped
    assert taken == ([0] if stopped.code else [0, 1, 2])


def test_a_signal_that_comes_out_as_another_error_is_no_row() -> None:
    """Within an import or a library Ctrl-C may become any error: no other job begins."""

    def job(number: int) -> None:
        early.heard.append(signal.SIGINT)
        raise ImportError(number)

    done = run_jobs([Job(str(i), partial(job, i)) for i in range(3)], 1)
    assert take_all(done, lambda one: None) == Stopped("interrupted", 130)


def test_a_page_keeps_what_is_not_made_again(load_tool: Callable[[str], ModuleType]) -> None:
    """Parts that a signal or a failure leaves are as they were, and a new one is missing; those before it are new."""

    def make(error: BaseException, name: str) -> str:
        if name == "b":
            raise error
        return f"new {name}"

    old = {name: f"old {name}" for name in "abc"}
    for error, said in ((KeyboardInterrupt(), ["old c"]), (UnfinishedError("no end"), ["new c", "new d"])):
        by = load_tool("pages").Remade()
        assert by.parts(old, "abcd", "abc", partial(make, error)) == ["new a", "old b", *said]
        assert by.stopped is not None


def test_a_job_that_ends_the_process_is_no_signal() -> None:
    """A SystemExit of its own is raised."""
    with pytest.raises(SystemExit):
        take_all(run_jobs([Job("a", partial(sys.exit, 1))], 1), lambda one: None)


def test_enough_is_enough() -> None:
    """Once it is enough no other job begins, and nothing has stopped them."""
    taken = list[int]()

    def take(one: EndedJob[int]) -> bool:
        taken.append(one.result)
        return len(taken) == 2

    assert take_all(run_jobs([Job(str(i), partial(double, i)) for i in range(9)], 1), take) is None
    assert taken == [0, 2]


def test_enough_keeps_what_failed_before() -> None:
    """A part that failed is said though it is enough after it, and does not count as killed."""
    parts = Parts()
    parts.gather(in_parts(fail, [1, 2], 1), lambda: True, None)
    said = "1 of 1 failed:\n  part 1 of 2: number=1: must be a job that can be done"
    assert (parts.stopped, parts.killed) == (said, False)


def test_dask_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing extra is named with what installs it, and nothing has run."""
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ConfigError, match=r"--dask tcp://nowhere:1: needs Dask; install xccl_emu\[dask\]"):
        list(run_jobs([Job("a", partial(die, 0))], dask="tcp://nowhere:1"))


def test_a_job_that_does_not_fit() -> None:
    """The largest one is named before any is begun, with the advice that its caller has."""
    jobs = [Job("small", partial(die, 0), 1), Job("large", partial(die, 0), 20)]
    with pytest.raises(ConfigError, match=r"large: needs about .* free; take half"):
        list(run_jobs(jobs, free_bytes=15, advice="take half"))


def test_a_killed_process_is_named() -> None:
    """A job whose process is killed ends all with an error that says so."""
    with pytest.raises(UnfinishedError, match=r"that dies.*killed, perhaps for lack of memory; take less"):
        list(run_jobs([Job("that dies", partial(die, 0))], advice="take less"))


def test_ctrl_c_does_not_wait(tmp_path: Path) -> None:
    """Interrupted, the command ends at once and leaves no process, though jobs of a minute are under way."""
    script = tmp_path / "waits.py"
    script.write_text(
        "import time\n"
        "from functools import partial\n"
        "from xccl_emu.base.jobs import Job, run_jobs\n"
        "if __name__ == '__main__':\n"
        "    print('begun', flush=True)\n"
        "    list(run_jobs([Job('a', partial(time.sleep, 60))]))\n"
    )
    assert interrupted([str(script)], 1, "begun\n")[2] < 10


def test_an_interrupt_that_another_thread_takes_waits_too() -> None:
    """While a process is started Ctrl-C is held, whichever thread the system gives it to; then it is heard."""
    end, started = threading.Event(), list[str]()
    other = threading.Thread(target=end.wait)
    other.start()

    def start() -> None:
        with interrupts_held():
            signal.pthread_kill(other.ident or 0, signal.SIGINT)
            time.sleep(0.1)
            started.append("a process")

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's job in the background ignores it
    try:
        with pytest.raises(KeyboardInterrupt):
            start()
    finally:
        signal.signal(signal.SIGINT, before)
        end.set()
    assert started


WAITING = """
import os, sys, time
from functools import partial
from xccl_emu.base.jobs import Job, run_jobs
from xccl_emu.cli.ending import run_to_end

def begin(folder):
    open(os.path.join(folder, str(os.getpid())), "w").close()
    time.sleep(60)

def command():
    list(run_jobs([Job("a", partial(begin, sys.argv[1]))] * 2, 2))

if __name__ == "__main__":
    run_to_end(command)
"""


def runs(pid: str) -> bool:
    """Return whether there is such a process, and not only a zombie that nobody has reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_no_process_outlives_the_command(tmp_path: Path, number: signal.Signals, code: int) -> None:
    """Ended by a signal, even by one that it cannot hear, it leaves no process and no open pipe."""
    script, folder = tmp_path / "waits.py", tmp_path / "workers"
    script.write_text(WAITING)
    folder.mkdir()
    with subprocess.Popen([sys.executable, str(script), str(folder)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True) as process:  # fmt: skip
        until = time.monotonic() + 60
        while len(os.listdir(folder)) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        process.send_signal(number)
        _, errors = process.communicate(timeout=30)  # it waits for all that have the pipes open
    assert process.returncode == code
    assert len(os.listdir(folder)) == 2
    assert not [pid for pid in os.listdir(folder) if runs(pid)]
    if number == signal.SIGTERM:
        assert errors == "xccl-emu: terminated\n"
