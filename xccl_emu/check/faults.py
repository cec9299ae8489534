"""What may break in the hardware, and how a schedule says that it did.

    =====================  =========================================================================================
    ``stop:die1[@n]``      The cores of die 1 stop, at any moment or after n actions of theirs.  What they have in
                           flight may still become visible, or from some moment on no longer.
    ``cut:0-1[@n]``        From some moment on, or after n of them, no write from die 0 to die 1 becomes visible.
    ``stall:0-1``          Writes from die 0 to die 1 become visible only when nothing else can go on, or cores have
                           long done nothing but look.  Such schedules are legal: a protocol must pass them.
    ``duplicate:0-1[@n]``  One write from die 0 to die 1, any or the n-th, becomes visible a second time, later.
    ``corrupt:0-1[@n]``    One write from die 0 to die 1, any or the n-th, arrives with one bit flipped.
    ``lose:die1[:X][@n]``  At any moment, or after n actions of its cores, the bytes of die 1 are lost, or only its area
                           X, ``app``, ``meta`` or ``managed``, or what the protocol calls X (`Pod.may_lose`).
    ``revive:die1[@n]``    The cores of die 1 stop, and at any moment after that, or after n actions of theirs, all its
                           kernels begin again, with their arguments.  What they had queued, in flight, in data
                           buffers or in caches is lost; what is in the memory of the die is kept.
    =====================  =========================================================================================

A CPU socket is named as a die is: ``stop:cpu0``, ``cut:0-cpu1``.  Writes are counted, granule by granule, as they
become visible.

A protocol cannot go on without a die that stopped.  Its cores then wait without end, which the machine reports, or end
in an error that the protocol has declared (`Trial.stops`): both are right, and the verdict counts them apart.  (With
`Trial.may_wait` False waiting without end is a violation.)  What must hold is that bytes are right once
all their owners (`Expected.cores`) have returned.  A run under `stop` or `cut` takes actions away, among them those by
which writes become visible, and adds none, so it is the beginning of a run without a fault; a race, a read of what was
never written or an access outside of the areas is therefore a fault of the protocol and stays a violation.  After a
duplicate or a flipped bit that is not so: there a core may follow a wrong word anywhere.  From then on only bytes are
judged, and an access that the machine refuses is an error that is seen, and no violation.

Of bytes that are lost nobody can say what they are.  A plain read of them is a violation, a tentative one may be
dropped, and never validated.  The word that reports the loss, if there is one, is 1 at once.

That a die has stopped nobody sees before it begins again: until then it is as one that is slow.  So `revive` is one
action, at the second moment.  It is not enabled unless a core of the die runs; if one does, kernels that have
returned begin again too, and what they own is due when they have returned once more.

In a schedule what breaks is an action as any other.  Its code is negative, which no action of a core or die is
(`encode`): so a witness replays as it is, and need not name the fault.

`device/fault_actions.py` carries out such an action; `sampling/device/breaks.py` draws when it strikes,
`search/every_fault.py` searches every moment.
"""

import re
from dataclasses import dataclass

from xccl_emu.base.errors import ConfigError
from xccl_emu.check.device.fault_codes import ANY_TARGET, CORRUPT, CUT, DUPLICATE, LOSE, REVIVE, STOP
from xccl_emu.machine.device.layout import ATOMIC_BYTES
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import PodSpec

KINDS = ("stop", "cut", "stall", "duplicate", "corrupt", "lose", "revive")
OF_DIE = ("stop", "lose", "revive")
"""Kinds that are of one die; the others are of a link."""
_GRAMMAR = (
    "stop:dieN[@n], cut:A-B[@n], stall:A-B, duplicate:A-B[@n], corrupt:A-B[@n], lose:dieN[:X][@n] or revive:dieN[@n]"
)
_TEXT = re.compile(r"(?P<kind>[a-z]+):(?P<where>[^@]*)(?:@(?P<at>.*))?", re.DOTALL)
_HOME = r"((?:cpu)?\d{1,5})"
_KIND_BITS, _NUMBER_BITS = 4, 16


@dataclass(frozen=True)
class Fault:
    """What breaks, and where."""

    kind: str
    source: int
    """The die that stops, or whose writes are meant; CPUs have the numbers after the dies (`Pod.cpu`)."""
    target: int = ANY_TARGET
    """The die that is written to."""
    at: int | None = None
    """After how many actions of the die, or which write; None for any."""
    area: str = ""
    """What of the die is lost; all of it if empty."""

    def __str__(self) -> str:
        where = f"die{self.source}" if self.target == ANY_TARGET else f"{self.source}-{self.target}"
        where += f":{self.area}" if self.area else ""
        return f"{self.kind}:{where}" + ("" if self.at is None else f"@{self.at}")

    @property
    def number(self) -> int:
        """Its kind as the device knows it."""
        return 1 + KINDS.index(self.kind)

    def target_on(self, pod: Pod) -> int:
        """The die that is written to, or the number of what is lost; ConfigError for an area that the pod lacks."""
        return pod.loss_number(self.source, self.area) if self.kind in OF_DIE else self.target


def adds_nothing(fault: Fault, may_wait: bool) -> bool:
    """Return whether every run under a fault is one without it or begins one, so nothing else can go wrong."""
    return fault.kind == "stall" or (fault.kind in ("stop", "cut") and may_wait)


def parse(text: str, spec: PodSpec | None = None) -> Fault:
    """The fault that a text names, on a pod; ConfigError, saying what would be right, if it names none.

    Without a pod its form alone is looked at.
    """
    found = _TEXT.fullmatch(text.strip()) if isinstance(text, str) else None
    if found is None or found["kind"] not in KINDS:
        raise ConfigError("fault", text, f"must be {_GRAMMAR}")
    kind, where, at = found["kind"], found["where"], found["at"]
    where, _, area = where.partition(":") if kind == "lose" else (where, "", "")
    of_die = kind in OF_DIE
    dies = re.fullmatch(rf"(?:die(?!cpu)|(?=cpu)){_HOME}" if of_die else f"{_HOME}-{_HOME}", where)
    if dies is None:
        meant = f"a die, as in {kind}:die1" if of_die else f"two dies, as in {kind}:0-1"
        raise ConfigError("fault", text, f"{where!r} must be {meant}")
    numbers = [_number(text, home, spec) for home in dies.groups()]
    on_cpus = {home.startswith("cpu") for home in dies.groups()}
    if len(numbers) == 2 and numbers[0] == numbers[1] and len(on_cpus) == 1:
        raise ConfigError("fault", text, "must name two different dies")
    return Fault(kind, numbers[0], numbers[1] if numbers[1:] else ANY_TARGET, _moment(text, kind, at), area)


def _number(text: str, home: str, spec: PodSpec | None) -> int:
    """The number of a die, or of a CPU, which come after the dies."""
    number, is_cpu = int(home.removeprefix("cpu")), home.startswith("cpu")
    first, end = (0, 1 << _NUMBER_BITS) if spec is None else (spec.n_dies, spec.n_homes) if is_cpu else (0, spec.n_dies)
    if first + number >= end:
        which = f"{'cpu' if is_cpu else 'die'}{number}"
        raise ConfigError("fault", text, f"{which} is out of range 0..{end - first - 1}, or the pod has none")
    return first + number


def _moment(text: str, kind: str, at: str | None) -> int | None:
    """Parse the moment after the @: a count of actions, or the number of a write."""
    if at is None:
        return None
    if kind == "stall":
        raise ConfigError("fault", text, "a stalled link is so from the start, it takes no @n")
    least = 0 if kind in (*OF_DIE, "cut") else 1
    if not re.fullmatch(r"\d{1,9}", at) or int(at) < least:
        raise ConfigError("fault", text, f"after the @ must be a whole number, {least} to {10**9 - 1}")
    return int(at)


def check_fits(fault: Fault, spec: PodSpec, order: str) -> str:
    """Why a fault cannot be checked, or an empty text if it can."""
    if order == "sc" and fault.kind not in OF_DIE:
        return f"fault {fault.kind}: under sc a write is visible at once, so no link can hold it"
    if spec.scalar_cache and fault.kind != "revive":
        return f"fault {fault.kind}: not checked where scalar units have a cache (scalar_cache={spec.scalar_cache})"
    return ""


def encode(kind: int, die: int = 0, other: int = 0, bit: int = 0) -> int:
    """The code of an action: negative, the complement of kind, die, target die or place in flight, and bit."""
    return ~(kind | die << _KIND_BITS | other << _KIND_BITS + _NUMBER_BITS | bit << _KIND_BITS + 2 * _NUMBER_BITS)


def decode(code: int) -> tuple[int, int, int, int]:
    """Kind, die, target die or place in flight, and bit of a code."""
    word = ~int(code)
    mask = (1 << _NUMBER_BITS) - 1
    shifted = word >> _KIND_BITS
    return word & 15, shifted & mask, shifted >> _NUMBER_BITS & mask, shifted >> 2 * _NUMBER_BITS


def is_fault(code: int, n_homes: int | None = None) -> bool:
    """Return whether an action's code means a fault, on a die or CPU that exists."""
    if code >= 0:
        return False
    kind, die, other, bit = decode(code)
    fits = n_homes is None or (die < n_homes and (kind != CUT or other == ANY_TARGET or other < n_homes))
    return STOP <= kind <= REVIVE and bit < 8 * max(ATOMIC_BYTES) and fits


def words(code: int, pod: Pod) -> str:
    """Say what the action is, for reports."""
    kind, die, other, bit = decode(code)
    spec = pod.spec
    if kind == LOSE:
        return f"the bytes of {pod.loss_name(die, other)} are lost"
    if kind in (STOP, REVIVE):
        return f"{spec.home(die)} {'stops' if kind == STOP else 'had stopped, and begins again'}"
    if kind == CUT:
        target = "" if other == ANY_TARGET else f" to {spec.home(other)}"
        return f"from now on no write from {spec.home(die)}{target} becomes visible"
    if kind == DUPLICATE:
        return "visible, and a copy remains"
    return f"visible, with bit {bit % 8} of byte {bit // 8} flipped" if kind == CORRUPT else "visible a second time"
