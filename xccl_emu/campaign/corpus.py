"""What random programs begin with: protocols in miniature, and patterns that have fooled a search, as text."""

from collections.abc import Callable
from random import Random

CORPUS: tuple[tuple[int, tuple[str, ...]], ...] = (
    (1, ("store 1.0 5; quiet; store 1.1 1", "ge 1.1 1; load 1.0")),
    (1, ("store 1.0 5; quiet; store 1.4 1", "ge 1.4 1; load 1.0")),
    (1, ("store 1.0 5; quiet; put 1.4 1", "ge 1.4 1; load 1.0; put 0.4 1")),
    (1, ("store 1.0 5; quiet; store 1.4 1; ge 0.4 1; store 1.0 6", "ge 1.4 1; load 1.0; store 0.4 1")),
    (1, ("store 1.0 5; quiet; store 1.4 1; ge 0.4 1; store 1.0 6; quiet; store 1.4 2",
         "ge 1.4 1; load 1.0; store 0.4 1; ge 1.4 2; load 1.0")),
    (1, ("ub_store 3 0; out 1.0 0 0; quiet; put 1.4 1",
         "ge 1.4 1; in 1.0 0 0; set 1 0 1; wait 1 0 1; ub_load 0 0")),
    (1, ("ub_store 3 0; out 1.0 0 2; quiet; put 1.4 1; ge 0.4 1; ub_store 4 0; out 1.0 0 2; quiet; put 1.4 2",
         "ge 1.4 1; in 1.0 0 2; set 1 0 1; wait 1 0 1; put 0.4 1; ub_load 0 0; ge 1.4 2; in 1.0 0 2; quiet")),
    (1, ("ub_store 3 0; out 1.0 0 4; quiet; put 0.4 1", "ge 0.4 1; in 1.0 0 4; quiet; ub_load 0 0")),
    (1, ("store 1.0 5; quiet; store 1.4 1; eq 1.4 0; store 1.0 6; quiet; store 1.4 1",
         "eq 1.4 1; load 1.0; store 1.4 0")),
    (1, ("store 1.0 5; quiet; store 1.4 1; eq 1.4 0", "ne 1.4 0; load 1.0; store 1.4 0")),
    (1, ("store 1.4 1; store 1.5 2", "ge 1.5 2; load_named 1.4")),
    (1, ("store 1.0 5; quiet; add 2.0 1", "store 0.0 5; quiet; add 2.0 1", "ge 2.0 2; load 1.0; load 0.0")),
    (1, ("atomic_taken 1.0 1; skip_unless 0 0 1; store 1.4 1", "atomic_taken 1.0 1; skip_unless 0 0 1; store 1.4 2")),
    (1, ("store 0.0 1; quiet; store 1.0 1", "ge 1.0 1; store 2.0 1", "ge 2.0 1; load 0.0")),
    (1, ("store 0.0 1; quiet; store 1.0 1", "ge 1.0 1; store 1.4 3; quiet; store 2.0 1",
         "ge 2.0 1; load 0.0; load 1.4")),
    (2, ("store 0.0 5; quiet; arrive; await", "arrive; await; load 0.0")),
    (2, ("store 0.0 5; quiet; arrive; await; store 1.0 1", "store 0.4 3; quiet; arrive; await",
         "ge 1.0 1; load 0.0; load 0.4")),
    (1, ("dma 0.0 1.0 1; wait 4 0 1; store 1.4 1", "ge 1.4 1; load 1.0; load 1.1")),
    (1, ("dma 0.0 1.0 4; dma 0.2 1.2 1; wait 4 0 4; wait 4 0 1; put 1.4 1",
         "ge 1.4 1; in 1.0 0 3; quiet; ub_load 0 0")),
    (1, ("ub_store 3 0; ub_store 1 3; out 1.0 0 2", "ge 1.3 1; load 1.0")),
    (1, ("ub_store 3 0; ub_store 1 7; out 1.0 0 4", "spin 1.7 1; in 1.0 0 4; quiet; ub_load 0 0; ub_load 0 1")),
    (1, ("ub_store 3 0; out 1.0 0 0; ge 1.0 1; store 1.4 1", "ge 1.4 1; load 1.0")),
    (1, ("put 1.0 1; ge 1.0 1; put 0.0 1; ne 0.0 0; load 1.0", "ne 0.0 0; load 1.0")),
    (1, ("in 1.0 0 2; set 1 3 1; wait 1 3 1; out 0.0 0 2; quiet; add 1.4 1", "ge 1.4 1; load 0.0; load 1.0")),
    (1, ("in 1.0 0 2; set 1 2 1; wait 1 2 1; v_copy 0 4 2; set 2 3 0; wait 2 3 0; out 0.0 4 2; quiet; add 1.4 1",
         "ge 1.4 1; load 0.0; load 1.0")),
    (1, ("store 1.0 1; store 1.0 2", "load_named 1.0; load_named 1.0; load_named 1.0")),
    (1, ("put 1.0 1 1; put 1.0 2 2", "ge_taken 1.0 1; load 1.1")),
    (1, ("put 1.0 1 1", "ge 1.0 1; load 1.1; store 0.0 1; ge 0.0 1")),
    (2, ("add 1.0 1; quiet; add 1.4 1", "add 1.0 1; quiet; add 1.4 1; ge 1.4 2; load 1.0")),
    (1, ("atomic 1.0 3; add 1.4 1", "atomic 1.0 1; add 1.4 1; ge 1.4 2; load 1.0")),
    (1, ("store 1.0 2; quiet; store 1.1 1", "ge_taken 1.1 1; load_at 1.0")),
    (1, ("store 1.0 5; quiet; store 1.4 1", "ne_taken 1.4 0; fail_unless 3 1; load 1.0; fail_unless 4 5")),
    (1, ("ub_store 3 0; out 0.0 0 0; quiet; in 0.0 1 0; set 1 0 1; wait 1 0 1; ub_load 0 1; store 1.0 1", "ge 1.0 1")),
    (1, ("ub_store 3 0; out 1.4 0 5; out 1.4 0 13; ge 1.4 3; quiet; store 1.0 1", "ge 1.0 1; load 1.4")),
    (1, ("add 1.0 1; add 1.0 1", "ge 1.0 1; add 1.1 1; ge 1.0 2", "ge 1.1 1; load_named 1.0")),
    (1, ("ge 0.4 1; add 1.0 1; load 1.0", "add 1.0 1; quiet; store 0.4 1", "ge 1.0 2")),
    (1, ("dma 0.0 1.4 0; load 1.0; wait 4 0 0", "ge 1.4 1; store 1.0 6")),
    (1, ("atomic 0.4 1; put 1.0 1; put 1.4 2; in 1.0 0 4; quiet; ub_load 0 4; load 1.0",
         "ne_taken 1.0 0; ne_taken 1.4 0")),
    (1, ("ub_store 1 0; out 1.0 0 0; put 1.4 1; ge 0.4 1; ub_store 2 0; quiet", "ge 1.4 1; put 0.4 1")),
)  # fmt: skip
"""Cores a die and programs; word w of die d is ``d.w``."""

Texts = tuple[int, tuple[str, ...]]


def _hint(rng: Random) -> tuple[str, str]:
    """A racing counter: what makes a branch rare, with ``{}`` for the instructions of the rare branch; who counts."""
    n = rng.choice((1, 1, 2, 3))
    looks = "; ".join(f"load_named 1.7; skip_unless 0 {2 * k + 1} {{skip{k}}}" for k in range(n))
    counts = "; quiet; ".join(f"store{rng.choice(('', '_named'))} 1.7 {k + 1}" for k in range(2 * n))
    return looks, counts if rng.random() < 0.7 else counts.replace("quiet; ", "")


def _branch(looks: str, rare: str, often: str) -> str:
    """Instructions of a branch that is taken when all looks met what they hope for, else others."""
    n, size = looks.count("load_named"), rare.count(";") + 1
    for k in range(n):
        looks = looks.replace(f"{{skip{k}}}", str(2 * (n - 1 - k) + size))
    return f"{looks}; {rare}; skip_if 0 {2 * n - 1} {often.count(';') + 1}; {often}"


def _two_pipes(rng: Random) -> Texts:
    """A flag written by mtu-out, and then by the scalar unit, but in a branch."""
    looks, counts = _hint(rng)
    rare, often = rng.choice((("store 1.0 2", "put 1.0 2"), ("add 1.0 1", "put 1.0 2"), ("put 1.0 2", "store 1.0 2")))
    first = rng.choice(("put 1.0 1", "put_named 1.0 1", "store 1.0 1", "add 1.0 1"))
    return 1, (f"{first}; {_branch(looks, rare, often)}", "ge_taken 1.0 2", counts)


def _second_word(rng: Random) -> Texts:
    """A field of several words: one that falls is polled in a branch."""
    looks, counts = _hint(rng)
    polls = _branch(looks, rng.choice(("ge 1.1 5", "eq 1.1 5", "ge 1.1 1")), "ge 1.0 3")
    writer = "ub_store 3 0; put 1.0 1 5; put 1.0 2 3; out m1.0 0 0; quiet; put 1.0 3 7"
    return 1, (writer, f"{polls}; in m1.0 0 0; quiet; ub_load 0 0", counts)


def _two_granules(rng: Random) -> Texts:
    """An mtu-out over several granules, and a store to one of them."""
    out = rng.choice(("out 1.3 0 1", "out 1.0 0 4", "out 1.2 0 3", "out 1.0 0 3"))
    fill = "ub_store 1 0; ub_store 3 1; ub_store 3 4"
    flag = rng.choice((3, 4, 5, 0))
    return 1, (f"{fill}; {out}; store 1.{flag} 7", f"ge 1.{flag} 7")


def _late_expected(rng: Random) -> Texts:
    """Bytes that are written late and rarely, or never, on a die that nothing runs on; and a part that runs apart."""
    looks, counts = _hint(rng)
    rare = f"store {rng.choice(('m2.0', '2.4', 'm2.4', 'm0.0'))} 5"
    text = _branch(looks, rare, "quiet")
    return rng.choice(((2, (text, counts, "store 1.0 1")), (1, (text, counts)), (1, ("store 0.0 1", "store 1.4 1"))))


def _polled_transfer(rng: Random) -> Texts:
    """A poll of what DMA writes, or mtu-out in part of a granule."""
    write = rng.choice(("ub_store 1 0; out 1.4 0 0", "ub_store 1 0; ub_store 1 1; out 1.4 0 1", "dma 0.0 1.4 0",
                        "dma 0.0 1.4 2", "ub_store 1 0; out 1.4 0 5; out 1.4 0 13"))  # fmt: skip
    first = "" if write.startswith("ub") else "store 0.0 1; quiet; "
    return 1, (f"{first}store 1.0 5; quiet; {write}; quiet", "ge 1.4 1; load 1.0")


def _read_back(rng: Random) -> Texts:
    """A core that reads what it has in flight, or its own flag."""
    write = rng.choice(("put 1.0 1; set 3 0 1; wait 3 0 1", "store 1.0 1", "ub_store 1 0; out 1.0 0 0; quiet"))
    read = rng.choice(("load 1.0", "load_named 1.0", "in 1.0 2 0; quiet; ub_load 0 2", "load4 1.0", "dma 1.0 0.0 0; "
                       "wait 4 0 0; load 0.0"))  # fmt: skip
    reader = rng.choice(("ge 1.4 1; load 1.0", "ge 1.0 1", "ge 1.4 1; in 1.0 0 2; quiet; ub_load 0 0"))
    return 1, (f"{write}; {read}; quiet; put 1.4 1", reader)


def _unwritten(rng: Random) -> Texts:
    """A data buffer, or managed memory, that nobody has written."""
    through = "in m0.0 0 0; set 1 3 0; wait 1 3 0; out m1.0 0 0"
    first = rng.choice(("out m1.0 0 0", "ub_store 1 0; out m1.0 0 1", through))
    return 1, (f"{first}; quiet; store 1.4 1", "ge 1.4 1; load m1.0")


def _retried(rng: Random) -> Texts:
    """A reader that waits for a word to be even, or for a value that may pass by."""
    values = rng.sample((1, 2, 3, 4), rng.randrange(1, 4))
    stores = rng.choice(("; ", "; quiet; ")).join(f"store 1.0 {value}" for value in values)
    spin, last = rng.choice(("spin", "spin_plain")), values[-1]
    return 1, (stores, f"{spin} 1.0 {rng.choice((last, last, values[0], 5))}; load_named 1.0")


def _field(rng: Random) -> Texts:
    """Puts and stores into the words of one field, some of them polled."""
    writes = [f"{rng.choice(('put', 'put', 'put_named'))} 1.0 {k} {rng.randrange(6)}" for k in (1, 2, 3)]
    other = rng.choice(("store 1.1 7", "add 1.0 1", "quiet", "put_one 1.2 4 1", "store4 1.1 3 8"))
    writes.insert(rng.randrange(4), other)
    polls = "; ".join(f"{rng.choice(('ge', 'ge', 'ne', 'eq'))} 1.{rng.choice((0, 0, 1, 2))} {k}" for k in (1, 2))
    return 1, ("; ".join(writes), f"{polls}; load 1.{rng.randrange(4)}")


def _told_by_field(rng: Random) -> Texts:
    """Rounds of a field that is polled, read and acknowledged, with a third core that may read it too."""
    writer, reader, third = [], [], []
    back = rng.choice(("put 0.4 {}", "store 0.4 {}", "add 0.4 1"))
    for k in range(1, rng.choice((2, 3, 3, 4))):
        writer += [f"{rng.choice(('ge', 'eq'))} 0.4 {k - 1}"] if k > 1 and rng.random() < 0.8 else []
        writer += rng.choice(([], [], ["ub_store 3 0", "out m1.0 0 2", rng.choice(("quiet", "fence"))]))
        puts = ("put 1.0 {0}", "put 1.0 {0} 2", "put_named 1.0 {0} {0}", "put 1.4 {0}; put 1.0 {0}")
        writer += [rng.choice(puts).format(k)]
        pulled = rng.choice(("in 1.0 0 2; quiet", "in 1.0 0 4; set 1 0 1; wait 1 0 1", "in m1.0 0 2; quiet"))
        read = rng.choice(("load 1.1", "quiet", pulled))
        steps = [f"{rng.choice(('eq', 'eq', 'ge'))} 1.0 {k}", read, back.format(k)]
        if rng.random() < 0.2:
            n = rng.randrange(2)
            steps[n], steps[n + 1] = steps[n + 1], steps[n]
        reader += steps
        third += [rng.choice(("eq 1.0 {}", "ge 0.4 {}", "eq 1.4 {}")).format(k), rng.choice(("load 1.1", "load 1.5"))]
    if rng.random() < 0.3:  # what is told of is read when all is done
        writer += ["quiet", "put 0.0 9"]
        reader = [step for step in reader if step[:2] in ("eq", "ge")] + ["ge 0.0 9", "load 1.1"]
    texts = tuple("; ".join(steps) for steps in (writer, reader, third))
    return rng.choice((1, 2)), texts if rng.random() < 0.25 else texts[:2]


PATTERNS: tuple[Callable[[Random], Texts], ...] = (
    _two_pipes, _second_word, _two_granules, _late_expected, _polled_transfer, _read_back, _unwritten, _retried, _field,
    _told_by_field,
)  # fmt: skip
"""Each draws cores a die and programs."""
