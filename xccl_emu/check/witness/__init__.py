"""A violation to keep and to look at: its schedule replayed, made short, told, drawn, and written to a file."""
