"""What random programs begin with: protocols in miniature, and patterns that have fooled a search, as text."""

from collections.abc import Callable
from random import Random

MINIATURES: tuple[tuple[int, tuple[str, ...]], ...] = (
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
    (2, ("load 0.0; arrive; await", "arrive; await; store 0.0 5")),
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
    (1, ("outs m0.4 0 1; quiet; put 0.4 1", "ge 0.4 1; in e.0 0 2; in m0.4 4 2; quiet; ub_load 0 0")),
    (1, ("store e.0 5; store m0.7 3; quiet; store 1.4 1", "ge 1.4 1; load e.0; load m0.7")),
    (1, ("store c.0 5; quiet; store 1.4 1", "ge 1.4 1; load c.0")),
    (1, ("ub_store 3 0; out c.0 0 2; quiet; add 1.4 1", "ge 1.4 1; in c.0 0 2; quiet; ub_load 0 0; store c.0 1")),
    (1, ("dmas 0.0 1.0 5; quiet; add 0.4 1", "ge 0.4 1; load 1.0; load 1.3")),
    (1, ("store 1.4 1; quiet; store 1.5 1", "any 1.4 1.5 5; fail_unless 3 0")),
    (1, ("store 1.0 5; quiet; store 1.5 1", "any 1.4 1.5 5; fail_unless 3 1; load 1.0")),
    (1, ("ub_store 5 0; out m1.0 0 2; set 3 0 1; wait 3 0 1; dma_data 0.0 8 2; wait 4 0 2; quiet; put 1.4 1",
         "ge 1.4 1; load m1.0")),
    (1, ("ub_store 3 0; signal 1.4 0 0; signal 1.5 5 0", "ge 1.4 1; in m1.5 0 0; quiet; ub_load 0 0")),
    (1, ("ub_store 3 0; out m1.0 0 2; set 3 0 1; store 1.4 1; wait 3 0 1; dcci 1.4",
         "ge 1.4 1; in m1.0 0 2; quiet; ub_load 0 0")),
    (1, ("ub_store 3 0; out m1.0 0 2; store 1.4 1; fence; dcci 1.4", "ge 1.4 1; in m1.0 0 2; quiet; ub_load 0 0")),
    (1, ("store 1.0 5; atomic 1.0 1; dcci 1.0", "quiet")),
    (1, ("load 1.0; put 1.0 7; quiet; load 1.0; dcci 1.0", "quiet")),
    (2, ("", "store 1.4 5; put 1.0 1", "eq 1.0 1; in 1.4 0 2; quiet")),
    (1, ("stores 1.0 2 3; quiet; store 1.4 1", "ge 1.4 1; load 1.0; load 1.3")),
    (2, ("store 1.0 5; quiet; put 1.4 1", "quiet", "ge 1.4 1; load 1.0; arrive; await", "arrive; await; load 1.0")),
    (4, ("store 0.0 5; quiet; arrive; await", "arrive; await; load 0.0", "arrive; await",
         "store 0.1 1; quiet; arrive; await; load 0.0")),
    (4, ("store 0.0 5; quiet; add 0.4 1", "store 0.1 5; quiet; add 0.4 1", "store 0.2 5; quiet; add 0.4 1",
         "ge 0.4 3; load 0.0; load 0.1; load 0.2")),
    (4, ("store 0.0 5; quiet; store 0.4 1", "ge 0.4 1; load 0.0; arrive; await", "ge 0.4 1; arrive; await; load 0.0",
         "arrive; await; store 0.0 6")),
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
    """A data buffer, or managed memory, that nobody has written; padding of a slot may travel from it, and be used."""
    through = "in m0.0 0 0; set 1 3 0; wait 1 3 0; out m1.0 0 0"
    by_dma = "store m0.0 1; quiet; dma_data m0.0 1.0 1; wait 4 0 1"
    first = rng.choice(("out m1.0 0 0", *2 * ("ub_store 1 0; out m1.0 0 1",), through, *2 * (by_dma,)))
    more = rng.choice(("", "", "", "; store m1.1 2", "; quiet; store m1.1 2", "; ub_store 2 1; out m1.0 0 1"))
    use = rng.choice(("load m1.0", "load m1.0", "load m1.1", "in m1.0 4 1; quiet; ub_load 0 4", "add m1.1 1"))
    reader = rng.choice((f"ge 1.4 1; {use}", f"ge 1.4 1; {use}", "ge 1.4 1; in m1.0 2 1; quiet; ub_load 0 3",
                         "ge m1.1 1", f"load_named m1.1; ge 1.4 1; {use}"))  # fmt: skip
    return 1, (f"{first}{more}; quiet; store 1.4 1", reader)


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


def _at_edge(rng: Random) -> Texts:
    """Writes to both sides of an edge between two dies, a flag on one of them, and who reads both sides."""
    data = rng.choice(("outs m0.4 0 1", "outs m0.4 0 1", "outs m0.4 0 1", "out e.0 4 2; out m0.4 0 2", "puts m0.4 3 1",
                       "stores m0.7 3 1", "stores m0.6 2 3", "out m0.7 0 0; out e.0 0 0"))  # fmt: skip
    flag = f"{rng.choice((0, 0, 1, 2))}.4"
    release = rng.choice(("fence", "fence", "fence", "quiet", "fence; quiet", "load 2.0"))
    how = rng.choice(("put", "store", "add", "atomic"))
    reads = ["in e.0 0 2", "in m0.4 4 2"] if rng.random() < 0.6 else ["load e.0", "load m0.7"]
    rng.shuffle(reads)
    late = rng.choice(("", "; quiet; ub_load 0 0", "; quiet; store e.1 6"))
    writer, reader = f"{data}; {release}; {how} {flag} 1", f"ge {flag} 1; {'; '.join(reads)}{late}"
    return 1, rng.choice((("", reader, writer), (writer, reader), ("quiet", writer, reader)))


def _signals_at_edge(rng: Random) -> Texts:
    """Two requests of one site that signal, each on the die that it copies to."""
    flag = rng.choice((0, 0, 1))
    more = rng.choice(("", "; fence", "; quiet"))
    reader = rng.choice(("in e.0 0 2; in m0.4 4 2", "in m0.4 4 2; in e.0 0 2", "in e.0 0 2", "load m0.4; load e.0"))
    texts = (f"signals 0.4 1{more}", f"ge {flag}.4 1; {reader}; quiet; ub_load 0 0")
    return 1, texts if rng.random() < 0.5 else ("", *texts[::-1])


def _behind_events(rng: Random) -> Texts:
    """Data by mtu-out, what is between, and a flag that a scalar unit stores, perhaps through its cache."""
    data = rng.choice(("out m1.0 0 2", "out m1.0 0 2", "out m1.0 0 4", "put m1.0 3", "out 1.0 0 2"))
    left = "set 3 0 1; wait 3 0 1"
    between = rng.choice(("fence", "fence", left, left, "quiet", f"{left}; fence", f"fence; {left}"))
    flag = rng.choice(("store 1.4 1; dcci 1.4", "store 1.4 1; dcci 1.4", "store 1.4 1", "put 1.4 1", "add 1.4 1"))
    own = rng.choice(("", "", "store 0.5 1; dcci 0.5", "store 0.5 1"))
    area = data.split()[1]
    read = rng.choice((f"in {area} 0 2; quiet; ub_load 0 0", f"dma {area} 0.0 2; wait 4 0 2", f"load {area}"))
    reader = rng.choice((f"ge 1.4 1; {read}", f"ge 1.4 1; {read}", f"ne 1.4 0; {read}", read, f"dcci 1.4; {read}"))
    return 1, ("; ".join(part for part in (data, between, flag if rng.random() < 0.8 else "", own) if part), reader)


def _descriptors(rng: Random) -> Texts:
    """More copies by DMA than are usual, up to all descriptors and one more, which may not wait for the first."""
    waits, n = rng.choice((0, 4, 4)), rng.randrange(4)
    again = rng.choice((0, 8)) if n == 3 else 0
    copies = f"dmas {rng.choice(('0.0', 'm0.0', 'e.0', '1.0'))} {rng.choice(('1.0', '1.4'))} {n + waits + again}"
    between = rng.choice(("quiet", "quiet", "wait 4 0 0", "wait 4 0 0; wait 4 0 1", "fence", "in 1.0 0 2; quiet"))
    flag = rng.choice(("put 0.4 1", "store 0.4 1", "add 0.4 1"))
    return 1, (f"stores 0.0 2 1; quiet; {copies}; {between}; {flag}",
               f"ge 0.4 1; load 1.{rng.randrange(8)}; load 1.{rng.randrange(8)}")  # fmt: skip


def _four_meet(rng: Random) -> Texts:
    """Four cores of a die that meet; each may write before the barrier and read after it."""

    def core(k: int) -> str:
        before = rng.choice(("", f"store 0.{k} 1; quiet; ", f"store 0.{k} 1; ", f"put m0.{k & 4} 1; fence; "))
        load = f"; load 0.{rng.randrange(4)}"
        after = rng.choice(("", load, load, "; in m0.0 0 2; quiet"))
        return f"{before}arrive; await{after}"

    return 4, tuple(core(k) for k in range(4))


def _over_own(rng: Random) -> Texts:
    """DMA, or another pipe, over what a core has written itself and not awaited; then a flag and a reader."""
    first = rng.choice(("store 1.0 5", "put 1.0 5", "ub_store 5 0; out 1.0 0 0", "store m1.0 5", "put m1.0 5"))
    name = "dma_data" if "m1" in first else "dma"
    between = rng.choice(("", "", "fence; ", "quiet; ", "set 3 0 1; wait 3 0 1; "))
    copy = rng.choice((f"{name} 0.0 1.0 0; wait 4 0 0", f"{name} 0.0 1.0 2; wait 4 0 2", f"{first.replace('5', '6')}"))
    if name == "dma_data":
        copy = copy.replace(" 1.0", " 8")
    read = f"load {'m1.0' if 'm1' in first else '1.0'}"
    return 1, (f"store 0.0 7; quiet; {first}; {between}{copy}; put 1.4 1", f"ge 1.4 1; {read}")


def _wrong_for_a_while(rng: Random) -> Texts:
    """Somebody writes to what another die's cores own, and puts it right again, or does not."""
    word = rng.choice(("0.1", "0.5", "m0.1", "0.0"))
    between = rng.choice(("", "; quiet", "; fence"))
    writer = f"store {word} {rng.randrange(1, 4)}{between}; store {word} {rng.choice((0, 0, 0, 1))}; quiet"
    before = rng.choice(("", "", "ge 1.4 1; ", "store 0.4 1; eq 0.4 1; "))
    owner = rng.choice(("quiet", "store 0.3 1", "store 0.4 1; quiet", "store 1.4 1", "arrive; await", "load 0.3"))
    return 1, (owner, f"{before}{writer}")


def _neighbours(rng: Random) -> Texts:
    """Two cores of a die write to another one; the second knows of the first, and sets a flag for a third one."""
    first = rng.choice(("store m1.0 5", "put m1.0 5", "put 1.0 5", "ub_store 5 0; out m1.0 0 2", "store 1.0 5"))
    flagged = rng.choice(("store 0.4 1", "store 0.4 1", "put 0.4 1", "add 0.4 1", "quiet; store 0.4 1"))
    second = rng.choice(("store m1.4 6", "put m1.4 6", "store m1.1 6", "quiet", "put 1.4 6"))
    flag = f"{rng.choice(('store', 'put', 'add'))} {rng.choice(('2.4', '1.5', '2.4'))} 1"
    word = first.split()[1] if first.startswith(("store", "put")) else "m1.0"
    read = rng.choice((f"load {word}", f"in {word} 0 2; quiet"))
    release = rng.choice(("quiet; ", "quiet; ", "fence; ", ""))
    return 2, (f"{first}; {flagged}", f"ge 0.4 1; {second}; {release}{flag}", f"ge {flag.split()[1]} 1; {read}")


def _told_by_field(rng: Random) -> Texts:
    """Rounds of a field that is polled, read and acknowledged, in some order; a third core may read it too."""
    writer, reader, third = [], [], []
    pulled = "; set 1 0 1; wait 1 0 1"
    for k in range(1, rng.choice((2, 3, 3, 4))):
        writer += [f"{rng.choice(('ge', 'eq'))} 0.4 {k - 1}"] if k > 1 and rng.random() < 0.6 else []
        writer += rng.choice(([], [], ["out m1.0 0 2", rng.choice(("quiet", "fence"))]))
        puts = ("put 1.0 {0}", "put 1.0 {0} {0}", "put 1.0 {0} 2", "put_named 1.0 {0} {0}", "put 1.4 {0}; put 1.0 {0}")
        writer += [rng.choice(puts).format(k)]
        reads = ("load 1.1", "load 1.0", "in 1.0 0 2", f"in 1.0 0 2{pulled}", f"in m1.0 0 2{pulled}", "quiet")
        back = rng.choice(("put 0.4 {}", "store 0.4 {}", "add 0.4 1", "put 0.4 {}; quiet", "quiet")).format(k)
        steps = [f"{rng.choice(('eq', 'eq', 'ge'))} 1.0 {k}", rng.choice(reads), back]
        if rng.random() < 0.35:
            rng.shuffle(steps)
        reader += steps
        third += [rng.choice(("eq 1.0 {}", "ge 0.4 {}", "eq 1.4 {}")).format(k), rng.choice(("load 1.1", "load 1.5"))]
    what = rng.random()
    if what < 0.2:  # what the field announces is read when all is done
        writer += ["quiet", "put 0.0 9"]
        reader = [step for step in reader if step[:2] in ("eq", "ge")] + ["ge 0.0 9", "load 1.1"]
    elif what < 0.5:  # or before it is announced
        reader.insert(0, rng.choice(("load 1.1", "load 1.2", "in 1.0 0 2")))
    texts = ["; ".join(steps) for steps in (writer, reader, third)[: rng.choice((2, 2, 2, 3))]]
    return rng.choice((1, 2)), tuple(rng.sample(texts, len(texts)))


def seqlock(rng: Random) -> Texts:
    """A writer of versions, and a reader that reads tentatively between two looks at the version."""
    writer, size = ["ub_store 3 0", "ub_store 4 4"], rng.choice((2, 2, 4))
    versions, odd = rng.choice((1, 1, 2)), rng.random() < 0.7
    left = rng.choice(("", "set 3 0 1; wait 3 0 1; ")) if versions == 1 else ""
    area = rng.choice(("m1.0", "m1.0", "1.0", "m0.0"))
    write = rng.choice((f"out {area} 0 {size}", f"put {area} 7", f"store {area} 7", f"add {area} 1"))
    if rng.random() < 0.15:
        write = f"dma{'_data' * ('m' in area)} 0.0 {(8 * (area[-3] == '1'))} 2; wait 4 0 2"
    for v in range(versions):
        release = [rng.choice(("quiet", "quiet", "fence", "")) for _ in range(3)]
        flag = rng.choice(("put", "put", "store")) + " 1.4 {}"
        writer += [flag.format(2 * v + 1) if odd else "", release[0], write, left + release[1]]
        writer += [flag.format(2 * v + 2), release[2]]
    look, done = rng.choice(("ge 1.4 2", "spin 1.4 2", "load_named 1.4", "eq 1.4 0")), "set 1 0 1; wait 1 0 1"
    again = rng.choice(("2", "2", "2", "0", "4"))
    reader = [look, f"in {area} 0 {size}", done, "load_named 1.4", f"skip_unless 0 {again} {rng.choice((2, 2, 1))}"]
    reader += [f"validate 0 0 {size}", "ub_load 0 0"] if rng.random() < 0.7 else [f"in {area} 0 {size}", done]
    texts = ["; ".join(step.strip("; ") for step in steps if step.strip("; ")) for steps in (writer, reader)]
    return rng.choice((1, 2)), tuple(rng.sample(texts, 2))


def flags(rng: Random) -> Texts:
    """Flags that are read by copies: two in one copy, or one buffer in two rounds, where an event may be missing."""
    return rng.choice((_flags_in_a_copy, _buffer_of_rounds))(rng)


def _flags_in_a_copy(rng: Random) -> Texts:
    """Two flags, the later one followed by data, and a copy of both that may see the later one alone."""
    first, between = rng.choice(("put 0.0 1", "store 0.0 1")), rng.choice(("quiet", "quiet", "fence", ""))
    second = rng.choice(("put 0.4 1", "store 0.4 1"))
    data = rng.choice(("", "", "put m1.0 5; quiet; "))
    copy, done = rng.choice(("in 0.0 0 4", "in 0.0 0 4", "in 0.4 4 2; in 0.0 0 2")), "set 1 0 0; wait 1 0 0"
    spin = rng.choice(("", "", "", "spin_in 0.4 1; "))
    seen = "load m1.0" if data else f"ub_load 0 0; fail_unless 7 {rng.choice((1, 1, 0))}"
    reader = f"{spin}{copy}; {done}; ub_load 0 4; skip_unless 0 1 {seen.count(';') + 1}; {seen}"
    if rng.random() < 0.5:
        return rng.choice((1, 2)), (reader, f"{data}{first}; {between or 'fence'}; {second}")
    return 1, (reader, f"{data}{first}; {between}; put 1.0 1", f"ge 1.0 1; {second}")


def _buffer_of_rounds(rng: Random) -> Texts:
    """Flags are copied to one buffer in rounds, and each is copied on; one of the events between may be missing."""
    steps = ["in 0.0 0 2", "set 1 2 0; wait 1 2 0", "v_copy 0 4 2", "set 2 1 0; wait 2 1 0"]
    steps += [rng.choice(("in 0.4 0 2", "in 0.0 0 2")), *steps[1:3]]
    if rng.random() < 0.8:
        steps.pop(rng.choice((1, 3, 5, 5)))
    reader = "; ".join([*steps, "quiet", "ub_load 0 4"])
    return 1, (reader, rng.choice(("put 0.0 1; put 0.4 1", "put 0.4 1", "store 0.0 1")))


def beside_signals(rng: Random) -> Texts:
    """A tentative read of what one signal copies, after the flag of another; the transfer may be met, or come late."""
    flag = rng.choice(("ge 1.4 1", "ge 1.4 1", "ge 0.4 1"))
    read = f"tentative {rng.choice(('m0.4', 'm0.4', 'e.0'))} 4 2"
    other = rng.choice(("", "; in e.0 0 2", "; in m0.4 0 2"))
    done = rng.choice(("quiet", "quiet", "set 1 0 1; wait 1 0 1"))
    reader = f"{flag}; {read}{other}; {done}; validate 0 4 2; ub_load 0 4"
    return 1, (reader, "quiet", f"signals 0.4 1{rng.choice(('', '', ' 8'))}{rng.choice(('; quiet', '; quiet', ''))}")


def sums(rng: Random) -> Texts:
    """A copy that adds, another write of the same bytes, and perhaps a reader that waits for a flag."""
    area, size = rng.choice(("m0.0", "m0.0", "m1.0", "0.0")), rng.choice((0, 2, 2, 4))
    flag = f"{rng.choice(('; quiet', '; fence', ''))}; put 1.4 1"
    write = rng.choice(("put {} 1", "put {} 1", "store {} 1", "out {} 4 2", "ub_store 4 0; add_out {} 0 2", "add {} 1"))
    adder = f"ub_store 3 0; add_out {area} 0 {size}{flag if rng.random() < 0.5 else ''}"
    reader = f"ge 1.4 1; {rng.choice(('load', 'ge', 'load_named'))} {area} 1"
    texts = (adder, write.format(area), reader)[: 3 if "1.4" in adder else 2]
    return rng.choice((1, 2)), tuple(rng.sample(texts, len(texts)))


def events(rng: Random) -> Texts:
    """An event is set in rounds; what lies between may say that it was consumed, or fill a queue, which does not."""
    source, target = rng.choice(((0, 1), (0, 2), (0, 3), (2, 1), (3, 1), (3, 2)))
    consumed = f"set {target} {source} 1; wait {target} {source} 1"
    fill = "; ".join([{1: "in 0.0 0 2", 2: "v_copy 0 4 2", 3: "put 1.0 1"}[target]] * rng.choice((1, 3, 9)))
    between = rng.choice(("", consumed, fill, fill, f"{fill}; quiet"))
    rounds = [f"set {source} {target}; wait {source} {target}"] * rng.choice((2, 2, 3))
    setter = "; ".join(part for part in (rounds[0], between, *rounds[1:]) if part)
    return 1, (setter, "ge 1.0 1" if "put" in setter else "store 1.4 1")[: rng.choice((1, 2))]


def fallen(rng: Random) -> Texts:
    """A poll of two words, the second set at first and then cleared; the kernel branches on the one that it saw."""
    falls = rng.choice(("store 0.4 0", "store 0.4 0", "put 0.4 0"))
    comes = f"{rng.choice(('', 'quiet; ', 'fence; '))}{rng.choice(('store', 'put'))} 0.0 1"
    seen = rng.choice(("fail_unless 7 0", "skip_unless 0 1 1; store m0.4 1", "load 0.4"))
    reader, is_one = f"any 0.0 0.4 {rng.randrange(16)}; {seen}", rng.random() < 0.7
    return rng.choice((1, 2)), (reader, f"{falls}; {comes}") if is_one else (reader, falls, comes)


PATTERNS: tuple[Callable[[Random], Texts], ...] = (
    _two_pipes, _second_word, _two_granules, _late_expected, _polled_transfer, _read_back, _unwritten, _retried, _field,
    _at_edge, _at_edge, _signals_at_edge, _behind_events, _behind_events, _descriptors, _four_meet, _over_own,
    _wrong_for_a_while, _neighbours, _told_by_field,
)  # fmt: skip
"""Each draws cores a die and programs."""
