"""What commands print that run or judge something, and ``list``."""

from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

from xccl_emu import words as w
from xccl_emu.campaign.run import CampaignSummary
from xccl_emu.check.verdict import Verdict
from xccl_emu.check.weakest import Weakest
from xccl_emu.cli.schema.envelope import Envelope
from xccl_emu.fuzz.run import FuzzSummary
from xccl_emu.machine.stats import RunStats
from xccl_emu.protocol.case import Size
from xccl_emu.words import INLINE, Printed

# ---- list


class Named(TypedDict):
    """A protocol in a list."""

    protocol: w.Protocol
    family: Annotated[str, "folder of `protocols/` that has it, or package of another distribution"]
    about: w.About


class List(Envelope):
    """`xccl-emu list`."""

    protocols: list[Named]


@dataclass
class ListedSize(Printed):
    """A size or choice of a protocol."""

    RECORD = "Size"
    size: Annotated[Size, INLINE]
    on_pod: Annotated[int | str, "what `run` takes by default, on the whole pod"]


class Described(Envelope):
    """`xccl-emu list PROTOCOL`."""

    protocol: w.Protocol
    about: w.About
    papers: Annotated[list[str], "what it is made after, with the section"]
    sizes: list[ListedSize]
    synchronizations: Annotated[list[str], "names that `--without` takes"]
    proofs: Annotated[dict[str, w.Configuration], "configurations that are to be proved, by what each is for"]


# ---- run and trace


class Run(Envelope):
    """`xccl-emu run`."""

    protocol: w.Protocol
    configuration: w.Configuration
    order: w.Order
    policy: w.Policy
    wrong: w.Wrong
    wrong_bytes: w.WrongBytes
    rounds: Annotated[list[dict[str, RunStats]], "what each round did, by kernel or call"]
    facts: Annotated[dict[str, Any], "what else the protocol says of the run; each has words of its own"]
    stage_seconds: Annotated[dict[str, float], "wall time of each stage"]
    seconds: w.Seconds
    resident_gb: Annotated[float, "most memory of the process, 10^9 bytes"]


class Trace(Envelope):
    """`xccl-emu trace`."""

    protocol: w.Protocol
    configuration: w.Configuration
    fabric: Annotated[str, "model of the links"]
    latency_us: Annotated[float, "virtual time of the run"]
    critical_path_us: Annotated[dict[str, float] | None, "by resource; null if only some dies were written down"]
    wrong: w.Wrong
    wrong_bytes: w.WrongBytes
    file: w.File
    slices: Annotated[int, "actions that the file shows"]
    arrows: Annotated[int, "from a write to who saw it"]
    left_out: Annotated[int, "actions that the file lacks"]
    until_us: Annotated[float, "the file ends here"]
    gantt_us: Annotated[dict[str, list[list[float]]], "begin and end of each bar, by engine; empty without `--gantt`"]


class Region(TypedDict):
    """Buffers of one name on a die."""

    area: Annotated[str, "`app data`, `metadata` or `managed data`"]
    region: Annotated[str, "what they are called in reports"]
    count: Annotated[int, "how many there are"]
    bytes: Annotated[int, "bytes of all of them"]


class Sizes(Envelope):
    """`xccl-emu sizes`."""

    protocol: w.Protocol
    configuration: w.Configuration
    n_dies: Annotated[int, "dies of the pod"]
    app_bytes: Annotated[int, "app data, of the die that has most"]
    meta_bytes: Annotated[int, "metadata of a die"]
    managed_bytes: Annotated[int, "managed data of a die"]
    ub_bytes: Annotated[int, "data buffer of a core"]
    regions: Annotated[list[Region], "what has a name there"]
    published_bytes: Annotated[dict[str, int], "bytes that published libraries reserve for the same, by formula"]


# ---- check and fuzz


@dataclass
class Without(Printed):
    """The verdict without one synchronization, of `--each-sync`."""

    sync: w.Sync
    steps: Annotated[list[int], "steps of the paper"]
    finding: Annotated[str, "`needed`, `redundant`, or the verdict"]
    idle: Annotated[bool, "whether nobody had to wait at it"]
    as_data: Annotated[bool, "whether a kernel uses the result of a poll of that name"]
    verdict: Annotated[Verdict, INLINE]


@dataclass
class Stronger(Printed):
    """The verdict by the stronger readings of barriers that nobody has chosen."""

    read: Annotated[dict[str, str], "what was read, and how"]
    verdict: Annotated[Verdict, INLINE]


@dataclass
class Check(Printed):
    """`xccl-emu check`."""

    verdict: Annotated[Verdict, INLINE]
    stronger: Annotated[Stronger | None, "by the stronger readings; null where the kernels leave nothing open"]
    replay_file: w.ReplayFile
    unreached: Annotated[list[str], "with `--each-sync`: synchronizations that no run comes to"]
    each_sync: Annotated[list[Without] | None, "null without `--each-sync`"]
    each_request: Annotated[list[Weakest] | None, "null without `--weakest`"]


@dataclass
class Fuzz(Printed):
    """`xccl-emu fuzz`."""

    summary: Annotated[FuzzSummary, INLINE]
    order: w.Order
    seed: w.Seed
    replay_file: w.ReplayFile


@dataclass
class Campaign(Printed):
    """`xccl-emu campaign`."""

    seed: w.Seed
    summary: Annotated[CampaignSummary, INLINE]


# ---- litmus


class LitmusOutcome(TypedDict):
    """What a litmus program may come to."""

    outcome: Annotated[str, "registers as `1:a=0`, and last values of cells as `x=1`"]
    allowed: Annotated[dict[str, list[str]], "the memory orders that allow it, by reading of a barrier"]


class LitmusProgram(TypedDict):
    """A litmus program."""

    program: Annotated[str, "its name or text"]
    threads: Annotated[list[str], "the operations of each thread"]
    outcomes: list[LitmusOutcome]


class Litmus(Envelope):
    """`xccl-emu litmus`."""

    homes: Annotated[str, "where cells are: `one` or `own`"]
    litmus: Annotated[list[LitmusProgram], "the programs, and what each may come to"]


class Refutation(TypedDict):
    """An outcome that a model does not allow."""

    program: Annotated[str, "its name or text"]
    outcome: Annotated[str, "registers as `1:a=0`, and last values of cells as `x=1`"]
    count: Annotated[int, "how often it came"]


class Setting(TypedDict):
    """What a pod is set to."""

    order: w.Order
    barrier: Annotated[str, "how a barrier is read: `visible` or `empty`"]


class Model(Setting):
    """A machine as the emulator has it."""

    refuted_by: list[Refutation]


class LitmusRead(Envelope):
    """`xccl-emu litmus --read`."""

    homes: Annotated[str, "where cells are: `one` or `own`"]
    n_rounds: Annotated[int, "rounds of all programs"]
    models: Annotated[list[Model], "every machine that there is, strongest first"]
    set: Annotated[list[Setting], "what nothing refutes, but for machines that are weaker than another one of these"]


# ---- corpus and campaign


class Outcome(TypedDict):
    """What a tool says of one case."""

    verdict: Annotated[str, "`verified`, `no violation found`, `violation`, `unfinished` or `unsupported`"]
    kind: w.Kind
    states: w.States
    sequences: Annotated[int, "sequences of calls that were drawn"]
    seconds: w.Seconds
    refuted: Annotated[bool, "whether the tool found a violation"]
    clean: Annotated[bool, "as right as the tool can say"]


class Member(TypedDict):
    """A bug of a published library."""

    member: Annotated[str, "name of its folder"]
    sources: Annotated[list[str], "issues, commits and pages"]
    tool: Annotated[str, "`check` or `fuzz`"]
    shown_by: Annotated[str, "what it takes to see it"]
    expected: Annotated[str, "kind of violation that its page says"]
    broken: Outcome
    mended: Outcome
    right: Annotated[bool, "whether it is as its page says"]


class Corpus(Envelope):
    """`xccl-emu corpus`."""

    results: list[Member]
