"""Limits of what can be launched, each with its usual cause and its remedy, as messages and the how-to say them.

The limits of a search are in `check.search.limits`.
"""

from dataclasses import dataclass

from xccl_emu.machine.device import layout as ms


@dataclass(frozen=True)
class Limit:
    """A number that somebody may come to."""

    what: str
    """What there is more of; a sentence, or the end of one whose beginning says how many."""
    most: str
    """How many there may be, or the option that says so."""
    cause: str
    """Why somebody comes to it, most often."""
    remedy: str
    """What to change."""

    def said(self, where: str = "", most: int | None = None) -> str:
        """Say that it was met; ``where`` is the kernel or die, ``most`` the number if that is not the same for all."""
        number = self.most if most is None else f"{most}"
        at_most = f" (at most {number})" if number else ""
        return f"{where and where + ': '}{self.what}{at_most}. Most often {self.cause}; {self.remedy}"


KERNELS = Limit(
    "a run has more different kernels", f"{ms.MAX_KERNELS}", "arguments are built into kernels",
    "make them parameters of one kernel",
)  # fmt: skip
REQUESTS = Limit(
    "the kernel has more requests", f"{ms.AT_PLACE}", "subroutines are unrolled by the host",
    "let the kernel loop over them",
)  # fmt: skip
GRANTS = Limit(
    "a core has more grants", f"{ms.MAX_WINDOWS}", "each die is granted by itself",
    "one for any die, region.grant(None, ...), replaces many",
)  # fmt: skip
LOSSES = Limit(
    "more parts of memory may be lost", f"{ms.LOSSES_MOST}", "each buffer has a name of its own",
    "give one name to what is lost together",
)  # fmt: skip
LIMITS = (KERNELS, REQUESTS, GRANTS, LOSSES)
