"""Run by every Python of a script at its start: what it imports may be a face of the emulator's (`imports.py`)."""

import importlib.machinery
import importlib.util
import os
import sys

if os.environ.get("XCCL_EMU_TORCH"):
    from xccl_emu.doors.torch import imports

    imports.install()

# One that was hidden by this one: run it, as Python would have.
_here = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != _here]
_other = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
if _other and _other.loader:
    _other.loader.exec_module(importlib.util.module_from_spec(_other))
