"""A2E and E2A, with trampolines and persistent kernels or as plain pull, as a case ([xDeepServe] 3.3, 5.2); and with
a supervisor that may abort any call at any moment ([xDeepServe] 6.2).

Everything runs in one launch: streams start, calls pass through, the end passes through, streams return.
"""

import functools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from numpy.typing import NDArray

from xccl_emu.base.errors import CapacityError, ConfigError
from xccl_emu.kernels import rollback
from xccl_emu.kernels.a2e import abortable_calls as device
from xccl_emu.kernels.a2e.parameters import WRONG_CALL
from xccl_emu.kernels.experts.counts import FIELD_BYTES
from xccl_emu.lang import Kernel
from xccl_emu.machine.pod import Buffer, Pod
from xccl_emu.machine.spec import PodSpec
from xccl_emu.protocol import Bench, PodRun, Preset, choice, read_papers, size, switch, text, tight_pod
from xccl_emu.protocol.owners import cores_running
from xccl_emu.protocols.a2e.calls import AttentionExperts, Call, Calls
from xccl_emu.protocols.a2e.config import A2EConfig
from xccl_emu.protocols.a2e.data import CallsImage, count_wrong, in_turns, make_calls, sent_in
from xccl_emu.protocols.a2e.layout import A2ELayout
from xccl_emu.protocols.a2e.pull import A2EPull
from xccl_emu.protocols.a2e.session import A2E
from xccl_emu.protocols.experts import layout as app
from xccl_emu.protocols.experts.routed import EXAMPLES, PAGE, TOKENS_HELP, RoutedCase, bytes_touched
from xccl_emu.protocols.rollback import own_words
from xccl_emu.routing import Placement, place_experts
from xccl_emu.routing.choices import ZIPF

_STREAMED: Any = {"counting": "scalar", "listed": 1}


@dataclass(frozen=True)
class A2ECase(RoutedCase):
    """A few attention dies, expert dies and trampolines; ``rounds`` calls, one domain after the other.

    A token is ``granules`` granules of 32 bytes on its way to the experts, followed by a slot of 512 bytes, and
    twice as many on its way back.
    """

    presets: ClassVar[tuple[Preset, ...]] = (
        Preset(
            "a2e", "Attention and experts on dies of their own, through trampolines", {},
            {"domains": 2, "attention": 1, "experts": 2, "tokens": 3, "top_k": 2, "rounds": 4},
            {
                "domains": 3, "attention": 160, "experts": 288, "tokens": 96, "cores": 2, "hidden": 7168, "top_k": 0,
                "routing": ZIPF,
            },
        ),
        Preset(
            "a2e-scalar", "Places counted in scalar loops", {"counting": "scalar", "listed": 1},
            {"attention": 1, "experts": 2, "cores": 2, "tokens": 3, "top_k": 1, "rounds": 1},
        ),
        Preset(
            "a2e-urma", "The same by URMA: DMA descriptors", {"path": "urma"},
            {"domains": 2, "attention": 1, "experts": 2, "tokens": 2, "top_k": 1, "rounds": 3},
        ),
        Preset(
            "a2e-pull", "The same by plain pull, without trampolines", {"pull": 1},
            {"attention": 1, "experts": 2, "cores": 2, "tokens": 5, "top_k": 2, "rounds": 2},
        ),
    )  # fmt: skip
    by_pattern = ("local", "masked")
    tiny: ClassVar[Mapping[str, int]] = {
        "domains": 1, "attention": 1, "experts": 1, "cores": 1, "rounds": 1, "trampolines": 0, "microbatches": 1
    }  # fmt: skip
    papers = (*read_papers("a2e"), *read_papers("pull"))  # plain pull is dispatch and combine
    more_dies: ClassVar[int] = 0
    """Dies after the attention and expert dies, that take part too."""

    domains: int = size(1, "Domains of attention dies, which take turns.")
    attention: int = size(2, "Attention dies of a domain.")
    experts: int = size(3, "Expert dies; the first ones are trampolines.")
    local: int = size(1, "Experts on each.")
    tokens: int | str | Sequence[int] = text(1, TOKENS_HELP, examples=EXAMPLES, each_call=True)
    granules: int = size(1, "Granules of 32 bytes of a token.")
    top_k: int = size(1, "Experts of each token, with a routing but for the shared one; 0 is 8 or as it has.", least=0)
    rounds: int = size(2, "Calls; on the pod as many as microbatches of all domains.", least=0, also="calls")
    cores: int = size(1, "Cores of an attention die, and of each stream; by plain pull of each die.")
    depth: int = size(1, "Calls that the expert dies have memory for.")
    pull: int = switch(0, "Without trampolines; then there is one domain, and a depth of 1.")
    masked: int = switch(0, "Is the first choice of the first token of every call masked?")
    path: str = choice("mtu", "How data travels.", of=A2EConfig.PATHS)
    trampolines: int = size(0, "Trampolines; 0 is as many as attention dies.", least=0)
    a2e_parts: int = size(1, "Parts in which a batch goes through a trampoline to the experts.")
    e2a_parts: int = size(1, "Parts in which it comes back.")
    microbatches: int = size(1, "Microbatches of each domain, each on cores of its own.")
    attention_work: int = size(0, "Vector instructions that stand in for attention.", least=0)
    seed: int = size(0, "Of hidden states and weights.", least=0, most=None)
    quantized: int = switch(1, "INT8 on the way to the experts.", advanced=True, also="quantize")
    counting: str = choice("auto", "Who counts where messages go, and how.", of=A2EConfig.COUNTINGS, advanced=True)
    listed: int = size(
        0, "Tokens whose choices a trampoline's core has at a time where they are streamed; 0: as fit.", least=0,
        advanced=True,
    )  # fmt: skip

    def __post_init__(self) -> None:
        self._check()
        if not self.routing and not 1 <= self.top_k <= self.experts * self.local:
            raise ConfigError("top_k", self.top_k, f"there are {self.experts * self.local} experts")
        if self.pull and (self.domains * self.microbatches, self.depth) != (1, 1):
            raise ConfigError(f"domains={self.domains}, depth={self.depth}: a2e-pull has one of each")
        self._config()  # refuses the rest

    def lay_out(self, bench: Bench) -> None:
        """Launch all kernels, and expect what the app buffers must hold in the end."""
        self._lay_out(bench, [call for call, _ in self._given()])

    def _lay_out(self, bench: Bench, given: Sequence[Call]) -> None:
        given = self._in_turns(given)
        calls = self._calls(bench.pod(self._spec(given)), given)
        calls.launch()
        if bench.payload:
            image = CallsImage(calls.config, given, ends=not self.pull)
            self._expect_outputs(bench, calls, image)
            self._expect_rows(bench, calls, image)
        bench.already_filled(*self._filled(calls))
        _label_all(bench, calls)
        bench.stop(WRONG_CALL, "a field speaks of another call than the next")
        bench.tolerates("stop", "cut", "stall")

    def _expect_outputs(self, bench: Bench, calls: Calls, image: CallsImage) -> None:
        for domain, dies in enumerate(calls.batches):
            for i, buffers in enumerate(dies):
                out = buffers["out"]
                if out.nbytes:
                    name = f"outputs of attention die {i} of domain {domain}"
                    cores = cores_running(calls.pod, out.die, calls.owner.kernels)
                    bench.expect_whole(out, image.outputs(domain, i), name, cores)

    def _expect_rows(self, bench: Bench, calls: Calls, image: CallsImage) -> None:
        for die, buffers in enumerate(calls.owner.experts):
            for name, data in image.rows(die).items():
                writer = calls.owner.kernels[2 if name == "y" and not self.pull else 1]
                cores = cores_running(calls.pod, buffers[name].die, [writer])
                bench.expect_whole(buffers[name], data, f"{name} of expert die {die}", cores)

    def _filled(self, calls: Calls) -> Iterator[Buffer]:
        """The parts of the buffers that hold something when the run begins."""
        c = calls.config
        for call, lengths in enumerate(calls.lengths):
            for own, n in zip(calls.batches[call % c.turns], lengths, strict=True):
                yield from app.filled(c, own, call // c.turns, n)

    # ---- on the whole pod

    def fit_to_memory(self, given: Collection[str], run: PodRun) -> tuple[Self, str]:
        """A call of each microbatch of each domain, if nothing else is asked for."""
        usual: dict[str, Any] = {} if "rounds" in given else {"rounds": self.domains * self.microbatches}
        case, most = replace(self, **usual), run.pod.spec.n_dies
        c = case._config()
        if c.n_dies > most:
            sum_ = f"{c.n_domains} x {c.n_attention} + {c.n_experts} = {c.n_dies}"
            raise ConfigError("experts", c.n_experts, f"that is {sum_} dies; the pod has {most}")
        remedy = "take fewer --tokens, --calls or --attention dies, or a smaller --hidden"
        while not case._has_room(run) and (fewer := case._fewer_at_once(given)):
            case = fewer
        run.fits(case._bytes_needed(), "this needs", remedy)
        taken: dict[str, Any] = {"at_once": case._at_once} if case._at_once < max(case._lengths) else {}
        if case.routing:
            taken["top_k"] = case._choices.top_k
        return replace(case, **taken), ""

    def _bytes_needed(self) -> int:
        parts = -(-max(self._lengths) // max(1, self._at_once))
        return bytes_needed(self._config(), self.rounds * max(1, parts))

    def _has_room(self, run: PodRun) -> bool:
        """In the memory, and in the areas and data buffers of the pod."""
        if self._bytes_needed() > run.free_bytes:
            return False
        try:
            self._group.lays_out(self._config(), run.pod.spec)
        except CapacityError:
            return False
        return True

    def _make_calls(self, run: PodRun) -> None:
        """Run all calls in one launch.  On expert dies the rows of the last calls are kept, and compared."""
        with run.stage("routing"):
            given = self._in_turns([call for call, facts in self._given() if run.facts.update(facts) is None])
        with run.stage("tokens"):
            calls = self._calls(run.pod, given)
        with run.stage("calls") as progress:
            calls.launch()
            calls.owner.run_launched(progress)
        run.rounds.append(dict(calls.owner.stats))
        kept = range(max(0, len(given) - self.depth), len(given))
        run.facts |= {
            "dies": calls.config.n_dies, "tokens": sum(len(x) for call in given for x in call.tokens),
            "messages": sum(int((choices >= 0).sum()) for call in given for choices in call.topk),
            "compared": {"outputs": [*range(len(given))], "rows": [*kept]},
        }  # fmt: skip
        with run.stage("verify"):
            for number, call in enumerate(given):
                run.wrong += sum(count_wrong(calls, number, call, number in kept))

    # ---- what it is made of

    def _pattern(self, rounds: Sequence[Sequence[int]]) -> list[Call]:
        return make_calls(self._config(), rounds, bool(self.masked), self.seed)

    def _made_of_tokens(self, batch: Call) -> list[NDArray[Any]]:
        c = self._config()
        sent = sent_in(c, batch)
        return [sent.combined_for(i, weights, shared=c.shared) for i, weights in enumerate(batch.weights)]

    def _given(self) -> Iterator[tuple[Call, dict[str, Any]]]:
        """Yield each call, and what there is to say of it."""
        c = self._config()
        if not self.routing:
            yield from ((call, {}) for call in self._rounds([self._lengths] * self.rounds))
            return
        drawn = self._draw(self._placement, c.hidden)
        for number in range(self.rounds):
            batch, facts = drawn.round(number)
            yield Call(batch.tokens, batch.topk, batch.weights), facts

    def _in_turns(self, given: Sequence[Call]) -> list[Call]:
        """In as many calls as it takes to go through the buffers."""
        c = self._config()
        return in_turns(given, c.tokens_max, c.turns)

    @property
    def _sources(self) -> int:
        return self.attention

    @functools.cached_property
    def _placement(self) -> Placement:
        """Placement of the experts, by a routing."""
        return place_experts(self.experts, self._choices.n_experts)

    def _config(self) -> A2EConfig:
        local, top_k = self.local, self.top_k
        if self.routing:
            local, top_k = self._placement.local_experts, self._choices.top_k + 1
        return A2EConfig(
            self.domains, self.attention, self.experts, local_experts=local, hidden=self.hidden or 32 * self.granules,
            top_k=top_k, tokens_max=max(1, self._at_once), dtype=self.dtype, quantized=bool(self.quantized),
            quantizer=self.quantizer, shared=bool(self.routing), path=self.path, depth=self.depth, cores=self.cores,
            a2e_cores=self.cores, compute_cores=self.cores, e2a_cores=self.cores, n_trampolines=self.trampolines,
            a2e_parts=self.a2e_parts, e2a_parts=self.e2a_parts, microbatches=self.microbatches,
            attention_work=self.attention_work, counting=self.counting, listed=self.listed,
        )  # fmt: skip

    @property
    def _group(self) -> type[AttentionExperts]:
        return A2EPull if self.pull else A2E

    def _calls(self, pod: Pod, given: Sequence[Call]) -> Calls:
        return Calls(self._group(pod, self._config()), given)

    def _spec(self, given: Sequence[Call]) -> PodSpec:
        c = self._config()
        cores, ub_bytes = max(c.microbatches * c.cores, c.expert_cores), self._group.lays_out.ub_bytes(c)
        return tight_pod(c.n_dies + self.more_dies, cores, ub_bytes, lambda pod: self._calls(pod, given).owner.layout)

    proof_rows: ClassVar = {
        "two attention dies, three expert dies": {},
        "three calls, two of them at once": dict(rounds=3, depth=2),
        "no call at all": dict(rounds=0),
        "an attention die with no tokens": dict(tokens="1,0"),
        "a masked choice": dict(masked=1, top_k=2, granules=2),
        "two domains": dict(domains=2, attention=1, experts=2, rounds=4, tokens=2),
        "two domains, two calls at once": dict(domains=2, attention=1, experts=1, rounds=3, depth=2),
        "two cores": dict(attention=1, experts=2, tokens=2, top_k=2, cores=2),
        "two experts a die": dict(attention=1, experts=2, local=2, tokens=2, top_k=2),
        "two attention dies, one trampoline": dict(attention=2, experts=2, trampolines=1),
        "three attention dies, two trampolines": dict(attention=3, experts=2, trampolines=2, rounds=1, depth=2),
        "to the experts in two parts": dict(attention=1, experts=2, tokens=2, a2e_parts=2),
        "back in two parts": dict(attention=1, experts=2, tokens=2, e2a_parts=2),
        "back in two parts, two cores": dict(attention=1, experts=2, tokens=2, cores=2, e2a_parts=2, rounds=1),
        "two microbatches": dict(attention=1, experts=1, microbatches=2, rounds=3),
        "two domains, two microbatches each": dict(domains=2, attention=1, experts=1, microbatches=2, rounds=5),
        "microbatches that compute": dict(attention=1, experts=1, microbatches=2, rounds=3, attention_work=1),
        "counted in scalar loops": dict(attention=1, experts=2, tokens=3, cores=2, rounds=1, **_STREAMED),
        "several attention dies, streamed": dict(attention=2, experts=2, trampolines=1, rounds=1, **_STREAMED),
        "streamed in parts": dict(attention=1, experts=2, tokens=4, a2e_parts=2, e2a_parts=2, **_STREAMED),
        "streamed by URMA": dict(attention=1, experts=2, tokens=2, path="urma", **_STREAMED),
        "a batch in two calls": dict(attention=1, experts=2, tokens=3, rounds=1, at_once=2, **_STREAMED),
        "batches of two domains in two calls each": dict(
            domains=2, attention=1, experts=2, tokens=2, rounds=2, at_once=1
        ),
        "as usual, by URMA": dict(path="urma"),
        "a masked choice, by URMA": dict(attention=1, experts=3, tokens=2, top_k=3, masked=1, rounds=1, path="urma"),
        "in two parts, by URMA": dict(attention=1, experts=2, tokens=2, a2e_parts=2, e2a_parts=2, path="urma"),
        "every descriptor used again": dict(attention=1, experts=1, tokens=9, rounds=1, path="urma"),
        "as usual, by plain pull": dict(pull=1),
        "counted in scalar loops, by plain pull": dict(pull=1, cores=2, rounds=1, counting="scalar"),
    }


def _label_all(bench: Bench, calls: Calls) -> None:
    """Fields and regions, on every die also those that it does not use, and app buffers."""
    calls.owner.layout.label(bench)
    for buffers in calls.owner.experts:
        for name, buffer in buffers.items():
            bench.label_buffer(buffer, f"app.{name}")
    for turn, dies in enumerate(calls.batches):
        area = f"app{calls.config.microbatch_of(turn) or ''}"  # the first microbatch's have no number
        for buffers in dies:
            for name, buffer in buffers.items():
                bench.label_buffer(buffer, f"{area}.{name}")


def bytes_needed(c: A2EConfig, calls: int) -> int:
    """Estimate the memory that this many full calls touch, in whole pages: batches, buffers of all stages and cores."""
    tokens = c.n_attention * c.tokens_max
    rows = tokens * c.top_k
    kept, domains = min(c.depth, max(calls, 1)), min(c.turns, calls)
    attention = calls * tokens * 2 * c.row_bytes + domains * rows * c.row_bytes
    experts = tokens * c.message_bytes + rows * (c.message_bytes + PAGE)
    cores = c.n_experts * c.expert_cores + c.n_attention * c.turns * c.cores
    drawn = tokens * (2 * c.row_bytes + c.payload_bytes)
    return attention + experts + drawn + bytes_touched(c, kept * rows, c.row_bytes + PAGE // 2, cores)


class RestartedA2ELayout(A2ELayout):
    """The regions of A2E and the words of a rollback; see `kernels/rollback` and `kernels/a2e/abortable_calls`."""

    def _sizes(self) -> Mapping[str, tuple[int, int]]:
        several = max(self.config.cores, self.config.expert_cores // device.STREAMS) > 1
        words = {"ready": self.config.n_dies, "done": self.config.n_dies, "settled": device.THIRD}
        words["given_up"] = device.STREAMS * several
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
        known = device.Attempts(
            stride, self._failures, *(layout.at(name) for name in ("settled", "given_up", "told"))
        )  # fmt: skip
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
        for name, right in {"pull": 0, "microbatches": 1, "attention_work": 0}.items():
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
        "two cores": dict(cores=2),
    }
