"""Several kernels that one core runs one after the other, with arguments from a table: a stream of launches."""

import functools
from collections.abc import Sequence

from xccl_emu.lang import foreign
from xccl_emu.lang.kernel import Kernel, kernel_of
from xccl_emu.lang.requests import arrive, atomic_add, await_group, load, poll_ge, quiet

WORD_BYTES = 8
REQUESTS = (arrive, atomic_add, await_group, load, poll_ge, quiet)


@functools.lru_cache(maxsize=64)
def in_turn(kernels: tuple[Kernel, ...], counted: bool = False) -> Kernel:
    """A kernel ``(table, launches)`` that runs as many launches as the table has rows.

    A row is the number of a kernel and its `words`; all rows have as many words as the longest one (`row_words`).
    Where one kernel ends and the next one begins all that the core has issued is done and visible, as at a return, and
    so have all cores ended that are launched with it.

    ``counted``: a third parameter ``done`` is the address of a word in which all cores of a die count their launches,
    and the last word of a row says to how many it has to come before that launch begins.

    Raises KernelError, when it is used, if some of the kernels are in Python and some in C.
    """
    in_c = [kernel for kernel in kernels if isinstance(kernel, foreign.CKernel)]
    if len(in_c) == len(kernels):
        return in_c[0].before(tuple(in_c), counted)
    if counted:
        return _made(kernels, ", done", _AWAIT.format(last=WORD_BYTES * row_words(kernels)), _COUNT, WORD_BYTES)
    return _made(kernels, "", "", "", 0)


_AWAIT = """        before = yield load(table + {last})
        if before > 0:
            yield poll_ge(done, before)
"""
_COUNT = "        yield atomic_add(done, 1)\n"


def _made(kernels: tuple[Kernel, ...], more: str, first: str, last: str, last_bytes: int) -> Kernel:
    name = "_then_".join(kernel.name for kernel in kernels)
    lines = [f"def {name}(table, launches{more}):", f'    """Run the launches of a table: {name}."""']
    lines += ["    for number in range(launches):", "        if number > 0:", "            phase = yield arrive()"]
    lines += ["            yield await_group(phase)", *first.splitlines(), "        which = yield load(table)"]
    lines += [f"        a{i} = yield load(table + {WORD_BYTES * (i + 1)})" for i in range(row_words(kernels) - 1)]
    scope: dict[str, object] = {each.__name__: each for each in REQUESTS}
    scope["__name__"] = __name__
    for number, kernel in enumerate(kernels):
        scope[f"kernel_{number}"] = kernel
        scope |= {kind.__name__: kind for kind in kernel.records.values()}
        lines += [f"        if which == {number}:", _call(number, kernel)]
    step = WORD_BYTES * row_words(kernels) + last_bytes
    lines += ["        yield quiet()", *last.splitlines(), f"        table += {step}"]
    return kernel_of(name, "".join(f"{line}\n" for line in lines), scope, kernels)


def _call(number: int, kernel: Kernel) -> str:
    """The kernel, with its arguments."""
    given: dict[str, list[str]] = {}
    for i, (parameter, _) in enumerate(kernel.words):
        given.setdefault(parameter, []).append(f"a{i}")
    arguments = [
        f"{kernel.records[name].__name__}({', '.join(given[name])})" if name in kernel.records else given[name][0]
        for name in kernel.params
    ]
    return f"            yield from kernel_{number}({', '.join(arguments)})"


def row_words(kernels: Sequence[Kernel]) -> int:
    """Words of a row: the number of the kernel, and the most arguments that one of them takes."""
    return 1 + max(len(kernel.words) for kernel in kernels)
