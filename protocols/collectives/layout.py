"""Where the inboxes and flags of collectives are, and what each core has of them."""

from typing import Any

from xccl_emu.kernels.collectives.slices import FIELD_BYTES, SLOTS, Barrier, Peers, Readers, Ring
from xccl_emu.machine.launch import Address
from xccl_emu.machine.pod import Pod
from xccl_emu.protocol import Region, Regions

Given = tuple[Any, ...]
"""Parameters of a core's kernel, record by record."""


class ExchangeLayout:
    """Layout of ``cores`` cores on each of ``ranks`` dies: a slot is ``blocks`` blocks of ``room`` bytes, in whole
    granules."""

    slots: int
    """Slots of a core."""
    fields: int

    def __init__(self, regions: Regions, ranks: int, cores: int, room: int, blocks: int = 1, level: str = "") -> None:
        self.ranks, self.cores, self.room = ranks, cores, room
        self.field = regions.meta(f"{level}field", FIELD_BYTES, cores * self.fields_of(ranks))
        if slots := self.slots_of(ranks):
            self.inbox = regions.managed(f"{level}inbox", blocks * room, cores * slots)

    @classmethod
    def slots_of(cls, ranks: int) -> int:
        """Slots of each core: for each rank, twice, by turns."""
        return 2 * ranks

    @classmethod
    def fields_of(cls, ranks: int) -> int:
        """Fields of each core: one for each rank."""
        return ranks

    def given(self, pod: Pod, me: int, core: int, scatter: int, reduce: int, gather: int) -> Given:
        """Return the parameters of an exchange of all with all."""
        return self.given_among(range(self.ranks), pod, me, core, scatter, reduce, gather)

    def given_among(self, dies: range, pod: Pod, me: int, core: int, scatter: int, reduce: int, gather: int) -> Given:
        """Return the parameters of an exchange of die ``me`` with the others of ``dies``."""
        first, pitch = dies.start, dies.step * pod.spec.die_bytes
        places = self._at(self.inbox, first, core), self._at(self.field, first, core), pitch
        return (Peers(dies.index(me), self.ranks, *places, self.inbox.step, scatter, reduce, gather),)

    def _at(self, region: Region, die: int, core: int, i: int = 0, of: int = 1) -> Address:
        """Address of what a core has of a region, or of one of so many parts of it."""
        each = region.count // self.cores // of
        first = (core * of + i) * each
        return region.at(die, first).within(range(first, first + each))


class TwoLevels(ExchangeLayout):
    """An exchange in each group of ``group`` consecutive ranks, and among the ranks of one place in their groups."""

    each: type[ExchangeLayout] = ExchangeLayout
    """The layout of a level."""

    def __init__(self, regions: Regions, ranks: int, cores: int, room: int, group: int) -> None:
        groups = ranks // group
        self.inner = self.each(regions, group, cores, room, groups, level="inner ")
        self.outer = self.each(regions, groups, cores, room, level="outer ")

    def given(self, pod: Pod, me: int, core: int, scatter: int, reduce: int, gather: int) -> Given:
        """Return the parameters of both levels."""
        group, groups = self.inner.ranks, self.outer.ranks
        first = me // group * group
        near, far = range(first, first + group), range(me % group, group * groups, group)
        what = pod, me, core, scatter, reduce, gather
        return self.inner.given_among(near, *what) + self.outer.given_among(far, *what)


class ReadLayout(ExchangeLayout):
    """Fields alone: what there is to read, and what has been read."""

    @classmethod
    def slots_of(cls, ranks: int) -> int:
        """Return 0: it has no slots."""
        return 0

    @classmethod
    def fields_of(cls, ranks: int) -> int:
        """Both fields of each rank."""
        return 2 * ranks

    def given_among(self, dies: range, pod: Pod, me: int, core: int, scatter: int, reduce: int, gather: int) -> Given:
        """Return the parameters of a die that reads the others of ``dies``."""
        there, read = (self._at(self.field, dies.start, core, i, of=2) for i in range(2))
        return (Readers(dies.index(me), self.ranks, there, read, dies.step * pod.spec.die_bytes),)


class ReadLevels(TwoLevels):
    """Two levels of ranks that read each other."""

    each = ReadLayout


class ByCoresLayout(ReadLayout):
    """The same for ranks whose ``n`` cores have fields together."""

    def __init__(self, regions: Regions, ranks: int, n: int, room: int, blocks: int = 1) -> None:
        super().__init__(regions, ranks, 1, room)
        self._n = n

    def given_among(self, dies: range, pod: Pod, me: int, core: int, scatter: int, reduce: int, gather: int) -> Given:
        """Return that, which of how many cores it is, and the bytes of a half of its data buffer."""
        return (*super().given_among(dies, pod, me, 0, scatter, reduce, gather), core, self._n, self.room)


class NeighbourLayout(ExchangeLayout):
    """Each rank writes to the right one alone, and acknowledges to the left one."""

    @classmethod
    def slots_of(cls, ranks: int) -> int:
        """Slots that are filled in turn."""
        return SLOTS

    @classmethod
    def fields_of(cls, ranks: int) -> int:
        """Return the number of fields: for what came from the left, and what was read on the right."""
        return 2

    def given(self, pod: Pod, me: int, core: int, scatter: int, reduce: int, gather: int) -> Given:
        """Return the parameters of a ring."""
        left, right = (me - 1) % self.ranks, (me + 1) % self.ranks
        tail, ack, right_tail, left_ack = (
            self._at(self.field, die, core, i, of=2) for die, i in ((me, 0), (me, 1), (right, 0), (left, 1))
        )
        inboxes = self._at(self.inbox, me, core), tail, ack, self._at(self.inbox, right, core), right_tail, left_ack
        return (Ring(me, self.ranks, *inboxes, self.inbox.step, self.room, reduce, gather),)


class BarrierLayout(ExchangeLayout):
    """A field for each step of a barrier."""

    @classmethod
    def fields_of(cls, ranks: int) -> int:
        """Steps that it takes to double 1 until it is no less than the ranks."""
        return (ranks - 1).bit_length()

    def given(self, pod: Pod, me: int, core: int, scatter: int, reduce: int, gather: int) -> Given:
        """Return the parameters of a barrier between what all write and what all read."""
        places = self._at(self.field, 0, core), self._at(self.inbox, 0, core), pod.spec.die_bytes
        return (Barrier(me, self.ranks, *places, self.room),)


class SenseLayout(BarrierLayout):
    """A field for the sense, and one in which ranks count themselves."""

    @classmethod
    def fields_of(cls, ranks: int) -> int:
        """Both, on each rank."""
        return 2
