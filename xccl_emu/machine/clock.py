"""A clock that stops while Numba compiles, or loads what it has compiled: limits are for the work itself."""

import functools
import time
from typing import Any


@functools.cache
def _compiling() -> Any:
    """Register a listener to Numba's lock, which knows for how many seconds it was held."""
    from numba.core import event

    class Listener(event.Listener):  # type: ignore[misc]  # Numba has no types
        seconds = 0.0
        _depth = 0
        _since = 0.0

        def on_start(self, event: Any) -> None:
            if self._depth == 0:
                self._since = time.perf_counter()
            self._depth += 1

        def on_end(self, event: Any) -> None:
            if self._depth == 0:  # it was held when the listening began
                return
            self._depth -= 1
            if self._depth == 0:
                self.seconds += time.perf_counter() - self._since

    listener = Listener()
    event.register("numba:compiler_lock", listener)
    return listener


def working_seconds() -> float:
    """Return seconds, as `time.perf_counter` does, but without the time in which something was compiled."""
    from numba import config

    compiling: float = 0.0 if config.DISABLE_JIT else _compiling().seconds
    return time.perf_counter() - compiling
