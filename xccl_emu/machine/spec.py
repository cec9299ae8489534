"""What a pod is made of, as data: dies, cores, areas, sizes."""

import functools
from dataclasses import dataclass, fields, replace
from typing import Any

from xccl_emu.base.errors import ConfigError
from xccl_emu.base.options import must_be_one_of, whole
from xccl_emu.machine.device.layout import ATOMIC_BYTES, CACHE_LINE_BYTES, CHOICE_ALL, GRANULE_BYTES


def home_name(number: int, n_dies: int, gap: str = "") -> str:
    """Return what `PodSpec.home` does, for callers that have no more than the number of dies."""
    return f"die{gap}{number}" if number < n_dies else f"cpu{gap}{number - n_dies}"


KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


_REGISTERS_MAX = 1 << 16
CACHE_LINES_MAX = 256
"""Lines that a scalar unit caches at most: 16 KiB."""


@dataclass(frozen=True)
class PodSpec:
    """A pod: how many dies, and how each die's memory is divided into areas.

    A die's memory is its app data area, then its metadata area, then its managed data area; byte ``offset`` of die
    ``d`` has the global address ``d * die_bytes + offset`` (xDeepServe 3.1).
    """

    name: str
    nodes: int
    chips_per_node: int
    dies_per_chip: int
    cores_per_die: int
    die_bytes: int
    """Capacity of a die's memory; a power of two."""
    meta_bytes: int
    """Metadata area: 32-byte fields."""
    managed_bytes: int
    """Managed data area: rings and blocks that the protocols own."""
    ub_bytes: int = 192 * KIB
    """Data buffer of one core."""
    flight_granules: int = 256
    """Writes in flight that a die holds at most, each at most ``atomic_bytes``; unused under `sc`."""
    registers: int = 320
    """Registers a kernel may have on a core."""
    atomic_bytes: int = GRANULE_BYTES
    """The unit in which writes become visible and reads are taken: 4, 8, 16, 32, 64 or 128 bytes."""
    cpus_per_node: int = 0
    """CPU sockets, after all dies: each has as much memory, and as many cores, though these are scalar."""
    scalar_cache: int = 0
    """Lines of 64 bytes that the data cache of a core's scalar unit holds at most; 0: it has none."""

    def __post_init__(self) -> None:
        for number in fields(self)[1:]:  # all but the name
            object.__setattr__(self, number.name, whole(number.name, getattr(self, number.name)))
        if self.registers > _REGISTERS_MAX:
            raise ConfigError("registers", self.registers, f"must be at most {_REGISTERS_MAX}")
        self._positive("nodes", "chips_per_node", "dies_per_chip", "cores_per_die", "flight_granules", "registers")
        if self.flight_granules >= CHOICE_ALL:
            raise ConfigError("flight_granules", self.flight_granules, f"must be below {CHOICE_ALL}")
        if self.atomic_bytes not in ATOMIC_BYTES:
            raise ConfigError("atomic_bytes", self.atomic_bytes, must_be_one_of(self.atomic_bytes, ATOMIC_BYTES))
        if self.die_bytes < 1 or self.die_bytes & (self.die_bytes - 1):
            raise ConfigError("die_bytes", self.die_bytes, "must be a power of two")
        if self.die_bytes < self.atomic_bytes:
            raise ConfigError("die_bytes", self.die_bytes, f"must be at least atomic_bytes={self.atomic_bytes}")
        if self.atomic_bytes < 8 and self.flight_granules < 2:
            raise ConfigError("flight_granules", 1, "must be at least 2 where a word is written in halves")
        if self.cpus_per_node < 0:
            raise ConfigError("cpus_per_node", self.cpus_per_node, "must not be negative")
        self._check_cache()
        for name in ("meta_bytes", "managed_bytes", "ub_bytes"):
            if getattr(self, name) < 0 or getattr(self, name) % GRANULE_BYTES:
                raise ConfigError(
                    name, getattr(self, name), f"must be a multiple of {GRANULE_BYTES} and not negative"
                )
        if self.app_bytes < 0:
            areas = self.meta_bytes + self.managed_bytes
            raise ConfigError("die_bytes", self.die_bytes, f"metadata and managed areas need {areas}")
        if self.n_homes * self.die_bytes > 1 << 60:
            raise ConfigError("die_bytes", self.die_bytes, f"{self.n_homes} dies of it exceed the address space")

    def _check_cache(self) -> None:
        if not 0 <= self.scalar_cache <= CACHE_LINES_MAX:
            raise ConfigError("scalar_cache", self.scalar_cache, f"must be 0 (no cache) to {CACHE_LINES_MAX} lines")
        if self.scalar_cache and self.die_bytes < CACHE_LINE_BYTES:
            raise ConfigError("die_bytes", self.die_bytes, f"must be at least {CACHE_LINE_BYTES}, a line of the cache")
        least = max(1, CACHE_LINE_BYTES // self.atomic_bytes) if self.scalar_cache else 1
        if self.flight_granules < least:
            raise ConfigError(
                "flight_granules", self.flight_granules, f"must be at least {least}, so that a line of the cache fits"
            )

    def _positive(self, *names: str) -> None:
        for name in names:
            if getattr(self, name) < 1:
                raise ConfigError(name, getattr(self, name), "must be at least 1")

    @functools.cached_property
    def n_dies(self) -> int:
        """Dies of the whole pod."""
        return self.nodes * self.chips_per_node * self.dies_per_chip

    @functools.cached_property
    def n_homes(self) -> int:
        """Dies, and CPU sockets after them: what memory is of."""
        return self.n_dies + self.nodes * self.cpus_per_node

    @functools.cached_property
    def memory_bytes(self) -> int:
        """Bytes of memory of all dies and CPUs together."""
        return self.n_homes * self.die_bytes

    @functools.cached_property
    def n_cores(self) -> int:
        """Cores of the whole pod, first the dies' cores, then the CPUs'."""
        return self.n_homes * self.cores_per_die

    @functools.cached_property
    def app_bytes(self) -> int:
        """Size of a die's app data area: what the other two leave."""
        return self.die_bytes - self.meta_bytes - self.managed_bytes

    @functools.cached_property
    def meta_start(self) -> int:
        """Offset of the metadata area in a die."""
        return self.app_bytes

    @functools.cached_property
    def managed_start(self) -> int:
        """Offset of the managed data area in a die."""
        return self.app_bytes + self.meta_bytes

    def home(self, number: int, gap: str = "") -> str:
        """Name a die, or a CPU after the dies, as reports do: ``die1``, ``cpu0``."""
        return home_name(number, self.n_dies, gap)

    def with_(self, **changes: Any) -> "PodSpec":
        """The same pod with some fields changed."""
        return replace(self, **changes)


def small_pod(
    dies: int,
    cores: int = 1,
    *,
    app_bytes: int = 64 * KIB,
    meta_bytes: int = 4 * KIB,
    managed_bytes: int = 64 * KIB,
    ub_bytes: int = 8 * KIB,
    flight_granules: int = 64,
    atomic_bytes: int = GRANULE_BYTES,
    scalar_cache: int = 0,
) -> PodSpec:
    """A pod for tests and proofs: one die a chip, areas as large as asked; the app data area fills a power of two."""
    app_bytes, meta_bytes = whole("app_bytes", app_bytes), whole("meta_bytes", meta_bytes)
    need = app_bytes + meta_bytes + whole("managed_bytes", managed_bytes)
    return PodSpec(
        name=f"small-{dies}x{cores}",
        nodes=dies,
        chips_per_node=1,
        dies_per_chip=1,
        cores_per_die=cores,
        die_bytes=1 << (max(need, atomic_bytes) - 1).bit_length(),
        meta_bytes=meta_bytes,
        managed_bytes=managed_bytes,
        ub_bytes=ub_bytes,
        flight_granules=flight_granules,
        atomic_bytes=atomic_bytes,
        scalar_cache=scalar_cache,
    )


CLOUDMATRIX384 = PodSpec(
    name="CloudMatrix384",
    nodes=48,
    chips_per_node=8,
    dies_per_chip=2,
    cores_per_die=48,
    die_bytes=64 * GIB,
    meta_bytes=4 * MIB,
    managed_bytes=24 * GIB,
    cpus_per_node=4,
)
"""Huawei CloudMatrix384 (CloudMatrix384 3.2, xDeepServe 3.1): 384 chips of two dies, up to 48 vector cores a die, and
192 CPU sockets (of whose memory 64 GiB each are mapped)."""

ATLAS_800T_A2 = CLOUDMATRIX384.with_(name="Atlas 800T A2", nodes=4, dies_per_chip=1)
"""The cluster of MixServe: four servers of eight NPUs of one die each; its areas are CloudMatrix384's."""
