"""Blocks of prompts that are known by what comes before them ([CloudMatrix384] 4.4.2)."""

import numpy as np
from numpy.typing import NDArray

_31_BITS = 2**31


def mixed(word: int) -> int:
    """A hash of 31 bits, never 0: two rounds of multiply and xor-shift."""
    word = word % _31_BITS * 73244475 % _31_BITS
    word = (word ^ word // 2**15) * 295559667 % _31_BITS
    return (word ^ word // 2**14) % _31_BITS | 1


def keys(tokens: NDArray[np.int64]) -> list[int]:
    """Return the key of each block of a prompt, from the word that its tokens are: each is of all blocks so far."""
    found = list[int]()
    for word in tokens.tolist():
        found.append(mixed(mixed(found[-1] if found else 0) ^ word))
    return found


def cache(tokens: NDArray[np.int64], words: int) -> NDArray[np.int64]:
    """[blocks, words] what a model makes of a prompt: the block's key, and for each place a hash of key and place."""
    return np.array([[key, *(mixed(key + i) for i in range(1, words))] for key in keys(tokens)])
