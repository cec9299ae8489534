"""The search as compiled code."""
