"""Drives the undecorated generator of a kernel through the interface of a step function, for a debugger."""

from collections.abc import Generator, MutableSequence
from typing import Any

from xccl_emu.errors import KernelError
from xccl_emu.lang import abi
from xccl_emu.lang._blocks import Site
from xccl_emu.lang.requests import OP_RETURN

Place = tuple[str, int, tuple[tuple[str, int], ...]]


def place(generator: Generator[Any, Any, Any]) -> Place:
    """Return file, line and callers of the yield at which a generator is suspended."""
    lines: list[tuple[str, int]] = []
    inner: Any = generator
    while inner is not None and inner.gi_frame is not None:
        lines.append((inner.gi_frame.f_code.co_filename, inner.gi_frame.f_lineno))
        inner = inner.gi_yieldfrom
    return (*lines[-1], tuple(lines[:-1]))


class PlainStep:
    """A step function over plain generators, one for each base; their locals are not in the state.

    So it can neither go on from a snapshot nor be undone; it follows one run from launch to return.
    """

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel
        self._sites = {(s.file, s.line, s.callers): number for number, s in enumerate(kernel.sites)}
        self._running: dict[int, Generator[Any, int, Any]] = {}

    def __call__(self, state: MutableSequence[int], base: int) -> int:
        """Run the kernel of the core at ``base`` to its next request; return the operation.

        Raises:
            KernelError: if the core is under way but not in this process, or yields something that is no request.
        """
        base = int(base)
        granted, pc = int(state[base + abi.RESULT]), int(state[base + abi.PC])
        state[base + abi.RESULT] = 0
        if pc == abi.DONE:
            return self._request(state, base, (OP_RETURN, 0, 0, 0, 0, 0, 0), 0)
        try:
            if pc == 0:
                first = base + abi.REGISTERS
                words = [int(state[first + i]) for i in range(len(self._kernel.words))]
                self._running[base] = self._kernel.generator(*self._kernel.arguments(words))
                request = next(self._running[base])
            elif base in self._running:
                request = self._running[base].send(granted)
            else:
                raise KernelError(f"{self._kernel.name}: the plain form cannot go on from a snapshot (base {base})")
        except StopIteration as stop:
            return self._done(state, base, stop.value)
        site = self._sites[place(self._running[base])]
        state[base + abi.PC] = site + 1
        return self._request(state, base, request, site)

    def _done(self, state: MutableSequence[int], base: int, value: Any) -> int:
        del self._running[base]
        for i in range(len(self._kernel.words)):
            state[base + abi.REGISTERS + i] = 0
        state[base + abi.PC] = abi.DONE
        return self._request(state, base, (OP_RETURN, 0 if value is None else value, 0, 0, 0, 0, 0), 0)

    def _request(self, state: MutableSequence[int], base: int, request: Any, site: int) -> int:
        size = abi.REQUEST_WORDS - 1
        sizes = (size, abi.LONGEST_REQUEST_WORDS - 1)
        if not (isinstance(request, tuple) and len(request) in sizes and all(isinstance(w, int) for w in request)):
            where: Site | str = self._kernel.sites[site] if self._kernel.sites else self._kernel.name
            raise KernelError(f"{where}: a request is {size} integers, not {request!r}")
        for i, value in enumerate((*request[:size], site, *request[size:])):
            state[base + abi.REQUEST + i] = int(value)
        return int(request[0])
