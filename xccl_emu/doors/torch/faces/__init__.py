"""Modules of others, as scripts know them, on the emulator's calls; they import PyTorch."""
