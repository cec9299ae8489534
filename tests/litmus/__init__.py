"""Litmus tests of the memory orders: the suite as data, and an independent explorer to compute its columns."""
