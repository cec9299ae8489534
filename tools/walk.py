"""Follow a payload: the files whose functions a call enters, in order, up to its end; `tools/reach.py` counts them.

A call is the second of its kind, so nothing in it is made at first use, and all code runs as plain Python.
"""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

ACTS = "xccl_emu/machine/device/actions.py"
"""Where an action of the machine begins."""
STEPS = "xccl_emu/lang/_text.py"
"""The steps of lowered kernels run in their text, which has the name of this file."""


@dataclass
class Walk:
    """The files that a call enters, of a tree."""

    folder: Path
    files: list[str] = field(default_factory=list)
    """In order."""
    before: int = 0
    """How many of the host come before the first action of the machine."""

    def enter(self, frame: FrameType, event: str, _: Any) -> None:
        """Note the file of a function that is called; what `sys.setprofile` takes."""
        path = self._of_package(frame.f_code.co_filename) if event == "call" else ""
        if path and path not in self.files:
            if path == ACTS:
                self.before = sum(map(on_host, self.files))
            self.files.append(path)

    def _of_package(self, file: str) -> str:
        """Return a file of the package as its tree calls it; nothing for any other."""
        path = Path(file).resolve()
        inside = path.is_relative_to(self.folder) and path.relative_to(self.folder).parts[0]
        return path.relative_to(self.folder).as_posix() if inside in ("xccl_emu", "kernels", "protocols") else ""


def on_host(path: str) -> bool:
    """Return whether a file is none of the machine, of kernels or of their steps."""
    return "/device/" not in path and not path.startswith("kernels/") and path != STEPS


def follow(call: Callable[[], object], folder: Path) -> Walk:
    """Make a call, and return which files of a tree it enters."""
    walk = Walk(folder.resolve())
    sys.setprofile(walk.enter)
    try:
        call()
    finally:
        sys.setprofile(None)
    return walk


def dispatch() -> Callable[[], object]:
    """Return a dispatch of two ranks by pull, which is to be made."""
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
    """Return a transfer from die to die, which is to be made."""
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


def walks(folder: Path) -> dict[str, Walk]:
    """Follow a payload of dispatch and one of send, of the package in a tree; to be called before it is imported."""
    os.environ["NUMBA_DISABLE_JIT"] = "1"
    sys.path.insert(0, str(folder))
    return {prepare.__name__: follow(prepare(), folder) for prepare in (dispatch, send)}
