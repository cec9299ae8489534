"""What the kernels of A2E and E2A may touch: no more than they need."""

from dataclasses import dataclass

from xccl_emu.kernels.a2e_parameters import Places, dies_of, first_of
from xccl_emu.kernels.counts import FIELD_BYTES
from xccl_emu.machine.launch import Grant
from xccl_emu.machine.spec import PodSpec
from xccl_emu.protocols.a2e_layout import MANAGED, A2EConfig, A2ELayout

ATTENTION_RIGHTS = {"batches": "r", "x": "r", "topk": "r", "weights": "r", "out": "w"}
A2E_RIGHTS = {"recv_x": "w", "route": "w", "counts": "rw"}
COMPUTE_RIGHTS = {"recv_x": "r", "route": "r", "counts": "r", "y": "w"}
E2A_RIGHTS = {"route": "r", "counts": "r", "y": "r"}
"""What each kernel may do with the app buffers of its die."""


@dataclass(frozen=True)
class A2EGrants:
    """Permissions in the managed and metadata areas; dies are counted from the group's first one."""

    spec: PodSpec
    config: A2EConfig
    layout: A2ELayout
    first_die: int

    def attention(self, turn: int, index: int) -> list[Grant]:
        """A microbatch of an attention die: slots and fields for it at its trampoline, and its own."""
        c = self.config
        die, microbatch = c.attention_die(turn, index), c.microbatch_of(turn)
        trampoline, q = c.trampoline_of(index)
        batch, fields = c.tokens_max * c.message_bytes, c.a2e_parts * FIELD_BYTES
        return [
            self._of(die, "credit", "r", microbatch),
            self._of(die, "returned_in", "r", microbatch),
            self._of(die, "returned", "r", microbatch),
            self._of(die, "outbox", "rw", microbatch),
            self._at(die, "attended", "rw"),
            self._at(trampoline, "slots", "w", q * batch, batch),
            self._at(trampoline, "tokens_in", "w", (turn * c.fan_in + q) * fields, fields),
        ]

    def a2e(self, die: int) -> list[Grant]:
        """The A2E stream of an expert die."""
        c = self.config
        grants = [
            self._at(die, "inbox", "r"), self._at(die, "counts", "r"), self._at(die, "sent", "r"),
            self._at(die, "assembled", "w"), self._at(None, "acks", "w"),
        ]  # fmt: skip
        if die >= c.trampolines:
            return grants
        first, dies = (of(die, c.n_attention, c.trampolines) for of in (first_of, dies_of))
        messages, fields = c.local_experts * c.tokens_max * c.message_bytes, c.local_experts * FIELD_BYTES
        own = [self._at(die, name, "r") for name in ("slots", "tokens_in", "acks", "relayed")]
        own += [self._at(die, "tallies", "rw")] if c.streams else []
        return [
            *grants, *own, self._at(die, "lists", "w"), self._at(None, "credit", "w"),
            self._at(None, "inbox", "w", first * messages, dies * messages),
            self._at(None, "counts", "w", first * fields, dies * fields),
        ]  # fmt: skip

    def compute(self, die: int) -> list[Grant]:
        """The compute stream of an expert die."""
        return [self._at(die, "assembled", "r"), self._at(die, "computed", "w")]

    def e2a(self, die: int) -> list[Grant]:
        """The E2A stream of an expert die."""
        grants = [
            self._at(die, "computed", "r"), self._at(die, "sent", "w"),
            self._at(None, "staging", "w"), self._at(None, "arrivals", "w"),
        ]  # fmt: skip
        if die >= self.config.trampolines:
            return grants
        own = [self._at(die, name, "r") for name in ("arrivals", "lists", "staging")]
        back = [self._at(None, name, "w") for name in ("returned", "returned_in")]
        return [*grants, *own, *back, self._at(die, "relayed", "w")]

    def _of(self, die: int, name: str, rights: str, microbatch: int) -> Grant:
        """What a region of an attention die has for one of its microbatches."""
        each = getattr(self.layout.sizes, name) // self.config.microbatches
        return self._at(die, name, rights, microbatch * each, each)

    def _at(self, die: int | None, name: str, rights: str, start: int = 0, nbytes: int | None = None) -> Grant:
        """A region or some fields, or a part of them; on any die if none is given."""
        number = Places._fields.index(name)
        area = self.spec.managed_start if name in MANAGED else self.spec.meta_start
        first = area + self.layout.offsets[number] + start
        size = self.layout.sizes[number] if nbytes is None else nbytes
        return Grant(None if die is None else self.first_die + die, first, first + size, rights)
