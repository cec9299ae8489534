"""What commands refuse: exit code 2, and a message that names the option and the value as the user has given them."""

import json
import pickle
import shlex
from pathlib import Path

import pytest

from tests.cli_support import refusal
from xccl_emu.base.errors import CapacityError, ConfigError

TINY = "check sendrecv --slots 2 --chunks 3 --granules 1"
DISPATCH = "run dispatch --ranks 4 --tokens 5 --hidden 64 --cores 2"
FUSED = "run fused --ranks 4 --tokens 5 --hidden 64 --cores 2"
A2E = "run a2e --domains 2 --attention 2 --experts 9 --tokens 3 --hidden 64"
LARGE = 9223372036854775808

SCAN = "examples/prefix_sum/prefix_sum.py:PrefixSum"

REFUSED = (
    ("run dispatch --ranks 768 --tokens 4000", "768 ranks need about"),
    ("run dispatch --routing /nonexistent.json", "/nonexistent.json"),
    ("run dispatch --ranks 4 --hidden 50", "--hidden 50: must be"),
    (f"{DISPATCH} --order weak", "--order weak: must be one of"),
    (f"{DISPATCH} --policy fair", "--policy fair: must be one of"),
    (f"{DISPATCH} --layer 3", "--layer 3"),
    (f"{DISPATCH} --redundant 9 --redundant-slots 2", "9 replicas: there is room for 8"),
    (f"run dispatch --ranks 2 --redundant-slots {LARGE - 1}", "must be at most 65536"),
    ("run sendrecv --file /nonexistent", "--file /nonexistent"),
    ("run sendrecv --file /dev/null", "is empty"),
    ("run sendrecv --permutation --file /etc/passwd", "--permutation"),
    ("run sendrecv --path pigeon", "pigeon"),
    ("run sendrecv --permutation --source 3", "--source 3"),
    ("run sendrecv --file /proc/version --nbytes 5", "--nbytes 5"),
    (f"run sendrecv --nbytes {10**14}", "GiB"),  # by arithmetic, not by trying
    ("run sendrecv --nbytes 1Q", "--nbytes 1Q: must be a size such as 512, 64K"),
    (f"{FUSED} --path mtu", "--path mtu: must be one of aiv, sdma"),
    (f"{FUSED} --hidden 50", "--hidden 50: must be"),
    (f"{FUSED} --ranks 768 --tokens 1500 --hidden 7168", "768 ranks need about"),
    (f"{FUSED} --routing /nonexistent.json", "/nonexistent.json"),
    (f"{A2E} --path dma", "--path dma: must be one of mtu, urma"),
    (f"{A2E} --hidden 50", "--hidden 50: must be"),
    (f"{A2E} --attention 10", "--attention 10: must be at most n_experts=9"),
    (f"{A2E} --experts 765", "2 x 2 + 765 = 769 dies; the pod has 768"),
    ("run a2e --domains 2 --attention 180 --experts 400 --tokens 65536 --hidden 7168", "GiB are free; take fewer"),
    (f"{A2E} --routing /nonexistent.json", "/nonexistent.json"),
    ("compare --hidden 33", "--hidden 33: must be"),
    ("compare --ranks 9", "--attention 10: must be at most"),
    ("bench sendrecv -n 9000000000000000000", "'-n'"),
    # ---- sizes of a case in a file
    (f"run {SCAN} --die 4", "--die 4: PrefixSum has no such size, but dies, elements"),
    (f"run {SCAN} --dies", "--dies: must have a value"),
    (f"run {SCAN} 4", "4: must be an option"),
    (f"bench {SCAN} --dies 4,0", "dies=0: must be at least 2"),
    (f"run {SCAN} --order tso", "--order tso: must be one of sc, fifo, relaxed"),
    (f"run {SCAN} --policy lifo", "--policy lifo: must be one of round-robin, random"),
    # ---- bench
    ("bench eplb --layer 3", "--layer 3: needs --routing FILE"),
    ("bench buffers --csv /nowhere/at/all.csv", "--csv /nowhere/at/all.csv: must be a file in a folder that exists"),
    ("bench fused batch=1", "batch=1: needs --sweep"),
    ("bench fused --dask local", "--dask local: needs --sweep"),
    ("bench dispatch --sweep ep=4 --ranks 8", "--ranks 8: cannot be combined with --sweep"),
    ("bench links --plot x.foo", "--plot x.foo: must end with .png"),
    ("bench fused --plot x.foo", "--plot x.foo: must end with .png"),
    ("bench sendrecv -n 1001", "1000"),
    ("bench fused --plot /nowhere/x.png", "--plot /nowhere/x.png: must be a file in a folder"),
    ("bench all-gather --fabric ub", "--fabric ub: must be FILE.toml or one of cloudmatrix384, atlas-800t-a2"),
    ("bench hixl --cost poll=1", "--cost poll: no such constant; there are clock_ns"),
    ("bench operators --fabric h20", "--fabric h20: bench operators has the fabric of its paper"),
    ("bench all-gather --ranks 17 --fabric h20", "H20, 2 nodes has 16 dies; die 16 takes part in this run"),
    ("bench all-gather -b 1Q", "-b 1Q: must be a size such as 512, 64K"),
    ("bench all-gather -b 4K -e 1K", "-e 1K: must be at least -b 4K"),
    ("bench all-gather -e 1K", "-e 1K: needs -b"),
    ("bench all-gather -o sum", "-o sum: must be none for all-gather"),
    ("bench all-gather -d float", "-d float: must be one of bfloat16, half"),
    ("bench all-gather -b 2", "elements=0: must be at least 1"),
    ("bench sendrecv-dma -b 2K", "apply only to collectives; sendrecv-dma is none"),
    # ---- plan
    ("plan --model GPT", "--model GPT: must be DeepSeek-R1, Qwen3-235B-A22B, or a file that ends with .toml"),
    ("plan --cluster H21", "--cluster H21: must be 910B, H20, or a file"),
    ("plan --rate 0", "--rate 0.0: must be a number above 0"),
    ("plan --rate nan", "--rate nan: must be a number above 0"),
    ("plan --context 10", "--context 10: must be at least input + output, 420"),
    ("plan --by price", "--by price: must be one of throughput, ttft, itl"),
    ("plan --correct 8", "--correct 8: needs --literal"),
    ("plan --literal --correct 9", "must be one of 1, 2, 4, 7, 8, 11, 13"),
    ("plan --strategy EP=32", "'EP=32' must be TP=degree or DP=degree"),
    ("plan --published --strategy TP=8", "--published: cannot be combined with"),
    ("plan --published --model Qwen3-235B-A22B", "--published: cannot be combined with"),
    ("plan --plot a.gif", "--plot a.gif: must end with"),
    # ---- check
    ("check --json", "PROTOCOL: must be one of a2e, "),
    ("check ring", "protocol 'ring': must be a name that xccl-emu list prints, or FILE.py:NAME"),
    (f"{TINY} moe", "moe: must be an option"),
    (f"{TINY} --order weak", "--order weak: must be one of sc, fifo, relaxed"),
    (f"{TINY} --policy fair", "--policy fair: must be one of exhaustive, portfolio"),
    (f"{TINY} --tokens 2", "--tokens 2: sendrecv has no such size, but ranks, cores, slots"),
    (f"{TINY} --cores 0", "--cores 0: must be at least 1"),
    ("check sendrecv --set cores=0", "--set cores=0: must be at least 1"),
    ("check sendrecv --path pigeon", "--path pigeon: must be one of mtu, dma"),
    ("check moe --tokens 1,2,3", "--tokens 1,2,3"),
    ("check fused --set experts", "--set experts: must be NAME=VALUE"),
    ("check fused --set cats=1", "cats=1: fused has no such"),
    ("check fused --set =3", "--set =3:"),
    (f"{TINY} --seconds 0", "--seconds 0.0: must be positive"),
    (f"{TINY} --states 0", "--states"),
    (f"{TINY} --memory 0", "--memory 0: must be a size such as 512"),
    (f"check sendrecv --states {LARGE}", f"--states {LARGE}: must be a whole number"),
    (f"{TINY} --without 'data befor tail'", "has no such synchronization, but 'data before tail', "),
    (f"{TINY} --out no/such/folder.json", "--out no/such/folder.json: must be a file in a folder that exists"),
    (f"{TINY} --each-sync --out x.json", "--out x.json: cannot be combined with --each-sync"),
    (f"{TINY} --workers 2", "--workers 2: needs --each-sync or --weakest"),
    (f"{TINY} --fault melt:die1", "stop:dieN"),
    (f"{TINY} --fault cut:0-7", "die7 is out of range 0..1"),
    (f"{TINY} --certify-seconds 3", "--certify-seconds 3.0: must be positive, and needs --certify"),
    (f"{TINY} --certify --certify-seconds 0", "--certify-seconds 0.0: must be positive"),
    (f"{TINY} --certify --fault stop:die1", "--certify: cannot be combined with --fault stop:die1"),
    ("check --replay absent.json", "absent.json: does not exist"),
    ("check --replay absent.json --slots 3", "--slots 3: cannot be combined with --replay"),
    ("check --replay absent.json --without tail", "--without"),
    ("check --replay absent.json --states 10", "--states 10: cannot be combined with --replay"),
    ("check --replay absent.json --profile", "--profile: cannot be combined with --replay"),
    ("run fused --late 1", "--late: takes no value; or say --early-quantization 0"),
    # ---- trace and campaign
    ("trace sendrecv --dies 0,x", "--dies 0,x"),
    ("trace sendrecv --dies 5", "--dies 5: die 5: the run has dies 0 to 1"),
    ("trace sendrecv --dies 0-99999999999", "die 99999999999"),
    ("trace sendrecv --dies 3-1", "--dies 3-1"),
    ("trace sendrecv --fabric ethernet", "--fabric ethernet: must be FILE.toml or one of cloudmatrix384"),
    ("trace sendrecv --place moon", "--place moon"),
    ("trace sendrecv --out no/such/folder/t.json", "--out no/such/folder"),
    ("trace sendrecv --set size=3", "--set size=3: sendrecv has no such size"),
    ("trace teleport", "protocol 'teleport'"),
    ("trace mixserve --gantt 9", "--gantt 9: must be one of the dies that are shown"),
    ("trace mixserve --plot a.png", "--plot a.png: needs --gantt"),
    ("campaign --programs 8 --orders sc,tso", "--orders sc,tso: must be of"),
    ("campaign --programs 8 --replay README.md", "--replay README.md: is no file that campaign --out has written"),
    ("campaign --programs 8 --seconds -1", "--seconds -1.0: must be positive"),
    ("check sendrecv --schedules 0", "'--schedules': Input should be greater than or equal to 1, not 0"),
    ("bench hixl --seed=-1", "'--seed': Input should be greater than or equal to 0, not -1"),
    ("bench all-gather --ranks 2,,4", "--ranks 2,,4: must be a value, or several with commas between them"),
    ("run sendrec", "'sendrec': must be a name that xccl-emu list prints or FILE.py:NAME; did you mean sendrecv"),
    ("bench fussed", "did you mean fused"),
    (f"{TINY} --slot 3", "did you mean slots"),
    (f"{TINY} --sed 3", "--sed 3: sendrecv has no such size, but ranks, "),
    (f"{TINY} --sed 3", "permutation, seed; did you mean seed or set or seconds?"),
    (f"{TINY} --scedules 3", "did you mean schedules?"),
    (f"{TINY} ordr=relaxed", "ordr=relaxed: must be an option, as in --ranks 4; did you mean order?"),
    (f"run {SCAN} --ordr relaxed", "did you mean order?"),
    (f"run {SCAN} polcy=random", "did you mean policy?"),
    (f"{TINY} --order relaxd", "--order relaxd: must be one of sc, fifo, relaxed, unordered; did you mean relaxed?"),
    ("run sendrecv --path mtv", "--path mtv: must be one of mtu, dma, zero-copy; did you mean mtu?"),
    ("run dispatch --ranks 769", "--ranks 769: must be at most 768"),
    ("plan --literal --correct 1 --correct x", "--correct x: must be one of 1, 2"),
    ("check examples/prefix_sum/prefix_sum.py", "prefix_sum.py:NAME; there is PrefixSum"),
    ("campaign --programs 8 --out /dev/null/found", "--out /dev/null/found"),
    ("campaign --programs 0", "--programs"),
)


@pytest.mark.parametrize(("line", "said"), REFUSED, ids=[line for line, _ in REFUSED])
def test_what_makes_no_sense_is_refused(line: str, said: str) -> None:
    """Before anything is compiled, run or allocated, and not by a traceback; numbers have 64 bits."""
    assert said in refusal(*shlex.split(line))


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
    assert said in refusal(*shlex.split(DISPATCH), "--routing", str(file))


def test_payloads_that_do_not_fit_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too much payload for the machine is refused before anything is allocated."""
    monkeypatch.setattr("xccl_emu.base.free_memory.available_bytes", lambda: 1 << 20)
    assert "GiB" in refusal("run", "sendrecv", "--nbytes", str(1 << 20))


def test_an_error_is_about_an_argument_or_a_text() -> None:
    """Its message is the same either way, also after it came from another process; a text alone is not read."""
    named = ConfigError("path", "mtu", "must be sdma")
    assert (named.argument, named.value, named.must) == ("path", "mtu", "must be sdma")
    plain = ConfigError("path='mtu': must be sdma")
    assert (plain.argument, plain.value, plain.must) == ("", None, "path='mtu': must be sdma")
    assert [str(named), str(plain)] == ["path='mtu': must be sdma"] * 2
    again = pickle.loads(pickle.dumps(CapacityError("cores", 49, "a die has 48")))
    assert (type(again), str(again)) == (CapacityError, "cores=49: a die has 48")
    assert (again.argument, again.value) == ("cores", 49)
