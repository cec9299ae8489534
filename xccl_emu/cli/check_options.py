"""What may be chosen of ``xccl-emu check``."""

from dataclasses import dataclass, field
from pathlib import Path

from xccl_emu.base.options import Spread, option


@dataclass(frozen=True)
class CheckOptions(Spread):
    """Check a protocol on a small pod under every schedule and every order in which writes become visible.

    The answer is one of: verified (every schedule was covered), no violation found (by a number of drawn schedules),
    violation (with the run that shows it as a table, and as a file that replays), unfinished, unsupported.

    Sizes of the protocol are options: --ranks 3 --tokens 2,0. xccl-emu list PROTOCOL shows them, with their ranges.

    \b
      xccl-emu list sendrecv                                  sizes, names to cut
      xccl-emu check sendrecv                                 4 slots, 8 chunks
      xccl-emu check sendrecv --slots 2 --chunks 5 --cores 2
      xccl-emu check sendrecv --without "data before tail"    what is that for?
      xccl-emu check sendrecv --without "tail in" --on native do threads fail?
      xccl-emu check --replay witnesses/found.json            show it again
      xccl-emu check sendrecv --slots 1 --chunks 1 --certify  brute force too
      xccl-emu check dispatch --each-sync                     which are needed?
      xccl-emu check dispatch --profile                       what makes states?
      xccl-emu check sendrecv --cores 4 --each-sync --price   what do they cost?
      xccl-emu check sendrecv --scalar-cache 8 --each-sync    which dcci are?
      xccl-emu check ring.py:Ring --barrier visible           one reading alone
      xccl-emu check ring.py:Ring --owners drained            late bytes are right
      xccl-emu check moe --invariant batch --experts 2 --top-k 3
      xccl-emu check all-reduce-one-shot --rank 1:cores=2     one rank differs
      xccl-emu check sendrecv --fault stop:die1               a die stops
      xccl-emu check sendrecv --fault stop:die1 --policy exhaustive
      xccl-emu check fused --double-buffered 0                one buffer for both
      xccl-emu check examples/prefix_sum/prefix_sum.py:PrefixSum --dies 2
      xccl-emu check moe --ranks 8 --tokens 4 --policy portfolio --seconds 60

    Exit code: 0 verified or no violation found, 1 violation, 2 wrong usage, 3 unfinished or unsupported, 4 verified and
    contradicted by a second opinion; more of them: xccl-emu --help.
    """

    protocol: str | None = None
    sizes: dict[str, int | str] = field(default_factory=dict)
    order: str | None = option(None, "Memory order: sc, fifo, relaxed or unordered [default: relaxed]")
    policy: str | None = option(
        None,
        "exhaustive, portfolio, random, pct, weights, eager, late, lifo or skew [default: exhaustive, and where that"
        " meets a limit the portfolio of most others after it; with --fault portfolio]",
    )
    without: tuple[str, ...] = option((), "Switch a synchronization off; may be given again.", metavar="SYNC")
    on: str = option(
        "",
        "Run it on real memory too: by threads of this computer (native) or on a GPU (cuda); what that showed is put"
        " next to the verdict.",
        metavar="MACHINE",
    )
    runs: int | None = option(None, "How often, with --on, as far as --seconds last [default: 200]", least=1)
    each_sync: bool = option(False, "Switch off each synchronization by itself: which ones are needed?")
    price: bool = option(
        False, "Say what each costs in virtual time too, with --each-sync; with --weakest, what asking for more does."
    )
    weakest: bool = option(
        False, "Weaken each request and quiet by itself: which order does it need, and which quiet could be a fence?"
    )
    profile: bool = option(
        False, "Which requests make the states, and in what a core keeps they differ: of the first 10,000, or --states."
    )
    invariant: str = option(
        "",
        "Check that outputs do not depend on the batch (`batch`) or on the rank (`ranks`).",
    )
    rank: str = option("", "Let the rank on die N call with another size, such as 1:tokens=3.", metavar="N:SIZE=VALUE")
    fault: str = option(
        "",
        "What breaks, at a drawn moment or after n: stop:die1[@n], cut:0-1[@n], stall:0-1, duplicate:0-1[@n],"
        " corrupt:0-1[@n], lose:die1[:X][@n], revive:die1[@n]; schedules are drawn then, or with --policy exhaustive"
        " all covered.",
    )
    schedules: int | None = option(None, "Most schedules that are drawn.", least=1)
    seconds: float | None = option(None, "Most seconds of each check, compiling not counted [default: 75]")
    states: int | None = option(None, "Most states that are searched.", least=1)
    memory: str = option(
        "",
        "Most memory for what a search keeps of states, such as 500M or 4G; each of --workers may take as much"
        " [default: half of what is free, divided among them]",
    )
    seed: int = option(0, "Seed of drawn schedules.", least=0)
    breadth_first: bool = option(False, "Search for a violation with the fewest transitions.")
    advice_seconds: float | None = option(
        None,
        "Seconds for which each answer of --each-sync and --weakest is judged again by brute force and drawn schedules;"
        " 0 for not at all [default: 2]",
    )
    confirm_seconds: float | None = option(
        None,
        "Seconds for which second opinions are asked on what is verified: searches that reduce less, and brute force; 0"
        " for none [default: as long as the search took, and 2 more]",
    )
    certify: bool = option(
        False, "Then ask the same by brute force and by drawn schedules, which share nothing with the search."
    )
    certify_seconds: float | None = option(None, "Seconds of each such certificate, with --certify [default: 30]")
    replay: Path | None = option(
        None, "Show the violation of a replay file again, or of a line that begins with xe1:, and search nothing."
    )
    out: Path | None = option(None, "Replay file to write [default: in witnesses/, named by what was found]")
    chart: Path | None = option(None, "Write the violation as a Mermaid sequence chart too.")
    trace: Path | None = option(None, "Write it as a trace for Perfetto (ui.perfetto.dev) too.")
    svg: Path | None = option(None, "Draw it to a file too.")
    html: Path | None = option(None, "Write it as a page of HTML too, to be gone through step by step.")
    sarif: Path | None = option(None, "Write what was found as SARIF, for a review's annotations; also if it is right.")
    plot: Path | None = option(None, "Draw prices as bars to a PNG, SVG or PDF file, with --price.")
