"""Lines between ranks and the server: messages of JSON over a Unix socket, arrays in memory that both map.

The socket has a name without a file, and the memory a file without a name, so whatever is killed leaves neither.  The
memory is sealed so that it cannot shrink while the other end reads it.
"""

import fcntl
import json
import math
import mmap
import os
import socket
import struct
import sys
from collections.abc import Mapping
from typing import Any

import ml_dtypes  # noqa: F401 (its types are known to NumPy by name from here on)
import numpy as np
from numpy.typing import NDArray

from xccl_emu.base.errors import ConfigError, UnfinishedError

ADDRESS = "XCCL_EMU_TORCH"
"""Environment variable by which a process knows the server."""
POLICY = "XCCL_EMU_TORCH_POLICY"
"""Environment variable: by which policy calls are run."""
_MESSAGE_BYTES = 1 << 17
_TEXT_MOST = 1 << 13
"""Characters of a text of a message, so that it fits."""
_ALIGN, _MEMORY_LEAST = 64, 1 << 20

Arrays = dict[str, NDArray[Any]]
Message = dict[str, Any]


def listen() -> tuple[socket.socket, str]:
    """A socket that ranks may connect to, and its name; ConfigError where there are no such sockets."""
    if sys.platform != "linux":
        raise ConfigError("platform", sys.platform, "xccl_emu.doors.torch needs Linux (abstract Unix sockets)")
    name = f"xccl-emu-{os.getpid()}-{os.urandom(8).hex()}"
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listening.bind("\0" + name)
    listening.listen(1024)
    return listening, name


class Line:
    """One end of a line; each end writes into the shared memory when it is its turn to speak."""

    def __init__(self, sock: socket.socket, memory: int) -> None:
        self.socket, self._memory = sock, memory
        self._mapped: mmap.mmap | None = None

    @classmethod
    def connect(cls, hello: Message) -> "Line":
        """The end of a rank; ConfigError if there is no server, or it does not answer."""
        name = os.environ.get(ADDRESS)
        if not name:
            raise ConfigError(f"{ADDRESS} is not set: start the script by python -m xccl_emu.doors.torch SCRIPT")
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            sock.connect("\0" + name)
        except OSError as error:
            raise ConfigError(ADDRESS, name, f"no server is there ({error})") from error
        memory = os.memfd_create("xccl-emu", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        socket.send_fds(sock, [json.dumps(hello).encode()], [memory])
        return cls(sock, memory)

    @classmethod
    def greet(cls, sock: socket.socket) -> "tuple[Line, Message] | None":
        """The end of the server, once a rank has said something; and what that was.

        None for one that is gone, is another user's, or does not begin as `connect` does.
        """
        uid = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
        said, fds = b"", list[int]()
        try:
            if uid == os.getuid():
                said, fds, _, _ = socket.recv_fds(sock, _MESSAGE_BYTES, 1)
            hello = json.loads(said)
            sealed = bool(fds) and fcntl.fcntl(fds[0], fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK
            if sealed and isinstance(hello, dict):
                sock.setblocking(False)  # a rank that does not listen keeps nobody waiting
                return cls(sock, fds[0]), hello
        except (OSError, ValueError, RecursionError):
            pass
        for each in fds:
            os.close(each)
        sock.close()
        return None

    def send(self, message: Message, arrays: Mapping[str, NDArray[Any]] | None = None) -> None:
        """Say something; what the other end put into the memory before is gone."""
        parts, at = [], 0
        for name, array in (arrays or {}).items():
            parts.append((name, array.dtype.name, array.shape, at))
            at += -(-array.nbytes // _ALIGN) * _ALIGN
        memory = self._map(at)
        for (_, _, shape, start), array in zip(parts, (arrays or {}).values(), strict=True):
            np.frombuffer(memory, array.dtype, array.size, start).reshape(shape)[...] = array
        cut = {name: value[:_TEXT_MOST] if isinstance(value, str) else value for name, value in message.items()}
        try:
            self.socket.send(json.dumps({**cut, "arrays": parts}).encode())
        except OSError as error:
            raise UnfinishedError(f"the other end of the line is gone ({error})") from error

    def receive(self) -> tuple[Message, Arrays] | None:
        """Return what the other end sent, with views into memory, valid until this end sends; None if it is gone.

        Raises ConfigError for what is no message.
        """
        try:
            said = self.socket.recv(_MESSAGE_BYTES)
        except OSError:
            said = b""
        if not said:
            return None
        try:
            message = json.loads(said)
            arrays = {str(name): self._array(*part) for name, *part in message.pop("arrays")}
        except (TypeError, ValueError, LookupError, AttributeError, OverflowError, OSError, RecursionError) as error:
            raise ConfigError(f"message: {said[:40]!r} is none ({type(error).__name__}: {error})") from error
        return message, arrays

    def _array(self, dtype: str, shape: list[int], start: int) -> NDArray[Any]:
        """An array in the memory; ValueError for one that is not all there."""
        whole = all(type(size) is int and size >= 0 for size in (*shape, start))
        if not whole or start % _ALIGN or not dtype.isidentifier():
            raise ValueError(f"{dtype} {shape} at {start}")
        kind, count = np.dtype(dtype), math.prod(shape)
        end = start + count * kind.itemsize
        if end > os.fstat(self._memory).st_size:
            raise ValueError(f"{dtype} {shape} at {start} ends after the memory")
        return np.frombuffer(self._map(end), kind, count, start).reshape(shape)

    def close(self) -> None:
        """Close it; the other end sees that, and what was received is gone when nobody looks at it."""
        self.socket.close()
        self._mapped = None  # which has the memory open, too
        if self._memory >= 0:
            os.close(self._memory)
            self._memory = -1

    def _map(self, nbytes: int) -> Any:
        """The shared memory, with at least this many bytes."""
        size = os.fstat(self._memory).st_size
        if size < max(nbytes, _MEMORY_LEAST):
            size = max(nbytes, _MEMORY_LEAST)
            os.ftruncate(self._memory, size)
        if self._mapped is None or len(self._mapped) < nbytes:
            self._mapped = mmap.mmap(self._memory, size)
        return self._mapped
