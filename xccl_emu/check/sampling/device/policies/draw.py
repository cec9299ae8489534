"""What the policies draw: one generator for each run, seeded by the check's seed and the run's number."""

import math

import numpy as np

from xccl_emu.machine.device.words import jit

_A, _B, _C = np.uint64(13), np.uint64(7), np.uint64(17)
_HALF = np.uint64(32)
_DECADES = 3 * 2.302585092994046


@jit
def seed_draws(state, seed, policy, number):
    """Begin the sequence of one run; equal arguments give an equal sequence."""
    state[0] = np.uint64(0x9E3779B97F4A7C15)
    for word in (seed & 0x7FFFFFFF, seed >> 31 & 0x7FFFFFFF, policy + 1, number + 1):
        state[0] = state[0] ^ (np.uint64(word) << np.uint64(21))
        for _ in range(8):
            _step(state)


@jit
def _step(state):
    """Marsaglia's xorshift of 64 bits."""
    x = state[0]
    x = x ^ (x << _A)
    x = x ^ (x >> _B)
    x = x ^ (x << _C)
    state[0] = x
    return x


@jit
def draw_below(state, n):
    """A number from 0 to n-1; n below 2^31."""
    return np.int64(_step(state) >> _HALF) * n >> 32


@jit
def draw_unit(state):
    """A number from 0 up to 1."""
    return np.float64(np.int64(_step(state) >> _HALF)) / 4294967296.0


@jit
def draw_weight(rng):
    """A weight, 10^-U(0, 3)."""
    return math.exp(-_DECADES * draw_unit(rng))


@jit
def is_change(changes, n, at):
    """Return whether this is one of the first n steps at which a policy changes its mind.  Each counts once."""
    for c in range(n):
        if changes[c] == at:
            changes[c] = -1
            return True
    return False
