"""Schedules: the actions of a run as an array, to save, load and replay."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from xccl_emu.base.errors import ReplayError
from xccl_emu.machine.device.layout import CHOICE_ALL, CHOICE_BITS

_FORMAT = "xccl_emu schedule 1"


@dataclass(frozen=True, eq=False)
class Schedule:
    """A recorded run: what each action was, and what it was recorded on."""

    actions: NDArray[np.int64]
    """[n] int64, ``actor << 16 | choice``."""
    fingerprint: str
    """Identifies the pod, the memory order, what is switched off and the launches: a replay must match it."""

    def __len__(self) -> int:
        return len(self.actions)

    def pairs(self) -> list[tuple[int, int]]:
        """(actor, choice) of each action."""
        return [(int(a) >> CHOICE_BITS, int(a) & CHOICE_ALL) for a in self.actions]

    def save(self, path: str | Path) -> None:
        """Write to a file (NumPy's npz)."""
        header = json.dumps({"format": _FORMAT, "fingerprint": self.fingerprint})
        with open(path, "wb") as file:
            np.savez_compressed(file, header=np.array(header), actions=self.actions)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read from a file; ReplayError if it is damaged or something else."""
        try:
            # opened here, because np.load leaves a file open that it cannot read
            with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
                header = json.loads(str(file["header"]))
                actions = file["actions"]
        except FileNotFoundError as error:
            raise ReplayError(f"schedule file {path}: does not exist") from error
        except Exception as error:  # a damaged zip can raise nearly anything
            raise ReplayError(f"schedule file {path}: cannot be read ({error})") from error
        good = isinstance(header, dict) and header.get("format") == _FORMAT
        if not good or actions.dtype != np.int64 or actions.ndim != 1:
            raise ReplayError(f"schedule file {path}: is not a schedule of this version of xccl_emu")
        return cls(actions, str(header.get("fingerprint")))
