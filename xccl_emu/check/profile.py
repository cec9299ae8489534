"""What makes the states of a search: by which requests they are first reached, and in what a core keeps they differ."""

from dataclasses import dataclass
from typing import Annotated

from xccl_emu.base import words as w
from xccl_emu.check.trial import Trial

STATES = 10_000
"""How many states are looked at, if nothing is said."""


@dataclass(frozen=True)
class ProfiledSite(w.Printed):
    """What a request has to do with the states of a search."""

    FIRST = ("kernel", "request", "states", "alike", "kept")
    kernel: Annotated[str, "the kernel that makes it"]
    request: Annotated[str, "operation, file and line, and its name"]
    states: Annotated[int, "first reached by an action of it"]
    alike: Annotated[int, "with a core at it, and like another one but for what the core keeps"]
    kept: Annotated[tuple[str, ...], "words in which these differ"]


def profile(trial: Trial, max_states: int = STATES) -> tuple[ProfiledSite, ...]:
    """The requests that make states, those that make most first; of states beyond ``max_states`` nothing is said.

    Raises CapacityError as a search does.
    """
    from xccl_emu.check.search.profiled import rows

    return tuple(rows(trial, max_states))
