"""``xccl-emu run``: results, exit codes and JSON of the jobs that hold themselves against their oracle."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli_support import as_json, printed, refusal
from xccl_emu.base.errors import CapacityError
from xccl_emu.base.stage import silent
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import CLOUDMATRIX384
from xccl_emu.protocol import PodRun
from xccl_emu.protocol.registry import on_pod
from xccl_emu.protocols.a2e.case import bytes_needed
from xccl_emu.protocols.a2e.session import Calls
from xccl_emu.protocols.fused.session import FusedExpertParallel
from xccl_emu.protocols.pull.session import ExpertParallel

DISPATCH = ("run", "dispatch", "--ranks", "4", "--tokens", "5", "--hidden", "64", "--cores", "2")
FUSED = ("run", "fused", *DISPATCH[2:])
A2E = ("run", "a2e", "--domains", "2", "--attention", "2", "--experts", "9", "--tokens", "3", "--hidden", "64")
JOBS = (DISPATCH, FUSED, A2E)
NAMES = [job[1] for job in JOBS]
MEASURED = ("deepseek_v3_decode_in2000out100.json", "deepseek_v3_prefill_in4096.json")
"""Published loads of experts, of both phases."""


@pytest.mark.parametrize(("policy", "order"), [("round-robin", "sc"), ("random", "fifo"), ("random", "relaxed")])
@pytest.mark.parametrize("job", JOBS, ids=NAMES)
def test_a_job_is_right_under_every_order_and_policy(job: tuple[str, ...], order: str, policy: str) -> None:
    """It verifies itself with no wrong element, whatever the memory order and the policy."""
    more = () if job == A2E else ("--rounds", "2")
    result = as_json(*job, *more, "--order", order, "--policy", policy)
    assert result["wrong"] == 0
    if job == A2E:
        counts = {"dies": 9 + 2 * 2, "tokens": 2 * 2 * 3, "messages": 2 * 2 * 3 * 9}
        assert result["facts"].items() >= counts.items()
        assert result["facts"]["compared"] == {"outputs": [0, 1], "rows": [1]}
    else:
        assert (result["facts"]["messages"], len(result["rounds"])) == (4 * 5 * 9, 2)


OFF = (["--path", "sdma"], ["--late"], ["--no-preallocate"], ["--no-pipeline"], ["--no-double-buffer"])
FP16, ONE_CHOICE, CANN = ["--no-quantize", "--dtype", "fp16"], ["--top-k", "1"], ["--quantizer", "cann"]
VARIANTS = [
    *((DISPATCH, extra) for extra in (["--path", "dma"], CANN, FP16, ONE_CHOICE)),
    *((DISPATCH, ["--quantize-back", *extra]) for extra in ([], CANN, FP16, ["--path", "dma"])),
    *((job, ["--counting", "scalar"]) for job in (DISPATCH, FUSED)),
    *((FUSED, extra) for extra in (FP16, ONE_CHOICE, [*CANN, "--late"], ["--redundant", "3"])),
    *((A2E, extra) for extra in (["--calls", "5", "--depth", "3"], ["--calls", "0"], ["--tokens", "0"], FP16, CANN)),
    *((A2E, extra) for extra in (["--path", "urma"], ["--cores", "3"], ONE_CHOICE, ["--trampolines", "1"])),
    (A2E, ["--a2e-parts", "2", "--e2a-parts", "3", "--cores", "3", "--microbatches", "2"]),
    (A2E, ["--attention", "7", "--trampolines", "3", "--e2a-parts", "2", "--path", "urma"]),
]


@pytest.mark.parametrize(("job", "extra"), VARIANTS, ids=[" ".join([job[1], *extra]) for job, extra in VARIANTS])
def test_variants_of_a_job_are_right(job: tuple[str, ...], extra: list[str]) -> None:
    """Other paths and quantizers, unquantized FP16, a single choice, replicas, more calls than domains or none,
    several attention dies a trampoline, and batches in parts."""
    assert as_json(*job, *extra)["wrong"] == 0


@pytest.mark.parametrize("switches", OFF, ids=" ".join)
def test_each_optimization_of_fused_can_be_switched_off(switches: list[str]) -> None:
    """The results stay right, and the options say what was off."""
    usual, without = as_json(*FUSED)["configuration"], as_json(*FUSED, *switches)
    assert without["wrong"] == 0
    assert sum(usual[name] != value for name, value in without["configuration"].items()) == 1


def test_sdma_moves_what_cores_moved() -> None:
    """By SDMA no token's message is written to a peer by mtu-out, but copied by the engine."""
    usual, sdma = (as_json(*FUSED, *path)["rounds"][0] for path in ([], ["--path", "sdma"]))
    assert usual["dispatch"]["bytes_by_pipe"]["dma"] == usual["combine"]["bytes_by_pipe"]["dma"] == 0
    assert sdma["dispatch"]["bytes_by_pipe"]["dma"] == 4 * 5 * 9 * (64 + 512)
    assert sdma["combine"]["bytes_by_pipe"]["dma"] == 4 * 5 * 9 * 128


def test_urma_moves_what_cores_moved() -> None:
    """By URMA tokens, messages and rows on their way from die to die go through the DMA engine alone."""
    usual, urma = (as_json(*A2E, *path)["rounds"][0]["a2e"]["bytes_by_pipe"] for path in ([], ["--path", "urma"]))
    tokens, messages = 2 * 2 * 3, 2 * 2 * 3 * 9
    assert usual["dma"] == 0
    assert urma["dma"] == (tokens + messages) * (64 + 512) + messages * 2 * 128


def test_replicas_cool_the_hottest_die() -> None:
    """With replicas of hot experts the job is right, and its hottest die receives fewer rows than without."""
    for ranks, extra in (("20", []), ("18", ["--redundant-slots", "3"])):
        result = as_json(*DISPATCH[:3], ranks, *DISPATCH[4:], "--tokens", "40", "--redundant", "32", *extra)
        assert result["wrong"] == 0
        assert result["facts"]["replicas"] == 32
        assert result["facts"]["hottest_die_rows"] < result["facts"]["hottest_die_rows_without_replicas"]


@pytest.mark.parametrize(
    ("job", "owner", "rank"),
    [(DISPATCH, ExpertParallel, (2,)), (FUSED, FusedExpertParallel, (2,)), (A2E, Calls, (1, 0))],
    ids=NAMES,
)
def test_a_wrong_bit_is_counted_and_fails_the_command(
    job: tuple[str, ...], owner: type, rank: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a single output differs from the oracle's, `wrong` says so and the exit code is 1."""
    given: Any = owner.output

    def output_with_a_flipped_bit(made: Any, *which: int) -> Any:
        states = given(made, *which).copy()
        if which == rank:
            states.view(np.uint16)[2, 7] ^= 1
        return states

    monkeypatch.setattr(owner, "output", output_with_a_flipped_bit)
    assert as_json(*job, code=1)["wrong"] == 1


@pytest.mark.parametrize(
    ("job", "told"), [(DISPATCH, "out GB"), (FUSED, "out GB"), (A2E, "13 dies, 12 tokens, 108 messages")], ids=NAMES
)
def test_the_table_names_what_was_moved(job: tuple[str, ...], told: str) -> None:
    """Without --json the result is a table for people, with the count of wrong elements in the last line."""
    out = printed(*job)
    assert told in out
    assert out.strip().endswith("#wrong 0")


def fitted(name: str, free_bytes: int, **sizes: Any) -> tuple[Any, str]:
    """A case as it would run with so much memory, and its note."""
    site = PodRun(Pod(CLOUDMATRIX384), silent, free_bytes)
    return on_pod(name, hidden=64, **sizes).fit_to_memory({"hidden", *sizes}, site)


def needed(name: str, ranks: int, **sizes: Any) -> int:
    """Memory of so many ranks."""
    case: Any = on_pod(name, hidden=64, **sizes)
    return int(case.bytes_needed(ranks))


def test_the_job_takes_fewer_ranks_than_the_default_when_memory_is_short() -> None:
    """Without --ranks the largest number of ranks that fits is run, and the note says so."""
    fewer, note = fitted("dispatch", needed("dispatch", 3))
    assert fewer.ranks == 3
    assert "running 3 ranks" in note


@pytest.mark.parametrize("job", [DISPATCH, FUSED], ids=NAMES[:2])
def test_a_batch_larger_than_asked_for_goes_in_parts(job: tuple[str, ...]) -> None:
    """Tokens that do not go at once go behind the others, each part held against the oracle, and none is left out."""
    whole, parts = as_json(*job), as_json(*job, "--at-once", "3")
    assert parts["wrong"] == 0
    assert parts["configuration"]["at_once"] == 3
    assert all(parts["facts"][name] == whole["facts"][name] for name in ("tokens", "messages"))
    assert (len(whole["rounds"]), len(parts["rounds"])) == (1, 2)


def test_a_batch_of_attention_dies_goes_in_several_calls() -> None:
    """By trampolines and by plain pull, with as many tokens and messages as at once, and each part right."""
    for more in ([], ["--domains", "1", "--pull", "1"]):
        job = (*A2E, *more, "--counting", "scalar")
        whole, parts = as_json(*job), as_json(*job, "--at-once", "2")
        assert (parts["wrong"], parts["configuration"]["at_once"]) == (0, 2)
        assert all(parts["facts"][name] == whole["facts"][name] for name in ("tokens", "messages"))
        parts, whole = (each["facts"]["compared"] for each in (parts, whole))
        assert len(parts["outputs"]) == 2 * len(whole["outputs"])


def test_fewer_tokens_go_at_once_where_all_do_not_fit() -> None:
    """Half as many at a time, until memory is enough; what was asked for is refused if it does not fit."""
    free = needed("dispatch", 4, tokens=1024, at_once=256)
    assert fitted("dispatch", free, ranks=4, tokens=1024)[0].at_once == 256
    with pytest.raises(CapacityError, match="4 ranks need about"):
        fitted("dispatch", free, ranks=4, tokens=1024, at_once=257)


def test_the_usual_deployment_is_taken_if_it_fits() -> None:
    """Without --ranks 320 ranks with 32 replicas are run, or as many as fit with none, and a note says so."""
    usual, note = fitted("fused", 1 << 50)
    assert (usual.ranks, usual.redundant, note) == (320, 32, "")
    fewer, note = fitted("fused", needed("fused", 3))
    assert (fewer.ranks, fewer.redundant) == (3, 0)
    assert "running 3 ranks" in note


def test_the_whole_pod_needs_less_than_20_gigabytes() -> None:
    """The estimate for the usual deployment, 46,080 tokens over 768 dies, is below the limit that it is held to."""
    case: Any = on_pod("a2e", rounds=3)
    config = case._config()
    assert config.n_dies == 768
    assert bytes_needed(config, 3) < 20e9


@pytest.mark.parametrize("name", MEASURED)
@pytest.mark.parametrize(
    "job",
    [("run", "dispatch", "--ranks", "4", "--tokens", "60", "--hidden", "64"), FUSED,
     (*A2E[:6], "--experts", "36", *A2E[8:], "--layer", "20")], ids=NAMES,
)  # fmt: skip
def test_measured_loads_route_a_job(job: tuple[str, ...], name: str, data_dir: Path) -> None:
    """The published expert loads of both phases drive it, and its hottest expert is as hot as theirs."""
    result = as_json(*job, "--routing", str(data_dir / name))
    assert result["wrong"] == 0
    assert name in result["facts"]["routing"]
    assert result["facts"]["hottest_over_mean"] > 1.5


def test_recorded_choices_route_the_main_job(data_dir: Path) -> None:
    """Recorded token-by-token choices (4 of 60 experts) drive the job, and another top-k is refused."""
    path = str(data_dir / "qwen1.5_moe_layer12.jsonl")
    result = as_json(*DISPATCH, "--routing", path)
    assert result["wrong"] == 0
    assert result["facts"]["messages"] == 4 * 5 * 5
    assert "--top-k 8" in refusal(*DISPATCH, "--routing", path, "--top-k", "8")


@pytest.mark.parametrize("path", ["mtu", "dma", "zero-copy"])
def test_a_file_arrives_whole(tmp_path: Path, path: str) -> None:
    """A real file sent between two dies over a used ring arrives byte for byte."""
    file = tmp_path / "payload"
    file.write_bytes(np.random.default_rng(0).integers(0, 256, 100_003, dtype=np.uint8).tobytes())
    result = as_json("run", "sendrecv", "--file", str(file), "--cores", "3", "--rounds", "2", "--path", path)
    assert result["wrong"] == 0
    assert result["facts"]["nbytes"] == 100_003


def test_every_die_sends_to_a_random_other_at_once() -> None:
    """On the whole pod of 768 dies, all send and receive at the same time, and every byte is right."""
    result = as_json("run", "sendrecv", "--permutation", "--nbytes", "3000", "--order", "relaxed")
    assert result["facts"]["pairs"] == 768
    assert result["wrong"] == 0


def test_a_layer_with_a_routing_is_checked_too() -> None:
    """A shared expert, FP16, parts of a batch: what the pod runs, many schedules of a small one hold."""
    small = ("--ranks", "2", "--tokens", "2", "--hidden", "32", "--top-k", "1", "--routing", "zipf", "--at-once", "1")
    for more in (("dispatch", "--dtype", "fp16"), ("fused", "--quantizer", "cann")):
        verdict = as_json("check", *more, *small, "--policy", "portfolio", "--schedules", "3")
        assert verdict["verdict"] == "no violation found"


@pytest.mark.parametrize("more", [[], ["--permutation", "1", "--ranks", "3"], ["--target", "2"]])
def test_what_runs_on_the_pod_is_verified_too(more: list[str]) -> None:
    """Payloads of any size, and pairs of any dies, are sizes of the case: every schedule of a small one is right."""
    words = ("sendrecv", *more, "--nbytes", "70")
    assert as_json("check", *words, "--slots", "2", "--granules", "1")["verdict"] == "verified"
    assert as_json("run", *words)["wrong"] == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_cannot_be_written() -> None:
    """A full disk behind stdout is told in one line, with an exit code of its own."""
    command = [sys.executable, "-m", "xccl_emu", "bench", "buffers", "--json"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 5
    assert done.stderr == "xccl-emu: error: output: No space left on device\n"


def test_help_of_a_protocol_names_it() -> None:
    """What is said of its usage is what was typed; the next command without help runs as ever."""
    out = printed("run", "sendrecv", "--help")
    assert "Usage: xccl-emu run sendrecv [OPTIONS]" in out.replace("root ", "xccl-emu ")
    assert as_json("run", "sendrecv", "--nbytes", "64")["wrong"] == 0


@pytest.mark.nojit
def test_one_of_a_thing_is_told_as_one() -> None:
    """1 pair, but 768 of them."""
    assert "sendrecv: 1 pair, 64 nbytes" in printed("run", "sendrecv", "--nbytes", "64")
