"""``python -m xccl_emu.torch SCRIPT``: a server with the pod beside a script whose ranks call it."""

import argparse
import contextlib
import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import xccl_emu
from xccl_emu.errors import ConfigError, XcclEmuError
from xccl_emu.torch.imports import DEVICE
from xccl_emu.torch.pods import TIME, Settings
from xccl_emu.torch.wire import ADDRESS, listen

HELP = """\
Run a script that was written for DeepEP, its Ascend port or pplx-kernels on an emulated pod, as it is.

  python -m xccl_emu.torch test_low_latency.py --num-processes 8 --num-tokens 16 --hidden 512
  python -m xccl_emu.torch --policy portfolio --seed 7 test_low_latency.py ...
  python -m xccl_emu.torch --without "tokens before counts" test_low_latency.py ...   must fail
  python -m xccl_emu.torch -m pytest tests/test_all_to_all.py

Devices (npu, cuda) are this computer, backends (hccl, nccl) gloo.  deep_ep, torch_npu, nvshmem and the
operators of pplx-kernels are the emulator's; what they have not is refused by name.

By default calls run in virtual time: what events and profilers say, and the script makes GB/s of, is the
model's.  With --policy each call is run under schedules that are drawn, with a monitor for races: it raises
where one goes wrong, and writes a replay file.  Times are those of this computer then, and mean nothing.
"""
_EXIT = "Exit code: that of the script; 2 wrong usage; 130 and 143 after Ctrl-C and SIGTERM."


def _parser() -> argparse.ArgumentParser:
    usage = Settings()
    parser = argparse.ArgumentParser(
        "python -m xccl_emu.torch", description=HELP, epilog=_EXIT, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--policy", help="time, or portfolio, random, pct, weights, eager, late, lifo, skew [default: time]")
    add("--order", default=usage.order, help="of drawn schedules: sc, fifo, relaxed, unordered [%(default)s]")
    add("--seed", type=int, default=0, help="of drawn schedules [%(default)s]")
    add("--seeds", type=int, default=1, help="run the script with so many seeds, until one fails [%(default)s]")
    add("--schedules", type=int, default=usage.schedules, help="drawn for each call [%(default)s]")
    add("--without", action="append", default=[], metavar="SYNC", help="switch a synchronization off; may be repeated")
    add("--cores", type=int, default=usage.cores, help="of each rank [%(default)s]")
    add("--witnesses", default=usage.witnesses, help="folder for replay files [%(default)s]")
    add("--device", choices=("auto", "npu", "cuda"), default="auto", help="npu if the script says so, else cuda [auto]")
    add("-m", dest="module", action="store_true", help="SCRIPT is the name of a module, as of python -m")
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
            own = Settings(**{**asdict(settings), "seed": seed})
            code = _run(own, device, [*(["-m"] if given.module else []), given.script, *given.args])
            if code:
                return code
    except XcclEmuError as error:
        print(f"xccl_emu: {error}", file=sys.stderr)
        return 2
    if settings.policy != TIME:
        print("xccl_emu: schedules were drawn: times that the script says are this computer's", file=sys.stderr)
    return 0


def _settings(given: argparse.Namespace) -> Settings:
    """Raises ConfigError for what cannot be."""
    if importlib.util.find_spec("torch") is None:
        index = "https://download.pytorch.org/whl/cpu"
        raise ConfigError(f"PyTorch is not installed: pip install torch --index-url {index}")
    if not given.module and not Path(given.script).is_file():
        raise ConfigError(f"script={given.script!r}: there is no such file")
    policy = given.policy or ("portfolio" if given.without else TIME)
    if policy == TIME and given.without:
        raise ConfigError("policy='time': nothing can be switched off in virtual time; take portfolio")
    settings = Settings(
        policy, given.order, given.seed, given.schedules, given.cores, tuple(given.without),
        str(Path(given.witnesses).resolve()),
    )  # fmt: skip
    if policy != TIME:
        from xccl_emu.testing.watched import Watched

        Watched(policy, schedules=given.schedules, seed=given.seed)  # refuses what cannot be, before anything starts
    return settings


def _device(given: argparse.Namespace) -> str:
    """What a script means, by the words in it."""
    files = [path for each in (given.script, *given.args) if (path := Path(each)).suffix == ".py" and path.is_file()]
    text = "\n".join(path.read_text(encoding="utf-8", errors="replace") for path in files)
    return "npu" if re.search(r"torch_npu|[\"']npu", text) else "cuda"


def _run(settings: Settings, device: str, script: Sequence[str]) -> int:
    """Run a script beside a server of its own; returns its exit code."""
    listening, name = listen()
    life, other = socket.socketpair()
    here = Path(__file__).parent
    path = [str(here / "hook"), os.environ.get("PYTHONPATH", ""), str(Path(xccl_emu.__file__).parents[1])]
    environment = {
        **os.environ, ADDRESS: name, f"{ADDRESS}_POLICY": settings.policy, DEVICE: device,
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
    }  # fmt: skip
    fds = (listening.fileno(), other.fileno())
    command = [sys.executable, "-m", "xccl_emu.torch.server", *map(str, fds), json.dumps(asdict(settings))]
    with listening, life:
        server = subprocess.Popen(
            command, pass_fds=fds, start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path[1:]))},
        )  # fmt: skip
        other.close()
        was = signal.signal(signal.SIGTERM, _terminated)
        started = subprocess.Popen([sys.executable, *script], env=environment, start_new_session=True)
        try:
            return _code(started.wait())
        except KeyboardInterrupt:
            return 130
        except _Terminated:
            return 143
        finally:
            for each in (started, server):
                _kill_group(each)
            signal.signal(signal.SIGTERM, was)


class _Terminated(Exception):
    """SIGTERM came."""


def _terminated(*_: object) -> None:
    raise _Terminated


def _code(code: int) -> int:
    """As shells say it of a process that a signal ended."""
    return code if code >= 0 else 128 - code


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that it started and did not move elsewhere."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
