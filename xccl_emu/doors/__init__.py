"""Ways in for programs that others wrote: operators in Ascend C, and scripts for PyTorch."""
