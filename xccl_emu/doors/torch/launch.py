"""``python -m xccl_emu.doors.torch SCRIPT``: a server with the pod, and a script whose ranks call it."""

import argparse
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import xccl_emu
from xccl_emu.base.errors import ConfigError, XcclEmuError
from xccl_emu.doors.torch.imports import DEVICE
from xccl_emu.doors.torch.pods import TIME, Settings
from xccl_emu.doors.torch.wire import ADDRESS, POLICY, listen

HELP = """\
Run a script that was written for DeepEP, its Ascend port or pplx-kernels on an emulated pod, as it is.

  python -m xccl_emu.doors.torch test_low_latency.py --num-processes 8 --num-tokens 16 --hidden 512
  python -m xccl_emu.doors.torch --policy portfolio --seed 7 test_low_latency.py ...
  python -m xccl_emu.doors.torch --without "tokens before counts" test_low_latency.py ...   must fail
  python -m xccl_emu.doors.torch -m pytest tests/test_all_to_all.py

Devices (npu, cuda) are this computer, backends (hccl, nccl) gloo.  deep_ep, torch_npu, nvshmem and the
operators of pplx-kernels are the emulator's; what they have not is refused by name.

By default calls run in virtual time: what events and profilers say, and the script makes GB/s of, is the
model's.  With --policy each call is run under schedules that are drawn, with a monitor for races: it raises
where one goes wrong, and writes a replay file.  Times are this computer's then, and mean nothing.
"""
_EXIT = """\
Exit code: the script's; if that is 0, 1 where a violation was found (though the script caught it), a hook or an event
was never waited for, or --policy was given and no call made.  2 wrong usage; 70 the server ended; 130 and 143 after
Ctrl-C and SIGTERM.  The last line says what was counted."""
_PATIENCE_S, _COUNTING_S = 5.0, 60.0
"""Seconds that a script has to end after Ctrl-C, and the server, which may be starting yet, to say what it counted."""
_SERVER_ENDED = 70


def _parser() -> argparse.ArgumentParser:
    usage = Settings()
    parser = argparse.ArgumentParser(
        "python -m xccl_emu.doors.torch", description=HELP, epilog=_EXIT,
        formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--policy", help="time, or portfolio, random, pct, weights, eager, late, lifo, skew [default: time]")
    add("--order", default=usage.order, help="of drawn schedules: sc, fifo, relaxed, unordered [%(default)s]")
    add("--seed", type=int, default=0, help="of drawn schedules [%(default)s]")
    add("--seeds", type=int, default=1, help="run the script with this many seeds, until one fails [%(default)s]")
    add("--schedules", type=int, help="drawn for each call [1; 6, one of each, of the portfolio]")
    add("--together", type=int, help="calls judged together, hosts not waiting [1; with --without 3]")
    add("--without", action="append", default=[], metavar="SYNC", help="switch a synchronization off; may be repeated")
    add("--cores", type=int, default=usage.cores, help="of each rank [%(default)s]")
    add("--witnesses", default=usage.witnesses, help="folder for replay files [%(default)s]")
    add("--replay", default="", metavar="FILE", help="a replay file: its call is run by its schedule, nothing is drawn")
    add("--timeout", type=float, default=0.0, metavar="S", help="seconds that a call may wait for its ranks [no limit]")
    add("--memory", type=float, default=0.0, metavar="GIB",
        help="above this, pods of sizes used longest ago are given back [half of this computer's]")
    add("--device", choices=("auto", "npu", "cuda"), default="auto", help="npu if the script says so, else cuda [auto]")
    add("-m", dest="module", action="store_true", help="SCRIPT is the name of a module, as for python -m")
    add("script", metavar="SCRIPT", help="a file, and what it is to be given")
    add("args", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    given = _parser().parse_args(argv)
    try:
        settings = _settings(given)
        device = given.device if given.device != "auto" else _device(given)
        for seed in range(given.seed, given.seed + max(1, given.seeds)):
            if given.seeds > 1:
                print(f"xccl_emu: seed {seed}", file=sys.stderr, flush=True)
            script = [*(["-m"] if given.module else []), given.script, *given.args]
            code = _run(replace(settings, seed=seed), device, script)
            if code:
                return code
    except XcclEmuError as error:
        print(f"xccl_emu: {error}", file=sys.stderr)
        return 2
    return 0


def _settings(given: argparse.Namespace) -> Settings:
    """Raises ConfigError for what cannot be."""
    if not given.module and not Path(given.script).is_file():
        raise ConfigError("script", given.script, "there is no such file")
    policy = given.policy or ("portfolio" if given.without or given.replay else TIME)
    if policy == TIME and given.without:
        raise ConfigError("policy", "time", "nothing can be switched off in virtual time; take portfolio")
    given.schedules = given.schedules if given.schedules is not None else 6 if policy == "portfolio" else 1
    given.together = given.together or (3 if given.without else 1)
    for name in ("timeout", "memory"):
        if not 0 <= getattr(given, name) < 1e9:
            raise ConfigError(name, getattr(given, name), "must be at least 0, and 0 for no limit of yours")
    settings = Settings(
        policy, given.order, given.seed, given.schedules, given.together, given.cores, tuple(given.without),
        str(Path(given.witnesses).resolve()), given.replay and str(Path(given.replay).resolve()),
        given.timeout, given.memory,
    )  # fmt: skip
    if policy != TIME:
        from xccl_emu.testing.watched import Watched

        # refuses what cannot be, before anything starts
        Watched(
            policy, schedules=given.schedules, seed=given.seed, replay=given.replay or None, together=given.together
        )
    return settings


def _device(given: argparse.Namespace) -> str:
    """Return the device that a script means, by the words in it."""
    files = [path for each in (given.script, *given.args) if (path := Path(each)).suffix == ".py" and path.is_file()]
    text = "\n".join(path.read_text(encoding="utf-8", errors="replace") for path in files)
    return "npu" if re.search(r"torch_npu|[\"']npu", text) else "cuda"


def _run(settings: Settings, device: str, script: Sequence[str]) -> int:
    """Run a script with a server of its own; returns the exit code."""
    was = signal.signal(signal.SIGTERM, _terminated)
    counted: dict[str, int] = {}
    try:
        with serving(settings, counted) as environment:
            hook = str(Path(__file__).parent / "hook")
            path = os.pathsep.join([hook, environment["PYTHONPATH"]])
            environment = {**environment, "PYTHONPATH": path, DEVICE: device}
            with _grouped([sys.executable, *script], environment) as started:
                try:
                    code = started.wait()
                except KeyboardInterrupt:  # the script says where it is
                    with contextlib.suppress(KeyboardInterrupt, subprocess.TimeoutExpired):
                        os.killpg(started.pid, signal.SIGINT)
                        started.wait(_PATIENCE_S)
                    code = 130
    except KeyboardInterrupt:
        return 130
    except _Terminated:
        return 143
    finally:
        signal.signal(signal.SIGTERM, was)
    code = code if code >= 0 else 128 - code  # as shells say it of a process that a signal ended
    return _concluded(code, settings, counted)


def _concluded(code: int, settings: Settings, counted: Mapping[str, int]) -> int:
    """Say what was counted, in a last line; returns the exit code."""
    if "ended" in counted:
        number = counted["ended"]
        by = f"ended by {signal.Signals(-number).name}" if number < 0 else f"ended with {number}"
        killed = " (this computer's memory may be full)" if number == -signal.SIGKILL else ""
        print(f"xccl_emu: the server {by}{killed}", file=sys.stderr)
        return _SERVER_ENDED
    if not counted:
        print("xccl_emu: the server was in a call yet, and has not said what it counted", file=sys.stderr)
        return code
    calls, judged = counted.get("calls", 0), settings.policy != TIME
    words = [f"{calls} calls", *([f"{counted.get('schedules', 0)} schedules drawn"] if judged else [])]
    words += [f"{counted.get(name, 0)} {name}" for name in ("violations", "unreceived")]
    words += [f"{counted['failed']} errors of the emulator"] if counted.get("failed") else []
    note = "; times that the script says are this computer's" if judged else ""
    print(f"xccl_emu: {', '.join(words)}{note}", file=sys.stderr)
    wrong = any(counted.get(name) for name in ("violations", "unreceived", "failed"))
    return code or int(wrong or (judged and not calls))


@contextlib.contextmanager
def serving(settings: Settings, counted: dict[str, int] | None = None) -> Iterator[dict[str, str]]:
    """A server that ranks may call within; gives the environment by which processes know it.

    counted: filled at the end with what the server has counted, by name; with ``ended``, its exit code, if it ended
    before.
    """
    listening, name = listen()
    life, other = socket.socketpair()
    path = [os.environ.get("PYTHONPATH", ""), str(Path(xccl_emu.__file__).parents[1])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))}
    fds = (listening.fileno(), other.fileno())
    command = [sys.executable, "-m", "xccl_emu.doors.torch.server", *map(str, fds), json.dumps(asdict(settings))]
    with listening, life, other, _grouped(command, environment, fds) as server:
        other.close()
        yield {**environment, ADDRESS: name, POLICY: settings.policy}
        if counted is not None:
            counted.update(_counted(server, life))


def _counted(server: "subprocess.Popen[bytes]", life: socket.socket) -> dict[str, int]:
    """Return what the server has counted, which it says when nobody calls any more."""
    said = b""
    with contextlib.suppress(OSError):
        life.shutdown(socket.SHUT_WR)
        life.settimeout(_COUNTING_S)
        said = life.recv(1 << 16)
    if said:
        return dict(json.loads(said))
    with contextlib.suppress(subprocess.TimeoutExpired):
        return {"ended": server.wait(_PATIENCE_S)}
    return {}


@contextlib.contextmanager
def _grouped(
    command: Sequence[str], environment: Mapping[str, str], fds: Sequence[int] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends when this does, with all that it started and did not move elsewhere."""
    process = subprocess.Popen(command, env=environment, pass_fds=fds, start_new_session=True)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class _Terminated(Exception):
    """SIGTERM came."""


def _terminated(*_: object) -> None:
    raise _Terminated
