"""``xccl-emu fuzz``: sequences of calls of one protocol, drawn and judged."""

from dataclasses import dataclass, field
from pathlib import Path

from xccl_emu.cli.app import App
from xccl_emu.cli.cases import ANY_SIZE
from xccl_emu.cli.options import JSON, SET, WORDS, command_of
from xccl_emu.options import option


@dataclass(frozen=True)
class FuzzOptions:
    """Call a protocol again and again on one pod, with sizes that change, and judge what happens.

    Sequences are drawn from the sizes of the protocol: calls back to back on one communicator where it can make them,
    communicators one after the other or at the same time, ranks with nothing to do, a call replayed with its arguments
    frozen, hosts that launch apart, one fault. Each is judged on drawn schedules, and on every schedule if it is small.
    What is found is made short, calls first, then the schedule, and kept as a file that replays.

    Sizes of the protocol are options: --ranks 2. Those that are given are the same in all sequences.

    \b
      xccl-emu fuzz dispatch                       two hundred sequences
      xccl-emu fuzz sendrecv --path dma --seconds 60
      xccl-emu fuzz examples/prefix_sum/prefix_sum.py:PrefixSum --dies 2
      xccl-emu fuzz --replay witnesses/found.json  show it again
      xccl-emu fuzz dispatch --seconds 3600 --dask tcp://scheduler:8786

    Exit code: 0 nothing found, 1 a violation, 2 wrong usage, 3 a worker was killed, 130 Ctrl-C, 143 SIGTERM;
    more of them: xccl-emu --help.
    """

    protocol: str | None = None
    sizes: dict[str, int | str] = field(default_factory=dict)
    examples: int | None = option(None, "Sequences [default: 200, or as many as --seconds allow]", least=1)
    seconds: float | None = option(None, "Begin nothing more after so long; what is compiled first does not count.")
    seed: int = option(0, "Seed of sequences and schedules.", least=0)
    order: str = option("relaxed", "Memory order: sc, fifo, relaxed or unordered.")
    without: tuple[str, ...] = option((), "Switch a synchronization off; may be given again.", metavar="SYNC")
    fault: tuple[str, ...] = option(
        (), "What breaks in a sequence: stop, cut, stall, duplicate, corrupt, or one fault as in check; may be given"
        " again [default: what the protocol says it tolerates]", metavar="KIND",
    )  # fmt: skip
    schedules: int = option(120, "Schedules that are drawn of each sequence.", least=1)
    states: int = option(20000, "Most states of a search of every schedule of a sequence; 0 for none.", least=0)
    calls: int = option(6, "Most calls of a sequence.", least=1)
    workers: int | None = option(None, "Processes [default: one for each core]", least=1)
    dask: str | None = option(None, 'On the cluster of this Dask scheduler, or "local".', metavar="ADDRESS")
    replay: Path | None = option(None, "Show what a file that was kept shows, and draw nothing.")
    out: Path | None = option(None, "File to keep what is found in [default: named by the protocol]")


app = App.of(
    command_of(FuzzOptions, "xccl_emu.cli.fuzz_job", SET, JSON, first=(WORDS,)),
    no_args_is_help=True, context_settings=ANY_SIZE,
)  # fmt: skip
