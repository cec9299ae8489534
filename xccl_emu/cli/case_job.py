"""What run, bench and compare do with a case."""

import itertools
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, cast

from xccl_emu.bench.memory import available_bytes
from xccl_emu.bench.result import Result
from xccl_emu.bench.setting import Setting
from xccl_emu.bench.traffic import Comparison, Line, line_of
from xccl_emu.check.trial import Trial
from xccl_emu.cli.perf import Perf
from xccl_emu.cli.perf_job import measure, points
from xccl_emu.cli.site_show import SiteResult
from xccl_emu.errors import ConfigError
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import CLOUDMATRIX384
from xccl_emu.machine.state import ORDERS
from xccl_emu.protocol.case import Case
from xccl_emu.protocol.collective import Collective
from xccl_emu.protocol.registry import known, make, on_pod
from xccl_emu.protocol.site import Site, resident_gb
from xccl_emu.stage import Stage, silent
from xccl_emu.timing.run import VirtualTime
from xccl_emu.timing.topologies import topology

Sizes = Mapping[str, int | str]
POLICIES = ("round-robin", "random")


@dataclass(frozen=True)
class RunOptions:
    """How ``run`` runs a case."""

    order: str = "sc"
    policy: str = "round-robin"
    stages: Stage = silent
    say: Callable[[str], None] = lambda note: None
    """Is told a note before the run."""

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise ConfigError(f"--order {self.order}: must be one of {', '.join(ORDERS)}")
        if self.policy not in POLICIES:
            raise ConfigError(f"--policy {self.policy}: must be one of {', '.join(POLICIES)}")


@dataclass
class CaseResult:
    """What a run did; ``wrong`` has the wrong bytes of each buffer that has any."""

    protocol: str
    configuration: dict[str, int | str]
    options: dict[str, Any]
    stats: dict[str, Any] = field(default_factory=dict)
    wrong: dict[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        return asdict(self)

    def told(self) -> str:
        """For people."""
        sizes = " ".join(f"{name}={value}" for name, value in self.configuration.items())
        moved = ", ".join(f"{pipe} {nbytes:,}" for pipe, nbytes in self.stats["bytes_by_pipe"].items() if nbytes)
        count = f"{sum(self.stats['instructions'].values()):,} instructions in {self.stats['seconds']:.3f} s"
        lines = [self.protocol, f"  {sizes}", f"  {count}; bytes by {moved or 'no pipe'}"]
        lines += [f"  WRONG: {nbytes} bytes of {name}" for name, nbytes in self.wrong.items()]
        return "\n".join([*lines, f"#wrong {sum(self.wrong.values())}"])


def run(protocol: str, sizes: Sizes, options: RunOptions) -> CaseResult | SiteResult:
    """Run it once, on a pod that it just fits or on the whole one, and hold memory against what must be there."""
    if known(protocol).preset.on_pod is not None:
        return run_on_pod(protocol, sizes, options)
    case = make(protocol, **sizes)
    trial = case.build(options.order)
    trial.pod.policy = options.policy
    result = CaseResult(protocol, dict(case.configuration), {"order": options.order, "policy": options.policy})
    result.stats = asdict(trial.pod.run())
    result.wrong = trial.wrong_bytes()
    return result


def run_on_pod(protocol: str, sizes: Sizes, options: RunOptions) -> SiteResult:
    """Run it on the whole pod, call after call; sizes that are not given may be smaller, so as to fit the memory."""
    started, case = time.perf_counter(), on_pod(protocol, **sizes)
    pod = Pod(CLOUDMATRIX384, order=options.order, policy=options.policy, seed=getattr(case, "seed", 0))
    site = Site(pod, options.stages, available_bytes())
    case, note = case.for_pod(sizes, site)
    if note:
        options.say(note)
    case.carry_out(site)
    chosen = {each.name: getattr(case, each.name) for each in case.sizes()}
    told = {"order": options.order, "policy": options.policy, **chosen}
    return SiteResult(protocol, site, told, time.perf_counter() - started, resident_gb())


# ---- in virtual time


def grid(sizes: Sizes) -> Iterator[dict[str, int | str]]:
    """All combinations of sizes, of which each may be several with commas between them."""
    from xccl_emu.cli.cases import number_or_text

    several = [[number_or_text(part) for part in str(value).split(",")] for value in sizes.values()]
    for values in itertools.product(*several):
        yield dict(zip(sizes, values, strict=True))


def bench(protocol: str, sizes: Sizes, perf: Perf, setting: Setting) -> list[Result]:
    """The time of each combination of sizes, from the first core's beginning to the last one's end; or of a call."""
    setting = replace(setting, fabric=topology(perf.fabric))
    cases = [make(protocol, **chosen) for chosen in grid(sizes)]  # what is wrong with one is said before any runs
    if all(isinstance(case, Collective) for case in cases):
        measured = [point for case in cases for point in points(cast(Collective, case), perf)]
        return [measure(protocol, point, perf, setting) for point in measured]
    if replace(perf, no_data=False, fabric=Perf.fabric) != Perf():
        raise ConfigError(f"-b, -e, -f, -n, -w, -d and -o: {protocol} is no collective, and has no such options")
    return [_timed(protocol, case, setting) for case in cases]


def _timed(protocol: str, case: Case, setting: Setting) -> Result:
    configuration = {**case.configuration, **setting.fabric_told}
    what = " ".join(f"{name}={value}" for name, value in configuration.items())
    with setting.stage(what):
        trial, us = in_time(case, VirtualTime(setting.fabric, setting.costs, data=setting.data))
    beside = _bandwidths(case, us)
    wrong = sum(trial.wrong_bytes().values()) if setting.data else None
    return Result(protocol, what, us, "us", configuration=configuration, wrong=wrong, beside=beside)


def in_time(case: Case, policy: VirtualTime) -> tuple[Trial, float]:
    """Run a case in virtual time; the trial as it is then, and microseconds."""
    trial = case.build("sc", payload=policy.data)
    trial.pod.policy = policy
    trial.pod.run()
    return trial, policy.timing.latency_us


def _bandwidths(case: Case, us: float) -> dict[str, float]:
    """Of the algorithm and of the bus, as nccl-tests define them; none of a case that names no payload."""
    if not case.payload_bytes or not us:
        return {}
    algbw = case.payload_bytes / us / 1000
    return {"algbw GB/s": algbw, "busbw GB/s": algbw * case.bus_factor}


# ---- side by side


def compare(protocols: Sequence[str], sizes: Sizes) -> Comparison:
    """What the dies of each role ask of other dies, of several protocols of the same sizes."""
    lines, wrong = list[Line](), 0
    for protocol in protocols:
        trial = make(protocol, **sizes).build("sc")
        roles = trial.roles or {"die": _taking_part(trial)}
        trial.pod.run()
        lines += _lines(protocol, trial, roles)
        wrong += sum(trial.wrong_bytes().values())
    return Comparison({"protocols": list(protocols), **sizes}, lines, wrong)


def _taking_part(trial: Trial) -> list[int]:
    """Dies that run a kernel, before the run."""
    return sorted({core // trial.pod.spec.cores_per_die for core in trial.pod.active_cores()})


def _lines(protocol: str, trial: Trial, roles: Mapping[str, Collection[int]]) -> Iterator[Line]:
    spec, traffic = trial.pod.spec, trial.pod.traffic()
    for role, dies in roles.items():
        yield line_of(protocol.rpartition(":")[2], role, traffic, list(dies), (spec.managed_bytes, spec.meta_bytes))
