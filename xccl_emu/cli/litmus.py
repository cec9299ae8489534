"""``xccl-emu litmus``: what small programs may come to on each machine, and which machines a results file refutes."""

from dataclasses import dataclass
from pathlib import Path

from xccl_emu.cli.app import App
from xccl_emu.cli.options import JSON, command_of, words
from xccl_emu.options import option


@dataclass(frozen=True)
class LitmusOptions:
    """Distinguish memory orders and readings of a barrier by litmus programs, on hardware by an operator in Ascend C.

    Without options: the programs, and what each may come to under each order, as a search of the operator finds it.
    With a results file of a machine (`program,outcome,count`): which orders and readings it refutes, and what to set.

    \b
      xccl-emu litmus SB MP CoWW MP_f_po
      xccl-emu litmus SB MP CoWW --emulate fifo > results.csv
      xccl-emu litmus --read results.csv

    W and R write and read by the scalar unit, C and P by copies; F is PipeBarrier<PIPE_ALL>, S is
    PipeBarrier<PIPE_MTE3>. What did not come in a run may still come: a results file refutes models, and proves none.
    docs/machine.md says how the operator is run on hardware. It needs a C++ compiler.

    Exit code: 0, or 1 if the results refute every model that there is.
    """

    read: Path | None = option(None, "Results of a machine, as CSV.")
    emulate: str = option("", "Print the results of an emulated machine of this order.", metavar="ORDER")
    barrier: str = option("visible", "How the emulated machine reads a barrier: visible or empty.")
    homes: str = option("one", "Where cells are: one (all with thread 0) or own (a die for each).")
    rounds: int = option(1000, "Rounds of each program on the emulated machine.", least=1, most=1_000_000)
    seed: int = option(0, "Of its random schedules.", least=0)


_PROGRAMS = words("programs", "PROGRAM", "Names of programs [default: all].")
app = App.of(command_of(LitmusOptions, "xccl_emu.cli.litmus_job", JSON, first=(_PROGRAMS,)))
