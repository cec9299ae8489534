"""A2E and E2A for users: domains of attention dies, and expert dies whose streams run until the end is announced.

a2e = A2E(pod, A2EConfig(n_domains=2, n_attention=2, n_experts=3, top_k=2, hidden=128))
outputs = a2e.run([Call(tokens, topk, weights), ...])     # [call][attention die]; calls go round the domains

or, to look at what the expert dies have received, or to launch without running:

    calls = Calls(a2e, [...])
    calls.launch()
    a2e.run_launched()
    calls.output(0, i), calls.received(0, die)
"""

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from xccl_emu.kernels.a2e import attention, e2a, expert
from xccl_emu.lang import Kernel
from xccl_emu.machine.pod import Buffer
from xccl_emu.protocols.a2e.calls import AttentionExperts, Call, Calls, of_cores
from xccl_emu.protocols.a2e.config import A2EConfig, return_plan
from xccl_emu.protocols.a2e.layout import A2ELayout

__all__ = ["A2E", "A2EConfig", "Call", "Calls"]


class A2E(AttentionExperts):
    """Attention and expert dies with trampolines between them (xDeepServe 3.3, 5.2).

    `A2EConfig` has the sizes; shapes and types are at `Call`.

    >>> import ml_dtypes, numpy as np, xccl_emu as xe
    >>> sizes = {"n_domains": 1, "n_attention": 1, "n_experts": 2, "hidden": 64, "top_k": 1, "tokens_max": 2}
    >>> a2e = xe.A2E(xe.Pod(xe.small_pod(3, 3)), **sizes)
    >>> x, experts = np.ones((2, 64), ml_dtypes.bfloat16), np.array([[0], [1]])
    >>> a2e.layer([x], [experts], [np.ones((2, 1), np.float32)])[0][:, 0].tolist()  # expert 1 makes 1.125 of a one
    [1.0, 1.125]
    """

    name = "a2e"
    kernels = (attention.attention, expert.a2e_stream, expert.compute_stream, e2a.e2a_stream)
    lays_out = A2ELayout
    layout: A2ELayout

    def commit(self, calls: Calls, call: int, topk: Sequence[NDArray[Any]]) -> None:
        """Slots, staging and returned rows of each attention die; inboxes are filled here and there."""
        c = self.config
        for i, choices in enumerate(topk):
            rows, tokens = len(choices) * c.top_k * c.row_bytes, len(choices) * c.message_bytes
            trampoline, q = c.trampoline_of(i)
            for die, name, element, nbytes in (
                (trampoline, "slots", q, tokens), (trampoline, "staging", call % c.depth * c.fan_in + q, rows),
                (c.attention_die(call, i), "returned", c.microbatch_of(call), rows),
            ):  # fmt: skip
                self.pod.commit(Buffer(self.first_die + die, self.layout.at(name, die, element), nbytes), nbytes)

    def launch(self, calls: Calls) -> None:
        """Attention dies first; the streams poll until these end them."""
        for turn in range(self.config.turns):
            for i in range(self.config.n_attention):
                self._launch_attention(calls, turn, i)
        for die in range(self.config.n_experts):
            self._launch_streams(calls, die)

    def _kernels(self) -> Sequence[Kernel]:
        """Return what is launched on attention dies, and for each stream of an expert die."""
        return attention.attention, expert.a2e_stream, expert.compute_stream, e2a.e2a_stream

    def _also(self, kernel: Kernel, die: int, calls: Calls) -> dict[str, Any]:
        """Return the arguments of a kernel on the n-th die, in addition to every A2E's."""
        return {}

    def _common(self, cores: int) -> dict[str, Any]:
        c, spec = self.config, self.pod.spec
        group = c.group(c.n_experts, cores, spec.die_bytes, self.layout.at("tallies"))
        return {"c": group, "m": c.domains(spec.ub_bytes)}

    def _launch_attention(self, calls: Calls, turn: int, i: int) -> None:
        c, layout, die = self.config, self.layout, calls.dies(turn)[i]
        first = c.microbatch_of(turn) * c.cores
        kernel = self._kernels()[0]
        args = self._common(c.cores) | {"at": layout.microbatch(turn, i), "calls": calls.n_calls}
        args |= self._also(kernel, die - self.first_die, calls) | of_cores(kernel, c.cores, calls.batches[turn][i])
        self.pod.launch(kernel, die, range(first, first + c.cores), args)

    def _launch_streams(self, calls: Calls, die: int) -> None:
        c, first = self.config, 0
        for kernel, cores in zip(self._kernels()[1:], (c.a2e_cores, c.compute_cores, c.e2a_cores), strict=True):
            plan = {"plan": return_plan(c, self.pod.spec.ub_bytes)} if "plan" in kernel.params else {}
            args = self._common(cores) | {"at": self.layout.places(die), "die": die, **plan}
            args |= self._also(kernel, die, calls) | of_cores(kernel, cores, self.experts[die])
            self.pod.launch(kernel, self.first_die + die, range(first, first + cores), args)
            first += cores
