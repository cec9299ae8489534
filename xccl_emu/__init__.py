"""Emulator of the shared-memory communication protocols of the CloudMatrix384 supernode.

The names below are what most users need; each is imported when it is first used. So importing the package is cheap and
does not import Numba; it only chooses the folder of Numba's cache. Requests of kernels are in `xccl_emu.lang`, helpers
for tests in `xccl_emu.testing`. `check_protocol` is `xccl_emu.check.check.check`, since `xccl_emu.check` is a package.
"""

from typing import TYPE_CHECKING

from xccl_emu.base import early as _early

_early.listen()

from xccl_emu.base import lazy as _lazy  # noqa: E402
from xccl_emu.base import moved as _moved  # noqa: E402  what they import takes its time
from xccl_emu.jit import cache as _cache  # noqa: E402
from xccl_emu.jit import without as _without  # noqa: E402

__version__ = "0.2.0"

_cache.activate()
_without.stand_in()
_moved.answer_to_old_names()

if TYPE_CHECKING:
    from xccl_emu.base.errors import ConfigError, DeadlockError, RunError, XcclEmuError
    from xccl_emu.check.check import check as check_protocol
    from xccl_emu.check.verdict import Verdict, Violation
    from xccl_emu.lang.kernel import kernel
    from xccl_emu.machine.pod import Buffer, Pod
    from xccl_emu.machine.spec import CLOUDMATRIX384, PodSpec, small_pod
    from xccl_emu.protocol.bench import Bench
    from xccl_emu.protocol.case import Case
    from xccl_emu.protocol.registry import make
    from xccl_emu.protocols.a2e.session import A2E, A2EConfig
    from xccl_emu.protocols.collectives.session import Collectives
    from xccl_emu.protocols.experts.config import EpConfig
    from xccl_emu.protocols.fused.session import FusedConfig, FusedExpertParallel
    from xccl_emu.protocols.mixserve.session import MixServe
    from xccl_emu.protocols.pull.session import ExpertParallel
    from xccl_emu.protocols.sendrecv.session import SendRecv
    from xccl_emu.protocols.serving.kv.calls import KvTransfer
    from xccl_emu.protocols.serving.memory_pool.session import MemoryPool
    from xccl_emu.testing.witnesses import replay, witness_text
    from xccl_emu.timing.run import VirtualTime
else:
    __getattr__, __dir__ = _lazy.names(
        globals(),
        {
            "xccl_emu.check.check": "check as check_protocol",
            "xccl_emu.check.verdict": "Verdict, Violation",
            "xccl_emu.base.errors": "ConfigError, DeadlockError, RunError, XcclEmuError",
            "xccl_emu.lang.kernel": "kernel",
            "xccl_emu.machine.pod": "Buffer, Pod",
            "xccl_emu.machine.spec": "CLOUDMATRIX384, PodSpec, small_pod",
            "xccl_emu.protocol.bench": "Bench",
            "xccl_emu.protocol.case": "Case",
            "xccl_emu.protocol.registry": "make",
            "xccl_emu.protocols.a2e.session": "A2E, A2EConfig",
            "xccl_emu.protocols.collectives.session": "Collectives",
            "xccl_emu.protocols.experts.config": "EpConfig",
            "xccl_emu.protocols.fused.session": "FusedConfig, FusedExpertParallel",
            "xccl_emu.protocols.mixserve.session": "MixServe",
            "xccl_emu.protocols.pull.session": "ExpertParallel",
            "xccl_emu.protocols.sendrecv.session": "SendRecv",
            "xccl_emu.protocols.serving.kv.calls": "KvTransfer",
            "xccl_emu.protocols.serving.memory_pool.session": "MemoryPool",
            "xccl_emu.testing.witnesses": "replay, witness_text",
            "xccl_emu.timing.run": "VirtualTime",
        },
    )

__all__ = [
    "A2E",
    "CLOUDMATRIX384",
    "A2EConfig",
    "Bench",
    "Buffer",
    "Case",
    "Collectives",
    "ConfigError",
    "DeadlockError",
    "EpConfig",
    "ExpertParallel",
    "FusedConfig",
    "FusedExpertParallel",
    "KvTransfer",
    "MemoryPool",
    "MixServe",
    "Pod",
    "PodSpec",
    "RunError",
    "SendRecv",
    "Verdict",
    "Violation",
    "VirtualTime",
    "XcclEmuError",
    "check_protocol",
    "kernel",
    "make",
    "replay",
    "small_pod",
    "witness_text",
]
