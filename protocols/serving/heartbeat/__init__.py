"""Heartbeats of a serving engine."""
