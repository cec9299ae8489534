"""Where A2E and E2A keep what in the areas of each die, and how much of it a die may touch: no more than it needs."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from xccl_emu.base.errors import ConfigError
from xccl_emu.base.options import whole
from xccl_emu.kernels.a2e.parameters import Microbatch, Places, dies_of, first_of
from xccl_emu.kernels.a2e.trampoline import lists_bytes
from xccl_emu.kernels.experts.counts import FIELD_BYTES
from xccl_emu.kernels.group import align
from xccl_emu.machine.spec import PodSpec
from xccl_emu.protocol import Region, Regions
from xccl_emu.protocols.a2e.config import A2EConfig, buffer_bytes
from xccl_emu.protocols.communicator import offset_in_area

_REMEDY = "take fewer dies, experts or tokens, or a larger pod"


class DiesLayout(Regions, ABC):
    """Regions and fields of attention and expert dies, after what other communicators use; offsets are bytes.

    The same on every die, though either kind of die uses its own only.

    Raises ConfigError if the pod has too few dies or cores, or an offset is no place for a region; CapacityError if an
    area or the data buffer is too small.
    """

    in_managed: ClassVar[tuple[str, ...]]
    """Names of the regions in the managed data area."""

    def __init__(
        self, config: A2EConfig, spec: PodSpec, first_die: int = 0, managed_offset: int = 0, field_offset: int = 0
    ) -> None:
        self.config, self.first_die = config, whole("first_die", first_die)
        _check_dies(config, spec, self.first_die)
        offsets = offset_in_area("managed_offset", managed_offset), offset_in_area("field_offset", field_offset)
        super().__init__(config.n_dies, self.first_die)
        self.of = {name: self._make(name, *size) for name, size in self._sizes().items() if size[1]}
        """By name, those that there are."""
        self.fit(spec, *offsets, _REMEDY, self.ub_bytes(config))

    @abstractmethod
    def _sizes(self) -> Mapping[str, tuple[int, int]]:
        """Bytes of an element, and elements, on one die."""

    @staticmethod
    @abstractmethod
    def ub_bytes(c: A2EConfig) -> int:
        """Return the least size of a core's data buffer that the kernels need."""

    def _make(self, name: str, nbytes: int, count: int) -> Region:
        add, area = (self.managed, "managed") if name in self.in_managed else (self.meta, "meta")
        return add(f"{area}.{name}", nbytes, count, lambda _: [("", align(nbytes) * count)])

    def at(self, name: str, die: int = 0, i: int | None = None) -> int:
        """Address of a region, or an element; 0 for a region that there is not.  Dies count from the group's first."""
        return self.of[name].at(self.first_die + die, i) if name in self.of else 0


def _check_dies(c: A2EConfig, spec: PodSpec, first_die: int) -> None:
    if first_die < 0 or first_die + c.n_dies > spec.n_dies:
        raise ConfigError(f"{c.n_dies} dies from die {first_die}: the pod has {spec.n_dies} dies")
    if max(c.microbatches * c.cores, c.expert_cores) > spec.cores_per_die:
        each = f" of each of {c.microbatches} microbatches" if c.microbatches > 1 else ""
        most = f"cores={c.cores}{each}, {c.expert_cores} of an expert die"
        raise ConfigError(f"{most}: a die has {spec.cores_per_die}")


class A2ELayout(DiesLayout):
    """Regions of the trampoline protocol, as `Places` names them."""

    in_managed = ("slots", "lists", "staging", "inbox", "returned", "outbox", "tallies")
    ub_bytes = staticmethod(buffer_bytes)

    def _sizes(self) -> Mapping[str, tuple[int, int]]:
        c = self.config
        batch, rows = c.tokens_max * c.message_bytes, c.tokens_max * c.top_k * c.row_bytes
        fields = {
            "credit": c.microbatches, "tokens_in": c.turns * c.fan_in * c.a2e_parts, "acks": 1,
            "counts": c.n_attention * c.local_experts, "arrivals": c.depth * c.fan_in * c.e2a_parts,
            "returned_in": c.microbatches, "attended": 1, "assembled": 1, "computed": 1, "sent": 1, "relayed": 1,
        }  # fmt: skip
        return {
            "slots": (batch, c.fan_in),
            "lists": (lists_bytes(c.tokens_max), c.depth * c.fan_in),
            "staging": (rows, c.depth * c.fan_in),
            "inbox": (batch, c.n_attention * c.local_experts),
            "returned": (rows, c.microbatches),
            "outbox": (batch, c.microbatches if c.path == "urma" else 0),
            **{name: (FIELD_BYTES, count) for name, count in fields.items()},
            "tallies": (4 * c.n_slots, c.a2e_cores + 1 if c.streams else 0),
        }

    def places(self, die: int) -> Places:
        """Addresses on the first die, as streams of an expert die take them: who is no trampoline may touch less."""
        c, names = self.config, self.of.keys() & Places._fields
        of = {name: self.of[name].at(self.first_die) for name in names}
        if die < c.trampolines:
            of_it = die, c.n_attention, c.trampolines
            first, dies = first_of(*of_it) * c.local_experts, dies_of(*of_it) * c.local_experts
            of |= {name: of[name].only(range(first, first + dies)) for name in ("inbox", "counts")}
        else:
            of |= {name: of[name].limited(rights) for name, rights in _NO_TRAMPOLINE.items() if name in of}
        return Places(*(of.get(name, 0) for name in Places._fields))

    def microbatch(self, turn: int, index: int) -> Microbatch:
        """Return the addresses that a microbatch of an attention die works with."""
        c = self.config
        die, number = c.attention_die(turn, index), c.microbatch_of(turn)
        trampoline, q = c.trampoline_of(index)
        own = {name: self.at(name, die, number) for name in ("outbox", "credit", "returned", "returned_in")}
        first = (turn * c.fan_in + q) * c.a2e_parts
        return Microbatch(
            turn, number, index, slots=self.at("slots", trampoline, q),
            tokens_in=self.of["tokens_in"].at(self.first_die + trampoline, first, c.a2e_parts),
            attended=self.at("attended", die), **own,
        )  # fmt: skip


_NO_TRAMPOLINE = {"inbox": "r", "counts": "r", "acks": "w", "arrivals": "w", "staging": "w"}
_NO_TRAMPOLINE |= dict.fromkeys(
    ("slots", "lists", "tokens_in", "credit", "relayed", "returned", "returned_in", "tallies"), ""
)
"""What is left of what streams may do, where a die is no trampoline."""
