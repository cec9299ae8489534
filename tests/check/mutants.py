"""Planting bugs: the text of a shipped kernel with a change, launched in place of the shipped one.

All but the change is the protocol that ships: there is no second copy of a kernel that could fall behind.
"""

import atexit
import functools
import hashlib
import importlib.util
import shutil
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from unittest import mock

from xccl_emu.check.trial import Trial
from xccl_emu.protocol import Case
from xccl_emu.protocols import a2e, a2e_pull, fused, rounds, sendrecv_calls

_PACKAGE = "xccl_emu.kernels"
_USERS = {
    "common": ("sendrecv",),
    "group": ("counts", "dispatch", "sums", "combine", "moe", "fused", "fused_combine", "fused_layers"),
    "parameters": ("counts", "dispatch", "sums", "combine", "expert", "moe", "fused", "fused_combine", "fused_layers"),
    "counts": ("dispatch", "combine", "moe", "fused", "fused_combine", "fused_layers"),
    "dispatch": ("moe", "fused", "fused_combine", "fused_layers", "a2e_pull"),
    "sums": ("combine", "fused_combine"),
    "expert": ("moe",),
    "combine": ("moe", "fused_combine"),
    "moe": ("fused_layers",),
    "fused": ("fused_combine", "fused_layers"),
    "fused_combine": ("fused_layers",),
    "fused_layers": (),
    "a2e": (),
    "a2e_expert": ("a2e_return",),
    "a2e_return": (),
    "a2e_pull": (),
    "sendrecv": (),
    "mutants_kernels": (),
}
"""Modules of kernels, those that others import first, and by whom each is imported, as far as they are launched."""

_A2E = (
    ("a2e", a2e, "attention_kernel"), ("a2e_expert", a2e, "expert_kernels"), ("a2e_return", a2e, "return_kernel"),
    ("a2e_pull", a2e_pull, "device"),
)  # fmt: skip
"""Modules of A2E and E2A, and where their host sides have them."""


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


@dataclass(frozen=True)
class Mutant:
    """A bug: in which configuration it is planted, how, and what finds it."""

    name: str
    scenario: Case
    edits: tuple[Edit, ...]
    kinds: tuple[str, ...]
    """The kinds of violations that it shows itself as; which one is met first depends on the schedule."""
    base: tuple[Edit, ...] = ()
    """Changes that make a correct variant, in which the bug is then planted."""
    schedules: int = 1000
    """What a portfolio needs at most with seed 0."""
    quick: bool = False
    """Is it checked whenever the tests run?"""

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


@dataclass(frozen=True)
class Planted:
    """A scenario whose kernels are changed."""

    scenario: Case
    edits: tuple[Edit, ...]

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
        if "sendrecv" in changed:
            stack.enter_context(mock.patch.object(sendrecv_calls, "device", changed["sendrecv"]))
        if "mutants_kernels" in changed:
            own = sys.modules[f"{__package__}.mutants_own"]
            stack.enter_context(mock.patch.object(own, "device", changed["mutants_kernels"]))
        if "moe" in changed:
            stack.enter_context(mock.patch.object(rounds.Rounds, "kernel", changed["moe"].moe_layers))
        if "fused_layers" in changed:
            stack.enter_context(mock.patch.object(fused.FusedRounds, "kernel", changed["fused_layers"].fused_layers))
        for module, host, name in _A2E:
            if module in changed:
                stack.enter_context(mock.patch.object(host, name, changed[module]))
        yield


@functools.cache
def kernels(edits: tuple[Edit, ...]) -> Mapping[str, ModuleType]:
    """The modules that differ by these edits, and those that import them, loaded anew from changed text."""
    changed: dict[str, ModuleType] = {}
    wanted = {edit.module for edit in edits}
    with mock.patch.dict(sys.modules):
        for module, users in _USERS.items():
            if module in wanted:
                wanted.update(users)
                name = f"{__package__ if module.startswith('mutants') else _PACKAGE}.{module}"
                text = text_of(name)
                for edit in edits:
                    text = edit.apply(text) if edit.module == module else text
                changed[module] = sys.modules[name] = load(name, text)
    return changed


def text_of(module: str) -> str:
    """The source of a module."""
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).read_text(encoding="utf-8")


def load(module: str, text: str) -> ModuleType:
    """Execute a text as a module of that name; it stands in a file, because kernels are lowered from their source."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    path = folder() / f"{module.rpartition('.')[2]}_{digest}.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(module, path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@functools.cache
def folder() -> Path:
    """The folder of the changed texts, removed at the end of the process."""
    path = Path(tempfile.mkdtemp(prefix="xccl_emu-mutants-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path
