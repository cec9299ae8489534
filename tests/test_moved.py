"""Modules that have moved are there by their old names, with a warning."""

import sys
from importlib import import_module

import pytest

from xccl_emu._moved import MOVED


@pytest.mark.parametrize(("old", "new"), MOVED.items())
def test_an_old_name_warns_and_gives_the_new_module(old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script written for an earlier release goes on, and hears what to write."""
    monkeypatch.delitem(sys.modules, old, raising=False)
    with pytest.warns(DeprecationWarning, match=f"{old} is {new} now") as heard:
        assert import_module(old) is import_module(new)
    assert heard[0].filename == import_module.__code__.co_filename
