"""``xccl-emu run``: results, exit codes, JSON, and what it says to bad input."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli_support import as_json, invoke
from xccl_emu.runs.dispatch import Dispatch
from xccl_emu.runs.jobs import moe as moe_job
from xccl_emu.runs.jobs import sendrecv as sendrecv_job

SMALL = ("run", "dispatch", "--ranks", "4", "--tokens", "5", "--hidden", "64", "--cores", "2")


@pytest.mark.parametrize("order", ["sc", "fifo", "relaxed"])
@pytest.mark.parametrize("policy", ["round-robin", "random"])
def test_the_main_job_is_right_under_every_order_and_policy(order: str, policy: str) -> None:
    """The job verifies itself with no wrong element, whatever the memory order and the policy."""
    result = as_json(*SMALL, "--order", order, "--policy", policy, "--rounds", "2")
    assert result["wrong"] == 0
    assert result["messages"] == 4 * 5 * 9
    assert len(result["rounds"]) == 2


@pytest.mark.parametrize(
    "extra", [["--path", "dma"], ["--quantizer", "cann"], ["--no-quantize", "--dtype", "fp16"], ["--top-k", "1"]]
)
def test_variants_of_the_main_job_are_right(extra: list[str]) -> None:
    """DMA pulls, the other quantizer, unquantized FP16 and a single choice verify too."""
    assert as_json(*SMALL, *extra)["wrong"] == 0


def test_replicas_cool_the_hottest_die() -> None:
    """With replicas of hot experts the job is right, and its hottest die receives fewer rows than without."""
    for ranks, extra in (("20", []), ("18", ["--redundant-slots", "3"])):
        result = as_json(*SMALL[:3], ranks, *SMALL[4:], "--tokens", "40", "--redundant", "32", *extra)
        assert result["wrong"] == 0
        assert result["replicas"] == 32
        assert result["hottest_die_rows"] < result["hottest_die_rows_without_replicas"]


def test_a_wrong_bit_is_counted_and_fails_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a single output differs from the oracle's, `wrong` says so and the exit code is 1."""

    def output_with_a_flipped_bit(group: Any, rank: int) -> Any:
        flat = group.pod.view(group._ranks[rank].out, np.uint16, (-1, group.config.hidden)).copy()
        if rank == 2:
            flat[3, 7] ^= 1
        return flat.view(group.config.numpy_dtype())[: group.n_tokens(rank)]

    monkeypatch.setattr(moe_job.ExpertParallel, "output", output_with_a_flipped_bit)
    code, out, _ = invoke(*SMALL, "--json")
    assert code == 1
    assert json.loads(out)["wrong"] == 1


def test_the_table_names_what_was_moved() -> None:
    """Without --json the result is a table for people, with the count of wrong elements in the last line."""
    code, out, _ = invoke(*SMALL)
    assert code == 0
    assert "out GB" in out
    assert out.strip().endswith("#wrong 0")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "dispatch", "--ranks", "768", "--tokens", "4000"], "768 ranks need about"),
        (["run", "dispatch", "--routing", "/nonexistent.json"], "/nonexistent.json"),
        ([*SMALL[:4], "--hidden", "50"], "--hidden 50: must be"),
        ([*SMALL, "--order", "weak"], "--order weak: must be one of"),
        ([*SMALL, "--policy", "fair"], "--policy fair: must be one of"),
        (["run", "sendrecv", "--file", "/nonexistent"], "--file /nonexistent"),
        (["run", "sendrecv", "--permutation", "--file", "/etc/passwd"], "--permutation"),
        (["run", "sendrecv", "--path", "pigeon"], "pigeon"),
        (["run", "sendrecv", "--permutation", "--source", "3"], "--source 3"),
        (["run", "sendrecv", "--file", "/proc/version", "--nbytes", "5"], "--nbytes 5"),
        ([*SMALL, "--layer", "3"], "--layer 3"),
        ([*SMALL, "--redundant", "9", "--redundant-slots", "2"], "9 replicas: there is room for 8"),
    ],
)
def test_impossible_requests_are_refused_with_exit_code_2(arguments: list[str], said: str) -> None:
    """What cannot be run is a usage error that names the argument and the value, not a traceback."""
    code, out, err = invoke(*arguments)
    assert code == 2, out
    assert said in err


def test_the_job_takes_fewer_ranks_than_the_default_when_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --ranks the largest number of ranks that fits is run, and the note says so."""
    monkeypatch.setattr(moe_job, "available_bytes", lambda: moe_job.bytes_needed(3, Dispatch(hidden=64), 9))
    options = Dispatch(hidden=64)
    ranks, note = moe_job.choose_ranks(options, 9)
    assert ranks == 3
    assert "running 3 ranks" in note


def test_measured_loads_route_the_main_job(data_dir: Path) -> None:
    """The published expert loads of both phases drive the job, and its hottest expert is as hot as theirs."""
    for name in ("deepseek_v3_decode_in2000out100.json", "deepseek_v3_prefill_in4096.json"):
        result = as_json(*SMALL[:4], "--tokens", "60", "--hidden", "64", "--routing", str(data_dir / name))
        assert result["wrong"] == 0
        assert result["routing"] == name
        assert result["hottest_over_mean"] > 1.5


def test_recorded_choices_route_the_main_job(data_dir: Path) -> None:
    """Recorded token-by-token choices (4 of 60 experts) drive the job, and another top-k is refused."""
    path = str(data_dir / "qwen1.5_moe_layer12.jsonl")
    result = as_json(*SMALL, "--routing", path)
    assert result["wrong"] == 0
    assert result["messages"] == 4 * 5 * 5
    code, _, err = invoke(*SMALL, "--routing", path, "--top-k", "8")
    assert code == 2
    assert "--top-k 8" in err


@pytest.mark.parametrize("path", ["mtu", "dma", "zero-copy"])
def test_a_file_arrives_whole(tmp_path: Path, path: str) -> None:
    """A real file sent between two dies over a used ring arrives byte for byte."""
    file = tmp_path / "payload"
    file.write_bytes(np.random.default_rng(0).integers(0, 256, 100_003, dtype=np.uint8).tobytes())
    result = as_json("run", "sendrecv", "--file", str(file), "--cores", "3", "--rounds", "2", "--path", path)
    assert result["wrong"] == 0
    assert result["nbytes"] == 100_003


def test_every_die_sends_to_a_random_other_at_once() -> None:
    """On the whole pod of 768 dies, all send and receive at the same time, and every byte is right."""
    result = as_json("run", "sendrecv", "--permutation", "--nbytes", "3000", "--order", "relaxed")
    assert result["pairs"] == 768
    assert result["wrong"] == 0


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    """There is nothing to send in an empty file, and the message says so."""
    file = tmp_path / "empty"
    file.touch()
    code, _, err = invoke("run", "sendrecv", "--file", str(file))
    assert code == 2
    assert "is empty" in err


def test_payloads_that_do_not_fit_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too much payload for the machine is refused before anything is allocated."""
    monkeypatch.setattr(sendrecv_job, "available_bytes", lambda: 1 << 20)
    code, _, err = invoke("run", "sendrecv", "--nbytes", str(1 << 20))
    assert code == 2
    assert "GiB" in err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"logical_count": [[0, 0], [0, 0]]}', "no layer of it routes any token"),
        ('{"topk_ids": [1, 2147483646], "topk_weights": [0.5, 0.5]}', "2147483646"),
        (json.dumps({"topk_ids": list(range(16)), "topk_weights": [1.0] * 16}), "16 choices a token"),
    ],
)
def test_routing_files_that_cannot_be_run_are_refused(tmp_path: Path, text: str, said: str) -> None:
    """Only dense layers, an expert number beyond reason, or too many choices: exit code 2, before memory is spent."""
    file = tmp_path / "routing.jsonl"
    file.write_text(text)
    code, _, err = invoke(*SMALL, "--routing", str(file))
    assert code == 2
    assert said in err


def test_a_payload_larger_than_any_memory_is_refused() -> None:
    """A size that no machine holds is refused by arithmetic, not by trying."""
    code, _, err = invoke("run", "sendrecv", "--nbytes", str(10**14))
    assert code == 2
    assert "GiB" in err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_cannot_be_written() -> None:
    """A full disk behind stdout is told in one line, with an exit code of its own."""
    command = [sys.executable, "-m", "xccl_emu", "bench", "buffers", "--json"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 5
    assert done.stderr == "xccl-emu: error: output: No space left on device\n"
