"""xccl-emu plan: tables, JSON, plots, refusals and exit codes."""

import json
from pathlib import Path

import pytest

from tests.cli_support import as_json, invoke, printed, refusal


def test_the_table_and_why_the_first_is_first() -> None:
    """The best strategy, what it loses to nothing by, its terms with their equations, and how many there are."""
    code, out, err = invoke("plan", "--top", "2")
    assert (code, err) == (0, "")
    assert "DeepSeek-R1 on 910B, equations corrected, by throughput" in out
    assert "TP=8 + DP=4, TP=4 + EP=8 loses to TP=8 + DP=4, TP=8 + EP=4 by output RS" in out
    assert "A2A dispatch 23.1 (13)" in out
    assert "177 strategies can be" in out


@pytest.mark.parametrize("model", ["DeepSeek-R1", "Qwen3-235B-A22B"])
@pytest.mark.parametrize("cluster", ["910B", "H20"])
def test_json_has_every_strategy(model: str, cluster: str) -> None:
    """Ranked or refused, with all terms, which add up."""
    told = as_json("plan", "--model", model, "--cluster", cluster)
    assert len(told["ranked"]) + len(told["refused"]) == (185 if cluster == "910B" else 121)
    best = told["ranked"][0]
    assert sum(best["prefill_terms_s"].values()) == pytest.approx(best["prefill_s"])
    assert best["ttft_s"] == pytest.approx(best["prefill_s"] + best["wait_s"])
    assert (told["form"], told["outcome"], best["loses_by"]) == ("corrected", "", "")


def test_a_strategy_alone_is_shown_beside_the_best() -> None:
    """With its place, and the term that it loses by."""
    told = as_json("plan", "--strategy", "TP=8 + DP=4, EP=32")
    assert told["chosen"]["strategy"] == "TP=8 + DP=4, EP=32"
    assert told["reason"].startswith("TP=8 + DP=4, EP=32 loses to TP=8 + DP=4, TP=8 + EP=4 by A2A")
    assert "TP=8 + DP=4, EP=32    " in printed("plan", "--strategy", "TP=8 + DP=4, EP=32", "--top", "1")


def test_a_strategy_that_does_not_fit_is_refused_with_the_numbers() -> None:
    """Exit code 1, and the sum on stderr."""
    code, out, err = invoke("plan", "--strategy", "DP=4 + TP=8, TP=8 + EP=4", "--context", "131072", "--top", "1")
    assert code == 1
    assert "does not fit" in out
    said = "does not fit: weights 44.0 GB + cache 36.8 GB = 80.8 GB, and a device has 64"
    assert f"DP=4 + TP=8, TP=8 + EP=4: {said}" in err


def test_nothing_fits_is_an_outcome() -> None:
    """As printed Eq. (8) leaves nothing: exit code 1, a sentence, and JSON all the same."""
    code, out, err = invoke("plan", "--literal")
    assert code == 1
    assert "no strategy of DeepSeek-R1 on 910B can be, 185 are refused; the one that needs least memory is" in err
    assert "185 are refused" in out
    code, out, err = invoke("plan", "--literal", "--json")
    assert (code, json.loads(out)["ranked"]) == (1, [])
    assert json.loads(out)["outcome"] in err


def test_saturated_is_said() -> None:
    """In the table, in the line behind it, and in JSON, where there is no number for it."""
    out = printed("plan", "--rate", "8", "--top", "1")
    assert "saturated" in out
    assert "177 of them saturated at 8 requests/s" in out
    told = as_json("plan", "--rate", "8")["ranked"][0]
    assert (told["saturated"], told["ttft_s"], told["wait_s"]) == (True, None, None)


def test_literal_names_what_is_corrected() -> None:
    """With (8) corrected there is a plan."""
    told = as_json("plan", "--literal", "--correct", "8")
    assert told["form"] == "literal but for (8)"
    assert told["ranked"][0]["strategy"] == "TP=2 + DP=16, TP=32"


def test_sync_and_drop_change_the_plan() -> None:
    """Without overlap the best takes longer; without copies experts without TP are second."""
    best, sync = (as_json("plan", *words)["ranked"][0] for words in ((), ("--sync",)))
    assert sync["prefill_s"] > best["prefill_s"]
    assert as_json("plan", "--drop")["ranked"][1]["strategy"] == "TP=8 + DP=4, EP=32"


def test_published_beside_computed() -> None:
    """Both models on both clusters and the ranges, with signed errors and the terms that decide."""
    out = printed("plan", "--published")
    for words in ("227.3", "-92.3 %", "16 of 18 hold", "A2A decides", "throughput gained, most"):
        assert words in out
    told = as_json("plan", "--published")
    assert len(told["results"]) == 55
    assert told["form"] == "corrected"


def test_published_beside_the_equations_as_printed() -> None:
    """Where all are saturated as printed there is no throughput to compare; every other row has its value."""
    told = as_json("plan", "--published", "--literal", "--rate", "8")
    assert told["form"] == "literal"
    without = [row for row in told["results"] if row["emulated"] is None]
    assert without
    for row in without:
        assert "throughput" in row["what"]
        assert row["note"].startswith("saturated")


def test_a_users_model_and_cluster(tmp_path: Path) -> None:
    """From files; a field that is absurd is refused by file, table, name and value."""
    model, cluster = tmp_path / "model.toml", tmp_path / "cluster.toml"
    text = 'name="[red]mine"\nhidden=1024\nlayers=8\nweight_bytes=2\ncache_bytes=2\n'
    model.write_text(text + '[attention]\nkind="gqa"\nheads=16\nkv_heads=2\nhead_dim=64\n'
                     "[experts]\nrouted=16\nshared=0\ntop_k=2\nintermediate=512\n")  # fmt: skip
    cluster.write_text('name="two"\nnodes=2\ndevices_per_node=2\nmemory_gb=16\ntflops=10\nefficiency=0.5\nhbm_gb_s=500\n'
                       "[intra]\ngb_s=50\nways=1\n[inter]\ngb_s=10\nways=1\nstart_us=5\n")  # fmt: skip
    words = ("plan", "--model", str(model), "--cluster", str(cluster))
    assert "[red]mine on two" in printed(*words)
    model.write_text(model.read_text().replace("top_k=2", "top_k=-2"))
    said = "model.toml: experts: top_k=-2: must be a whole number, 1 to 1024 (routed experts of a token)"
    assert said in refusal(*words)


def test_the_part_of_a_device() -> None:
    """By the strategy that was asked for, or the best; a device that there is not is refused."""
    out = " ".join(printed("plan", "--device", "9", "--top", "1").split())
    assert "device 9: DP rank 1, layers 0 to 60, experts 64 to 127; attention: query_down[:, :]" in out
    assert "expert: gate[:, 256:512] up[:, 256:512] down[256:512, :]" in out
    told = as_json("plan", "--strategy", "TP=8 [PP=4]", "--device", "9")["weights"]
    assert (told["layers"], told["experts"], told["requests"]) == ([15, 30], [0, 256], 0)
    assert as_json("plan")["weights"] is None
    assert "device 32: must be 0 to 31" in refusal("plan", "--device", "32")


def test_a_plot_is_written(tmp_path: Path) -> None:
    """As a PNG with something in it, the chosen strategy below the best."""
    pytest.importorskip("matplotlib")
    file = tmp_path / "plan.png"
    code, _, err = invoke("plan", "--plot", str(file), "--strategy", "TP=8 [PP=4]", "--top", "3")
    assert (code, err) == (0, "")
    assert file.read_bytes().startswith(b"\x89PNG")
