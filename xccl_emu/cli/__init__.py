"""The command ``xccl-emu``: a module for each of its commands, the options on top and the action below.

At their top the modules here import nothing that takes its time; what a command needs beyond that (NumPy, Numba, the
protocols) it imports in the body of its functions, so that ``--help`` stays fast.
"""
