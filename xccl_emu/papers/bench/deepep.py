"""DeepEP's low-latency protocol: on the dies of the pod, and on the machine that it was written for.

On the pod it runs the layer of Table 7, with routing, arrivals and cores of `bench fused`, the shared expert's message,
the ninth, too.  With it is what the paper has of FusedDispatch and FusedCombine on these dies, and of DeepEP on
the H800.  Nothing was published of DeepEP on this pod, so no row is scored.

On another fabric it runs DeepEP's own test: eight messages a token, FP8 with a scale per 128 elements in dispatch,
uniform routing.  On the fabric called H800 DeepEP's own table is shown too, which nothing was fitted to.  A barrier
puts all ranks together before dispatch.  Nothing does before combine: they enter it as dispatch left them, and apart
by the one spread of ranks at an operator (`Costs.skew_us`), which was fitted to Table 7's dispatch.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from xccl_emu import routing
from xccl_emu.base.options import one_of
from xccl_emu.lang import FP8_BLOCK
from xccl_emu.papers.bench import baseline, published
from xccl_emu.papers.bench.fused import MESSAGE_BYTES, TOKENS, degree_of, table
from xccl_emu.papers.bench.layers import HIDDEN, Layer, OnPod, Timed
from xccl_emu.papers.bench.published import Published
from xccl_emu.papers.bench.result import Result, Wire
from xccl_emu.papers.bench.setting import Setting
from xccl_emu.protocols.deepep.normal import NormalConfig, NormalMode
from xccl_emu.timing.arrival import Microseconds, Taken, arrivals, on_cores

BF16, FP8_IN = "bf16", "fp8-in"
DTYPES: Mapping[str, Mapping[str, Any]] = {
    "fp8": {"quantizer": "fp8"}, BF16: {"quantized": False},
    FP8_IN: {"quantized": False, "opaque_bytes": HIDDEN + 4 * HIDDEN // FP8_BLOCK},
}  # fmt: skip
"""What dispatch sends: FP8 that is made of BF16 on the way; BF16; FP8 and its scales, that come in so."""
SMS = 128
"""Cores of a GPU that the library uses: an expert for each two warps' groups, where 132 are there (internode_ll.cu)."""
NORMAL_CORES, PLACES, CHUNK = 24, 256, 32
"""Normal mode has: cores of a die, rows of a ring, and rows that are announced at once; the library's sizes differ from
machine to machine."""


@dataclass(frozen=True)
class Own:
    """DeepEP's own test, or the same in another way."""

    cores: int = SMS
    dtype: str = "fp8"
    once: bool = False
    """Does a token go once to each rank, and not once to each of its experts?"""
    normal: bool = False
    """In normal mode, where it goes so through channels, and ranks add rows?"""

    def __post_init__(self) -> None:
        one_of("dtype", self.dtype, DTYPES)

    @property
    def words(self) -> str:
        """Return what is other than in the test; nothing if nothing is."""
        cores = f"{self.cores} cores" * (self.cores != SMS and not self.normal)
        dtype = {"fp8": "", BF16: "BF16", FP8_IN: "FP8 comes in"}[self.dtype]
        once = "once to a rank" * self.once
        return ", ".join(filter(None, (cores, dtype, once, "normal mode" * self.normal)))


OTHERS = (Own(cores=48), Own(dtype=BF16), Own(dtype=FP8_IN), Own(once=True), Own(normal=True))
"""Other ways, each run at the least EP degree."""


def deepep(setting: Setting, own: Own = Own()) -> Iterator[Result]:
    """Latencies of both operators at each EP degree of the table; in another way than usual of the test alone."""
    if own == Own():
        return on_pod(setting) if setting.fabric.name == Published.machine else elsewhere(setting)
    return setting.each(dict.fromkeys(map(degree_of, published.rows("deepep_h800"))), partial(_rows, setting, own))


def on_pod(setting: Setting) -> Iterator[Result]:
    """The layer of Table 7, with nothing to be scored."""
    h800 = {row.what: row.value for row in published.rows("fused_h800")}
    for row, shape, us, wrong in table(setting, "deepep-ll"):
        others = {"fused, published": row.value, "H800": h800[row.what]}
        yield Result("deepep", row.what, us, "us", kind=row.kind, configuration=shape, wrong=wrong, extra=others)


def elsewhere(setting: Setting) -> Iterator[Result]:
    """DeepEP's own test on another fabric, and other ways of it."""
    degrees = dict.fromkeys(map(degree_of, published.rows("deepep_h800")))
    yield from setting.each(degrees, partial(_rows, setting, Own()))
    for own in OTHERS:
        yield from setting.each([min(degrees)], partial(_rows, setting, own))


def _rows(setting: Setting, own: Own, ranks: int) -> Iterator[Result]:
    """Both operators at an EP degree."""
    layer = Layer(ranks, TOKENS, cores=NORMAL_CORES if own.normal else own.cores)
    timed = time_normal(setting, layer) if own.normal else time_test(setting, layer, own)
    shape = layer.shape | setting.fabric_words | ({"way": own.words} if own.words else {})
    for operator, taken, wrong in timed.operators:
        row, us = published.row("deepep_h800", f"{operator} EP{ranks} latency"), setting.operator_us(taken)
        if own.words:
            what = f"{row.what}, {own.words}"
            yield Result("deepep", what, us, "us", kind=row.kind, wrong=wrong, configuration=shape)
        else:
            spread = baseline.spread_us(setting.fabric, ranks, layer.tokens * layer.top_k * MESSAGE_BYTES[operator])
            wire = Wire(operator, spread)
            yield Result.of(row, us, bench="deepep", wrong=wrong, configuration=shape, wire=wire)


def drawn(setting: Setting, layer: Layer, once: bool = False) -> routing.Routing:
    """Uniform choices; of several on a rank none but the first, if a token goes there ``once``."""
    rng = np.random.default_rng((setting.seed, 1))
    found = routing.draw_routing(np.ones(layer.experts), layer.ranks, layer.tokens, layer.top_k, rng, layer.loads)
    if not once:
        return found
    ranks = np.asarray(found.topk) // (layer.experts // layer.ranks)
    again = np.tril(ranks[..., :, None] == ranks[..., None, :], -1).any(-1)
    return replace(found, topk=tuple(np.where(again, -1, found.topk).astype(np.int32)))


def time_test(setting: Setting, layer: Layer, own: Own = Own()) -> Timed:
    """A layer without a shared expert: dispatch of ranks that begin together, and combine, which they enter apart."""
    if own.dtype == FP8_IN:
        setting = replace(setting, data=False)  # the dummy expert takes no FP8
    found = drawn(setting, layer, own.once)
    on = OnPod(
        setting, layer, layer.experts // layer.ranks, "deepep-ll",
        top_k=layer.top_k, shared=False, **DTYPES[own.dtype],
    )  # fmt: skip
    dispatch = on.dispatch(found.topk, np.zeros(layer.ranks))
    combine = on.combine(found.weights, after(setting, dispatch))
    return Timed(dispatch, combine, *on.count_wrong(found.topk, found.weights))


def after(setting: Setting, dispatch: Taken) -> Microseconds:
    """Return when ranks enter combine: as dispatch left them, and apart as where no barrier is before an operator."""
    starts = dispatch.ends_us + arrivals(len(dispatch.ends_us), setting.costs.skew_us, (setting.seed, 3, 1))
    return np.asarray(starts - starts.min())


def time_normal(setting: Setting, layer: Layer) -> Timed:
    """The same batch in normal mode, each operator by itself, without payload."""
    found, bare = drawn(setting, layer), replace(setting, data=False)
    bare = bare.fitting(f"{layer.ranks} ranks, normal mode", layer.bytes_needed)
    pod, policy = bare.pod()
    group = NormalMode(pod, NormalConfig(
        n_ranks=layer.ranks, local_experts=layer.experts // layer.ranks, top_k=layer.top_k, hidden=layer.hidden,
        tokens_max=layer.tokens, cores=layer.cores, places=PLACES, chunk=CHUNK,
    ))  # fmt: skip
    starts = np.zeros(layer.ranks)
    tokens = [*bare.tokens(layer.ranks, layer.tokens, layer.hidden)]
    with bare.stage(f"{layer.ranks} ranks, normal dispatch") as progress:
        group.dispatch_rows(tokens, found.topk, found.weights, progress)
    dispatch = Taken.of(policy.timing, starts)
    left = after(setting, dispatch)
    policy.start_us = on_cores(left, range(layer.cores), pod.spec.cores_per_die)
    with bare.stage(f"{layer.ranks} ranks, normal combine") as progress:
        group.combine_rows(progress=progress)
    return Timed(dispatch, Taken.of(policy.timing, left), None, None)
