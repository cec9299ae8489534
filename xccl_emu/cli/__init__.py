"""The command ``xccl-emu``.

The modules here import only the standard library, typer and `xccl_emu.errors` at their top; what a command needs
beyond that (NumPy, Numba, rich, the protocols) it imports in its body, so that ``--help`` stays fast.
"""
