"""Collectives for users: sums, gathers and exchanges of arrays of their own, by any of the algorithms that there are.

group = Collectives(pod, ranks=4)
sums = group.all_reduce(values, "ring")
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from xccl_emu.base.errors import ConfigError
from xccl_emu.kernels.group import align
from xccl_emu.machine.pod import Pod
from xccl_emu.protocol import Regions
from xccl_emu.protocols.collectives import two_level
from xccl_emu.protocols.collectives.case import ALGORITHMS, CollectiveCase
from xccl_emu.protocols.communicator import CaseSession, Progress, index_of, one_for_each, shaped
from xccl_emu.protocols.experts.config import DTYPES

Values = Sequence[NDArray[Any]]
"""An array for each rank, of the group's type."""
BARRIERS = ("barrier", "barrier-sense")
"""All-gathers by a barrier, without a name of their own."""


class Collectives(CaseSession[CollectiveCase]):
    """Collectives among ``ranks`` ranks, one a die ([MixServe] II, table I), sums in FP32 in a documented order.

    Sizes are as in the case ``all-reduce-ring``; ``slot`` is how many elements move at once, by default as many as
    fit.  With ``group``, ranks of a group such as the dies of a node, there are algorithms of two levels too.

    >>> import numpy as np, xccl_emu as xe
    >>> group = xe.Collectives(xe.Pod(xe.small_pod(2)), ranks=2, dtype="fp16")
    >>> values = [np.arange(4, dtype=np.float16), np.full(4, 0.5, np.float16)]
    >>> [sums.tolist() for sums in group.all_reduce(values, "ring")]
    [[0.5, 1.5, 2.5, 3.5], [0.5, 1.5, 2.5, 3.5]]
    """

    kind = CollectiveCase
    drawn = (*CaseSession.drawn, "collective", "elements", "calls", "in_place")

    def __init__(
        self, pod: Pod, config: CollectiveCase | None = None, *, group: int = 0, managed_offset: int = 0,
        field_offset: int = 0, **sizes: Any,
    ) -> None:  # fmt: skip
        if config is None and "slot" not in sizes and isinstance(pod, Pod):
            sizes = {**sizes, "slot": max(16, min(16384, pod.spec.ub_bytes // 128 * 16))}
        case = self._configure(pod, config, sizes)
        self.cores, room = case.cores, align(2 * case.slot)
        self._cases = {name: replace(case, collective=name, elements=1, calls=1, in_place=0) for name in ALGORITHMS}
        if index_of("group", group, case.ranks + 1):
            sizes = {name: getattr(case, name) for name in ("ranks", "cores", "slot", "dtype")}
            for name in two_level.ALGORITHMS:
                self._cases[name] = two_level.TwoLevelCase(**sizes, collective=name, elements=1, calls=1, group=group)
        self.kernels = tuple(dict.fromkeys(each.kernel for each in self._cases.values()))
        each = {name: Regions(case.ranks) for name in self._cases}
        self._inboxes = {name: of.inboxes(each[name], room) for name, of in self._cases.items()}
        whole = Regions(case.ranks)
        for area, add in (("managed", whole.managed), ("meta", whole.meta)):
            add(area, max(of.bytes_of(area) for of in each.values()))
        self._place(pod, whole, 4 * room, (managed_offset, field_offset))
        for of in each.values():  # one at a time has the place of all
            of.fit(pod.spec, managed_offset, field_offset, "")

    def all_reduce(self, values: Values, by: str = "two-shot", progress: Progress | None = None) -> list[NDArray[Any]]:
        """Sums for all.

        values: for each rank [n], a multiple of the ranks.  by: ``"two-shot"``, ``"one-shot"``, ``"ring"`` or
        ``"two-level"``.  Returns for each rank [n], the same bits on all.

        Raises ConfigError or CapacityError, before memory changes, for other shapes, types and algorithms, as all do.
        """
        return self._run("all-reduce", by, values, 1, progress)

    def reduce_scatter(self, values: Values, by: str = "", progress: Progress | None = None) -> list[NDArray[Any]]:
        """Return for rank r [n], share r of the sums of [ranks * n].

        by: ``""``, ``"ring"``, ``"by-reads"`` or ``"two-level"``.
        """
        return self._run("reduce-scatter", by, values, 1, progress)

    def all_gather(self, values: Values, by: str = "", progress: Progress | None = None) -> list[NDArray[Any]]:
        """Return for each rank [ranks, n], what each has: [n].

        by: ``""``, ``"ring"``, ``"by-cores"``, ``"two-level"`` or ``"by-reads"``; or through a ``"barrier"`` or
        ``"barrier-sense"``, after which all read what all wrote before.
        """
        return self._run("" if by in BARRIERS else "all-gather", by, values, 1, progress)

    def all_to_all(self, values: Values, by: str = "", progress: Progress | None = None) -> list[NDArray[Any]]:
        """Return for rank r [ranks, n], row r of what each has: [ranks, n]; by: ``""`` or ``"ring"``."""
        return self._run("all-to-all", by, values, 2, progress)

    def _run(self, operation: str, by: str, values: Any, ndim: int, progress: Progress | None) -> list[NDArray[Any]]:
        name = f"{operation}-{by}" if operation and by else operation or by
        if name not in self._cases:
            known = [one[len(operation) + 1 :] for one in self._cases if one.startswith(operation)]
            known += BARRIERS if operation == "all-gather" else ()
            group = f"; {by} needs a session with group" * (name in two_level.ALGORITHMS)
            raise ConfigError("by", by, f"must be one of {', '.join(map(repr, known))}{group}")
        case, given = self._cases[name], one_for_each("values", values, self.config.ranks, "ranks")
        first = shaped("values of rank 0", given[0], (None,) * ndim, dtype := DTYPES[case.dtype][1])
        own = [shaped(f"values of rank {rank}", item, first.shape, dtype) for rank, item in enumerate(given)]
        shares, rest = divmod(own[0].size, case.ranks if case.shares_had > 1 or name.startswith("all-reduce") else 1)
        if rest or not shares or (ndim == 2 and len(first) != case.ranks):
            raise ConfigError(f"values: {list(first.shape)}, must be whole shares of {case.ranks} ranks")
        case = replace(case, elements=shares)
        with self._call(dict.fromkeys(self.layout.dies, case.app_bytes)) as (bench, streams):
            if case.reads:
                self.pod.level_app(self.layout.dies)
            inboxes = self._inboxes[name]
            placed = case.lay_out_call(bench, self.pod, streams, inboxes, 0, [0] * case.cores)
            for array, (had, _) in zip(own, placed, strict=True):
                self._fill(had, array)
            streams.put()
            self.run_as(name, progress)
            rows = (case.ranks, -1) if ndim == 2 or not case.reduces else (-1,)
            return [self.pod.payload(got, first.dtype, rows).copy() for _, got in placed]
