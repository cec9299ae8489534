"""Kernels of a serving system, around the communication of its experts."""
