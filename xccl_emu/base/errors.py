"""Every error that xccl_emu raises on purpose: one small hierarchy under `XcclEmuError`."""


class XcclEmuError(Exception):
    """Base of all errors that the emulator raises on purpose."""


class ConfigError(XcclEmuError, ValueError):
    """An argument is out of range or does not fit the others; names the argument, its value and what would be right.

    ``ConfigError("dies", 0, "must be at least 1")`` says ``dies=0: must be at least 1``, and a command finds the option
    that was given by ``argument`` and ``value``.  A text alone is about no single argument, and is shown as it is.
    """

    def __init__(self, argument: str, value: object = None, must: str = "") -> None:
        shown = repr(value) if isinstance(value, str) else str(value)
        super().__init__(f"{argument}={shown}: {must}" if must else argument)
        self.argument, self.value, self.must = (argument, value, must) if must else ("", None, argument)


class CapacityError(ConfigError):
    """Something does not fit: an area of a die, a data buffer, the memory of this machine."""


class ToFillError(ConfigError):
    """A hole of a case that `xccl-emu scaffold` wrote has not been filled in; names what goes there."""


class KernelError(XcclEmuError):
    """A kernel uses something that cannot be lowered to steps; names file, line and reason."""


class RunError(XcclEmuError):
    """A run ended early; the memory of the pod is as the run left it."""


class KernelArithmeticError(KernelError, RunError):
    """A kernel divided by zero, or shifted by a number that cannot be."""


class KernelFaultError(KernelError, RunError):
    """A kernel in C overran its stack, touched memory that is not its own, called abort, or never makes a request."""


class PointerError(KernelError, RunError):
    """A kernel in C follows a pointer to memory of the machine, and its compiler cannot make a request of that."""


class AccessError(RunError):
    """An instruction reached outside of what its core may touch; nothing of it was carried out."""


class DeadlockError(RunError):
    """Nothing can go on: lists each blocked core, what it waits for, what it saw and who last wrote there."""


class ProtocolError(RunError):
    """A kernel found its protocol violated (`fail`), for example a wrong event ID.

    ``code`` and ``value`` are what the kernel gave, ``core`` is the global number of the core that it ran on.
    """

    def __init__(self, message: str, code: int = 0, value: int = 0, core: int = -1) -> None:
        super().__init__(message)
        self.code, self.value, self.core = code, value, core


class EventMismatchError(ProtocolError):
    """The two sides of a transfer were called with different event IDs."""


class PayloadMismatchError(ProtocolError):
    """The two sides of a transfer were called with different payload sizes or numbers of cores."""


class ReplayError(XcclEmuError):
    """A recorded schedule is damaged, belongs to another run, or asks for an action that is not enabled."""


class ViolationError(RunError):
    """A run that was watched goes wrong under some schedule; the text has the schedule that shows it.

    ``kind`` says how (`check.verdict`), ``witness`` is the replay file (a path), or None if none was written.
    """

    def __init__(self, message: str, kind: str = "", witness: object = None) -> None:
        super().__init__(message)
        self.kind, self.witness = kind, witness


class UnfinishedError(XcclEmuError):
    """Work came to no end: a process was killed, or some of many jobs failed; the results of others are not wrong."""


class OutputError(XcclEmuError):
    """A result could not be written: the disk is full, or a path has become unwritable since it was looked at."""
