"""A2E and E2A for users: domains of attention dies, and expert dies whose streams run until they are told to stop.

a2e = A2E(pod, A2EConfig(n_domains=2, n_attention=2, n_experts=3, top_k=2, hidden=128))
outputs = a2e.run([Call(tokens, topk, weights), ...])     # [call][attention die]; calls go round the domains

or, to look at what the expert dies have received, or to launch without running:

    calls = Calls(a2e, [...])
    calls.launch()
    a2e.run_launched()
    calls.output(0, i), calls.received(0, die)
"""

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from xccl_emu.kernels import a2e as attention_kernel
from xccl_emu.kernels import a2e_expert as expert_kernels
from xccl_emu.kernels import a2e_return as return_kernel
from xccl_emu.kernels.a2e_parameters import Places
from xccl_emu.kernels.parameters import Buffers as Addresses
from xccl_emu.lang import Kernel
from xccl_emu.machine.launch import Grant
from xccl_emu.machine.pod import Buffer, Pod
from xccl_emu.protocols.a2e_calls import AttentionExperts, Buffers, Call, Calls
from xccl_emu.protocols.a2e_grants import A2E_RIGHTS, ATTENTION_RIGHTS, COMPUTE_RIGHTS, E2A_RIGHTS, A2EGrants
from xccl_emu.protocols.a2e_layout import A2EConfig, check_place, lay_out, return_plan

__all__ = ["A2E", "A2EConfig", "Call", "Calls"]

_RIGHTS = {
    "attention": ATTENTION_RIGHTS, "a2e_stream": A2E_RIGHTS, "compute_stream": COMPUTE_RIGHTS, "e2a_stream": E2A_RIGHTS,
}  # fmt: skip


class A2E(AttentionExperts):
    """Attention and expert dies with trampolines between them (xDeepServe 3.3, 5.2).

    It owns the parts of the managed and metadata areas from ``managed_offset`` and ``field_offset`` on, both in bytes,
    to ``layout.managed_end`` and ``layout.meta_end``, on all its dies.  After a failed run (RunError) call `reset`.

    Raises ConfigError or CapacityError for what does not fit the pod; then nothing is allocated.
    """

    name = "a2e"
    kernels = (
        attention_kernel.attention, expert_kernels.a2e_stream, expert_kernels.compute_stream, return_kernel.e2a_stream,
    )  # fmt: skip

    def __init__(
        self, pod: Pod, config: A2EConfig, *, first_die: int = 0, managed_offset: int = 0, field_offset: int = 0
    ) -> None:
        first_die, *offsets = check_place(config, pod.spec, first_die, managed_offset, field_offset)
        self.layout = lay_out(config, pod.spec, *offsets)
        self.grants = A2EGrants(pod.spec, config, self.layout, first_die)
        managed, meta = (offsets[0], self.layout.managed_end), (offsets[1], self.layout.meta_end)
        super().__init__(pod, config, first_die, managed, meta)

    def regions(self) -> Mapping[str, tuple[int, int]]:
        """Those of `Places`, also where a die does not use them."""
        starts = self.layout.on(self.pod.spec, 0)
        return dict(zip(Places._fields, zip(starts, self.layout.sizes, strict=True), strict=True))

    def commit(self, calls: Calls, call: int, topk: Sequence[NDArray[Any]]) -> None:
        """Slots, staging and returned rows of each attention die; inboxes are filled here and there."""
        c = self.config
        for i, choices in enumerate(topk):
            rows, tokens = len(choices) * c.top_k * c.row_bytes, len(choices) * c.message_bytes
            trampoline, q = c.trampoline_of(i)
            staging = (call % c.depth * c.fan_in + q) * c.tokens_max * c.top_k * c.row_bytes
            here, there = self.first_die + trampoline, calls.dies(call)[i]
            for die, name, start, nbytes in (
                (here, "slots", q * c.tokens_max * c.message_bytes, tokens), (here, "staging", staging, rows),
                (there, "returned", c.microbatch_of(call) * c.tokens_max * c.top_k * c.row_bytes, rows),
            ):  # fmt: skip
                address = getattr(self.layout.on(self.pod.spec, die), name) + start
                self.pod.commit(Buffer(die, address, nbytes), nbytes)

    def launch(self, calls: Calls) -> None:
        """Attention dies first; the streams poll until these end them."""
        for turn in range(self.config.turns):
            for i in range(self.config.n_attention):
                self._launch_attention(calls, turn, i)
        for die in range(self.config.n_experts):
            self._launch_streams(die)

    def _common(self, cores: int) -> dict[str, Any]:
        c, spec = self.config, self.pod.spec
        at = self.layout.on(spec, self.first_die)
        group = c.group(cores, spec.die_bytes, at.tallies if c.streams else 0)
        return {"core": range(cores), "at": at, "c": group, "m": c.domains(spec.ub_bytes)}

    def _launch_attention(self, calls: Calls, turn: int, i: int) -> None:
        c, buffers = self.config, calls.batches[turn][i]
        app = {name: buffers[name].address for name in ("x", "topk", "weights", "out")}
        more = {"calls": calls.n_calls, "batches": buffers["batches"].address, "b": Addresses(**app)}
        args = self._common(c.cores) | {"turn": turn, "index": i, "work": c.attention_work, **more}
        grants, die, first = self.grants.attention(turn, i), calls.dies(turn)[i], c.microbatch_of(turn) * c.cores
        self._launch(attention_kernel.attention, die, range(first, first + c.cores), args, buffers, grants)

    def _launch_streams(self, die: int) -> None:
        c, buffers, grants = self.config, self.experts[die], self.grants
        streams: list[tuple[Kernel, int, dict[str, Any], list[Grant]]] = [
            (expert_kernels.a2e_stream, c.a2e_cores, {"room": self._gather_room()}, grants.a2e(die)),
            (expert_kernels.compute_stream, c.compute_cores, {"work": c.expert_work}, grants.compute(die)),
            (return_kernel.e2a_stream, c.e2a_cores, {"plan": return_plan(c, self.pod.spec.ub_bytes)}, grants.e2a(die)),
        ]
        first = 0
        for kernel, cores, more, rights in streams:
            rows = Addresses(**{name: buffer.address for name, buffer in buffers.items()})
            args = self._common(cores) | {"die": die, "b": rows, **more}
            self._launch(kernel, self.first_die + die, range(first, first + cores), args, buffers, rights)
            first += cores

    def _launch(
        self, kernel: Kernel, die: int, cores: range, args: Mapping[str, Any], buffers: Buffers, grants: list[Grant]
    ) -> None:
        own = [self.pod.grant(buffers[name], rights) for name, rights in _RIGHTS[kernel.name].items()]
        self.pod.launch(kernel, die, cores, args, [*grants, *own])

    def _gather_room(self) -> int:
        """Messages that fit a half of what the counts leave of an A2E stream's data buffer."""
        return max(1, (self.pod.spec.ub_bytes - self.config.counts_bytes) // 2 // self.config.message_bytes)
