"""What ``xccl-emu check`` does: one check, one check for each synchronization, or a replay."""

import copy
import dataclasses
import math
import os
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, TypeVar

from xccl_emu.base import jobs
from xccl_emu.base import words as w
from xccl_emu.base.errors import ConfigError, ReplayError
from xccl_emu.base.options import one_of
from xccl_emu.base.sizes import parse_size
from xccl_emu.check.certify import ADVICE_SECONDS, certify
from xccl_emu.check.certify import SECONDS as CERTIFICATE_SECONDS
from xccl_emu.check.check import MAX_STATES, POLICIES, Progress, check, opinions
from xccl_emu.check.confirm import confirmed
from xccl_emu.check.faults import parse
from xccl_emu.check.reach import Reach, without_requests
from xccl_emu.check.shrink import WITNESS_SECONDS
from xccl_emu.check.trial import Trial
from xccl_emu.check.verdict import (
    NO_VIOLATION,
    UNFINISHED,
    UNSUPPORTED,
    VERIFIED,
    VIOLATION,
    Opinion,
    ProfiledSite,
    Verdict,
)  # fmt: skip
from xccl_emu.check.weakest import ORDERS as ORDERS_THAT_MATTER
from xccl_emu.check.weakest import WeakenedSearch, Weakest, requests
from xccl_emu.check.witness.replay_file import Witness
from xccl_emu.cli import ending, plain_first, real
from xccl_emu.cli.cases import check_seconds, check_syncs
from xccl_emu.cli.check_options import CheckOptions
from xccl_emu.cli.files import check_file, check_plot, protocol_of, replayed, save_witness
from xccl_emu.machine.state import ORDERS
from xccl_emu.native.runs import RealRun
from xccl_emu.protocol.bench import READINGS
from xccl_emu.protocol.case import ONLY_CHECKED, Case, reached_syncs
from xccl_emu.protocol.invariant import Invariance
from xccl_emu.protocol.registry import make, names
from xccl_emu.timing.price import Price, Prices, Weaker

T = TypeVar("T")
EXIT_CODES = {
    VERIFIED: 0, NO_VIOLATION: 0, VIOLATION: ending.WRONG, UNFINISHED: ending.UNFINISHED,
    UNSUPPORTED: ending.UNFINISHED,
}  # fmt: skip
SECONDS = 75.0
"""Time limit of a check by default."""
CONFIRM_SECONDS = 2.0
"""How much longer than the search second opinions may take by default."""
_SHARE_OF_SEARCH = 0.8
PROFILED_STATES = 10_000
"""States that `--profile` looks at by default."""
RUNS, RUN_SECONDS = 200, 0.5
"""Runs on real memory by default, and how long each may take: where one deadlocks, most do."""
SECONDS_LEAST = 0.01
_IF = {"barrier": ("barriers wait for visibility", "they only drain"),
       "sync_all": ("SyncAll drains", "SyncAll only arrives"),
       "scopes": ("what is ordered for a block or a GPU is for all ranks", "it is for nobody else"),
       "vectors": ("an access of up to 16 bytes by one instruction is whole", "it is made by elements"),
       "reads": ("relaxed reads acquire", "they do not"),
       "boundary": ("the end of a kernel publishes to all ranks", "it publishes to none")}  # fmt: skip
"""What each reading says, the stronger and the weaker one."""


@dataclass(frozen=True)
class SyncResult(w.Printed):
    """What became of the protocol without one of its synchronizations."""

    RECORD = "Without"
    FIRST = ("sync", "steps", "finding", "idle", "as_data")
    sync: w.Sync
    steps: Annotated[tuple[int, ...], "steps of the paper in which it occurs"]
    verdict: Annotated[Verdict, w.INLINE]
    idle: Annotated[bool, "whether nobody had to wait at it"] = False
    as_data: Annotated[bool, "whether a kernel uses the result of a poll of that name"] = False
    """Without it that is the word that is there."""
    price: Annotated[Price | None, "what it costs in virtual time; null without `--price`"] = None

    @property
    def finding(self) -> Annotated[str, "`needed`, `redundant`, or the verdict"]:
        """Return what follows for the synchronization."""
        names = {VIOLATION: "needed", VERIFIED: "redundant", NO_VIOLATION: "no violation found"}
        return names.get(self.verdict.verdict, self.verdict.verdict)


@dataclass(frozen=True)
class RequestResult(w.Printed):
    """The weakest that one request can ask for, and what asking for more costs."""

    RECORD = "Request"
    FIRST = Weakest.FIRST
    found: Annotated[Weakest, w.INLINE]
    price: Annotated[Price | None, "what it costs to ask for more than that; null without `--price` or advice"] = None


@dataclass(frozen=True)
class Stronger(w.Printed):
    """The verdict by the stronger readings of what nobody has chosen."""

    read: Annotated[dict[str, str], "what was read, and how"]
    verdict: Annotated[Verdict, w.INLINE]

    def words(self, weaker: Verdict) -> str:
        """Both verdicts in one line."""
        weak = " and ".join(_IF[name][1] for name in self.read)
        return f"{_of(self.verdict)} if {self.condition}; {_of(weaker)} if {weak}"

    @property
    def condition(self) -> str:
        """Return what these readings say."""
        return " and ".join(_IF[name][0] for name in self.read)


@dataclass(frozen=True)
class Result(w.Printed):
    """What the command found."""

    verdict: Annotated[Verdict, w.INLINE]
    fresh: Callable[[], Trial]
    """Makes the trial that was checked, to show the violation on."""
    options: CheckOptions
    stronger: Annotated[Stronger | None, "by the stronger readings; null where the kernels leave nothing open"] = None
    """By those that nobody has chosen; the verdict is by the weaker."""
    replay_file: w.ReplayFile = None
    unreached: Annotated[tuple[str, ...], "with `--each-sync`: synchronizations that no run comes to"] = ()
    each: Annotated[tuple[SyncResult, ...] | None, "null without `--each-sync`", w.As("each_sync")] = None
    latency_us: Annotated[float | None, "virtual time with all of them; null without `--price`"] = None
    together: Annotated[Price | None, "all redundant ones; null where there are not two, or without `--price`"] = None
    weakest: Annotated[tuple[RequestResult, ...] | None, "null without `--weakest`", w.As("each_request")] = None
    advised: Annotated[Price | None, "all advice followed at once; null as `together`"] = None
    profile: Annotated[tuple[ProfiledSite, ...] | None, "null without `--profile`"] = None
    invariance: Annotated[Invariance | None, "what the oracle says of a claim; null without `--invariant`"] = None
    on_real: Annotated[RealRun | None, "what runs on real memory showed; null without `--on`"] = None
    unsaved: str = ""
    """Why there is no replay file."""
    ended: jobs.Stopped | None = None
    """The signal that came before each synchronization and request was judged, or an error that nobody foresaw."""
    origin: str = ""
    """``FILE.py:NAME`` of a protocol in a file of its own."""

    @property
    def unjudged(self) -> Annotated[str, "with `--rank`: why outputs are not judged; empty where they are"]:
        """Return why nobody says what outputs must be."""
        differs = "rank" in self.verdict.configuration and not self.fresh().expected
        return "the two sizes give different outputs" if differs else ""

    @property
    def contradicted(self) -> bool:
        """Return True if a second opinion is another than the verdict, of either reading."""
        return self.verdict.contradicted or (self.stronger is not None and self.stronger.verdict.contradicted)

    @property
    def exit_code(self) -> int:
        """Exit code of the verdict; with ``--each-sync``, whether every synchronization got an answer."""
        if self.contradicted:
            return ending.BUG
        code = EXIT_CODES[self.verdict.verdict]
        if self.on_real is not None and self.on_real.done.n_bad:
            return ending.WRONG
        if self.invariance is not None and self.invariance.differ:
            return ending.WRONG
        if self.weakest is not None and any(one.found.unfinished for one in self.weakest):
            return code or ending.UNFINISHED
        if self.each is None or code:
            return code
        return ending.UNFINISHED if any(one.finding in (UNFINISHED, UNSUPPORTED) for one in self.each) else 0


class CheckJob:
    """One run of the command; raises ConfigError for options that make no sense, before anything is searched."""

    def __init__(
        self, options: CheckOptions, progress: Progress | None, say: Callable[[str], None] = lambda text: None
    ) -> None:  # fmt: skip
        self._options, self._progress, self._say = options, progress, say
        self._ended: jobs.Stopped | None = None
        self._witness = None if options.replay is None else _load(options)
        self._case = self._make()
        self._order = options.order or "relaxed"
        self._check_options()
        self._real = self._on_real()

    def run(self) -> Result:
        """Do what was asked for."""
        if self._witness is not None:
            return self._replay(self._witness)
        check_syncs(self._case, self._options.without)
        prices = Prices(self._case, self._options.without) if self._options.price else None
        verdict = self._judge(self._options.without)
        return dataclasses.replace(
            self._shown(verdict, prices), stronger=self._by_stronger_readings(verdict), profile=self._profile(verdict),
            invariance=Invariance.of(self._case) if self._case.pod_sizes.get("invariant") else None,
        )  # fmt: skip

    def _shown(self, verdict: Verdict, prices: Prices | None) -> Result:
        """The verdict, and what else was asked for."""
        if verdict.verdict == VIOLATION or not (self._options.each_sync or self._options.weakest):
            return self._saved(verdict)
        result = self._result(verdict, None)
        if self._options.each_sync:
            result = self._each_sync(result, prices)
        if self._options.weakest and verdict.verdict == VERIFIED:
            result = self._weakest(result, prices)
        latency_us = None if prices is None else prices.latency_us
        return dataclasses.replace(result, latency_us=latency_us, ended=self._ended)

    def _profile(self, verdict: Verdict) -> tuple[ProfiledSite, ...] | None:
        """Return what makes states, if that is asked for and there is a search of the case."""
        if not self._options.profile or verdict.verdict == UNSUPPORTED:
            return None
        from xccl_emu.check.search.profiled import profile  # compiled code is imported only when something runs

        return profile(self._case.build(self._order, verdict.without), self._options.states or PROFILED_STATES)

    def confirm(self, result: Result, progress: Progress) -> Result:
        """The result with second opinions on each reading that is verified."""
        first, other = self._confirmed(self._case, result.verdict, progress), result.stronger
        if other is not None:
            case = self._case.with_pod_options(**other.read)
            other = dataclasses.replace(other, verdict=self._confirmed(case, other.verdict, progress))
        result = dataclasses.replace(result, verdict=first, stronger=other)
        return result if first.confirmation is None else self._kept(result)

    def side_by_side(self, result: Result, say: Callable[[str], None]) -> Result:
        """The result with what runs on real memory showed, if that was asked for."""
        if self._real is None:
            return result
        seconds = SECONDS if self._options.seconds is None else self._options.seconds
        found = real.real(self._case, self._case.name, self._real, say, seconds)
        return dataclasses.replace(result, on_real=found)

    def _confirmed(self, case: Case, verdict: Verdict, progress: Progress) -> Verdict:
        """A verdict with second opinions on it if it is verified; Ctrl-C ends them, and leaves what has been found."""
        seconds = self._confirm_seconds(verdict)
        if not seconds or verdict.verdict != VERIFIED:
            return verdict
        given, interrupted, started = list[Opinion](), None, time.monotonic()
        try:
            for one in opinions(case, verdict, seconds=seconds, max_bytes=self._max_bytes(), progress=progress):
                given.append(one)
        except BaseException as error:
            if ending.put_off(error) != ending.INTERRUPTED:
                raise
            interrupted = time.monotonic() - started
        return confirmed(case, verdict, given, seconds, interrupted)

    # ---- what is checked

    def _make(self) -> Case:
        options, witness = self._options, self._witness
        if witness is not None:
            assert options.replay is not None
            protocol = options.protocol or protocol_of(witness, options.replay)
            case = make(protocol, **witness.configuration)
            _check_is_of(options, witness, case.name)
            return case
        if options.protocol is None:
            raise ConfigError(f"PROTOCOL: must be one of {', '.join(names())}, or FILE.py:NAME")
        only = {name: value for name in ONLY_CHECKED if (value := getattr(options, name))}
        return make(options.protocol, **{**options.sizes, **only})

    def _check_options(self) -> None:
        options = self._options
        one_of("order", self._order, ORDERS)
        if options.policy is not None:
            one_of("policy", options.policy, POLICIES)
        check_seconds(options.seconds)
        self._max_bytes()
        if options.certify_seconds is not None and not (options.certify and options.certify_seconds > 0):
            raise ConfigError(f"--certify-seconds {options.certify_seconds}: must be positive, and needs --certify")
        if options.confirm_seconds is not None and not 0 <= options.confirm_seconds < math.inf:
            raise ConfigError(f"--confirm-seconds {options.confirm_seconds}: must be at least 0")
        advised = options.each_sync or options.weakest
        if options.advice_seconds is not None and not (advised and 0 <= options.advice_seconds < math.inf):
            said = f"--advice-seconds {options.advice_seconds}"
            raise ConfigError(f"{said}: must be at least 0, and needs --each-sync or --weakest")
        for name in ("workers", "dask"):
            if getattr(options, name) is not None and not advised:
                raise ConfigError(f"--{name} {getattr(options, name)}: needs --each-sync or --weakest")
        if options.price and not advised:
            raise ConfigError("--price: needs --each-sync or --weakest; xccl-emu bench has it without a check")
        if options.plot is not None and not (options.price and options.each_sync):
            raise ConfigError(f"--plot {options.plot}: needs --each-sync --price")
        if advised and (rank := self._case.pod_sizes.get("rank")) and not self._case.build(self._order).expected:
            asked = "--each-sync" if options.each_sync else "--weakest"
            must = "needs outputs that are judged; by the two sizes they are different"
            raise ConfigError(f"{asked} --rank {rank}: {must}")
        check_plot(options.plot)
        if options.certify and options.fault:
            raise ConfigError(f"--certify: cannot be combined with --fault {options.fault}; faults give no proof")
        if options.fault:
            if claim := self._case.pod_sizes.get("invariant"):
                raise ConfigError(f"--invariant {claim}: cannot be combined with --fault {options.fault}")
            parse(options.fault, self._case.build(self._order).pod.spec)
        for name in ("out", "chart", "trace", "svg", "html", "sarif"):
            if options.each_sync and getattr(options, name) is not None:
                raise ConfigError(f"--{name} {getattr(options, name)}: cannot be combined with --each-sync")
            check_file(f"--{name}", getattr(options, name))
        if options.weakest and self._order not in ORDERS_THAT_MATTER:
            raise ConfigError(f"--order {self._order}: keeps all writes in order; --weakest needs relaxed or unordered")
        for name in ("fault", "policy", "replay"):
            if options.weakest and getattr(options, name):
                raise ConfigError(f"--{name.replace('_', '-')}: cannot be combined with --weakest, which searches")

    def _on_real(self) -> real.RealOptions | None:
        """Return how it is run on real memory; what cannot be run there is refused, and what can be is compiled."""
        options = self._options
        if not options.on:
            if options.runs is not None:
                raise ConfigError(f"--runs {options.runs}: needs --on native or --on cuda")
            return None
        one_of("on", options.on, real.MACHINES[1:])
        for name in ("fault", "replay", "each_sync", "weakest", *ONLY_CHECKED):
            if getattr(options, name):
                raise ConfigError(f"--on {options.on}: cannot be combined with --{name.replace('_', '-')}")
        runs = RUNS if options.runs is None else options.runs
        chosen = real.RealOptions(options.on, runs, options.without, options.seed, RUN_SECONDS)
        chosen.machine.look(self._case.build("relaxed").pod)
        return chosen

    # ---- checks

    def _judge(self, without: Sequence[str]) -> Verdict:
        """Check, and let the verdict be certified if that was asked for."""
        verdict, options = self._verdict(without), self._options
        if not options.certify:
            return verdict
        return certify(self._case, verdict, seconds=options.certify_seconds or CERTIFICATE_SECONDS)

    def _by_stronger_readings(self, verdict: Verdict) -> Stronger | None:
        """Check the stronger readings in the time that is left, if no option has chosen one."""
        seconds = SECONDS if self._options.seconds is None else self._options.seconds
        other = copy.copy(self)
        other._options = dataclasses.replace(self._options, seconds=max(seconds - verdict.seconds, SECONDS_LEAST))

        def judge(case: Case) -> Verdict:
            other._case = case
            return other._verdict(self._options.without)

        return stronger(self._case, self._case.build(self._order).open_readings, judge)

    def _verdict(self, without: Sequence[str]) -> Verdict:
        """Check by the policy that was asked for, or search and then sample."""
        options = self._options
        if options.policy is not None or options.fault:
            return self._check(options.policy or "portfolio", without, options.seconds)
        seconds = SECONDS if options.seconds is None else options.seconds
        searched = self._check("exhaustive", without, _SHARE_OF_SEARCH * seconds)
        if searched.verdict not in (UNFINISHED, UNSUPPORTED):
            return searched
        sampled = self._check("portfolio", without, (1 - _SHARE_OF_SEARCH) * seconds)
        both = dataclasses.replace(
            sampled, states=searched.states, transitions=searched.transitions, bounds=searched.bounds,
            actions=searched.actions + sampled.actions, seconds=searched.seconds + sampled.seconds,
        )  # fmt: skip
        if sampled.verdict == VIOLATION:
            return both
        reason = f"{searched.reason}; then {sampled.schedules:,} schedules of the portfolio showed no violation"
        return dataclasses.replace(both, verdict=searched.verdict, policy=searched.policy, reason=reason)

    def _check(self, policy: str, without: Sequence[str], seconds: float | None) -> Verdict:
        """Check once; plain Python takes longer to come to the schedule that compiled code comes to."""
        options = self._options
        return check(
            self._case, order=self._order, policy=policy, schedules=options.schedules, seconds=seconds,
            seed=options.seed, without=without, fault=options.fault, max_states=options.states or MAX_STATES,
            max_bytes=self._max_bytes(), progress=self._progress, breadth_first=options.breadth_first,
            witness_seconds=plain_first.PATIENCE_S if plain_first.is_plain() else WITNESS_SECONDS,
        )  # fmt: skip

    def _each_sync(self, result: Result, prices: Prices | None) -> Result:
        """The result with what becomes of the protocol without each synchronization that it comes to.

        What has no effect on this pod is neither there nor in what is not reached.
        """
        silent = without_requests(self._case.build(self._order).pod)
        names = [name for name in self._case.syncs if name not in self._options.without and silent.get(name, True)]
        reach = result.verdict.reach
        reached = {*silent, *(reached_syncs(self._case, self._order) if reach is None else reach.reached())}
        there = [name for name in names if name in reached]
        sent = self._sent(len(there))
        each = self._all(
            [jobs.Job(f"without {name!r}", partial(sent._without, name, reach)) for name in there],
            lambda one: one.finding,
        )
        results = tuple(
            self._sync_result(name, self._undone(name, one), reach) if isinstance(one, str) else one
            for name, one in zip(there, each, strict=True)
        )
        redundant = [one.sync for one in results if one.finding == "redundant"]
        *of, together = self._priced(prices, [*(([name], ()) for name in there), (_several(redundant), ())])
        each_sync = tuple(dataclasses.replace(one, price=price) for one, price in zip(results, of, strict=True))
        unreached = tuple(name for name in names if name not in reached)
        return dataclasses.replace(result, each=each_sync, unreached=unreached, together=together)

    def _weakest(self, result: Result, prices: Prices | None) -> Result:
        """The result with each request and quiet weakened by itself."""
        options = self._options
        seconds = SECONDS if options.seconds is None else options.seconds

        def by(job: "CheckJob") -> WeakenedSearch:
            return WeakenedSearch(
                options.states or MAX_STATES, self._order, options.without, seconds, job._max_bytes(), job._progress,
                self._advice_seconds(),
            )  # fmt: skip

        each = [*requests(self._case, by(self))]
        sent = by(self._sent(len(each)))
        made = [
            jobs.Job(f"{one.kernel}, line {one.site.line}", dataclasses.replace(one, by=sent).weakest) for one in each
        ]
        found = self._all(made, lambda one: one.weakest or one.unfinished)
        answers = [ask.unfinished(one) if isinstance(one, str) else one for ask, one in zip(each, found, strict=True)]
        weaker = [(ask.number, ask.n, one.advice) for ask, one in zip(each, answers, strict=True)]
        alone = [[one] if one[-1] else [] for one in weaker]
        together = _several([one for one in weaker if one[-1]])
        *of, advised = self._priced(prices, [((), asked) for asked in [*alone, together]])
        priced = tuple(RequestResult(one, price) for one, price in zip(answers, of, strict=True))
        return dataclasses.replace(result, weakest=priced, advised=advised)

    def _priced(
        self, prices: Prices | None, asked: Sequence[tuple[Sequence[str], Sequence[Weaker]]]
    ) -> list[Price | None]:
        """Return the price of what is switched off or weaker in each; None for nothing."""
        if prices is None:
            return [None] * len(asked)
        made = [jobs.Job(f"price of {_words(*each)}", partial(prices.of, *each)) for each in asked if any(each)]
        found = self._all(made, lambda one: one.why or f"{one.us:.3f} us", workers=1)
        left = iter(found)
        of = [next(left) if any(each) else None for each in asked]
        return [Price(None, one) if isinstance(one, str) else one for one in of]

    def _sent(self, total: int) -> "CheckJob":
        """Return the job as each of many processes runs it: silent."""
        if min(self._options.processes, total) <= 1 and self._options.dask is None:
            return self
        other = copy.copy(self)
        other._progress, other._say = None, ending.say
        return other

    def _all(
        self, made: Sequence[jobs.Job[T]], words: Callable[[T], str], workers: int | None = None
    ) -> list[T | str]:  # fmt: skip
        """Return the result of each job, or why it has none; say each as it comes."""
        if self._ended is not None and self._ended.code:
            return [self._ended.why] * len(made)
        found = jobs.collect(
            made, lambda one, _: self._say(f"{one.job.name}: {one.failure or words(one.result)}"),
            workers=workers or self._options.processes, dask=None if workers else self._options.dask,
        )  # fmt: skip
        stopped = found.stopped or jobs.Stopped("")
        self._ended = stopped if stopped.code or stopped.bug is not None else self._ended
        left = dict.fromkeys(range(len(made)), stopped.why)
        return [*(left | {one.number: one.failure for one in found.failed} | found.done).values()]

    def _max_bytes(self) -> int | None:
        return parse_size("--memory", self._options.memory) if self._options.memory else None

    def _advice_seconds(self) -> float | None:
        """Return how long each answer is judged again; None for not at all."""
        seconds = self._options.advice_seconds
        return (ADVICE_SECONDS if seconds is None else seconds) or None

    def _confirm_seconds(self, verdict: Verdict) -> float:
        """Return how long second opinions are asked: with the search no longer than a check; 0 for not at all."""
        options, given = self._options, self._options.confirm_seconds
        if given is None and (options.certify or plain_first.is_plain() or os.environ.get("XCCL_EMU_CONFIRM") == "0"):
            return 0.0
        seconds = verdict.seconds + CONFIRM_SECONDS if given is None else given
        return seconds if options.seconds is None else min(seconds, max(options.seconds - verdict.seconds, 0.0))

    def _without(self, name: str, reach: Reach | None) -> SyncResult:
        """The protocol without a synchronization, judged again by others; in any process."""
        verdict, seconds = self._judge([*self._options.without, name]), self._advice_seconds()
        if seconds is not None and verdict.certificate is None and verdict.verdict in (VERIFIED, VIOLATION):
            verdict = certify(self._case, verdict, seconds=seconds)
        return self._sync_result(name, verdict, reach)

    def _undone(self, name: str, why: str) -> Verdict:
        """A verdict that says why there is none."""
        case, options = self._case, self._options
        without = (*options.without, name)
        return Verdict(
            UNFINISHED, case.name, case.configuration, self._order, options.policy or "exhaustive", options.seed,
            without, options.fault, reason=why,
        )  # fmt: skip

    def _sync_result(self, name: str, verdict: Verdict, reach: Reach | None) -> SyncResult:
        sites = [site for kernel in self._case.build("sc").pod.kernels for site in kernel.sites if site.sync == name]
        steps = {site.step for site in sites} - {0}
        as_data = any(site.operation.startswith("poll") and "=" in site.text.partition("poll")[0] for site in sites)
        return SyncResult(name, tuple(sorted(steps)), verdict, reach is not None and reach.idle(name), as_data)

    def _replay(self, witness: Witness) -> Result:
        """Replay a file under watch; its violation shows again, or it is said that it does not."""
        assert self._options.replay is not None
        self._order = witness.order
        return self._result(replayed(witness, self._case, self._options.replay), self._options.replay)

    # ---- what is kept afterwards

    def _result(self, verdict: Verdict, file: Path | None) -> Result:
        plain_first.answer(is_last=verdict.verdict != VERIFIED)
        return Result(verdict, lambda: self._case.build(verdict.order, verdict.without), self._options,
                      replay_file=file, origin=self._case.origin)  # fmt: skip

    def _saved(self, verdict: Verdict) -> Result:
        """The result, the witness of a violation as a file; if that cannot be written the result says why."""
        return self._kept(self._result(verdict, None))

    def _kept(self, result: Result) -> Result:
        if result.verdict.violation is None:
            return result
        path, unsaved = save_witness(self._case, result.verdict, self._options.out)
        return dataclasses.replace(result, replay_file=path, unsaved=unsaved)


def stronger(case: Case, open_readings: Collection[str], judge: Callable[[Case], Verdict]) -> Stronger | None:
    """A case judged by the stronger readings of what is open in it; None if nothing is."""
    read = {name: of[1] for name, of in READINGS.items() if name in open_readings}
    return Stronger(read, judge(case.with_pod_options(**read))) if read else None


def _several(given: Sequence[T]) -> Sequence[T]:
    """Return what there is of two or more, else nothing."""
    return given if len(given) > 1 else ()


def _words(names: Sequence[str], weaker: Sequence[Weaker]) -> str:
    """Return what a price is of."""
    return ", ".join([*names, *sorted({f"more than {to}" for _, _, to in weaker})])


def _of(verdict: Verdict) -> str:
    found = verdict.violation
    return f"{found.kind} in {len(found.actions)} steps" if found else verdict.verdict


_WITH_REPLAY = {"protocol", "sizes", "replay", "chart", "trace", "svg", "html", "sarif"}


def _load(options: CheckOptions) -> Witness:
    assert options.replay is not None
    rest = [each for each in dataclasses.fields(options) if each.name not in _WITH_REPLAY]
    other = {each.name: value for each in rest if (value := getattr(options, each.name)) != each.default}
    said = {**options.sizes, **other}
    for name, value in said.items():
        given = f"--{name.replace('_', '-')}{f' {value}' * (value is not True)}"
        raise ConfigError(f"{given}: cannot be combined with --replay; the file says what is replayed")
    try:
        witness = Witness.load(options.replay)
    except ReplayError as error:
        raise ConfigError(f"--replay: {error}") from error
    if "stages" in witness.configuration:
        raise ConfigError(f"--replay {options.replay}: is of xccl-emu fuzz, which shows it again")
    if options.protocol is not None and ":" not in options.protocol:
        _check_is_of(options, witness, options.protocol)
    return witness


def _check_is_of(options: CheckOptions, witness: Witness, name: str) -> None:
    if name != witness.protocol:
        raise ConfigError(f"--replay {options.replay}: is of protocol {witness.protocol!r}, not {options.protocol!r}")
