"""Litmus programs on the machine: an interpreting kernel for each thread, explored, and the outcomes by their names."""

from collections.abc import Callable, Mapping

from xccl_emu.lang import Kernel
from xccl_emu.machine.explore import Explored, explore
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import small_pod

from .model import Outcome, Program

Encode = Callable[[int, list[str]], tuple[int, int, list[str]]]
"""Of a thread, with the addresses of the program: two words for its kernel, and the registers of its slots."""


def outcomes_at(
    program: Program, order: str, home: Mapping[str, int], kernel: Kernel, encode: Encode
) -> tuple[set[Outcome], Explored]:
    """All outcomes, named as the models name them, with each address on the die that ``home`` says."""
    addresses = sorted({op[1] for ops in program for op in ops if op[0] not in ("f", "s")})
    dies = max(len(program), 1 + max(home.values()))
    spec = small_pod(dies, app_bytes=0, meta_bytes=128, managed_bytes=0, ub_bytes=64, flight_granules=8)
    pod = Pod(spec, order=order)
    homes, names, slots = [home[address] for address in addresses], list[str](), list[int]()
    where = {"home": pod.meta(0), "stride": spec.die_bytes, "dies": sum(die << 2 * i for i, die in enumerate(homes))}
    for thread in range(len(program)):
        *words, registers = encode(thread, addresses)
        names += [f"{thread}:{register}" for register in registers]
        slots.append(len(registers))
        args = dict(zip(kernel.params, words, strict=False)) | where
        pod.launch(kernel, thread, [0], args, [pod.grant_meta("rw")])
    found = explore(pod, [(pod.meta(die) + 32 * i, 8) for i, die in enumerate(homes)])
    outcomes = set[Outcome]()
    for words in found.outcomes:
        results = words[len(addresses) :]
        read = [seen >> 8 * i & 255 for seen, n in zip(results, slots, strict=True) for i in range(n)]
        outcomes.add(frozenset(zip([*addresses, *names], [*words[: len(addresses)], *read], strict=True)))
    return outcomes, found


def whole(found: Explored) -> bool:
    """Is everything explored, and does it end well?"""
    return found.complete and not found.errors and not found.deadlocks


def reached(asked: Mapping[str, int], outcomes: set[Outcome]) -> bool:
    """Has an outcome all that is asked for?"""
    return any(asked.items() <= outcome for outcome in outcomes)
