"""Lines between ranks and the server: messages of JSON over a Unix socket, arrays in memory that both map.

The socket has a name without a file, and the memory a file without a name, so whatever is killed leaves neither.
"""

import json
import mmap
import os
import socket
import struct
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
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
_TEXT_MOST = 1 << 14
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
        shared = Path("/dev/shm")
        with tempfile.TemporaryFile(dir=shared if shared.is_dir() else None) as file:
            memory = os.dup(file.fileno())
        socket.send_fds(sock, [json.dumps(hello).encode()], [memory])
        return cls(sock, memory)

    @classmethod
    def accept(cls, listening: socket.socket) -> "tuple[Line, Message] | None":
        """The end of the server, and what the rank said; None for one that is gone, or another user's."""
        sock, _ = listening.accept()
        uid = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
        said, fds, _, _ = socket.recv_fds(sock, _MESSAGE_BYTES, 1) if uid == os.getuid() else (b"", [], 0, None)
        if not said or not fds:
            sock.close()
            return None
        return cls(sock, fds[0]), json.loads(said)

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
            self.socket.send(json.dumps({**cut, "arrays": parts}, ensure_ascii=False).encode())
        except OSError as error:
            raise UnfinishedError(f"the other end of the line is gone ({error})") from error

    def receive(self) -> tuple[Message, Arrays] | None:
        """Return what the other end sent, with views into memory, valid until this end sends; None if it is gone."""
        try:
            said = self.socket.recv(_MESSAGE_BYTES)
        except OSError:
            said = b""
        if not said:
            return None
        message = json.loads(said)
        arrays = {}
        for name, dtype, shape, start in message.pop("arrays"):
            count, kind = int(np.prod(shape, dtype=np.int64)), np.dtype(dtype)
            memory = self._map(start + count * kind.itemsize)
            arrays[name] = np.frombuffer(memory, kind, count, start).reshape(shape)
        return message, arrays

    def close(self) -> None:
        """Close it; the other end sees that."""
        self.socket.close()
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
