"""Which synchronizations of a pod's kernels are switched off, and which requests ask for another order."""

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xccl_emu.base.errors import ConfigError
from xccl_emu.lang import Kernel, Site
from xccl_emu.lang import operations as ops
from xccl_emu.lang import requests as rq
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.spec import whole

WRITES = ops.names(ops.SCALAR_WRITES | (ops.WRITES & ops.TRANSFERS))
"""Requests that may ask for an order."""
FENCE = "fence"
_ASKED = (0, 1, 0, 2)
"""What `REQUEST_ORDERS` says of requests that ask for nothing, no order, a relaxed and a strong one."""


class Switches:
    """What of a pod's kernels is not as it is written; see `Pod.without` and `Pod.weaken`."""

    def __init__(self) -> None:
        self.without: frozenset[str] = frozenset()
        self.weaker: dict[tuple[int, int], str] = {}
        """By kernel and site, as numbers: the order that it asks for, or that a quiet is a fence."""
        self._known: set[str] = set()
        """Names in kernels that were ever launched, or that a session says it will launch."""

    def name(self, names: Iterable[str]) -> None:
        """Switch off these synchronizations and no others; ConfigError for what is no list of names."""
        listed: list[Any]
        try:
            listed = [] if isinstance(names, str) else list(names)
        except TypeError:
            listed = [names]
        if isinstance(names, str) or not all(isinstance(name, str) for name in listed):
            raise ConfigError("without", names, "must be a list of names")
        self.without = frozenset(listed)

    def know(self, kernel: Kernel) -> None:
        """From now on the names in this kernel are known."""
        self._known |= _names(kernel)

    def check(self, kernels: Sequence[Kernel], launched: bool) -> None:
        """ConfigError for a name that neither these kernels nor those launched have, where there are any."""
        known = self._known.union(*map(_names, kernels))
        unknown = sorted(self.without - known)
        if unknown and (launched or kernels):
            raise ConfigError("without", unknown, f"no kernel launched so far has it; they have {sorted(known)}")

    def weaken(self, kernels: Sequence[Kernel], kernel: int, site: int, to: str) -> None:
        """Weaken a site, as `Pod.weaken` does."""
        kernel, site = whole("kernel", kernel), whole("site", site)
        if not 0 <= kernel < len(kernels) or not 0 <= site < len(kernels[kernel].sites):
            raise ConfigError(f"kernel={kernel}, site={site}: no kernel launched so far has it")
        operation = kernels[kernel].sites[site].operation
        known = (FENCE,) if operation == "quiet" else rq.ORDERS if operation in WRITES else ()
        if not isinstance(to, str) or to not in known:
            raise ConfigError("to", to, f"{operation} can be one of {', '.join(known) or 'nothing else'}")
        self.weaker[kernel, site] = to

    def words(self, number: int, kernel: Kernel) -> tuple[NDArray[np.int64], int, bool]:
        """Return the machine's word for each site, the most that one of them asks for, and whether one signals."""
        weaker = frozenset((site, to) for (of, site), to in self.weaker.items() if of == number)
        return _site_words(kernel, self.without, weaker)


def _names(kernel: Kernel) -> set[str]:
    return {site.sync for site in kernel.sites if site.sync}


@functools.lru_cache(maxsize=256)
def _site_words(
    kernel: Kernel, without: frozenset[str], weaker: frozenset[tuple[int, str]]
) -> tuple[NDArray[np.int64], int, bool]:
    """Kept, as many runs are alike."""
    changed = dict(weaker)
    words = [_site_word(site, changed.get(number, site.order), without) for number, site in enumerate(kernel.sites)]
    most = max((_ASKED[word >> ms.SITE_ORDER & 3] for word in words), default=0)
    on = [site.operation for word, site in zip(words, kernel.sites, strict=True) if not word & ms.SITE_OFF]
    return np.array(words, np.int64), most, "put_signal" in on


def _site_word(site: Site, order: str, without: frozenset[str]) -> int:
    off = int(bool(site.sync) and site.sync in without)
    return off | (ms.SITE_FENCE if order == FENCE else rq.ORDERS.index(order) << ms.SITE_ORDER)
