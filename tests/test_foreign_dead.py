"""What a kernel in C no longer needs is cleared before it asks, and nothing else is."""

import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from tests.foreign_support import needs_compiler
from xccl_emu import lang
from xccl_emu.check import check, verdict
from xccl_emu.lang.foreign import c_kernel, dead
from xccl_emu.protocol import Bench, Case, Regions, size

needs_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="registers are cleared on x86-64 alone")

PROLOGUE = "\t.type\tf, @function\nf:\n\tpushq\t%rbx\n\tsubq\t$32, %rsp\n"
EPILOGUE = "\taddq\t$32, %rsp\n\tpopq\t%rbx\n\tret\n"


def clears(body: str) -> list[str]:
    """The calls of a function that saves %rbx, each with what is set to 0 in front of it."""
    found, before = list[str](), list[str]()
    given = PROLOGUE + body + EPILOGUE
    for line in dead.cleared(given):
        if line not in given:
            before.append(line.split("$0, ")[1].strip().strip("%"))
        elif "call" in line:
            found.append(f"{line.partition('#')[0].split()[-1]}: {' '.join(before)}".strip())
            before = []
    return found


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("\tcall\task\n", ["ask: ebx"]),
        ("\tmovq\t%rax, %rbx\n\tcall\task\n\taddq\t%rbx, %rax\n\tcall\task\n", ["ask:", "ask: ebx"]),
        ("\tcall\task\n\tmovb\t$1, %bl\n\tmovq\t%rbx, %rax\n", ["ask:"]),
        ("\tcall\task\n\tmovl\t$1, %ebx\n\tmovq\t%rbx, %rax\n", ["ask: ebx"]),
        ("\tcall\task\n\tcmove\t%rax, %rbx\n\tmovq\t%rbx, %rax\n", ["ask:"]),
        ("\tcall\task\n\txorl\t%ebx, %ebx\n\tmovq\t%rbx, %rax\n", ["ask: ebx"]),
        ("\tcall\task\n\tmovq\t(%rbx), %rbx\n\tmovq\t%rbx, %rax\n", ["ask:"]),
        ("\tcall\t*%rbx\n", ["*%rbx:"]),
        ("\tcall\t__sanitizer_cov_trace_pc@PLT\n", ["__sanitizer_cov_trace_pc@PLT:"]),
        (".L1:\n\tcall\task\n\ttestq\t%rax, %rax\n\tjne\t.L1\n", ["ask: ebx"]),
        (".L1:\n\tcall\task\n\tsubq\t$1, %rbx\n\tjne\t.L1\n", ["ask:"]),
        ("\tcall\task\n\tjmp\tother\n", ["ask:"]),
        ("\tcall\task\n\tjmp\t*%rax\n", ["ask:"]),
        ("\tcall\task\n\tretq\n", ["ask:"]),
        ("\tcallq\task\n", ["ask: ebx"]),
        ("\tcall\task\n\tcpuid\n", ["ask:"]),
        ("\tcall\task\n\tleave\n", ["ask:"]),
        ("\tcall\task\n\t#APP\n\tmovq $1, %rax\n\t#NO_APP\n", ["ask:"]),
        ("\tcall\task\n\t.section\t.rodata\n", ["ask:"]),
    ],
)  # fmt: skip
def test_a_register_is_cleared_if_nobody_reads_it(body: str, wanted: list[str]) -> None:
    """Only where all of it is written first on every way from the call, or its saved value comes back."""
    assert clears(body) == wanted


KEEPS = "\tmovq\t%rbx, %rax\n"
"""So %rbx stays."""


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("\tmovq\t%rax, 8(%rsp)\t# x, %sfp\n\tcall\task\n", ["ask: 8(%rsp)"]),
        ("\tmovq\t%rax, 8(%rsp)\t# 8-byte Spill\n\tcall\task\n", ["ask: 8(%rsp)"]),
        ("\tmovq\t%rax, 8(%rsp)\n\tcall\task\n", ["ask:"]),
        ("\tmovq\t%rax, 8(%rsp)\t# x, %sfp\n\tcall\task\n\tmovq\t8(%rsp), %rax\t# %sfp, x\n", ["ask:"]),
        ("\tmovq\t%rax, 8(%rsp)\t# x, %sfp\n\tcall\task\n\taddl\t$1, 8(%rsp)\t#, %sfp\n", ["ask: 12(%rsp)"]),
        ("\tmovq\t%rax, 8(%rsp)\t# x, %sfp\n\tcall\task\n\tmovb\t9(%rsp), %al\t# %sfp, x\n",
         ["ask: 8(%rsp) 10(%rsp) 14(%rsp) 15(%rsp)"]),
        ("\tmovq\t%rax, 8(%rsp)\t# x, %sfp\n\tpushq\t$0\n\tcall\task\n\tpopq\t%rdx\n", ["ask: 16(%rsp)"]),
        ("\tmovq\t%rax, 8(%rsp)\t# x, %sfp\n\tcall\task\n\tmovl\t12(%rsp), %eax\n", ["ask: 8(%rsp)"]),
        ("\tmovq\t%rax, 8(%rsp)\t# x, %sfp\n\tandq\t$-32, %rsp\n\tcall\task\n", ["ask:"]),
        ("\tmovq\t%rax, 8(%rsp)\t# x, %sfp\n\tcall\task\n\tjmp\t*%rax\n", ["ask:"]),
        ("\tmovq\t%rax, 8(%rsp)\t# x, %sfp\n\tcall\t*8(%rsp)\t# %sfp\n", ["*8(%rsp):"]),
        ("\tvmovups\t%ymm0, (%rsp)\t# 32-byte Spill\n\tcall\task\n", ["ask: 0(%rsp) 8(%rsp) 16(%rsp) 24(%rsp)"]),
        ("\tmovaps\t%xmm0, (%rsp)\t# x, %sfp\n\tpaddq\t(%rsp), %xmm0\t# %sfp, x\n\tcall\task\n",
         ["ask: 0(%rsp) 8(%rsp)"]),
        ("\tje\t.L1\n\tpushq\t$0\n.L1:\n\tmovq\t%rax, 8(%rsp)\t# x, %sfp\n\tcall\task\n", ["ask:"]),
        (".L1:\n\tcall\task\n\tmovq\t%rax, 8(%rsp)\t# x, %sfp\n\tjne\t.L1\n", ["ask: 8(%rsp)"]),
    ],
)  # fmt: skip
def test_a_slot_is_cleared_if_it_is_marked_and_nobody_reads_it(body: str, wanted: list[str]) -> None:
    """To the byte, at its place below what is pushed meanwhile; not if anything else names it, or its place is open.

    What is wider than a slot, or may read more than there is of it, clears no byte of what lies above, where %rbx is.
    """
    assert clears(body + KEEPS) == wanted


RING = """
static uint32_t taken(int64_t reserved, int64_t freed, uint32_t slots) {
    for (;;) {
        uint32_t next = (uint32_t)xccl_load(reserved, 8, .sync = "reserved");
        uint32_t free = (uint32_t)xccl_load(freed, 8, .sync = "freed");
        if ((int32_t)(next - free) >= (int32_t)slots) {
            xccl_poll_ne(freed, free, 8, -1, .sync = "slot free");
            continue;
        }
        if ((uint32_t)xccl_compare_swap(reserved, next, (int64_t)(next + 1)) == next) return next;
    }
}
XCCL_KERNEL void produce(int64_t ring, int64_t marks, int64_t reserved, int64_t freed, int64_t slots,
                         int64_t messages) {
    for (int64_t i = 0; i < messages; i++) {
        uint32_t number = taken(reserved, freed, (uint32_t)slots);
        xccl_put(ring + number % (uint32_t)slots * 32, number + 1, 0, 0, 0);
        xccl_fence(.sync = "message before mark");
        xccl_put(marks + number % (uint32_t)slots * 32, (int64_t)number + 1, 0, 0, 0, .sync = "mark");
    }
}
XCCL_KERNEL void consume(int64_t out, int64_t ring, int64_t marks, int64_t freed, int64_t slots, int64_t messages) {
    for (int64_t i = 0; i < messages; i++) {
        xccl_poll_ge(marks + i % slots * 32, i + 1, 8, -1, .sync = "mark in");
        int64_t number = xccl_load(ring + i % slots * 32, 8);
        xccl_store(out + i * 8, number, 8);
        xccl_store(freed, i + 1, 8, .sync = "slot given back");
    }
}
"""


def taken(reserved, freed, slots):
    """Return the number of a message whose slot is free, which no other producer has."""
    mine = -1
    while mine < 0:
        number = yield lang.load(reserved, sync="reserved")
        free = yield lang.load(freed, sync="freed")
        if number - free >= slots:
            yield lang.poll_ne(freed, free, sync="slot free")
        else:
            old = yield lang.compare_swap(reserved, number, number + 1)
            if old == number:
                mine = number
    return mine


@lang.kernel
def produce(ring, marks, reserved, freed, slots, messages):
    """Put messages into slots of a ring, each with a mark."""
    for _ in range(messages):
        number = yield from taken(reserved, freed, slots)
        yield lang.put(ring + number % slots * 32, number + 1)
        yield lang.fence(sync="message before mark")
        yield lang.put(marks + number % slots * 32, number + 1, sync="mark")


@lang.kernel
def consume(out, ring, marks, freed, slots, messages):
    """Read them in order of their numbers."""
    for i in range(messages):
        yield lang.poll_ge(marks + i % slots * 32, i + 1, sync="mark in")
        number = yield lang.load(ring + i % slots * 32)
        yield lang.store(out + i * 8, number)
        yield lang.store(freed, i + 1, sync="slot given back")


@dataclass(frozen=True)
class Ring(Case):
    """A ring whose slots producers reserve by compare and swap."""

    producers: int = size(2, "Dies that send.")
    messages: int = size(2, "Messages of each.")
    slots: int = size(2, "Slots of the ring.")
    kernels: ClassVar[tuple[lang.Kernel, lang.Kernel]] = (produce, consume)

    def lay_out(self, bench: Bench) -> None:
        """Everything but the producers is on the last die."""
        n, total = self.producers, self.producers * self.messages
        regions = Regions(n + 1)
        ring, marks = regions.managed("slot", 32, self.slots), regions.meta("mark", 32, self.slots)
        reserved, freed = regions.meta("reserved"), regions.meta("freed")
        pod = bench.pod(regions.tight_pod(app_bytes=8 * total, ub_bytes=32))
        regions.place(bench, pod)
        out = bench.wanted(n, np.arange(1, total + 1), "out", owners=f"die{n}")
        known: dict[str, Any] = {"ring": ring.at(n), "marks": marks.at(n), "freed": freed.at(n), "slots": self.slots}
        grants = [ring.grant(n, "w"), marks.grant(n, "w"), reserved.grant(n, "rw"), freed.grant(n, "r")]
        for me in range(n):
            args = {**known, "reserved": reserved.at(n), "messages": self.messages}
            pod.launch(self.kernels[0], me, [0], args, grants)
        grants = [pod.grant(out, "w"), ring.grant(n, "r"), marks.grant(n, "r"), freed.grant(n, "w")]
        pod.launch(self.kernels[1], n, [0], {**known, "out": out.address, "messages": total}, grants)


LOOK = """
XCCL_KERNEL void look(int64_t words, int64_t done) {
    for (int64_t i = 0; i < 2; i++)
        for (;;) {
            int64_t a = xccl_load(words, 8, .sync = "w"), b = xccl_load(words + 32, 8, .sync = "w");
            int64_t c = xccl_load(words + 64, 8, .sync = "w"), d = xccl_load(words + 96, 8, .sync = "w");
            int64_t e = xccl_load(words, 8, .sync = "w"), f = xccl_load(words + 32, 8, .sync = "w");
            int64_t g = xccl_load(words + 64, 8, .sync = "w"), h = xccl_load(words + 96, 8, .sync = "w");
            if (a == e && b == f && c == g && d == h && a + b + c + d > i) break;
            xccl_quiet();
        }
    xccl_store(done, 1, 8);
}
XCCL_KERNEL void tell(int64_t word) { xccl_store(word, 1, 8, .sync = "w"); }
"""
"""More values at a time than there are registers."""


@lang.kernel
def look(words, done):
    """Read four words twice, until both are alike, and do so again."""
    for i in range(2):
        alike = 0
        while alike == 0:
            a = yield lang.load(words, sync="w")
            b = yield lang.load(words + 32, sync="w")
            c = yield lang.load(words + 64, sync="w")
            d = yield lang.load(words + 96, sync="w")
            e = yield lang.load(words, sync="w")
            f = yield lang.load(words + 32, sync="w")
            g = yield lang.load(words + 64, sync="w")
            h = yield lang.load(words + 96, sync="w")
            if a == e and b == f and c == g and d == h and a + b + c + d > i:
                alike = 1
            else:
                yield lang.quiet()
    yield lang.store(done, 1)


@lang.kernel
def tell(word):
    """Set a word."""
    yield lang.store(word, 1, sync="w")


@dataclass(frozen=True)
class Look(Case):
    """One die reads words that the others set."""

    kernels: ClassVar[tuple[lang.Kernel, lang.Kernel]] = (look, tell)

    def lay_out(self, bench: Bench) -> None:
        """Four words on the last die, of which three are set."""
        regions = Regions(4)
        words, done = regions.meta("word", 32, 4), regions.meta("done")
        pod = bench.pod(regions.tight_pod(app_bytes=64, ub_bytes=32))
        regions.place(bench, pod)
        grants = [words.grant(3, "r"), done.grant(3, "w")]
        pod.launch(self.kernels[0], 3, [0], {"words": words.at(3), "done": done.at(3)}, grants)
        for die in range(3):
            pod.launch(self.kernels[1], die, [0], {"word": words.at(3) + 32 * die}, [words.grant(3, "w")])


@needs_compiler
@needs_x86
def test_a_slot_that_is_dead_makes_no_states(tmp_path: Path) -> None:
    """A kernel whose values do not fit its registers has as many states as the Python one."""
    file = tmp_path / "look.c"
    file.write_text(f'#include "xccl_emu.h"\n{LOOK}')
    kernels = (c_kernel(file, "look"), c_kernel(file, "tell"))
    found, wanted = (check.check(kind()) for kind in (type("LookInC", (Look,), {"kernels": kernels}), Look))
    assert (found.verdict, found.states, found.transitions) == (wanted.verdict, wanted.states, wanted.transitions)
    assert found.verdict == verdict.VERIFIED


@needs_compiler
@needs_x86
@pytest.mark.parametrize("order", ["sc", "fifo", "relaxed", "unordered"])
@pytest.mark.parametrize("sizes", [{}, {"producers": 3, "messages": 1}], ids=["two producers", "three"])
def test_a_value_that_is_dead_makes_no_states(sizes: dict[str, int], order: str, tmp_path: Path) -> None:
    """Producers whose compare and swap fails forget what they have read: as many states as the Python kernels have."""
    file = tmp_path / "ring.c"
    file.write_text(f'#include "xccl_emu.h"\n{RING}')
    kernels = (c_kernel(file, "produce"), c_kernel(file, "consume"))
    found = check.check(type("RingInC", (Ring,), {"kernels": kernels})(**sizes), order=order)
    wanted = check.check(Ring(**sizes), order=order)
    assert (found.verdict, found.states, found.transitions) == (wanted.verdict, wanted.states, wanted.transitions)
    assert found.verdict == verdict.VERIFIED or order == "unordered"
