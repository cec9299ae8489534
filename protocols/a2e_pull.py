"""A2E and E2A without trampolines, as plain pull dispatch and combine; `A2EPull` has the calls of `a2e.A2E`.

What it is for: to compare.  Each attention die tells every expert die how much it has for it, and waits for all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from numpy.typing import NDArray

from xccl_emu.errors import ConfigError
from xccl_emu.kernels import a2e_pull as device
from xccl_emu.kernels.counts import FIELD_BYTES, choice_at, streamed_work_at, work_at
from xccl_emu.kernels.dispatch import ROUTE_BYTES
from xccl_emu.kernels.group import align
from xccl_emu.kernels.parameters import Areas, Group
from xccl_emu.kernels.parameters import Buffers as Addresses
from xccl_emu.kernels.sums import sum_bytes
from xccl_emu.machine.launch import Grant
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import PodSpec
from xccl_emu.protocols.a2e_calls import AttentionExperts, Calls
from xccl_emu.protocols.a2e_layout import A2EConfig, check_place, fits

ATTENTION_RIGHTS = {"batches": "r", "x": "r", "topk": "r", "pos": "rw", "weights": "r", "out": "w"}
EXPERT_RIGHTS = {"recv_x": "rw", "route": "rw", "counts": "rw", "y": "rw"}
"""What each kernel may do with the app buffers of its die."""


_MANAGED = ("staging", "blocks", "offered", "tallies")


@dataclass(frozen=True)
class PullRegion:
    """A region or the fields of one kind: offset in its area, and how many bytes there are for each die opposite."""

    offset: int
    each: int
    count: int
    managed: bool
    """In the managed area, not in the metadata area."""

    @property
    def nbytes(self) -> int:
        """All of it."""
        return self.each * self.count


@dataclass(frozen=True)
class PullLayout:
    """Where what is: the same offsets on every die, though either kind of die uses its own regions only."""

    staging: PullRegion
    """On attention dies, for each core: two rows, for DMA."""
    blocks: PullRegion
    """On attention dies, for each expert die: messages."""
    offered: PullRegion
    """On expert dies, for each attention die: rows."""
    tallies: PullRegion
    """On attention dies, for each core and their sums: what the cores tell each other, where choices are streamed."""
    counts: PullRegion
    """Fields of expert dies, for each attention die: one an expert."""
    rows_pulled: PullRegion
    """Fields of expert dies."""
    messages_pulled: PullRegion
    """Fields of attention dies, for each expert die."""
    rows_offered: PullRegion
    """Fields of attention dies."""

    @property
    def managed_end(self) -> int:
        """Offset in the managed area behind the last region."""
        return align(self.tallies.offset + self.tallies.nbytes)

    @property
    def meta_end(self) -> int:
        """Offset in the metadata area behind the last field."""
        return self.rows_offered.offset + self.rows_offered.nbytes


def rows_per_block(c: A2EConfig) -> int:
    """Most messages that an attention die can have for an expert die: a token's choices are different experts."""
    return c.tokens_max * min(c.top_k, c.local_experts)


def lay_out(c: A2EConfig, spec: PodSpec, managed_offset: int, field_offset: int) -> PullLayout:
    """Place everything; raises what `a2e_layout.lay_out` does."""
    rows, e, n = rows_per_block(c), c.n_experts, c.n_attention
    sizes = {
        "staging": (2 * c.row_bytes, c.cores),
        "blocks": (rows * c.message_bytes, e), "offered": (rows * c.row_bytes, n),
        "tallies": (align(4 * c.n_slots), c.cores + 1 if c.streams else 0),
        "counts": (c.local_experts * FIELD_BYTES, n), "rows_pulled": (FIELD_BYTES, n),
        "messages_pulled": (FIELD_BYTES, e), "rows_offered": (FIELD_BYTES, e),
    }  # fmt: skip
    regions, ends = {}, [field_offset, managed_offset]
    for name, (each, count) in sizes.items():
        area = name in _MANAGED
        regions[name] = PullRegion(ends[area], each, count, area)
        ends[area] += align(each * count)
    layout = PullLayout(**regions)
    fits("managed data area", layout.managed_end, spec.managed_bytes)
    fits("metadata area", layout.meta_end, spec.meta_bytes)
    fits("data buffer (ub_bytes)", buffer_bytes(c), spec.ub_bytes)
    return layout


def buffer_bytes(c: A2EConfig) -> int:
    """What the kernels need of a core's data buffer at least."""
    send = max(2 * c.message_bytes + (4 * c.hidden if c.quantized else 0), 8 * c.n_slots)
    attention = max(messages_at(c) + send, work_at(c.n_slots) + sum_bytes(c.hidden))
    expert = work_at(c.n_attention * c.local_experts) + 2 * max(c.message_bytes, c.row_bytes)
    return max(attention, expert, 12 * c.hidden + 2 * ROUTE_BYTES)


def messages_at(c: A2EConfig) -> int:
    """Where in the data buffer of an attention die the room for messages begins, behind all choices or the sums."""
    return streamed_work_at(c.n_slots) if c.streams else choice_at(c.tokens_max, 0, c.n_slots)


class A2EPull(AttentionExperts):
    """Attention and expert dies, each expert die pulling from each attention die and the other way round.

    config: with one domain, a depth of 1, and as many ``a2e_cores`` as an expert die shall have; it has one kernel.

    Raises ConfigError or CapacityError for what does not fit, or another number of domains or depth.
    """

    name = "a2e-pull"
    kernels = device.pull_attention, device.pull_expert

    def __init__(
        self, pod: Pod, config: A2EConfig, *, first_die: int = 0, managed_offset: int = 0, field_offset: int = 0
    ) -> None:
        for name in ("n_domains", "microbatches", "depth"):
            if getattr(config, name) != 1:
                raise ConfigError(f"{name}={getattr(config, name)}: pulling, it must be 1")
        first_die, *offsets = check_place(config, pod.spec, first_die, managed_offset, field_offset)
        self.layout = lay_out(config, pod.spec, *offsets)
        managed, meta = (offsets[0], self.layout.managed_end), (offsets[1], self.layout.meta_end)
        super().__init__(pod, config, first_die, managed, meta)

    def regions(self) -> Mapping[str, tuple[int, int]]:
        """Those of `PullLayout`, also where a die does not use them."""
        found = {one.name: getattr(self.layout, one.name) for one in fields(self.layout)}
        return {name: (self._offset(region), region.nbytes) for name, region in found.items()}

    def commit(self, calls: Calls, call: int, topk: Sequence[NDArray[Any]]) -> None:
        """Nothing: blocks are filled here and there."""

    def launch(self, calls: Calls) -> None:
        """One kernel on every die."""
        c, die_bytes = self.config, self.pod.spec.die_bytes
        offering = c.group(c.cores, die_bytes, self._on_attention(self.layout.tallies) if c.streams else 0)
        for i, buffers in enumerate(calls.batches[0]):
            app = {name: buffers[name].address for name in ("x", "topk", "pos", "weights", "out")}
            args = self._args(calls, offering, messages_at(c)) | {
                "core": range(c.cores), "index": i, "tokens_max": c.tokens_max, "batches": buffers["batches"].address,
                "b": Addresses(**app),
            }  # fmt: skip
            grants = [self.pod.grant(buffers[name], rights) for name, rights in ATTENTION_RIGHTS.items()]
            grants += self._attention_grants(i)
            self.pod.launch(device.pull_attention, calls.dies(0)[i], range(c.cores), args, grants)
        shape = c.group(c.a2e_cores, die_bytes)._replace(n_ranks=c.n_attention)
        for die, buffers in enumerate(self.experts):
            rows = Addresses(**{name: buffer.address for name, buffer in buffers.items()})
            args = self._args(calls, shape, work_at(c.n_attention * c.local_experts)) | {
                "core": range(c.a2e_cores), "die": die, "b": rows,
            }  # fmt: skip
            grants = [self.pod.grant(buffers[name], rights) for name, rights in EXPERT_RIGHTS.items()]
            grants += self._expert_grants(die)
            self.pod.launch(device.pull_expert, self.first_die + die, range(c.a2e_cores), args, grants)

    def _args(self, calls: Calls, shape: Group, work: int) -> dict[str, Any]:
        """What both kernels are told; ``work`` is where a die of that kind has room for messages in its data buffer."""
        c, one = self.config, self.layout
        tables = work_at(shape.n_ranks * shape.n_local)
        ub_bytes = self.pod.spec.ub_bytes
        dispatches = Areas(
            blocks=self._on_attention(one.blocks), block_bytes=one.blocks.each, fields=self._on_experts(one.counts),
            done=self._on_attention(one.messages_pulled), staging=0, work=work,
            room=(ub_bytes - work) // 2 // c.message_bytes,
        )  # fmt: skip
        combines = Areas(
            blocks=self._on_experts(one.offered), block_bytes=one.offered.each,
            fields=self._on_attention(one.rows_offered), done=self._on_experts(one.rows_pulled),
            staging=self._on_attention(one.staging), work=tables, room=(ub_bytes - tables) // 2 // c.row_bytes,
        )  # fmt: skip
        return {"calls": calls.n_calls, "c": shape, "dispatches": dispatches, "combines": combines}

    def _on_experts(self, region: PullRegion) -> int:
        """Address of a region on the first expert die."""
        return self.first_die * self.pod.spec.die_bytes + self._offset(region)

    def _on_attention(self, region: PullRegion) -> int:
        """Address of a region on the first attention die."""
        return (self.first_die + self.config.n_experts) * self.pod.spec.die_bytes + self._offset(region)

    def _offset(self, region: PullRegion) -> int:
        spec = self.pod.spec
        return region.offset + (spec.managed_start if region.managed else spec.meta_start)

    def _attention_grants(self, i: int) -> list[Grant]:
        one, die = self.layout, self.first_die + self.config.attention_die(0, i)
        return [
            self._own(die, one.staging, "rw"), self._own(die, one.blocks, "w"),
            self._own(die, one.messages_pulled, "r"), self._own(die, one.rows_offered, "r"),
            *([self._own(die, one.tallies, "rw")] if self.config.streams else []),
            self._mine(i, one.offered, "r"), self._mine(i, one.counts, "w"), self._mine(i, one.rows_pulled, "w"),
        ]  # fmt: skip

    def _expert_grants(self, e: int) -> list[Grant]:
        one, die = self.layout, self.first_die + e
        return [
            self._own(die, one.offered, "w"), self._own(die, one.counts, "r"), self._own(die, one.rows_pulled, "r"),
            self._mine(e, one.blocks, "r"), self._mine(e, one.messages_pulled, "w"),
            self._mine(e, one.rows_offered, "w"),
        ]  # fmt: skip

    def _own(self, die: int, region: PullRegion, rights: str) -> Grant:
        """All of a region on the own die."""
        start = self._offset(region)
        return Grant(die, start, start + region.nbytes, rights)

    def _mine(self, number: int, region: PullRegion, rights: str) -> Grant:
        """On any die what is for or from this one."""
        start = self._offset(region) + number * region.each
        return Grant(None, start, start + region.each, rights)
