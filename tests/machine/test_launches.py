"""What a launch refuses, and that a refused launch leaves nothing behind."""


import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xccl_emu.base.errors import CapacityError, ConfigError, XcclEmuError
from xccl_emu.lang.kernel import Kernel
from xccl_emu.lang.requests import OP_LOAD
from xccl_emu.machine.launch import Grant
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import CLOUDMATRIX384, small_pod

from .kernels import launch_changed, wait_for
from .support import issue, issue_args, tiny_pod

BAD_LAUNCHES = {
    "die=2": {"die": 2},
    "die=-1": {"die": -1},
    r"cores=\[\]": {"cores": []},
    r"cores=\[0, 0\]": {"cores": [0, 0]},
    r"cores=\[2\]": {"cores": [2]},
    r"cores=\[-1\]": {"cores": [-1]},
    r"missing: \['value'\]": {"args": {"flag": 0}},
    r"unknown: \['x'\]": {"args": {"flag": 0, "value": 0, "x": 1}},
    "has 3 values for 2 cores": {"args": {"flag": 0, "value": [1, 2, 3]}},
    "value=1.5 must be a 64-bit": {"args": {"flag": 0, "value": 1.5}},
    "value=9223372036854775808 must": {"args": {"flag": 0, "value": 1 << 63}},
    "value='a' must": {"args": {"flag": 0, "value": ["a", 1]}},
    "outside of the pod": {"grants": [Grant(2, 0, 8, "r")]},
    "outside of the pod ": {"grants": [Grant(None, 0, 1 << 40, "r")]},
    "lies outside": {"grants": [Grant(0, 8, 0, "r")]},
    "kernel .* on die 0: 1000 grants: a core has more grants .at most 30": {"grants": [Grant(0, 0, 8, "r")] * 1000},
}


@pytest.mark.parametrize("match", BAD_LAUNCHES)
def test_bad_launches_are_refused_and_leave_nothing(match: str) -> None:
    """Each mistake is a ConfigError that names it; nothing of it stays, the cores can be launched on."""
    pod = tiny_pod(2, cores=2)
    with pytest.raises(ConfigError, match=match):
        launch_changed(pod, **BAD_LAUNCHES[match])
    assert pod.active_cores() == []
    launch_changed(pod)
    with pytest.raises(ConfigError, match="core 0 of die 0 is taken"):
        launch_changed(pod)
    pod.run()


@pytest.mark.parametrize("rights", ["", "x", "rx", "f", 3])
def test_rights_that_there_are_not_are_refused(rights: str) -> None:
    """Where the permission is made, not where a kernel is launched with it."""
    pod = tiny_pod(1)
    with pytest.raises(ConfigError, match=f"rights={rights!r}: must be 'r', 'w' or 'rw'"):
        pod.grant_meta(rights)


def test_offsets_outside_of_an_area_are_refused() -> None:
    """Addresses are made only of offsets in the area that is asked for, or of its end."""
    pod = Pod(small_pod(2))
    areas = {pod.address: pod.spec.die_bytes, pod.meta: pod.spec.meta_bytes, pod.managed: pod.spec.managed_bytes}
    for area, nbytes in areas.items():
        assert area(1, nbytes) - area(1, 0) == nbytes
        for offset in (-1, nbytes + 1):
            with pytest.raises(ConfigError, match=f"offset={offset}: .* has {nbytes} bytes"):
                area(1, offset)


def test_arguments_for_each_core_and_results() -> None:
    """Sequences and arrays give each core its own argument, and each core's result comes back in its place."""
    pod = tiny_pod(1, cores=4)
    pod.memory[pod.meta(0) :][:32].view(np.int64)[:] = [10, 11, 12, 13]
    for cores in ([0, 1, 2, 3], [3, 1]):
        addresses = np.array([pod.meta(0, 8 * c) for c in cores])
        args = issue_args(OP_LOAD, (0, 8)) | {"a": addresses}
        launch = pod.launch(issue, 0, cores, args, [pod.grant_meta("r")])
        pod.run()
        assert launch.results == [10 + c for c in cores]


def test_more_kernels_than_a_run_may_have_over_many_runs() -> None:
    """The limit of 16 different kernels holds for a run, not for the life of a pod."""
    pod = tiny_pod(1)
    for _ in range(20):
        launch_changed(pod, kernel=Kernel(wait_for.generator), cores=[0])
        pod.run()


@pytest.mark.parametrize(
    "changes",
    [
        {"die_bytes": 3000},
        {"nodes": 0},
        {"ub_bytes": 33},
        {"meta_bytes": -32},
        {"managed_bytes": 1 << 40},
        {"registers": 0},
    ],
)
def test_bad_specifications_are_refused(changes: dict[str, int]) -> None:
    """A pod's sizes are checked when they are given."""
    name = next(iter(changes))
    with pytest.raises(ConfigError, match="die_bytes" if name == "managed_bytes" else name):
        small_pod(2).with_(**changes)


def test_a_pod_that_cannot_be_mapped_says_what_to_do() -> None:
    """As a second one of CloudMatrix384's size in a process: how much is wanted, and that others are to go first."""
    spec = small_pod(2).with_(die_bytes=1 << 58)
    with pytest.raises(CapacityError, match=r"cannot map \d+ bytes of address space .* drop others first"):
        Pod(spec)


def test_a_pod_that_nobody_has_any_more_makes_room() -> None:
    """Also where only the garbage collector finds it: three of CloudMatrix384's size do not fit an address space."""
    for _ in range(3):
        pod = Pod(CLOUDMATRIX384)
        pod.itself = pod
        del pod


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"spec": 2}, "spec=2: must be a PodSpec"),
        ({"policy": 3}, "policy=3: must be one of round-robin, random"),
        ({"policy": "fair"}, "policy='fair'"),
        ({"order": "tso"}, "order='tso': must be one of sc, fifo, relaxed"),
        ({"order": ["sc"]}, r"order=\['sc'\]: must be one of"),
        ({"without": 5}, "without=5: must be a list of names"),
        ({"without": [5]}, r"without=\[5\]: must be a list of names"),
    ],
)
def test_arguments_of_a_pod_that_are_none(changes: dict[str, object], said: str) -> None:
    """Unknown names and things of other types are refused by name."""
    with pytest.raises(ConfigError, match=said):
        Pod(**{"spec": small_pod(2), **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes", [{"kernel": "k"}, {"cores": 0}, {"args": 5}, {"grants": 5}, {"grants": ["r"]}], ids=repr
)
def test_a_launch_of_other_things_is_refused(changes: dict[str, object]) -> None:
    """A kernel, a list of cores, arguments by name and a list of grants are wanted."""
    right: dict[str, object] = {"kernel": issue, "die": 0, "cores": [0], "args": issue_args(0, ()), "grants": []}
    with pytest.raises(ConfigError, match=rf"{next(iter(changes))}="):
        Pod(small_pod(2)).launch(**{**right, **changes})  # type: ignore[arg-type]


def test_full_areas_are_refused() -> None:
    """An app area has an end."""
    pod = Pod(small_pod(1))
    mark = pod.mark_app()
    pod.alloc(0, pod.spec.app_bytes)
    with pytest.raises(CapacityError, match="has 0 left"):
        pod.alloc(0, 1)
    pod.release_app(mark)
    assert pod.put(0, np.arange(3)).address == 0
    with pytest.raises(XcclEmuError):
        pod.alloc(1, 8)


@given(st.integers(1, 6), st.integers(1, 3), st.integers(0, 300), st.integers(0, 9), st.integers(0, 300))
def test_small_pods_have_room_for_what_was_asked(dies: int, cores: int, app: int, meta: int, managed: int) -> None:
    """Areas follow each other without gaps, fill a die, and are at least as large as asked."""
    spec = small_pod(dies, cores, app_bytes=app, meta_bytes=32 * meta, managed_bytes=32 * managed)
    assert (spec.n_dies, spec.n_cores) == (dies, dies * cores)
    assert spec.app_bytes >= app
    assert spec.managed_start == spec.meta_start + 32 * meta
    assert spec.managed_start + 32 * managed == spec.die_bytes
