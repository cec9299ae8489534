"""Modules that have moved: an import by the old name warns, and gives the new one."""

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import CodeType, ModuleType
from typing import Any

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
"""The new name of each that others may have imported; what is below a package has moved with it."""


def new_name(old: str) -> str:
    """Return where a module has moved to, or nothing if it has not."""
    package, below = old, ""
    while package and package not in MOVED:
        package, _, last = package.rpartition(".")
        below = f".{last}{below}"
    return MOVED[package] + below if package else ""


class MovedFinder(MetaPathFinder, Loader):
    """Finds modules that have moved."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """A module that has moved is loaded from here."""
        found = find_spec(new) if name.startswith("xccl_emu.") and (new := new_name(name)) else None
        return found and ModuleSpec(name, self, is_package=found.submodule_search_locations is not None)

    def exec_module(self, module: ModuleType) -> None:
        """Warn, and put the module of the new name in place of the empty one."""
        old = module.__name__
        warnings.warn(f"{old} is {new_name(old)} now", DeprecationWarning, stacklevel=2)
        sys.modules[old] = import_module(new_name(old))

    def get_code(self, name: str) -> CodeType | None:
        """Return the code that ``python -m`` runs by the old name."""
        warnings.warn(f"{name} is {new_name(name)} now", DeprecationWarning, stacklevel=2)
        found = find_spec(new_name(name))
        loader: Any = found and found.loader
        code: CodeType | None = loader.get_code(new_name(name))
        return code


def answer_to_old_names() -> None:
    """Have modules found by their old names, before a folder that only holds what Python compiled is taken for one."""
    sys.meta_path.insert(0, MovedFinder())
