"""Who owns which part of the metadata and managed areas: two owners of a byte would give wrong bits in silence."""

import weakref
from dataclasses import dataclass

from xccl_emu.base.errors import ConfigError


@dataclass(frozen=True)
class ClaimedRegion:
    """Bytes of the metadata and of the managed data area, the same on a range of dies; ends are exclusive."""

    dies: tuple[int, int]
    meta: tuple[int, int]
    managed: tuple[int, int]

    def overlaps(self, other: "ClaimedRegion") -> bool:
        """Do the two share a byte on some die?"""
        areas = ((self.meta, other.meta), (self.managed, other.managed))
        return _meet(self.dies, other.dies) and any(_meet(mine, theirs) for mine, theirs in areas)


def _meet(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return max(one[0], other[0]) < min(one[1], other[1])


class Claims:
    """The book of a pod.  Who comes later takes over, so that a communicator may simply be made again."""

    def __init__(self) -> None:
        self._held: list[tuple[weakref.ref[object], ClaimedRegion]] = []

    def take(self, owner: object, region: ClaimedRegion) -> None:
        """Claim a region; earlier claims of a part of it end."""
        self._held = [(who, held) for who, held in self._held if not held.overlaps(region)]
        self._held.append((weakref.ref(owner), region))

    def check(self, owner: object) -> None:
        """Raises ConfigError if a later owner has taken a part of this one's region."""
        if not any(who() is owner for who, _ in self._held):
            raise ConfigError(
                f"{type(owner).__name__}: a communicator made later has taken its part of the metadata or managed "
                "area; give each a managed_offset and a field_offset of its own"
            )
