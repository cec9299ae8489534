"""How Numba compiles device code: kept by its dependencies, as parts of wholes, on arrays (docs/records/jit.md)."""
