"""Heartbeats as a case: a shell, masters and executors; one executor may hang ([xDeepServe] 6.1)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from xccl_emu import protocol
from xccl_emu.base.errors import ConfigError
from xccl_emu.kernels.serving import heartbeat

NONE = -1
_KNOWN = {"patient": 1}


@dataclass(frozen=True)
class Heartbeat(protocol.Case):
    """The shell is on CPU 0, masters are on the CPUs after it, executors on dies; the first executor may hang.

    Time-outs may pass at any moment, so that everybody returns, whatever stops or is cut.  With ``patient`` one passes
    only where a turn does not end, and who was silent is expected word for word.  Which beats its master still answers
    depends on the schedule, unless it hangs in the first turn: then none.  The shell's own checks end a run that calls
    a master silent that is not, or misses one that is.
    """

    papers = protocol.read_papers("serving.heartbeat")
    presets: ClassVar[tuple[protocol.Preset, ...]] = (
        protocol.Preset("heartbeat", "An executor hangs, and its master is silent (xDeepServe 6.1)", {}, _KNOWN),
    )

    masters: int = protocol.size(1, "Masters, one of each DP group.", most=32)
    executors: int = protocol.size(1, "Executors of each master.", most=32)
    beats: int = protocol.size(1, "Heartbeats.", most=1 << 10)
    turns: int = protocol.size(1, "Turns of each master's loop.", most=1 << 10)
    hangs: int = protocol.size(0, "Turn in which the first executor hangs; -1: in none.", least=NONE, most=1 << 10)
    patient: int = protocol.switch(0, "Does a time-out pass only where a turn does not end?")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hangs >= self.turns:
            raise ConfigError("hangs", self.hangs, f"must be less than turns={self.turns}, or -1 for none")

    def lay_out(self, bench: protocol.Bench) -> None:
        """Words are alike on all dies and CPUs."""
        dies, field = self.masters * self.executors, heartbeat.FIELD_BYTES
        regions = protocol.Regions(dies, cpus=1 + self.masters)
        beat, over, work = (regions.meta(name, field) for name in ("beat", "over", "work"))
        answers, stalled, hung = (regions.meta(name, field, self.masters) for name in ("answer", "stalled", "hung"))
        replies, hangs = (regions.meta(name, field, self.executors) for name in ("reply", "hang"))
        pod = regions.pod(bench, app_bytes=max(32, 8 * self.beats), ub_bytes=0, draw_answers=not self.patient)
        shell = pod.cpu(0)
        tree = heartbeat.Tree(
            self.masters, self.executors, self.beats, self.turns, self.patient, pod.spec.die_bytes, shell, beat.at(0),
            answers.at(shell), stalled.at(shell), hung.at(shell), over.at(0), work.at(0), replies.at(0), hangs.at(0),
        )  # fmt: skip
        silent = pod.alloc(shell, 8 * self.beats)
        bench.label_buffer(silent, "silent")
        if self.patient and self.hangs <= 0:
            each = np.full(self.beats, self.hangs + 1, np.int64)  # the first master's bit, or none
            bench.expect(silent.address, each, "silent masters", owners="cpu0")
        cpus = range(shell + 1, shell + 1 + self.masters)
        of_all = tree._replace(beat=beat.at(0).on(*cpus), over=over.at(0).on(*cpus))
        pod.launch(heartbeat.shell, shell, [0], {"silent": silent.address, "t": of_all})
        for m, cpu in enumerate(cpus):
            own = range(m * self.executors, (m + 1) * self.executors)
            of_m = tree._replace(
                answers=answers.at(shell).only(m), stalled=stalled.at(shell).only(m), hung=hung.at(shell).only(m),
                over=over.at(0).on(*own), work=work.at(0).on(*own),
            )  # fmt: skip
            pod.launch(heartbeat.master, cpu, [0], {"m": m, "t": of_m})
            for e, die in enumerate(own):
                of_e = of_m._replace(replies=replies.at(0).on(cpu).only(e), hangs=hangs.at(0).on(cpu).only(e))
                args = {"m": m, "e": e, "hangs": self.hangs if die == 0 else NONE}
                pod.launch(heartbeat.executor, die, [0], {**args, "t": of_e})
        bench.tolerates("stall", *(() if self.patient else ("stop", "cut")), may_block=bool(self.patient))

    proof_usual: ClassVar = dict(masters=2, turns=2, patient=1)
    proof_rows: ClassVar = {
        "hangs in the first turn": {},
        "nobody hangs": dict(hangs=NONE),
        "hangs later": dict(hangs=1),
        "one master, two beats": dict(masters=1, beats=2, hangs=1),
        "one master, two executors": dict(masters=1, executors=2),
        "time-outs at any moment": dict(masters=1, turns=1, patient=0),
    }
