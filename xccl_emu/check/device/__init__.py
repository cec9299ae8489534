"""The judge as compiled code: search, monitor, sampling, faults. Everything beside this folder is host code."""
