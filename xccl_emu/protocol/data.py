"""Payloads in which a wrong byte shows."""

import numpy as np
from numpy.typing import NDArray


def payload(nbytes: int, seed: int) -> NDArray[np.uint8]:
    """Bytes without a zero, so that they differ from memory that was never written, and no two granules alike.

    The first two bytes of each granule count the granules; the others are random.
    """
    data = np.random.default_rng([seed, nbytes]).integers(1, 256, nbytes, dtype=np.uint8)
    numbers = np.arange(0, nbytes, 32)
    data[numbers] = 1 + (numbers // 32 + 7 * seed % 255) % 255
    full = numbers[numbers + 1 < nbytes]
    data[full + 1] = 1 + (full // 32 // 255 + seed % 255) % 255
    return data
