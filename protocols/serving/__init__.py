"""Protocols of a serving system: caches, pools, metadata, and what to do when a rank is lost."""
