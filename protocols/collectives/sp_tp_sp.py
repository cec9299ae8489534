"""All-gather and all-to-all of staged parallelism in prefill, SP-TP-SP, as a case ([CloudMatrix384] 4.3.1)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from xccl_emu.base.errors import ConfigError
from xccl_emu.kernels.collectives.slices import Packed
from xccl_emu.kernels.collectives.sp_tp_sp import segment, sp_tp_sp
from xccl_emu.kernels.group import align
from xccl_emu.machine.pod import Pod
from xccl_emu.protocol import Bench, Call, Preset, Regions, choice, size
from xccl_emu.protocol.streams import StreamCase, Streams, of_call, seed_of
from xccl_emu.protocols.collectives.case import BYTES_MAX, numbers
from xccl_emu.protocols.collectives.layout import ExchangeLayout
from xccl_emu.protocols.experts.config import DTYPES


@dataclass(frozen=True)
class SpTpSpCase(StreamCase):
    """Layers of prefill between their stages: tokens of packed prompts in segments, heads on ranks, segments again."""

    side_by_side = True
    presets: ClassVar[tuple[Preset, ...]] = (
        Preset("sp-tp-sp", "All-gather and all-to-all between the stages of attention in prefill"),
    )

    ranks: int = size(3, "Ranks, one a die.", least=2, most=768)
    tokens: int = size(4, "Tokens of all prompts, packed.", examples=(1, 2, 3), each_call=True)
    latent: int = size(16, "Elements of a token's latent, after the down projection.", most=16384)
    part: int = size(16, "Elements that the heads of a rank make of a token.", most=16384)
    layers: int = size(2, "Layers one after the other, in one kernel.", examples=(1, 3), each_call=True)
    dtype: str = choice("bf16", "Type of the elements.", of=DTYPES)
    seed: int = size(0, "Of the values.", least=0, most=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        nbytes = 2 * self.layers * self.ranks * self.tokens * (self.latent + self.part)
        if nbytes > BYTES_MAX:
            raise ConfigError("tokens", self.tokens, f"buffers take {nbytes} bytes, must be at most {BYTES_MAX}")

    def lay_out_calls(self, bench: Bench, calls: Sequence[Call]) -> None:
        """Slots with room for the longest segment of all calls, and a launch for each."""
        cases = [call.case for call in calls if isinstance(call.case, SpTpSpCase)]
        row, longest = 2 * max(self.latent, self.part), -(-max(case.tokens for case in cases) // self.ranks)
        regions, half = Regions(self.ranks), align(row)
        layout = ExchangeLayout(regions, self.ranks, 1, align(longest * row))
        app = sum(case._app_bytes for case in cases) + Streams.table_bytes(len(cases), sp_tp_sp)
        pod = regions.pod(bench, app_bytes=app, ub_bytes=2 * half)
        streams, done = Streams(bench, pod), 0
        for number, case in enumerate(cases):
            case._lay_out_call(bench, pod, streams, layout, number, done)
            done += case.layers
        streams.put()
        bench.tolerates("stop", "cut", "stall")

    def _lay_out_call(
        self, bench: Bench, pod: Pod, streams: Streams, layout: ExchangeLayout, number: int, done: int
    ) -> None:
        """A rank has its segment of the latents, and what its heads made of all tokens."""
        seed, call = seed_of(self.seed, 2 * number), of_call(number)
        latents = numbers((self.layers, self.tokens, self.latent), self.dtype, seed)
        heads = numbers((self.ranks, self.layers, self.tokens, self.part), self.dtype, [self.seed, 2 * number + 1])
        for me in range(self.ranks):
            mine = slice(segment(me, self.ranks, self.tokens), segment(me + 1, self.ranks, self.tokens))
            owner = f"die{me}"
            has = bench.filled(me, latents[:, mine], f"latents{call}"), bench.filled(me, heads[me], f"heads{call}")
            back = np.ascontiguousarray(heads[:, :, mine].transpose(1, 2, 0, 3))
            gathered = bench.wanted(me, latents, f"gathered{call}", owners=owner)
            gets = gathered, bench.wanted(me, back, f"out{call}", owners=owner)
            (peers,) = layout.given(pod, me, 0, 0, 0, 0)
            packed = Packed(
                self.tokens, 2 * self.latent, 2 * self.part, align(2 * max(self.latent, self.part)), self.layers,
                has[0].address, gets[0].address, has[1].address, gets[1].address, done,
            )  # fmt: skip
            pod.launch(sp_tp_sp, me, [0], {"k": packed, "p": peers}, after=streams)

    @property
    def _app_bytes(self) -> int:
        longest, each = -(-self.tokens // self.ranks), 2 * self.layers
        sides = (longest * self.latent, self.tokens * self.latent, self.tokens * self.part)
        return sum(align(each * side) for side in (*sides, longest * self.ranks * self.part))

    proof_rows: ClassVar = {
        "three ranks, four tokens": {},
        "two ranks, three tokens, three layers": dict(ranks=2, tokens=3, layers=3),
        "three ranks, two tokens": dict(tokens=2, layers=3),
    }
