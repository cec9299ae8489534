"""A violation to keep and to look at: its schedule replayed, made short, described, drawn, and written to a file."""
