"""What dies allocate alike is at the same offsets once they are level."""

import pytest

from xccl_emu.base.errors import ConfigError
from xccl_emu.machine import Pod, small_pod


@pytest.mark.nojit
def test_level_dies_allocate_at_the_same_offsets() -> None:
    """Dies that had used more or less of their app data have used as much, others have not, and nothing is lost."""
    pod = Pod(small_pod(3))
    before = pod.alloc(0, 100)
    pod.level_app(die for die in (0, 2))
    first, second, other = (pod.alloc(die, 32) for die in (0, 2, 1))
    assert second.address - first.address == 2 * pod.spec.die_bytes
    assert first.address >= before.address + 100
    assert other.address == pod.spec.die_bytes
    with pytest.raises(ConfigError, match="die=3: the pod has dies 0 to 2"):
        pod.level_app([3])
