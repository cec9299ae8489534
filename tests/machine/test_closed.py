"""A pod that is closed gives its memory back, and refuses what comes after."""

import copy
import gc
from pathlib import Path

import pytest

from xccl_emu.base.errors import ConfigError
from xccl_emu.lang import kernel, store
from xccl_emu.machine import CLOUDMATRIX384, Pod, small_pod


@kernel
def write(word):
    """Store a 7."""
    yield store(word, 7)


def mapped() -> int:
    """Bytes of address space that this process has."""
    return int(Path("/proc/self/statm").read_text("ascii").split()[0]) * 4096


@pytest.mark.nojit
def test_a_closed_pod_has_given_its_memory_back() -> None:
    """Hundreds of gigabytes of a whole pod's address space are gone at once, though the pod is still referred to."""
    if not Path("/proc/self/statm").exists():
        pytest.skip("this system does not say what is mapped")
    gc.collect()
    before = mapped()
    pod = Pod(CLOUDMATRIX384)
    opened = mapped() - before
    assert opened > 1 << 34
    pod.close()
    pod.close()
    gc.collect()
    assert mapped() - before < opened // 100
    assert repr(pod) == "<Pod: closed>"


@pytest.mark.nojit
@pytest.mark.parametrize("use", [
    lambda pod: pod.run(), lambda pod: pod.alloc(0, 32), lambda pod: pod.order, lambda pod: pod.memory,
    lambda pod: pod.launch(write, 0, [0], {"word": 0}, []), lambda pod: pod.__enter__().snapshot(),
])  # fmt: skip
def test_who_uses_a_closed_pod_is_told(use) -> None:
    """Whatever is asked of it ends in the same error, and nothing reaches the machine."""
    with Pod(small_pod(1)) as pod:
        kept = pod.memory
    with pytest.raises(ConfigError, match="pod: was closed; make another one"):
        use(pod)
    assert kept.size  # an array that was handed out keeps what it is of
    with pytest.raises(AttributeError):
        copy.copy(Pod(small_pod(1))).nothing  # noqa: B018
