"""``xccl-emu trace``: a timed run as a picture for Perfetto."""

from dataclasses import dataclass, field
from pathlib import Path

from xccl_emu.cli.app import App
from xccl_emu.cli.cases import ANY_SIZE
from xccl_emu.cli.options import JSON, SET, WORDS, command_of
from xccl_emu.options import Modelled, option


@dataclass(frozen=True)
class TraceOptions(Modelled):
    """Run a protocol in virtual time, and write what every pipe did as a trace for Perfetto (ui.perfetto.dev).

    Each process is a die and each thread a pipe of a core: the scalar unit, mtu-in, vector, mtu-out, DMA. A slice is
    an action that took time, named "step 3: put, tail" by the step of the paper and the synchronization. On the
    scalar unit, "waits:" precedes what it waited for, and "issue" where it queues what a pipe then does. Click a
    slice to see its source line, its bytes, and what it reads or writes. An arrow leads from a write to who saw it:
    from a flag to the poll, from data to the transfer that read it. Counters show what each link carries.

    The sizes are small, as for `xccl-emu check`. Ask for more: sizes are options, and xccl-emu list PROTOCOL shows
    them. (--dies says what is shown; a protocol that has a size of that name takes it as --set dies=3.)

    \b
      xccl-emu trace sendrecv --slots 1 --chunks 2 --out t.json  the eight steps
      xccl-emu trace sendrecv --cores 4 --granules 256 --place nodes
      xccl-emu trace dispatch --ranks 8 --tokens 16 --granules 224 --dies 0,1
      xccl-emu trace fused --ranks 8 --cores 8 --tokens 16 --granules 224
      xccl-emu trace mixserve-dispatch --fabric atlas-800t-a2 --gantt 0
      xccl-emu trace a2e --tokens 8 --cores 2 --html a2e.html

    A page (--html) needs no Perfetto: pipes over time, the critical path in red, the actions one after the other, and
    the source of the one that is chosen.

    Exit code: 0, 1 if the run fails or bytes are wrong, 2 wrong usage.
    """

    protocol: str = ""
    sizes: dict[str, int | str] = field(default_factory=dict)
    out: Path = option(Path("trace.json"), "File to write; JSON, whatever it is called.")
    dies: str | None = option(None, 'Dies to show, as in "0,1" or "0-3,8" [default: all that take part]')
    place: str = option("packed", "Where the dies are: packed (die by die on the chips), chips or nodes (one on each).")
    gantt: int | None = option(None, "Die to draw a Gantt chart of: when it computes, and writes to others.", least=0)
    plot: Path | None = option(None, "Draw that chart to a PNG, SVG or PDF file too.")
    html: Path | None = option(None, "Write a page of HTML too, with the critical path, to be gone through by keys.")
    svg: Path | None = option(None, "Draw the run, with the critical path, to an SVG file too.")
    events: int = option(
        200_000, "Most slices and ends of arrows; what begins later is left out, and counted.", least=1
    )  # fmt: skip


app = App.of(
    command_of(TraceOptions, "xccl_emu.cli.trace_job", SET, JSON, first=(WORDS,)),
    no_args_is_help=True, context_settings=ANY_SIZE,
)  # fmt: skip
