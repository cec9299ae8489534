"""Kernels: generator functions whose yields are requests, lowered to step functions over flat registers.

Written straight through, a kernel reads like the protocol it implements; lowered, it is a function
``step(state, base)`` that runs one core to its next request and keeps everything in that core's words (`abi`).
"""

import functools
import inspect
from collections.abc import Callable, Generator, MutableSequence, Sequence
from types import FunctionType
from typing import Any, TypeAlias

from xccl_emu.base.errors import KernelError
from xccl_emu.lang import abi
from xccl_emu.lang._blocks import Builder, Site, kernel_words
from xccl_emu.lang._resolve import Decorated
from xccl_emu.lang._shape import KernelShape, build
from xccl_emu.lang._source import read
from xccl_emu.lang._text import kept, load, text, with_status
from xccl_emu.lang.requests import OP_RETURN, Request
from xccl_emu.lang.rights import Touch, Word, assembled, made_by_namedtuple, records_of, touches_of, words_of

__all__ = ["Kernel", "Requests", "Site", "Step", "kernel"]

Step: TypeAlias = Callable[[Any, int], int]
"""``step(state, base)`` with ``state`` an int64 array; returns the operation of the request it left there."""

Requests: TypeAlias = Generator[Request, int, None]
"""What a kernel returns, for type checkers: ``def send(slot: int) -> Requests``; annotations change nothing else."""


class Kernel(Decorated):
    """A kernel in all its forms; everything but the generator is made when it is first asked for.

    The constants and functions that a kernel refers to are read at that moment and are part of it from then on.
    """

    def __init__(self, generator: FunctionType, in_turn: "tuple[Kernel, ...]" = ()) -> None:
        if not isinstance(generator, FunctionType) or not inspect.isgeneratorfunction(generator):
            code = getattr(generator, "__code__", None)
            where = f"{code.co_filename}:{code.co_firstlineno}: " if code is not None else ""
            raise KernelError(f"{where}{generator!r} is not a generator function: a kernel contains at least one yield")
        self._generator: Any = generator
        self.in_turn = in_turn
        """The kernels that it runs one after the other, if it is a stream of launches (`in_turn`)."""
        self.name = generator.__name__
        self.params = tuple(inspect.signature(generator).parameters)
        functools.update_wrapper(self, generator)

    def __repr__(self) -> str:
        return f"<kernel {self.name}({', '.join(self.params)})>"

    def __call__(self, *arguments: Any, **named: Any) -> Generator[Request, int, Any]:
        """Return the plain generator, which yields requests as tuples and takes what is granted by ``send``."""
        running: Generator[Request, int, Any] = self.generator(*arguments, **named)
        return running

    @functools.cached_property
    def records(self) -> dict[str, type]:
        """The NamedTuple class of each parameter that is a record."""
        return records_of(self._generator)

    @functools.cached_property
    def takes(self) -> dict[str, type]:
        """Return what each given record must be an instance of: its class, or the one that it derives from."""
        return {name: made_by_namedtuple(kind) for name, kind in self.records.items()}

    @functools.cached_property
    def words(self) -> tuple[tuple[str, str | None], ...]:
        """The integers that a launch gives: parameter, and field if that is a record."""
        return tuple(words_of(self.params, self.records))

    @functools.cached_property
    def touches(self) -> dict[Word, tuple[Touch, ...]]:
        """Return what it touches, as its annotations say (`lang.rights`)."""
        return touches_of(self._generator, self.records, self.words)

    def arguments(self, words: Sequence[int]) -> list[Any]:
        """The arguments of the plain generator, from one integer for each of `words`."""
        return assembled(self.params, self.records, words)

    @functools.cached_property
    def _lowered(self) -> tuple[Builder, KernelShape]:
        try:
            return self._lower()
        except RecursionError as error:
            code = self._generator.__code__
            where = f"{code.co_filename}:{code.co_firstlineno}"
            reason = f"{self.name!r} has an expression that is nested too deeply: take it apart"
            raise KernelError(f"{where}: {reason}") from error

    def _lower(self) -> tuple[Builder, KernelShape]:
        source = read(self._generator)
        a = source.tree.args
        if a.defaults or a.kwonlyargs or a.posonlyargs:
            raise source.refuse(source.tree, "a kernel's own parameters are plain: no defaults, no `*` or `/`")
        builder = build(source)
        return builder, KernelShape(builder, source)

    @functools.cached_property
    def source(self) -> str:
        """The text of the lowered function and of every function that it calls."""
        builder, shape = self._lowered
        return text(shape, builder.functions.trees.values(), f"step_{self.name}")

    @functools.cached_property
    def sites(self) -> tuple[Site, ...]:
        """The place of each request, indexed by the last word of a request."""
        return tuple(self._lowered[0].sites)

    @functools.cached_property
    def places(self) -> tuple[Site, ...]:
        """The statements whose arithmetic may fail, by the numbers that a step function knows them by."""
        return tuple(self._lowered[0].places)

    @functools.cached_property
    def registers(self) -> tuple[str, ...]:
        """The local that each register holds: the parameters, then the locals that live across a yield."""
        words = kernel_words(read(self._generator))
        return tuple(words.get(name, name) for name in self._lowered[1].registers)

    @functools.cached_property
    def n_registers(self) -> int:
        """Return how many registers the kernel needs."""
        return len(self._lowered[1].registers)

    @functools.cached_property
    def lowered(self) -> Step:
        """The lowered function in plain Python, with integers of 64 bits that wrap around."""
        return load(self.source, f"step_{self.name}")

    @functools.cached_property
    def step(self) -> Step:
        """The lowered function as machine code, or in plain Python where NUMBA_DISABLE_JIT is set.

        Raises:
            KernelError: if a value in the kernel is not an integer.
        """
        from numba import config

        if config.DISABLE_JIT:
            return self.lowered
        from xccl_emu.lang._llvm import STEP, instructions
        from xccl_emu.lang._machine_code import MachineCode

        builder, shape = self._lowered
        try:
            module = instructions(shape, builder.functions.trees)
        except TypeError as error:
            code = self.generator.__code__
            where = f"{code.co_filename}:{code.co_firstlineno}"
            reason = f"{self.name!r} does not compile; every value must be an integer"
            raise KernelError(f"{where}: {reason}: {error}") from error
        return MachineCode(self.name, module, STEP)

    @functools.cached_property
    def entry(self) -> Step:
        """Return what the machine calls: `step`, which returns a status where the kernel's arithmetic fails (`abi`)."""
        return with_status(self.step) if self.step is self.lowered else self.step

    def plain_step(self) -> Step:
        """Return a new step function that drives the undecorated generator, for a debugger (`PlainStep`)."""
        return PlainStep(self)


def kernel(generator: Callable[..., Generator[Request, int, Any]]) -> Kernel:
    """Make a kernel of a generator function.

    Raises:
        KernelError: at once if it is not a generator function; on first use if it cannot be lowered.
    """
    return Kernel(generator)  # type: ignore[arg-type]


def kernel_of(name: str, text: str, scope: dict[str, Any], in_turn: tuple[Kernel, ...] = ()) -> Kernel:
    """Make a kernel of the text of a generator function, which refers to what is in ``scope``."""
    exec(compile(text, kept(text, name), "exec"), scope)
    return Kernel(scope[name], in_turn)


# ---- the undecorated generator, for a debugger

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
