"""``xccl-emu run``: one protocol, run on the whole pod and held against its oracle."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xccl_emu.cli.app import App
from xccl_emu.cli.cases import ANY_SIZE, CaseGroup, sizes_from
from xccl_emu.cli.ending import WRONG

if TYPE_CHECKING:
    from xccl_emu.cli.moe_job import MoeJob

app = App(cls=CaseGroup, help="Run a protocol and hold its result against the oracle.", no_args_is_help=True)

Order = Annotated[str, typer.Option(help="Memory order: sc, fifo or relaxed.")]
Policy = Annotated[str, typer.Option(help="Who goes next: round-robin or random.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the payload, the routing and the random policy.")]
Redundant = Annotated[int, typer.Option(min=0, help="Replicas of the hottest routed experts.")]
RedundantSlots = Annotated[
    int, typer.Option(min=0, help="Slots for replicas alone on every die [0: on dies or in slots behind the experts]")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")]


@app.callback()
def _group() -> None:
    """Run a protocol and hold its result against the oracle; FILE.py:NAME is a protocol too."""


@app.command(hidden=True, context_settings=ANY_SIZE)
def case(
    ctx: typer.Context,
    protocol: Annotated[str, typer.Argument(help="FILE.py:NAME, or a name of xccl-emu list.", show_default=False)],
    order: Order = "sc",
    policy: Policy = "round-robin",
    as_json: AsJson = False,
) -> None:
    """Run a protocol once and compare what is in memory with what must be there; exit code 1 if a byte is wrong.

    Sizes of the protocol are options too: --dies 4. xccl-emu list FILE.py:NAME shows them.
    """
    from xccl_emu.cli.case_job import RunOptions
    from xccl_emu.cli.case_job import run as run_case

    result = run_case(protocol, sizes_from(ctx.args), RunOptions(order, policy))
    typer.echo(json.dumps(asdict(result)) if as_json else result.told())
    if result.wrong:
        raise typer.Exit(1)


def _run_layers(kind: "type[MoeJob]", options: Any, as_json: bool) -> None:
    """Run a job on layers and print its result; exit code 1 if an element is wrong."""
    from xccl_emu.cli.show import Stages, moe_table, print_result, told

    job = kind(options, Stages(quiet=as_json))
    if job.note:
        typer.echo(f"xccl-emu: {job.note}", err=True)
    result = job.run()
    if as_json:
        typer.echo(json.dumps(asdict(result)))
    else:
        print_result(moe_table(result), told(result))
    if result.wrong:
        raise typer.Exit(WRONG)


@app.command()
def dispatch(
    ranks: Annotated[
        int | None, typer.Option(min=2, max=768, help="Ranks, one a die [default: 288, or what fits]")
    ] = None,
    tokens: Annotated[int, typer.Option(min=0, help="Tokens of each rank.")] = 60,
    hidden: Annotated[int, typer.Option(min=32, help="Elements of a hidden state, a multiple of 32.")] = 7168,
    top_k: Annotated[int | None, typer.Option(min=1, max=15, help="Routed experts of a token [default: 8]")] = None,
    routing: Annotated[Path | None, typer.Option(help="Expert loads (JSON) or recorded choices (JSONL).")] = None,
    layer: Annotated[int | None, typer.Option(min=0, help="Layer of the loads [default: the first MoE layer]")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Layers one after the other, each with other tokens.")] = 1,
    cores: Annotated[int, typer.Option(min=1, max=48, help="Cores used on each die.")] = 4,
    path: Annotated[str, typer.Option(help="How data is pulled: mtu or dma.")] = "mtu",
    dtype: Annotated[str, typer.Option(help="Type of hidden states: bf16 or fp16.")] = "bf16",
    quantize: Annotated[bool, typer.Option(help="INT8 on the wire in dispatch.")] = True,
    quantizer: Annotated[str, typer.Option(help="Whose rule makes the INT8: xccl or cann.")] = "xccl",
    redundant: Redundant = 0,
    redundant_slots: RedundantSlots = 0,
    order: Order = "sc",
    policy: Policy = "round-robin",
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """One MoE layer's decode step: dispatch, a stand-in expert, combine.

    Of 288 dies, 256 host one routed expert each and 32 the shared one (a token's rank mod 32), so a token has nine
    messages. Every received row with its scale and route, all counts, and every output is compared bit for bit with an
    independent NumPy oracle: "wrong" counts what differs, and the exit code is 1 if it is not 0. Without --routing,
    choices are drawn from Zipf-like loads whose hottest expert carries about 6.6 times the mean.

    --ranks 320 --redundant 32: 256 experts and 32 replicas of the hottest on 288 dies, the shared one on 32.
    --redundant 288 --redundant-slots 1: 288 dies with an expert and a replica each.
    """
    from xccl_emu.cli.moe_job import JobOptions, MoeJob

    options = JobOptions(
        ranks=ranks, tokens=tokens, hidden=hidden, top_k=top_k, routing=routing, layer=layer, rounds=rounds,
        order=order, policy=policy, seed=seed, cores=cores, path=path, dtype=dtype, quantized=quantize,
        quantizer=quantizer, redundant=redundant, redundant_slots=redundant_slots,
    )  # fmt: skip
    _run_layers(MoeJob, options, as_json)


@app.command()
def fused(
    ranks: Annotated[
        int | None, typer.Option(min=2, max=768, help="Ranks, one a die [default: 320, or what fits]")
    ] = None,
    tokens: Annotated[int, typer.Option(min=0, help="Tokens of each rank.")] = 96,
    hidden: Annotated[int, typer.Option(min=32, help="Elements of a hidden state, a multiple of 32.")] = 7168,
    top_k: Annotated[int | None, typer.Option(min=1, max=15, help="Routed experts of a token [default: 8]")] = None,
    routing: Annotated[Path | None, typer.Option(help="Expert loads (JSON) or recorded choices (JSONL).")] = None,
    layer: Annotated[int | None, typer.Option(min=0, help="Layer of the loads [default: the first MoE layer]")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Layers one after the other, each with other tokens.")] = 1,
    cores: Annotated[int, typer.Option(min=1, max=48, help="Cores used on each die.")] = 4,
    path: Annotated[str, typer.Option(help="Who writes to the peers: aiv (the cores) or sdma.")] = "aiv",
    early: Annotated[bool, typer.Option("--early/--late", help="Quantize before sending or when it came.")] = True,
    preallocate: Annotated[bool, typer.Option(help="A region for each source, else counts first.")] = True,
    pipeline: Annotated[bool, typer.Option(help="Load and quantize a token while one is sent.")] = True,
    double_buffer: Annotated[bool, typer.Option(help="Messages and contributions in buffers of their own.")] = True,
    dtype: Annotated[str, typer.Option(help="Type of hidden states: bf16 or fp16.")] = "bf16",
    quantize: Annotated[bool, typer.Option(help="INT8 for the experts.")] = True,
    quantizer: Annotated[str, typer.Option(help="Whose rule makes the INT8: xccl or cann.")] = "xccl",
    redundant: Annotated[
        int | None, typer.Option(min=0, help="Replicas of the hottest experts [default: 32 with 320 ranks, else 0]")
    ] = None,
    redundant_slots: RedundantSlots = 0,
    order: Order = "sc",
    policy: Policy = "round-robin",
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """One MoE layer's decode step by FusedDispatch and FusedCombine: ranks write into each other's buffers.

    Of 320 dies, 288 host one routed expert each, 32 of them replicas of the hottest, and 32 the shared one. As with
    dispatch all that is received and every output is compared bit for bit with the oracle; exit code 1 if "wrong" is
    not 0. Each optimization can be switched off on its own, and changes no bit.
    """
    from xccl_emu.cli.fused_job import FusedJob, FusedOptions

    options = FusedOptions(
        ranks=ranks, tokens=tokens, hidden=hidden, top_k=top_k, routing=routing, layer=layer, rounds=rounds,
        order=order, policy=policy, seed=seed, cores=cores, path=path, dtype=dtype, quantized=quantize,
        quantizer=quantizer, redundant=-1 if redundant is None else redundant, redundant_slots=redundant_slots,
        early_quantization=early, preallocated=preallocate, pipelined=pipeline, double_buffered=double_buffer,
    )  # fmt: skip
    _run_layers(FusedJob, options, as_json)


@app.command()
def a2e(
    domains: Annotated[int, typer.Option(min=1, help="Domains of attention dies, which take turns.")] = 3,
    attention: Annotated[int, typer.Option(min=1, help="Attention dies of each domain, and trampolines.")] = 160,
    experts: Annotated[int, typer.Option(min=2, help="Expert dies.")] = 288,
    tokens: Annotated[int, typer.Option(min=0, help="Tokens of each attention die in a call.")] = 96,
    calls: Annotated[int | None, typer.Option(min=0, help="Microbatches [default: one of each domain]")] = None,
    hidden: Annotated[int, typer.Option(min=32, help="Elements of a hidden state, a multiple of 32.")] = 7168,
    top_k: Annotated[int | None, typer.Option(min=1, max=15, help="Routed experts of a token [default: 8]")] = None,
    routing: Annotated[Path | None, typer.Option(help="Expert loads (JSON) or recorded choices (JSONL).")] = None,
    layer: Annotated[int | None, typer.Option(min=0, help="Layer of the loads [default: the first MoE layer]")] = None,
    depth: Annotated[int, typer.Option(min=1, max=8, help="Calls that the expert dies have memory for.")] = 1,
    cores: Annotated[int, typer.Option(min=1, max=16, help="Cores of an attention die, and of each stream.")] = 2,
    path: Annotated[str, typer.Option(help="How data travels: mtu or urma.")] = "mtu",
    dtype: Annotated[str, typer.Option(help="Type of hidden states: bf16 or fp16.")] = "bf16",
    quantize: Annotated[bool, typer.Option(help="INT8 on the way to the experts.")] = True,
    quantizer: Annotated[str, typer.Option(help="Whose rule makes the INT8: xccl or cann.")] = "xccl",
    order: Order = "sc",
    policy: Policy = "round-robin",
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Attention dies and expert dies apart: A2E through trampolines, a stand-in expert, E2A, with persistent kernels.

    Of 288 expert dies, 256 host one routed expert each and 32 the shared one; 160 of them are trampolines. Three
    domains of 160 attention dies take turns, one call each. Every output of every call is compared bit for bit with
    the oracle, and what the expert dies received in the last calls (--depth of them) with its scales, routes and
    counts; exit code 1 if "wrong" is not 0.
    """
    from xccl_emu.cli.a2e_job import A2EJob, A2EOptions
    from xccl_emu.cli.show import Stages, a2e_table, print_result, told

    options = A2EOptions(
        domains=domains, attention=attention, experts=experts, tokens=tokens, calls=calls, hidden=hidden, top_k=top_k,
        routing=routing, layer=layer, depth=depth, order=order, policy=policy, seed=seed, cores=cores, path=path,
        dtype=dtype, quantized=quantize, quantizer=quantizer,
    )  # fmt: skip
    result = A2EJob(options, Stages(quiet=as_json)).run()
    if as_json:
        typer.echo(json.dumps(asdict(result)))
    else:
        print_result(a2e_table(result), told(result))
    if result.wrong:
        raise typer.Exit(WRONG)


@app.command()
def sendrecv(
    file: Annotated[Path | None, typer.Option(help="File to send [default: random bytes]")] = None,
    nbytes: Annotated[
        str | None, typer.Option(help="Random bytes in place of a file; K, M and G are powers of 1024 [default: 1M]")
    ] = None,
    source: Annotated[int | None, typer.Option(min=0, max=767, help="Die that sends [default: 0]")] = None,
    target: Annotated[int | None, typer.Option(min=0, max=767, help="Die that receives [default: 767]")] = None,
    permutation: Annotated[
        bool, typer.Option("--permutation", help="Every die sends to a random other at once.")
    ] = False,
    cores: Annotated[int, typer.Option(min=1, max=48, help="Cores on each side.")] = 2,
    slots: Annotated[int, typer.Option(min=1, help="Slots of each core's ring.")] = 4,
    path: Annotated[str, typer.Option(help="mtu, dma or zero-copy.")] = "mtu",
    rounds: Annotated[int, typer.Option(min=1, help="Transfers one after the other over the same ring.")] = 1,
    order: Order = "sc",
    policy: Policy = "round-robin",
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Send a payload from die to die and compare what arrived byte by byte; exit code 1 if a byte is wrong."""
    from xccl_emu.bench.sizes import parse_size
    from xccl_emu.cli.sendrecv_job import SendRecvOptions, run_sendrecv
    from xccl_emu.cli.show import Stages, print_result, sendrecv_table

    options = SendRecvOptions(
        file=file, nbytes=None if nbytes is None else parse_size("--nbytes", nbytes), source=source, target=target,
        permutation=permutation, cores=cores, slots=slots, path=path, rounds=rounds, order=order, policy=policy,
        seed=seed,
    )  # fmt: skip
    result = run_sendrecv(options, Stages(quiet=as_json))
    if as_json:
        typer.echo(json.dumps(asdict(result)))
    else:
        print_result(sendrecv_table(result), f"#wrong {result.wrong}")
    if result.wrong:
        raise typer.Exit(WRONG)
