"""Kernels: generator functions whose yields are requests, lowered to step functions over flat registers.

Written straight through, a kernel reads like the protocol it implements; lowered, it is a function
``step(state, base)`` that runs one core to its next request and keeps everything in that core's words (`abi`).
"""

import functools
import inspect
from collections.abc import Callable, Generator, Sequence
from types import FunctionType
from typing import Any, TypeAlias

from xccl_emu.errors import KernelError
from xccl_emu.lang._blocks import Builder, Site, kernel_words
from xccl_emu.lang._plain import PlainStep
from xccl_emu.lang._records import assembled, records_of, words_of
from xccl_emu.lang._resolve import Decorated
from xccl_emu.lang._shape import KernelShape, build
from xccl_emu.lang._source import read
from xccl_emu.lang._text import load, text, with_status
from xccl_emu.lang.requests import Request
from xccl_emu.lang.rights import Touch, Word, touches_of

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

    @property
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
