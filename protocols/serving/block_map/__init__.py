"""Blocks of on-chip memory that may be lost: host code."""
