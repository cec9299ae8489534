"""What a paper says of a protocol, step by step, and where the kernels deviate from it."""

from dataclasses import dataclass
from types import ModuleType


@dataclass(frozen=True)
class Deviation:
    """Something that a kernel does in another way than the paper's step, or that the paper says nothing of."""

    what: str
    why: str
    seen: str = ""
    """The request of this step in which it shows, by operation and synchronization, as in ``"quiet data before tail"``,
    or by a part of its line; "" if it shows in none.  Once no kernel has such a request under the step, what is said
    here needs another look."""


@dataclass(frozen=True)
class Step:
    """A step of the paper, in few words of our own."""

    number: int
    """The ``step=`` of requests in the kernels."""
    says: str
    deviations: tuple[Deviation, ...] = ()


@dataclass(frozen=True)
class Paper:
    """What a paper says of one protocol, and the kernels that are made from it."""

    title: str
    where: str
    """Paper and section."""
    kernels: tuple[ModuleType, ...]
    """Modules whose requests have these steps, those of subroutines that they call too."""
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        return f"{self.title} ({self.where})"
