"""What the host code of others asserts of a call's tensors and numbers, before it runs anything.

[DeepEP]: ``csrc/legacy/buffer.hpp``, ``csrc/elastic/buffer.hpp``; [SglKernelNpu]: ``csrc/deepep/deep_ep.cpp``.  What
these leave open and our kernels need, such as the hidden size of combine, is in the sizes that a face gives.
"""

from xccl_emu.doors.torch.gate import ANY, Form, Row

_CHOICES = (Row("topk_idx", ("tokens", "top_k"), "int64"), Row("topk_weights", ("tokens", "top_k"), "float32"))
_LOW_LATENCY = (
    "low_latency_mode", "num_experts % ranks == 0", "hidden % 128 == 0", "tokens <= num_max_dispatch_tokens_per_rank",
    "size_hint(num_max_dispatch_tokens_per_rank, hidden, num_experts) < num_rdma_bytes + 128",
    "not (async_finish and return_recv_hook)",
)  # fmt: skip
LAYOUT = Form((_CHOICES[0],), ("num_experts > 0", "num_experts % ranks == 0"))
LOW_LATENCY_DISPATCH = Form(
    (
        Row("x", ("tokens", "hidden"), "bfloat16"), _CHOICES[0],
        Row("cumulative_local_expert_recv_stats", ("local_experts",), "int32", optional=True),
        Row("dispatch_wait_recv_cost_stats", ("ranks",), "int64", optional=True),
    ),
    (
        *_LOW_LATENCY, "ranks * num_max_dispatch_tokens_per_rank % 4 == 0", "not use_fp8 or hidden % 512 == 0",
        "not use_ue8m0 or round_scale", "most_of_an_expert <= num_max_dispatch_tokens_per_rank",
    ),
)  # fmt: skip
LOW_LATENCY_COMBINE = Form(
    (
        Row("x", ("local_experts", "rows", "hidden"), "bfloat16"), *_CHOICES,
        Row("src_info", ("local_experts", "rows"), "int32"), Row("layout_range", ("local_experts", "ranks"), "int64"),
        Row("out", ("tokens", "hidden"), "bfloat16", optional=True),
        Row("combine_wait_recv_cost_stats", ("ranks",), "int64", optional=True),
    ),
    _LOW_LATENCY,
)  # fmt: skip
DISPATCH = Form(
    (
        Row("x", ("tokens", "hidden"), "*"),
        Row("x_scales", ("tokens", "scales"), "float32 int32", optional=True, gaps=True),
        Row("is_token_in_rank", ("tokens", "ranks"), "bool", optional=True),
        Row("num_tokens_per_rank", ("ranks",), "int32", optional=True),
        Row("num_tokens_per_expert", ("num_experts",), "int32", optional=True),
        *(each._replace(optional=True) for each in _CHOICES),
    ),
    (
        "hidden * element_size % 16 == 0", "not has_scales or element_size == 1", "has_topk_idx == has_topk_weights",
        "cached or has_is_token_in_rank", "cached or has_num_tokens_per_rank", "cached or has_num_tokens_per_expert",
        "not cached or not has_topk_idx", "cached or num_experts % ranks == 0",
    ),
)  # fmt: skip
_BIASES = [Row(name, ("tokens", "hidden"), "bfloat16", optional=True) for name in ("bias_0", "bias_1")]
_BACK = (Row("x", ("rows", "hidden"), "bfloat16"), Row("topk_weights", ("rows", "top_k"), "float32", optional=True))
COMBINE = Form((*_BACK, *_BIASES))
ELASTIC = Form((), (
    "num_bytes > 0", "num_bytes % 2097152 == 0", "num_cpu_bytes >= 0", "num_cpu_bytes % 2097152 == 0",
    "num_cpu_bytes <= num_bytes",
))  # fmt: skip
ELASTIC_HINT = Form((), ("num_max_tokens_per_rank > 0", "hidden > 0"))
_ELASTIC = ("num_qps <= num_allocated_qps", "not has_previous_event or allocate_on_comm_stream")
ELASTIC_DISPATCH = Form(
    (
        Row("x", ("tokens", "hidden"), "*"),
        Row("x_scales", ("tokens", "scales"), "float32 int32", optional=True, gaps=True), _CHOICES[0],
        _CHOICES[1]._replace(optional=True),
        Row("cumulative_local_expert_recv_stats", ("local_experts",), "int32", optional=True),
    ),
    (
        *_ELASTIC, "num_experts > 0", "num_experts % ranks == 0", "hidden * element_size % 32 == 0",
        "tokens <= num_max_tokens_per_rank", "not an_expert_twice", "not do_zero_padding or do_expand",
        "not cached or not has_topk_idx", "not cached or not do_cpu_sync", "as_in_handle",
        "dispatch_bytes(ranks, num_max_tokens_per_rank, hidden * element_size, scales, top_k) <= num_bytes",
    ),
)  # fmt: skip
_ELASTIC_BACK = (*_ELASTIC, "combine_bytes(places, num_max_tokens_per_rank, hidden, top_k) <= num_bytes")
ELASTIC_COMBINE = Form(COMBINE.rows, _ELASTIC_BACK)
ELASTIC_COMBINE_BY_EXPERT = Form((_BACK[0], _BACK[1]._replace(shape=("rows",)), *_BIASES), _ELASTIC_BACK)
AGRS_CONFIG = Form((), (
    "num_max_session_bytes > 0", "num_max_all_gathers_per_session > 0", "num_max_session_bytes <= num_bytes",
    "num_max_all_gathers_per_session <= 32",
))  # fmt: skip
AGRS = Form((), (
    "agrs_in_session", "agrs_buffer_offset <= num_max_session_bytes",
    "num_all_gathers <= num_max_all_gathers_per_session", "inplace_at_its_slot",
))  # fmt: skip
PP_CONFIG = Form((), (
    "num_max_tensor_bytes > 0", "num_max_inflight_tensors > 0",
    "num_max_tensor_bytes * num_max_inflight_tensors * 2 * 2 <= num_bytes",
))  # fmt: skip
TENSOR = Form((Row("t", ANY, "*"),))
PP = Form((), ("num_max_tensor_bytes > 0", "peer == prev_rank_idx or peer == next_rank_idx"))
PP_TENSOR = Form(TENSOR.rows, ("nbytes > 0", "nbytes <= num_max_tensor_bytes", "nbytes % 32 == 0"))

_NPU_CHOICES = Row("topk_idx", ("tokens", "top_k"), "int64 int32", gaps=True)
_NPU_WEIGHTS = Row("topk_weights", ("tokens", "top_k"), "float32", gaps=True)
_NPU = ("num_experts % ranks == 0",)
NPU_LAYOUT = Form((_NPU_CHOICES._replace(gaps=False),), ("num_experts > 0", *_NPU))
NPU_LOW_LATENCY_DISPATCH = Form(
    (
        Row("x", ("tokens", "hidden"), "bfloat16", gaps=True), _NPU_CHOICES,
        Row("cumulative_local_expert_recv_stats", ("local_experts",), "int32", optional=True),
    ),
    (*_NPU, "low_latency_mode", "tokens <= num_max_dispatch_tokens_per_rank"),
)  # fmt: skip
NPU_LOW_LATENCY_COMBINE = Form(
    (
        Row("x", ("rows", "hidden"), "bfloat16"), _NPU_CHOICES, _NPU_WEIGHTS,
        Row("out", ("tokens", "hidden"), "bfloat16", optional=True),
    ),
    ("tokens <= num_max_dispatch_tokens_per_rank",),
)  # fmt: skip
NPU_DISPATCH = Form(
    (
        Row("x", ("tokens", "hidden"), "bfloat16"), Row("num_tokens_per_rank", ("ranks",), "int32", optional=True),
        Row("num_tokens_per_expert", ("num_experts",), "int32"), _NPU_CHOICES._replace(gaps=False),
        _NPU_WEIGHTS._replace(gaps=False, optional=True),
    ),
    _NPU,
)  # fmt: skip
_OF_CHOICES = (
    Row("expert_ids", ("tokens", "top_k"), "int32 int64", gaps=True),
    Row("x_active_mask", ("tokens",), "bool", optional=True, gaps=True),
    Row("x_active_mask of choices", ("tokens", "top_k"), "bool", optional=True, gaps=True),
)  # fmt: skip
_OFF_LAST = ("last_active < first_off",)
NPU_DISTRIBUTE_DISPATCH = Form(
    (Row("x", ("tokens", "hidden"), "bfloat16 float16", gaps=True), *_OF_CHOICES), (*_OFF_LAST, *_NPU)
)  # fmt: skip
NPU_DISTRIBUTE_COMBINE = Form(
    (
        Row("expand_x", ("rows", "hidden"), "bfloat16 float16", gaps=True), *_OF_CHOICES,
        Row("expert_scales", ("tokens", "top_k"), "float32", gaps=True),
    ),
    _OFF_LAST,
)  # fmt: skip
NPU_COMBINE = Form((Row("x", ("rows", "hidden"), "bfloat16"),))
