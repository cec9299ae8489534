"""Jobs in processes: how many at once, what ends them, and what does not fit."""

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from xccl_emu.bench.processes import Job, on_processes
from xccl_emu.errors import CapacityError, ConfigError


def double(number: int) -> int:
    """What a job does."""
    return 2 * number


def die(number: int) -> int:
    """A job that the system kills."""
    os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_all_jobs_are_run() -> None:
    """Each result comes with the number of its job, also if only one fits at a time."""
    jobs = [Job(str(i), partial(double, i), 10) for i in range(3)]
    assert dict(on_processes(jobs, 15)) == {0: 0, 1: 2, 2: 4}


def test_a_job_that_does_not_fit() -> None:
    """The largest one is named before any is begun."""
    jobs = [Job("small", partial(die, 0), 1), Job("large", partial(die, 0), 20)]
    with pytest.raises(ConfigError, match="large: needs about"):
        list(on_processes(jobs, 15))


def test_a_killed_process_is_named() -> None:
    """A job whose process is killed ends all with an error that says so."""
    with pytest.raises(CapacityError, match=r"that dies.*killed, perhaps for lack of memory"):
        list(on_processes([Job("that dies", partial(die, 0), 1)], 15))


def test_ctrl_c_does_not_wait(tmp_path: Path) -> None:
    """Interrupted, the command ends at once and leaves no process, though jobs of a minute are under way."""
    script = tmp_path / "waits.py"
    script.write_text(
        "import time\n"
        "from functools import partial\n"
        "from xccl_emu.bench.processes import Job, on_processes\n"
        "if __name__ == '__main__':\n"
        "    print('begun', flush=True)\n"
        "    list(on_processes([Job('a', partial(time.sleep, 60), 1)], 5))\n"
    )
    with subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # a background job ignores it
    ) as process:  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(1)
        started = time.monotonic()
        process.send_signal(signal.SIGINT)
        process.wait(20)
        assert time.monotonic() - started < 10
