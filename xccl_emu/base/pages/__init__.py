"""Runs as pages of HTML and as pictures, of any command: what a violation and a timed run have in common."""
