"""Where the inboxes and flags of collectives are, and what each core may touch of them."""

from typing import Any

from xccl_emu.kernels.collectives.slices import FIELD_BYTES, SLOTS, Barrier, Peers, Readers, Ring
from xccl_emu.machine.launch import Grant
from xccl_emu.machine.pod import Pod
from xccl_emu.protocol import Region, Regions

Given = tuple[tuple[Any, ...], list[Grant]]
"""Parameters of a core's kernel, record by record, and what it may touch."""


class ExchangeLayout:
    """Layout of ``cores`` cores on each of ``ranks`` dies: a slot is ``blocks`` blocks of ``room`` bytes, in whole
    granules."""

    slots: int
    """Slots of a core."""
    fields: int

    def __init__(self, regions: Regions, ranks: int, cores: int, room: int, blocks: int = 1, level: str = "") -> None:
        self.ranks, self.cores, self.room = ranks, cores, room
        self.field = regions.meta(f"{level}field", FIELD_BYTES, cores * self.fields_of(ranks))
        self._touched = [self.field]
        if slots := self.slots_of(ranks):
            self.inbox = regions.managed(f"{level}inbox", blocks * room, cores * slots)
            self._touched.insert(0, self.inbox)

    @classmethod
    def slots_of(cls, ranks: int) -> int:
        """Slots of each core: for each rank, twice, by turns."""
        return 2 * ranks

    @classmethod
    def fields_of(cls, ranks: int) -> int:
        """Fields of each core: one for each rank."""
        return ranks

    def given(self, pod: Pod, me: int, core: int, scatter: int, reduce: int, gather: int) -> Given:
        """Return the parameters and grants of an exchange of all with all."""
        return self.given_among(range(self.ranks), pod, me, core, scatter, reduce, gather)

    def given_among(self, dies: range, pod: Pod, me: int, core: int, scatter: int, reduce: int, gather: int) -> Given:
        """Return the parameters and grants of an exchange of die ``me`` with the others of ``dies``."""
        first, pitch = dies.start, dies.step * pod.spec.die_bytes
        places = self._at(self.inbox, first, core), self._at(self.field, first, core), pitch
        peers = Peers(dies.index(me), self.ranks, *places, self.inbox.step, scatter, reduce, gather)
        return (peers,), self._grants(core, me, None)

    def _at(self, region: Region, die: int, core: int, i: int = 0) -> int:
        return region.at(die, core * (region.count // self.cores) + i)

    def _part(self, region: Region, core: int, die: int | None, rights: str) -> Grant:
        """Leave to touch what a core has of a region, on one die or on any."""
        each = region.count // self.cores
        return region.grant(die, rights, core * each, each)

    def _grants(self, core: int, me: int, *to: int | None) -> list[Grant]:
        """Leave to read the own inbox and fields, and to write the others'."""
        leave = [(me, "r"), *((die, "w") for die in to)]
        return [self._part(region, core, *each) for region in self._touched for each in leave]


class TwoLevels(ExchangeLayout):
    """An exchange in each group of ``group`` consecutive ranks, and among the ranks of one place in their groups."""

    each: type[ExchangeLayout] = ExchangeLayout
    """The layout of a level."""

    def __init__(self, regions: Regions, ranks: int, cores: int, room: int, group: int) -> None:
        groups = ranks // group
        self.inner = self.each(regions, group, cores, room, groups, level="inner ")
        self.outer = self.each(regions, groups, cores, room, level="outer ")

    def given(self, pod: Pod, me: int, core: int, scatter: int, reduce: int, gather: int) -> Given:
        """Return the parameters and grants of both levels."""
        group, groups = self.inner.ranks, self.outer.ranks
        first = me // group * group
        near, far = range(first, first + group), range(me % group, group * groups, group)
        what = pod, me, core, scatter, reduce, gather
        inner, inner_grants = self.inner.given_among(near, *what)
        outer, outer_grants = self.outer.given_among(far, *what)
        return inner + outer, inner_grants + outer_grants


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
        """Return the parameters and grants of a die that reads the others of ``dies``."""
        there, read = (self._at(self.field, dies.start, core, i * self.ranks) for i in range(2))
        readers = Readers(dies.index(me), self.ranks, there, read, dies.step * pod.spec.die_bytes)
        return (readers,), self._grants(core, me, None)


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
        places, grants = super().given_among(dies, pod, me, 0, scatter, reduce, gather)
        return (*places, core, self._n, self.room), grants


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
        """Return the parameters and grants of a ring."""
        left, right = (me - 1) % self.ranks, (me + 1) % self.ranks
        tail, ack = (self._at(self.field, me, core, i) for i in range(2))
        ring = Ring(
            me, self.ranks, self._at(self.inbox, me, core), tail, ack, self._at(self.inbox, right, core),
            self._at(self.field, right, core), self._at(self.field, left, core, 1), self.inbox.step, self.room,
            reduce, gather,
        )  # fmt: skip
        return (ring,), self._grants(core, me, *{left, right})


class BarrierLayout(ExchangeLayout):
    """A field for each step of a barrier."""

    @classmethod
    def fields_of(cls, ranks: int) -> int:
        """Steps that it takes to double 1 until it is no less than the ranks."""
        return (ranks - 1).bit_length()

    def given(self, pod: Pod, me: int, core: int, scatter: int, reduce: int, gather: int) -> Given:
        """Return the parameters and grants of a barrier between what all write and what all read."""
        places = self._at(self.field, 0, core), self._at(self.inbox, 0, core), pod.spec.die_bytes
        return (Barrier(me, self.ranks, *places, self.room),), self._grants(core, me, None)


class SenseLayout(BarrierLayout):
    """A field for the sense, and one in which ranks count themselves."""

    @classmethod
    def fields_of(cls, ranks: int) -> int:
        """Both, on each rank."""
        return 2

    def _grants(self, core: int, me: int, *to: int | None) -> list[Grant]:
        """Ranks count with an atomic, which reads."""
        return [*super()._grants(core, me, *to), self._part(self.field, core, 0, "rw")]
