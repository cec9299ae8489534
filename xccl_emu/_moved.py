"""Modules that have moved: an import by the old name warns, and gives the new one."""

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

MOVED = {
    "xccl_emu.bench.gathered": "xccl_emu.jobs",
    "xccl_emu.bench.processes": "xccl_emu.jobs",
    "xccl_emu.bench.against": "xccl_emu.bench.baseline",
    "xccl_emu.bench.prices": "xccl_emu.bench.mixserve",
    "xccl_emu.check.sampling.report": "xccl_emu.check.sampling.sample",
    "xccl_emu.check.witness.fold": "xccl_emu.check.witness.render",
    "xccl_emu.check.witness.page": "xccl_emu.check.witness.picture",
    "xccl_emu.cli.options": "xccl_emu.cli.app",
    "xccl_emu.kernels.a2e.rollback": "xccl_emu.kernels.a2e.abortable_calls",
    "xccl_emu.kernels.fused.rollback": "xccl_emu.kernels.fused.abortable_layer",
    "xccl_emu.kernels.pull.rollback": "xccl_emu.kernels.pull.abortable_experts",
    "xccl_emu.measurements.mixserve": "xccl_emu.measurements.libraries",
    "xccl_emu.plan.explain": "xccl_emu.plan.strategies",
    "xccl_emu.plan.memory": "xccl_emu.plan.strategies",
    "xccl_emu.plan.queueing": "xccl_emu.plan.strategies",
    "xccl_emu.protocol.data": "xccl_emu.protocol.bench",
    "xccl_emu.protocol.tight": "xccl_emu.protocol.regions",
    "xccl_emu.protocols.a2e.rollback": "xccl_emu.protocols.a2e.restarted_a2e",
    "xccl_emu.protocols.fused.rollback": "xccl_emu.protocols.fused.restarted_fused",
    "xccl_emu.protocols.pull.rollback": "xccl_emu.protocols.pull.restarted_pull",
    "xccl_emu.testing.together": "xccl_emu.testing.watched",
    "xccl_emu.timing.fabric_file": "xccl_emu.timing.topologies",
    "xccl_emu.timing.page": "xccl_emu.timing.picture",
    "xccl_emu.timing.trace_counters": "xccl_emu.timing.trace",
}
"""The new name of each that others may have imported."""


class MovedFinder(MetaPathFinder, Loader):
    """Finds modules that have moved."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """A module that has moved is loaded from here."""
        return ModuleSpec(name, self) if name in MOVED else None

    def exec_module(self, module: ModuleType) -> None:
        """Warn, and put the module of the new name in place of the empty one."""
        old = module.__name__
        warnings.warn(f"{old} is {MOVED[old]} now", DeprecationWarning, stacklevel=2)
        sys.modules[old] = import_module(MOVED[old])


def answer_to_old_names() -> None:
    """Have modules found by their old names, if nothing else has such a name."""
    sys.meta_path.append(MovedFinder())
