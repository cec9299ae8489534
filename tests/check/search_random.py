"""Small programs at random: one of a corpus that is right, or nearly so, with a few instructions changed."""

from random import Random

from .search_support import OPERATIONS, ORDERS, SIZE_MAX, Instruction, Small, program

CORPUS: tuple[tuple[int, tuple[str, ...]], ...] = (
    (1, ("store 1.0 5; fence; store 1.1 1", "ge 1.1 1; load 1.0")),
    (1, ("store 1.0 5; fence; store 1.4 1", "ge 1.4 1; load 1.0")),
    (1, ("store 1.0 5; fence; put 1.4 1", "ge 1.4 1; load 1.0; put 0.4 1")),
    (1, ("store 1.0 5; fence; store 1.4 1; ge 0.4 1; store 1.0 6", "ge 1.4 1; load 1.0; store 0.4 1")),
    (1, ("store 1.0 5; fence; store 1.4 1; ge 0.4 1; store 1.0 6; fence; store 1.4 2",
         "ge 1.4 1; load 1.0; store 0.4 1; ge 1.4 2; load 1.0")),
    (1, ("ub_store 3 0; out 1.0 0 0; fence; put 1.4 1",
         "ge 1.4 1; in 1.0 0 0; set 1 0 1; wait 1 0 1; ub_load 0 0")),
    (1, ("ub_store 3 0; out 1.0 0 2; fence; put 1.4 1; ge 0.4 1; ub_store 4 0; out 1.0 0 2; fence; put 1.4 2",
         "ge 1.4 1; in 1.0 0 2; set 1 0 1; wait 1 0 1; put 0.4 1; ub_load 0 0; ge 1.4 2; in 1.0 0 2; fence")),
    (1, ("ub_store 3 0; out 1.0 0 4; fence; put 0.4 1", "ge 0.4 1; in 1.0 0 4; fence; ub_load 0 0")),
    (1, ("store 1.0 5; fence; store 1.4 1; eq 1.4 0; store 1.0 6; fence; store 1.4 1",
         "eq 1.4 1; load 1.0; store 1.4 0")),
    (1, ("store 1.0 5; fence; store 1.4 1; eq 1.4 0", "ne 1.4 0; load 1.0; store 1.4 0")),
    (1, ("store 1.4 1; store 1.5 2", "ge 1.5 2; load_named 1.4")),
    (1, ("store 1.0 5; fence; add 2.0 1", "store 0.0 5; fence; add 2.0 1", "ge 2.0 2; load 1.0; load 0.0")),
    (1, ("atomic_taken 1.0 1; skip_unless 0 0 1; store 1.4 1", "atomic_taken 1.0 1; skip_unless 0 0 1; store 1.4 2")),
    (1, ("store 0.0 1; fence; store 1.0 1", "ge 1.0 1; store 2.0 1", "ge 2.0 1; load 0.0")),
    (1, ("store 0.0 1; fence; store 1.0 1", "ge 1.0 1; store 1.4 3; fence; store 2.0 1",
         "ge 2.0 1; load 0.0; load 1.4")),
    (2, ("store 0.0 5; fence; arrive; await", "arrive; await; load 0.0")),
    (2, ("store 0.0 5; fence; arrive; await; store 1.0 1", "store 0.4 3; fence; arrive; await",
         "ge 1.0 1; load 0.0; load 0.4")),
    (1, ("dma 0.0 1.0 1; wait 4 0 1; store 1.4 1", "ge 1.4 1; load 1.0; load 1.1")),
    (1, ("dma 0.0 1.0 4; dma 0.2 1.2 1; wait 4 0 4; wait 4 0 1; put 1.4 1",
         "ge 1.4 1; in 1.0 0 3; fence; ub_load 0 0")),
    (1, ("ub_store 3 0; ub_store 1 3; out 1.0 0 2", "ge 1.3 1; load 1.0")),
    (1, ("ub_store 3 0; ub_store 1 7; out 1.0 0 4", "spin 1.7 1; in 1.0 0 4; fence; ub_load 0 0; ub_load 0 1")),
    (1, ("ub_store 3 0; out 1.0 0 0; ge 1.0 1; store 1.4 1", "ge 1.4 1; load 1.0")),
    (1, ("put 1.0 1; ge 1.0 1; put 0.0 1; ne 0.0 0; load 1.0", "ne 0.0 0; load 1.0")),
    (1, ("in 1.0 0 2; set 1 3 1; wait 1 3 1; out 0.0 0 2; fence; add 1.4 1", "ge 1.4 1; load 0.0; load 1.0")),
    (1, ("in 1.0 0 2; set 1 2 1; wait 1 2 1; v_copy 0 4 2; set 2 3 0; wait 2 3 0; out 0.0 4 2; fence; add 1.4 1",
         "ge 1.4 1; load 0.0; load 1.0")),
    (1, ("store 1.0 1; store 1.0 2", "load_named 1.0; load_named 1.0; load_named 1.0")),
    (1, ("put 1.0 1 1; put 1.0 2 2", "ge_taken 1.0 1; load 1.1")),
    (1, ("put 1.0 1 1", "ge 1.0 1; load 1.1; store 0.0 1; ge 0.0 1")),
    (2, ("add 1.0 1; fence; add 1.4 1", "add 1.0 1; fence; add 1.4 1; ge 1.4 2; load 1.0")),
    (1, ("atomic 1.0 3; add 1.4 1", "atomic 1.0 1; add 1.4 1; ge 1.4 2; load 1.0")),
    (1, ("store 1.0 2; fence; store 1.1 1", "ge_taken 1.1 1; load_at 1.0")),
    (1, ("store 1.0 5; fence; store 1.4 1", "ne_taken 1.4 0; fail_unless 3 1; load 1.0; fail_unless 4 5")),
    (1, ("ub_store 3 0; out 0.0 0 0; fence; in 0.0 1 0; set 1 0 1; wait 1 0 1; ub_load 0 1; store 1.0 1", "ge 1.0 1")),
    (1, ("ub_store 3 0; out 1.4 0 5; out 1.4 0 13; ge 1.4 3; fence; store 1.0 1", "ge 1.0 1; load 1.4")),
    (1, ("add 1.0 1; add 1.0 1", "ge 1.0 1; add 1.1 1; ge 1.0 2", "ge 1.1 1; load_named 1.0")),
    (1, ("ge 0.4 1; add 1.0 1; load 1.0", "add 1.0 1; fence; store 0.4 1", "ge 1.0 2")),
    (1, ("dma 0.0 1.4 0; load 1.0; wait 4 0 0", "ge 1.4 1; store 1.0 6")),
    (1, ("atomic 0.4 1; put 1.0 1; put 1.4 2; in 1.0 0 4; fence; ub_load 0 4; load 1.0",
         "ne_taken 1.0 0; ne_taken 1.4 0")),
    (1, ("ub_store 1 0; out 1.0 0 0; put 1.4 1; ge 0.4 1; ub_store 2 0; fence", "ge 1.4 1; put 0.4 1")),
)  # fmt: skip
"""Cores a die and programs; word w of die d is ``d.w``."""

WITHOUT_WORD = (
    "fence", "ub_load", "ub_store", "arrive", "await", "skip_unless", "fail_unless", "v_copy", "set", "wait", "end",
)  # fmt: skip
WITH_WORD = tuple(name for name in OPERATIONS if name not in WITHOUT_WORD)
WORDS = (0, 1, 3, 4, 5)


def small_configuration(rng: Random) -> Small:
    """A configuration, most often one of the corpus with some instructions moved, dropped, changed or added."""
    cores_per_die, texts = rng.choice(CORPUS)
    programs = [list(program(text)) for text in texts]
    words = [one.a for each in programs for one in each if one.name in WITH_WORD]
    words += [one.b for each in programs for one in each if one.name == "dma"]
    dies = max([-(-len(programs) // cores_per_die), *(1 + (word >> 3) for word in words)])
    for _ in range(rng.randrange(4)):
        _change(rng, rng.choice(programs), dies)
    memory = {8 * die: rng.randrange(1, 4) for die in range(dies) if rng.random() < 0.4}
    return Small(tuple(map(tuple, programs)), cores_per_die, dies, memory)


def small_order(rng: Random) -> str:
    """A memory order, most often the weakest."""
    return rng.choice([*ORDERS, "relaxed", "relaxed"])


def _change(rng: Random, one: list[Instruction], dies: int) -> None:
    k, what = rng.randrange(len(one) or 1), rng.randrange(6)
    if what == 0 and one:
        one.pop(k)
    elif what == 1 and k + 1 < len(one):
        one[k], one[k + 1] = one[k + 1], one[k]
    elif what == 2 and one:
        one[k] = _instruction(rng, dies)
    elif what == 3 and one and one[k].name in WITH_WORD:
        word = _word(rng, dies)
        one[k] = Instruction(one[k].name, word & ~3 if one[k].name == "put" else word, one[k].b, one[k].c)
    elif what == 4 and one and len(one) < SIZE_MAX:
        one.insert(k, one[k])
    elif len(one) < SIZE_MAX:
        one.insert(rng.randrange(len(one) + 1), _instruction(rng, dies))


def _word(rng: Random, dies: int) -> int:
    return rng.randrange(dies) << 3 | rng.choice(WORDS)


def _instruction(rng: Random, dies: int) -> Instruction:
    name = rng.choice([*WITH_WORD, *WITHOUT_WORD, "fence"])
    word, value, ub = _word(rng, dies), rng.choice([0, 1, 1, 2, 3]), rng.choice([0, 0, 1, 2, 4])
    size = rng.choice([0, 0, 0, 1, 2, 5, 13])
    if name in ("in", "out"):
        return Instruction(name, word, ub, size)
    if name == "dma":
        return Instruction(name, word, _word(rng, dies), size & 7)
    if name == "put":
        return Instruction(name, word & ~3, value, rng.randrange(3))
    if name in ("ub_load", "ub_store"):
        return Instruction(name, value, ub)
    if name in ("skip_unless", "fail_unless"):
        return Instruction(name, 7, value, rng.randrange(1, 3))
    if name == "v_copy":
        return Instruction(name, rng.choice([0, 4]), rng.choice([0, 4, 8]), rng.choice([0, 2]))
    if name in ("store4", "load4"):
        return Instruction(name, word, value, rng.choice([0, 8]))
    if name == "set":
        return Instruction(name, rng.randrange(4), rng.choice([0, 0, 1, 2, 3]), rng.randrange(2))
    if name == "wait":
        return Instruction(name, rng.choice([1, 1, 3, 4, 0, 2]), rng.choice([0, 0, 1, 3]), rng.randrange(2))
    return Instruction(name) if name in ("fence", "arrive", "await", "end") else Instruction(name, word, value)
