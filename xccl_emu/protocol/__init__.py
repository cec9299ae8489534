"""What a protocol is to the commands: a case, which has sizes, builds itself, and says what must be there in the end.

A case is a frozen dataclass that derives from `Case`, or a function of a `Bench` and sizes (`protocol`).  `registry`
finds cases: by the names that ship, by entry points of other packages, and as ``file.py:Name``.
"""

from xccl_emu.protocol.bench import Bench, payload
from xccl_emu.protocol.case import Call, Case, Collective, Preset, Size, choice, protocol, size, switch, syncs, text
from xccl_emu.protocol.paper import read_papers
from xccl_emu.protocol.pod_run import PodRun
from xccl_emu.protocol.regions import Region, Regions, tight_pod

__all__ = [
    "Bench", "Call", "Case", "Collective", "PodRun", "Preset", "Region", "Regions", "Size", "choice", "payload",
    "protocol", "read_papers", "size", "switch", "syncs", "text", "tight_pod",
]  # fmt: skip
