"""A2E and E2A without trampolines, as plain pull dispatch and combine; `A2EPull` has the calls of `session.A2E`.

What it is for: to compare.  Each attention die reports to every expert die how much it has for it, and waits for all.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from xccl_emu.base.errors import ConfigError
from xccl_emu.kernels.a2e import pull as device
from xccl_emu.kernels.experts.counts import FIELD_BYTES, work_at
from xccl_emu.kernels.experts.dummy import expert_bytes
from xccl_emu.kernels.experts.parameters import Group
from xccl_emu.kernels.experts.sums import sum_bytes
from xccl_emu.kernels.pull.parameters import Areas
from xccl_emu.machine.pod import Pod
from xccl_emu.protocols.a2e.calls import AttentionExperts, Calls, of_cores
from xccl_emu.protocols.a2e.config import A2EConfig
from xccl_emu.protocols.a2e.layout import DiesLayout
from xccl_emu.protocols.experts.config import fit_half, messages_at


def rows_per_block(c: A2EConfig) -> int:
    """Most messages that an attention die can have for an expert die: a token's choices are different experts."""
    return c.tokens_max * min(c.top_k, c.local_experts)


def buffer_bytes(c: A2EConfig) -> int:
    """Return the least size of a core's data buffer that the kernels need."""
    attention = max(messages_at(c) + max(c.sending_bytes, 8 * c.n_slots), work_at(c.n_slots) + sum_bytes(c.hidden))
    expert = work_at(c.n_attention * c.local_experts) + 2 * max(c.message_bytes, c.row_bytes)
    return max(attention, expert, expert_bytes(c.hidden))


class PullLayout(DiesLayout):
    """Blocks of messages and rows, by the die opposite, and fields."""

    in_managed = ("staging", "blocks", "offered", "tallies")
    ub_bytes = staticmethod(buffer_bytes)

    def _sizes(self) -> Mapping[str, tuple[int, int]]:
        c = self.config
        rows, e, n = rows_per_block(c), c.n_experts, c.n_attention
        return {
            "staging": (2 * c.row_bytes, c.cores),  # on attention dies, for each core: two rows, for DMA
            "blocks": (rows * c.message_bytes, e),  # on attention dies, for each expert die: messages
            "offered": (rows * c.row_bytes, n),  # on expert dies, for each attention die: rows
            # on attention dies: the counts that cores exchange, where choices are streamed, and the sums
            "tallies": (4 * c.n_slots, c.cores + 1 if c.streams else 0),
            "counts": (c.local_experts * FIELD_BYTES, n),  # fields of expert dies, for each attention die
            "rows_pulled": (FIELD_BYTES, n),
            "messages_pulled": (FIELD_BYTES, e),  # fields of attention dies, for each expert die
            "rows_offered": (FIELD_BYTES, e),
        }


class A2EPull(AttentionExperts):
    """Attention and expert dies, each expert die pulling from each attention die and the other way round.

    config: with one domain, a depth of 1, and as many ``a2e_cores`` as an expert die shall have; it has one kernel.

    Raises ConfigError or CapacityError for what does not fit, or another number of domains or depth.
    """

    name = "a2e-pull"
    kernels = device.pull_attention, device.pull_expert
    lays_out = PullLayout
    layout: PullLayout

    def __init__(
        self, pod: Pod, config: A2EConfig, *, first_die: int = 0, managed_offset: int = 0, field_offset: int = 0
    ) -> None:
        for name in ("n_domains", "microbatches", "depth"):
            if getattr(config, name) != 1:
                raise ConfigError(name, getattr(config, name), "pulling, it must be 1")
        super().__init__(
            pod, config, first_die=first_die, managed_offset=managed_offset, field_offset=field_offset
        )  # fmt: skip

    def commit(self, calls: Calls, call: int, topk: Sequence[NDArray[Any]]) -> None:
        """Do nothing: blocks are filled here and there."""

    def launch(self, calls: Calls) -> None:
        """Launch one kernel on every die."""
        c, die_bytes = self.config, self.pod.spec.die_bytes
        offering = c.group(c.n_experts, c.cores, die_bytes, self.layout.at("tallies", c.n_experts))
        for i, buffers in enumerate(calls.batches[0]):
            args = self._args(calls, offering, messages_at(c), self.layout.dies[c.n_experts :])
            args |= {"index": i, "tokens_max": c.tokens_max} | of_cores(device.pull_attention, c.cores, buffers)
            self.pod.launch(device.pull_attention, calls.dies(0)[i], range(c.cores), args)
        shape = c.group(c.n_attention, c.a2e_cores, die_bytes)
        for die, buffers in enumerate(self.experts):
            work = work_at(c.n_attention * c.local_experts)
            args = self._args(calls, shape, work, self.layout.dies[: c.n_experts]) | {"die": die}
            args |= of_cores(device.pull_expert, c.a2e_cores, buffers)
            self.pod.launch(device.pull_expert, self.first_die + die, range(c.a2e_cores), args)

    def _args(self, calls: Calls, shape: Group, work: int, users: range) -> dict[str, Any]:
        """Arguments of both kernels; ``work`` is where a die of that kind has room for messages in its data buffer.

        What the dies opposite have is shared out among these, the ``users``.
        """
        c, layout = self.config, self.layout

        def at(name: str, first: int = 0) -> int:
            return layout.of[name].at(self.first_die + first).shared(users)

        tables = work_at(shape.n_ranks * shape.n_local)
        ub_bytes = self.pod.spec.ub_bytes
        dispatches = Areas(
            blocks=at("blocks", c.n_experts), block_bytes=layout.of["blocks"].nbytes, fields=at("counts"),
            done=at("messages_pulled", c.n_experts), staging=0, work=work,
            room=fit_half(ub_bytes, work, c.message_bytes),
        )  # fmt: skip
        combines = Areas(
            blocks=at("offered"), block_bytes=layout.of["offered"].nbytes,
            fields=at("rows_offered", c.n_experts), done=at("rows_pulled"),
            staging=at("staging", c.n_experts), work=tables, room=fit_half(ub_bytes, tables, c.row_bytes),
        )  # fmt: skip
        return {"calls": calls.n_calls, "c": shape, "dispatches": dispatches, "combines": combines}
