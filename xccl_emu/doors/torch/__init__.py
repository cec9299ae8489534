"""Scripts that others wrote for DeepEP, its Ascend port and pplx-kernels, as they are, on an emulated pod.

    python -m xccl_emu.doors.torch tests/legacy/test_low_latency.py --num-processes 8 --num-tokens 16

One server process has the pod; each rank of the script is a process, or a thread, that has a line to it.
docs/bring-your-own.md says what is there and what is refused.  Nothing here imports PyTorch before the script does.
"""
