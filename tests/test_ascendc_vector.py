"""Vector instructions of Ascend C with masks, repeats and strides, and small scalars, bit for bit against NumPy."""

import functools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.foreign_support import ROOT, has_compiler
from xccl_emu.base.errors import ProtocolError
from xccl_emu.doors import ascendc
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import small_pod

pytestmark = pytest.mark.skipif(not has_compiler(False), reason="no C++ compiler: Ascend C is not tested here")
SOURCE = ROOT / "tests" / "ascendc_sources" / "vector.cpp"
ADD, MULS, DUPLICATE, WHOLE_MAX, BLOCK_SUM, SUM, SCALARS, COMPARE, SELECT, GATHER, SPREAD, WHOLE, PAIRS = range(13)
KINDS = {"float": np.dtype(np.float32), "half": np.dtype(np.float16), "int16_t": np.dtype(np.int16)}
NBYTES = 12 * 1024
"""The data buffer: three rows, x, y and z, of 4 KB."""


@functools.cache
def kernel(kind: str) -> ascendc.AscendKernel:
    """The kernel for elements of a type."""
    return ascendc.ascend_kernel(SOURCE, "strided", defines={"TYPE": kind})


def after(kind: str, image: NDArray[Any], which: int, mask: int, repeats: int, strides: list[int]) -> NDArray[Any]:
    """What the data buffer holds behind the instruction; strides of x, y, z: of blocks, then of repeats."""
    one = kernel(kind)
    pod = Pod(small_pod(1, app_bytes=2 * NBYTES, ub_bytes=NBYTES))
    source, target = pod.put(0, image), pod.alloc(0, NBYTES)
    each = NBYTES // 3 // image.itemsize
    low, high = (int(np.uint64(mask >> 64 * i & (1 << 64) - 1).astype(np.int64)) for i in range(2))
    args = {
        "image": source.address, "out": target.address, "which": which, "low": low, "high": high, "repeats": repeats,
        "a": 0, "b": each, "c": 2 * each, "strides": sum(s << 8 * i for i, s in enumerate(strides)), "nbytes": NBYTES,
        "block_idx": 0, "block_num": 1,
    }  # fmt: skip
    pod.launch(one, 0, [0], args, [pod.grant(source, "r"), pod.grant(target, "w")])
    pod.run()
    return pod.view(target, image.dtype).copy()


def places(size: int, mask: int, repeats: int, block: int, repeat: int) -> list[list[int]]:
    """Indices of the elements that take part in each repeat, counted from the operand's first."""
    each = 32 // size
    taken = [i for i in range(256 // size) if mask >> i & 1]
    return [[each * (r * repeat + i // each * block) + i % each for i in taken] for r in range(repeats)]


@settings(max_examples=60, deadline=None)
@given(data=st.data(), kind=st.sampled_from(sorted(KINDS)), which=st.sampled_from((ADD, MULS, DUPLICATE)))
def test_masks_repeats_and_strides(data: st.DataObject, kind: str, which: int) -> None:
    """Whatever mask, repeats and strides: each element is what NumPy makes of the elements at those places."""
    dtype = KINDS[kind]
    elements = 256 // dtype.itemsize
    mask = data.draw(st.integers(1, (1 << elements) - 1) | st.sampled_from([(1 << elements) - 1, 0x0101010101010101]))
    repeats = data.draw(st.integers(1, 3))
    strides = [data.draw(st.sampled_from((1, 1, 2, 3))) for _ in range(3)]
    strides += [data.draw(st.sampled_from((8, 8, 16, 25, 0)))] + [data.draw(st.integers(0, 30)) for _ in range(2)]
    image = np.random.default_rng(mask % 1000).integers(-50, 50, NBYTES // dtype.itemsize).astype(dtype)
    wanted, each = image.copy(), image.size // 3
    at = [places(dtype.itemsize, mask, repeats, strides[k], strides[3 + k]) for k in range(3)]
    for to, a, b in zip(*at, strict=True):
        x, y, z = np.array(to), np.array(a) + each, np.array(b) + 2 * each
        wanted[x] = {ADD: wanted[y] + wanted[z], MULS: wanted[y] * dtype.type(3), DUPLICATE: dtype.type(7)}[which]
    assert (after(kind, image, which, mask, repeats, strides) == wanted).all()


@settings(max_examples=30, deadline=None)
@given(n=st.integers(1, 64), repeats=st.integers(1, 3), stride=st.integers(1, 9), seed=st.integers(0, 99))
def test_reductions_of_repeats(n: int, repeats: int, stride: int, seed: int) -> None:
    """The largest element and its place of each repeat, the sum of each block, and the sum of all, are NumPy's."""
    image = np.random.default_rng(seed).integers(-9, 9, NBYTES // 4).astype(np.float32)
    y, wanted = image[1024:2048], image.copy()
    rows = [y[8 * stride * r :][:n] for r in range(repeats)]
    strides = [1, 1, 1, 1, stride, 0]
    for r, row in enumerate(rows):
        wanted[2 * r], wanted.view(np.uint32)[2 * r + 1] = row.max(), row.argmax()
    assert (after("float", image, WHOLE_MAX, n, repeats, strides) == wanted).all()
    wanted = image.copy()
    for r, row in enumerate(rows):
        for i in range(0, n, 8):
            wanted[8 * r + i // 8] = row[i : i + 8].sum()
    assert (after("float", image, BLOCK_SUM, n, repeats, strides) == wanted).all()
    found = after("float", image, SUM, n, repeats, strides)
    assert found[0] == sum(row.sum() for row in rows)


@settings(max_examples=20, deadline=None)
@given(
    n=st.integers(1, 64), repeats=st.integers(1, 3), block=st.integers(1, 2),
    strides=st.tuples(st.integers(0, 9), st.integers(0, 9)), seed=st.integers(0, 99),
)  # fmt: skip
def test_sums_of_pairs(n: int, repeats: int, block: int, strides: tuple[int, int], seed: int) -> None:
    """The sum of each pair that the mask has an element of, 32 of each repeat, bit for bit."""
    image = np.random.default_rng(seed).standard_normal(NBYTES // 4).astype(np.float32)
    y, wanted = image[1024:2048], image.copy()
    taken = places(4, (1 << n) - 1, repeats, block, strides[1])
    for r, row in enumerate(taken):
        for i in range(0, n, 2):
            wanted[32 * r * strides[0] + i // 2] = y[row[i : i + 2]].sum()
    assert (after("float", image, PAIRS, n, repeats, [1, block, 1, strides[0], strides[1], 0]) == wanted).all()


ROW = NBYTES // 3
FLOATS = ("float", "half")


def rows_of(kind: str, seed: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.uint8]]:
    """An image of small whole numbers, its row y, and the bytes of row z, any bits."""
    draw = np.random.default_rng(seed)
    image = draw.integers(-9, 9, NBYTES // KINDS[kind].itemsize).astype(KINDS[kind])
    image.view(np.uint8)[2 * ROW :] = draw.integers(0, 256, ROW, dtype=np.uint8)
    return image, image[image.size // 3 : 2 * image.size // 3], image.view(np.uint8)[2 * ROW :]


@settings(max_examples=20, deadline=None)
@given(kind=st.sampled_from(FLOATS), n=st.integers(1, 300), equal=st.booleans(), seed=st.integers(0, 99))
def test_bits_of_a_comparison(kind: str, n: int, equal: bool, seed: int) -> None:
    """A bit for each element that is less than the scalar, or equal to it; the rest stays."""
    image, y, _ = rows_of(kind, seed)
    wanted = image.copy()
    bits = np.packbits(y[:n] == 3 if equal else y[:n] < 3, bitorder="little")
    wanted.view(np.uint8)[: bits.size] = bits
    found = after(kind, image, COMPARE, n | int(equal) << 64, 1, [1] * 6)
    assert (found.view(np.uint8) == wanted.view(np.uint8)).all()


@settings(max_examples=20, deadline=None)
@given(kind=st.sampled_from(FLOATS), n=st.integers(1, 300), seed=st.integers(0, 99))
def test_elements_are_selected(kind: str, n: int, seed: int) -> None:
    """What has a bit stays as it is, what has none becomes 0; another scalar than 0 stops the run."""
    image, y, z = rows_of(kind, seed)
    wanted = image.copy()
    wanted[:n] = np.where(np.unpackbits(z, bitorder="little")[:n], y[:n], 0)
    assert (after(kind, image, SELECT, n, 1, [1] * 6).view(np.uint8) == wanted.view(np.uint8)).all()
    if seed == 0:
        with pytest.raises(ProtocolError, match="code 42248"):
            after(kind, image, SELECT, n | 1 << 64, 1, [1] * 6)


@settings(max_examples=40, deadline=None)
@given(
    kind=st.sampled_from(sorted(KINDS)), n=st.integers(1, 70), repeats=st.integers(1, 3), block=st.integers(1, 2),
    repeat=st.integers(0, 9), of_bits=st.integers(0, 2), seed=st.integers(0, 99),
)  # fmt: skip
def test_elements_are_gathered(
    kind: str, n: int, repeats: int, block: int, repeat: int, of_bits: int, seed: int
) -> None:
    """Elements with a bit, of each repeat, one behind the other; and how many they are."""
    image, y, z = rows_of(kind, seed)
    each, wanted, found = 32 // image.itemsize, image.copy(), []
    for r in range(repeats):
        bits = np.unpackbits(z[32 * r * of_bits :], bitorder="little")
        found += [each * (r * repeat + i // each * block) + i % each for i in range(n) if bits[i]]
    wanted[: len(found)] = y[found]
    wanted.view(np.int32)[1023] = len(found)
    strides = [1, block, 1, 1, repeat, of_bits]
    assert (after(kind, image, GATHER, n, repeats, strides).view(np.uint8) == wanted.view(np.uint8)).all()


@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize(("block", "repeat"), [(1, 8), (2, 16), (1, 9)])
def test_elements_are_spread_over_blocks(kind: str, block: int, repeat: int) -> None:
    """Eight elements of each repeat, each over a block of 32 bytes, at strides of blocks and repeats."""
    image, y, _ = rows_of(kind, 5)
    each, wanted = 32 // image.itemsize, image.copy()
    for r in range(3):
        for i in range(8):
            wanted[each * (r * repeat + i * block) :][:each] = y[8 * r + i]
    found = after(kind, image, SPREAD, 0, 3, [block, 1, 1, repeat, 8, 8])
    assert (found.view(np.uint8) == wanted.view(np.uint8)).all()


@pytest.mark.parametrize("value", [0.0, 2.75, -3.5, 60000.0, 6e-8])
def test_a_half_becomes_an_integer(value: float) -> None:
    """The scalar unit cuts off what is behind the point, of a subnormal too."""
    image, y, _ = rows_of("half", 1)
    y[0] = value
    assert after("half", image, WHOLE, 0, 1, [1] * 6).view(np.int32)[0] == int(np.float16(value))


def test_small_scalars_of_the_data_buffer() -> None:
    """Elements of 1 and 2 bytes are read and written by the scalar unit, signs as their type has them."""
    image = np.arange(NBYTES // 2, dtype=np.int16) - 300
    wanted = image.copy()
    wanted[0] = image[1] + 1
    wanted.view(np.int8)[0] = wanted.view(np.int8)[3]
    assert (after("int16_t", image, SCALARS, 0, 1, [1] * 6) == wanted).all()


def test_a_mask_beyond_a_repeat_is_refused() -> None:
    """A repeat of floats has 64 elements, so a mask with more stops the run."""
    image = np.zeros(NBYTES // 4, np.float32)
    with pytest.raises(ProtocolError, match="code 42244"):
        after("float", image, ADD, 1 << 64, 1, [1, 1, 1, 8, 8, 8])
