"""`import xccl_emu` offers what most users need, and costs nothing until it is used."""

import pkgutil

import pytest

import xccl_emu
from tests.cli_support import python


def test_importing_the_package_imports_next_to_nothing() -> None:
    """Neither Numba nor NumPy is imported before a name is used, nor by asking which names there are."""
    done = python("import sys, xccl_emu; dir(xccl_emu); print({'numba', 'numpy'} & {*sys.modules})", check=True)
    assert done.stdout == "set()\n"


@pytest.mark.parametrize("package", ["xccl_emu", "xccl_emu.testing"])
def test_every_name_is_there(package: str) -> None:
    """Names on offer can be imported by ``*``, which looks up each of them, and are listed."""
    script = f"import {package} as it; from {package} import *; print({{*it.__all__}} <= {{*globals()}} & {{*dir(it)}})"
    assert python(script, check=True).stdout == "True\n"


def test_names_do_not_depend_on_what_was_imported_before() -> None:
    """No name on offer is that of a module, which would take its place as soon as somebody imports it."""
    modules = {module.name for module in pkgutil.iter_modules(xccl_emu.__path__)}
    assert {*xccl_emu.__all__} & modules == set()


def test_other_names_are_refused() -> None:
    """What is not on offer is an AttributeError, as in any module."""
    with pytest.raises(AttributeError, match="module 'xccl_emu' has no attribute 'Supernode'"):
        xccl_emu.Supernode  # type: ignore[attr-defined]  # noqa: B018
