"""Images of kernels in C: what is in them, and how they come into this process.

Every image has an address of its own, which follows from its content, and all run on one stack at `TOP`.  So what a
core keeps of its stack, return addresses too, is the same in every process.
"""

import ctypes
import functools
import hashlib
import mmap
import signal
import struct
from dataclasses import dataclass
from typing import Any, TypeVar

from xccl_emu.base.errors import ConfigError, KernelError

OPEN_BYTES = 1 << 10
"""So much of the stack may be used when a run begins; pages below are opened as kernels touch them.  What is open is
zeroed before each step."""
TOP = 0x6000_0010_0000 + OPEN_BYTES
"""Where the stack begins, downwards; from here on upwards is what a step has to know (`runtime.c`)."""
ROOM_BYTES = (1 << 18) + OPEN_BYTES
"""The stack that a kernel has between two requests; what is live at one must fit the core's registers."""
GUARD_BYTES = 1 << 19
"""Below it, where nothing may be touched."""
_CONTROL_BYTES = 1 << 12
_SIGNAL_STACK_BYTES = 1 << 16
_LOWEST_WORD, _PROTECT_WORD, _SET_DEFAULT_WORD, _PREVIOUS_WORD = range(7, 11)
"""Offsets of the words at `TOP`, as `struct control` has them."""

_FIRST, _SLOT_BYTES, _SLOTS = 0x6100_0000_0000, 1 << 22, 1 << 20
SHARED_DYNAMIC = "xccl_shared_dynamic"
"""Name of all shared variables whose size a launch says: `image.ld` has it where one is used."""
CONSTANTS = _FIRST + _SLOT_BYTES * _SLOTS
"""Where `constant` begins to put bytes."""
_Record = TypeVar("_Record", bound=ctypes.Structure)
READ_WRITE = mmap.PROT_READ | mmap.PROT_WRITE
_NO_RIGHTS, _FIXED_NOREPLACE, _ON_STACK, _SIGINFO = 0, 0x100000, 0x08000000, 4
_SIGNALS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP)


def address_of(digest: str) -> int:
    """The address of an image, from hexadecimal digits of its content."""
    return _FIRST + int(digest[:12], 16) % _SLOTS * _SLOT_BYTES


class _Section(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("name", "kind")),
        *((name, ctypes.c_uint64) for name in ("flags", "address", "offset", "nbytes")),
        *((name, ctypes.c_uint32) for name in ("link", "info")), ("align", ctypes.c_uint64), ("each", ctypes.c_uint64),
    )  # fmt: skip


class _Action(ctypes.Structure):
    """A ``struct sigaction`` of Linux's C libraries."""

    _fields_ = (
        ("handler", ctypes.c_void_p), ("mask", ctypes.c_ubyte * 128), ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )  # fmt: skip


class _Stack(ctypes.Structure):
    _fields_ = (("at", ctypes.c_void_p), ("flags", ctypes.c_int), ("nbytes", ctypes.c_size_t))


class _SiteRecord(ctypes.Structure):
    """A ``struct xccl_site``."""

    _fields_ = (
        ("number", ctypes.c_int64), ("operation", ctypes.c_char_p), ("file", ctypes.c_char_p), ("line", ctypes.c_int64),
        ("sync", ctypes.c_char_p), ("step", ctypes.c_int64), ("order", ctypes.c_char_p), ("caller", ctypes.c_char_p),
    )  # fmt: skip


class _LineRecord(ctypes.Structure):
    """A ``struct xccl_line``."""

    _fields_ = (("address", ctypes.c_uint64), ("file", ctypes.c_char_p), ("line", ctypes.c_int64))


@dataclass(frozen=True)
class ForeignRequest:
    """A request as the source has it."""

    operation: str
    file: str
    line: int
    sync: str
    step: int
    order: str
    caller: str
    """File and line from which its function is called, if that is known."""


class Image:
    """What a linked file holds."""

    def __init__(self, elf: bytes) -> None:
        first, n = struct.unpack_from("<Q", elf, 40)[0], struct.unpack_from("<H", elf, 60)[0]
        size = ctypes.sizeof(_Section)
        self._elf = elf
        self._sections = [_Section.from_buffer_copy(elf, first + i * size) for i in range(n)]
        self._sizes: dict[str, int] = {}
        self.symbols = self._read_symbols()
        """The address of each symbol."""

    def _read_symbols(self) -> dict[str, int]:
        addresses = {}
        table = next(section for section in self._sections if section.kind == 2)  # SHT_SYMTAB
        for at in range(table.offset, table.offset + table.nbytes, 24):
            name_at, _, _, _, address, nbytes = struct.unpack_from("<IBBHQQ", self._elf, at)
            start = self._sections[table.link].offset + name_at
            name = self._elf[start : self._elf.index(b"\0", start)].decode()
            addresses[name], self._sizes[name] = address, nbytes
        return addresses

    @property
    def has_data(self) -> bool:
        """Return whether there is anything that could be written."""
        return self.symbols["xccl_data_end"] > self.symbols["xccl_data_begin"]

    @property
    def shared_bytes(self) -> int:
        """Bytes of what the threads of a block share, up to where that begins whose size a launch says."""
        end = self.symbols.get(SHARED_DYNAMIC, self.symbols["xccl_shared_end"])
        return end - self.symbols["xccl_shared_begin"]

    @property
    def is_shared_open(self) -> bool:
        """Return whether a launch says how much more they share."""
        return SHARED_DYNAMIC in self.symbols

    @property
    def writable(self) -> list[str]:
        """The names of variables that could be written."""
        begin, end = self.symbols["xccl_data_begin"], self.symbols["xccl_data_end"]
        return [name for name, at in self.symbols.items() if begin <= at < end and self._sizes[name]]

    def load(self) -> None:
        """Bring the code into this process, where it stays; nothing if it is there.

        Raises:
            KernelError: if its address is taken.
        """
        start, offset = next(
            (struct.unpack_from("<Q", self._elf, at + 16)[0], at)
            for at in _program_headers(self._elf)
            if struct.unpack_from("<I", self._elf, at)[0] == 1  # PT_LOAD
        )
        first, nbytes = (struct.unpack_from("<Q", self._elf, offset + word)[0] for word in (8, 32))
        code = self._elf[first : first + nbytes]
        if _loaded.get(start) == code:
            return
        _map(start, nbytes)
        ctypes.memmove(start, code, nbytes)
        for number, record in enumerate(self._records()):
            record.number = number
        _checked("mprotect", _libc().mprotect(_pointer(start), _pages(nbytes), mmap.PROT_READ | mmap.PROT_EXEC))
        _loaded[start] = code
        _guarded(self.symbols["xccl_on_fault"])

    def _records(self) -> list[_SiteRecord]:
        """The records of the loaded image, in order of the source."""
        return sorted(self._held("sites", _SiteRecord), key=lambda record: int(record.number))

    def _held(self, name: str, kind: type[_Record]) -> list[_Record]:
        begin, end = self.symbols[f"xccl_{name}_begin"], self.symbols[f"xccl_{name}_end"]
        return [kind.from_address(at) for at in range(begin, end, ctypes.sizeof(kind))]

    def lines(self) -> list[tuple[str, int]]:
        """File and line of each piece of a loaded image, by number."""
        return [(_text(record.file), int(record.line)) for record in self._held("lines", _LineRecord)]

    def places(self) -> list[ForeignRequest]:
        """The requests of a loaded image, by number."""
        return [
            ForeignRequest(
                operation=_text(r.operation), file=_text(r.file), line=int(r.line), sync=_text(r.sync),
                step=int(r.step), order=_text(r.order), caller=_text(r.caller),
            )
            for r in self._records()
        ]


_loaded: dict[int, bytes] = {}


def _text(held: bytes | None) -> str:
    return (held or b"").decode(errors="replace")


def _program_headers(elf: bytes) -> range:
    first, n = struct.unpack_from("<Q", elf, 32)[0], struct.unpack_from("<H", elf, 56)[0]
    return range(first, first + 56 * n, 56)


# ---- memory and signals of this process


@functools.cache
def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    return libc


def _pointer(address: int) -> ctypes.c_void_p:
    return ctypes.c_void_p(address)


def _pages(nbytes: int) -> ctypes.c_size_t:
    return ctypes.c_size_t(-(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE)


def _checked(what: str, failed: int) -> None:
    if failed:
        raise KernelError(f"{what} failed with errno {ctypes.get_errno()}: a kernel in C cannot be brought in")


def _map(address: int, nbytes: int) -> None:
    how = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _FIXED_NOREPLACE
    got = _libc().mmap(_pointer(address), _pages(nbytes), READ_WRITE, how, -1, ctypes.c_int64(0))
    _checked(f"a mapping at {address:#x}", got != address)


def constant(data: bytes) -> int:
    """The address of bytes that kernels may read by pointers and nobody can write, the same in every process.

    Raises ConfigError for more than 4 MiB, or none, and KernelError if the address is taken.
    """
    if not 0 < len(data) <= _SLOT_BYTES:
        raise ConfigError(f"{len(data)} bytes of constants: must be 1 to {_SLOT_BYTES}")
    address = CONSTANTS + address_of(hashlib.sha256(data).hexdigest()) - _FIRST
    if _loaded.get(address) != data:
        _map(address, len(data))
        ctypes.memmove(address, data, len(data))
        _checked("mprotect", _libc().mprotect(_pointer(address), _pages(len(data)), mmap.PROT_READ))
        _loaded[address] = data
    return address


def _guarded(handler: int) -> None:
    """Make the stack, and have signals end the step that raises them; once, with the handler of the first image."""
    if _handlers:
        return
    _map(TOP - ROOM_BYTES - GUARD_BYTES, GUARD_BYTES + ROOM_BYTES + _CONTROL_BYTES + _SIGNAL_STACK_BYTES)
    guard = _libc().mprotect(_pointer(TOP - ROOM_BYTES - GUARD_BYTES), _pages(GUARD_BYTES), _NO_RIGHTS)
    _checked("mprotect", guard)
    words = _control()
    for word, function in ((_PROTECT_WORD, _libc().mprotect), (_SET_DEFAULT_WORD, _libc().signal)):
        words[word] = ctypes.cast(function, ctypes.c_void_p).value or 0
    words[_LOWEST_WORD] = TOP - ROOM_BYTES
    for number in _SIGNALS:
        before, action = _Action(), _Action(handler=handler, flags=_ON_STACK | _SIGINFO)
        _checked("sigaction", _libc().sigaction(int(number), ctypes.byref(action), ctypes.byref(before)))
        words[_PREVIOUS_WORD + number] = before.handler or 0
    _handlers.append(handler)


def _control() -> Any:
    return (ctypes.c_int64 * (_PREVIOUS_WORD + 65)).from_address(TOP)


def begin() -> None:
    """Before steps of a loaded image are called in this thread: its signals have a stack, the kernels' one is clean."""
    stack, lowest = _Stack(TOP + _CONTROL_BYTES, 0, _SIGNAL_STACK_BYTES), TOP - OPEN_BYTES
    _checked("sigaltstack", _libc().sigaltstack(ctypes.byref(stack), None))
    if (used := _control()[_LOWEST_WORD]) < lowest:
        ctypes.memset(used, 0, lowest - used)
        _checked("mprotect", _libc().mprotect(_pointer(used), _pages(lowest - used), _NO_RIGHTS))
        _control()[_LOWEST_WORD] = lowest


_handlers: list[int] = []
