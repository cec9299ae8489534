"""Where Numba is not installed, or `XCCL_EMU_WITHOUT_NUMBA` is set: names in its place, so that all runs as Python.

With the JIT off nothing of Numba is called, but modules import it, derive from its types and register with it. A
stand-in does nothing in all these places: its attributes are stand-ins, and as a decorator it leaves functions alone.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import types
from collections.abc import Sequence
from typing import Any

_NAMES = ("numba", "llvmlite")


class _Meta(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return StandIn

    def __call__(cls, *given: Any, **named: Any) -> Any:
        function = given[0] if len(given) == 1 and not named else None
        return function if isinstance(function, types.FunctionType) else StandIn

    def __iter__(cls) -> Any:
        return iter(())


class StandIn(metaclass=_Meta):
    """Whatever it is asked for."""


class _Module(types.ModuleType):
    DISABLE_JIT = 1

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self if name == "config" else StandIn


class _NumbaFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """A module of Numba is a stand-in."""
        if name.partition(".")[0] not in _NAMES:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """An empty one."""
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing to be done."""


def stand_in() -> bool:
    """Put stand-ins in place of Numba if it is not there, and say so."""
    wanted = os.environ.get("XCCL_EMU_WITHOUT_NUMBA") or importlib.util.find_spec("numba") is None
    if wanted and "numba" not in sys.modules:
        os.environ["NUMBA_DISABLE_JIT"] = "1"
        sys.meta_path.insert(0, _NumbaFinder())
    return bool(wanted)
