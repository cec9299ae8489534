"""What callers pass is checked before it reaches compiled code or the books of the pod."""

import os
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest

from xccl_emu.base.errors import ConfigError
from xccl_emu.lang import kernel, load
from xccl_emu.machine import CLOUDMATRIX384, Buffer, Grant, Pod, PodSpec, small_pod


@kernel
def read_named(address):
    """Return a word read by a load that has a name."""
    word = yield load(address, sync="word")
    return word


def test_numpy_integers_address_the_largest_pod() -> None:
    """A die and a size that come out of a NumPy array are numbers like others, also where addresses exceed 32 bits."""
    pod = Pod(CLOUDMATRIX384)
    for die in np.arange(766, 768, dtype=np.int32):
        buffer = pod.put(die, np.full(8, die, np.int64))
        assert buffer.address == int(die) << 36
        assert pod.view(buffer, np.int64)[0] == die


@pytest.mark.parametrize("value", [1.0, "1", None])
def test_what_is_no_whole_number_is_refused(value: object) -> None:
    """A float, a text or None as die, size, core, offset, seed or size of a pod is a ConfigError, and costs nothing."""
    pod = Pod(small_pod(2))
    word = pod.alloc(0, 8)
    calls = [
        lambda: pod.alloc(value, 8),  # type: ignore[arg-type]
        lambda: pod.alloc(0, value),  # type: ignore[arg-type]
        lambda: pod.meta(0, value),  # type: ignore[arg-type]
        lambda: pod.launch(read_named, 0, [value], {"address": word.address}, [pod.grant(word, "r")]),  # type: ignore[list-item]
        lambda: Pod(small_pod(2), seed=value),  # type: ignore[arg-type]
        lambda: small_pod(2).with_(registers=value),
        lambda: Grant(0, value, 64, "r").words(),  # type: ignore[arg-type]
    ]
    for call in calls:
        with pytest.raises(ConfigError):
            call()
    assert pod.alloc(0, 8).address == word.address + 32
    assert pod.active_cores() == []


def test_registers_have_a_limit() -> None:
    """A pod whose cores alone would fill the machine is refused."""
    with pytest.raises(ConfigError, match="registers=2147483648: must be at most"):
        small_pod(2).with_(registers=1 << 31)


@pytest.mark.parametrize("buffer", [Buffer(0, -5, 10), Buffer(0, 1 << 50, 10), Buffer(1, 0, 8), Buffer(0, 0, 1 << 40)])
def test_buffers_that_are_not_on_the_pod_are_refused(buffer: Buffer) -> None:
    """A buffer behind the pod, on another die than it says, or larger than its area can be neither seen nor granted."""
    pod = Pod(small_pod(2))
    for call in (pod.view, lambda b: pod.grant(b, "r")):
        with pytest.raises(ConfigError, match="does not lie in the app data area"):
            call(buffer)


@pytest.mark.nojit
def test_a_load_that_is_switched_off_still_loads() -> None:
    """A named load orders what follows it; without the name it orders nothing, but returns the word all the same."""
    pod = Pod(small_pod(1), without=["word"])
    word = pod.put(0, np.array([42]))
    launch = pod.launch(read_named, 0, [0], {"address": word.address}, [pod.grant(word, "r")])
    pod.run()
    assert launch.results == [42]


def test_a_spec_takes_numpy_integers() -> None:
    """Sizes of a pod may come out of an array; they are kept as Python integers."""
    spec = PodSpec("one", *np.ones(4, np.int8), np.int32(4096), np.int16(1024), np.int16(1024))
    assert type(spec.die_bytes) is int
    assert spec.app_bytes == 2048


@pytest.mark.slow
@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")
def test_damaged_compiled_code_heals(tmp_path: Path) -> None:
    """When files of the cache are cut short or emptied, a run compiles them again, and the next one finds them.

    `tests/test_device.py` shows the same of small functions, whenever tests run.
    """
    program = "from xccl_emu.machine import Pod, small_pod; Pod(small_pod(1)).run()"
    environment = {**os.environ, "XCCL_EMU_CACHE_DIR": str(tmp_path)}
    environment.pop("NUMBA_CACHE_DIR", None)

    def run() -> dict[Path, bytes]:
        subprocess.run([sys.executable, "-c", program], check=True, env=environment)
        return {path: path.read_bytes() for path in tmp_path.rglob("machine.*")}

    whole = run()
    assert whole
    for number, (path, content) in enumerate(whole.items()):
        path.write_bytes(content[: len(content) // 2 * (number % 2)])
    healed = run()
    assert healed.keys() == whole.keys()
    assert all(healed.values())
