"""Sessions with arrays of the user's own: the same bits as the naive oracles, call after call, and typed errors."""

import doctest
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import xccl_emu as xe
from xccl_emu import oracle
from xccl_emu.oracle.collectives import by_level, by_rank, by_ring
from xccl_emu.oracle.mixserve import combined, dispatched, partials, rows_for
from xccl_emu.protocols.collectives.case import numbers

from .case_support import orders, policies

SESSIONS = ("A2E", "Collectives", "ExpertParallel", "FusedExpertParallel", "KvTransfer", "MemoryPool", "MixServe",
            "SendRecv")  # fmt: skip
HIDDEN, TOKENS, TOP_K, EXPERTS = 32, 2, 2, 4
BF16 = ml_dtypes.bfloat16
Arrays = list[Any]


def pod_of(dies: int, order: str = "sc", policy: str = "round-robin", seed: int = 0, **more: Any) -> xe.Pod:
    """A pod on which each session here fits, small enough to be hashed."""
    spec = xe.small_pod(dies, 4, app_bytes=1 << 16, managed_bytes=1 << 18, meta_bytes=1 << 14, ub_bytes=1 << 15)
    return xe.Pod(spec.with_(**more), order=order, policy=policy, seed=seed)


@pytest.mark.parametrize("name", SESSIONS)
def test_five_lines_of_its_docstring_run(name: str) -> None:
    """What the reference shows of each session is what it does."""
    found = doctest.DocTestParser().get_doctest(getattr(xe, name).__doc__, {}, name, None, 0)
    assert 4 <= len(found.examples) <= 6
    assert doctest.DocTestRunner().run(found).failed == 0


# ---- a session, a call of it, and what the oracle says


@dataclass(frozen=True)
class Entry:
    """A session and a call of it."""

    make: Callable[[xe.Pod], Any]
    dies: int
    call: Callable[..., Any]
    draw: Callable[[int], dict[str, Any]]
    """The arguments, by a seed."""
    wanted: Callable[..., Any]
    """What must come out, by the oracle."""
    cpus: int = 0


def routed(seed: int, ranks: int, masked: bool = True) -> dict[str, Any]:
    """Tokens, choices and weights for each rank."""
    rng = np.random.default_rng(seed)
    order = rng.random((ranks, TOKENS, EXPERTS)).argsort(-1)[..., :TOP_K].astype(np.int32)
    if masked:
        order[0, 0, 0] = -1
    weights = rng.random((ranks, TOKENS, TOP_K), np.float32)
    return {"tokens": [*numbers((ranks, TOKENS, HIDDEN), "bf16", seed)], "topk": [*order], "weights": [*weights]}


def moe(n_ranks: int) -> Callable[..., Any]:
    """A layer by plain all-to-all, with the dummy expert."""

    def wanted(tokens: Arrays, topk: Arrays, weights: Arrays) -> Arrays:
        out = oracle.dispatch(tokens, topk, n_ranks, EXPERTS // n_ranks, quantized=True)
        return [out.combined_for(rank, weights[rank], shared=False) for rank in range(len(tokens))]

    return wanted


def layer_of_two_nodes(tokens: Arrays, topk: Arrays, weights: Arrays) -> Arrays:
    """MixServe's layer by plain collectives: two nodes of two ranks, two experts in each."""
    made = []
    for x, choices, gates in zip(tokens, topk, weights, strict=True):
        nodes = [range(2), range(2, 4)]
        outputs = []
        for experts in nodes:
            mine = rows_for(choices, experts)
            outputs.append(partials(dispatched(x, choices, experts), choices.ravel()[mine], 2))
        made.append(combined(choices, gates, [nodes], outputs))
    return made


def drawn_values(shape: tuple[int, ...]) -> Callable[[int], dict[str, Any]]:
    """Operands of collectives, for each rank."""
    return lambda seed: {"values": [*numbers(shape, "bf16", seed)]}


def sums(add: Callable[..., Any], scatter: bool = False) -> Callable[..., Arrays]:
    """Sums of the ranks' shares, for all or a share for each."""

    def wanted(values: Arrays) -> Arrays:
        shares = add(np.stack(values).reshape(len(values), len(values), -1))
        return [*shares] if scatter else [shares.reshape(-1)] * len(values)

    return wanted


def caches(seed: int) -> dict[str, Any]:
    """Requests of both pairs, of one or two blocks."""
    rng = np.random.default_rng(seed)
    sizes = [(2, 1, 2), (1,)]
    return {"caches": [[rng.integers(1, 255, (2, n, 64), np.uint8) for n in each] for each in sizes]}


def pooled(seed: int) -> dict[str, Any]:
    """Blocks of two namespaces, and what three clients want."""
    values = [*np.random.default_rng(seed).integers(1, 255, (2, 3, 32), np.uint8)]
    return {"values": values, "keys": [np.array([0, 2]), np.array([1], np.int32), np.array([2])]}


def blocks_of(values: Arrays, keys: Arrays) -> Arrays:
    """What clients get."""
    return [values[client % 2][np.asarray(some)] for client, some in enumerate(keys)]


def collective(method: str, by: str, shape: tuple[int, ...], wanted: Callable[..., Any]) -> Entry:
    """A collective of four ranks, in groups of two, on two cores."""
    return Entry(
        lambda pod: xe.Collectives(pod, ranks=4, cores=2, slot=16, group=2), 4,
        lambda group, values: getattr(group, method)(values, by), drawn_values(shape), wanted,
    )  # fmt: skip


def gathered(values: Arrays) -> Arrays:
    return [np.stack(values)] * len(values)


def exchanged(values: Arrays) -> Arrays:
    return [*np.stack(values).swapaxes(0, 1)]


EP = {"n_ranks": 2, "local_experts": 2, "hidden": HIDDEN, "top_k": TOP_K, "tokens_max": TOKENS}
A2E = {"n_domains": 1, "n_attention": 2, "n_experts": 2, "local_experts": 2, "hidden": HIDDEN, "top_k": TOP_K,
       "tokens_max": TOKENS}  # fmt: skip
KV = {"decode": 2, "layers": 2, "blocks": 2, "pool": 2, "slots": 4, "granules": 2}
POOL = {"clients": 3, "spaces": 2, "buckets": 1, "puts": 3}


def entries() -> dict[str, Entry]:
    """Each session, and each way that it has."""

    def layer(session: Any, **given: Any) -> Any:
        return session.layer(**given)

    def two(seed: int) -> dict[str, Any]:
        return routed(seed, 2)

    mixserve = {"nodes": 2, "ranks": 2, "tokens": TOKENS, "hidden": HIDDEN, "experts": 2, "top_k": TOP_K}
    made = {
        "A2E": Entry(lambda pod: xe.A2E(pod, **A2E), 4, layer, two, moe(2)),
        "ExpertParallel": Entry(lambda pod: xe.ExpertParallel(pod, **EP), 2, layer, two, moe(2)),
        "FusedExpertParallel": Entry(lambda pod: xe.FusedExpertParallel(pod, **EP), 2, layer, two, moe(2)),
        "MixServe": Entry(lambda pod: xe.MixServe(pod, **mixserve), 4, layer, two, layer_of_two_nodes),
        "MixServe, two cores": Entry(
            lambda pod: xe.MixServe(pod, cores=2, overlap=0, **mixserve), 4, layer, two, layer_of_two_nodes
        ),
    }
    for path in ("mtu", "dma", "push", "sendrecv"):
        made[f"KvTransfer, {path}"] = Entry(
            lambda pod, path=path: xe.KvTransfer(pod, path=path, **KV), 3, lambda kv, caches: kv.transfer(caches),
            caches, lambda caches: caches,
        )  # fmt: skip
    for more in ({}, {"unpinned": 1}, {"cpu": 1}):
        made[f"MemoryPool {more}"] = Entry(
            lambda pod, more=more: xe.MemoryPool(pod, **POOL, **more), 5,
            lambda pool, values, keys: pool.put_and_get(values, keys), pooled, blocks_of, more.get("cpu", 0),
        )  # fmt: skip
    n, reductions = 4 * 24, {"two-shot": by_rank, "one-shot": by_rank, "ring": by_ring,
                             "two-level": lambda values: by_level(values, 2)}  # fmt: skip
    for by, add in reductions.items():
        made[f"all_reduce {by}"] = collective("all_reduce", by, (4, n), sums(add))
    for by, add in {"": by_rank, "by-reads": by_rank, "ring": by_ring, "two-level": reductions["two-level"]}.items():
        made[f"reduce_scatter {by}"] = collective("reduce_scatter", by, (4, n), sums(add, scatter=True))
    for by in ("", "ring", "by-cores", "two-level", "by-reads", "barrier", "barrier-sense"):
        made[f"all_gather {by}"] = collective("all_gather", by, (4, 40), gathered)
    for by in ("", "ring"):
        made[f"all_to_all {by}"] = collective("all_to_all", by, (4, 4, 24), exchanged)
    return made


ENTRIES = entries()


def flat(results: Any) -> Arrays:
    """Arrays in lists of lists, one after the other."""
    return [part for each in results for part in flat(each)] if isinstance(results, list) else [results]


def same(got: Any, wanted: Any) -> bool:
    """Compare shapes and bits."""
    pairs = list(zip(flat(got), flat(wanted), strict=True))
    return all(a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes() for a, b in pairs)


def made_on(entry: Entry, order: str = "sc", policy: str = "round-robin", seed: int = 0) -> Any:
    """The session on a pod of its own."""
    more = {"nodes": 1, "chips_per_node": entry.dies, "dies_per_chip": 1, "cpus_per_node": 1} if entry.cpus else {}
    return entry.make(pod_of(entry.dies, order, policy, seed, **more))


@pytest.mark.parametrize("name", ENTRIES)
def test_call_after_call_has_the_bits_of_the_oracle(name: str) -> None:
    """Three calls with changed inputs, in the weakest order and drawn schedules."""
    entry = ENTRIES[name]
    session = made_on(entry, "relaxed", "random", 3)
    for seed in range(3):
        given = entry.draw(seed)
        assert same(entry.call(session, **given), entry.wanted(**given))


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(sorted(ENTRIES)), orders, policies, st.lists(st.integers(0, 99), min_size=1, max_size=3))
def test_any_order_and_schedule_gives_these_bits(name: str, order: str, policy: str, seeds: Sequence[int]) -> None:
    """Whatever is called how often, arrays of the caller stay as they are, and app data is given back."""
    entry = ENTRIES[name]
    session = made_on(entry, order, policy, seeds[0])
    used = session.pod.mark_app()
    for seed in seeds:
        given, again = entry.draw(seed), entry.draw(seed)
        assert same(entry.call(session, **given), entry.wanted(**again))
        assert same([*given.values()], [*again.values()])
    assert session.pod.mark_app() == used


def strided(array: Any) -> Any:
    """The same values, with others between them."""
    return np.repeat(array, 2, axis=array.ndim - 1)[..., ::2]


def each_of(given: Any, change: Callable[[Any], Any]) -> Any:
    """The lists, with all arrays changed."""
    return [each_of(each, change) for each in given] if isinstance(given, list) else change(given)


@pytest.mark.parametrize("name", ENTRIES)
def test_arrays_with_gaps_are_taken(name: str) -> None:
    """Rows of a larger array, or each second element, give the bits that a copy of them gives."""
    entry = ENTRIES[name]
    given = entry.draw(5)
    with_gaps = {what: each_of(arrays, strided) for what, arrays in given.items()}
    assert same(entry.call(made_on(entry), **with_gaps), entry.wanted(**given))


@pytest.mark.parametrize("name", [name for name in ENTRIES if "weights" in ENTRIES[name].draw(0)])
def test_a_weight_that_is_no_number_makes_none(name: str) -> None:
    """A token whose weight is NaN has NaN where the oracle has it, and no other token has."""
    entry = ENTRIES[name]
    given = entry.draw(6)
    given["weights"][1][0, 0] = np.nan
    for got, wanted in zip(entry.call(made_on(entry), **given), entry.wanted(**given), strict=True):
        values, right = got.astype(np.float32), wanted.astype(np.float32)
        np.testing.assert_array_equal(values, right)
        assert not np.isnan(right).all()


# ---- what is refused


def at(index: Any, value: Any) -> Callable[[Any], Any]:
    """Put a value into a copy of an array."""

    def change(array: Any) -> Any:
        changed = array.copy()
        changed[index] = value
        return changed

    return change


ANY: dict[str, Callable[[Any], Any]] = {
    "none": lambda array: None,
    "a ragged list": lambda array: [[1, 2], [3]],
    "one dimension less": lambda array: array[0],
    "one more": lambda array: array[None],
    "a column more": lambda array: np.concatenate([array, array[..., :1]], axis=-1),
    "another type": lambda array: array.astype(np.float64),
    "text": lambda array: array.astype(np.float64).astype(str),
    "objects": lambda array: array.astype(object),
    "complex numbers": lambda array: array.astype(np.complex64),
}
"""What no array may be, whatever it is for."""
OF: dict[str, dict[str, Callable[[Any], Any]]] = {
    "tokens": {"too many": lambda x: np.concatenate([x, x])},
    "topk": {
        "an expert that there is not": at((1, 1), EXPERTS), "a number far out": at((1, 0), 1 << 30),
        "a negative expert": at((0, 1), -2), "an expert twice": at(1, 3),
        "NaN as experts": lambda topk: np.full(topk.shape, np.nan, np.float32),
        "a table of truth values": lambda topk: topk > 0,
    },
    "weights": {"a token less": lambda weights: weights[:1]},
    "caches": {"no blocks": lambda cache: cache[:, :0], "a layer less": lambda cache: cache[:1],
               "too many blocks": lambda cache: np.concatenate([cache] * 3, axis=1)},
    "values": {},
    "keys": {"a key that was not put": at(0, 3), "a negative key": at(0, -1),
             "NaN as keys": lambda keys: np.full(keys.shape, np.nan)},
}  # fmt: skip
"""And what those may not be that are for this."""


def changed(given: Any, path: Sequence[int], change: Callable[[Any], Any]) -> Any:
    """The lists, with one array changed."""
    if not path:
        return change(given)
    first = path[0] % len(given)
    return [changed(each, path[1:], change) if i == first else each for i, each in enumerate(given)]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_what_no_array_may_be_is_refused_before_memory_changes(data: st.DataObject) -> None:
    """Shapes, types, ranks, NaN as routing, experts that there are not; and then a right call is right."""
    name = data.draw(st.sampled_from(sorted(ENTRIES)))
    entry, seed = ENTRIES[name], data.draw(st.integers(0, 9))
    given = entry.draw(seed)
    what = data.draw(st.sampled_from(sorted(given)))
    depth = 2 if what == "caches" else 1
    how = data.draw(st.sampled_from(["ranks less", "ranks more", "no list", *ANY, *OF[what]]))
    assume((what, how) != ("keys", "a column more"))  # a client may ask for any number
    wrong = given[what]
    if how in ("ranks less", "ranks more"):
        wrong = wrong[:-1] if how == "ranks less" else [*wrong, wrong[0]]
    elif how == "no list":
        wrong = 7
    else:
        path = data.draw(st.lists(st.integers(0, 3), min_size=depth, max_size=depth))
        wrong = changed(wrong, path, (ANY | OF[what])[how])
    session = made_on(entry)
    before, used = session.pod.digest(), session.pod.mark_app()
    with pytest.raises(xe.ConfigError):
        entry.call(session, **{**given, what: wrong})
    assert session.pod.digest() == before
    assert session.pod.mark_app() == used
    assert same(entry.call(session, **given), entry.wanted(**entry.draw(seed)))


@pytest.mark.parametrize(
    ("operation", "by", "says"),
    [
        ("all_reduce", "tree", "by='tree': must be one of 'ring', 'one-shot', 'two-shot'"),
        ("all_reduce", "two-level", "'two-shot'; two-level needs a session with group"),
        ("all_gather", "barriers", "'by-cores', 'barrier', 'barrier-sense'"),
        ("all_to_all", "barrier", "by='barrier': must be one of 'ring', ''"),
    ],
)
def test_an_algorithm_that_an_operation_has_not_is_refused(operation: str, by: str, says: str) -> None:
    """The error names the algorithms of this operation, and what another one needs."""
    group = xe.Collectives(xe.Pod(xe.small_pod(2)), ranks=2)
    with pytest.raises(xe.ConfigError, match=re.escape(says)):
        getattr(group, operation)([np.ones(4, np.float16)] * 2, by)


@pytest.mark.parametrize(
    ("shape", "says"),
    [((4, 1), "values of rank 0: [4, 1] float16, must be [any] float16"), ((0,), "values: [0], must be whole shares")],
)
def test_a_collective_names_the_shape_that_it_asks_for(shape: tuple[int, ...], says: str) -> None:
    """Any number of elements will do, in one dimension; none will not."""
    group = xe.Collectives(xe.Pod(xe.small_pod(2)), ranks=2, dtype="fp16")
    with pytest.raises(xe.ConfigError, match=re.escape(says)):
        group.all_reduce([np.ones(shape, np.float16)] * 2)


@pytest.mark.parametrize(
    ("session", "missing"),
    [(xe.A2E, "n_domains, n_attention, n_experts"), (xe.FusedExpertParallel, "n_ranks")],
)
def test_sizes_that_must_be_given_are_named(session: Any, missing: str) -> None:
    """A session without sizes says which of them it needs."""
    with pytest.raises(xe.ConfigError, match=f"^{missing}: must be given"):
        session(xe.Pod(xe.small_pod(2)))
