"""``xccl-emu campaign``: many small programs at random, on which the judges of this package must agree."""

from dataclasses import dataclass
from pathlib import Path

from xccl_emu.cli.app import App
from xccl_emu.cli.options import JSON, command_of
from xccl_emu.options import option


@dataclass(frozen=True)
class CampaignOptions:
    """Judge random programs by search, brute force and sampling, and report disagreements.

    Each program runs on some cores that share a few words.  Three exhaustive searches, brute force as far as it comes,
    and sampled schedules under the monitor say what they think of it, under each memory order; of some that are
    verified also what a fault may do.  What one has verified no other may refute, and every violation must show when
    its actions are taken again.

    \b
      xccl-emu campaign                                a thousand programs
      xccl-emu campaign --programs 100000 --out found  an hour on two cores
      xccl-emu campaign --seed 7 --first 4711 --programs 1
      xccl-emu campaign --replay found/7-4711.json     is it still so?
      xccl-emu campaign --ends                         each choice, by its ends
      xccl-emu campaign --enumerate --programs 2048    two requests, all of them
      xccl-emu campaign --seconds 3600 --dask tcp://scheduler:8786

    Within a version a program depends on the seed and its number alone.  At the end each kind of contradiction is shown
    by a program that was made as small as possible, as text that `xccl_emu.campaign.programs.program` reads.

    With --ends only the full search is judged, in another way.  An end is what a run leaves in memory, a deadlock, or
    an error.  What the search takes without trying anything else must keep all ends that runs from there have, by brute
    force; what it tries must have all of them together.  So a mistake shows that changes no verdict.  With --enumerate
    this is asked of every program of two requests, then of all of two by one core and one by another.

    Exit code: 0 no contradictions, 1 some, 2 wrong usage, 3 a worker was killed, 130 Ctrl-C, 143 SIGTERM.
    """

    programs: int | None = option(None, "How many programs are judged [default: 1000, or all smallest]", least=1)
    seed: int = option(0, "Seed of the campaign.", least=0)
    first: int = option(0, "Number of the first program.", least=0)
    orders: str = option("sc,fifo,relaxed,unordered", "Memory orders, with commas between them.")
    workers: int | None = option(None, "Processes [default: one for each core]", least=1)
    dask: str | None = option(None, 'On the cluster of this Dask scheduler, or "local".', metavar="ADDRESS")
    out: Path | None = option(None, "Folder for programs on which judges contradict each other.", metavar="DIR")
    seconds: float | None = option(None, "Begin nothing more after so long.")
    shrink: float = option(60.0, "Seconds for making the smallest findings smaller.", least=0)
    replay: Path | None = option(None, "Judge a program that was kept again.")
    ends: bool = option(False, "Judge each choice of the full search by the ends that it must keep.")
    enumerate: bool = option(False, "Take the smallest programs, all of them in turn, and judge by --ends.")


app = App.of(command_of(CampaignOptions, "xccl_emu.cli.campaign_job", JSON))
