"""The judge: is a protocol right under every schedule and memory order, and if not, which schedule breaks it?

`check` takes what builds a `Trial` (a pod with its kernels launched, and what must be in memory at the end) and returns
a `Verdict`.  It knows no protocol: those that ship stand in `xccl_emu.protocols`, a user's own come through
`xccl_emu.testing`.
"""
