"""What a case says to launch a kernel in Ascend C: its tiling struct by fields, and the cores of a die as blocks."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xccl_emu.base.errors import ConfigError, ToFillError
from xccl_emu.doors.ascendc import structs
from xccl_emu.doors.ascendc.kernel import KEPT, AscendKernel
from xccl_emu.lang.foreign.image import constant
from xccl_emu.machine.launch import Grant, Launch
from xccl_emu.machine.pod import Pod
from xccl_emu.protocol import Bench
from xccl_emu.protocol.streams import Streams

STOPS = {
    0xA500: "AllocTensor of a queue without a free buffer", 0xA501: "DeQue of an empty queue",
    0xA502: "more buffers of queues than there are events", 0xA503: "DataCopy of bytes that are no whole blocks of 32",
    0xA504: "a mask beyond the 256 bytes of a repeat, or more than 255 repeats",
    0xA505: "a reduction of elements that are not contiguous in a repeat",
    0xA507: "copies that keep the larger or smaller: not in xccl_emu's header",
    0xA509: "bytes that the scalar unit wrote are used before an event to that pipe has been waited for",
    0xA50A: "bytes that a vector instruction wrote are used by another one before a PipeBarrier<PIPE_V>",
    0xA50B: "more byte ranges wait for an event or a barrier than are kept: its hazards are not judged",
    0xA50C: "an assertion of the source does not hold",
    0xA50D: "CrossCoreSetFlag of a flag beyond 10, or before another one has been waited for",
    0xA50E: "CrossCoreWaitFlag of a flag that this core has not set: all vector cores set it, and then wait for it",
    0xA50F: "DataCopyPad pads with a value that ascend_kernel(paddings=...) does not list; its bits",
    0xA510: "DataCopyPad pads with more than 32 bytes",
    0xA506: "WholeReduceMax or Min with the place in front of the value, or alone",
}  # fmt: skip
"""What the header stops a run with, as `Bench.stop` takes it."""


@dataclass(frozen=True)
class Tiling:
    """A struct of the kernel's source, and what is in its fields: of a struct in it, a mapping again."""

    struct: str
    values: Mapping[str, Any] = field(default_factory=dict)

    def packed(self, kernel: AscendKernel) -> NDArray[np.uint8]:
        """The struct as the compiler lays it out, in whole words of 8 bytes.

        Raises ConfigError if neither the source nor a header has such a struct, or its fields are others, or a value is
        none of its type.
        """
        included = structs.with_included(kernel.file, kernel.text, kernel.build.include)
        text = included + "\n" + str(kernel.build.defines.get(structs.FROM_HOST, ""))
        one = np.zeros((), structs.dtype_of(text, self.struct, kernel.file.name))
        _fill(one, self.values, self.struct, kernel.file.name)
        raw = np.frombuffer(one.tobytes(), np.uint8)
        return np.pad(raw, (0, -raw.size % 8))


def _fill(into: NDArray[Any], values: Any, where: str, file: str) -> None:
    """Put values into a struct by its fields; raises ConfigError as `Tiling.packed` does."""
    kind = into.dtype
    given, wanted = set(values if isinstance(values, Mapping) else ()), set(kind.names or ())
    if given != wanted:
        raise ConfigError(
            f"{where} of {file}: fields missing: {sorted(wanted - given)}, unknown: {sorted(given - wanted)}"
        )
    for name, value in values.items():
        if kind[name].names:
            _fill(into[name], value, f"{where}.{name}", file)
            continue
        try:
            into[name] = value
        except (OverflowError, TypeError, ValueError) as error:
            raise ConfigError(f"{where}.{name}={value!r}: {error}") from error


def hccl_context(rank: int, windows_in: Sequence[int], windows_out: Sequence[int]) -> int:
    """Return the address of a context for `Hccl` of the header: who one is, and the windows of each rank.

    Raises ConfigError if the rank is none, or the windows are not as many.
    """
    if len(windows_in) != len(windows_out):
        raise ConfigError("windows_out", len(windows_out), f"must be {len(windows_in)}, as windows_in")
    if not 0 <= rank < len(windows_in):
        raise ConfigError("rank", rank, f"must be 0 to {len(windows_in) - 1}, a rank that has windows")
    return constant(np.array([rank, len(windows_in), *windows_in, *windows_out], np.int64).tobytes())


def _with_flags(pod: Pod, grant: Grant) -> Grant:
    is_meta = pod.spec.meta_start <= grant.start and grant.end <= pod.spec.managed_start
    return replace(grant, rights=grant.rights + "f") if is_meta and "r" in grant.rights else grant


def launch(
    bench: Bench, pod: Pod, kernel: AscendKernel, die: int, cores: Sequence[int],
    args: Mapping[str, int | Sequence[int]], grants: Sequence[Grant], tiling: Tiling | None = None,
    streams: Streams | None = None,
) -> Launch | None:  # fmt: skip
    """Launch a kernel on cores of a die, which are its blocks.

    Parameters
    ----------
    grants: those that lie in metadata areas are windows of flags, ``"rf"`` in place of ``"r"``.
    args: an address or a number for each parameter of the source; if there is a struct, not for the one whose name
        begins with ``tiling``.
    tiling: put into memory of the die, which all of them may read.
    streams: to launch it after what these cores run already there, on `Streams.put`; None is returned then.

    Raises ConfigError as `Pod.launch` and `Tiling.packed` do.
    """
    kernel = kernel.read(bench, pod.without)
    for code, meaning in STOPS.items():
        bench.stop(code, meaning)
    given, leave = dict(args), [_with_flags(pod, each) for each in grants]
    if tiling is not None:
        held = bench.filled(die, tiling.packed(kernel), "tiling")
        named = [each for each in kernel.params if each.lower().startswith("tiling")]
        given[min(named, key=len, default="tiling")] = held.address
        leave.append(pod.grant(held, "r"))
    if kernel.build.paddings:
        rows = [bits.to_bytes(nbytes, sys.byteorder) * (32 // nbytes) for nbytes, bits in kernel.build.paddings]
        held = bench.filled(die, np.frombuffer(b"".join(rows), np.uint8), "paddings")
        given["paddings"] = held.address
        leave.append(pod.grant(held, "r"))
    blocks: dict[str, int | Sequence[int]] = {KEPT[0]: list(range(len(cores))), KEPT[1]: len(cores)}
    blocks |= dict.fromkeys([each for each in kernel.params if each == "events" or each in kernel.ranges], 0)
    launched = pod.launch(kernel, die, cores, {**blocks, **given}, leave, after=streams)
    return launched if streams is None else None


def to_fill(what: str) -> Any:
    """Raise ToFillError: a hole of a case that `xccl-emu scaffold` wrote, with the name of what goes there."""
    raise ToFillError(f"to fill: {what}")
