"""Launches of kernels in CUDA C++: ranks are dies, the threads of a block are the cores of a group."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from xccl_emu.base.errors import ConfigError
from xccl_emu.base.options import whole
from xccl_emu.doors.cuda.kernel import (
    KEPT,
    MEETING_BYTES,
    NOT_NAMED,
    OUT_OF_SCOPE,
    RANKS_MOST,
    SIZE_BITS,
    WARP,
    CudaKernel,
)
from xccl_emu.lang.foreign.image import constant
from xccl_emu.machine.launch import Grant, Launch
from xccl_emu.machine.pod import Pod
from xccl_emu.protocol import Bench, Regions
from xccl_emu.protocol.bench import READINGS
from xccl_emu.protocol.regions import Region
from xccl_emu.protocol.streams import Streams

SIZES = 3
"""The sizes of a grid or a block are x, y and z."""
WORD_BYTES, UB_BYTES = 8, 32
"""An atomic of fewer bytes swaps the word around it."""
STOPS = {
    OUT_OF_SCOPE: "an access of a scope that is smaller than the system, to memory of another rank",
    NOT_NAMED: "lanes of a warp meet, and a mask does not name its own lane, or one from which this lane reads",
}
"""What the headers stop a run with, as `Bench.stop` takes it."""

READ_AS = (
    "PTX is read here so that a release waits until all is visible, loads keep their order, and all see a write at once"
)
"""What a proof rests on: where the machine orders more than PTX does."""

ACQUIRING = "relaxed reads acquire here, which PTX does not promise"

RELIES_ON = "it relies on aligned accesses of up to 16 bytes by one instruction being whole, which PTX does not promise"

PUBLISHES = "the end of a kernel publishes to all ranks here, which CUDA promises to later kernels of its stream alone"

Sizes = int | Sequence[int]
"""The size of a grid or a block: x, or up to three of x, y and z."""


@dataclass(frozen=True)
class Gpus:
    """A pod whose dies are GPUs, each with room for the threads of a grid at once."""

    bench: Bench
    pod: Pod
    ranks: int
    blocks: int
    threads: int
    said: Region
    """Where each thread of a rank says on each rank how far it has come (``xccl_cuda.h``)."""
    shared: Region
    """What the threads of each block share."""
    lanes: Region
    """Where the threads of each block meet others of their warps."""
    apart: Region | None = None
    """What other ranks see of a rank's memory, on dies after the ranks', where the end of a kernel is local."""
    has_streams: bool = False
    """Whether all kernels are launched in `streams`."""

    def launch(
        self, kernel: CudaKernel, rank: int, args: Mapping[str, Any], grants: Sequence[Grant],
        grid: Sizes = 1, block: Sizes = 1, shared: int = 0, after: "Grids | None" = None,
    ) -> list[Launch]:  # fmt: skip
        """Launch a kernel on a rank; all blocks of the grid run at once.

        Parameters
        ----------
        args: for each parameter of the source an address or a whole number, a NumPy scalar of its type, or the bytes of
            a struct, as ``bytes`` or a NumPy array.
        grants: what each thread may touch.
        grid, block: how many blocks, and threads of a block: x, or (x, y) or (x, y, z).
        shared: bytes of a block's ``extern __shared__`` variables.
        after: streams (`streams`), in which it comes after what this rank runs already there, on `Grids.put`.

        Raises ConfigError as `Pod.launch` does, for a grid, a block, or shared memory of the kernel that is larger
        than the pod has room for, for a stream if there are none, and for a grid or block of another size in one.
        """
        kernel = kernel.read(self.bench)
        self.bench.assumes(READ_AS)
        if kernel.acquires and kernel.opens("reads"):
            self.bench.assumes(ACQUIRING)
        if kernel.is_whole:
            self.bench.assumes(RELIES_ON)
        for code, meaning in STOPS.items():
            self.bench.stop(code, meaning)
        shares = kernel.shared_bytes(whole("shared", shared))
        if shares > self.shared.nbytes:
            raise ConfigError("shared_bytes", self.shared.nbytes, f"{kernel.name} shares {shares} in a block")
        blocks, grid_word = _sizes("grid", grid, self.blocks)
        threads, block_word = _sizes("block", block, self.threads)
        if (after is not None) != self.has_streams:
            raise ConfigError("after", after, f"must be {'`Gpus.streams`' if self.has_streams else 'None'} here")
        if after is not None:
            after.check(rank, blocks, threads)
        shares = shares if after is None else self.shared.nbytes
        spec = self.pod.spec
        given = {
            **dict.fromkeys(KEPT, 0), "xccl_block_dim": block_word, "xccl_grid_dim": grid_word, "xccl_rank": rank,
            "xccl_ranks": self.ranks, "xccl_rank_bytes": spec.die_bytes,
            "xccl_said": self.said.start + rank * self.said.step, "xccl_apart": -self.apart.start if self.apart else 0,
            **{name: _argument(name, value) for name, value in args.items()},
        }  # fmt: skip
        leave = [*grants, *(each.grant(None, "rw") for each in (self.said, self.apart) if each)]
        return [
            self.pod.launch(
                kernel, rank, range(number * threads, (number + 1) * threads),
                {
                    **given, "xccl_block": number, "xccl_thread": list(range(threads)),
                    "xccl_shared": self.shared.at(rank, number), "xccl_lanes": self.lanes.at(rank, number),
                },
                [*leave, self._shared(rank, number, shares), self.lanes.grant(rank, "rw", number)],
                after=after,
            )
            for number in range(blocks)
        ]  # fmt: skip

    def streams(self) -> "Grids":
        """Return streams of launches, one for each rank."""
        return Grids(self.bench, self.pod)

    def _shared(self, rank: int, block: int, nbytes: int) -> Grant:
        """Leave for the threads of a block to touch what they share: whole words, as atomics of 4 bytes do."""
        room = self.shared.grant(rank, "rw", block)
        return replace(room, end=room.start + -(-nbytes // WORD_BYTES) * WORD_BYTES)


class Grids(Streams):
    """Grids of one size that each rank runs one after the other, as it launches them in a stream.

    `Gpus.launch` ``after`` them collects, `put` launches; then app data has room for `Streams.table_bytes` a thread.
    """

    def check(self, rank: int, blocks: int, threads: int) -> None:
        """Raises ConfigError for another grid or block than a rank's stream has."""
        before = [len(cores) for die, cores in self._streams if die == rank]
        for name, has, must in (("grid", blocks, len(before)), ("block", threads, max(before, default=0))):
            if before and has != must:
                raise ConfigError(name, has, f"must be {must}, as before in its stream")

    def put(self) -> None:
        """Launch all of them; where one kernel follows another, the run reads the end of the first."""
        if any(len(stream.launches) > 1 for stream in self._streams.values()):
            how = self._bench.reading("boundary")
            if how == READINGS["boundary"][1]:
                self._bench.assumes(PUBLISHES)
            ranks = [die for die, _ in self._streams]
            for (die, _), stream in self._streams.items():
                stream.launches = [
                    replace(each, kernel=cast(CudaKernel, each.kernel).ending(how, ranks.count(die)))
                    for each in stream.launches
                ]
        super().put()


def gpus(
    bench: Bench, regions: Regions, blocks: int, threads: int, app_bytes: int, shared_bytes: int = 0,
    streams: bool = False,
) -> Gpus:  # fmt: skip
    """The pod of a bench, with no more room than these regions and this many blocks and threads of a rank need.

    ``shared_bytes`` are what a block has for variables that are ``__shared__``; with ``streams`` all kernels are
    launched after `Gpus.streams`.

    Raises ConfigError for more ranks than `RANKS_MOST`, or half of them with streams.
    """
    ranks, most = len(regions.dies), RANKS_MOST // (1 + streams)
    if ranks > most:
        raise ConfigError("ranks", ranks, f"must be {most} at most")
    said = regions.meta("said", 8 * blocks * threads, ranks)
    shared = regions.managed("shared", max(shared_bytes, 1), blocks)
    lanes = regions.meta("lanes", MEETING_BYTES * threads * min(threads, WARP), blocks)
    apart, nodes = None, ranks
    if streams and bench.would_read("boundary") == READINGS["boundary"][2]:
        spec = regions.tight_pod(app_bytes=app_bytes, ub_bytes=UB_BYTES, cores=blocks * threads)
        apart, nodes = regions.meta("apart", 2 * spec.die_bytes), 2 * ranks
    pod = regions.pod(bench, app_bytes=app_bytes, ub_bytes=UB_BYTES, cores=blocks * threads, nodes=nodes)
    if apart:
        for rank in range(ranks):
            bench.label(f"die{rank}'s memory as others see it", apart.at(ranks + rank), apart.nbytes)
    return Gpus(bench, pod, ranks, blocks, threads, said, shared, lanes, apart, streams)


def _sizes(name: str, sizes: Sizes, most: int) -> tuple[int, int]:
    """Return the product, and x, y and z in one word; raises ConfigError as `Gpus.launch` does."""
    each = [whole(name, n) for n in ([sizes] if isinstance(sizes, int) else sizes)]
    if not 1 <= len(each) <= SIZES or min(each) < 1 or np.prod(each) > most:
        raise ConfigError(name, sizes, f"must be up to {SIZES} sizes from 1 on, and no more than {most} in all")
    each += [1] * (SIZES - len(each))
    return int(np.prod(each)), sum(n << SIZE_BITS * i for i, n in enumerate(each))


def _argument(name: str, value: Any) -> int | Sequence[int]:
    """A word of a launch."""
    if isinstance(value, bytes | np.ndarray | np.void):
        return constant(bytes(value) if isinstance(value, bytes) else value.tobytes())
    if isinstance(value, np.float32 | np.float64):
        return int(value.view(np.int32 if value.itemsize == 4 else np.int64))
    if isinstance(value, float):
        raise ConfigError(f"args[{name!r}]", value, "must be np.float32 or np.float64, as its parameter is")
    word: int | Sequence[int] = value
    return word
