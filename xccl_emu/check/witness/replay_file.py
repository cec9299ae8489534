"""The replay file: a violation as a file that shows it again, on the same protocol in the same configuration."""

import base64
import binascii
import hashlib
import json
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from xccl_emu.base.errors import ReplayError
from xccl_emu.base.output import read_bytes, write_text
from xccl_emu.check.faults import is_fault
from xccl_emu.check.trial import Checkable, Trial
from xccl_emu.check.verdict import Violation
from xccl_emu.machine.state import ORDERS

FORMAT = "xccl_emu witness 1"
LINE = "xe1:"
"""What a witness in a line begins with."""
_LINE_BYTES_MAX = 1 << 26
_TYPES: dict[str, type | tuple[type, ...]] = {
    "protocol": str, "configuration": dict, "order": str, "without": list, "fault": str, "kind": str, "message": str,
    "fingerprint": str, "loop": int, "file": str, "actions": list,
}  # fmt: skip
_ACTION_END = 1 << 63


@dataclass(frozen=True, eq=False)
class Witness:
    """A violation, and all that is needed to show it again."""

    protocol: str
    configuration: Mapping[str, int | str]
    order: str
    without: tuple[str, ...]
    fault: str
    kind: str
    message: str
    fingerprint: str
    """Fingerprint of the launched pod (`Pod.fingerprint`)."""
    actions: NDArray[np.int64]
    """[n] int64, ``actor << 16 | choice``, or negative for what breaks (`faults.encode`)."""
    loop: int = 0
    """For a livelock: how many actions at the end lead back to the state before them."""
    file: str = ""
    """``FILE.py:NAME`` of a protocol that is in a file of its own, seen from where it was written if it is below."""

    @classmethod
    def of(
        cls, checkable: Checkable, violation: Violation, order: str, without: tuple[str, ...] = (), fault: str = ""
    ) -> Self:
        """The witness of a violation that a check has found."""
        trial = checkable.build(order, without)
        return cls(
            checkable.name, dict(checkable.configuration), order, tuple(without), fault, violation.kind,
            violation.message, trial.pod.fingerprint(), np.asarray(violation.actions, np.int64), violation.loop,
            getattr(checkable, "origin", "").removeprefix(f"{Path.cwd()}{os.sep}"),
        )  # fmt: skip

    def _fields(self) -> dict[str, Any]:
        fields = {name: getattr(self, name) for name in _TYPES}
        lists = {"without": list(self.without), "actions": self.actions.tolist()}
        return {"format": FORMAT, **fields, "configuration": dict(self.configuration), **lists}

    def to_line(self) -> str:
        """The same in a line without spaces, which `load` takes in place of a path: for a test, or an issue."""
        content = zlib.compress(json.dumps(self._fields(), separators=(",", ":")).encode(), 9)
        return LINE + base64.urlsafe_b64encode(content).decode().rstrip("=")

    def to_text(self) -> str:
        """Return the text of the file."""
        text = json.dumps(self._fields() | {"actions": []}, indent=2, ensure_ascii=False)
        actions = [*map(str, self.actions.tolist())]
        numbers = ",\n    ".join(", ".join(actions[i : i + 12]) for i in range(0, len(actions), 12))
        return text.replace('"actions": []', f'"actions": [\n    {numbers}\n  ]') + "\n"

    def save(self, path: str | Path) -> None:
        """Write the file; one that has the same content already stays as it is."""
        text = self.to_text()
        if not Path(path).is_file() or read_bytes(path) != text.encode():
            write_text(path, text)

    def file_name(self, of: str = "") -> str:
        """A name that no file of another violation has; it begins with whose it is, or with what was found."""
        found = f"{self.protocol}-{self.order}-{self.kind.replace(' ', '-')}"
        return f"{of or found}-{hashlib.sha256(self.to_text().encode()).hexdigest()[:12]}.json"

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a file, or a line; ReplayError if it is missing, damaged, or something else."""
        fields: dict[str, Any] = {"loop": 0, "file": ""} | _read(path)
        path = _named(path)
        for name, kind in _TYPES.items():
            if not isinstance(fields.get(name), kind):
                raise ReplayError(f"replay file {path}: {name}={fields.get(name)!r} is damaged")
        if fields["order"] not in ORDERS:
            raise ReplayError(f"replay file {path}: order={fields['order']!r} must be one of {', '.join(ORDERS)}")
        _check_items(path, fields)
        fields["without"] = tuple(fields["without"])
        fields["actions"] = np.array(fields["actions"], np.int64)
        return cls(**{name: fields[name] for name in _TYPES})

    def violation(self) -> Violation:
        """The violation as the file has it."""
        return Violation(self.kind, self.message, self.actions, "replay file", 0, self.loop)

    def trial(self, checkable: Checkable) -> Trial:
        """A fresh trial to replay the actions on; ReplayError, naming what differs, if they are of another."""
        if checkable.name != self.protocol:
            raise ReplayError(f"the replay file is of protocol {self.protocol!r}, not of {checkable.name!r}")
        here = dict(checkable.configuration)
        names = [*self.configuration, *(name for name in here if name not in self.configuration)]
        differ = [name for name in names if here.get(name) != self.configuration.get(name)]
        if differ:
            texts = [f"{name}={self.configuration.get(name)!r}, not {here.get(name)!r}" for name in differ]
            raise ReplayError(f"the replay file is of another configuration: {'; '.join(texts)}")
        trial = checkable.build(self.order, self.without)
        if trial.pod.fingerprint() != self.fingerprint:
            raise ReplayError(f"the replay file is of another version of {self.protocol}: its kernels or layout differ")
        self._check_actors(trial)
        return trial

    def _check_actors(self, trial: Trial) -> None:
        from xccl_emu.machine.device.layout import ACTORS_PER_CORE, CHOICE_BITS

        actors = trial.pod.spec.n_cores * ACTORS_PER_CORE + trial.pod.spec.n_homes
        wrong = [code < 0 and not is_fault(code, trial.pod.spec.n_homes) for code in self.actions.tolist()]
        beyond = np.flatnonzero((self.actions >> CHOICE_BITS >= actors) | np.array(wrong, bool))
        if beyond.size:
            number = int(beyond[0])
            raise ReplayError(f"the replay file is damaged: action {number + 1} is of no actor of the pod")


def _named(path: str | Path) -> str:
    """A file, or the beginning of a line, for messages."""
    return f"{str(path)[:24]}..." if str(path).startswith(LINE) else str(path)


def _read(path: str | Path) -> dict[str, Any]:
    """The fields of a file of this format."""
    name = _named(path)
    try:
        fields = json.loads(_content_of(str(path)) if str(path).startswith(LINE) else read_bytes(path))
    except FileNotFoundError as error:
        raise ReplayError(f"replay file {name}: does not exist") from error
    except OSError as error:
        raise ReplayError(f"replay file {name}: cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise ReplayError(f"replay file {name}: is damaged, it is not JSON ({error})") from error
    found = fields.get("format") if isinstance(fields, dict) else None
    if found != FORMAT:
        what = f"its format is {found!r}" if found is not None else "it names no format"
        raise ReplayError(f"replay file {name}: is not a witness of this version of xccl_emu ({what})")
    known: dict[str, Any] = fields
    return known


def _content_of(line: str) -> bytes:
    """Unpack what `Witness.to_line` has packed; ValueError if it is damaged."""
    try:
        text = line.removeprefix(LINE)
        packed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        return zlib.decompressobj().decompress(packed, _LINE_BYTES_MAX)
    except (binascii.Error, zlib.error) as error:
        raise ValueError(str(error)) from error


def _check_items(path: str | Path, fields: Mapping[str, Any]) -> None:
    """ReplayError for items of the lists, or values of the configuration, of a wrong type or out of range."""
    for name in fields["without"]:
        if not isinstance(name, str):
            raise ReplayError(f"replay file {path}: without={name!r} is damaged, it must be a name")
    for name, value in fields["configuration"].items():
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise ReplayError(f"replay file {path}: configuration {name}={value!r} is damaged")
    if type(fields["loop"]) is not int or not 0 <= fields["loop"] <= len(fields["actions"]):
        raise ReplayError(f"replay file {path}: loop={fields['loop']!r} is damaged, it is no number of its actions")
    for number, code in enumerate(fields["actions"]):
        if type(code) is not int or not (0 <= code < _ACTION_END or is_fault(code)):
            raise ReplayError(f"replay file {path}: action {number + 1} is damaged, it is {code!r}")
