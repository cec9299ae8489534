"""``xccl-emu sizes``: how large the buffers of a protocol are, area by area."""

from dataclasses import dataclass, field

from xccl_emu.cli.app import App
from xccl_emu.cli.cases import ANY_SIZE
from xccl_emu.cli.options import JSON, SET, WORDS, command_of


@dataclass(frozen=True)
class SizesOptions:
    """Print what buffers a protocol takes on each die, area by area, and what published libraries reserve for it.

    The areas of a die are app data (the caller's tensors), metadata (flags and counts) and managed data (what peers
    write into); a core has a data buffer. Of dies that differ the largest is shown. Nothing is run; data are drawn as
    for a run, so large ones take a while.

    \b
      xccl-emu sizes sendrecv --slots 8 --granules 2048
      xccl-emu sizes deepep-ll --ranks 8 --granules 224 --tokens 128
      xccl-emu sizes fused --ranks 16 --granules 224 --tokens 128 --json
      xccl-emu sizes ring_all_gather.py:ring_all_gather --dies 8

    Exit code: 0, 2 wrong usage.
    """

    protocol: str = ""
    sizes: dict[str, int | str] = field(default_factory=dict)


app = App.of(
    command_of(SizesOptions, "xccl_emu.cli.sizes_job", SET, JSON, first=(WORDS,)),
    no_args_is_help=True, context_settings=ANY_SIZE,
)  # fmt: skip
