"""What is proved is what runs: the kernels that a check builds are those that commands launch."""

from collections.abc import Iterator
from unittest import mock

import pytest

from tests.cli_support import as_json
from xccl_emu.lang import Kernel
from xccl_emu.machine.pod import Pod
from xccl_emu.papers.bench.layers import Layer, time_layer
from xccl_emu.papers.bench.setting import DEFAULT
from xccl_emu.protocol import Case
from xccl_emu.protocol.registry import known, make, names, proofs, proofs_of

LAYER = ("--ranks", "2", "--tokens", "2", "--hidden", "64", "--cores", "2", "--top-k", "1")
SMALL: dict[str, tuple[str, ...]] = {
    "a2e": ("--attention", "2", "--experts", "3", "--tokens", "2", "--hidden", "64", "--top-k", "1", "--routing", ""),
    "deepep-ll": LAYER, "dispatch": LAYER, "fused": LAYER,
    "kv": ("--ranks", "4", "--layers", "2", "--granules", "2"),
    "kv-sendrecv": ("--ranks", "4", "--layers", "2", "--granules", "2"), "sendrecv": ("--nbytes", "4096"),
}  # fmt: skip
"""Sizes of those that run on the whole pod."""


def of(case: Case) -> set[Kernel]:
    """The kernels that a check of a case proves; of a stream of launches those that are launched."""
    return {part for kernel in case.build("sc").pod.kernels for part in kernel.in_turn or (kernel,)}


@pytest.fixture
def launched() -> Iterator[set[Kernel]]:
    """Every kernel that is launched on any pod."""
    found, launch = set[Kernel](), Pod.launch

    def seen(pod: Pod, kernel: Kernel, *arguments: object, **more: object) -> object:
        found.update(kernel.in_turn or (kernel,))
        return launch(pod, kernel, *arguments, **more)  # type: ignore[arg-type]

    with mock.patch.object(Pod, "launch", seen):
        yield found


def test_there_are_small_sizes_for_all_that_run_on_the_whole_pod() -> None:
    """The others are built by `run` and `bench` as by `check`, by `Case.build`."""
    assert {name for name in names() if known(name).preset.on_pod is not None} == set(SMALL)


@pytest.mark.parametrize("name", SMALL)
def test_run_launches_what_is_proved(name: str, launched: set[Kernel]) -> None:
    """On the whole pod a case launches each kernel that is proved of it, and none that is proved nowhere."""
    proved = {kernel for case in proofs_of(name).values() for kernel in of(case)}
    anywhere = {kernel for case in proofs().values() for kernel in of(case)}
    launched.clear()
    assert as_json("run", name, *SMALL[name])["wrong"] == 0
    assert of(make(name)) <= proved <= launched <= anywhere


@pytest.mark.parametrize("name", ["deepep-ll", "dispatch", "fused"])
def test_bench_launches_what_is_proved(name: str, launched: set[Kernel]) -> None:
    """A layer in virtual time, too."""
    time_layer(DEFAULT, Layer(2, 2, hidden=64, experts=2, top_k=1, cores=2), name)
    assert of(make(name)) <= launched
    assert launched <= {kernel for case in proofs().values() for kernel in of(case)}
