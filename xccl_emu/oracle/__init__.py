"""Naive NumPy references for what the protocols must leave in memory, bit for bit.

They share no code with the kernels: this package knows nothing of dies, areas or instructions, only arrays.
"""

from xccl_emu.oracle.moe import (
    SLOT_BYTES,
    Dispatched,
    Fetch,
    Received,
    combine_message_bytes,
    dispatch,
    dummy_expert,
    expert_factors,
    message_bytes,
)
from xccl_emu.oracle.numerics import (
    BF16,
    FP16,
    QUANTIZERS,
    dequantize_int8,
    hidden_dtype,
    quantize_int8,
    quantize_int8_cann,
    round_to,
)

__all__ = [
    "BF16",
    "FP16",
    "QUANTIZERS",
    "SLOT_BYTES",
    "Dispatched",
    "Fetch",
    "Received",
    "combine_message_bytes",
    "dequantize_int8",
    "dispatch",
    "dummy_expert",
    "expert_factors",
    "hidden_dtype",
    "message_bytes",
    "quantize_int8",
    "quantize_int8_cann",
    "round_to",
]
