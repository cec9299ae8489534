"""The gate of the line: what the arrays of a call must be, as rows, looked at before anything of them is copied.

A `Form` serves NumPy's arrays, by which the server looks (`SERVED`), and PyTorch's tensors, by which faces do
(`faces/assertions.py`).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from xccl_emu.base.errors import ConfigError

ANY = ("...",)
"""Any shape."""


class Row(NamedTuple):
    """What an array of a call must be."""

    name: str
    shape: tuple[str, ...]
    """Names of sizes, or whole numbers; the first array that has a name says how large it is."""
    dtypes: str
    """Names, any one of them; a name of `sizes` means what it says there, ``"*"`` any type."""
    optional: bool = False
    gaps: bool = False
    """Need it not be contiguous?"""


@dataclass(frozen=True)
class Form:
    """A call: its arrays, and what else must hold of their sizes, in Python."""

    rows: tuple[Row, ...]
    musts: tuple[str, ...] = ()
    """One that names an optional array which is not given says nothing."""

    def check(self, call: str, arrays: Mapping[str, Any], sizes: Mapping[str, Any]) -> dict[str, Any]:
        """Return ``sizes`` with those that the arrays say; ConfigError, by names of call and array, for anything else.

        arrays: by name, None where one is not given.
        """
        known = dict(sizes)
        for row in self.rows:
            array = arrays.get(row.name)
            if array is not None:
                _check_array(call, row, array, known)
            elif not row.optional:
                raise ConfigError(f"{call}: {row.name} is missing; it must be {_wanted(row, known)}")
        strange = arrays.keys() - {row.name for row in self.rows}
        if strange:
            raise ConfigError(f"{call}: {min(strange)}: there is no such array; there are {self.names()}")
        missing = {row.name for row in self.rows} - {name for name, array in arrays.items() if array is not None}
        for must in self.musts:
            said = dict.fromkeys(re.findall(r"[a-z_0-9]+", must))
            if not missing & said.keys() and not _holds(must, known):
                names = [name for name in said if name in known]
                here = ", ".join(f"{name}={known[name]}" for name in names if not callable(known[name]))
                raise ConfigError(f"{call}: {here}: must have {must}")
        return known

    def names(self) -> str:
        """Return the names of its arrays."""
        return ", ".join(row.name for row in self.rows) or "none"


def _check_array(call: str, row: Row, array: Any, known: dict[str, Any]) -> None:
    """Raises ConfigError unless an array is as its row says; keeps the sizes that it is the first to say."""
    shape, dtype = getattr(array, "shape", None), str(getattr(array, "dtype", "")).removeprefix("torch.")
    wrong = ""
    if shape is None or not dtype:
        wrong = f"{type(array).__name__} {array!r:.40}"
    elif not _fits(row, shape, known) or (row.dtypes != "*" and dtype not in _dtypes(row, known)):
        wrong = f"{list(shape)} {dtype}"
    elif str(getattr(array, "device", "cpu")) != "cpu":
        wrong = f"on device {array.device}"
    elif not row.gaps and not _contiguous(array):
        wrong = f"{list(shape)} {dtype} that is not contiguous"
    if wrong:
        raise ConfigError(f"{call}: {row.name} is {wrong}; it must be {_wanted(row, known)}")


def _holds(must: str, known: dict[str, Any]) -> bool:
    """Say whether a condition holds; none does of what cannot be compared or counted."""
    try:
        return bool(eval(must, {}, known))  # a constant of these tables
    except (TypeError, ValueError, ArithmeticError, RuntimeError):  # the last one is PyTorch's
        return False


def _contiguous(array: Any) -> bool:
    return bool(array.is_contiguous() if hasattr(array, "is_contiguous") else array.flags.c_contiguous)


def _fits(row: Row, shape: Sequence[int], known: dict[str, Any]) -> bool:
    if row.shape == ANY:
        return True
    return len(shape) == len(row.shape) and all(
        size == (int(name) if name.isdecimal() else known.setdefault(name, size))
        for name, size in zip(row.shape, shape, strict=True)
    )


def _dtypes(row: Row, known: Mapping[str, Any]) -> list[str]:
    return [str(known.get(name, name)) for name in row.dtypes.split()]


def _wanted(row: Row, known: Mapping[str, Any]) -> str:
    sizes = ", ".join(f"{name}={known[name]}" if name in known else name for name in row.shape)
    types = "of any type" if row.dtypes == "*" else " or ".join(_dtypes(row, known))
    return f"[{sizes}] {types}{'' if row.gaps else ', contiguous'}"


_X = Row("x", ("tokens", "columns"), "token_dtype", gaps=True)
_Y = Row("y", ("rows", "hidden"), "row_dtype", gaps=True)
_TOPK = Row("topk", ("tokens", "top_k"), "int32", gaps=True)
_WEIGHTS = Row("weights", ("tokens", "top_k"), "float32", gaps=True)
_ROW_WEIGHTS = Row("weights", ("rows", "top_k"), "float32", optional=True, gaps=True)
_BIAS = Row("bias", ("biases", "tokens", "hidden"), "row_dtype", optional=True, gaps=True)
_STATS = Row("stats", ("local_experts",), "int32", optional=True, gaps=True)
SERVED = {
    "dispatch": Form((_X, _TOPK, _STATS)), "dispatch_send": Form((_X, _TOPK)), "dispatch_recv": Form((_STATS,)),
    "combine": Form((_Y, _TOPK, _WEIGHTS)), "combine_send": Form((_Y, _TOPK, _WEIGHTS)), "combine_recv": Form(()),
    "dispatch_rows": Form((_X, _TOPK, _WEIGHTS)), "combine_rows": Form((_Y, _ROW_WEIGHTS, _BIAS)),
    "dispatch_fused": Form((_X, _TOPK)), "combine_fused": Form((_Y, _TOPK, _WEIGHTS)), "clean": Form(()),
    "agree": Form((Row("numbers", ("n",), "int64"),)), "barrier": Form(()),
    "gather": Form((Row("x", ("nbytes",), "uint8"),)),
    "transfer": Form((Row("x", ("nbytes",), "uint8", optional=True),)),
}  # fmt: skip
"""By call the arrays of the line; ``rows`` is how many the rank received, ``columns`` elements or bytes of a token."""

_SAID: dict[str, tuple[type, str]] = {
    "call": (str, "a name"), "shape": (dict, "sizes by name"), "handle": (int, "the number of a dispatch"),
    "waits": (bool, "true or false"), "replicas": (int, "a whole number"), "dtype": (str, "a name"),
    "masked": (list, "numbers of ranks"),
}  # fmt: skip
"""What a call says, and what that must be."""
BEGIN = ("dispatch", "dispatch_send", "dispatch_rows", "dispatch_fused", "gather", "transfer")
BARE = ("clean", "agree", "barrier")
"""Calls that say a shape, and those that say nothing; all others say the handle of one that said a shape."""


def check_said(message: Mapping[str, Any]) -> str:
    """The name of the call that a message makes; ConfigError for one that is no call, or says what it must not."""
    call = message.get("call")
    if not isinstance(call, str) or call not in SERVED:
        raise ConfigError("call", call, f"must be one of {', '.join(SERVED)}")
    for name, value in message.items():
        if name not in _SAID:
            raise ConfigError(f"{call}: {name}={value!r:.40}: a call has {', '.join(_SAID)}")
        kind, what = _SAID[name]
        if type(value) is not kind or (isinstance(value, list) and any(type(each) is not int for each in value)):
            raise ConfigError(f"{call}: {name}={value!r:.40}: must be {what}")
    needed = "shape" if call in BEGIN else "handle"
    if needed not in message and call not in BARE:
        raise ConfigError(f"{call}: {needed} is missing")
    return call
