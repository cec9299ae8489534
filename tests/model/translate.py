"""Programs of campaigns (`guards.campaign`), said to the model: what `interpret` does with each instruction."""

from collections.abc import Iterator

from xccl_emu.guards.campaign.programs import (
    DATA,
    EDGE,
    LOOPS,
    UB_BYTES,
    WITH_WORD,
    WORDS_A_DIE,
    WRITING,
    Instruction,
    Small,
    address_of,
)
from xccl_emu.machine.pod import Pod

from .program import DMA, SCALAR, Core, Op, Program

SIZES = (8, 16, 32, 40, 64, 4, 20, 28)
MASKS = (255, 1, 2, 3)
QUEUE_DEPTH, FLAGS_UB = 8, 192
_WRITES = {
    "store": "store0", "store_seen": "store1", "store4": "store2", "store_named": "store3", "atomic": "atomic_add0",
    "atomic_taken": "atomic_add1", "swap": "compare_swap0", "put": "put0", "put_one": "put1", "put_named": "put2",
    "add": "add0", "out": "mtu_out0", "add_out": "mtu_add0", "signal": "put_signal0", "stores": "store4",
    "result": "store5", "store_line": "store_line0", "outs": "mtu_out1", "puts": "put3", "signals": "put_signal1",
}  # fmt: skip
"""The site of each instruction that writes, by its name in `WRITING`."""
_SEES = {
    "load": "load0", "load_named": "load1", "load4": "load6", "load_at": "load7", "quiet": "quiet0",
    "ge": "poll_ge0", "eq": "poll_eq0", "ne": "poll_ne0", "ge_taken": "poll_ge1", "eq_taken": "poll_eq1",
    "ne_taken": "poll_ne1", "part_ge": "poll_ge2", "part_eq": "poll_eq2", "part_ne": "poll_ne2", "any": "poll_any0",
    "line": "poll_line_eq0", "line_ne": "poll_line_ne0",
}  # fmt: skip
"""The site of others that may ask not to acquire, by its name in `ASKING`."""


class Unknown(Exception):
    """The model does not know this of a program."""


def said(small: Small, order: str) -> Program:
    """A program under an order, as the model takes it; raises Unknown where that has no word for it."""
    assert set(_WRITES.values()) == set(WRITING)
    pod = small.pod(order)
    if small.without or small.spins:
        raise Unknown("synchronizations switched off, spins")
    if small.scalar_cache and any(line.startswith("store") for line in small.asks):
        raise Unknown("what a line asks for")
    if small.cpu or EDGE | DATA in small.far:
        raise Unknown("cores or memory of a CPU")
    cores = []
    for number, instructions in enumerate(small.programs):
        die, place = divmod(number, small.cores_per_die)
        result = pod.meta(die, 8 * WORDS_A_DIE + small.pitch * place)
        ops = _ops(small, pod, instructions)
        ops.append(Op("store", result, computed="seen", asks=small.asks.get(_WRITES["result"], "")))
        _check(pod, ops, bool(small.far))
        cores.append(
            Core(die, tuple(ops), die * small.cores_per_die + place // (small.launched or small.cores_per_die))
        )
    words = tuple((address_of(pod, word), value) for word, value in small.memory.items())
    meta = (pod.meta(0), pod.meta(0) + pod.spec.meta_bytes)
    outside = [address & ~31 for address, _ in words if not meta[0] <= address % pod.spec.die_bytes < meta[1]]
    filled = tuple((first, first + 32) for first in outside)
    asked = any(asks in ("no-order", "strong") for asks in small.asks.values())
    return Program(
        tuple(cores), pod.spec.n_dies, pod.spec.die_bytes, meta, UB_BYTES, order, small.atomic_bytes, words, filled,
        small.fresh, small.scalar_cache, order == "unordered" or (order == "relaxed" and asked),
    )  # fmt: skip


def _ops(small: Small, pod: Pod, instructions: tuple[Instruction, ...]) -> list[Op]:
    """What a core does; a skip passes over as many instructions as there are, and what it has read it tells anyway."""
    each = [list(_op(small, pod, one)) for one in instructions]
    for k, ops in enumerate(each):
        if ops[0].kind == "skip":
            ops[0] = ops[0]._replace(value=sum(map(len, each[k + 1 : k + 1 + ops[0].value])))
    return [op for ops in each for op in ops]


def _check(pod: Pod, ops: list[Op], far: bool) -> None:
    """Raise Unknown for what the machine may refuse, or what goes beyond its queues."""
    pipes = {"in": 1, "copy": 2, "sum": 2, "out": 3, "put": 3, "add": 3, "signal": 3, "fence": 3}
    used = [pipes[op.kind] for op in ops if op.kind in pipes]
    used += [op.addr if op.kind == "set" else op.ub for op in ops if op.kind in ("set", "wait")]
    rung = [op.value for op in ops if op.kind == "dma"]
    if any(used.count(pipe) > QUEUE_DEPTH for pipe in (1, 2, 3)) or len(rung) != len(set(rung)):
        raise Unknown("full queues or descriptors")
    for op in ops:
        if op.kind in ("set", "wait") and (op.addr == op.ub or (op.kind == "wait" and op.ub == DMA)):
            raise Unknown("flags of a pipe to itself")
        if op.kind == "wait" and op.addr == DMA and op.ub != SCALAR:
            raise Unknown("a pipe that waits for DMA")
        if op.kind == "copy" and abs(op.addr - op.ub) < op.nbytes:
            raise Unknown("copies that overlap")
        if op.kind == "sum" and any(0 < abs(row - op.ub) < op.nbytes for row in (op.addr, op.other)):
            raise Unknown("rows that overlap in part")
        ranges = [(op.addr, op.nbytes)] if op.kind in ("in", "out", "dma", "signal", "line") else []
        ranges += [(op.other, op.nbytes)] if op.kind == "dma" else []
        if any(not _within(pod, *each, far) for each in ranges):
            raise Unknown("transfers beyond an area")
        if op.kind == "dma" and abs(op.addr - op.other) < op.nbytes:
            raise Unknown("DMA over itself")
        if op.kind == "signal" and op.addr - 8 < op.other < op.addr + op.nbytes:
            raise Unknown("a signal to its payload")
        if op.ub + op.nbytes > UB_BYTES and op.kind in ("in", "out", "signal", "ub_load", "ub_store", "validate"):
            raise Unknown("beyond the data buffer")


def _within(pod: Pod, addr: int, nbytes: int, far: bool) -> bool:
    die, spec = addr // pod.spec.die_bytes, pod.spec
    if die >= spec.n_dies:
        return False
    areas = [(pod.meta(die), spec.meta_bytes), (pod.managed(die), spec.managed_bytes)]
    areas += [(address_of(pod, EDGE), 8 * WORDS_A_DIE)] if far else []
    return any(first <= addr and addr + nbytes <= first + size for first, size in areas)


def _op(small: Small, pod: Pod, one: Instruction) -> Iterator[Op]:
    """What one instruction asks for: several requests, where it loops."""
    if one.name not in LOOPS:
        found = _single(small, pod, one)
        yield found._replace(asks=small.asks.get(_SEES[one.name], "")) if one.name in _SEES else found
        return
    word, asks = address_of(pod, one.a), small.asks.get(_WRITES[one.name], "") if one.name in _WRITES else ""
    if one.name == "outs":
        for k in range((one.c & 3) + 1):
            yield Op("out", (word & ~31) + 32 * k, nbytes=32, ub=(one.b & 7) * 8 + 32 * k, asks=asks)
    elif one.name == "puts":
        for k in range((one.c & 1) + 1):
            words = (one.b, one.b + k, one.b, one.b)
            yield Op("put", (word & ~31) + 32 * k, nbytes=32, words=words, asks=asks)
    elif one.name == "stores":
        for k in range((one.c & 3) + 1):
            yield Op("store", word + 8 * k, one.b, asks=asks)
    elif one.name == "signals":
        edge, how = address_of(pod, EDGE), "add" if one.c >> 3 else "set"
        for k in range(2):
            flag = pod.meta(0) + (one.a & 7) * 8 + k * pod.spec.die_bytes
            there = edge + 32 * k - 32
            yield Op("signal", there, nbytes=32, ub=32 * k, other=flag, told=one.b, test=how, asks=asks)
    else:
        raise Unknown("DMA in a loop")


def _are_flags(small: Small, pod: Pod, address: int, nbytes: int) -> bool:
    offset = address % pod.spec.die_bytes
    return small.flags and pod.spec.meta_start <= offset and offset + nbytes <= pod.spec.managed_start


def _single(small: Small, pod: Pod, one: Instruction) -> Op:
    """One instruction that asks for one thing."""
    a, b, c = one.a, one.b, one.c
    word = address_of(pod, a) if one.name in WITH_WORD else 0
    nbytes, shifted = SIZES[c & 7], word + (c >> 3) * 4
    asks = small.asks.get(_WRITES.get(one.name, ""), "")
    match one.name:
        case "load" | "load_named":
            named = one.name == "load_named" or _are_flags(small, pod, word, 8)
            return Op("load", word, named=named, takes=True, shows=True)
        case "load_line" | "load_line_named" | "store_line" if pod.spec.atomic_bytes < 16:
            raise Unknown("16 bytes at once of smaller units")
        case "load_line" | "load_line_named":
            named = one.name == "load_line_named" or _are_flags(small, pod, word & ~15, 16)
            return Op("load", word & ~15, nbytes=16, named=named, takes=True, shows=True)
        case "store_line":
            return Op("store", word & ~15, b | c << 64, 16, asks=asks)
        case "load4":
            return Op("load", shifted, nbytes=4, named=_are_flags(small, pod, shifted, 4), takes=True, shows=True)
        case "load_at":
            if small.flags:
                raise Unknown("a load of flags from a place that depends on the last value")
            return Op("load", word, computed="last", takes=True, shows=True)
        case "store" | "store_named":
            return Op("store", word, b, asks=asks)
        case "store4":
            return Op("store", shifted, b, 4, asks=asks)
        case "store_seen":
            return Op("store", word, computed="seen", asks=asks)
        case "atomic" | "atomic_taken":
            takes = one.name == "atomic_taken"
            return Op("atomic", word, b, asks=asks, takes=takes, shows=takes)
        case "swap":
            return Op("swap", word, c, other=b, asks=asks, takes=True, shows=True)
        case "ge" | "eq" | "ne" | "ge_taken" | "ne_taken" | "eq_taken":
            takes = one.name.endswith("taken")
            return Op("poll", word, b, test=one.name[:2], takes=takes, shows=takes)
        case "part_ge" | "part_eq" | "part_ne":
            size, mask = 1 << (c & 3), MASKS[c >> 2]
            return Op("poll", word, b, size, test=one.name[-2:], mask=mask, takes=True, shows=True)
        case "line" | "line_ne":
            size = 16 << (c & 3)
            flags = (1, 1 << (4 << (c & 3)) - 4, 0x11111111, 0x01010101)[c >> 2] & (1 << (4 << (c & 3))) - 1
            if word % size:
                raise Unknown("a line that is not aligned")
            return Op("line", word, b, size, FLAGS_UB, test="ne" if one.name == "line_ne" else "eq", mask=flags)
        case "dcci":
            return Op("dcci", word)
        case "any":
            if not b & DATA and b >> 3 & 3 >= pod.spec.n_dies:
                raise Unknown("a word of a die that is not there")
            other = address_of(pod, b)
            tests = ("ge" if c & 1 else "eq", "ge" if c & 4 else "eq")
            conditions = ((word, tests[0], 1 + (c >> 1 & 1)), (other, tests[1], 1 + (c >> 3)))
            return Op("any", conditions=conditions, takes=True, shows=True)
        case "choose":
            return Op("choose", value=2 + (c & 1), takes=True, shows=True)
        case "quiet" | "fence" | "arrive" | "await":
            return Op(one.name)
        case "put" | "put_named":
            return Op("put", word & ~31, nbytes=32, words=(b, c, b + 1, c + 1), asks=asks)
        case "put_one":
            words = [0, 0, 0, 0]
            words[a & 3] = b
            words[(a & 3) + 1 if a & 3 < 3 else 0] = c
            return Op("put", word & ~31, nbytes=32, words=tuple(words), asks=asks)
        case "add":
            return Op("add", word, b, asks=asks)
        case "in" | "tentative":
            tentative, named = one.name == "tentative", _are_flags(small, pod, shifted, nbytes)
            return Op("in", shifted, nbytes=nbytes, ub=b * 8, tentative=tentative, named=named and not tentative)
        case "validate":
            return Op("validate", nbytes=nbytes, ub=b * 8)
        case "out":
            return Op("out", shifted, nbytes=nbytes, ub=b * 8, asks=asks)
        case "add_out":
            return Op("out", shifted, nbytes=nbytes, ub=b * 8, test="add", asks=asks)
        case "signal":
            if a & EDGE == EDGE:
                raise Unknown("a signal to the edge")
            there = address_of(pod, (a & ~7 & 31) | b & 7 | DATA)
            tells = {"other": address_of(pod, a & 31), "told": (b >> 3) + 1, "test": "add" if c >> 3 else "set"}
            return Op("signal", there, nbytes=nbytes, ub=(b & 7) * 8, asks=asks, **tells)
        case "set" | "wait":
            return Op(one.name, a & (3 if one.name == "set" else 7), c, ub=b & 3)
        case "ub_load":
            return Op("ub_load", ub=b * 8, takes=True, shows=True)
        case "ub_store":
            return Op("ub_store", value=a, ub=b * 8)
        case "v_copy":
            return Op("copy", a * 8, nbytes=nbytes, ub=b * 8)
        case "v_add":
            return Op("sum", (a & 7) * 8, nbytes=nbytes, ub=b * 8, other=(a >> 3) * 8)
        case "dma" | "dma_data":
            target = address_of(pod, b | (DATA if one.name == "dma_data" else 0))
            return Op("dma", shifted, c & 7, nbytes, other=target)
        case "skip_unless" | "skip_if":
            return Op("skip", value=c, other=b, test="eq" if one.name == "skip_if" else "ne")
        case "fail_unless":
            return Op("fail", other=b, test="declared" if one.a in small.gives_up else "")
    raise Unknown(one.name)
