"""Naive NumPy references for what the protocols must leave in memory, bit for bit.

They share no code with the kernels: this package knows nothing of dies, areas or instructions, only arrays.
"""

from xccl_emu.oracle.moe import Dispatched, Fetch, ReceivedRows, dispatch, dummy_expert, expert_factors
from xccl_emu.oracle.numerics import (
    BF16,
    FP16,
    QUANTIZERS,
    dequantize_fp8,
    dequantize_int8,
    hidden_dtype,
    quantize_fp8,
    quantize_int8,
    quantize_int8_cann,
    round_to,
)
from xccl_emu.oracle.replicas import hot_expert, least_loaded, slots_with, tokens_of_experts

__all__ = [
    "BF16", "FP16", "QUANTIZERS", "Dispatched", "Fetch", "ReceivedRows", "dequantize_fp8", "dequantize_int8",
    "dispatch", "dummy_expert", "expert_factors", "hidden_dtype", "hot_expert", "least_loaded", "quantize_fp8",
    "quantize_int8", "quantize_int8_cann", "round_to", "slots_with", "tokens_of_experts",
]  # fmt: skip
