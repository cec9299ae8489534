"""What meeting in the fabric costs: all dies of a group write messages to all others at once.

Messages have the size of combine's.  They go round, so that dies do not meet, or each to a die that is drawn, so that
some do; and the fabric stripes them over planes and links, or sends each block by its address.
"""

from collections.abc import Sequence
from dataclasses import replace

from xccl_emu.kernels.transfers import Scatter, scatter_blocks
from xccl_emu.machine.spec import CLOUDMATRIX384, KIB
from xccl_emu.papers.bench.result import Result
from xccl_emu.papers.bench.setting import DEFAULT, Setting
from xccl_emu.timing.fabric import Fabric

RANKS = (8, 128, 768)
MESSAGE_BYTES, MESSAGES = 14336, 24
"""Size and number of the messages that each core sends."""

SLOTS = 4096
"""Places on each die."""

BLOCK_BYTES = 4 * KIB
"""What goes to one plane and one link where addresses decide."""


def scatter_us(setting: Setting, ranks: int, drawn: bool) -> float:
    """Mean over dies of the time until all that a die wrote is visible."""
    pod, policy = setting.pod()
    spec, cores = pod.spec, pod.spec.cores_per_die
    sources = [pod.alloc(die, MESSAGE_BYTES) for die in range(ranks)]
    targets = [pod.alloc(die, SLOTS * MESSAGE_BYTES) for die in range(ranks)]
    shape = Scatter(ranks, MESSAGE_BYTES, MESSAGES, int(drawn), SLOTS, spec.die_bytes)
    first, anywhere = targets[0].address, replace(pod.grant(targets[0], "w"), die=None)
    for die, source in enumerate(sources):
        seeds = [(setting.seed + 1) * 7919 + die * cores + core for core in range(cores)]
        starts = [(die + core * ranks // cores) % ranks for core in range(cores)]
        args: dict[str, int | Sequence[int]] = {
            "shape": shape, "source": source.address, "target": first, "own": die, "die": starts, "seed": seeds,
        }  # fmt: skip
        pod.launch(scatter_blocks, die, range(cores), args, [pod.grant(source, "r"), anywhere])
    with setting.stage(f"{ranks} ranks") as progress:
        pod.run(progress=progress)
    ends = policy.timing.by_die_us.values()
    return sum(ends) / len(ends)


def congestion(setting: Setting = DEFAULT, ranks: Sequence[int] = RANKS) -> list[Result]:
    """Return what each die writes a second, by ranks, order and way through the fabric."""
    bare = replace(setting, data=False)
    ways: dict[str, Fabric] = {
        "striped": setting.fabric, "by address": replace(setting.fabric, by_address=True, stripe_bytes=BLOCK_BYTES),
    }  # fmt: skip
    results = []
    for n in ranks:
        for way, fabric in ways.items():
            for order, drawn in (("going round", False), ("drawn", True)):
                took = scatter_us(replace(bare, fabric=fabric), n, drawn)
                results.append(_row(n, f"{n} ranks, {order}, {way}", took))
    return results


def _row(ranks: int, what: str, took_us: float) -> Result:
    nbytes = MESSAGE_BYTES * MESSAGES * CLOUDMATRIX384.cores_per_die
    shape = {"ranks": ranks, "message": MESSAGE_BYTES, "messages": MESSAGES, "cores": CLOUDMATRIX384.cores_per_die}
    return Result("congestion", what, nbytes / took_us / 1000, "GB/s", configuration=shape)
