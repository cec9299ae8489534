"""Jobs in processes: how many at once, what ends them, and what does not fit."""

import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from tests.cli_support import interrupted
from xccl_emu.bench.processes import ProcessJob, interrupts_held, on_processes
from xccl_emu.errors import ConfigError, UnfinishedError


def double(number: int) -> int:
    """What a job does."""
    return 2 * number


def die(number: int) -> int:
    """A job that the system kills."""
    os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_all_jobs_are_run() -> None:
    """Each result comes with the number of its job, also if only one fits at a time."""
    jobs = [ProcessJob(str(i), partial(double, i), 10) for i in range(3)]
    assert dict(on_processes(jobs, 15)) == {0: 0, 1: 2, 2: 4}


def test_a_job_that_does_not_fit() -> None:
    """The largest one is named before any is begun."""
    jobs = [ProcessJob("small", partial(die, 0), 1), ProcessJob("large", partial(die, 0), 20)]
    with pytest.raises(ConfigError, match="large: needs about"):
        list(on_processes(jobs, 15))


def fail(number: int) -> int:
    """A job that cannot be done."""
    raise ConfigError(f"number {number}: cannot be")


def test_others_are_done_when_a_job_fails() -> None:
    """Their results come first; then an error names the ones that failed."""
    named = {"first": partial(fail, 7), "second": partial(double, 4), "third": partial(fail, 8)}
    done = on_processes([ProcessJob(name, run, 10) for name, run in named.items()], 15)
    assert next(done) == (1, 8)
    with pytest.raises(UnfinishedError, match=r"2 of 3 failed:\n  first: number 7: cannot be\n  third: number 8"):
        next(done)


def test_a_killed_process_is_named() -> None:
    """A job whose process is killed ends all with an error that says so."""
    with pytest.raises(UnfinishedError, match=r"that dies.*killed, perhaps for lack of memory"):
        list(on_processes([ProcessJob("that dies", partial(die, 0), 1)], 15))


def test_ctrl_c_does_not_wait(tmp_path: Path) -> None:
    """Interrupted, the command ends at once and leaves no process, though jobs of a minute are under way."""
    script = tmp_path / "waits.py"
    script.write_text(
        "import time\n"
        "from functools import partial\n"
        "from xccl_emu.bench.processes import ProcessJob, on_processes\n"
        "if __name__ == '__main__':\n"
        "    print('begun', flush=True)\n"
        "    list(on_processes([ProcessJob('a', partial(time.sleep, 60), 1)], 5))\n"
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
from xccl_emu.bench.processes import ProcessJob, on_processes
from xccl_emu.cli.ending import run_to_end

def begin(folder):
    open(os.path.join(folder, str(os.getpid())), "w").close()
    time.sleep(60)

def command():
    list(on_processes([ProcessJob("a", partial(begin, sys.argv[1]), 1)] * 2, 5, 2))

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
