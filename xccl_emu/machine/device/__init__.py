"""The machine as compiled code: memory, state and one action of it. Everything beside this folder is host code."""
