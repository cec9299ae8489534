"""Sampling as compiled code."""
