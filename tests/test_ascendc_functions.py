"""Functions of Ascend C bit for bit: casts, exponentials, sorting, copies, padding; windows; flags between blocks."""

import functools
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.foreign_support import ROOT, has_compiler
from tests.machine.test_maps import DTYPES, cast_by_numpy, exp_by_numpy, same, sorted_by_python
from xccl_emu.base.errors import ConfigError, KernelError, ProtocolError, RunError
from xccl_emu.check import check, verdict
from xccl_emu.doors import ascendc
from xccl_emu.lang import maps
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import small_pod
from xccl_emu.testing import Bench, protocol

pytestmark = [
    pytest.mark.skipif(not has_compiler(False), reason="no C++ compiler: Ascend C is not tested here"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # NumPy's own, of infinities and NaNs
]
SOURCES = ROOT / "tests" / "ascendc_sources"
PAIRS = list(maps.CASTS)
EXP, SORT, COPY, WORDS, DUPLICATE = 30, 32, 35, 37, 38
COUNT, MOST, LEAST, ROWS, STRIDED = range(39, 44)
NBYTES = 2048


@functools.cache
def kernel_of(name: str, source: str = "functions", **more: Any) -> ascendc.AscendKernel:
    """A kernel of a source."""
    return ascendc.ascend_kernel(SOURCES / f"{source}.cpp", name, **more)


def after(image: NDArray[Any], which: int, mode: int = 0, n: int = 0, to: int = NBYTES // 2) -> NDArray[np.uint8]:
    """What the data buffer holds after the function."""
    held = np.zeros(NBYTES, np.uint8)
    held[: image.nbytes] = image.view(np.uint8)
    pod = Pod(small_pod(1, app_bytes=3 * NBYTES, ub_bytes=NBYTES))
    source, target = pod.put(0, held), pod.alloc(0, NBYTES)
    args = {
        "image": source.address, "out": target.address, "which": which, "mode": mode, "n": n, "to": to,
        "nbytes": NBYTES, "block_idx": 0, "block_num": 1,
    }  # fmt: skip
    pod.launch(kernel_of("functions"), 0, [0], args, [pod.grant(source, "r"), pod.grant(target, "w")])
    pod.run()
    return pod.view(target).copy()


def values_of(kind: np.dtype[Any]) -> NDArray[Any]:
    """Elements where roundings differ: ties and their neighbours, of both signs, limits, and what is no number."""
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        wide = [n for k in range(64) for n in (2**k - 1, 2**k + 1, 3 * 2**k // 2 + 1)]
        return np.array([v for n in wide for v in (n, -n) if limits.min <= v <= limits.max] + [limits.min], kind)
    ties = np.array([0.5, 1.5, 2.5, 0.25, 0.75, 126.5, 127.5, 255.5, 2049, 2051, 32767.5, 65504, 65519, 65520, 1e6])
    near = [1 + 2.0**-8, 1 + 3 * 2.0**-8, 1 + 2.0**-11, 1 + 3 * 2.0**-11, 2.0**-25, 3 * 2.0**-25, 1e-40, 2.0**31, 3e38]
    found = np.concatenate([ties, near]).astype(np.float32)
    found = np.concatenate([found, np.nextafter(found, np.float32(0)), np.nextafter(found, np.float32(np.inf))])
    return np.concatenate([found, -found, np.array([0, -0.0, np.inf, -np.inf, np.nan], np.float32)]).astype(kind)


CAST_PAIRS = [
    (0, 2), (1, 2), (3, 1), (6, 1), (4, 2), (5, 7), (5, 4), (7, 5), (2, 2), (2, 4), (2, 5), (2, 7), (1, 4), (1, 5),
    (0, 5), (7, 2), (2, 0), (4, 1), (5, 1), (5, 2), (1, 3), (1, 6), (2, 1),
]  # fmt: skip
"""The pairs of types of the casts of functions.cpp, by their numbers there."""


def test_each_cast_that_there_is_is_tried() -> None:
    """The source has each pair of types that a cast may have."""
    assert sorted(CAST_PAIRS) == sorted(PAIRS)


@pytest.mark.parametrize("number", range(len(CAST_PAIRS)))
def test_casts_round_as_their_mode_says(number: int) -> None:
    """Each mode of each pair leaves the bits of NumPy and ml_dtypes, out of place, and in place where they fit."""
    source, to = CAST_PAIRS[number]
    x = values_of(DTYPES[source])[: NBYTES // 16]
    places = [NBYTES // 2] + [0] * (DTYPES[to].itemsize <= DTYPES[source].itemsize)
    for mode in maps.CASTS[source, to]:
        wanted = cast_by_numpy(x, to, mode)
        for place in places:
            found = after(x, number, mode, x.size, place)[place:][: wanted.nbytes].view(wanted.dtype)
            assert same(found, wanted), (DTYPES[source], DTYPES[to], maps.ROUNDINGS[mode], place)


def test_a_cast_that_would_overwrite_what_it_reads_is_refused_by_name() -> None:
    """Widening in place, a target in part over the source, and a mode that a pair has not, each say what was asked."""
    x = values_of(np.dtype(np.float16))[:8]
    with pytest.raises(RunError, match=r"cast fp16 fp32 from ub\+0x0 to ub\+0x0: must be in place, or not"):
        after(x, CAST_PAIRS.index((1, 2)), maps.ROUND_NONE, x.size, 0)
    with pytest.raises(RunError, match=r"cast fp32 fp16 from ub\+0x0 to ub\+0x10"):
        after(x, CAST_PAIRS.index((2, 1)), maps.ROUND_RINT, x.size, 16)
    with pytest.raises(RunError, match="cast fp32 bf16, rounding odd: no such function"):
        after(x, CAST_PAIRS.index((2, 0)), maps.ROUND_ODD, 4)


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_exponentials(kind: type) -> None:
    """The bits are e to the power in double precision, rounded to float, and of halves rounded once more."""
    x = np.concatenate([values_of(np.dtype(kind)), np.linspace(-110, 95, 80).astype(kind)])
    found = after(x, EXP + (kind is np.float16), n=x.size)[NBYTES // 2 :][: x.nbytes].view(kind)
    assert same(found, exp_by_numpy(x))


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_32_elements_are_sorted_with_their_indices(kind: type) -> None:
    """Each repeat by itself, largest first, equal ones as they were, as pairs of 8 bytes."""
    x = np.random.default_rng(3).integers(-9, 9, 64).astype(kind)
    image, index = np.zeros(NBYTES // 2, np.uint8), np.arange(64, dtype=np.uint32) + 1000
    image[: x.nbytes], image[NBYTES // 4 :][: index.nbytes] = x.view(np.uint8), index.view(np.uint8)
    found = after(image, SORT + (kind is np.float16), n=64)[NBYTES // 2 :][: 8 * 64].view(np.uint64)
    assert found.tolist() == [pair for r in (0, 32) for pair in sorted_by_python(x[r:][:32], index[r:][:32])]


def test_all_elements_are_sorted_and_taken_apart() -> None:
    """Concat, Sort of all, and Extract: values from the largest on, and where each was."""
    x = np.random.default_rng(4).integers(-30, 30, 96).astype(np.float32)
    image, index = np.zeros(NBYTES // 2, np.uint8), np.arange(96, dtype=np.uint32)
    image[: x.nbytes], image[NBYTES // 4 :][: index.nbytes] = x.view(np.uint8), index.view(np.uint8)
    found, order = after(image, SORT + 2, n=96), np.argsort(-x, kind="stable")
    assert found[: x.nbytes].view(np.float32).tolist() == x[order].tolist()
    assert found[NBYTES // 4 :][: index.nbytes].view(np.uint32).tolist() == order.tolist()


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(("which", "mask"), [(COPY, 64), (COPY, 11), (COPY + 1, 0x0FF0_0000_0001_8001)])
def test_elements_are_copied_by_mask_repeats_and_strides(which: int, mask: int, stride: int) -> None:
    """Copy moves the elements of a mask, of each repeat, at its strides of blocks and repeats, and leaves the rest."""
    size = 4 if which == COPY else 2
    image, each = np.arange(NBYTES // 2 // size, dtype=f"u{size}"), 32 // size
    taken = range(mask) if which == COPY else [i for i in range(64) if mask >> i & 1]
    wanted = np.zeros(NBYTES // size, image.dtype)
    wanted[: image.size] = image
    of_blocks, to_repeat, from_repeat = (1, 16, 8) if which == COPY else (2, 9, 16)
    for r in range(2):
        for i in taken:
            to = image.size + each * (r * to_repeat + i // each * stride) + i % each
            wanted[to] = wanted[each * (r * from_repeat + i // each * of_blocks) + i % each]
    assert (after(image, which, mask, stride).view(image.dtype) == wanted).all()


def test_scalars_of_8_bytes() -> None:
    """Doubles, and integers of 8 bytes with and without a sign, are read and written in memory and the data buffer."""
    image = np.array([1.75, -1e300, 0, 0], np.float64)
    image.view(np.int64)[2] = -3
    found = after(image, WORDS)
    assert found.view(np.float64)[3] == 1.75 * 0.5 - 1e300
    assert found.view(np.uint64)[4] == (2**64 - 3) >> 1
    assert found.view(np.int64)[5] == -2


@pytest.mark.parametrize("value", [-(2**63), 2**40 + 1, -1])
def test_integers_of_8_bytes_are_filled_in(value: int) -> None:
    """Duplicate of an int64_t leaves it in each element."""
    found = after(np.zeros(8, np.int64), DUPLICATE, value, 9).view(np.int64)[NBYTES // 16 :]
    assert found[:10].tolist() == [value] * 9 + [0]


def test_elements_count_up() -> None:
    """An element is counted up before or after its value is used, and `Std` has what is the larger and smaller one."""
    found = after(np.array([7, 7, 3], np.int32), COUNT, n=8).view(np.int32)
    assert found[:3].tolist() == [8, 8, 5]
    assert found[8] == max(7, 8) + min(3, 4)


@pytest.mark.parametrize(("which", "best"), [(MOST, np.argmax), (LEAST, np.argmin)])
def test_the_most_of_all_has_its_index_if_asked(which: int, best: Any) -> None:
    """ReduceMax and ReduceMin leave the value, and with an index the first place that has it, as bits."""
    values = np.array([3, -1, 9, -7, 9, -7, 0], np.float32)
    for index in (0, 1):
        found = after(values, which, index, values.size)[NBYTES // 2 :]
        assert found.view(np.float32)[0] == values[best(values)]
        assert found.view(np.uint32)[1] == (best(values) if index else 0)


def test_rows_are_summed_with_room_to_spare() -> None:
    """Sum with a tensor to work in leaves the sum of the first elements of each row, as without one."""
    values = np.arange(32, dtype=np.float32)
    found = after(values, ROWS, n=5)[NBYTES // 2 :].view(np.float32)
    assert found[:2].tolist() == [values[:5].sum(), values[16:21].sum()]


@pytest.mark.parametrize(("length", "stride"), [(1, 0), (2, 3)])
def test_blocks_are_copied_within_the_data_buffer(length: int, stride: int) -> None:
    """DataCopy from tensor to tensor moves blocks of 32 bytes, with gaps of whole blocks on both sides."""
    image, half = np.arange(NBYTES // 2, dtype=np.uint16).view(np.uint8)[: NBYTES // 2], NBYTES // 2
    wanted = np.zeros(half, np.uint8)
    for i in range(3):
        to, source = 32 * i * (length + 1), 32 * i * (length + stride)
        wanted[to : to + 32 * length] = image[source : source + 32 * length]
    assert (after(image, STRIDED, stride, length)[half:] == wanted).all()


@protocol
def padded(bench: Bench, length: int = 10, left: int = 0, right: int = 0, is_pad: bool = True, value: int = 5) -> None:
    """Three blocks of bytes that a core copies in with what pads them, and out again."""
    pod = bench.pod(small_pod(1, app_bytes=4096, ub_bytes=512))
    data = np.arange(100, 400, dtype=np.int16)
    wanted, row = np.full(256, -1, np.int16), length // 2 + left + right
    for i in range(3):
        start = i * (-(-row // 16) * 16 + 16)
        if is_pad:
            wanted[start : start + row] = value
        wanted[start + left :][: length // 2] = data[i * (length + 2) // 2 :][: length // 2]
    source, out = bench.filled(0, data, "data"), bench.wanted(0, wanted, "out", owners="die0")
    kernel = kernel_of("padded", paddings=(np.float32(5), np.int16(5), np.int16(-7)))
    args = {
        "image": source.address, "out": out.address, "blocks": 3, "length": length, "left": left, "right": right,
        "is_pad": int(is_pad), "value": value, "nbytes": 512,
    }  # fmt: skip
    ascendc.launch(bench, pod, kernel, 0, [0], args, [pod.grant(source, "r"), pod.grant(out, "w")])


@pytest.mark.parametrize(
    ("length", "left", "right", "is_pad"),
    [(10, 0, 0, True), (10, 3, 0, True), (22, 0, 5, True), (10, 16, 16, True), (38, 1, 2, True), (10, 3, 2, False)],
)
def test_blocks_are_padded(length: int, left: int, right: int, is_pad: bool) -> None:
    """Padding has its value on both sides of each block; other bytes up to 32, and all without isPad, stay."""
    found = check.check(padded(length=length, left=left, right=right, is_pad=is_pad, value=-7))
    assert (found.verdict, found.violation) == (verdict.VERIFIED, None)


def test_padding_is_of_values_that_are_listed() -> None:
    """Another value, more than 32 bytes, and a list of what is no NumPy scalar, are refused by name."""
    for given, said in (({"right": 1, "value": 6}, r"does not list; its bits"), ({"left": 17}, "more than 32 bytes")):
        found = check.check(padded(**given)).violation
        assert found is not None
        assert said in found.message
    with pytest.raises(ConfigError, match=r"paddings=0: must be NumPy scalars"):
        ascendc.ascend_kernel(SOURCES / "functions.cpp", "padded", paddings=[0])


def test_windows_of_a_context() -> None:
    """Hccl says who one is, how many there are, and the windows of each rank; of a rank that there is not, none."""
    bench = Bench("sc", ())
    pod = bench.pod(small_pod(1, app_bytes=1024))
    ins, outs, out = [0x1000, 0x2000, 0x3000], [0x1100, 0x2200, 0x3300], pod.alloc(0, 80)
    args = {"context0": ascendc.hccl_context(2, ins, outs), "out": out.address, "ranks": 3}
    ascendc.launch(bench, pod, kernel_of("windows", "windows", contexts=1), 0, [0], args, [pod.grant(out, "w")])
    pod.run()
    pairs = [each for pair in zip(ins, outs, strict=True) for each in pair]
    assert pod.view(out, np.int64).tolist() == [2, 3, *pairs, 0, 0]
    with pytest.raises(ConfigError, match="rank=3: must be 0 to 2"):
        ascendc.hccl_context(3, ins, outs)
    with pytest.raises(ConfigError, match="windows_out=2: must be 3, as windows_in"):
        ascendc.hccl_context(0, ins, outs[:2])


@protocol
def crossed(bench: Bench, cores: int = 2, times: int = 1) -> None:
    """Blocks write rows and copy the next one's, with flags between them."""
    pod = bench.pod(small_pod(1, cores, app_bytes=2048, ub_bytes=64))
    rows = bench.wanted(0, np.repeat(np.arange(cores, dtype=np.int32), 8) + 10 * times - 10, "rows", owners="drained")
    out = bench.wanted(
        0, np.repeat(np.roll(np.arange(cores, dtype=np.int32), -1), 8) + 10 * times - 10, "out", owners="die0"
    )
    args = {"rows": rows.address, "out": out.address, "times": times}
    grants = [pod.grant(rows, "rw"), pod.grant(out, "w")]
    ascendc.launch(bench, pod, kernel_of("crossed", "crossed"), 0, list(range(cores)), args, grants)


def test_flags_between_blocks_are_a_barrier() -> None:
    """What all blocks wrote before their flag is there after it, twice; without the flags it is read too early."""
    assert check.check(crossed(times=2)).verdict == verdict.VERIFIED
    found = check.check(crossed(), without=["CrossCoreFlag"]).violation
    assert found is not None
    assert found.kind == verdict.DATA_RACE


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("CrossCoreWaitFlag(3)", "of a flag that this core has not set"),
        ("CrossCoreSetFlag<0, PIPE_V>(3); CrossCoreSetFlag<0, PIPE_V>(4)", "before another one has been waited for"),
    ],
)
def test_a_flag_between_blocks_is_set_and_waited_for_in_turn(asked: str, said: str) -> None:
    """A wait without a set, and a set while one is open, stop the run with what is wrong."""
    bench = Bench("sc", ())
    pod = bench.pod(small_pod(1, app_bytes=1024, ub_bytes=64))
    rows, out = pod.alloc(0, 32), pod.alloc(0, 32)
    kernel = ascendc.ascend_kernel(SOURCES / "crossed.cpp", "crossed", defines={"AFTER": asked})
    args = {"rows": rows.address, "out": out.address, "times": 0}
    ascendc.launch(bench, pod, kernel, 0, [0], args, [pod.grant(rows, "rw"), pod.grant(out, "w")])
    with pytest.raises(ProtocolError, match="code 4225"):
        pod.run()
    assert said in " ".join(ascendc.launch.__globals__["STOPS"].values())


@pytest.mark.parametrize(
    "asked", ["CrossCoreSetFlag<1, PIPE_MTE3>(1)", "CrossCoreSetFlag<0, PIPE_FIX>(1)", "CrossCoreWaitFlag<2>(1)"]
)
def test_flags_inside_a_block_are_refused_by_name(asked: str) -> None:
    """Modes of the cores of one block, and pipes of cubes, do not compile, and the compiler says what to use."""
    kernel = ascendc.ascend_kernel(SOURCES / "crossed.cpp", "crossed", defines={"AFTER": asked})
    with pytest.raises(KernelError, match=r"mode 0 and PIPE_MTE2, PIPE_V or PIPE_MTE3, or SyncAll"):
        assert kernel.sites


@pytest.mark.parametrize(("kind", "line"), [("half", 47), ("int32_t", 48)])
def test_tensors_of_a_list_by_a_kernel_that_a_macro_declares(kind: str, line: int) -> None:
    """Each comes from where the list says; the kernel's line is where the macro is used, and no other name is one."""
    joined = kernel_of(f"join_{kind}", "lists")
    assert joined._where.endswith(f"lists.cpp:{line}")
    pod = Pod(small_pod(1, app_bytes=1024, ub_bytes=256))
    rows = [np.arange(1, 17).astype({"half": "f2", "int32_t": "i4"}[kind]) * n for n in (1, 3)]
    held = [pod.put(0, row) for row in rows]
    listed = pod.put(0, np.array([16, 7, *(each.address for each in held)], np.int64))
    out = pod.alloc(0, 2 * rows[0].nbytes)
    args = {"list": listed.address, "out": out.address, "tensors": 2, "elements": 16, "block_idx": 0, "block_num": 1}
    pod.launch(joined, 0, [0], args, [*(pod.grant(each, "r") for each in (*held, listed)), pod.grant(out, "w")])
    pod.run()
    assert (pod.view(out, rows[0].dtype) == np.concatenate(rows)).all()
    with pytest.raises(KernelError, match="no kernel 'join_float'"):
        kernel_of("join_float", "lists")
