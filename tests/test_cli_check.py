"""``xccl-emu check``: verdicts, exit codes, JSON, replay files, and what it says to bad input."""

import errno
import json
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import numpy as np
import pytest

from tests.cli_support import as_json, interrupted, invoke, printed, refusal
from tests.refused import refuses
from xccl_emu.base.errors import CapacityError, UnfinishedError
from xccl_emu.check.check import check
from xccl_emu.check.sampling import watch
from xccl_emu.check.verdict import VERIFIED, Opinion, Verdict
from xccl_emu.check.witness.replay_file import Witness
from xccl_emu.cli import ending
from xccl_emu.machine.clock import working_seconds
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import small_pod
from xccl_emu.protocol.registry import make

TINY = ("check", "sendrecv", "--slots", "2", "--chunks", "3", "--granules", "1")
FENCE = "data before tail"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replay files are written to the working directory."""
    monkeypatch.chdir(tmp_path)


def test_sizes_may_stand_before_the_protocol() -> None:
    """A size is an option as all others: where it stands does not matter."""
    command, name, *sizes = TINY
    before, behind = (as_json(*words) for words in ((command, *sizes, name), TINY))
    for key in ("protocol", "configuration", "verdict", "states"):
        assert before[key] == behind[key]


@pytest.mark.parametrize("order", ["sc", "fifo", "relaxed"])
def test_a_right_protocol_is_verified(order: str) -> None:
    """Exit code 0, states, transitions, and the bounds within which every schedule was covered."""
    told = as_json(*TINY, "--order", order)
    assert (told["verdict"], told["order"], told["violation"]) == ("verified", order, None)
    assert told["configuration"] == {
        "ranks": 2, "cores": 1, "slots": 2, "chunks": 3, "granules": 1, "rounds": 1, "path": "mtu",
        "ack_each": 0,
    }  # fmt: skip
    assert told["states"] > 10
    assert told["transitions"] >= told["states"] - 1
    assert told["bounds"]["queue_depth"] == 8
    assert told["replay_file"] is None


def test_the_verdict_is_a_table_for_people() -> None:
    """Without --json the verdict says what was checked, how, and how much of it."""
    out, sizes = printed(*TINY), "slots 2, chunks 3, granules 1"
    for text in ("sendrecv under relaxed: verified", sizes, "exhaustive", "states", "seconds"):
        assert text in out


def test_a_missing_fence_is_a_violation_that_replays(tmp_path: Path) -> None:
    """Exit code 1, a table that names steps and addresses, and a file that shows the same violation again."""
    without = ("--without", FENCE, "--without", "half sent")
    out = printed(*TINY, *without, "--out", "found.json", "--chart", "c.mmd", "--trace", "t.json", code=1)
    for text in ("sendrecv under relaxed: violation", "SWITCHED OFF: fence (data", "at die1.ring[0→1].slot0:",
                 "also found:", "bad instruction", "xccl-emu check --replay found.json"):  # fmt: skip
        assert text in out
    assert (tmp_path / "c.mmd").read_text().startswith("sequenceDiagram")
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    found = json.loads((tmp_path / "found.json").read_text())
    told = as_json("check", "--replay", "found.json", code=1)
    assert (told["verdict"], told["protocol"], told["without"]) == ("violation", "sendrecv", [FENCE, "half sent"])
    assert told["violation"]["kind"] == found["kind"]
    assert told["violation"]["actions"] == len(found["actions"])
    again = printed("check", "sendrecv", "--replay", "found.json", code=1)
    assert again.split("┌")[0].splitlines()[:5] == out.split("┌")[0].splitlines()[:5]


def test_json_of_a_violation_names_its_file(tmp_path: Path) -> None:
    """Kind, message, steps and the replay file, which is named by what was found if --out does not say, and which the
    next check of the same finds in its place."""
    told = as_json(*TINY, "--without", "slot free", "--without", "half free", code=1)
    assert told["without"] == ["half free", "slot free"]
    violation = told["violation"]
    found = f"sendrecv-relaxed-{violation['kind'].replace(' ', '-')}"
    assert re.fullmatch(rf"witnesses/{found}-[0-9a-f]{{12}}\.json", told["replay_file"])
    before = (tmp_path / told["replay_file"]).stat()
    assert as_json(*TINY, "--without", "slot free", "--without", "half free", code=1) == told | {"seconds": ANY}
    other = as_json(*TINY, "--chunks", "4", "--without", "slot free", "--without", "half free", code=1)["replay_file"]
    kept = {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file()}
    assert kept == {told["replay_file"], other}
    assert (tmp_path / told["replay_file"]).stat().st_mtime_ns == before.st_mtime_ns
    assert len(json.loads((tmp_path / told["replay_file"]).read_text())["actions"]) == violation["actions"] > 0
    assert violation["message"]
    assert violation["found_by"]
    assert all(set(other) == set(violation) for other in told["others"])


@pytest.mark.parametrize("policy", ["portfolio", "random", "pct", "weights", "eager", "late", "lifo", "skew"])
def test_drawn_schedules(policy: str) -> None:
    """Every policy runs the schedules that it was asked for, and says that it proved nothing."""
    told = as_json(*TINY, "--policy", policy, "--schedules", "7", "--seed", "3")
    assert (told["verdict"], told["policy"]) == ("no violation found", policy)
    assert (told["schedules"], told["seed"], told["states"]) == (7, 3, 0)


def test_a_search_that_meets_its_limit_is_unfinished() -> None:
    """Exit code 3, with how far it came."""
    told = as_json(*TINY, "--policy", "exhaustive", "--states", "5", code=3)
    assert (told["verdict"], told["schedules"], told["states"]) == ("unfinished", 0, 6)
    assert told["reason"]


def test_a_search_that_would_take_too_much_memory_is_unfinished() -> None:
    """Exit code 3, and the limit is named."""
    told = as_json("check", "sendrecv", "--policy", "exhaustive", "--memory", "20K", code=3)
    assert (told["verdict"], told["states"]) == ("unfinished", 512)
    assert told["reason"] == "states that take more than 20 KB of memory"


def test_the_default_goes_on_with_drawn_schedules() -> None:
    """Where the search meets its limit the portfolio runs: it finds what the search did not come to, or says so."""
    told = as_json(*TINY, "--states", "5", "--schedules", "20", code=3)
    assert (told["verdict"], told["schedules"]) == ("unfinished", 20)
    assert "then 20 schedules of the portfolio showed no violation" in told["reason"]
    told = as_json(*TINY, "--states", "1", "--seconds", "20", "--without", "tail in", code=1)
    assert told["verdict"] == "violation"


def test_each_sync_says_which_are_needed() -> None:
    """Each synchronization that a run comes to is checked by itself; those of other paths are listed apart."""
    told = as_json("check", "sendrecv-dma", *TINY[2:], "--each-sync", "--without", "ring address", "--seconds", "20")
    assert told["verdict"] == "verified"
    findings = {one["sync"]: one["finding"] for one in told["each_sync"]}
    assert findings["DMA before tail"] == findings["slot free"] == findings["tail in"] == "needed"
    assert "ring address" not in findings
    assert {one["sync"]: one["steps"] for one in told["each_sync"]}["slot free"] == [4]
    assert set(told["unreached"]) == {
        "chunk in buffer", FENCE, "half sent", "half free", "chunk read", "slot read"
    }  # fmt: skip
    assert not list(Path.cwd().iterdir())


def test_each_sync_is_judged_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a search calls redundant brute force and schedules judge again; if they find something it is needed."""
    forged = Verdict(VERIFIED, "sendrecv", {}, "relaxed", "exhaustive", 0)
    believes = lambda *_, without, **__: replace(forged, without=tuple(without))  # noqa: E731
    monkeypatch.setattr("xccl_emu.cli.check_job.check", believes)
    here = (*TINY, "--each-sync", "--workers", "1", "--advice-seconds")
    told = as_json(*here, "2")["each_sync"]
    (fence,) = [one for one in told if one["sync"] == FENCE]
    assert fence["finding"] == "needed"
    assert fence["certificate"]["of_proof"]
    out = " ".join(printed(*here, "2").split())
    assert "'redundant' is" in out
    assert "withdrawn" in out
    unjudged = as_json(*here, "0")["each_sync"]
    assert {one["finding"] for one in unjudged} == {"redundant"}
    assert "must be at least 0" in refusal(*TINY, "--advice-seconds", "1")


@pytest.mark.parametrize(
    ("error", "code", "said", "others"),
    [(KeyboardInterrupt(), 130, "interrupted", "interrupted"), (UnfinishedError("no memory"), 3, "no memory", "")],
)
def test_each_sync_keeps_what_is_done(
    error: BaseException, code: int, said: str, others: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal leaves the answers so far, one that fails leaves all others; each without an answer is a row that says
    why, and so is each request of --weakest after a signal."""
    forged = Verdict(VERIFIED, "sendrecv", {}, "relaxed", "exhaustive", 0)

    def judged(*_: object, without: list[str], **__: object) -> Verdict:
        if without == ["tail"]:
            raise error
        return replace(forged, without=tuple(without))

    monkeypatch.setattr("xccl_emu.cli.check_job.check", judged)
    monkeypatch.setattr("xccl_emu.check.weakest.search_once", lambda *_, **__: forged)
    words = ("--each-sync", "--weakest", "--workers", "1", "--advice-seconds", "0", "--confirm-seconds", "0")
    told = as_json(*TINY, *words, code=code)
    first, second, *rest = told["each_sync"]
    assert (first["finding"], second["sync"], second["finding"], second["reason"]) == (
        "redundant", "tail", "unfinished", said,
    )  # fmt: skip
    assert {(one["finding"], one["reason"]) for one in rest} == {("unfinished" if others else "redundant", others)}
    assert {one["unfinished"] for one in told["each_request"]} == {others}


def test_nobody_waits_for_a_slot_where_there_are_enough() -> None:
    """As many chunks as slots: who waits for a slot is told never to have waited, in the verdict and for each sync."""
    words = ("check", "sendrecv", "--slots", "2", "--chunks", "2", "--granules", "1")
    told = as_json(*words, "--each-sync", "--advice-seconds", "0.2")
    assert [one["sync"] for one in told["reach"]["never_waited"]] == ["slot free"]
    assert [one["sync"] for one in told["each_sync"] if one["idle"]] == ["slot free"]
    assert told["reach"]["used_once"] == ["ring"]
    shown = printed(*words)
    assert "never waited" in shown
    assert "two states with one fingerprint" in shown
    assert "(from then on they must be right)" in shown
    assert "in the runs drawn, no slot was used twice: ring" in shown
    assert "in these schedules: slot free" in printed(*words, "--policy", "random", "--schedules", "40")


def test_each_sync_of_a_wrong_protocol_is_its_violation() -> None:
    """What is wrong as it is shows its own violation; nothing is asked of its synchronizations."""
    out = printed(*TINY, "--without", FENCE, "--each-sync", code=1)
    assert "sendrecv under relaxed: violation" in out
    assert "without each synchronization" not in out
    assert "a state missed" not in out


def test_each_sync_is_a_table_for_people() -> None:
    """One line for each, with its step of the paper and what shows that it is needed."""
    out = printed("check", "sendrecv-zero-copy", "--chunks", "1", "--granules", "1", "--each-sync")
    assert "without each synchronization" in out
    row = next(line for line in out.splitlines() if line.startswith("offer in"))
    assert re.search(r"^offer in +[\d, ]*2[\d, ]* needed: .* \d+ steps +[\d,]+ +\d+\.\d *$", row)
    assert "schedules" not in out.partition("without each synchronization")[2].partition("───")[0]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": "xccl_emu schedule 1"}, "is not a witness of this version"),
        ({"protocol": "ring"}, "--replay found.json: is of protocol 'ring', which `xccl-emu list` does not have; give"),
        ({"configuration": {"ranks": 2, "cats": 1}}, "cats=1: sendrecv has no such size"),
        ({"order": "weak"}, "order='weak'"),
        ({"actions": [-1]}, "action 1 is damaged"),
        ({"fingerprint": "0" * 32}, "another version of sendrecv"),
        ({"actions": [1 << 40]}, "of no actor of the pod"),
        ({"actions": [8 << 16]}, "not enabled"),
    ],
)
def test_a_damaged_or_foreign_replay_file(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    """Exit code 2 and what is wrong with the file, whichever part of it is."""
    assert invoke(*TINY, "--without", FENCE, "--out", "found.json")[0] == 1
    file = tmp_path / "found.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    assert said in refusal("check", "--replay", "found.json")
    file.write_text("not JSON")
    assert "is not JSON" in refusal("check", "--replay", "found.json")


def test_a_witness_knows_the_file_of_its_protocol(tmp_path: Path) -> None:
    """It is shown and replayed without the file being named, as a line too; a file that is gone is asked for."""
    assert invoke("new", "ring")[0] == 0
    found = as_json("check", "ring.py:Ring", "--without", "chunk before flag", code=1)["replay_file"]
    witness = Witness.load(tmp_path / found)
    assert witness.file == "ring.py:Ring"
    assert as_json("check", "--replay", found, code=1)["violation"]["kind"] == witness.kind
    assert "written: witness.html" in printed("show", witness.to_line())
    (tmp_path / "ring.py").rename(tmp_path / "other.py")
    assert "give its file too" in refusal("check", "--replay", found)


def test_a_full_disk_leaves_the_older_replay_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new one is there when it is whole; exit code 5."""

    def full(target: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "found.json").write_text("older")
    monkeypatch.setattr("xccl_emu.base.output._replace", full)
    assert invoke(*TINY, "--without", FENCE, "--out", "found.json")[0] == 5
    assert (tmp_path / "found.json").read_text() == "older"


def test_a_replay_file_of_another_protocol_is_refused() -> None:
    """A protocol named beside the file must be the file's."""
    assert invoke(*TINY, "--without", FENCE, "--out", "found.json")[0] == 1
    assert "is of protocol 'sendrecv', not 'moe'" in refusal("check", "moe", "--replay", "found.json")


def test_check_proves_it_and_shows_what_a_shared_buffer_does() -> None:
    """`check fused` verifies two cores a die over three rounds; with one buffer for both it shows the overwrite."""
    told = as_json("check", "fused")
    assert (told["verdict"], told["configuration"]["cores"], told["configuration"]["rounds"]) == ("verified", 2, 3)
    told = as_json("check", "fused", "--set", "double_buffered=0", code=1)
    assert told["violation"]["kind"] == "data race"


def test_ctrl_c_ends_a_check_with_130(tmp_path: Path) -> None:
    """An interrupt ends the search within seconds, with one line and no traceback."""
    command = ["-m", "xccl_emu", "check", "moe", "--ranks", "3", "--policy", "random", "--schedules", str(10**9)]
    code, err, _ = interrupted(command, 5, cwd=tmp_path)
    assert (code, err.splitlines()[-1]) == (130, "xccl-emu: interrupted")
    assert "Traceback" not in err


def test_a_fault_is_checked_and_its_witness_replays(tmp_path: Path) -> None:
    """Drawn schedules, exit code 0 where no wrong bits are taken for right, else 1 and a file that shows it again."""
    told = as_json(*TINY, "--fault", "stop:die1", "--schedules", "60")
    assert (told["verdict"], told["policy"], told["fault"]) == ("no violation found", "portfolio", "stop:die1")
    assert "takes no wrong bits for right" in told["reason"]
    out = printed(*TINY, "--fault", "corrupt:0-1", "--schedules", "600", "--out", "bit.json", code=1)
    assert "FAULT: visible, with bit" in " ".join(out.split())
    told = as_json("check", "--replay", "bit.json", code=1)
    assert (told["violation"]["kind"], told["fault"]) == ("wrong bits", "corrupt:0-1")
    as_json(*TINY, "--fault", "cut:0-1", "--order", "sc", code=3)


def test_a_verdict_can_be_certified() -> None:
    """The table and the JSON have what brute force and drawn schedules covered, and that they agree."""
    small = ("check", "sendrecv", "--slots", "1", "--chunks", "1", "--granules", "1", "--certify")
    told = as_json(*small, "--certify-seconds", "1")
    assert told["verdict"] == "verified"
    assert told["certificate"]["agrees"] is True
    assert told["certificate"]["states"] > told["states"]
    assert told["certificate"]["schedules"] > 10
    out = printed(*small, "--certify-seconds", "1", "--without", "slot free")
    assert "agrees; brute force" in " ".join(out.split())


def test_a_verdict_is_confirmed_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """The verdict, then who agrees and what brute force confirms; `--json` has all of it, once."""
    monkeypatch.delenv("XCCL_EMU_CONFIRM")
    small = ("check", "sendrecv", "--slots", "1", "--chunks", "2", "--granules", "1")
    told = " ".join(printed(*small, "--confirm-seconds", "20").split())
    assert re.search("under relaxed: verified .* agreed by merged .* confirmed by brute force: [0-9,]+ states", told)
    found = as_json(*small)["confirmation"]
    assert 2.0 < found["limit_seconds"] < 60.0
    assert found["opinions"][0]["by"] == "less"
    assert as_json(*small, "--confirm-seconds", "0")["confirmation"] is None
    assert as_json(*small, "--certify", "--certify-seconds", "0.1")["confirmation"] is None
    assert as_json(*small, "--seconds", "1.5")["confirmation"]["limit_seconds"] < 1.5
    assert as_json(*small, "--policy", "random", "--schedules", "3")["confirmation"] is None


def test_a_contradiction_ends_with_a_code_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What the search had said, what was found against it, and a file that shows it; with exit code 4."""
    forged = Verdict(VERIFIED, "sendrecv", {}, "relaxed", "exhaustive", 0, (FENCE,))
    monkeypatch.setattr("xccl_emu.cli.check_job.check", lambda *_, **__: forged)
    words = (*TINY, "--without", FENCE, "--confirm-seconds", "20", "--out", "found.json")
    told = " ".join(printed(*words, code=ending.BUG).replace("│", " ").split())
    assert "sendrecv under relaxed: verified" in told
    assert "CONTRADICTED: the exhaustive search had said verified, but less (reductions 1 to 6): data race" in told
    assert "xccl-emu check --replay found.json" in told
    assert as_json("check", "--replay", "found.json", code=1)["violation"]["kind"] == "data race"
    told = as_json(*words, code=ending.BUG)
    assert (told["verdict"], told["replay_file"]) == ("violation", "found.json")
    assert [one["contradicts"] for one in told["confirmation"]["opinions"]] == [True]


def test_what_a_certificate_contradicts_ends_so_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """By brute force and drawn schedules, with `--certify`."""
    forged = Verdict(VERIFIED, "sendrecv", {}, "relaxed", "exhaustive", 0, (FENCE,))
    monkeypatch.setattr("xccl_emu.cli.check_job.check", lambda *_, **__: forged)
    words = (*TINY, "--without", FENCE, "--certify", "--certify-seconds", "2")
    assert as_json(*words, code=ending.BUG)["verdict"] == "violation"


def test_ctrl_c_leaves_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """While second opinions are asked it ends these alone: exit code 0, with those that were given."""

    def some(*_: object, **__: object) -> Iterator[Opinion]:
        yield Opinion("less", VERIFIED, {}, 42, 0.1)
        raise KeyboardInterrupt

    monkeypatch.setattr("xccl_emu.cli.check_job.opinions", some)
    told = " ".join(printed(*TINY, "--confirm-seconds", "20").split())
    assert "sendrecv under relaxed: verified" in told
    said = "agreed by less (reductions 1 to 6): 42 states; not confirmed: interrupted after 0.0 s"
    assert said in told
    told = as_json(*TINY, "--confirm-seconds", "20")
    assert (told["verdict"], told["confirmation"]["interrupted"]) == ("verified", True)


@pytest.mark.slow
def test_ctrl_c_is_heard_while_brute_force_runs(tmp_path: Path) -> None:
    """In a process of its own: the verdict has been printed, and it ends within seconds, as the verdict would."""
    command = ["-m", "xccl_emu", "check", "dispatch", "--confirm-seconds", "1000"]
    code, err, seconds = interrupted(command, 8, f"{'dispatch under relaxed: verified':^120}\n", cwd=tmp_path)
    assert (code, "Traceback" in err, seconds < 10) == (0, False, True)


@pytest.mark.parametrize("given", ["-1.0", "nan", "inf"])
def test_seconds_of_second_opinions_are_checked(given: str) -> None:
    """They are a number that is not negative."""
    assert f"--confirm-seconds {given}: must be at least 0" in refusal(*TINY, "--confirm-seconds", given)


def test_progress_is_said_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line on stderr once two seconds have passed, and nothing of it with `--json`."""
    monkeypatch.setattr("xccl_emu.cli.check._FIRST_LINE_S", 0.0)
    code, _, err = invoke(*TINY, "--confirm-seconds", "5")
    assert (code, "xccl-emu: confirming: " in err, " states by brute force, " in err) == (0, True, True)
    assert "confirming" not in invoke(*TINY, "--confirm-seconds", "5", "--json")[2]


def test_ends_of_a_fault_are_told() -> None:
    """How many schedules ended right and how many blocked, in the table and as JSON."""
    told = as_json(*TINY, "--fault", "stop:die1", "--schedules", "30")
    assert told["verdict"] == "no violation found"
    assert told["ended"]["blocked"] > 0
    refused = "refused by the machine", "given up at the link"
    assert set(told["ended"]) == {"right", "declared error", "blocked", *refused}
    out = printed(*TINY, "--fault", "stop:die1", "--schedules", "30")
    assert f"{told['ended']['blocked']} blocked" in " ".join(out.split())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("option", ["--chart", "--trace", "--out"])
def test_a_picture_that_cannot_be_written(option: str) -> None:
    """The violation is shown first; then the option, its path and the reason, and a code of its own."""
    code, out, err = invoke(*TINY, "--without", FENCE, option, "/dev/full")
    assert "sendrecv under relaxed: violation" in out
    assert (code, f"{option} /dev/full: cannot be written (No space left on device)" in err) == (5, True)


def test_too_many_cores_to_watch_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no memory for the clocks of all cores the check is unsupported, and says so."""
    pod = Pod(small_pod(1))

    def none_left(*words: object) -> None:
        raise MemoryError

    monkeypatch.setattr(watch.np, "zeros", none_left)
    with pytest.raises(CapacityError, match=r"0 cores: to watch them takes 8 GiB for clocks; take fewer cores"):
        watch._clocks(pod, 1 << 30)


@pytest.mark.parametrize("without", ["tail in", ("tail in",)])
def test_one_name_may_be_given_as_it_is(without: str | tuple[str, ...]) -> None:
    """A single synchronization needs no list around it."""
    case = make("sendrecv", slots=2, chunks=3, granules=1)
    assert check(case, without=without, schedules=20, policy="random").without == ("tail in",)


@refuses(
    partial(check, make("sendrecv")),
    ({"without": 3}, "without=3: must be names"),
    ({"without": [None]}, r"without=\[None\]: must be names"),
    ({"max_states": 1 << 63}, "max_states=9223372036854775808: must be a whole number, 1 to 9223372036854775807"),
    ({"schedules": 1.5}, "schedules=1.5: must be a whole number"),
    ({"seconds": "1"}, "seconds='1': must be a number"),
    ({"fault": 7}, "fault=7: must be"),
    ({"fault": np.zeros(2)}, r"fault=\[0. 0.\]: must be"),
    ({"order": np.zeros(2)}, r"order=\[0. 0.\]: must be one of sc, fifo, relaxed"),
)
def test_limits_that_are_none() -> None:
    """They are named before anything is searched."""


def test_seconds_do_not_count_while_something_compiles() -> None:
    """The clock by which checks are limited stands still while Numba holds the lock under which it compiles."""
    from numba.core.compiler_lock import global_compiler_lock

    before, started = working_seconds(), time.perf_counter()
    with global_compiler_lock, global_compiler_lock:
        time.sleep(0.2)
    time.sleep(0.05)
    worked, passed = working_seconds() - before, time.perf_counter() - started
    assert 0.05 <= worked <= passed - 0.19


def test_redundant_is_said_with_its_reach() -> None:
    """Below the table: that it is so in this configuration, and not that nobody needs it."""
    out = printed("check", "sendrecv", "--slots", "1", "--chunks", "1", "--granules", "1", "--each-sync")
    assert "redundant: nothing goes wrong without it in this very configuration" in out


@pytest.mark.parametrize(("policy", "said"), [("exhaustive", r"exhaustive search, after [\d,]+ states?"),
                                              ("random", r"schedule \d+, after [\d,]+ schedules?")])  # fmt: skip
def test_a_violation_is_told_with_how_much_was_looked_at(policy: str, said: str, tmp_path: Path) -> None:
    """States of a search, schedules of a policy."""
    words = ("--slots", "1", "--chunks", "2", "--without", "tail in", "--policy", policy, "--out", str(tmp_path / "x"))
    out = printed("check", "sendrecv", *words, code=1)
    assert re.search(said, " ".join(out.replace("│", " ").split()))


def test_each_synchronization_and_the_weakest_requests_together() -> None:
    """One verdict, and both tables of advice below it."""
    told = as_json(
        "check", "sendrecv", "--slots", "1", "--chunks", "1", "--granules", "1", "--each-sync", "--weakest",
        "--advice-seconds", "0",
    )  # fmt: skip
    assert {one["finding"] for one in told["each_sync"]} >= {"needed"}
    assert {one["weakest"] for one in told["each_request"]} >= {"no-order", "quiet"}


def test_a_chart_in_markdown_is_fenced(tmp_path: Path) -> None:
    """With its title; in any other file it stands as Mermaid has it."""
    for name, first in (("run.md", "## deadlock: sendrecv"), ("run.mmd", "sequenceDiagram")):
        words = ("--slots", "1", "--chunks", "2", "--without", "tail", "--out", str(tmp_path / "kept.json"))
        printed("check", "sendrecv", *words, "--chart", str(tmp_path / name), code=1)
        text = (tmp_path / name).read_text()
        assert text.startswith(first)
        assert text.count("```") == (2 if name == "run.md" else 0)


def test_each_sync_has_a_price(tmp_path: Path) -> None:
    """In virtual time, with an interval, as words, as text next to what it is, and as a picture; none of a deadlock."""
    pytest.importorskip("matplotlib")
    words = (*TINY, "--each-sync", "--price", "--advice-seconds", "0", "--workers", "1")
    told = as_json(*words)
    price = {one["sync"]: one["price"] for one in told["each_sync"]}
    assert price["tail"] == {"us": None, "why": "deadlock", "low_us": None, "high_us": None}
    assert price["payload out"]["low_us"] < price["payload out"]["us"] < price["payload out"]["high_us"]
    assert 0 < price[FENCE]["us"] < 0.1  # UB keeps writes in order: a fence waits for none
    assert 0 < price["slot read"]["us"] < told["latency_us"]
    assert told["together"] is None  # one alone is redundant
    out = printed(*words, "--plot", str(tmp_path / "prices.svg"))
    table = out.partition("without each synchronization")[2]
    assert max(map(len, table.partition("redundant:")[0].splitlines())) <= 80
    row = next(line for line in table.splitlines() if line.startswith("payload out"))
    assert re.search(r"^payload out +7 +needed: \w.* +\d\.\d{3} +\d\.\d{3} to \d\.\d{3} *$", row)
    assert "no price (deadlock): tail, slot ack, ack" in out
    assert f"virtual time {told['latency_us']:.3f} us" in out
    assert (tmp_path / "prices.svg").read_text().rstrip().endswith("</svg>")


def test_redundant_ones_have_a_price_together() -> None:
    """Switched off at once they cost what they cost then, not what their prices add up to."""
    told = as_json("check", "dispatch", "--each-sync", "--price", "--advice-seconds", "0", "--seconds", "20")
    alone = [one["price"]["us"] for one in told["each_sync"] if one["finding"] == "redundant"]
    assert len(alone) > 1
    assert told["together"]["us"] >= max(alone)


def test_what_is_stronger_than_needed_has_a_price() -> None:
    """A quiet that a fence replaces costs the way that it waits for; an order asked for costs nothing in this model."""
    case = f"{Path(__file__).parent}/timing/test_price.py:Announced"
    words = ("check", case, "--weakest", "--price", "--advice-seconds", "0", "--workers", "1")
    told = as_json(*words)
    by_request = {one["operation"]: one for one in told["each_request"]}
    assert {name: one["advice"] for name, one in by_request.items()} == {
        "mtu_out": "no-order",
        "quiet": "fence",
        "put": "no-order",
    }
    price = by_request["quiet"]["price"]
    assert price["us"] > 1
    assert price["low_us"] < price["us"] < price["high_us"]
    assert by_request["put"]["price"]["us"] == by_request["mtu_out"]["price"]["us"] == 0
    assert told["advised"] == price
    assert f"all that is more than the weakest together: {price['us']:.3f} us" in " ".join(printed(*words).split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--price", "--price: needs --each-sync or --weakest"),
        ("--each-sync --plot x.svg", "--plot x.svg: needs --each-sync --price"),
        ("--each-sync --price --plot x.txt", "must end with"),
        ("--each-sync --price --scalar-cache 8", "virtual time knows no caches"),
    ],
)
def test_what_has_no_price_is_refused(words: str, said: str) -> None:
    """Before anything is searched."""
    assert said in refusal(*TINY, *words.split())
