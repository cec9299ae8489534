"""A server in a thread, and what tests ask of it through lines of two ranks."""

import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from xccl_emu.doors.torch.client import Rank
from xccl_emu.doors.torch.pods import Settings
from xccl_emu.doors.torch.server import Server
from xccl_emu.doors.torch.wire import ADDRESS, listen

SHAPE = {"hidden": 32, "top_k": 1, "tokens_max": 2, "local_experts": 1, "quantized": False}
NORMAL = {"hidden": 32, "top_k": 1, "tokens_max": 2, "local_experts": 1}


@dataclass
class Here:
    """A server of this process."""

    address: str
    made: list[Rank] = field(default_factory=list)
    counted: dict[str, int] = field(default_factory=dict)
    """What it has counted, once it has ended."""

    def ranks(self, group: str) -> list[Rank]:
        """Two ranks of a group."""
        os.environ[ADDRESS] = self.address
        ranks = [Rank(group, rank, 2) for rank in range(2)]
        self.made += ranks
        return ranks


@contextlib.contextmanager
def served(monkeypatch: pytest.MonkeyPatch, **settings: Any) -> Iterator[Here]:
    """A server in a thread of this process."""
    listening, address = listen()
    life, other = socket.socketpair()
    here = Here(address)
    monkeypatch.setenv(ADDRESS, address)
    thread = threading.Thread(target=Server(listening, other, Settings(cores=1, **settings)).serve, daemon=True)
    thread.start()
    with listening, life, other:
        try:
            yield here
        finally:
            for rank in here.made:
                rank.close()
        life.shutdown(socket.SHUT_WR)
        life.settimeout(60)
        here.counted.update(json.loads(life.recv(1 << 16)))
        thread.join(timeout=10)


def tokens(rank: int, change: int = 0) -> dict[str, Any]:
    """Two tokens of a rank, one for each rank; with ``change`` both go to the other."""
    x = np.random.default_rng(rank).normal(size=(2, 32)).astype(ml_dtypes.bfloat16)
    return {"x": x, "topk": np.array([[rank ^ change], [1 - rank]], np.int32)}


def weighted(rows: Any, topk: Any) -> dict[str, Any]:
    """What combine is given: rows as they came, with the weight 1."""
    return {"y": np.array(rows), "topk": topk, "weights": np.ones((2, 1), np.float32)}


def together(ranks: list[Rank], call: Callable[[Rank], Any]) -> list[Any]:
    """What a call of all ranks gives each, or raises in it."""

    def one(rank: Rank) -> Any:
        try:
            return call(rank)
        except Exception as error:
            return error

    with ThreadPoolExecutor(len(ranks)) as pool:
        return list(pool.map(one, ranks))
