"""A memory pool for users: blocks of their own are put, evicted to a second tier and got again."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xccl_emu.base.errors import ConfigError
from xccl_emu.kernels.group import align
from xccl_emu.kernels.serving import memory_pool as device
from xccl_emu.machine.pod import Buffer, Pod
from xccl_emu.protocols.communicator import CaseSession, Progress, as_array, one_for_each, shaped
from xccl_emu.protocols.serving.memory_pool import MemoryPoolCase, PoolPlaces


class MemoryPool(CaseSession[MemoryPoolCase]):
    """A server on die 0 or a CPU, ``clients`` on the dies after it, a second tier on the last ([CloudMatrix384] 4.4).

    Sizes are as in the case ``pool``: a namespace has ``buckets`` places and at most ``puts`` keys, blocks have
    ``granules`` of 32 bytes, and client c is of namespace c % ``spaces``.

    >>> import numpy as np, xccl_emu as xe
    >>> pool = xe.MemoryPool(xe.Pod(xe.small_pod(4)), clients=2, buckets=1, puts=3)
    >>> pool.put([np.arange(96, dtype=np.uint8).reshape(3, 32)])
    >>> [blocks[:, 0].tolist() for blocks in pool.get([[0, 2], [1]])]  # there is a place for one: two were evicted
    [[0, 64], [32]]
    """

    kind = MemoryPoolCase
    drawn = (*CaseSession.drawn, "gets")
    cores = 1

    def __init__(
        self, pod: Pod, config: MemoryPoolCase | None = None, *, managed_offset: int = 0, field_offset: int = 0,
        **sizes: Any,
    ) -> None:  # fmt: skip
        case = self._configure(pod, config, sizes)
        self.kernels = (
            (device.serve_unpinned, device.get_unpinned) if case.unpinned else (device.serve, device.get)
        )  # fmt: skip
        if case.cpu > pod.spec.n_homes - pod.spec.n_dies:
            raise ConfigError("cpu", case.cpu, "the pod has no CPU")
        self._places = PoolPlaces(case)
        self._held = self._places.regions.meta("held")
        self._place(pod, self._places.regions, self._places.nbytes, (managed_offset, field_offset))

    @property
    def held(self) -> int:
        """Keys of each namespace that were put, from 0 on."""
        return int(self._word()[0])

    def put(self, values: Sequence[NDArray[np.uint8]], progress: Progress | None = None) -> None:
        """Put blocks into a pool that then holds these alone.

        values: for each namespace [keys, bytes] uint8, as many in each; key k is row k.

        Raises ConfigError or CapacityError, before memory changes, for other shapes and types.
        """
        self._run(values, [()] * self.config.clients, progress)

    def get(self, keys: Sequence[Any], progress: Progress | None = None) -> list[NDArray[np.uint8]]:
        """Get blocks of the last `put`, all clients at once.

        keys: for each client [gets] integers, keys of its namespace, as many as it likes.  Returns for each
        [gets, bytes] uint8.

        Raises ConfigError or CapacityError, before memory changes, for keys that were not put.
        """
        return self._run(None, keys, progress)

    def put_and_get(
        self, values: Sequence[NDArray[np.uint8]], keys: Sequence[Any], progress: Progress | None = None
    ) -> list[NDArray[np.uint8]]:
        """Get blocks while the server puts them, as `get` and `put` do: clients wait for what is not there yet."""
        return self._run(values, keys, progress)

    def _run(self, values: Any, keys: Any, progress: Progress | None) -> list[NDArray[np.uint8]]:
        places, pod = self._places, self.pod
        blocks = None if values is None else self._checked(values)
        each = self.held if blocks is None else len(blocks) // self.config.spaces
        wanted = [
            self._keys(client, item, each)
            for client, item in enumerate(one_for_each("keys", keys, self.config.clients, "clients"))
        ]
        app = {client + 1: align(some.nbytes) + len(some) * places.nbytes for client, some in enumerate(wanted)}
        if blocks is not None:
            app[places.server(pod)] = blocks.nbytes
        with self._call(app, fresh=blocks is not None) as (bench, _):
            if blocks is not None:
                own = bench.filled(places.server(pod), blocks, travels=True)
                self._fill(own, blocks)
                self._word()[0] = each
                places.serve(pod, own, each)
            got = {client: self._get(client, some, each) for client, some in enumerate(wanted) if len(some)}
            self.run_as("pool", progress, ends=False)
            out = [got.get(client, Buffer(0, 0, 0)) for client in range(len(wanted))]
            return [pod.payload(one).reshape(-1, places.nbytes).copy() for one in out]

    def _get(self, client: int, keys: NDArray[np.int64], each: int) -> Buffer:
        """Launch a client; returns where its blocks will be."""
        asked, out = self.pod.put(client + 1, keys), self.pod.alloc(client + 1, len(keys) * self._places.nbytes)
        self._places.get(self.pod, client, asked, out, each)
        return out

    def _checked(self, values: Any) -> NDArray[np.uint8]:
        """[namespaces * keys, bytes] blocks, in which nothing is wrong."""
        c = self.config
        given = one_for_each("values", values, c.spaces, "namespaces")
        blocks = [shaped(f"values of namespace {n}", item, (None, self._places.nbytes), np.uint8)
                  for n, item in enumerate(given)]  # fmt: skip
        lengths = {len(some) for some in blocks}
        if len(lengths) > 1 or not 1 <= max(lengths) <= c.puts:
            raise ConfigError(f"values: {sorted(lengths)} blocks, must be 1 to {c.puts}, as many in each namespace")
        return np.concatenate(blocks)

    def _keys(self, client: int, item: Any, each: int) -> NDArray[np.int64]:
        """[gets] numbers of the keys that a client wants, of all namespaces."""
        keys, what = as_array(f"keys of client {client}", item), f"keys of client {client}"
        if keys.ndim != 1 or (keys.size and not np.issubdtype(keys.dtype, np.integer)):
            raise ConfigError(f"{what}: {list(keys.shape)} {keys.dtype}, must be [gets] integers")
        wrong = keys[(keys < 0) | (keys >= each)]
        if len(wrong):
            must = f"must be 0 to {each - 1}, as {each} were put" if each else "nothing was put"
            raise ConfigError(f"{what}: {wrong[0]}, {must}")
        return keys.astype(np.int64) + client % self.config.spaces * each

    def _word(self) -> NDArray[np.int64]:
        return self.pod.span(self._held.at(self._places.regions.dies.stop - 1), 8).view(np.int64)

    def zero_fields(self) -> None:
        """Zero the fields as any communicator does: the pool holds nothing."""
        super().zero_fields()
        pod, places = self.pod, self._places
        server = places.server(pod)
        pod.span(pod.meta(server, self.layout.meta_start), self.layout.bytes_of("meta"))[:] = 0
        pod.span(places.pins.at(server), places.pins.size).view(np.int64)[:] = places.closed().ravel()
