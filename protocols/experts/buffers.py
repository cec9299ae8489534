"""The app buffers of a rank or die in a layer of experts: how large they are, what goes in, and what comes out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from xccl_emu.errors import ConfigError
from xccl_emu.kernels.experts.counts import INDEX_BYTES
from xccl_emu.kernels.experts.messages import ROUTE_BYTES
from xccl_emu.kernels.group import align
from xccl_emu.machine.pod import Buffer, Pod
from xccl_emu.protocols.communicator import allocate_on
from xccl_emu.protocols.experts.config import ROUTE, EpConfig, TokenConfig

COLUMNS = INDEX_BYTES // 4
"""Entries of a row of a table with one for each choice."""


def as_arrays(name: str, given: Sequence[Any]) -> list[NDArray[Any]]:
    """Each item as an array; ConfigError for one that is none, such as a ragged list."""
    arrays = []
    for rank, item in enumerate(given):
        try:
            arrays.append(np.asarray(item))
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{name} of rank {rank}: is no array ({error})") from error
    return arrays


def whole_rows(choices: NDArray[Any]) -> NDArray[np.int32]:
    """[T, columns] rows of a table of choices [T, top_k]: -1, as for a masked choice, behind those that there are."""
    rows = np.full((len(choices), COLUMNS), -1, np.int32)
    rows[:, : choices.shape[1]] = choices
    return rows


def fill(
    pod: Pod, c: TokenConfig, buffers: Mapping[str, Buffer], i: int, x: NDArray[Any], choices: NDArray[Any],
    weights: NDArray[Any] | None = None,
) -> None:  # fmt: skip
    """Put the i-th batch of a rank or attention die into its buffers, behind those before it."""
    rows, tables = slice(i * c.tokens_max, i * c.tokens_max + len(x)), (-1, COLUMNS)
    pod.view(buffers["batches"], np.int32)[i] = len(x)
    pod.fill_payload(pod.payload(buffers["x"], c.numpy_dtype(), (-1, c.hidden))[rows], x)
    pod.view(buffers["topk"], np.int32, tables)[rows] = whole_rows(choices)
    if weights is not None:
        pod.view(buffers["weights"], np.float32, tables)[rows, : c.top_k] = weights


@dataclass(frozen=True, eq=False)
class Received:
    """What dispatch brought to one rank; views into its app data area, valid until the next dispatch.

    Rows are grouped by local expert, then source rank, then token, as `npu_moe_distribute_dispatch` (expand_x,
    dynamic_scales, expert_token_nums, ep_recv_counts) and DeepEP's low-latency mode give them.
    """

    x: NDArray[Any]
    """[rows, hidden] int8 if quantized, else the input's type."""
    scales: NDArray[np.float32]
    """[rows] FP32 to multiply INT8 by; 0 if not quantized."""
    source: NDArray[np.int32]
    """[rows] rank that the token came from."""
    token: NDArray[np.int32]
    """[rows] index of the token in that rank's batch."""
    choice: NDArray[np.int32]
    """[rows] which of the token's choices this is (key offset)."""
    slot: NDArray[np.int32]
    """[rows] expert slot that it goes to."""
    counts: NDArray[np.int32]
    """[local_experts, n_ranks] rows by expert and source."""

    @classmethod
    def of(
        cls, pod: Pod, c: TokenConfig, buffers: Mapping[str, Buffer], counts: NDArray[np.int32], first: int = 0
    ) -> Self:
        """What is in the buffers from row ``first`` on, by the counts."""
        rows = slice(first, first + int(counts.sum()))
        x = pod.payload(buffers["recv_x"], np.int8 if c.quantized else c.numpy_dtype(), (-1, c.hidden))[rows]
        route = pod.view(buffers["route"], ROUTE)[rows]
        return cls(x, route["scale"], route["source"], route["token"], route["choice"], route["slot"], counts)

    @property
    def expert_counts(self) -> NDArray[np.int64]:
        """[local_experts] rows of each expert."""
        return np.asarray(self.counts.sum(axis=1, dtype=np.int64))


Buffered = dict[str, Buffer]
"""The app buffers of one rank, named as the kernels' parameters.  And ``batches``, with two 4-byte numbers for each
round: how many tokens there are, and which results."""


def allocate(pod: Pod, config: EpConfig, rounds: int = 1) -> list[Buffered]:
    """The app buffers of every rank, for so many rounds one behind the other.

    Raises CapacityError if they do not fit; then none of them is allocated.
    """
    table, states = config.tokens_max * INDEX_BYTES, config.tokens_max * config.row_bytes
    rows = config.rows_max
    sizes = {
        "batches": 8, "x": states, "topk": table, "pos": config.tokens_max * config.position_bytes, "weights": table,
        "recv_x": rows * config.payload_bytes, "route": rows * ROUTE_BYTES, "counts": align(4 * config.n_slots),
        "y": rows * config.row_bytes, "out": states,
    }  # fmt: skip
    dies = range(config.first_die, config.first_die + config.n_ranks)
    return allocate_on(pod, dies, {name: rounds * size for name, size in sizes.items()})


def part_of(own: Buffered, i: int, rounds: int) -> Buffered:
    """The buffers of the i-th round."""
    sizes = {name: buffer.nbytes // rounds for name, buffer in own.items()}
    return {name: Buffer(each.die, each.address + i * sizes[name], sizes[name]) for name, each in own.items()}
