"""What commands print that run or judge something, and ``list``."""

from typing import Annotated, Any, TypedDict

from xccl_emu.cli.schema import words as w

# ---- list


class Named(TypedDict):
    """A protocol in a list."""

    protocol: w.Protocol
    family: Annotated[str, "folder of `protocols/` that has it, or package of another distribution"]
    about: w.About


class List(w.Envelope):
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


class Described(w.Envelope):
    """`xccl-emu list PROTOCOL`."""

    protocol: w.Protocol
    about: w.About
    papers: Annotated[list[str], "what it is made after, with the section"]
    sizes: list[Size]
    synchronizations: Annotated[list[str], "names that `--without` takes"]
    proofs: Annotated[dict[str, w.Configuration], "configurations that are to be proved, by what each is for"]


# ---- run and trace


class Stats(TypedDict):
    """What the machine did in a run."""

    seconds: w.Seconds
    actions: Annotated[int, "actions of the machine; of a violation: how long its schedule is"]
    instructions: Annotated[dict[str, int], "granted requests by operation"]
    bytes_by_pipe: Annotated[dict[str, int], "bytes that each pipe moved"]
    vector_elements: Annotated[int, "elements that the vector pipe worked on"]


class Run(w.Envelope):
    """`xccl-emu run`."""

    protocol: w.Protocol
    configuration: w.Configuration
    order: w.Order
    policy: w.Policy
    wrong: w.Wrong
    wrong_bytes: w.WrongBytes
    rounds: Annotated[list[dict[str, Stats]], "what each round did, by kernel or call"]
    facts: Annotated[dict[str, Any], "what else the protocol says of the run; each has words of its own"]
    stage_seconds: Annotated[dict[str, float], "wall time of each stage"]
    seconds: w.Seconds
    resident_gb: Annotated[float, "most memory of the process, 10^9 bytes"]


class Trace(w.Envelope):
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


class Sizes(w.Envelope):
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


class Violation(TypedDict):
    """What went wrong."""

    kind: w.Kind
    message: Annotated[str, "who, where in the source, which step, which address"]
    actions: Annotated[int, "actions of the machine; of a violation: how long its schedule is"]
    found_by: Annotated[str, "policy and seed, `exhaustive search` or `brute force`"]
    found_after: Annotated[int, "states or schedules until it was found"]
    loop: Annotated[int, "actions at the end that go round in a livelock; 0 if none are known"]


class Certificate(TypedDict):
    """What brute force and drawn schedules, or a replay, say of a verdict."""

    states: w.States
    complete: Annotated[bool, "whether brute force has visited all states"]
    too_large: Annotated[str, "why there is no brute force; empty if there is"]
    schedules: w.Schedules
    seconds: w.Seconds
    replayed: Annotated[bool, "whether the violation shows again when replayed"]
    disagreement: Annotated[str, "what was found that the verdict did not say"]
    of_proof: Annotated[bool, "whether the verdict had been `verified`"]
    agrees: Annotated[bool, "whether nothing contradicts the verdict"]


class Opinion(TypedDict):
    """What one other road says of a proof."""

    by: Annotated[str, "`less`, `merged` or `brute force`; `exhaustive search` of a smaller one that it refutes"]
    verdict: Annotated[str, "`verified`, `violation`, or `unfinished` for what has not ended in time"]
    smaller: Annotated[dict[str, int], "sizes that are smaller; empty for the configuration itself"]
    states: w.States
    seconds: w.Seconds
    because: Annotated[str, "what was found, or why it has not ended"]
    contradicts: Annotated[bool, "whether it contradicts the search: a bug of xccl_emu"]


class Confirmation(TypedDict):
    """Second opinions on a proof, asked within some seconds."""

    limit_seconds: Annotated[float, "for how long they were asked, at most"]
    opinions: list[Opinion]
    confirmed: Annotated[Opinion | None, "brute force that has ended, on the largest configuration"]
    interrupted: Annotated[bool, "whether Ctrl-C has ended it"]


class Place(TypedDict):
    """A synchronization at a line of a kernel."""

    kernel: w.Kernel
    sync: w.Sync
    operation: w.Operation
    file: w.File
    line: w.Line
    callers: w.Callers
    dies: Annotated[list[int], "dies on which the kernel runs"]


class Reach(TypedDict):
    """What no run needed."""

    never_waited: Annotated[list[Place], "granted at once in every run"]
    never_reached: Annotated[list[Place], "no run comes to it"]
    used_once: Annotated[list[str], "in runs drawn of a proof: labels of slots that were never used twice"]
    far_from_wrap: Annotated[list[str], "in these runs: labels of 4-byte counters near neither 2^31 nor 2^32"]


class Recovery(TypedDict):
    """A proof that every other core returns after a fault."""

    longest: Annotated[int | None, "most actions from the fault to the last return; null if nothing bounds them"]
    unit: Annotated[str, "`actions on shared memory`, or `actions` where brute force has counted all"]


class Verdict(TypedDict):
    """A verdict."""

    verdict: Annotated[str, "`verified`, `no violation found`, `violation`, `unfinished` or `unsupported`"]
    protocol: w.Protocol
    configuration: w.Configuration
    order: w.Order
    policy: w.Policy
    seed: w.Seed
    without: Annotated[list[str], "synchronizations that were switched off"]
    fault: w.Fault
    states: w.States
    transitions: Annotated[int, "actions on shared memory"]
    actions: Annotated[int, "actions of the machine; of a violation: how long its schedule is"]
    schedules: w.Schedules
    seconds: w.Seconds
    bounds: Annotated[dict[str, int], "limits of the machine within which it holds"]
    collision: Annotated[float, "upper bound on the probability that a state was missed"]
    reason: Annotated[str, "why there is no answer; what a proof rests on"]
    violation: Violation | None
    others: Annotated[list[Violation], "violations of other kinds or at other places"]
    ended: Annotated[dict[str, int], "with a fault: how schedules ended"]
    declared: Annotated[dict[str, int], "with a fault: declared errors"]
    certificate: Certificate | None
    confirmation: Confirmation | None
    recovery: Recovery | None
    due: Annotated[dict[str, list[str]], "names of the expected bytes, by what made them due"]
    reach: Reach | None


class Without(Verdict):
    """The verdict without one synchronization, of `--each-sync`."""

    sync: w.Sync
    steps: Annotated[list[int], "steps of the paper"]
    finding: Annotated[str, "`needed`, `redundant`, or the verdict"]
    idle: Annotated[bool, "whether nobody had to wait at it"]
    as_data: Annotated[bool, "whether a kernel uses the result of a poll of that name"]


class Request(TypedDict):
    """The weakest form of one request, of `--weakest`."""

    kernel: w.Kernel
    file: w.File
    line: w.Line
    callers: w.Callers
    text: Annotated[str, "the line itself"]
    operation: w.Operation
    sync: w.Sync
    asks: Annotated[str, "what it asks for"]
    weakest: Annotated[str, "the weakest that will do"]
    advice: Annotated[str, "the same if it is not what it asks for"]
    too_weak: Annotated[dict[str, str], "kind of violation with each that is too weak"]
    withdrawn: Annotated[dict[str, str], "what was found against an advice"]
    states: w.States
    reached: Annotated[bool, "whether a run comes to it"]
    unfinished: Annotated[str, "why there is no answer"]
    certificates: Annotated[dict[str, Certificate], "for each that was judged again"]


class Stronger(Verdict):
    """The verdict by the stronger readings of barriers that nobody has chosen."""

    read: Annotated[dict[str, str], "what was read, and how"]


class Check(w.Envelope, Verdict):
    """`xccl-emu check`."""

    stronger: Annotated[Stronger | None, "by the stronger readings; null where the kernels leave nothing open"]

    replay_file: w.ReplayFile
    each_sync: Annotated[list[Without] | None, "null without `--each-sync`"]
    unreached: Annotated[list[str], "with `--each-sync`: synchronizations that no run comes to"]
    each_request: Annotated[list[Request] | None, "null without `--weakest`"]


class Sequence(Verdict):
    """A sequence of calls in which something goes wrong, and its verdict."""

    stages: Annotated[str, "the calls of each communicator, as JSON"]


class Fuzz(w.Envelope):
    """`xccl-emu fuzz`."""

    protocol: w.Protocol
    order: w.Order
    seed: w.Seed
    sequences: Annotated[int, "sequences of calls that were drawn"]
    calls: Annotated[int, "calls of them all"]
    judged: Annotated[int, "sequences that were judged"]
    proved: Annotated[int, "of them on every schedule"]
    schedules: w.Schedules
    states: w.States
    seconds: w.Seconds
    stopped: w.Stopped
    killed: w.Killed
    findings: list[Sequence]
    replay_file: w.ReplayFile


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


class Litmus(w.Envelope):
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


class LitmusRead(w.Envelope):
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


class Corpus(w.Envelope):
    """`xccl-emu corpus`."""

    results: list[Member]


class Program(TypedDict):
    """A program on which judges contradict each other."""

    seed: w.Seed
    number: Annotated[int, "number of the program within its seed"]
    program: Annotated[str, "its text"]


class Example(Program):
    """The smallest program of a kind of contradiction."""

    order: w.Order
    kind: w.Kind


class Campaign(w.Envelope):
    """`xccl-emu campaign`."""

    seed: w.Seed
    programs: Annotated[int, "programs that were judged"]
    verdicts: Annotated[dict[str, int], "how often, by `order, judge, verdict`"]
    contradictions: Annotated[dict[str, int], "how often, by `order: kind`"]
    findings: list[Program]
    smallest: Annotated[list[Example], "the smallest program of each kind of contradiction"]
    states: w.States
    schedules: w.Schedules
    seconds: w.Seconds
    stopped: w.Stopped
    killed: w.Killed
