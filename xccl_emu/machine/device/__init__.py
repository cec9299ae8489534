"""The machine as compiled code: memory, state and one action of it. Everything outside this folder is host code."""
