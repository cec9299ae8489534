"""Names of everything that an expert-parallel group keeps in a pod's memory."""

from collections.abc import Iterator
from typing import Any

from xccl_emu.kernels.counts import FIELD_BYTES
from xccl_emu.kernels.group import align
from xccl_emu.protocol import Bench
from xccl_emu.protocols.expert_group import ExpertGroup
from xccl_emu.protocols.expert_parallel import ExpertParallel
from xccl_emu.protocols.rounds import Rounds

Label = tuple[str, int, int]
"""Name, address and bytes."""


def label_all(bench: Bench, rounds: Rounds) -> None:
    """Metadata fields, blocks by message, the cores' own areas, and the app buffers of all rounds."""
    ranks = range(rounds.config.n_ranks)
    for rank in ranks:
        for name, buffer in vars(rounds.buffers[rank]).items():
            bench.label_buffer(buffer, f"app.{name}")
        for label in _own(rounds.group, rank):
            bench.label(*label)
        for other in ranks:
            for label in (*_fields(rounds.group, rank, other), *_blocks(rounds.group, rank, other)):
                bench.label(*label)


def _fields(group: ExpertParallel, rank: int, other: int) -> Iterator[Label]:
    """The fields on a rank's die that another rank writes."""
    layout, die, local = group.layout, group.die_of(rank), group.config.local_experts
    pair = f"[{other}→{rank}]"
    for e in range(local):
        name = f"die{die}.meta.counts{pair}" + (f".expert{e}" if local > 1 else "")
        offset = layout.dispatch_fields + (other * local + e) * FIELD_BYTES
        yield name, group.pod.meta(die, offset), FIELD_BYTES
    fields = {
        "dispatch_ack": layout.dispatch_done, "rows": layout.combine_fields, "combine_ack": layout.combine_done,
    }  # fmt: skip
    for name, start in fields.items():
        yield f"die{die}.meta.{name}{pair}", group.pod.meta(die, start + other * FIELD_BYTES), FIELD_BYTES


def _blocks(group: ExpertParallel, rank: int, other: int) -> Iterator[Label]:
    """What a rank has in its managed area for another, message by message."""
    c, layout, die = group.config, group.layout, group.die_of(rank)
    kinds = {
        "dispatch_block": (layout.dispatch_blocks, layout.dispatch_block_bytes, c.message_bytes),
        "combine_block": (layout.combine_blocks, layout.combine_block_bytes, c.returned_bytes),
    }
    for name, (start, block_bytes, row_bytes) in kinds.items():
        for row in range(c.rows_per_block):
            label = f"die{die}.{name}[{rank}→{other}].row{row}"
            yield label, group.pod.managed(die, start + other * block_bytes + row * row_bytes), row_bytes


def _own(group: ExpertParallel, rank: int) -> Iterator[Label]:
    """What the cores of a rank keep for themselves in its managed area."""
    c, layout, die = group.config, group.layout, group.die_of(rank)
    nbytes = 2 * c.row_bytes
    for core in range(c.cores):
        yield f"die{die}.staging.core{core}", group.pod.managed(die, layout.staging + core * nbytes), nbytes
    yield from tallies(group, layout.tallies, rank)


def tallies(group: ExpertGroup[Any], start: int, rank: int) -> Iterator[Label]:
    """What the cores of a rank have counted, from an offset of its managed area on; nothing where each counts all."""
    c, die = group.config, group.die_of(rank)
    if c.streams:
        nbytes = align(4 * c.n_slots)
        for i, of in enumerate([*(f"core{core}" for core in range(c.cores)), "sums"]):
            yield f"die{die}.tallies.{of}", group.pod.managed(die, start + i * nbytes), nbytes
