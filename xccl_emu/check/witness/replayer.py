"""A launched pod that takes one action at a time, for a look between them."""

import numpy as np

from xccl_emu.check.device.fault_actions import act_fault, forget_cut
from xccl_emu.machine import driver
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.driver import begin
from xccl_emu.machine.pod import Pod

_NOTHING = -1 << ms.CHOICE_BITS  # an actor that does not exist
_ENDS = {ms.ENDED_DONE: "done", ms.ENDED_ERROR: "error", ms.ENDED_DEADLOCK: "deadlock"}


class Replayer:
    """Takes actions on a pod; brings its kernels to their first requests to begin with.

    Raises ConfigError for a pod that is not ready to run, or of plain generators (their locals are not in its state).
    """

    def __init__(self, pod: Pod) -> None:
        self.pod = pod
        self._replay = driver.policy("replay")
        begin(pod)

    def take(self, code: int) -> bool:
        """Take an action; False, and nothing changed, if it is not enabled."""
        if code < 0:
            with driver.arithmetic_of(self.pod.kernels):
                return bool(act_fault(self.pod.memory, self.pod.state, code))
        self.pod.state[ms.CURSOR] = 0
        with driver.arithmetic_of(self.pod.kernels):
            self._replay(self.pod.memory, self.pod.state, np.array([code, _NOTHING], np.int64), 1)
        return bool(self.pod.state[ms.CURSOR] == 1)

    def end(self) -> str:
        """Return how the run is: ``"done"``, ``"error"``, ``"deadlock"`` or ``"open"``; if open, the pod is spoilt."""
        if self.pod.state[ms.FAULT_CUT]:
            forget_cut(self.pod.state)
        self.pod.state[ms.CURSOR] = 0
        with driver.arithmetic_of(self.pod.kernels):
            ended = self._replay(self.pod.memory, self.pod.state, np.zeros(0, np.int64), 1)
        return _ENDS.get(ended, "open")
