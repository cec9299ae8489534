"""``xccl-emu run fused``: results, switches, exit codes, JSON, and what it says to bad input."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.cli_support import as_json, invoke
from xccl_emu.cli.main import app
from xccl_emu.runs.fused import Fused
from xccl_emu.runs.jobs import fused as fused_job

SMALL = ("run", "fused", "--ranks", "4", "--tokens", "5", "--hidden", "64", "--cores", "2")
SWITCHED_OFF = (
    ["--path", "sdma"], ["--late"], ["--no-preallocate"], ["--no-pipeline"], ["--no-double-buffer"],
)  # fmt: skip


@pytest.mark.parametrize("order", ["sc", "fifo", "relaxed"])
@pytest.mark.parametrize("policy", ["round-robin", "random"])
def test_the_job_is_right_under_every_order_and_policy(order: str, policy: str) -> None:
    """The job verifies itself with no wrong element, whatever the memory order and the policy."""
    result = as_json(*SMALL, "--order", order, "--policy", policy, "--rounds", "2")
    assert result["wrong"] == 0
    assert result["messages"] == 4 * 5 * 9
    assert len(result["rounds"]) == 2


@pytest.mark.parametrize("switches", SWITCHED_OFF, ids=" ".join)
def test_each_optimization_can_be_switched_off(switches: list[str]) -> None:
    """The results stay right, and the options say what was off."""
    usual, without = as_json(*SMALL)["options"], as_json(*SMALL, *switches)
    assert without["wrong"] == 0
    assert sum(usual[name] != value for name, value in without["options"].items()) == 1


def test_sdma_moves_what_cores_moved() -> None:
    """By SDMA no token's message is written to a peer by mtu-out, but copied by the engine."""
    usual, sdma = (as_json(*SMALL, *path)["rounds"][0] for path in ([], ["--path", "sdma"]))
    assert usual["dispatch"]["bytes_by_pipe"]["dma"] == usual["combine"]["bytes_by_pipe"]["dma"] == 0
    assert sdma["dispatch"]["bytes_by_pipe"]["dma"] == 4 * 5 * 9 * (64 + 512)
    assert sdma["combine"]["bytes_by_pipe"]["dma"] == 4 * 5 * 9 * 128


@pytest.mark.parametrize(
    "extra",
    [["--no-quantize", "--dtype", "fp16"], ["--top-k", "1"], ["--quantizer", "cann", "--late"], ["--redundant", "3"]],
    ids=" ".join,
)
def test_variants_of_the_job_are_right(extra: list[str]) -> None:
    """Unquantized FP16, a single choice, the other quantizer and replicas verify too."""
    assert as_json(*SMALL, *extra)["wrong"] == 0


def test_a_wrong_bit_is_counted_and_fails_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a single output differs from the oracle's, `wrong` says so and the exit code is 1."""
    given = fused_job.FusedExpertParallel.output

    def output_with_a_flipped_bit(group: Any, rank: int) -> Any:
        states = given(group, rank).copy()
        if rank == 2:
            states.view(np.uint16)[3, 7] ^= 1
        return states

    monkeypatch.setattr(fused_job.FusedExpertParallel, "output", output_with_a_flipped_bit)
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
        (["--path", "mtu"], "--path mtu: must be one of aiv, sdma"),
        (["--hidden", "50"], "--hidden 50: must be"),
        (["--ranks", "768", "--tokens", "1500", "--hidden", "7168"], "768 ranks need about"),
        (["--routing", "/nonexistent.json"], "/nonexistent.json"),
    ],
)
def test_impossible_requests_are_refused_with_exit_code_2(arguments: list[str], said: str) -> None:
    """What cannot be run is a usage error that names the argument and the value, not a traceback."""
    code, out, err = invoke(*SMALL, *arguments)
    assert code == 2, out
    assert said in err


def test_the_usual_deployment_is_taken_if_it_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --ranks 320 ranks with 32 replicas are run, or as many as fit with none, and a note says so."""
    options = Fused(hidden=64)
    monkeypatch.setattr(fused_job, "available_bytes", lambda: 1 << 50)
    usual = fused_job.FusedJob(options, lambda name: None)
    assert (usual.ranks, usual.options.redundant, usual.note) == (320, 32, "")
    need = fused_job.fused_bytes_needed(3, options, 9)
    monkeypatch.setattr(fused_job, "available_bytes", lambda: need)
    fewer = fused_job.FusedJob(options, lambda name: None)
    assert (fewer.ranks, fewer.options.redundant) == (3, 0)
    assert "running 3 ranks" in fewer.note


def test_measured_loads_route_the_job(data_dir: Path) -> None:
    """The published expert loads of both phases drive the job."""
    for name in ("deepseek_v3_decode_in2000out100.json", "deepseek_v3_prefill_in4096.json"):
        result = as_json(*SMALL, "--routing", str(data_dir / name))
        assert result["wrong"] == 0
        assert result["routing"] == name


def test_check_proves_it_and_shows_what_a_shared_buffer_does(tmp_path: Path) -> None:
    """`check fused` verifies two cores a die over three rounds; with one buffer for both it shows the overwrite."""
    result = CliRunner().invoke(app, ["check", "fused", "--json"])
    assert result.exit_code == 0, result.stderr
    told = json.loads(result.stdout)
    assert told["verdict"] == "verified"
    assert (told["configuration"]["cores"], told["configuration"]["rounds"]) == (2, 3)
    out = ["--out", str(tmp_path / "replay.json"), "--json"]
    code, shown, _ = invoke("check", "fused", "--set", "double_buffered=0", *out)
    assert code == 1
    assert json.loads(shown)["violation"]["kind"] == "data race"


@pytest.mark.parametrize(
    ("given", "said"),
    [("experts", "--set experts: must be NAME=VALUE"), ("cats=1", "cats=1: fused has no such"), ("=3", "--set =3:")],
)
def test_sizes_that_check_does_not_know_are_refused(given: str, said: str) -> None:
    """`--set` names what is wrong with it."""
    code, _, err = invoke("check", "fused", "--set", given)
    assert code == 2
    assert said in err
