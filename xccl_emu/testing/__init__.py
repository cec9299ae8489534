"""For tests of protocols, the shipped ones and your own.

A protocol is a function that lays out a pod and launches kernels on it (`protocol`); `assert_verified` says whether it
is right under every schedule, and raises `ProtocolViolation` with the run that breaks it if it is not.  With pytest
there are the fixtures `xccl_check` and `xccl_seed` (`xccl_emu.testing.plugin`); `xccl_emu.testing.strategies` has
strategies of Hypothesis.

Importing this package imports next to nothing: pytest loads it at every start, whatever is tested.  Names are looked up
in their modules when they are first used.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xccl_emu.check.certify import certify
    from xccl_emu.check.check import check
    from xccl_emu.check.trial import Checkable, Expected, Label, Trial
    from xccl_emu.check.verdict import Certificate, Verdict, Violation
    from xccl_emu.protocol.bench import Bench
    from xccl_emu.protocol.case import Case, protocol, syncs
    from xccl_emu.testing.assertions import NotVerified, ProtocolViolation, assert_no_violation, assert_verified
    from xccl_emu.testing.strategies import calls_machine, sequences
    from xccl_emu.testing.watched import Watched
    from xccl_emu.testing.witnesses import replay, save_witness, witness_line, witness_picture, witness_text
    from xccl_emu.timing.critical import Measured, measure
else:
    from xccl_emu.base.lazy import names

    __getattr__, __dir__ = names(globals(), {
        "xccl_emu.timing.critical": "Measured, measure",
        "xccl_emu.check.certify": "certify",
        "xccl_emu.check.check": "check",
        "xccl_emu.check.trial": "Checkable, Expected, Label, Trial",
        "xccl_emu.check.verdict": "Certificate, Verdict, Violation",
        "xccl_emu.protocol.bench": "Bench",
        "xccl_emu.protocol.case": "Case, protocol, syncs",
        "xccl_emu.testing.assertions": "NotVerified, ProtocolViolation, assert_no_violation, assert_verified",
        "xccl_emu.testing.strategies": "calls_machine, sequences",
        "xccl_emu.testing.watched": "Watched",
        "xccl_emu.testing.witnesses": "replay, save_witness, witness_line, witness_picture, witness_text",
    })  # fmt: skip

__all__ = [
    "Bench", "Case", "Certificate", "Checkable", "Expected", "Label", "Measured", "NotVerified", "ProtocolViolation",
    "Trial", "Verdict", "Violation", "Watched", "assert_no_violation", "assert_verified", "calls_machine", "certify",
    "check", "measure", "protocol", "replay", "save_witness", "sequences", "syncs", "witness_line", "witness_picture",
    "witness_text",
]  # fmt: skip
