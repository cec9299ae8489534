"""How Numba compiles device code here: kept by what it depends on, as parts of wholes, on bare arrays (docs/jit.md)."""
