"""What all tests share: Numba's cache folder, Hypothesis profiles, and the folder of measured expert loads."""

import gc
import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, settings

import xccl_emu  # noqa: F401  (chooses Numba's cache folder, so before any test module imports Numba)

os.environ["XCCL_EMU_CONFIRM"] = "0"  # `check` asks for second opinions where a test says so, and else not

REPOSITORY = Path(__file__).resolve().parent.parent


def _register_profiles() -> None:
    """No deadlines and no complaint about slow examples: the first one may compile.

    ``dev`` draws anew each time; ``ci`` draws the same examples each time, so that a change is not blamed for an old
    bug; ``nightly`` searches longer and draws anew.
    """
    common = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
    settings.register_profile("dev", common, max_examples=50)
    settings.register_profile("ci", common, max_examples=50, derandomize=True, database=None)
    settings.register_profile("nightly", common, max_examples=1000)
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev"))


_register_profiles()


def pytest_collection_finish() -> None:
    """Tests and what they import stay to the end: the garbage collector, a twelfth of the time, need not look there."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return REPOSITORY


@pytest.fixture(scope="session")
def load_tool() -> Callable[[str], ModuleType]:
    """Loads a module of ``tools`` by its name: a script that writes a page, for the tests of that page."""

    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(name, REPOSITORY / "tools" / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        with patch.object(sys, "path", [*sys.path, str(REPOSITORY / "tools")]):  # as for a script
            spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Folder of real expert loads and routing: ``XCCL_EMU_DATA``, or ``../shared/data`` beside the checkout."""
    chosen = os.environ.get("XCCL_EMU_DATA")
    folder = Path(chosen) if chosen else REPOSITORY.parent / "shared" / "data"
    if not folder.is_dir():
        if chosen:
            pytest.fail(f"XCCL_EMU_DATA is {chosen!r}, which is not a folder")
        pytest.skip(f"no measured data at {folder}; set XCCL_EMU_DATA to the folder that holds it")
    return folder
