"""Planting bugs: the text of a shipped kernel with a change, launched in place of the shipped one.

All but the change is the protocol that ships: there is no second copy of a kernel that could fall behind.
"""

import atexit
import functools
import hashlib
import importlib.util
import re
import shutil
import sys
import tempfile
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from graphlib import TopologicalSorter
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np

from xccl_emu.check.trial import Expected, Trial
from xccl_emu.protocol import Case

_PACKAGE = "xccl_emu.kernels"
_PLACES = {
    "sendrecv": ("xccl_emu.protocols.sendrecv.calls.device", ""),
    "pull.dispatch": ("xccl_emu.protocols.pull.session.ExpertParallel.dispatches.kernel", "dispatch"),
    "pull.combine": ("xccl_emu.protocols.pull.session.ExpertParallel.combines.kernel", "combine"),
    "pull.abortable_experts": ("xccl_emu.protocols.pull.case.RestartedExperts.kernel", "rank"),
    "fused.abortable_layer": ("xccl_emu.protocols.fused.case.RestartedFused.kernel", "rank"),
    "experts.dummy": ("xccl_emu.protocols.experts.group.DUMMY.kernel", "dummy_expert"),
    "fused.dispatch": ("xccl_emu.protocols.fused.session.FusedExpertParallel.dispatches.kernel", "fused_dispatch"),
    "fused.combine": ("xccl_emu.protocols.fused.session.FusedExpertParallel.combines.kernel", "fused_combine"),
    "deepep.dispatch": ("xccl_emu.protocols.deepep.session.DeepEp.dispatches.kernel", "deepep_dispatch"),
    "deepep.combine": ("xccl_emu.protocols.deepep.session.DeepEp.combines.kernel", "deepep_combine"),
    "deepep.normal_dispatch": (
        "xccl_emu.protocols.deepep.normal.NormalMode.dispatches.kernel", "normal_dispatch"
    ),
    "deepep.normal_combine": ("xccl_emu.protocols.deepep.normal.NormalMode.combines.kernel", "normal_combine"),
    "serving.reconfigure": ("xccl_emu.protocols.serving.reconfigure.device", ""),
    "serving.eplb": ("xccl_emu.protocols.serving.eplb.device", ""),
    "serving.swap": ("xccl_emu.protocols.serving.swap.group.swap", ""),
    "serving.collect": ("xccl_emu.protocols.serving.collect.device", ""),
    "serving.memory_pool": ("xccl_emu.protocols.serving.memory_pool.device", ""),
    "serving.context_cache": ("xccl_emu.protocols.serving.memory_pool.context.device", ""),
    "serving.model_cache": ("xccl_emu.protocols.serving.memory_pool.model_cache", ""),
    "serving.kv.transfer": ("xccl_emu.protocols.serving.kv.session.transfer", ""),
    "serving.kv.by_ring": ("xccl_emu.protocols.serving.kv.session.by_ring", ""),
    "serving.kv.probe": ("xccl_emu.protocols.serving.kv.probe.probe", ""),
    "serving.kv.retry": ("xccl_emu.protocols.serving.kv.retry.retry", ""),
    "a2e.attention": ("xccl_emu.protocols.a2e.session.attention", ""),
    "a2e.expert": ("xccl_emu.protocols.a2e.session.expert", ""),
    "a2e.e2a": ("xccl_emu.protocols.a2e.session.e2a", ""),
    "a2e.abortable_calls": ("xccl_emu.protocols.a2e.case.device", ""),
    "a2e.pull": ("xccl_emu.protocols.a2e.pull.device", ""),
    "collectives.ring": ("xccl_emu.protocols.collectives.case.ring", ""),
    "collectives.exchange": ("xccl_emu.protocols.collectives.case.exchange", ""),
    "collectives.barrier": ("xccl_emu.protocols.collectives.case.barrier", ""),
    "collectives.two_level": ("xccl_emu.protocols.collectives.two_level.two_level", "two_level"),
    "collectives.gather_by_reads": ("xccl_emu.protocols.collectives.two_level.gather_by_reads", "gather_by_reads"),
    "collectives.gather_by_cores": ("xccl_emu.protocols.collectives.case.gather_by_cores", ""),
    "collectives.sum_by_reads": ("xccl_emu.protocols.collectives.case.sum_by_reads", ""),
    "mixserve.layer": ("xccl_emu.protocols.mixserve.case.mixserve", "mixserve"),
    "collectives.sp_tp_sp": ("xccl_emu.protocols.collectives.sp_tp_sp.sp_tp_sp", "sp_tp_sp"),
    "serving.block_map": ("xccl_emu.protocols.serving.block_map.block_map", ""),
    "serving.heartbeat": ("xccl_emu.protocols.serving.heartbeat.heartbeat", ""),
    "serving.surviving_fused": ("xccl_emu.protocols.serving.survivors.group.SurvivingFused.kernel", "rank"),
    "serving.surviving_pull": ("xccl_emu.protocols.serving.survivors.group.SurvivingPull.kernel", "rank"),
    "serving.membership": ("xccl_emu.protocols.serving.membership.membership", ""),
    "serving.mtp": ("xccl_emu.protocols.serving.mtp.device", ""),
    "serving.two_streams": ("xccl_emu.protocols.serving.two_streams.device", ""),
    "rollback": ("xccl_emu.protocols.rollback.rollback", ""),
    "sampled": ("xccl_emu.protocols.rollback.sampled", ""),
    "mutants_kernels": (f"{__package__}.mutants_own.device", ""),
}
"""Where host sides have modules of kernels, or of one of them the kernel of this name."""

SCHEDULES = 1000
"""What a portfolio needs at most, with seed 0, to find any of them."""


@dataclass(frozen=True)
class Edit:
    """A change of a module's text: ``old``, which stands there once, becomes ``new``."""

    module: str
    old: str
    new: str

    def apply(self, text: str) -> str:
        """The text changed; AssertionError unless it has the place exactly once."""
        count = text.count(self.old)
        assert count == 1, f"{self.module}: {self.old!r} stands there {count} times"
        return text.replace(self.old, self.new)


class Apart(Edit):
    """The same, of a whole line; lines in place of it are indented as it was."""

    def apply(self, text: str) -> str:
        """The text changed."""
        line = next((line for line in text.splitlines() if line.strip() == self.old), self.old)
        return Edit(self.module, line, textwrap.indent(self.new, line.removesuffix(self.old))).apply(text)


@dataclass(frozen=True)
class Without:
    """A change of a module's text: what names a synchronization, or else the lines that have a text, do nothing."""

    module: str
    what: str

    def apply(self, text: str) -> str:
        """The text changed; AssertionError if there are no such lines."""
        lines = text.splitlines(keepends=True)
        gone = [line for line in lines if "yield" in line and f'"{self.what}"' in line]
        gone = gone or [line for line in lines if self.what in line]
        assert gone, f"{self.module}: {self.what!r} stands nowhere"
        return "".join(re.sub(r"\S.*", "pass", line) if line in gone else line for line in lines)


@dataclass(frozen=True)
class Of:
    """A module of kernels, to be changed."""

    module: str

    def __call__(self, old: str, new: str) -> Edit:
        """An old text, which stands there once, becomes a new one."""
        return Edit(self.module, old, new)

    def at(self, place: str, old: str, new: str) -> Edit:
        """In a place that stands there once, old becomes new."""
        assert old in place
        return Edit(self.module, place, place.replace(old, new))

    def apart(self, flag: str, sync: str, waited: str = "", more: str = "") -> Apart:
        """A flag that is handed over, with ``more`` arguments, is set, and another one, or none, is waited for."""
        wait = f'\nyield xl.wait_flag({waited}, sync="{sync}")' if waited else ""
        return Apart(self.module, f'yield from hand_over({flag}, "{sync}"{more})', f"yield xl.set_flag({flag}){wait}")

    def without(self, what: str) -> Without:
        """A synchronization by its name, or lines by a part of them, left out."""
        return Without(self.module, what)


@dataclass(frozen=True)
class Mutant:
    """A bug: in which configuration it is planted, how, and what finds it."""

    name: str
    scenario: Case
    kinds: frozenset[str]
    """The kinds of violations that it shows itself as; which one is met first depends on the schedule."""
    edits: tuple[Edit | Without, ...]
    base: tuple[Edit | Without, ...] = ()
    """Changes that make a correct variant, in which the bug is then planted."""
    quick: bool = False
    """Whether it is checked whenever the tests run."""

    def __str__(self) -> str:
        return self.name

    @property
    def unplanted(self) -> Case:
        """The same configuration without the bug."""
        return Planted(self.scenario, self.base) if self.base else self.scenario

    @property
    def planted(self) -> Case:
        """The configuration with the bug."""
        return Planted(self.scenario, self.base + self.edits)


def ends_with(trial: Trial, words: Mapping[str, Sequence[int]]) -> Trial:
    """The same, in which these words must be where labels name them when all has ended."""
    at = {label.name: label.address for label in trial.labels}
    raw = {name: np.array(each, np.int64) for name, each in words.items()}
    more = (Expected(name, at[name], each.tobytes(), dtype=each.dtype, shape=each.shape) for name, each in raw.items())
    return replace(trial, expected=(*trial.expected, *more))


def bug(name: str, scenario: Case, kinds: frozenset[str], *edits: Edit | Without, **more: Any) -> Mutant:
    """A row of a table of bugs."""
    return Mutant(name, scenario, kinds, edits, **more)


@dataclass(frozen=True)
class Planted:
    """A scenario whose kernels are changed."""

    scenario: Case
    edits: tuple[Edit | Without, ...]

    @property
    def name(self) -> str:
        """As that of the scenario."""
        return self.scenario.name

    @property
    def configuration(self) -> Mapping[str, int | str]:
        """As that of the scenario."""
        return self.scenario.configuration

    @property
    def syncs(self) -> tuple[str, ...]:
        """As those of the scenario."""
        return self.scenario.syncs

    def build(self, order: str, without: Collection[str] = ()) -> Trial:
        """What the scenario builds, of the changed kernels."""
        with in_place(kernels(self.edits)):
            return self.scenario.build(order, without)


@contextmanager
def in_place(changed: Mapping[str, ModuleType]) -> Iterator[None]:
    """Let the protocols launch kernels of these modules."""
    with ExitStack() as stack:
        for module in changed.keys() & _PLACES.keys():
            place, kernel = _PLACES[module]
            made = getattr(changed[module], kernel) if kernel else changed[module]
            stack.enter_context(mock.patch(place, made))
        yield


@functools.cache
def kernels(edits: tuple[Edit | Without, ...]) -> Mapping[str, ModuleType]:
    """The modules that differ by these edits, and those that import them, loaded anew from changed text."""
    changed: dict[str, ModuleType] = {}
    wanted = {edit.module for edit in edits}
    with mock.patch.dict(sys.modules):
        for module, imported in imports().items():
            if module in wanted or wanted & imported:
                wanted.add(module)
                name = name_of(module)
                changed[module] = sys.modules[name] = load(name, changed_text(module, edits))
    return changed


def name_of(module: str) -> str:
    """Return the name by which a module of kernels is imported."""
    return f"{__package__ if module.startswith('mutants') else _PACKAGE}.{module}"


def changed_text(module: str, edits: tuple[Edit | Without, ...]) -> str:
    """The source of a module of kernels with these edits; AssertionError for one that does not fit."""
    text = text_of(name_of(module))
    for edit in edits:
        text = edit.apply(text) if edit.module == module else text
    return text


@functools.cache
def imports() -> Mapping[str, set[str]]:
    """Modules of kernels, those that others import first, and what each imports of the others."""
    root = path_of(f"{_PACKAGE}.group").parent
    texts = {
        ".".join(path.relative_to(root).with_suffix("").parts): path.read_text(encoding="utf-8")
        for path in root.rglob("*.py")
    }
    known = {name: set(re.findall(rf"^from {_PACKAGE}\.([\w.]+) import", text, re.M)) for name, text in texts.items()}
    return {name: known[name] for name in TopologicalSorter(known).static_order()} | {"mutants_kernels": set()}


def text_of(module: str) -> str:
    """The source of a module."""
    return path_of(module).read_text(encoding="utf-8")


def path_of(module: str) -> Path:
    """Its file."""
    return Path(importlib.util.find_spec(module).origin)


def load(module: str, text: str) -> ModuleType:
    """Execute a text as a module of that name; it stands in a file, because kernels are lowered from their source."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    path = folder() / f"{module.rpartition('.')[2]}_{digest}.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(module, path)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@functools.cache
def folder() -> Path:
    """The folder of the changed texts, removed at the end of the process."""
    path = Path(tempfile.mkdtemp(prefix="xccl_emu-mutants-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path
