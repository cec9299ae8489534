"""Names for ranges of a pod's memory, so that reports can say ``die1.meta.tail[0→1]+0x10``."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator


class Labels:
    """Named ranges of global addresses; of several that hold an address, the one that begins last names it."""

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int, str]] = []
        self._longest = 0

    def add(self, ranges: Iterable[tuple[str, int, int]]) -> None:
        """Add ranges, each as name, first address, bytes; one that is there already is not added again."""
        added = {(address, address + nbytes, name) for name, address, nbytes in ranges}
        self._ranges = sorted(added.union(self._ranges))
        self._longest = max((end - start for start, end, _ in self._ranges), default=0)

    def ranges(self) -> Iterator[tuple[int, int, str]]:
        """Iterate over all of them: first address, the address after the last, name."""
        return iter(self._ranges)

    def name(self, address: int) -> str:
        """The name of the byte at an address with its offset; empty if no range holds it."""
        for i in range(bisect_right(self._ranges, (address, 1 << 62, "")) - 1, -1, -1):
            start, end, name = self._ranges[i]
            if address < end:
                return name + (f"+{address - start:#x}" if address > start else "")
            if start + self._longest <= address:
                break
        return ""
