"""Dispatch, combine, and both with the dummy expert between them, as cases ([xDeepServe] 3.2); and with a supervisor
that may abort any iteration at any moment ([xDeepServe] 6.2).

Nobody waits for all ranks between two launches, so that a fast rank may be a round ahead of a slow one.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from xccl_emu.kernels.pull import abortable_experts as device
from xccl_emu.machine.pod import Pod
from xccl_emu.protocol import Bench, Preset, choice, read_papers, size, switch
from xccl_emu.protocols.experts import layout as app
from xccl_emu.protocols.experts.case import COUNTING_HELP, USUAL, LayerCase
from xccl_emu.protocols.experts.config import EpConfig
from xccl_emu.protocols.experts.data import PhasesImage
from xccl_emu.protocols.experts.layout import COMBINE, DISPATCH, EpLayout
from xccl_emu.protocols.experts.restarted import RestartedCase, RestartedGroup, RestartedLayout
from xccl_emu.protocols.experts.routed import PAGE
from xccl_emu.protocols.pull.session import ExpertParallel

_COMBINE_INPUTS = ("pos", "counts", "y")
_DECODE = {"ranks": 288, "cores": 4, "tokens": 60, **USUAL, "redundant": 0}
"""Sizes of a decode step: 256 of 288 dies have a routed expert each, 32 the shared one (a token's rank mod 32)."""
_PAIRS = {"ranks": 2, "cores": 2, "tokens": 3, "rounds": 2}


@dataclass(frozen=True)
class MoeCase(LayerCase):
    """A small expert-parallel group that runs dispatch, a dummy expert and combine, ``rounds`` times."""

    presets: ClassVar[tuple[Preset, ...]] = (
        Preset("moe", "Dispatch, a dummy expert, combine, one launch after the other", {}, _PAIRS | {"granules": 2}),
    )
    papers = read_papers("pull")
    group, config = ExpertParallel, EpConfig
    written: ClassVar[tuple[str, ...]] = ("recv_x", "route", "counts", "pos", "y", "out")

    counting: str = choice("auto", COUNTING_HELP, of=EpConfig.COUNTINGS)
    path: str = choice("mtu", "How data is pulled.", of=EpConfig.PATHS)
    quantized_back: int = switch(0, "INT8 on the way back, too.", also="quantize-back")
    seed: int = size(0, "Of hidden states and weights.", least=0, most=None)

    # ---- what it is made of

    def _config(self) -> EpConfig:
        return EpConfig(**self._shape, counting=self.counting, path=self.path, quantized_back=bool(self.quantized_back))

    @property
    def _under_way(self) -> int:
        c = self._config()
        return c.message_bytes + c.row_bytes + min(2 * PAGE, c.row_bytes)

    proof_usual: ClassVar = dict(ranks=2, tokens=2, granules=4, rounds=2)
    proof_rows: ClassVar = {
        "two ranks, two tokens": {},
        "three ranks, one token": dict(ranks=3, tokens=1, granules=2, rounds=3),
        "four ranks, one token": dict(ranks=4, tokens=1, granules=1, rounds=1),
        "a rank with no tokens": dict(tokens=(2, 0), rounds=3),
        "two cores a rank": dict(cores=2),
        "counted in scalar loops": dict(cores=2, counting="scalar"),
        "INT8 on the way back": dict(tokens=1, cores=2, top_k=2, quantized_back=1),
        "an expert chosen twice": dict(tokens=1, granules=1, top_k=3, cores=2, repeats=1),
    }


@dataclass(frozen=True)
class DispatchCase(MoeCase):
    """Dispatch alone, ``rounds`` times; on the whole pod all of a layer, and combine too.  Sizes: see `MoeCase`."""

    presets = (
        Preset(
            "dispatch", "Pull dispatch of tokens to the dies of their experts", {}, _PAIRS | {"granules": 1}, _DECODE
        ),
        Preset("dispatch-scalar", "Places counted in scalar loops", {"counting": "scalar"}, _PAIRS | {"granules": 1}),
    )
    papers = read_papers("pull", "Pull dispatch")
    parts = (DISPATCH,)
    written = ("recv_x", "route", "counts", "pos")


@dataclass(frozen=True)
class CombineCase(MoeCase):
    """Combine alone, ``rounds`` times, of what dispatch and the experts would have left; sizes: see `MoeCase`."""

    presets = (
        Preset("combine", "Pull combine of what the experts return", {}, _PAIRS | {"granules": 2}),
        Preset("combine-int8", "Quantized on the way back", {"quantized_back": 1}, _PAIRS | {"granules": 2}),
    )
    papers = read_papers("pull", "Pull combine")
    parts = (COMBINE,)
    written = ("out",)
    proof_rows: ClassVar = {  # a row that comes back has two granules at least, as hidden states are of whole 64 bytes
        what: {**sizes, "granules": max(2, sizes.get("granules", 4))} for what, sizes in MoeCase.proof_rows.items()
    }

    quantized: int = switch(0, "INT8 on the wire in dispatch.", also="quantize")

    def _fill(self, bench: Bench, pod: Pod, buffers: app.Buffered, image: PhasesImage) -> None:
        for name in _COMBINE_INPUTS:
            raw = np.frombuffer(image.written(name).tobytes(), np.uint8)
            pod.view(buffers[name])[: raw.size] = raw
            bench.already_filled(*image.parts(name, buffers))


class PullRestartedLayout(RestartedLayout[EpConfig], EpLayout):
    """The regions of `EpLayout` and the words of a rollback."""


class RestartedExperts(RestartedGroup[EpConfig], ExpertParallel):
    """A group that pulls, whose rounds are launched at once."""

    kernel = device.rank
    lays_out = PullRestartedLayout
    layout: PullRestartedLayout


@dataclass(frozen=True)
class MoeRollback(RestartedCase, MoeCase):
    """Layers of `MoeCase`; a supervisor on one more die aborts what is under way, and it is executed again."""

    presets: ClassVar[tuple[Preset, ...]] = (
        Preset(
            "rollback-moe",
            "Layers that are aborted at any moment, and executed again (xDeepServe 6.2)",
            {"tokens": 1, "granules": 2},
        ),
    )
    papers = (*read_papers("pull"), *read_papers("rollback"))
    group = RestartedExperts

    proof_usual: ClassVar = dict(ranks=2, tokens=1, granules=1)
    proof_rows: ClassVar = {
        "two rounds, an abort": {},
        "an abort of a rollback": dict(aborts=2, rounds=1),
        "a round of each rank goes wrong": dict(failures=1, aborts=0),
        "two cores a rank": dict(cores=2, rounds=1),
    }


@dataclass(frozen=True)
class DispatchRollback(MoeRollback):
    """Dispatch alone of `MoeRollback`."""

    presets = (
        Preset(
            "rollback-dispatch",
            "Dispatch that is aborted at any moment, and executed again",
            {"tokens": 1, "granules": 1},
            {"cores": 2},
        ),
    )
    papers = (*read_papers("pull", "Pull dispatch"), *read_papers("rollback"))
    parts = (DISPATCH,)
    written = ("recv_x", "route", "counts", "pos")
    proof_rows: ClassVar = {**MoeRollback.proof_rows, "three ranks": dict(ranks=3, rounds=1)}
