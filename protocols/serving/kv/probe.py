"""Probes of the link next to a channel of KV blocks, as a case ([xDeepServe] 6.1)."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from xccl_emu import protocol
from xccl_emu.base import errors
from xccl_emu.kernels import common
from xccl_emu.kernels.group import align
from xccl_emu.kernels.serving.kv import probe
from xccl_emu.kernels.serving.kv.pair import FIELD_BYTES
from xccl_emu.machine.pod import Buffer


@dataclass(frozen=True)
class ProbeCase(protocol.Case):
    """A prefill die sends KV blocks to a decode die, and probes it when they stand: is the link cut, or decode full?

    Both sides have time-outs, which may pass at any moment: so what is expected is that a link that is cut is found to
    be so, and that everybody returns, whatever stops or is cut.  With ``patient`` a time-out passes only where no
    answer comes, and what the prober finds is expected word for word.  While decode frees slots, and has not one for
    each block, it may be full at a moment or not, and that alone is left open.
    """

    presets: ClassVar[tuple[protocol.Preset, ...]] = (
        protocol.Preset(
            "probe", "Probes that distinguish a cut link from full decode", {},
            {"probes": 2, "answers": 1, "patient": 1},
        ),
    )  # fmt: skip
    papers = protocol.read_papers("serving.kv", "Link probing")

    requests: int = protocol.size(2, "KV blocks.", most=1 << 10)
    slots: int = protocol.size(1, "Blocks of the decode die.", most=1 << 10)
    stands: int = protocol.switch(1, "Does decode free no slot?")
    probes: int = protocol.size(1, "Probes.", most=1 << 10)
    answers: int = protocol.size(-1, "Answers before the link is cut; -1: it is not.", least=-1, most=1 << 10)
    patient: int = protocol.switch(0, "Does a time-out pass only where no answer comes?")
    granules: int = protocol.size(1, "Granules of 32 bytes of a block.", most=1 << 10)
    seed: int = protocol.size(0, "Of the blocks.", least=0, most=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.answers >= self.probes:
            raise errors.ConfigError("answers", self.answers, f"must be less than probes={self.probes}, or -1 for all")
        if self.answers >= 0 and not self.stands:
            raise errors.ConfigError("answers", self.answers, "must be -1 with stands=0, where all blocks arrive")

    def lay_out(self, bench: protocol.Bench) -> None:
        """Prefill and the prober are die 0, the receiver and the decode step die 1."""
        nbytes, fits = 32 * self.granules, min(self.slots, self.requests)
        data = protocol.payload(self.requests * nbytes, self.seed)
        regions = protocol.Regions(2)
        slots = regions.managed("slot", nbytes, self.slots)
        task, done, ready, freed, asked, answer, late = (
            regions.meta(name, FIELD_BYTES) for name in ("task", "done", "ready", "freed", "probe", "answer", "late")
        )
        app = data.nbytes + 2 * align(8 * self.probes)
        pod = regions.pod(bench, app_bytes=app, ub_bytes=common.ROWS * nbytes, cores=2, draw_answers=not self.patient)
        blocks = bench.filled(0, data, "blocks", travels=True)
        answers = self.probes if self.answers < 0 else self.answers
        channel = probe.ProbePlaces(
            blocks.address, task.at(1), done.at(0), slots.at(1), ready.at(1), freed.at(1), asked.at(1), answer.at(0),
            late.at(0), self.slots, nbytes, self.requests, fits if self.stands else self.requests, self.probes, answers,
            self.patient,
        )  # fmt: skip
        pod.launch(probe.announce, 0, [0], {"c": channel})
        links, fulls = (pod.alloc(0, 8 * self.probes) for _ in range(2))
        bench.label_buffer(links, "link is cut")
        bench.label_buffer(fulls, "decode is full")
        self._expect(bench, links, fulls, answers)
        args: dict[str, Any] = {"links": links.address, "fulls": fulls.address, "moved": fits}
        pod.launch(probe.probe, 0, [1], {**args, "c": channel})
        pod.launch(probe.progress, 1, [0], {"c": channel})
        if not self.stands:
            out = pod.alloc(1, data.nbytes)
            bench.label_buffer(out, "out")
            if self.patient:
                bench.expect(out.address, data, "out of die 1", owners="die1.core1")
            pod.launch(probe.decode, 1, [1], {"out": out.address, "c": channel})
        bench.tolerates("stall", *(() if self.patient else ("stop", "cut")), may_block=bool(self.patient))

    def _expect(self, bench: protocol.Bench, links: Buffer, fulls: Buffer, answers: int) -> None:
        """Expect what the prober must find, for the probes where it is known."""
        cut, known = np.arange(self.probes) >= answers, 0 if self.patient else answers
        full = ~cut & (self.slots <= self.requests)
        found = [(links, cut, "link is cut")]
        found += [(fulls, full, "decode is full")] if self.stands or self.slots > self.requests else []
        for buffer, each, name in found if known < self.probes else ():
            bench.expect(buffer.address + 8 * known, each[known:].astype(np.int64), name, owners="die0.core1")

    proof_usual: ClassVar = dict(probes=2, patient=1)
    proof_rows: ClassVar = {
        "decode is full": {},
        "decode is full, then the link is cut": dict(answers=1),
        "the link is cut": dict(answers=0),
        "decode is full at times": dict(stands=0, requests=3),
        "decode has room": dict(stands=0, slots=3),
        "blocks of two granules": dict(granules=2),
        "time-outs at any moment": dict(probes=1, patient=0),
        "the link is cut, time-outs at any moment": dict(answers=0, probes=1, patient=0),
    }
