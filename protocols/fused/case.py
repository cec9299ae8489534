"""FusedDispatch, dummy expert and FusedCombine as a case ([CloudMatrix384] 4.2.1); and with a
supervisor that may abort any iteration at any moment ([xDeepServe] 6.2).

Nobody waits for all ranks between two launches, so that a fast rank may be ahead of a slow one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from xccl_emu.kernels.fused import abortable_layer as device
from xccl_emu.protocol import Preset, choice, read_papers, size, switch
from xccl_emu.protocols.experts.case import COUNTING_HELP, USUAL, USUAL_RANKS, LayerCase
from xccl_emu.protocols.experts.data import Batch, choice_steps
from xccl_emu.protocols.experts.restarted import RestartedCase, RestartedGroup, RestartedLayout
from xccl_emu.protocols.experts.routed import PAGE
from xccl_emu.protocols.fused.session import FusedConfig, FusedExpertParallel, FusedLayout

_SWITCHES = ("early_quantization", "preallocated", "pipelined", "double_buffered")


@dataclass(frozen=True)
class FusedCase(LayerCase):
    """A small group that runs ``rounds`` rounds of a layer; what a fast rank can do shows from the third on."""

    presets: ClassVar[tuple[Preset, ...]] = (
        Preset(
            "fused",
            "CANN's FusedDispatch and FusedCombine",
            {},
            {"ranks": 2, "cores": 2, "tokens": 3, "rounds": 3},
            {"ranks": USUAL_RANKS, "cores": 4, "tokens": 96, **USUAL, "redundant": -1},
        ),
        Preset(
            "fused-scalar",
            "Places counted in scalar loops",
            {"counting": "scalar"},
            {"ranks": 2, "cores": 2, "tokens": 3, "rounds": 1},
        ),
    )
    papers = read_papers("fused")
    group, config = FusedExpertParallel, FusedConfig
    written: ClassVar[tuple[str, ...]] = ("recv_x", "route", "counts", "y", "out")

    cores: int = size(2, "Cores of each rank.", most=1 << 10)
    granules: int = size(1, "Granules of 32 bytes of a token; 224 are the true size.")
    rounds: int = size(3, "Layers one after the other.")
    masked: int = switch(0, "Is the first choice of each rank's last token masked?")
    counting: str = choice("auto", COUNTING_HELP, of=FusedConfig.COUNTINGS)
    path: str = choice("aiv", "Who writes to the peers: the cores, or the SDMA engine.", of=FusedConfig.PATHS)
    early_quantization: int = switch(1, "Quantize before sending, or when it came.", also="early/late")
    preallocated: int = switch(1, "A region for each source, else counts first.", also="preallocate")
    pipelined: int = switch(1, "Load and quantize a token while one is sent.", also="pipeline")
    double_buffered: int = switch(
        1, "Messages and contributions in buffers of their own.", also="double-buffer", examples=(1,)
    )
    seed: int = size(0, "Of hidden states and weights.", least=0, most=None)

    @property
    def published_bytes(self) -> Mapping[str, int]:
        """CANN's operators check it against HCCL_BUFFSIZE (`moe_distribute_dispatch_v2`): twice what comes and goes."""
        c = self._config()
        dispatched, combined = (-(-nbytes // 512) * 512 for nbytes in (2 * c.hidden + 44, 2 * c.hidden))
        total = 2 * c.tokens_max * (dispatched * c.n_slots + combined * c.top_k)
        return {f"CANN, moe_distribute_dispatch_v2: HCCL_BUFFSIZE={(total >> 20) + 1}": total}

    # ---- what it is made of

    def _config(self) -> FusedConfig:
        switches: dict[str, Any] = {name: bool(getattr(self, name)) for name in _SWITCHES}
        return FusedConfig(**self._shape, counting=self.counting, path=self.path, **switches)

    def _pattern(self, rounds: Sequence[Sequence[int]]) -> list[Batch]:
        return [replace(batch, topk=self._slots(i, rounds[i])) for i, batch in enumerate(super()._pattern(rounds))]

    def _slots(self, i: int, lengths: Sequence[int]) -> list[NDArray[np.int32]]:
        """[T, top_k] slots for each rank: its tokens go round the ranks, and all to one in every third round.

        So where a token goes its neighbour has gone the round before, which a core that is ahead could overwrite.
        """
        apart = 0 if i % 3 == 2 else 1
        n_slots, k = self.ranks * self.experts, choice_steps(self._config())
        topk = []
        for rank, n in enumerate(lengths):
            first = (rank + 1 + i + apart * np.arange(n)) * self.experts
            choices = ((first[:, None] + k) % n_slots).astype(np.int32)
            if self.masked:
                choices[-1:, 0] = -1
            topk.append(choices)
        return topk

    @property
    def _under_way(self) -> int:
        c = self._config()
        return c.message_bytes + (min(PAGE, c.wire_bytes) if c.preallocated else 0) + c.row_bytes

    proof_usual: ClassVar = dict(ranks=2, cores=2, tokens=2, rounds=3)
    proof_rows: ClassVar = {
        "two ranks, two tokens": {},
        "three ranks, one token": dict(ranks=3, tokens=1),
        "one core": dict(cores=1),
        "two experts a die": dict(experts=2, top_k=2),
        "a masked choice": dict(masked=1),
        "a rank with no tokens": dict(tokens="2,0"),
        "SDMA": dict(path="sdma"),
        "late quantization": dict(early_quantization=0),
        "nothing quantized": dict(quantized=0, granules=2),
        "no allocation in advance": dict(preallocated=0),
        "no pipeline": dict(pipelined=0),
        "counted in scalar loops": dict(counting="scalar"),
        "an expert chosen twice": dict(cores=1, tokens=1, top_k=2, repeats=1),
    }


class FusedRestartedLayout(RestartedLayout[FusedConfig], FusedLayout):
    """The regions of `FusedLayout` and the words of a rollback."""


class RestartedFused(RestartedGroup[FusedConfig], FusedExpertParallel):
    """A group whose ranks write to each other, whose rounds are launched at once."""

    kernel = device.rank
    lays_out = FusedRestartedLayout
    layout: FusedRestartedLayout


@dataclass(frozen=True)
class FusedRollback(RestartedCase, FusedCase):
    """Layers of `FusedCase`; a supervisor on one more die aborts what is under way, and it is executed again."""

    presets: ClassVar[tuple[Preset, ...]] = (
        Preset(
            "rollback-fused",
            "FusedDispatch and FusedCombine that are aborted at any moment, and executed again",
            {"tokens": 1, "cores": 1, "rounds": 2},
        ),
    )
    papers = (*read_papers("fused"), *read_papers("rollback"))
    group = RestartedFused

    proof_usual: ClassVar = dict(ranks=2, tokens=1, cores=1, rounds=2)
    proof_rows: ClassVar = {
        "two rounds, an abort": {},
        "an abort of a rollback": dict(rounds=1, aborts=2),
        "a round of each rank goes wrong": dict(failures=1, aborts=0),
        "two cores a rank": dict(cores=2, rounds=1),
        "no allocation in advance": dict(preallocated=0),
        "SDMA": dict(path="sdma"),
    }
