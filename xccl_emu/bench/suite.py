"""All benches, at once as far as cores and memory go."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

from xccl_emu.bench import published
from xccl_emu.bench.ablation import ablation
from xccl_emu.bench.buffers import buffers
from xccl_emu.bench.dispatch import dispatch
from xccl_emu.bench.fused import fused
from xccl_emu.bench.iteration import iteration
from xccl_emu.bench.links import links
from xccl_emu.bench.processes import Job
from xccl_emu.bench.result import Result
from xccl_emu.bench.sendrecv import sendrecv
from xccl_emu.bench.setting import DEFAULT, Setting
from xccl_emu.bench.tpot import tpot_and_a2e


def table7(setting: Setting = DEFAULT) -> list[Result]:
    """The fused operators, with what was published of DeepEP on H800 beside."""
    theirs = {row.what: {"H800": row.value} for row in published.rows("fused_h800")}
    return [replace(row, beside=theirs.get(row.what, {})) if not row.baseline else row for row in fused(setting)]


@dataclass(frozen=True)
class Bench:
    """One of the suite."""

    make: Callable[[Setting], list[Result]]
    place: int
    """Among those that are shown."""
    gb: float
    """Most memory that it was measured to take, in 10^9 bytes."""
    gb_without_data: float


BENCHES = {
    "fused": Bench(table7, 4, 17.0, 3.2),
    "dispatch": Bench(dispatch, 3, 9.0, 2.0),
    "ablation": Bench(ablation, 7, 8.0, 2.0),
    "a2e and tpot": Bench(tpot_and_a2e, 6, 12.0, 3.2),
    "iteration": Bench(iteration, 5, 12.0, 2.0),
    "links": Bench(links, 0, 1.0, 1.0),
    "sendrecv": Bench(sendrecv, 2, 1.5, 1.0),
    "buffers": Bench(buffers, 1, 0.5, 0.5),
}
"""The long ones first, so that no process works alone at the end.  A2E is run once for its own rows and the budget."""


def run_bench(name: str, seed: int, data: bool) -> list[Result]:
    """One of `BENCHES`, in any process."""
    return BENCHES[name].make(Setting(seed=seed, data=data))


def jobs(seed: int, data: bool) -> list[Job[list[Result]]]:
    """All of them, for `processes.on_processes`."""
    needed = {name: round(1e9 * (bench.gb if data else bench.gb_without_data)) for name, bench in BENCHES.items()}
    return [Job(f"bench {name}", partial(run_bench, name, seed, data), needed[name]) for name in BENCHES]


def in_order(done: Iterable[tuple[int, list[Result]]]) -> list[Result]:
    """The rows of jobs as they come, by number, in the order in which they are shown."""
    places = [bench.place for bench in BENCHES.values()]
    return [row for _, rows in sorted(done, key=lambda one: places[one[0]]) for row in rows]
