"""``xccl-emu explain``: who waits for whom in a job that hangs, from a dump of the flag words of its ranks."""

from dataclasses import dataclass
from pathlib import Path

import typer

from xccl_emu.base.errors import ConfigError
from xccl_emu.base.options import one_of, option
from xccl_emu.cli import ending
from xccl_emu.cli.app import JSON, App, command_of, print_json, words


@dataclass(frozen=True)
class ExplainOptions:
    """Say who waits for whom in a job of yours that hangs, from the flag words of its ranks.

    FILE is an .npz, or one for each rank; nothing is run. In the layout deepep-ll (DeepEP's low-latency mode) it has:

    \b
      num_ranks, num_experts             whole numbers, the same in all files
      num_max_dispatch_tokens_per_rank   likewise, if you like: larger counts are wrong
      rank0/signals   int32 [2, num_experts], the two buffers of words as they lie
      rank0/calls     whole number, if you like: dispatches and combines that the host began
      rank0/mask      int32 [num_ranks], if you like: not 0 for ranks that are left out

    \b
      xccl-emu explain dump.npz
      xccl-emu explain flags-*.npz --layout deepep-ll --json

    The buffers are the first words of the RDMA buffer, each padded to 128 bytes. docs/records/doors.md has 20 lines of
    PyTorch that write such files while a job runs. A rank that has sent, and whose hook is not called yet, counts as
    one that waits.

    Exit code: 0 nobody waits, 1 somebody does or a word is wrong, 2 wrong usage or no such dump.
    """

    layout: str = option("deepep-ll", "How the words lie; there is deepep-ll.", metavar="LAYOUT")


def act(options: ExplainOptions, files: list[str] | None, as_json: bool) -> None:
    """Run the command; raises ``typer.Exit`` with its code."""
    from xccl_emu.doors.flags.layouts import LAYOUTS, read
    from xccl_emu.doors.flags.waits import lines, wait_graph

    layout = LAYOUTS[one_of("layout", options.layout, LAYOUTS)]
    if not files:
        raise ConfigError("FILE: must be a dump of flag words, or several")
    graph = wait_graph(options.layout, read([*map(Path, files)], layout))
    if as_json:
        print_json("explain", graph)
    else:
        typer.echo(f"{graph.layout}: {graph.n_ranks} ranks, {graph.n_experts} experts")
        for line in lines(graph):
            typer.echo(line)
    raise typer.Exit(0 if graph.is_at_rest() else ending.WRONG)


_FILES = words("files", "FILE", "Dumps of flag words.")
app = App.of(command_of(ExplainOptions, act, JSON, first=(_FILES,)), no_args_is_help=True)
