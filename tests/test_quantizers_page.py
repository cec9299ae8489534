"""The page on the quantizers: its numbers are what the oracle gives."""

from pathlib import Path

import numpy as np
import pytest

from xccl_emu import oracle


@pytest.fixture(scope="module")
def page(repository: Path) -> str:
    """The page's text in one line."""
    return " ".join((repository / "docs" / "records" / "quantizers.md").read_text(encoding="utf-8").split())


def _scales(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bits of each row's scale by both rules, whose INT8 must be equal."""
    (q, scales), (q_cann, scales_cann) = oracle.quantize_int8(x), oracle.quantize_int8_cann(x)
    assert (q == q_cann).all()
    return scales.view(np.int32), scales_cann.view(np.int32)


def test_how_many_significands_get_another_scale(page: str) -> None:
    """As many significands in one binade differ as the page says, by one unit, whatever the exponent."""
    differing = []
    for dtype, one, step in ((oracle.BF16, 0x3F80, 128), (oracle.FP16, 0x3C00, 1024)):
        for binade in (-2, 0, 2):
            x = np.arange(one + binade * step, one + (binade + 1) * step, dtype=np.uint16).view(dtype)[:, None]
            ours, cann = _scales(x)
            assert np.abs(ours - cann).max() == 1
            differing.append(f"{np.count_nonzero(ours != cann)} of the {step}")
    assert differing == ["42 of the 128"] * 3 + ["297 of the 1024"] * 3
    assert "42 of the 128 of BF16 and 297 of the 1024 of FP16" in page


def test_the_example_row(page: str) -> None:
    """The page's example has the bits that it prints."""
    ours, cann = _scales(np.array([[1.171875, 0.5]], np.float32).astype(oracle.BF16))
    assert f"`xccl` sends 0x{ours[0]:08X}, `cann` 0x{cann[0]:08X}" in page


def test_shares_on_normal_data(page: str) -> None:
    """Shares of rows, restored values and BF16 outputs that differ, as on the page."""
    x = np.random.default_rng(0).standard_normal((2000, 7168), dtype=np.float32).astype(oracle.BF16)
    ours, cann = _scales(x)
    q, _ = oracle.quantize_int8(x)
    restored = [oracle.dequantize_int8(q, bits.view(np.float32)) for bits in (ours, cann)]
    outputs = [oracle.round_to(values * np.float32(1.125), oracle.BF16).view(np.uint16) for values in restored]
    assert f"{(ours != cann).mean():.1%} have another scale" in page
    assert f"{(restored[0] != restored[1]).mean():.1%} of the restored FP32 values" in page
    assert f"{(outputs[0] != outputs[1]).mean() * 1e6:.1f} in a million" in page
