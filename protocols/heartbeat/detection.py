"""How long until a hang is known to the control plane, by intervals and a time-out ([xDeepServe] 6.1)."""

import numpy as np
from numpy.typing import NDArray

from xccl_emu.errors import ConfigError


def detection_us(
    control_us: float, shell_us: float, time_out_us: float, draws: int = 10_000, seed: int = 0
) -> NDArray[np.float64]:
    """Return the time from the hang of an executor until the control plane knows which master is silent, [draws].

    Parameters
    ----------
    control_us, shell_us: intervals at which the control plane asks the shell, and the shell its masters; decoupled, so
        each is somewhere in its interval when the executor hangs.
    time_out_us: after which the shell takes a master for silent.

    The control plane asks the shell alone, which answers at once: a shell that is silent too adds a time-out.  Raises
    ConfigError for a time that is not above 0, or no draws.
    """
    for name, value in (("control_us", control_us), ("shell_us", shell_us), ("time_out_us", time_out_us)):
        if not 0 < value < float("inf"):
            raise ConfigError(f"{name}={value}: must be a time above 0, in microseconds")
    if draws < 1:
        raise ConfigError(f"draws={draws}: must be at least 1")
    rng = np.random.default_rng(seed)
    known = rng.uniform(0, shell_us, draws) + time_out_us
    phase = rng.uniform(0, control_us, draws)  # of the control plane's first question
    return phase + np.ceil(np.maximum(known - phase, 0) / control_us) * control_us
