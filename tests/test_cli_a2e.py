"""``xccl-emu run a2e``: results, options, exit codes, JSON, and what it says to bad input."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli_support import as_json, invoke
from xccl_emu.protocols.a2e import A2EConfig, Calls
from xccl_emu.runs.a2e import A2ERun
from xccl_emu.runs.jobs.a2e import bytes_needed

SMALL = (
    "run", "a2e", "--domains", "2", "--attention", "2", "--experts", "9", "--tokens", "3", "--hidden", "64",
)  # fmt: skip


@pytest.mark.parametrize("order", ["sc", "fifo", "relaxed"])
@pytest.mark.parametrize("policy", ["round-robin", "random"])
def test_the_job_is_right_under_every_order_and_policy(order: str, policy: str) -> None:
    """One call of each domain verifies itself with no wrong element, whatever the memory order and the policy."""
    result = as_json(*SMALL, "--order", order, "--policy", policy)
    assert result["wrong"] == 0
    assert (result["dies"], result["tokens"], result["messages"]) == (9 + 2 * 2, 2 * 2 * 3, 2 * 2 * 3 * 9)
    assert result["compared"] == {"outputs": [0, 1], "rows": [1]}


@pytest.mark.parametrize(
    "extra",
    [
        ["--calls", "5", "--depth", "3"], ["--calls", "0"], ["--tokens", "0"], ["--path", "urma"], ["--cores", "3"],
        ["--no-quantize", "--dtype", "fp16"], ["--top-k", "1"], ["--quantizer", "cann"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_variants_of_the_job_are_right(extra: list[str]) -> None:
    """More calls than domains, none, no tokens, URMA, more cores, FP16, one choice and the other quantizer verify."""
    assert as_json(*SMALL, *extra)["wrong"] == 0


def test_urma_moves_what_cores_moved() -> None:
    """By URMA tokens, messages and rows on their way from die to die go through the DMA engine alone."""
    usual, urma = (as_json(*SMALL, *path)["rounds"][0]["a2e"]["bytes_by_pipe"] for path in ([], ["--path", "urma"]))
    tokens, messages = 2 * 2 * 3, 2 * 2 * 3 * 9
    assert usual["dma"] == 0
    assert urma["dma"] == (tokens + messages) * (64 + 512) + messages * 2 * 128


def test_a_wrong_bit_is_counted_and_fails_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a single output differs from the oracle's, `wrong` says so and the exit code is 1."""
    given = Calls.output

    def output_with_a_flipped_bit(calls: Calls, call: int, i: int) -> Any:
        states = given(calls, call, i).copy()
        if (call, i) == (1, 0):
            states.view(np.uint16)[2, 7] ^= 1
        return states

    monkeypatch.setattr(Calls, "output", output_with_a_flipped_bit)
    code, out, _ = invoke(*SMALL, "--json")
    assert code == 1
    assert json.loads(out)["wrong"] == 1


def test_the_table_names_what_was_moved() -> None:
    """Without --json the result is a table for people, with the count of wrong elements in the last line."""
    code, out, _ = invoke(*SMALL)
    assert code == 0
    assert "13 dies, 12 tokens, 108 messages" in out
    assert out.strip().endswith("#wrong 0")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--path", "dma"], "--path dma: must be one of mtu, urma"),
        (["--hidden", "50"], "--hidden 50: must be"),
        (["--attention", "10"], "--attention 10: must be at most n_experts=9"),
        (["--experts", "765"], "2 x 2 + 765 = 769 dies; the pod has 768"),
        (["--tokens", "40000", "--hidden", "7168"], "GiB are free; take fewer --tokens"),
        (["--routing", "/nonexistent.json"], "/nonexistent.json"),
    ],
)
def test_impossible_requests_are_refused_with_exit_code_2(arguments: list[str], said: str) -> None:
    """What cannot be run is a usage error that names the argument and the value, not a traceback."""
    code, out, err = invoke(*SMALL, *arguments)
    assert code == 2, out
    assert said in err


def test_the_whole_pod_needs_less_than_20_gigabytes() -> None:
    """The estimate for the usual deployment, 46,080 tokens over 768 dies, is below the limit that it is held to."""
    o = A2ERun()
    config = A2EConfig(
        o.domains, o.attention, o.experts, top_k=9, tokens_max=o.tokens, depth=o.depth, cores=o.cores,
        a2e_cores=o.cores, compute_cores=o.cores, e2a_cores=o.cores,
    )  # fmt: skip
    assert config.n_dies == 768
    assert bytes_needed(config, o.n_calls) < 20e9


@pytest.mark.parametrize("name", ["deepseek_v3_decode_in2000out100.json", "deepseek_v3_prefill_in4096.json"])
def test_measured_loads_are_routed(data_dir: Path, name: str) -> None:
    """Loads of 256 experts on 36 dies, eight an expert die, verify with the measured skew."""
    result = as_json(*SMALL[:6], "--experts", "36", *SMALL[8:], "--routing", str(data_dir / name), "--layer", "20")
    assert result["wrong"] == 0
    assert name in result["routing"]
    assert result["hottest_over_mean"] > 1
