"""Runs as pages of HTML and as pictures, whoever has run them: what a violation and a timed run have in common."""
