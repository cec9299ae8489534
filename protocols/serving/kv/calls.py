"""Transfers of KV caches for users: caches of their own go from prefill ranks to decode ranks."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xccl_emu import protocol
from xccl_emu.base.errors import ConfigError
from xccl_emu.kernels.group import align
from xccl_emu.machine.pod import Pod
from xccl_emu.protocols.communicator import CaseSession, Progress, listed, one_for_each, shaped
from xccl_emu.protocols.serving.kv import session
from xccl_emu.protocols.serving.kv.case import KvCase

Caches = Sequence[Sequence[NDArray[np.uint8]]]
"""For each pair, for each request [layers, blocks, bytes] uint8."""


class KvTransfer(CaseSession[KvCase]):
    """KV caches from ``prefill`` instances of ``tp`` ranks to ``decode`` dies, which pull, or are pushed to.

    Sizes are as in the case ``kv`` ([xDeepServe] 5.1): a cache has ``layers`` parts of 1 to ``blocks`` blocks of
    ``granules`` of 32 bytes.  Prefill dies come first.  `pairs` says who sends to whom.

    >>> import numpy as np, xccl_emu as xe
    >>> kv = xe.KvTransfer(xe.Pod(xe.small_pod(2, 2)), blocks=2, pool=2, slots=2)
    >>> caches = [np.full((1, blocks, 32), blocks, np.uint8) for blocks in (2, 1, 2)]
    >>> read = kv.transfer([caches])  # what decode has read, of the only pair
    >>> [bool((was == came).all()) for was, came in zip(caches, read[0])]
    [True, True, True]
    """

    kind = KvCase
    drawn = (*CaseSession.drawn, "requests", "stopped", "ranks")

    def __init__(
        self, pod: Pod, config: KvCase | None = None, *, managed_offset: int = 0, field_offset: int = 0,
        **sizes: Any,
    ) -> None:  # fmt: skip
        case = self._configure(pod, config, sizes)
        if case.stopped:
            raise ConfigError("stopped", 1, "must be 0 where caches are to arrive")
        self.pairs = case.links()
        """Who sends to whom, in the order of caches: dies ``source`` and ``target``."""
        self.kernels = session.kernels_of(case.path)
        regions = protocol.Regions(case.prefill * case.tp + case.decode)
        self._areas = case.areas(regions)
        at_source, at_target = session.cores_of(case.path, case.cores)
        self.cores = max(self._areas.sizes.peers * at_source, case.prefill * at_target)
        self._place(pod, regions, self._areas.ub_bytes, (managed_offset, field_offset))

    def transfer(self, caches: Caches, progress: Progress | None = None) -> list[list[NDArray[np.uint8]]]:
        """Send the requests of all pairs; returns what decode steps have read, as ``caches`` are given.

        caches: for each of `pairs` a list of requests, as many as there are: each [layers, blocks, bytes] uint8, of 1
        to ``blocks`` blocks.

        Raises ConfigError or CapacityError, before memory changes, for other shapes and types.
        """
        given = [
            [self._checked(f"request {q} of pair {n}", item) for q, item in enumerate(some)]
            for n, some in enumerate(
                listed(f"caches of pair {n}", of, "a list of requests")
                for n, of in enumerate(one_for_each("caches", caches, len(self.pairs), "pairs"))
            )
        ]
        app = dict.fromkeys(self.layout.dies, 0)
        for link, requests in zip(self.pairs, given, strict=True):
            for die in (link.source, link.target):
                app[die] += sum(each.nbytes for each in requests) + align(16 * len(requests))
        with self._call(app) as (bench, streams):
            transfers, sent = session.Transfers(bench, self.pod, streams, self._areas, self.config.path), []
            for n, (link, requests) in enumerate(zip(self.pairs, given, strict=True)):
                if requests:
                    asked = np.array([(1 + n + len(given) * q, each.shape[1]) for q, each in enumerate(requests)])
                    blocks = np.concatenate([each.reshape(-1, each.shape[2]) for each in requests])
                    sent.append(transfers.launch(link, session.PairBatch(asked, blocks, 0, "")))
                    self._fill(sent[-1].own, blocks)
            streams.put()
            if sent:
                self.run_as("transfer", progress)
            out = iter(sent)
            return [self._read(next(out), requests) if requests else [] for requests in given]

    def _read(self, sent: session.PairLaunch, requests: Sequence[NDArray[np.uint8]]) -> list[NDArray[np.uint8]]:
        """Copies of what the decode steps of a pair have left, request by request."""
        ends = np.cumsum([each.nbytes for each in requests])[:-1]
        parts = np.split(self.pod.payload(sent.out), ends)
        return [part.reshape(each.shape).copy() for part, each in zip(parts, requests, strict=True)]

    def _checked(self, what: str, item: Any) -> NDArray[np.uint8]:
        c = self.config
        cache = shaped(what, item, (c.layers, None, 32 * c.granules), np.uint8)
        if not 1 <= cache.shape[1] <= c.blocks:
            raise ConfigError(f"{what}: {cache.shape[1]} blocks of a part, must be 1 to {c.blocks}")
        return cache
