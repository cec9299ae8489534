"""What a paper says of a protocol, step by step, and where the kernels deviate: ``paper.toml`` next to its case."""

import functools
import tomllib
from dataclasses import dataclass
from importlib.resources import files
from typing import Any


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
class PaperStep:
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
    kernels: tuple[str, ...]
    """Modules below `xccl_emu.kernels` whose requests, with those in subroutines that they call, have these steps."""
    steps: tuple[PaperStep, ...]

    def __str__(self) -> str:
        return f"{self.title} ({self.where})"


def read_papers(folder: str, *titles: str) -> tuple[Paper, ...]:
    """Return the papers of ``paper.toml`` in a package of `protocols`, or the ones with these titles, in this order."""
    found = _in_folder(folder)
    return tuple(found[title] for title in titles or found)


@functools.cache
def _in_folder(folder: str) -> dict[str, Paper]:
    text = files(f"xccl_emu.protocols.{folder}").joinpath("paper.toml").read_text("utf-8")
    return {each["title"]: _paper(each) for each in tomllib.loads(text)["paper"]}


def _paper(given: dict[str, Any]) -> Paper:
    steps = []
    for step in given["step"]:
        deviations = tuple(Deviation(**each) for each in step.pop("deviation", ()))
        steps.append(PaperStep(**step, deviations=deviations))
    return Paper(given["title"], given["where"], tuple(given["kernels"]), tuple(steps))
