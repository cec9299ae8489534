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
    "xccl_emu.ascendc": "xccl_emu.doors.ascendc",
    "xccl_emu.bench": "xccl_emu.papers.bench",
    "xccl_emu.bench.against": "xccl_emu.papers.bench.baseline",
    "xccl_emu.bench.gathered": "xccl_emu.base.jobs",
    "xccl_emu.bench.measured": "xccl_emu.timing.critical",
    "xccl_emu.bench.prices": "xccl_emu.papers.bench.mixserve",
    "xccl_emu.bench.processes": "xccl_emu.base.jobs",
    "xccl_emu.campaign": "xccl_emu.guards.campaign",
    "xccl_emu.campaign.corpus": "xccl_emu.guards.campaign.patterns",
    "xccl_emu.campaign.shrink": "xccl_emu.guards.campaign.run",
    "xccl_emu.check.search.faulty": "xccl_emu.check.search.every_fault",
    "xccl_emu.check.witness.shrink": "xccl_emu.check.witness.shrink_schedule",
    "xccl_emu.cli.sooner": "xccl_emu.cli.plain_first",
    "xccl_emu.fuzz.shrink": "xccl_emu.fuzz.run",
    "xccl_emu.check.device.attempts": "xccl_emu.check.witness.device.attempts",
    "xccl_emu.check.device.monitor": "xccl_emu.check.sampling.device.monitor",
    "xccl_emu.check.device.sampling": "xccl_emu.check.sampling.device",
    "xccl_emu.check.device.search": "xccl_emu.check.search.device",
    "xccl_emu.check.sampling.report": "xccl_emu.check.sampling.sample",
    "xccl_emu.check.witness.chart": "xccl_emu.check.witness.exported",
    "xccl_emu.check.witness.perfetto": "xccl_emu.check.witness.exported",
    "xccl_emu.check.witness.rank": "xccl_emu.check.shrink",
    "xccl_emu.check.witness.sarif": "xccl_emu.check.witness.exported",
    "xccl_emu.check.witness.fold": "xccl_emu.check.witness.render",
    "xccl_emu.check.witness.page": "xccl_emu.check.witness.picture",
    "xccl_emu.cli.bench": "xccl_emu.papers.cli.bench",
    "xccl_emu.cli.bench_plot": "xccl_emu.papers.cli.bench_plot",
    "xccl_emu.cli.bench_show": "xccl_emu.papers.cli.bench_show",
    "xccl_emu.cli.campaign": "xccl_emu.guards.cli.campaign",
    "xccl_emu.cli.compare": "xccl_emu.papers.cli.compare",
    "xccl_emu.cli.fit": "xccl_emu.papers.cli.fit",
    "xccl_emu.cli.litmus": "xccl_emu.doors.cli.litmus",
    "xccl_emu.cli.options": "xccl_emu.cli.app",
    "xccl_emu.cli.perf": "xccl_emu.papers.cli.perf",
    "xccl_emu.cli.plan": "xccl_emu.papers.cli.plan",
    "xccl_emu.cli.plan_show": "xccl_emu.papers.cli.plan_show",
    "xccl_emu.errors": "xccl_emu.base.errors",
    "xccl_emu.jobs": "xccl_emu.base.jobs",
    "xccl_emu.kernels.a2e.rollback": "xccl_emu.kernels.a2e.abortable_calls",
    "xccl_emu.kernels.block_map": "xccl_emu.kernels.serving.block_map",
    "xccl_emu.kernels.collect": "xccl_emu.kernels.serving.collect",
    "xccl_emu.kernels.fused.rollback": "xccl_emu.kernels.fused.abortable_layer",
    "xccl_emu.kernels.heartbeat": "xccl_emu.kernels.serving.heartbeat",
    "xccl_emu.kernels.kv": "xccl_emu.kernels.serving.kv",
    "xccl_emu.kernels.membership": "xccl_emu.kernels.serving.membership",
    "xccl_emu.kernels.memory_pool": "xccl_emu.kernels.serving.memory_pool",
    "xccl_emu.kernels.model_cache": "xccl_emu.kernels.serving.model_cache",
    "xccl_emu.kernels.mtp": "xccl_emu.kernels.serving.mtp",
    "xccl_emu.kernels.pull.rollback": "xccl_emu.kernels.pull.abortable_experts",
    "xccl_emu.kernels.reconfigure": "xccl_emu.kernels.serving.reconfigure",
    "xccl_emu.kernels.two_streams": "xccl_emu.kernels.serving.two_streams",
    "xccl_emu.machine.address_space": "xccl_emu.machine.state",
    "xccl_emu.machine.compiled": "xccl_emu.machine.driver",
    "xccl_emu.machine.device.by_address": "xccl_emu.machine.device.words",
    "xccl_emu.machine.device.conditions": "xccl_emu.machine.device.polls",
    "xccl_emu.machine.device.far": "xccl_emu.machine.device.memory",
    "xccl_emu.machine.device.lines": "xccl_emu.machine.device.polls",
    "xccl_emu.machine.device.lost": "xccl_emu.machine.device.memory",
    "xccl_emu.machine.device.sparse": "xccl_emu.machine.device.memory",
    "xccl_emu.machine.device.start": "xccl_emu.machine.device.actions",
    "xccl_emu.machine.device.traffic": "xccl_emu.machine.device.scalar",
    "xccl_emu.machine.device.vectors": "xccl_emu.machine.device.touched",
    "xccl_emu.machine.free_memory": "xccl_emu.base.free_memory",
    "xccl_emu.measurements": "xccl_emu.papers.measurements",
    "xccl_emu.measurements.mixserve": "xccl_emu.papers.measurements.libraries",
    "xccl_emu.options": "xccl_emu.base.options",
    "xccl_emu.output": "xccl_emu.base.output",
    "xccl_emu.pages": "xccl_emu.base.pages",
    "xccl_emu.plan": "xccl_emu.papers.plan",
    "xccl_emu.plan.explain": "xccl_emu.papers.plan.strategies",
    "xccl_emu.plan.memory": "xccl_emu.papers.plan.strategies",
    "xccl_emu.plan.queueing": "xccl_emu.papers.plan.strategies",
    "xccl_emu.protocol.data": "xccl_emu.protocol.bench",
    "xccl_emu.protocol.tight": "xccl_emu.protocol.regions",
    "xccl_emu.protocols.a2e.rollback": "xccl_emu.protocols.a2e.case",
    "xccl_emu.protocols.block_map": "xccl_emu.protocols.serving.block_map",
    "xccl_emu.protocols.collect": "xccl_emu.protocols.serving.collect",
    "xccl_emu.protocols.fused.rollback": "xccl_emu.protocols.fused.case",
    "xccl_emu.protocols.heartbeat": "xccl_emu.protocols.serving.heartbeat",
    "xccl_emu.protocols.kv": "xccl_emu.protocols.serving.kv",
    "xccl_emu.protocols.membership": "xccl_emu.protocols.serving.membership",
    "xccl_emu.protocols.memory_pool": "xccl_emu.protocols.serving.memory_pool",
    "xccl_emu.protocols.mtp": "xccl_emu.protocols.serving.mtp",
    "xccl_emu.protocols.pull.rollback": "xccl_emu.protocols.pull.case",
    "xccl_emu.protocols.reconfigure": "xccl_emu.protocols.serving.reconfigure",
    "xccl_emu.protocols.two_streams": "xccl_emu.protocols.serving.two_streams",
    "xccl_emu.sizes": "xccl_emu.base.sizes",
    "xccl_emu.stage": "xccl_emu.base.stage",
    "xccl_emu.testing.together": "xccl_emu.testing.watched",
    "xccl_emu.timing.fabric_file": "xccl_emu.timing.topologies",
    "xccl_emu.timing.page": "xccl_emu.timing.picture",
    "xccl_emu.timing.trace_counters": "xccl_emu.timing.trace",
    "xccl_emu.torch": "xccl_emu.doors.torch",
    "xccl_emu.words": "xccl_emu.base.words",
    "xccl_emu.machine.claims": "xccl_emu.machine.state",
    "xccl_emu.machine.labels": "xccl_emu.machine.state",
    "xccl_emu.machine.switches": "xccl_emu.machine.state",
    "xccl_emu.protocols.arguments": "xccl_emu.protocols.communicator",
    "xccl_emu.protocols.experts.buffers": "xccl_emu.protocols.experts.layout",
    "xccl_emu.protocols.experts.tokens": "xccl_emu.protocols.experts.routed",
    "xccl_emu.protocols.experts.drawn": "xccl_emu.protocols.experts.routed",
    "xccl_emu.protocols.experts.compared": "xccl_emu.protocols.experts.data",
    "xccl_emu.protocols.sendrecv.launch": "xccl_emu.protocols.sendrecv.calls",
    "xccl_emu.protocols.serving.kv.mapping": "xccl_emu.protocols.serving.kv.session",
    "xccl_emu.protocols.serving.kv.layout": "xccl_emu.protocols.serving.kv.session",
    "xccl_emu.papers.bench.scheduling": "xccl_emu.papers.bench.serve",
    "xccl_emu.papers.bench.buffers": "xccl_emu.papers.bench.tables",
    "xccl_emu.papers.bench.ablation": "xccl_emu.papers.bench.phases",
    "xccl_emu.papers.bench.hccl": "xccl_emu.papers.bench.operators",
    "xccl_emu.papers.bench.hixl": "xccl_emu.papers.bench.links",
    "xccl_emu.papers.bench.iteration": "xccl_emu.papers.bench.dispatch",
    "xccl_emu.papers.bench.traffic": "xccl_emu.papers.bench.compare",
    "xccl_emu.papers.bench.tpot": "xccl_emu.papers.bench.serve_apart",
    "xccl_emu.papers.plan.tables": "xccl_emu.papers.plan.model",
    "xccl_emu.papers.plan.forms": "xccl_emu.papers.plan.costs",
    "xccl_emu.papers.plan.partition": "xccl_emu.papers.plan.grammar",
    "xccl_emu.protocol.collective": "xccl_emu.protocol.case",
    "xccl_emu.testing.calls": "xccl_emu.testing.strategies",
    "xccl_emu.fuzz.shrink_sequence": "xccl_emu.fuzz.run",
    "xccl_emu.routing.replicas": "xccl_emu.routing.placement",
    "xccl_emu.timing.trace_flows": "xccl_emu.timing.trace",
    "xccl_emu.timing.measured": "xccl_emu.timing.critical",
    "xccl_emu.timing.device.answers": "xccl_emu.timing.device.scalar",
    "xccl_emu.check.search.watched": "xccl_emu.guards.campaign.ends",
    "xccl_emu.protocols.rollback.case": "xccl_emu.protocols.rollback",
    "xccl_emu.protocols.serving.block_map.case": "xccl_emu.protocols.serving.block_map",
    "xccl_emu.protocols.serving.collect.case": "xccl_emu.protocols.serving.collect",
    "xccl_emu.protocols.serving.heartbeat.case": "xccl_emu.protocols.serving.heartbeat",
    "xccl_emu.protocols.serving.membership.case": "xccl_emu.protocols.serving.membership",
    "xccl_emu.protocols.serving.mtp.case": "xccl_emu.protocols.serving.mtp",
    "xccl_emu.protocols.serving.reconfigure.case": "xccl_emu.protocols.serving.reconfigure",
    "xccl_emu.protocols.serving.two_streams.case": "xccl_emu.protocols.serving.two_streams",
    "xccl_emu.protocols.fused.restarted_fused": "xccl_emu.protocols.fused.case",
    "xccl_emu.protocols.pull.restarted_pull": "xccl_emu.protocols.pull.case",
    "xccl_emu.protocols.a2e.restarted_a2e": "xccl_emu.protocols.a2e.case",
    "xccl_emu.protocols.deepep.normal_case": "xccl_emu.protocols.deepep.case",
    "xccl_emu.protocols.serving.memory_pool.models": "xccl_emu.protocols.serving.memory_pool",
    "xccl_emu.protocols.serving.memory_pool.case": "xccl_emu.protocols.serving.memory_pool",
}
"""The new name of each that others may have imported; what is below a package has moved with it."""
_ON_THE_WAY = ("xccl_emu.", "importlib._bootstrap")
"""Beginnings of the names of modules that import for others."""


def new_name(old: str) -> str:
    """Return where a module has moved to, or nothing if it has not."""
    package, below = old, ""
    while package and package not in MOVED:
        package, _, last = package.rpartition(".")
        below = f".{last}{below}"
    return MOVED[package] + below if package else ""


def _warn(old: str) -> None:
    """Warn where an old name is imported: neither in this package nor in Python's own loader."""
    frame = sys._getframe(1)
    while frame.f_globals.get("__name__", "").startswith(_ON_THE_WAY) and frame.f_back:
        frame = frame.f_back
    space = frame.f_globals
    seen = space.setdefault("__warningregistry__", {})
    where = frame.f_code.co_filename, frame.f_lineno, space.get("__name__", ""), seen
    warnings.warn_explicit(f"{old} is {new_name(old)} now", DeprecationWarning, *where)


class MovedFinder(MetaPathFinder, Loader):
    """Finds modules that have moved."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """A module that has moved is loaded from here."""
        found = find_spec(new) if name.startswith("xccl_emu.") and (new := new_name(name)) else None
        return found and ModuleSpec(name, self, is_package=found.submodule_search_locations is not None)

    def exec_module(self, module: ModuleType) -> None:
        """Warn, and put the module of the new name in place of the empty one."""
        old = module.__name__
        _warn(old)
        sys.modules[old] = import_module(new_name(old))

    def get_code(self, name: str) -> CodeType | None:
        """Return the code that ``python -m`` runs by the old name."""
        _warn(name)
        found = find_spec(new_name(name))
        loader: Any = found and found.loader
        code: CodeType | None = loader.get_code(new_name(name))
        return code


def answer_to_old_names() -> None:
    """Have modules found by their old names, before a folder that only holds what Python compiled is taken for one."""
    sys.meta_path.insert(0, MovedFinder())
