"""Every schedule of a trial: states, the moves between them, and what makes them fewer."""
