"""How a run says what it is doing, so that nobody waits without knowing for what."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

Progress = Callable[[int], None]
Stage = Callable[[str], AbstractContextManager[Progress]]
"""Names what is done inside, and gives a function to call with the number of actions so far."""


@contextmanager
def silent(name: str) -> Iterator[Progress]:
    """A stage that says nothing."""
    yield lambda actions: None
