"""What ``--json`` prints: one object with a schema, the same words for the same things in all commands.

docs/json.md is made of these classes by tools/json_page.py, and a test holds what each command prints against them.  A
word has the same type wherever it stands.  Another schema number means that a word has gone or changed its type; new
words come without one.
"""

import json
from collections.abc import Mapping
from typing import Annotated, Any, TypedDict

import typer

from xccl_emu import __version__

SCHEMA = "xccl-emu/1"


def print_json(command: str, fields: Mapping[str, Any]) -> None:
    """Print the object of a command to stdout, in one line."""
    typer.echo(json.dumps({"schema": SCHEMA, "command": command, "version": __version__, **fields}))


# ---- words that several commands use

Configuration = Annotated[dict[str, int | float | str | bool], "sizes and choices of what was run, by name"]
Protocol = Annotated[str, "name of the protocol"]
About = Annotated[str, "a sentence on the protocol"]
Order = Annotated[str, "memory order: `sc`, `fifo`, `relaxed` or `unordered`"]
Policy = Annotated[str, "who chooses the next step"]
Seed = Annotated[int, "seed of all that is drawn"]
Wrong = Annotated[
    int | None,
    "how much differs from what must be there: elements, or bytes where `wrong_bytes` has any; null if nothing was"
    " compared",
]
WrongBytes = Annotated[dict[str, int], "wrong bytes of each buffer that has any"]
Seconds = Annotated[float, "wall time"]
Stopped = Annotated[str, "why it came to no end; empty if it did"]
Killed = Annotated[bool, "whether a worker was killed"]
States = Annotated[int, "states that were searched"]
Schedules = Annotated[int, "schedules that were drawn"]
ReplayFile = Annotated[str | None, "file that shows the violation again"]
Kernel = Annotated[str, "name of the kernel"]
File = Annotated[str, "file of the source, or the one that was written"]
Line = Annotated[int, "line of the source"]
Operation = Annotated[str, "operation of the request"]
Sync = Annotated[str, "name of the synchronization; empty for none"]
Callers = Annotated[list[list[str | int]], "where the subroutine was called: file and line, the innermost last"]
Kind = Annotated[str, "kind of the violation; of a row: whose latency it is"]
Fault = Annotated[str, "what broke; empty for nothing"]


class Envelope(TypedDict):
    """Words of every object."""

    schema: Annotated[str, "`xccl-emu/1`, this page"]
    command: Annotated[str, "the command that printed it"]
    version: Annotated[str, "version of xccl_emu"]


# ---- list


class Named(TypedDict):
    """A protocol in a list."""

    protocol: Protocol
    about: About


class List(Envelope):
    """`xccl-emu list`."""

    protocols: list[Named]


class Size(TypedDict):
    """A size or choice of a protocol."""

    name: Annotated[str, "name of the size, in `configuration` too"]
    default: Annotated[int | str, "value if none is given"]
    on_pod: Annotated[int | str, "what `run` takes by default, on the whole pod"]
    help: Annotated[str, "what it is"]
    least: Annotated[int | None, "smallest value"]
    most: Annotated[int | None, "largest value"]
    choices: Annotated[list[int | str], "all values; empty if a range says them"]
    advanced: Annotated[bool, "whether reports omit it while it has its default"]
    also: Annotated[str, "another name on the command line; `ON/OFF` for a switch"]
    each_call: Annotated[bool, "whether calls of one communicator may differ in it"]
    examples: Annotated[list[int | str], "values that `fuzz` tries first"]


class Described(Envelope):
    """`xccl-emu list PROTOCOL`."""

    protocol: Protocol
    about: About
    papers: Annotated[list[str], "what it is made after, with the section"]
    sizes: list[Size]
    synchronizations: Annotated[list[str], "names that `--without` takes"]
    proofs: Annotated[dict[str, Configuration], "configurations that are to be proved, by what each is for"]


# ---- run and trace


class Stats(TypedDict):
    """What the machine did in a run."""

    seconds: Seconds
    actions: Annotated[int, "actions of the machine; of a violation: how long its schedule is"]
    instructions: Annotated[dict[str, int], "granted requests by operation"]
    bytes_by_pipe: Annotated[dict[str, int], "bytes that each pipe moved"]
    vector_elements: Annotated[int, "elements that the vector pipe worked on"]


class Run(Envelope):
    """`xccl-emu run`."""

    protocol: Protocol
    configuration: Configuration
    order: Order
    policy: Policy
    wrong: Wrong
    wrong_bytes: WrongBytes
    rounds: Annotated[list[dict[str, Stats]], "what each round did, by kernel or call"]
    facts: Annotated[dict[str, Any], "what else the protocol says of the run; each has words of its own"]
    stage_seconds: Annotated[dict[str, float], "wall time of each stage"]
    seconds: Seconds
    resident_gb: Annotated[float, "most memory of the process, 10^9 bytes"]


class Trace(Envelope):
    """`xccl-emu trace`."""

    protocol: Protocol
    configuration: Configuration
    fabric: Annotated[str, "model of the links"]
    latency_us: Annotated[float, "virtual time of the run"]
    critical_path_us: Annotated[dict[str, float] | None, "by resource; null if only some dies were written down"]
    wrong: Wrong
    wrong_bytes: WrongBytes
    file: File
    slices: Annotated[int, "actions that the file shows"]
    arrows: Annotated[int, "from a write to who saw it"]
    left_out: Annotated[int, "actions that the file lacks"]
    until_us: Annotated[float, "the file ends here"]
    gantt_us: Annotated[dict[str, list[list[float]]], "begin and end of each bar, by engine; empty without `--gantt`"]


# ---- check and fuzz


class Violation(TypedDict):
    """What went wrong."""

    kind: Kind
    message: Annotated[str, "who, where in the source, which step, which address"]
    actions: Annotated[int, "actions of the machine; of a violation: how long its schedule is"]
    found_by: Annotated[str, "policy and seed, `exhaustive search` or `brute force`"]
    found_after: Annotated[int, "states or schedules until it was found"]
    loop: Annotated[int, "actions at the end that go round in a livelock; 0 if none are known"]


class Certificate(TypedDict):
    """What brute force and drawn schedules, or a replay, say of a verdict."""

    states: States
    complete: Annotated[bool, "whether brute force has visited all states"]
    too_large: Annotated[str, "why there is no brute force; empty if there is"]
    schedules: Schedules
    seconds: Seconds
    replayed: Annotated[bool, "whether the violation shows again when replayed"]
    disagreement: Annotated[str, "what was found that the verdict did not say"]
    of_proof: Annotated[bool, "whether the verdict had been `verified`"]
    agrees: Annotated[bool, "whether nothing contradicts the verdict"]


class Place(TypedDict):
    """A synchronization at a line of a kernel."""

    kernel: Kernel
    sync: Sync
    operation: Operation
    file: File
    line: Line
    callers: Callers
    dies: Annotated[list[int], "dies on which the kernel runs"]


class Reach(TypedDict):
    """What no run needed."""

    never_waited: Annotated[list[Place], "granted at once in every run"]
    never_reached: Annotated[list[Place], "no run comes to it"]


class Verdict(TypedDict):
    """A verdict."""

    verdict: Annotated[str, "`verified`, `no violation found`, `violation`, `unfinished` or `unsupported`"]
    protocol: Protocol
    configuration: Configuration
    order: Order
    policy: Policy
    seed: Seed
    without: Annotated[list[str], "synchronizations that were switched off"]
    fault: Fault
    states: States
    transitions: Annotated[int, "actions on shared memory"]
    actions: Annotated[int, "actions of the machine; of a violation: how long its schedule is"]
    schedules: Schedules
    seconds: Seconds
    bounds: Annotated[dict[str, int], "limits of the machine within which it holds"]
    collision: Annotated[float, "upper bound on the probability that a state was missed"]
    reason: Annotated[str, "why there is no answer; what a proof rests on"]
    violation: Violation | None
    others: Annotated[list[Violation], "violations of other kinds or at other places"]
    ended: Annotated[dict[str, int], "with a fault: how schedules ended"]
    declared: Annotated[dict[str, int], "with a fault: declared errors"]
    certificate: Certificate | None
    reach: Reach | None


class Without(Verdict):
    """The verdict without one synchronization, of `--each-sync`."""

    sync: Sync
    steps: Annotated[list[int], "steps of the paper"]
    finding: Annotated[str, "`needed`, `redundant`, or the verdict"]
    idle: Annotated[bool, "whether nobody had to wait at it"]


class Request(TypedDict):
    """The weakest form of one request, of `--weakest`."""

    kernel: Kernel
    file: File
    line: Line
    callers: Callers
    text: Annotated[str, "the line itself"]
    operation: Operation
    sync: Sync
    asks: Annotated[str, "what it asks for"]
    weakest: Annotated[str, "the weakest that will do"]
    advice: Annotated[str, "the same if it is not what it asks for"]
    too_weak: Annotated[dict[str, str], "kind of violation with each that is too weak"]
    withdrawn: Annotated[dict[str, str], "what was found against an advice"]
    states: States
    reached: Annotated[bool, "whether a run comes to it"]
    unfinished: Annotated[str, "why there is no answer"]
    certificates: Annotated[dict[str, Certificate], "for each that was judged again"]


class Check(Envelope, Verdict):
    """`xccl-emu check`."""

    replay_file: ReplayFile
    each_sync: Annotated[list[Without] | None, "null without `--each-sync`"]
    unreached: Annotated[list[str], "with `--each-sync`: synchronizations that no run comes to"]
    each_request: Annotated[list[Request] | None, "null without `--weakest`"]


class Sequence(Verdict):
    """A sequence of calls in which something goes wrong, and its verdict."""

    stages: Annotated[str, "the calls of each communicator, as JSON"]


class Fuzz(Envelope):
    """`xccl-emu fuzz`."""

    protocol: Protocol
    order: Order
    seed: Seed
    sequences: Annotated[int, "sequences of calls that were drawn"]
    calls: Annotated[int, "calls of them all"]
    judged: Annotated[int, "sequences that were judged"]
    proved: Annotated[int, "of them on every schedule"]
    schedules: Schedules
    states: States
    seconds: Seconds
    stopped: Stopped
    killed: Killed
    findings: list[Sequence]
    replay_file: ReplayFile


# ---- bench, compare, plan and fit


class Row(TypedDict):
    """A measurement."""

    bench: Annotated[str, "name of the bench"]
    what: Annotated[str, "what was measured"]
    published: Annotated[float | None, "null if nothing was published"]
    emulated: Annotated[float | None, "null if the emulator has no such thing; `note` says why"]
    unit: Annotated[str, "unit of both"]
    role: Annotated[str, "what the published number may be used for"]
    relation: Annotated[str, "`=`, or `<` and `>` for a bound"]
    error_percent: Annotated[float | None, "signed: above 0 if the emulated value is larger"]
    met: Annotated[bool | None, "whether a bound holds, or an exact value came out"]
    wrong: Wrong
    configuration: Configuration
    source: Annotated[str, "where it was published"]
    note: Annotated[str, "what to know of the row"]
    kind: Kind
    beside: Annotated[dict[str, float], "what others measured, or what follows from it"]


class Score(TypedDict):
    """How far the rows of a role are off."""

    of: Annotated[str, "`emulated`, or the name of a baseline"]
    role: Annotated[str, "what the published number may be used for"]
    n_rows: Annotated[int, "rows that were scored"]
    mape_percent: Annotated[float, "mean absolute error"]
    max_percent: Annotated[float, "largest error, signed"]
    worst: Annotated[str, "the row that has it"]


class Rows(Envelope):
    """Rows and their scores."""

    results: list[Row]
    scores: list[Score]
    wrong: Wrong
    failed: Annotated[bool, "whether data is wrong, or an exact row differs"]


class Bench(Rows):
    """`xccl-emu bench`."""

    seed: Seed
    data: Annotated[bool, "whether payload was moved and compared"]
    stopped: Stopped


class Traffic(TypedDict):
    """What dies of one role asked of other dies: [mean, most] of a die."""

    protocol: Protocol
    part: Annotated[str, "the operator, or the role of the dies"]
    n_dies: Annotated[int, "dies of the role"]
    writes: Annotated[list[float], "by mtu-out and DMA"]
    flags: Annotated[list[float], "writes of at most a granule"]
    reads: Annotated[list[float], "by mtu-in, DMA and scalar loads"]
    write_bytes: Annotated[list[float], "bytes of writes and flags"]
    read_bytes: Annotated[list[float], "bytes of reads"]
    dies_written: Annotated[list[float], "different dies that are written to"]
    dies_read: Annotated[list[float], "different dies that are read"]
    managed_bytes: Annotated[int, "reserved on a die"]
    meta_bytes: Annotated[int, "reserved on a die"]


class Compare(Envelope):
    """`xccl-emu compare`."""

    configuration: Configuration
    results: list[Traffic]
    wrong: Wrong


class Workload(TypedDict):
    """Requests that a plan is for."""

    rate: Annotated[float, "requests a second"]
    input: Annotated[int, "tokens of a prompt"]
    output: Annotated[int, "tokens of an answer"]
    context: Annotated[int, "tokens that memory must have room for"]


class Memory(TypedDict):
    """Bytes of one device."""

    attention_bytes: Annotated[float, "weights of attention"]
    experts_bytes: Annotated[float, "weights of experts"]
    cache_bytes: Annotated[float, "keys and values"]


class Strategy(TypedDict):
    """What the equations say of a strategy."""

    strategy: Annotated[str, "attention, experts [stages]"]
    refusal: Annotated[str, "why it cannot be; empty if it can"]
    ttft_s: Annotated[float | None, "time to the first token; null where there is no bound on it"]
    prefill_s: Annotated[float, "time of a prefill, without waiting"]
    wait_s: Annotated[float | None, "time in the queue; null where there is no bound on it"]
    itl_s: Annotated[float, "time between tokens"]
    tokens_per_s: Annotated[float, "throughput"]
    memory_bytes: Annotated[float, "memory of a device"]
    memory: Memory
    load: Annotated[float, "share of what the strategy can serve"]
    load_unit: Annotated[str, "what `load` counts, such as `requests`"]
    saturated: Annotated[bool, "whether requests come faster than they are served"]
    loses_by: Annotated[str, "the term by which it loses most against the best"]
    loses_s: Annotated[float, "by how much"]
    prefill_terms_s: Annotated[dict[str, float], "each term of a prefill"]
    decode_terms_s: Annotated[dict[str, float], "each term of a token behind it"]


class Plan(Envelope):
    """`xccl-emu plan`."""

    model: Annotated[str, "name of the model"]
    cluster: Annotated[str, "name of the cluster"]
    form: Annotated[str, "which equations: corrected or literal"]
    batch: Annotated[int, "requests at once"]
    overlapped: Annotated[bool, "whether transfers overlap, as without `--sync`"]
    dropping: Annotated[bool, "whether `--drop` was given"]
    workload: Workload
    by: Annotated[str, "what strategies are ranked by"]
    ranked: list[Strategy]
    refused: list[Strategy]
    chosen: Annotated[Strategy | None, "that of `--strategy`"]
    reason: Annotated[str, "why the best is better"]
    outcome: Annotated[str, "why the exit code is 1; empty if it is not"]


class PlanPublished(Rows):
    """`xccl-emu plan --published`."""

    form: Annotated[str, "which equations: corrected or literal"]
    batch: Annotated[int, "requests at once"]
    workload: Workload


class Fit(Envelope):
    """`xccl-emu fit`."""

    constants: Annotated[dict[str, float], "fitted constants; units are in their names"]
    intervals: Annotated[dict[str, list[float]], "how far each may be before a row is off by 3%"]
    sensitivity: Annotated[dict[str, dict[str, float]], "percent of a row per percent of a constant"]
    results: list[Row]
    evaluations: Annotated[int, "how often all rows were run"]
    mape_percent: Annotated[float, "mean absolute error"]


# ---- corpus and campaign


class Outcome(TypedDict):
    """What a tool says of one case."""

    verdict: Annotated[str, "`verified`, `no violation found`, `violation`, `unfinished` or `unsupported`"]
    kind: Kind
    states: States
    sequences: Annotated[int, "sequences of calls that were drawn"]
    seconds: Seconds
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


class Program(TypedDict):
    """A program on which judges contradict each other."""

    seed: Seed
    number: Annotated[int, "number of the program within its seed"]
    program: Annotated[str, "its text"]


class Example(Program):
    """The smallest program of a kind of contradiction."""

    order: Order
    kind: Kind


class Campaign(Envelope):
    """`xccl-emu campaign`."""

    seed: Seed
    programs: Annotated[int, "programs that were judged"]
    verdicts: Annotated[dict[str, int], "how often, by `order, judge, verdict`"]
    contradictions: Annotated[dict[str, int], "how often, by `order: kind`"]
    findings: list[Program]
    smallest: Annotated[list[Example], "the smallest program of each kind of contradiction"]
    states: States
    schedules: Schedules
    seconds: Seconds
    stopped: Stopped
    killed: Killed


COMMANDS: Mapping[str, type] = {
    "list": List, "list PROTOCOL": Described, "run": Run, "check": Check, "fuzz": Fuzz, "trace": Trace, "bench": Bench,
    "compare": Compare, "plan": Plan, "plan --published": PlanPublished, "fit": Fit, "corpus": Corpus,
    "campaign": Campaign,
}  # fmt: skip
"""What each command prints."""
