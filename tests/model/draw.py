"""Random programs: those of campaigns, and messages that are passed on, also over the edge of a die.

A program depends on a seed and its number alone.
"""

from dataclasses import replace
from random import Random

from xccl_emu.guards.campaign import generate
from xccl_emu.guards.campaign.interpreter import SIZE_MAX
from xccl_emu.guards.campaign.programs import DATA, LOOSE, WITH_WORD, Instruction, Small, program
from xccl_emu.lang.requests import NO_ACQUIRE, ORDERS

_WORDS = ("0.0", "0.4", "m0.4", "m0.6", "e.0", "e.1", "1.4", "m1.0", "m1.4")
"""``m0.4`` to ``m0.7`` are the last bytes of die 0, and ``e.0`` begins die 1."""
_DATA = ("m0.4", "m0.4", "m0.6", "e.0", "e.0", "e.1", "m1.0")
_UNITS = (4, 8, 16, 32, 32, 32, 32, 64)


def draw(seed: int, number: int) -> Small:
    """Program ``number`` of a seed: half of them pass messages."""
    rng = Random(f"model/{seed}/{number}")
    if number % 5 == 4:
        return generate.draw(seed, 8 * number + 3).small  # where campaigns read tentatively
    if rng.random() < 0.4:
        return generate.draw(seed, number).small
    return _messages(rng)


def _messages(rng: Random) -> Small:
    """A core writes and tells the next, which reads, and perhaps writes and tells in turn."""
    n, pieces, words = rng.choice((2, 2, 2, 3)), list[list[str]](), list[str]()
    for core in range(n):
        one = [f"ge {_flag(core - 1)} 1", *_reads(rng, words)] if core else []
        words = ["m0.4", "e.0"] if rng.random() < 0.3 else rng.sample(_DATA, rng.choice((1, 2, 2)))
        one += _writes(rng, words) + _tells(rng, _flag(core)) if core < n - 1 else []
        pieces.append(one)
    for _ in range(rng.choice((0, 0, 1, 1, 2))):
        _change(rng, rng.choice(pieces))
    programs = tuple(program("; ".join(one))[:SIZE_MAX] for one in pieces)
    asked = [line for line in generate.WRITING if line != "store_line0"]
    asks = {line: rng.choice(ORDERS[1:]) for line in asked if rng.random() < 0.3}
    return Small(
        programs, cores_per_die=rng.choice((1, 2)), dies=2, atomic_bytes=rng.choice(_UNITS),
        fresh=rng.random() < 0.1, asks=asks if rng.random() < 0.3 else {},
    )  # fmt: skip


def loose(seed: int, number: int) -> Small:
    """A program, most often of messages, in which some reads do not acquire, and some quiets let none acquire.

    Some flags are in the managed area, where unordered writes are a race.
    """
    rng = Random(f"model/loose/{seed}/{number}")
    small = _messages(rng) if rng.random() < 0.8 else draw(seed, number)
    asks = {name: NO_ACQUIRE for name in LOOSE if rng.random() < (0.3 if name == "quiet0" else 0.7)}
    flags = DATA * (rng.random() < 0.5)
    programs = tuple(tuple(more for i in one for more in _loosened(rng, i, flags)) for one in small.programs)
    return replace(small, programs=tuple(one[:SIZE_MAX] for one in programs), asks={**asks, **small.asks})


def _loosened(rng: Random, one: Instruction, flags: int) -> list[Instruction]:
    """An instruction, with its flag moved, and most often something behind what waits for one."""
    is_flag = one.name in WITH_WORD and one.name != "signal" and one.a in (0, 12)
    moved = replace(one, a=one.a | flags) if is_flag else one
    if one.name != "ge":
        return [moved]
    behind = [[Instruction("quiet")], *([Instruction(name, moved.a, 2)] for name in ("store", "put")), []]
    return [moved, *rng.choice(behind)]


def _flag(core: int) -> str:
    return ("0.0", "1.4")[core & 1]


def _writes(rng: Random, words: list[str]) -> list[str]:
    """Each word is written, half of the time all in one way."""
    there, how, same = list[str](), rng.random(), rng.random() < 0.5
    for word in words:
        there += (Random(how) if same else rng).choice((
            [f"store {word} 3"], [f"store {word} 3"], [f"add {word} 1"], *2 * (_put(word),),
            [f"ub_store 3 0; out {word}"], [f"ub_store 3 0; set 0 3; wait 0 3; out {word}"], [f"atomic {word} 1"],
            [f"dma{'_data' * (word[0] == 'm')} 0.1 {word.lstrip('m')} 0; wait 4 0 0"],
            [f"store4 {word} 3"], [f"in 0.1 0; set 1 3; wait 1 3; out {word}"],
        ))  # fmt: skip
    return there


def _put(word: str) -> list[str]:
    area, place = word.split(".")
    return [f"put {area}.{int(place) & 4} 3 1"]


def _tells(rng: Random, flag: str) -> list[str]:
    between = rng.choice((["quiet"], ["fence"], ["fence"], [], ["fence", f"ge {flag} 0"]))
    how = (
        "store {} 1",
        "store {} 1",
        "put {} 1",
        "add {} 1",
        "atomic {} 1",
        "swap {} 0 1",
        "ub_store 3 8; signal {} 1 0",
    )
    return [*between, rng.choice(how).format(flag), *rng.choice(([], [], ["quiet"], [f"store {flag} 2"]))]


def _reads(rng: Random, words: list[str]) -> list[str]:
    reads = list[str]()
    for word in words if rng.random() < 0.9 else [rng.choice(_DATA)]:
        reads += rng.choice((
            [f"load {word}"], [f"load {word}"], [f"load4 {word}"], [f"in {word} 0; quiet; ub_load 0 0"],
            [f"in {word} 1; set 1 0; wait 1 0; ub_load 0 1"], [f"load_named {word}"], [f"in {word} 2"],
        ))  # fmt: skip
    return reads


def _change(rng: Random, one: list[str]) -> None:
    """Drop, double, move or replace an instruction."""
    if not one:
        return
    k, what = rng.randrange(len(one)), rng.randrange(4)
    if what == 0:
        one.pop(k)
    elif what == 1 and not one[k].startswith("dma"):
        one.insert(k, one[k])
    elif what == 2 and k + 1 < len(one):
        one[k], one[k + 1] = one[k + 1], one[k]
    else:
        word = rng.choice(_WORDS)
        one[k] = rng.choice(("store {} 2", "load {}", "load_named {}", "quiet", "fence", "put {} 2")).format(word)
