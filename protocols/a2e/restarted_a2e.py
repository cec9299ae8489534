"""A2E and E2A with a supervisor that may abort any call at any moment ([xDeepServe] 6.2)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from xccl_emu.base.errors import ConfigError
from xccl_emu.kernels import rollback
from xccl_emu.kernels.a2e import abortable_calls as device
from xccl_emu.kernels.experts.counts import FIELD_BYTES
from xccl_emu.lang import Kernel
from xccl_emu.machine.pod import Pod
from xccl_emu.protocol import Bench, Preset, read_papers, size
from xccl_emu.protocols.a2e.calls import Call, Calls
from xccl_emu.protocols.a2e.case import A2ECase
from xccl_emu.protocols.a2e.config import A2EConfig
from xccl_emu.protocols.a2e.layout import A2ELayout
from xccl_emu.protocols.a2e.session import A2E
from xccl_emu.protocols.rollback import own_words


class RestartedA2ELayout(A2ELayout):
    """The regions of A2E and the words of a rollback; see `kernels/rollback` and `kernels/a2e/abortable_calls`."""

    def _sizes(self) -> Mapping[str, tuple[int, int]]:
        words = {"ready": self.config.n_dies, "done": self.config.n_dies, "settled": device.STREAMS}
        words |= dict.fromkeys(("end", "abort", "told", "errors"), 1)
        return {**super()._sizes(), **{name: (FIELD_BYTES, count) for name, count in words.items()}}

    def label(self, bench: Bench) -> None:
        """Name the regions in reports, on the supervisor's die too."""
        super().label(bench)
        for label in (each for region in self.of.values() for each in region.labels(self.dies.stop, 0)):
            bench.label(*label)


class RestartedA2E(A2E):
    """A2E with a supervisor on the die after its own; for aborts and failures see `A2ERollback`."""

    name = "rollback-a2e"
    kernels = (device.attention_again, device.a2e_again, device.compute_again, device.e2a_again)
    lays_out = RestartedA2ELayout
    layout: RestartedA2ELayout

    def __init__(self, pod: Pod, config: A2EConfig, *, aborts: int = 0, failures: int = 0) -> None:
        super().__init__(pod, config)
        self._aborts, self._failures = aborts, failures

    def _kernels(self) -> Sequence[Kernel]:
        return device.attention_again, device.a2e_again, device.compute_again, device.e2a_again

    def launch(self, calls: Calls) -> None:
        """The streams, and the supervisor."""
        super().launch(calls)
        known = {"aborts": self._aborts, "r": self._ranks(0, calls)}
        self.pod.launch(rollback.supervise, self.layout.dies.stop, [0], known)

    def _ranks(self, me: int, calls: Calls) -> rollback.RankWords:
        at, of = self.layout.at, self.layout.of
        return rollback.RankWords(
            me, self.config.n_dies, calls.n_calls, at("ready"), at("done"), at("end"), at("abort"),
            of["errors"].at(self.layout.dies.stop), self.pod.spec.die_bytes,
        )  # fmt: skip

    def _also(self, kernel: Kernel, die: int, calls: Calls) -> dict[str, Any]:
        c, layout, of = self.config, self.layout, self.layout.of
        even = math.lcm(c.turns, c.depth, c.depth + 1)
        stride = -(-(calls.n_calls + 1) // even) * even
        known = device.Attempts(stride, self._failures, layout.at("settled"), layout.at("told"))
        words = self._ranks(die, calls)._replace(**own_words(die, self.first_die, of["ready"], of["done"], of["end"]))
        if kernel is device.e2a_again:  # which has nothing to report
            words = words._replace(errors=of["errors"].at(layout.dies.stop).limited(""))
        return {"r": words, "n": known}


@dataclass(frozen=True)
class A2ERollback(A2ECase):
    """Calls of `A2ECase`; a supervisor on one more die aborts what is under way, and it is executed again."""

    presets: ClassVar[tuple[Preset, ...]] = (
        Preset(
            "rollback-a2e", "A2E and E2A that are aborted at any moment, and executed again",
            {"attention": 1, "experts": 1, "rounds": 1},
        ),
    )  # fmt: skip
    papers = (*read_papers("a2e"), *read_papers("rollback"))
    more_dies = 1

    aborts: int = size(1, "Times that the supervisor aborts what is under way.", least=0, most=1 << 10)
    failures: int = size(0, "Attempts of each attention die that may go wrong, whichever these are.", least=0, most=16)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, right in {"pull": 0, "cores": 1, "microbatches": 1, "attention_work": 0}.items():
            if getattr(self, name) != right:
                raise ConfigError(name, getattr(self, name), f"where calls are rolled back it must be {right}")
        if not self.rounds:
            raise ConfigError("rounds", 0, "must be at least 1, as there is nothing to roll back")

    def _calls(self, pod: Pod, given: Sequence[Call]) -> Calls:
        return Calls(RestartedA2E(pod, self._config(), aborts=self.aborts, failures=self.failures), given)

    proof_usual: ClassVar = dict(attention=1, experts=1, rounds=1)
    proof_rows: ClassVar = {
        "a call, an abort": {},
        "two calls, an abort": dict(rounds=2),
        "an abort of a rollback": dict(aborts=2),
        "two calls, any attempt goes wrong": dict(rounds=2, failures=1, aborts=0),
        "two expert dies, any attempt goes wrong": dict(experts=2, tokens=2, failures=1, aborts=0),
        "two calls at once": dict(rounds=2, depth=2),
        "in two parts": dict(tokens=2, a2e_parts=2, e2a_parts=2),
        "URMA": dict(path="urma"),
    }
