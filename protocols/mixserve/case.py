"""MixServe's fused AG-Dispatch and RS-Combine as cases ([MixServe] III-D)."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from xccl_emu.base.errors import ConfigError
from xccl_emu.kernels.group import align
from xccl_emu.kernels.mixserve.layer import mixserve
from xccl_emu.kernels.mixserve.rows import ClusterRank, Tables
from xccl_emu.machine.pod import Buffer, Pod
from xccl_emu.machine.spec import KIB
from xccl_emu.oracle.mixserve import combined, dispatched, partials, rows_for
from xccl_emu.oracle.numerics import Hidden
from xccl_emu.protocol import Bench, Call, Preset, Regions, choice, read_papers, size, switch
from xccl_emu.protocol.streams import StreamCase, Streams
from xccl_emu.protocols.collectives.case import BYTES_MAX, no_numbers, numbers
from xccl_emu.protocols.experts.config import DTYPES
from xccl_emu.protocols.mixserve.layout import Degrees, MixServeLayout, MovedSizes, degrees

Chosen = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Data:
    """What goes in, and what must come out."""

    of: Degrees
    shape: MovedSizes
    dtype: str
    x: Hidden
    """Hidden states, [rounds, dp, tokens, hidden]."""
    choices: Chosen
    """Experts of each token, none twice, or -1 for a masked choice, [rounds, dp, tokens, top_k]."""
    weights: NDArray[np.float32]
    """Weights of the choices."""
    seed: int | None = None
    """If given, the outputs of experts are drawn by it, and the order of sums is in the bits.  If not the dummy experts
    make them."""
    payload: bool = True
    """If not, hidden states and outputs are zeros that take no memory; choices are as they are."""

    @property
    def rounds(self) -> int:
        """Return the number of rounds."""
        return len(self.choices)

    # ---- the tables of a rank

    def tables(self, node: int, local: int, core: int) -> dict[str, NDArray[np.generic]]:
        """Tables of a core's tokens: rows of each node and expert, their choices, and where each row is, by rounds."""
        of, capacity = self.of, self.shape.capacity
        choices = self._of_core(core)[:, of.tokens_of(node, of.group(local))].reshape(self.rounds, -1)
        rows = np.full((self.rounds, of.nodes, capacity), -1, np.int32)
        places = np.full(choices.shape, -1, np.int32)
        counts = np.zeros((self.rounds, of.nodes, self.shape.experts), np.int64)
        for r, other in np.ndindex(self.rounds, of.nodes):
            expert = choices[r] - of.experts_of(other, of.group(local)) * self.shape.experts
            mine = np.flatnonzero((expert >= 0) & (expert < self.shape.experts))
            mine = mine[np.lexsort((mine, expert[mine]))]
            rows[r, other, : len(mine)] = mine
            places[r, mine] = other * capacity + np.arange(len(mine))
            counts[r, other] = np.bincount(expert[mine], minlength=self.shape.experts)
        return {"rows": rows, "places": places, "counts": counts, "totals": counts.sum(2)}

    def arrived(self, node: int, local: int, core: int) -> Chosen:
        """Rows of a core that a rank's experts get from each group of each node, [rounds, nodes, groups]."""
        experts = self._experts(self.of.experts_of(node, self.of.group(local)))
        counts = [[len(rows_for(chosen, experts)) for chosen in choices] for choices in self._of_core(core)]
        return np.array(counts).reshape(self.rounds, self.of.nodes, self.of.dp_groups)

    def _of_core(self, core: int) -> Chosen:
        """Choices of a core's tokens."""
        return self.choices[:, :, self.shape.tokens_of(core)]

    # ---- what must come out

    def rows(self, r: int, tokens: int, node: int, local: int, core: int) -> Hidden:
        """The rows of a group's tokens that a rank's experts get and a core moves."""
        experts = self._experts(self.of.experts_of(node, self.of.group(local)))
        return dispatched(self.x[r, tokens][self.shape.tokens_of(core)], self._of_core(core)[r, tokens], experts)

    def partials(self, node: int, local: int, core: int) -> Hidden:
        """The experts' outputs, this rank's part of the sum, [rounds, nodes, groups, capacity, hidden]."""
        of, shape, dealt = self.of, self.shape, self.shape.tokens_of(core)
        blocks = (self.rounds, of.nodes, of.dp_groups, shape.capacity, shape.hidden)
        if not self.payload:
            return no_numbers(blocks, self.dtype)
        made = np.zeros((self.rounds, of.dp, shape.capacity, shape.hidden), self.x.dtype)
        for r, tokens in np.ndindex(self.rounds, of.dp):
            e = of.experts_of(node, of.group(local))
            outputs = self._outputs(r, tokens, e)[local - of.same_experts(local).start]
            token = rows_for(self.choices[r, tokens], self._experts(e)) // shape.top_k
            rows = outputs[(token >= dealt.start) & (token < dealt.stop)]
            made[r, tokens, : len(rows)] = rows
        return made.reshape(blocks)

    @functools.cached_property
    def results(self) -> Hidden:
        """The tokens' results, [rounds, dp, tokens, hidden]."""
        if not self.payload:
            return self.x
        apart = [range(group, self.of.ep, self.of.ep_groups) for group in range(self.of.ep_groups)]
        experts = [[self._experts(e) for e in served] for served in apart]
        made = np.empty_like(self.x)
        for r, tokens in np.ndindex(self.rounds, self.of.dp):
            outputs = [self._outputs(r, tokens, e) for served in apart for e in served]
            made[r, tokens] = combined(self.choices[r, tokens], self.weights[r, tokens], experts, outputs)
        return made

    def _experts(self, e: int) -> range:
        return range(e * self.shape.experts, (e + 1) * self.shape.experts)

    def _outputs(self, r: int, tokens: int, e: int) -> Hidden:
        """Parts of the outputs of a group's experts for some tokens, [ranks, rows, hidden]; made once."""
        if (r, tokens, e) not in self._made:
            self._made[r, tokens, e] = self._make(r, tokens, e)
        return self._made[r, tokens, e]

    @functools.cached_property
    def _made(self) -> dict[tuple[int, int, int], Hidden]:
        return {}

    def _make(self, r: int, tokens: int, e: int) -> Hidden:
        chosen, ranks = self.choices[r, tokens], self.of.shards * self.of.dp_groups
        mine = rows_for(chosen, self._experts(e))
        if self.seed is not None:
            return numbers((ranks, len(mine), self.shape.hidden), self.dtype, [self.seed, 3, r, tokens, e])
        rows = dispatched(self.x[r, tokens], chosen, self._experts(e))
        return partials(rows, chosen.ravel()[mine], ranks)


# ---- the case


PARTS = {"both": (1, 1), "dispatch": (1, 0), "combine": (0, 1)}
"""Does it dispatch, does it combine?"""

UB_BYTES = 192 * KIB
ROWS_MAX = 1 << 36
"""Bytes of the places for outputs of experts; a run that moves payload may have `BYTES_MAX`."""


@dataclass(frozen=True)
class MixServeCase(StreamCase):
    """Rounds of AG-Dispatch, dummy experts and RS-Combine on ``nodes`` nodes of ``ranks`` ranks, a die each.

    Attention has ``dp`` groups with tokens of their own; the tokens are split over the ranks of a group.  The layer of
    experts has ``ep`` groups with experts of their own, which are split over the ranks of a group.
    """

    side_by_side = hosts_wait = True
    presets: ClassVar[tuple[Preset, ...]] = (
        Preset("mixserve", "Fused AG-Dispatch and RS-Combine on a two-level cluster"),
        Preset("mixserve-dispatch", "Fused AG-Dispatch alone", {"part": "dispatch"}),
        Preset("mixserve-combine", "Fused RS-Combine alone", {"part": "combine"}),
    )
    papers = read_papers("mixserve")

    nodes: int = size(2, "Nodes.", most=96)
    ranks: int = size(2, "Ranks of a node.", most=96)
    dp: int = size(0, "Degree of data parallelism of attention; 0 for one group a node.", least=0)
    ep: int = size(0, "Degree of expert parallelism; 0 for one group a node.", least=0)
    cores: int = size(1, "Cores of each rank; each moves some of the tokens.", most=1 << 10)
    tokens: int = size(1, "Tokens of each group that has tokens of its own.")
    hidden: int = size(32, "Elements of a hidden state; each shard has whole granules, of 16.")
    experts: int = size(1, "Experts of each group that has experts of its own.", most=4096)
    top_k: int = size(2, "Experts of each token.")
    rounds: int = size(2, "Rounds one after the other, in one kernel.", examples=(1, 3), each_call=True)
    part: str = choice("both", "What is run.", of=PARTS)
    overlap: int = switch(1, "Communication within nodes and between them at the same time.")
    dtype: str = choice("bf16", "Type of hidden states; sums are in FP32.", of=DTYPES)
    seed: int = size(0, "Of tokens, choices and weights.", least=0, most=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        of = self.degrees
        if self.hidden % (16 * of.shards):
            raise ConfigError("hidden", self.hidden, f"must be a multiple of 16 x {of.shards} shards")
        if self.cores > self.tokens:
            raise ConfigError("cores", self.cores, f"must be at most {self.tokens}, one for each token")
        if self.top_k > of.ep * self.experts:
            raise ConfigError("top_k", self.top_k, f"there are {of.ep * self.experts} experts")
        if self.shape.ub_bytes > UB_BYTES:
            raise ConfigError("hidden", self.hidden, f"rows and sums need {self.shape.ub_bytes} bytes of {UB_BYTES}")
        self._check_rows(ROWS_MAX)

    def _check_rows(self, most: int) -> None:
        nbytes = self.degrees.world * self.cores * self.rounds * self._partial_bytes
        if nbytes > most:
            raise ConfigError("tokens", self.tokens, f"rows take {nbytes} bytes, must be at most {most}")

    def lay_out_calls(self, bench: Bench, calls: Sequence[Call]) -> None:
        """A launch for each call, and tables of the rounds of all."""
        each = [call.case.rounds for call in calls if isinstance(call.case, MixServeCase)]
        replace(self, rounds=sum(each))._lay_out(bench, each, calls)

    def _lay_out(self, bench: Bench, each: Sequence[int], calls: Sequence[Call]) -> None:
        """A kernel on each core, with its rank's tables; what rows and results must be, the oracle says.

        ``each`` has the rounds of each launch.
        """
        if bench.payload:
            self._check_rows(BYTES_MAX)
        shape = self.shape
        regions = Regions(self.degrees.world)
        layout, data = MixServeLayout(regions, shape), self.data(bench.payload)
        app = self.app_bytes + self.cores * Streams.table_bytes(len(each), mixserve)
        pod = regions.pod(bench, app_bytes=app, ub_bytes=shape.ub_bytes, cores=self.cores)
        streams = Streams(bench, pod, calls)
        placed = self.launch_all(bench, streams, layout, data, each)
        for die, core in placed if self.part == "dispatch" and bench.payload else ():
            self._expect_rows(bench, streams.owner(die, core), die, core, layout, data)
        streams.put()
        bench.tolerates("stop", "cut", "stall")

    def launch_all(
        self, bench: Bench, streams: Streams, layout: MixServeLayout, data: Data, each: Sequence[int]
    ) -> dict[tuple[int, int], dict[str, Buffer]]:
        """Launch on each core of each die launches of ``each`` rounds; returns the buffers of each die and core."""
        pod, placed = streams.pod, {}
        for die, core in np.ndindex(data.of.world, self.cores):
            placed[die, core] = self._buffers(bench, pod, streams, die, core, data)
            self._launch(pod, streams, die, core, layout, placed[die, core], each)
        return placed

    def _buffers(self, bench: Bench, pod: Pod, streams: Streams, die: int, core: int, data: Data) -> dict[str, Buffer]:
        """Return the buffers of a core, by name."""
        of, (node, local) = data.of, divmod(die, data.of.ranks)
        own, dealt = of.tokens_of(node, of.group(local)), data.shape.tokens_of(core)
        tables = data.tables(node, local, core)
        filled = {"tokens": data.x[:, own, dealt], "weights": data.weights[:, own, dealt], **tables}
        wanted: dict[str, NDArray[Any]] = {}
        if self.part == "combine":
            filled |= {"arrived": data.arrived(node, local, core), "partial": data.partials(node, local, core)}
        else:
            wanted["arrived"] = data.arrived(node, local, core)
        if self.part != "dispatch":
            wanted["out"] = data.results[:, own, dealt]
        owner = streams.owner(die, core)
        travelling = ("tokens", "partial")
        buffers = {name: bench.filled(die, filled[name], name, travels=name in travelling) for name in filled}
        buffers |= {name: bench.wanted(die, array, name, owners=owner) for name, array in wanted.items()}
        if self.part == "both":
            buffers["partial"] = pod.alloc(die, self._partial_bytes)
            bench.label_buffer(buffers["partial"], "partial")
        return buffers

    def _launch(
        self, pod: Pod, streams: Streams, die: int, core: int, layout: MixServeLayout, buffers: Mapping[str, Buffer],
        each: Sequence[int],
    ) -> None:  # fmt: skip
        of, shape, (node, local) = self.degrees, layout.shape, divmod(die, self.degrees.ranks)
        group, ep, dp = of.group(local), of.same_experts(local), of.same_tokens(local)
        dispatches, combines = PARTS[self.part]
        at = {name: buffer.address for name, buffer in buffers.items()}
        cluster = ClusterRank(
            of.nodes, of.ranks, node, local, of.shards, of.dp_groups, group if of.dp_groups > 1 else 0, ep.start,
            len(ep), dp.start, len(dp), len(shape.tokens_of(core)), shape.capacity, self.top_k, self.experts,
            of.experts_of(node, group) * self.experts, shape.row_bytes, shape.part_bytes, shape.room, shape.acc,
            shape.head, pod.spec.die_bytes, DTYPES[self.dtype][0], self.overlap, dispatches, combines, 0, 0,
        )  # fmt: skip
        tables = Tables(
            at["tokens"], at["totals"], at["counts"], at["rows"], at["places"], at["weights"], at["arrived"],
            at.get("partial", 0), 0 if dispatches else self._partial_bytes, at.get("out", 0),
        )  # fmt: skip
        for number, rounds in enumerate(each):
            launched = cluster._replace(rounds=rounds, done=sum(each[:number]))
            args = {"c": launched, "t": tables, "b": layout.inboxes(core)}
            pod.launch(mixserve, die, [core], args, after=streams)

    def _expect_rows(self, bench: Bench, owner: str, die: int, core: int, layout: MixServeLayout, data: Data) -> None:
        """Expect the results of the last two rounds: those before them are overwritten."""
        of, shape = data.of, layout.shape
        for r, tokens in np.ndindex(self.rounds, of.dp):
            rows = data.rows(r, tokens, *divmod(die, of.ranks), core)
            if r >= self.rounds - 2 and len(rows):
                at = layout.gathered.at(die, core) + (r % 2 * of.dp + tokens) * shape.capacity * shape.row_bytes
                what = f"rows of group {tokens} on core {core} of die {die} in round {r}"
                bench.expect(at, rows, what, owners=owner)

    # ---- sizes

    @property
    def degrees(self) -> Degrees:
        """Nodes, ranks of a node, and the degrees of parallelism."""
        return degrees(self.nodes, self.ranks, self.dp, self.ep)

    @property
    def shape(self) -> MovedSizes:
        """Return what a round moves, and with how many cores."""
        return MovedSizes(self.degrees, self.cores, self.tokens, self.top_k, self.experts, self.hidden)

    def data(self, payload: bool) -> Data:
        """Tokens, weights and choices of all rounds, drawn by the seed; without ``payload`` tokens are zeros."""
        of, shape, drawn = self.degrees, self.shape, self.part == "combine"
        batch = (self.rounds, of.dp, self.tokens)
        states = (*batch, self.hidden)
        x = numbers(states, self.dtype, self.seed) if payload else no_numbers(states, self.dtype)
        order = np.random.default_rng([self.seed, 1]).random((*batch, of.ep * self.experts)).argsort(-1)
        weights = np.float32(1) - np.random.default_rng([self.seed, 2]).random((*batch, self.top_k), np.float32)
        choices = order[..., : self.top_k]
        return Data(of, shape, self.dtype, x, choices, weights, self.seed if drawn else None, payload)

    @property
    def _partial_bytes(self) -> int:
        """Bytes of the partial sums of a core and a round."""
        return self.degrees.dp * self.shape.capacity * self.shape.row_bytes

    @property
    def app_bytes(self) -> int:
        """App data of a die, without tables of launches."""
        of, capacity = self.degrees, self.shape.capacity
        tokens = capacity // self.top_k * self.shape.row_bytes
        tables = [of.nodes * 4 * capacity, 4 * capacity, 4 * capacity, 8 * of.nodes * self.experts, 8 * of.nodes]
        rows = self._partial_bytes * (1 if self.part == "both" else self.rounds)
        each = [tokens, tokens, *tables, 8 * of.dp]
        return self.cores * (sum(align(self.rounds * nbytes) for nbytes in each) + align(rows))

    proof_rows: ClassVar = {
        "2 x 2 ranks": {},
        "2 x 2 ranks, no overlap": dict(overlap=0),
        "AG-Dispatch, 2 x 2 ranks": dict(part="dispatch"),
        "AG-Dispatch, 2 x 2 ranks, no overlap": dict(part="dispatch", overlap=0),
        "AG-Dispatch, d_DP > d_EP": dict(part="dispatch", dp=4),
        "AG-Dispatch, d_DP < d_EP": dict(part="dispatch", ep=4),
        "RS-Combine, 2 x 2 ranks": dict(part="combine"),
        "RS-Combine, 2 x 2 ranks, no overlap": dict(part="combine", overlap=0),
        "RS-Combine, d_DP > d_EP": dict(part="combine", dp=4),
        "RS-Combine, d_DP < d_EP": dict(part="combine", ep=4),
        "2 x 2 ranks, two tokens": dict(tokens=2),
        "AG-Dispatch, two tokens": dict(part="dispatch", tokens=2),
        "AG-Dispatch, two tokens, no overlap": dict(part="dispatch", tokens=2, overlap=0),
        "RS-Combine, two tokens": dict(part="combine", tokens=2),
        "RS-Combine, two tokens, no overlap": dict(part="combine", tokens=2, overlap=0),
    }
