"""Run scripts of others on the torch door, and write docs/records/doors.md's table of how far each comes.

    python tools/scripts_page.py FOLDER            all that there are
    python tools/scripts_page.py FOLDER intranode  scripts that have this word in their line; other rows stay

FOLDER has each repository of `TRIALS`, or the tests of it, as NAME@COMMIT; only names and outcomes are kept.  It needs
PyTorch, as the page says.  Scripts are given sizes that are small, and run as they are.
"""

import argparse
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pages import ROOT, between, table

PAGE, MARK = ROOT / "docs" / "records" / "doors.md", "scripts"
HEAD = ("script", "arguments", "works")
SECONDS, SHOWN = 1200, 150
_ERROR = re.compile(
    r"(?:^ +(\S.*)\n(?: *[~^]+\n)?)?^(?:\[rank\d+\]: *|E +)?((?:\w+\.)*\w*(?:Error|Exit))(?:: (.*))?$", re.MULTILINE
)
"""A line of source, and the error that it raised, with its text."""
_HERE = "xccl_emu.doors.torch"
_MISSING = re.compile(rf"([\w.]+): {re.escape(_HERE)} does not have it")

_LL = "--num-processes 2 --num-tokens 4 --hidden 512 --num-topk 2 --num-experts 4"
_NORMAL = "--num-processes 2 --num-tokens 16 --hidden 256 --num-topk 3 --num-experts 8"
_ASCEND = "--num-processes 2 --num-tokens 4 --hidden 256 --num-topk 2 --num-experts 4"
_BOTH = "--num-processes 2 --hidden 256 --num-topk 2 --num-experts 4"
_TWO = "--num-processes 2"
_ELASTIC = f"{_TWO} --num-tokens 8 --hidden 256 --num-topk 2 --num-experts 4"


class Trial(NamedTuple):
    """A script of a repository, and what it is given; ``pytest`` in its place is followed by a test of it."""

    device: str
    script: str
    arguments: str = ""
    pytest: bool = False


TRIALS = {
    "DeepEP": (
        Trial("cuda", "tests/legacy/test_low_latency.py", _LL),
        Trial("cuda", "tests/legacy/test_intranode.py", _NORMAL),
        Trial("cuda", "tests/legacy/test_internode.py", _TWO),
        Trial("cuda", "tests/elastic/test_ep.py", f"{_ELASTIC} --skip-perf-test"),
        *(Trial("cuda", f"tests/elastic/test_{name}.py", _TWO) for name in ("barrier", "engram")),
        Trial("cuda", "tests/elastic/test_agrs.py", f"{_TWO} --num-max-inflight-agrs 1 --num-stress-iterations 0"),
        Trial("cuda", "tests/elastic/test_pp.py", "--num-processes 4 --num-tokens 16 --hidden 256"),
        Trial("cuda", "tests/utils/test_gate.py"),
    ),
    "sgl-kernel-npu": tuple(
        Trial("npu", f"tests/python/deepep/test_{name}.py", arguments)
        for name, arguments in {
            "low_latency": _ASCEND, "intranode": _ASCEND, "combine": _ASCEND,
            "normal_and_low_latency": f"{_BOTH} --normal-num-tokens 4 --low-latency-num-tokens 4 --test-loop 1",
            "fused_deep_moe": _ASCEND, "dispatch_ffn_combine": _ASCEND,
            "normal_and_fused_deep_moe": f"{_BOTH} --normal-num-tokens 4 --fused-moe-num-tokens 4",
            "ll_alltoall": _ASCEND, "normal_alltoall": _ASCEND, "performance_compare": _ASCEND,
            "lowlatency_dc_vs_alltoall": _ASCEND, "normal_dc_vs_alltoall": _ASCEND,
            "mixed_dc_vs_alltoall": f"{_ASCEND} --ll-num-tokens 4", "internode": _ASCEND,
        }.items()
    ),
    "pplx-kernels": (Trial("cuda", "tests/test_all_to_all.py", "-k '4_gpu and False-True-float16-bfloat16'", True),),
    "uccl": tuple(
        Trial("cuda", f"ep/bench/test_{name}.py", arguments)
        for name, arguments in {"low_latency": _LL, "intranode": _NORMAL, "internode": _TWO}.items()
    ),
    "vllm-ascend": (
        Trial("npu", "tests/e2e/nightly/single_node/ops/multicard_ops_a3/test_dispatch_ffn_combine.py", "", True),
    ),
    "Mooncake": (
        Trial("cuda", "mooncake-wheel/tests/test_mooncake_ep.py"), Trial("cuda", "mooncake-ep/tests/test_ep_grid.py"),
        Trial("cuda", "mooncake-ep/tests/test_elastic_buffer.py"),
    ),
}  # fmt: skip
"""By repository its scripts."""


def works(code: int | None, said: str) -> str:
    """Return how far a script came, from its exit code, None if it was ended, and what it printed.

    The first error of the emulator's own says more than those that follow from it; else the last one is meant.
    """
    if code == 0:
        return "runs"
    if code is None:
        return f"is not done in {SECONDS} s"
    errors = [(name.rpartition(".")[2], text or line) for line, name, text in _ERROR.findall(said)]
    own = [error for error in errors if _HERE in error[1] or error[0] == "ConfigError"]
    missing = _MISSING.search(own[0][1]) if own else None
    if missing:
        return f"stops at `{missing[1]}`, which is not here"
    name, text = (own[:1] or errors[-1:] or [("exit code", str(code))])[0]
    return f"{'is refused' if own else 'fails'}: `{f'{name}: {text}'[:SHOWN].replace('|', '/').replace('`', '')}`"


def run(root: Path, trial: Trial) -> str:
    """Run a script in its own folder, with the packages of its repository; returns how far it came."""
    script = root / trial.script
    words = ["-m", "pytest", "-q", script.name] if trial.pytest else [script.name]
    path = os.pathsep.join([str(ROOT), str(root / "src"), str(root), os.environ.get("PYTHONPATH", "")])
    port = str(20_000 + os.getpid() * 7 % 20_000)
    launcher = [sys.executable, "-m", _HERE, "--device", trial.device, "--cores", "2", *words]
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [*launcher, *shlex.split(trial.arguments)], cwd=script.parent, stdout=said,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": path, "MASTER_PORT": port, "CUDA_VISIBLE_DEVICES": "0,1,2,3"},
        )  # fmt: skip
        code: int | None = None
        try:
            code = process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM)
            process.wait()
        said.seek(0)
        return works(code, said.read().decode("utf-8", "replace"))


def rows(folder: Path, page: str, word: str) -> Iterator[tuple[str, str, str]]:
    """Yield a row for each script: those that have the word are run, and others as they are on the page."""
    part = page.partition(f"<!-- {MARK}: ")[2].partition(f"<!-- {MARK} end -->")[0]
    old = {tuple(cells[:2]): cells[2] for cells in (line[2:-2].split(" | ") for line in part.splitlines()) if cells[2:]}
    for name, trials in TRIALS.items():
        for root in sorted(folder.glob(f"{name}@*")):
            for trial in trials:
                key = f"{root.name} `{trial.script}`", f"`{trial.arguments}`" if trial.arguments else "its own"
                done = old.get(key, "")
                if word in " ".join(key) or not done:
                    done = run(root, trial)
                print(*key, done, sep=" | ", flush=True)
                yield (*key, done)


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the repositories are")
    parser.add_argument("word", nargs="?", default="", help="run only scripts that have it in their line")
    asked = parser.parse_args()
    found = table(HEAD, rows(asked.folder, PAGE.read_text("utf-8"), asked.word))
    PAGE.write_text(between(PAGE.read_text("utf-8"), MARK, found), "utf-8")


if __name__ == "__main__":
    main()
