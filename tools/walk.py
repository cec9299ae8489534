"""Follow a payload: the files whose functions a call enters, in order, up to its end.

python tools/walk.py             dispatch of a layer of experts by pull, and send and receive
"""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[1]
ACTS = "xccl_emu/machine/device/actions.py"
"""Where an action of the machine begins."""


@dataclass
class Walk:
    """The files that a call enters, in order, of the package and of the kernels that it makes."""

    files: list[str] = field(default_factory=list)
    before: int = 0
    """Those of them that the host has entered before the first action of the machine."""

    def enter(self, frame: FrameType, event: str, _: Any) -> None:
        """Note the file of a function that is called; what `sys.setprofile` takes."""
        if event != "call":
            return
        path = _inside(frame.f_code.co_filename)
        if path and path not in self.files:
            if path == ACTS:
                self.before = len(self.host)
            self.files.append(path)

    @property
    def host(self) -> list[str]:
        """Return the files that run on the host."""
        return [path for path in self.files if not _on_device(path)]


def _inside(file: str) -> str:
    """Return a file of the package as it is called in the tree; nothing for any other."""
    path = Path(file).resolve()
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT / "xccl_emu") or _of_links(path) else ""


def _of_links(path: Path) -> bool:
    return any(path.is_relative_to(ROOT / name) for name in ("kernels", "protocols"))


def _on_device(path: str) -> bool:
    return "/device/" in path or path.startswith("kernels/")


def follow(call: Callable[[], object]) -> Walk:
    """Make a call, and return which files it enters."""
    walk = Walk()
    sys.setprofile(walk.enter)
    try:
        call()
    finally:
        sys.setprofile(None)
    return walk


def dispatch() -> Callable[[], object]:
    """Return a dispatch of a layer of experts, the second of its group: nothing is made at first use in it."""
    import ml_dtypes
    import numpy as np

    from xccl_emu.machine.pod import Pod
    from xccl_emu.machine.spec import small_pod
    from xccl_emu.protocols.experts.config import EpConfig
    from xccl_emu.protocols.pull.session import ExpertParallel

    pod = Pod(small_pod(2, 1, ub_bytes=64 << 10))
    group = ExpertParallel(pod, EpConfig(n_ranks=2, top_k=1, hidden=64, tokens_max=1))
    tokens, choices = [np.ones((1, 64), ml_dtypes.bfloat16)] * 2, [np.array([[1]]), np.array([[0]])]
    group.dispatch(tokens, choices)
    return lambda: group.dispatch(tokens, choices)


def send() -> Callable[[], object]:
    """Return a transfer from die to die, the second of its communicator."""
    from xccl_emu.machine.pod import Pod
    from xccl_emu.machine.spec import small_pod
    from xccl_emu.protocols.sendrecv.session import SendRecv

    pod = Pod(small_pod(2, 1, ub_bytes=64 << 10))
    comm = SendRecv(pod, slots=1, slot_bytes=64)
    source, target = pod.alloc(0, 64), pod.alloc(1, 64)

    def transfer() -> None:
        comm.transfer(source, target, event_id=1, cores=1)
        comm.run()

    transfer()
    return transfer


if __name__ == "__main__":
    os.environ["NUMBA_DISABLE_JIT"] = "1"
    for prepare in (dispatch, send):
        walk = follow(prepare())
        print(f"{prepare.__name__}: {len(walk.files)} files, {walk.before} of the host before the first action")
        for path in walk.files:
            print(f"    {path}")
