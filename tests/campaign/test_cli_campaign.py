"""``xccl-emu campaign``: the summary, files, exit codes, and how it ends early."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from xccl_emu.base.errors import ConfigError, UnfinishedError
from xccl_emu.base.jobs import LOCAL
from xccl_emu.check import verdict as kinds
from xccl_emu.cli.main import app
from xccl_emu.guards.campaign import run
from xccl_emu.guards.campaign.ends import BY_ENDS
from xccl_emu.guards.campaign.generate import ProgramCase
from xccl_emu.guards.campaign.judge import JudgedProgram
from xccl_emu.guards.campaign.run import CampaignPlan, CampaignSummary, ContradictedProgram, campaign, judge_all
from xccl_emu.guards.campaign.smallest import TOTAL
from xccl_emu.guards.cli.campaign import CampaignOptions, plan_of

KIND = "full verified; brute force deadlock"


def invoke(*words: str) -> tuple[int, str]:
    """Exit code and output of the command, in this process."""
    done = CliRunner().invoke(app, ["campaign", "--workers", "1", "--programs", "8", *words])
    return done.exit_code, done.output


def agreeing(case: ProgramCase, orders: tuple[str, ...], budget: object) -> list[JudgedProgram]:
    """A judge that verifies everything."""
    return [JudgedProgram(order, {"full": kinds.VERIFIED}, states=10, schedules=1) for order in orders]


def contradicting(case: ProgramCase, orders: tuple[str, ...], budget: object) -> list[JudgedProgram]:
    """A judge that is contradicted where three cores run."""
    judged = agreeing(case, orders, budget)
    if len(case.small.programs) == 3:
        judged[0].contradict(KIND, "made up")
    return judged


def test_nothing_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without contradictions the exit code is 0, and the summary counts programs, states and verdicts."""
    monkeypatch.setattr(run, "judge", agreeing)
    code, out = invoke("--orders", "sc,fifo")
    assert code == 0
    assert "8 programs" in out
    assert "160 states" in out
    assert "0 programs on which judges contradict" in out
    code, out = invoke("--json", "--orders", "sc")
    assert json.loads(out)["verdicts"] == {"sc, full, verified": 8}


def test_contradictions_are_kept_and_judged_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """They are counted by kind, shown by a smallest program, written to files, and a file is judged again."""
    monkeypatch.setattr(run, "judge", contradicting)
    code, out = invoke("--orders", "sc", "--out", str(tmp_path / "found"), "--seed", "5")
    files = sorted((tmp_path / "found").iterdir())
    assert code == 1
    assert f"{len(files)}  sc: {KIND}" in out
    assert 'program(""),\n    program(""),\n    program(""),' in out
    code, out = invoke("--replay", str(files[0]), "--orders", "sc")
    assert code == 1
    assert ContradictedProgram.load(files[0]).contradictions[0].kind == KIND
    monkeypatch.setattr(run, "judge", agreeing)
    assert invoke("--replay", str(files[0]))[0] == 0


def test_a_judge_that_fails_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error in a judge does not end the campaign: it is counted like a contradiction."""

    def failing(case: ProgramCase, orders: tuple[str, ...], budget: object) -> list[JudgedProgram]:
        raise KeyError(7)

    monkeypatch.setattr(run, "judge", failing)
    assert judge_all(CampaignPlan(2)).wrong == {"sc: a judge fails: KeyError": 2}
    assert "a judge fails: KeyError" in invoke()[1]


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt(), 130), (UnfinishedError("programs from 4 on: x"), 3)])
def test_the_summary_so_far(monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int) -> None:
    """After Ctrl-C, or when a worker was killed, the summary is of what was done until then."""

    def stopping(plan: CampaignPlan) -> CampaignSummary:
        if plan.first > 1:
            raise error
        return CampaignSummary(programs=2)

    monkeypatch.setattr(run, "judge_all", stopping)
    assert campaign(CampaignPlan(8), 1).programs == 2
    ended, out = invoke()
    assert (ended, "2 programs" in out, "stopped: " in out) == (code, True, True)


def test_the_limit_of_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends when its time is over, and says so."""
    monkeypatch.setattr(run, "judge", agreeing)
    summary = campaign(CampaignPlan(1000), 1, seconds=0)
    assert 0 < summary.programs < 1000
    assert summary.stopped == "more than 0 seconds"


def test_chunks_cover_the_plan() -> None:
    """Every program is in one chunk, however many workers there are."""
    for workers in (1, 2, 7):
        chunks = CampaignPlan(103, seed=3, first=11).chunks(workers)
        numbers = [n for one in chunks for n in range(one.first, one.first + one.programs)]
        assert numbers == list(range(11, 114))


def test_processes_find_what_one_process_finds() -> None:
    """Two worker processes judge the same programs with the same result."""
    alone, together = campaign(CampaignPlan(6, seed=5), 1), campaign(CampaignPlan(6, seed=5), 2)
    assert (alone.verdicts, alone.wrong, alone.states) == (together.verdicts, together.wrong, together.states)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # what Dask's own threads do while they end is not ours
def test_a_dask_cluster_finds_the_same() -> None:
    """A local cluster judges the same programs with the same result."""
    pytest.importorskip("distributed")
    alone, there = campaign(CampaignPlan(4, seed=5), 1), campaign(CampaignPlan(4, seed=5), 2, dask=LOCAL)
    assert (alone.verdicts, alone.wrong, alone.states) == (there.verdicts, there.wrong, there.states)


def test_without_dask(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing extra is named with what installs it."""
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    with pytest.raises(ConfigError, match=r"needs Dask; install xccl_emu\[dask\]"):
        campaign(CampaignPlan(4), 1, dask=LOCAL)


def test_findings_that_cannot_be_saved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """They are shown first; then it is said why there are no files, with a code of its own."""

    def full(self: ContradictedProgram, folder: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(run, "judge", contradicting)
    monkeypatch.setattr(ContradictedProgram, "save", full)
    code, out = invoke("--orders", "sc", "--out", str(tmp_path / "found"), "--shrink", "0")
    assert (code, KIND in out, "cannot be written (No space left on device)" in out) == (5, True, True)


def losing(case: ProgramCase, orders: tuple[str, ...], budget: object) -> list[JudgedProgram]:
    """A judge of ends that misses one wherever a core puts."""
    judged = [JudgedProgram(order, {"full": kinds.VERIFIED, "ends": kinds.VERIFIED}) for order in orders]
    if any(one.name == "put" for each in case.small.programs for one in each):
        judged[0].verdicts["ends"] = "ends are lost"
        judged[0].contradict(f"{BY_ENDS} put by itself", "lost: a deadlock")
    return judged


def test_ends_of_the_smallest_programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The share that was judged is printed, a finding says how to see it again, and its file is judged by ends."""
    monkeypatch.setattr(run, "judge_ends", losing)
    code, out = invoke("--enumerate", "--first", "20", "--orders", "sc,fifo", "--out", str(tmp_path / "found"))
    assert code == 1
    assert "judged by ends: 16 of 16 that the search verified (100%)" in out
    assert re.search(rf"sc: {BY_ENDS} put by itself \(--enumerate --first 2\d --programs 1\)", out)
    assert 'program("put 0.0"),\n), ' in out
    file = sorted((tmp_path / "found").iterdir())[0]
    assert f"{BY_ENDS} put by itself" in invoke("--replay", str(file))[1]
    code, out = invoke("--ends", "--seed", "3", "--orders", "sc", "--json")
    assert set(json.loads(out)["verdicts"]) <= {"sc, full, verified", "sc, ends, verified", "sc, ends, refuted"}


def test_there_are_so_many_smallest_programs() -> None:
    """Beyond the last number is nothing to judge; without a number of programs all that are left are."""
    assert plan_of(CampaignOptions(enumerate=True, first=TOTAL - 3)).programs == 3
    assert plan_of(CampaignOptions(ends=True)) == CampaignPlan(1000, ends=True)
    code, out = invoke("--enumerate", "--first", str(TOTAL - 3))
    assert code == 2
    assert f"--first {TOTAL - 3}, --programs 8: there are {TOTAL:,} smallest programs" in " ".join(out.split())
