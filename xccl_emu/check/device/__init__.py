"""The judge as compiled code: search, monitor, sampling, faults. Everything outside of this folder is host code."""
