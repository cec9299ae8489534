/* Made of xccl_emu/lang/requests.py by `python -m xccl_emu.lang.foreign.header`: edit that. */
#pragma once

enum {
    XCCL_SCALAR = 0,
    XCCL_MTU_IN = 1,
    XCCL_VECTOR = 2,
    XCCL_MTU_OUT = 3,
    XCCL_DMA = 4,
    XCCL_CMP_EQ = 0,
    XCCL_CMP_NE = 1,
    XCCL_CMP_GE = 2,
    XCCL_CMP_UNUSED = -1,
    XCCL_CONDITION_WORDS = 3,
    XCCL_CONDITIONS_MOST = 4,
    XCCL_TENTATIVE = 1,
    XCCL_SIGNAL_SET = 1,
    XCCL_SIGNAL_ADD = 2,
    XCCL_ANSWERS_MOST = 64,
    XCCL_LINE_BYTES = 16,
    XCCL_BF16 = 0,
    XCCL_FP16 = 1,
    XCCL_FP32 = 2,
    XCCL_RULE_XCCL = 0,
    XCCL_RULE_CANN = 1,
    XCCL_RULE_FP8 = 2,
    XCCL_RULE_FP8_UE8M0 = 3,
    XCCL_FP8_BLOCK = 128,
    XCCL_OP_RETURN = 0,
    XCCL_OP_LOAD = 1,
    XCCL_OP_STORE = 2,
    XCCL_OP_ATOMIC_ADD = 3,
    XCCL_OP_COMPARE_SWAP = 4,
    XCCL_OP_POLL = 5,
    XCCL_OP_QUIET = 6,
    XCCL_OP_ARRIVE = 7,
    XCCL_OP_AWAIT_GROUP = 8,
    XCCL_OP_UB_LOAD = 9,
    XCCL_OP_VALIDATE = 10,
    XCCL_OP_UB_STORE = 11,
    XCCL_OP_SET_FLAG = 12,
    XCCL_OP_WAIT_FLAG = 13,
    XCCL_OP_FAIL = 14,
    XCCL_OP_DCCI = 15,
    XCCL_OP_CHOOSE = 16,
    XCCL_OP_POLL_ANY = 17,
    XCCL_OP_DMA = 18,
    XCCL_OP_MTU_IN = 19,
    XCCL_OP_MTU_OUT = 20,
    XCCL_OP_MTU_ADD = 21,
    XCCL_OP_PUT_SIGNAL = 22,
    XCCL_OP_PUT = 23,
    XCCL_OP_ADD = 24,
    XCCL_OP_FENCE = 25,
    XCCL_OP_V_QUANTIZE = 26,
    XCCL_OP_V_DEQUANTIZE = 27,
    XCCL_OP_V_COPY = 28,
    XCCL_OP_V_FILL = 29,
    XCCL_OP_V_WIDEN = 30,
    XCCL_OP_V_AXPY = 31,
    XCCL_OP_V_ADD = 32,
    XCCL_OP_V_SCALE = 33,
    XCCL_OP_V_NARROW = 34,
    XCCL_OP_V_COUNT = 35,
    XCCL_OP_LOAD_LINE = 36,
    XCCL_OP_STORE_LINE = 37,
    XCCL_INT8 = 3,
    XCCL_INT16 = 4,
    XCCL_INT32 = 5,
    XCCL_UINT8 = 6,
    XCCL_INT64 = 7,
    XCCL_MAP_COPY = 0,
    XCCL_MAP_FILL = 1,
    XCCL_MAP_INDEX = 2,
    XCCL_MAP_ABS = 3,
    XCCL_MAP_CAST = 4,
    XCCL_MAP_ADD = 5,
    XCCL_MAP_SUB = 6,
    XCCL_MAP_MUL = 7,
    XCCL_MAP_DIV = 8,
    XCCL_MAP_MAX = 9,
    XCCL_MAP_MIN = 10,
    XCCL_MAP_AND = 11,
    XCCL_MAP_OR = 12,
    XCCL_MAP_SUM = 13,
    XCCL_MAP_MOST = 14,
    XCCL_MAP_LEAST = 15,
    XCCL_MAP_MOST_AT = 16,
    XCCL_MAP_LEAST_AT = 17,
    XCCL_MAP_LESS = 18,
    XCCL_MAP_EQUAL = 19,
    XCCL_MAP_KEEP = 20,
    XCCL_MAP_SPREAD = 21,
    XCCL_MAP_EXP = 22,
    XCCL_MAP_SORT = 23,
    XCCL_ROUND_NONE = 0,
    XCCL_ROUND_RINT = 1,
    XCCL_ROUND_FLOOR = 2,
    XCCL_ROUND_CEIL = 3,
    XCCL_ROUND_AWAY = 4,
    XCCL_ROUND_TRUNC = 5,
    XCCL_ROUND_ODD = 6,
    XCCL_DTYPE_SHIFT = 4,
    XCCL_TO_SHIFT = 7,
    XCCL_ROUNDING_SHIFT = 10,
    XCCL_SCALAR_SHIFT = 13,
    XCCL_KIND_SHIFT = 14,
};

/* Read ``nbytes`` (1, 2, 4 or 8, aligned) as a signed integer; sees the core's own scalar stores in flight. */
#define xccl_load(address, nbytes, ...) \
    XCCL_ASK("load", XCCL_OP_LOAD, address, nbytes, 0, 0, 0, 0, __VA_ARGS__)

/* Write ``nbytes`` (1, 2, 4 or 8, aligned); becomes visible as the memory order says. */
#define xccl_store(address, value, nbytes, ...) \
    XCCL_ASK("store", XCCL_OP_STORE, address, value, nbytes, 0, 0, 0, __VA_ARGS__)

/* Read 16 bytes, aligned, at once, as `load` reads a word; returns the low 8 (a kernel in C: the rest too). */
#define xccl_load_line(address, ...) \
    XCCL_ASK("load_line", XCCL_OP_LOAD_LINE, address, 0, 0, 0, 0, 0, __VA_ARGS__)

/* Write 16 bytes, aligned, at once, the low 8 and the high 8; becomes visible as the memory order says. */
#define xccl_store_line(address, value, high, ...) \
    XCCL_ASK("store_line", XCCL_OP_STORE_LINE, address, value, high, 0, 0, 0, __VA_ARGS__)

/* Add to the aligned 8-byte word at its home memory and return the old value; blocks the core. */
#define xccl_atomic_add(address, value, ...) \
    XCCL_ASK("atomic_add", XCCL_OP_ATOMIC_ADD, address, value, 0, 0, 0, 0, __VA_ARGS__)

/* If the aligned 8-byte word is ``expected`` make it ``value``, at its home memory; return the old one. */
#define xccl_compare_swap(address, expected, value, ...) \
    XCCL_ASK("compare_swap", XCCL_OP_COMPARE_SWAP, address, value, expected, 0, 0, 0, __VA_ARGS__)

/* Wait until the word, of ``nbytes`` (1, 2, 4 or 8, aligned), equals ``value`` in the bits of ``mask``. */
#define xccl_poll_eq(address, value, nbytes, mask, ...) \
    XCCL_ASK("poll_eq", XCCL_OP_POLL, address, 0, value, nbytes, mask, 0, __VA_ARGS__)

/* Wait until the word differs from ``value`` in the bits of ``mask``. */
#define xccl_poll_ne(address, value, nbytes, mask, ...) \
    XCCL_ASK("poll_ne", XCCL_OP_POLL, address, 1, value, nbytes, mask, 0, __VA_ARGS__)

/* Wait until the word is at least ``value``, both in the bits of ``mask`` alone. */
#define xccl_poll_ge(address, value, nbytes, mask, ...) \
    XCCL_ASK("poll_ge", XCCL_OP_POLL, address, 2, value, nbytes, mask, 0, __VA_ARGS__)

/* Read a line of ``nbytes`` (16, 32, 64 or 128, aligned) to the data buffer, over and over until its flags are in. */
#define xccl_poll_line_eq(address, ub, nbytes, words, value, ...) \
    XCCL_ASK("poll_line_eq", XCCL_OP_POLL, address, 0, value, nbytes, words, ub, __VA_ARGS__)

/* Read a line as `poll_line_eq` does, until each of the words differs from its half of ``value``. */
#define xccl_poll_line_ne(address, ub, nbytes, words, value, ...) \
    XCCL_ASK("poll_line_ne", XCCL_OP_POLL, address, 1, value, nbytes, words, ub, __VA_ARGS__)

/* Write back the line of 64 bytes with this address, if the scalar unit's data cache has changed it, and drop it. */
#define xccl_dcci(address, ...) \
    XCCL_ASK("dcci", XCCL_OP_DCCI, address, 0, 0, 0, 0, 0, __VA_ARGS__)

/* Wait until all that this core issued is done and every write of it, DMA included, is visible. */
#define xccl_quiet(...) \
    XCCL_ASK("quiet", XCCL_OP_QUIET, 0, 0, 0, 0, 0, 0, __VA_ARGS__)

/* Read ``nbytes`` (1, 2, 4 or 8, aligned) of the data buffer as a signed integer. */
#define xccl_ub_load(ub, nbytes, ...) \
    XCCL_ASK("ub_load", XCCL_OP_UB_LOAD, ub, nbytes, 0, 0, 0, 0, __VA_ARGS__)

/* Say that what was read tentatively is right: a look at a version, or the like, shows that nobody wrote meanwhile. */
#define xccl_validate(ub, nbytes, ...) \
    XCCL_ASK("validate", XCCL_OP_VALIDATE, ub, nbytes, 0, 0, 0, 0, __VA_ARGS__)

/* Write ``nbytes`` (1, 2, 4 or 8, aligned) of the data buffer. */
#define xccl_ub_store(ub, value, nbytes, ...) \
    XCCL_ASK("ub_store", XCCL_OP_UB_STORE, ub, value, nbytes, 0, 0, 0, __VA_ARGS__)

/* Queue on pipe ``source``: set the binary event ``event`` (0-31) for pipe ``target``. */
#define xccl_set_flag(source, target, event, ...) \
    XCCL_ASK("set_flag", XCCL_OP_SET_FLAG, source, target, event, 0, 0, 0, __VA_ARGS__)

/* Queue on pipe ``target``: wait for the event that pipe ``source`` sets, and consume it. */
#define xccl_wait_flag(source, target, event, ...) \
    XCCL_ASK("wait_flag", XCCL_OP_WAIT_FLAG, source, target, event, 0, 0, 0, __VA_ARGS__)

/* Arrive at the barrier of the core's group; returns the phase that ``await_group`` takes. */
#define xccl_arrive(...) \
    XCCL_ASK("arrive", XCCL_OP_ARRIVE, 0, 0, 0, 0, 0, 0, __VA_ARGS__)

/* Wait until every core of the group has arrived in ``phase``. */
#define xccl_await_group(phase, ...) \
    XCCL_ASK("await_group", XCCL_OP_AWAIT_GROUP, phase, 0, 0, 0, 0, 0, __VA_ARGS__)

/* Stop the run with a protocol error: a code that the protocol's host side explains, and a value. */
#define xccl_fail(code, info, ...) \
    XCCL_ASK("fail", XCCL_OP_FAIL, code, info, 0, 0, 0, 0, __VA_ARGS__)

/* Ask the environment, which answers with a number from 0 to ``n`` - 1 (``n`` from 1 to `ANSWERS_MOST`). */
#define xccl_choose(n, of, ...) \
    XCCL_ASK("choose", XCCL_OP_CHOOSE, n, of, 0, 0, 0, 0, __VA_ARGS__)

/* Ring the DMA engine to copy memory to memory; its event (DMA, SCALAR, ``event``) says that all is visible. */
#define xccl_dma(source, target, nbytes, event, ...) \
    XCCL_ASK("dma", XCCL_OP_DMA, source, target, nbytes, event, 0, 0, __VA_ARGS__)

/* Copy memory to the data buffer. */
#define xccl_mtu_in(source, ub, nbytes, ...) \
    XCCL_ASK("mtu_in", XCCL_OP_MTU_IN, source, ub, nbytes, 0, 0, 0, __VA_ARGS__)

/* Copy the data buffer to memory. */
#define xccl_mtu_out(ub, target, nbytes, ...) \
    XCCL_ASK("mtu_out", XCCL_OP_MTU_OUT, ub, target, nbytes, 0, 0, 0, __VA_ARGS__)

/* Add integers of 4 bytes of the data buffer to those in memory, as a copy by mtu-out that adds. */
#define xccl_mtu_add(ub, target, nbytes, ...) \
    XCCL_ASK("mtu_add", XCCL_OP_MTU_ADD, ub, target, nbytes, 0, 0, 0, __VA_ARGS__)

/* Copy the data buffer to memory as `mtu_out` does, and when all of that is visible, and only then, signal there. */
#define xccl_put_signal(ub, target, nbytes, signal, value, how, ...) \
    XCCL_ASK("put_signal", XCCL_OP_PUT_SIGNAL, ub, target, nbytes, signal, value, how, __VA_ARGS__)

/* Write one aligned 32-byte granule that the scalar unit built, by mtu-out. */
#define xccl_put(target, word0, word1, word2, word3, ...) \
    XCCL_ASK("put", XCCL_OP_PUT, target, word0, word1, word2, word3, 0, __VA_ARGS__)

/* Add to an aligned 8-byte word at its home memory by mtu-out; returns nothing and does not wait. */
#define xccl_add(target, value, ...) \
    XCCL_ASK("add", XCCL_OP_ADD, target, value, 0, 0, 0, 0, __VA_ARGS__)

/* Queue on mtu-out: on each die, this core's writes behind it become visible after those before it. */
#define xccl_fence(...) \
    XCCL_ASK("fence", XCCL_OP_FENCE, 0, 0, 0, 0, 0, 0, __VA_ARGS__)

/* Quantize ``count`` elements at ``target_ub`` by a rule, to INT8 with the FP32 scale behind them. */
#define xccl_v_quantize(ub, target_ub, count, dtype, rule, ...) \
    XCCL_ASK("v_quantize", XCCL_OP_V_QUANTIZE, ub, target_ub, count, dtype, rule, 0, __VA_ARGS__)

/* Widen ``count`` INT8 values to FP32 and multiply each by the FP32 at ``scale_ub``. */
#define xccl_v_dequantize(ub, target_ub, count, scale_ub, rule, ...) \
    XCCL_ASK("v_dequantize", XCCL_OP_V_DEQUANTIZE, ub, target_ub, count, scale_ub, rule, 0, __VA_ARGS__)

/* Copy within the data buffer (ranges must not overlap). */
#define xccl_v_copy(ub, target_ub, nbytes, ...) \
    XCCL_ASK("v_copy", XCCL_OP_V_COPY, ub, target_ub, nbytes, 0, 0, 0, __VA_ARGS__)

/* Make ``count`` results of as many elements, or one of them all, by a function of `lang.maps`. */
#define xccl_v_map(ub, target_ub, count, function, other, ...) \
    XCCL_ASK("v_map", XCCL_OP_V_COPY, ub, target_ub, count, function, other, 0, __VA_ARGS__)

/* Fill bytes of the data buffer. */
#define xccl_v_fill(ub, nbytes, byte, ...) \
    XCCL_ASK("v_fill", XCCL_OP_V_FILL, ub, nbytes, byte, 0, 0, 0, __VA_ARGS__)

/* Cast ``count`` elements to FP32. */
#define xccl_v_widen(ub, target_ub, count, dtype, ...) \
    XCCL_ASK("v_widen", XCCL_OP_V_WIDEN, ub, target_ub, count, dtype, 0, 0, __VA_ARGS__)

/* FP32 accumulator += weight x element: multiply, round, add, round.  ``weight`` is the bits of an FP32. */
#define xccl_v_axpy(ub, acc_ub, weight, count, dtype, ...) \
    XCCL_ASK("v_axpy", XCCL_OP_V_AXPY, ub, acc_ub, weight, count, dtype, 0, __VA_ARGS__)

/* FP32 accumulator += element. */
#define xccl_v_add(ub, acc_ub, count, dtype, ...) \
    XCCL_ASK("v_add", XCCL_OP_V_ADD, ub, acc_ub, count, dtype, 0, 0, __VA_ARGS__)

/* FP32 accumulator *= factor.  ``factor`` is the bits of an FP32. */
#define xccl_v_scale(acc_ub, count, factor, ...) \
    XCCL_ASK("v_scale", XCCL_OP_V_SCALE, acc_ub, count, factor, 0, 0, 0, __VA_ARGS__)

/* Round ``count`` FP32 values to ``dtype``, half to even. */
#define xccl_v_narrow(acc_ub, target_ub, count, dtype, ...) \
    XCCL_ASK("v_narrow", XCCL_OP_V_NARROW, acc_ub, target_ub, count, dtype, 0, 0, __VA_ARGS__)

/* Count those of ``count`` signed 4-byte integers that are at least ``low`` and below ``high``, into one more. */
#define xccl_v_count(ub, target_ub, count, low, high, ...) \
    XCCL_ASK("v_count", XCCL_OP_V_COUNT, ub, target_ub, count, low, high, 0, __VA_ARGS__)

/* Copy memory to the data buffer; tentative. */
#define xccl_mtu_in_tentative(source, ub, nbytes, ...) \
    XCCL_ASK("mtu_in", XCCL_OP_MTU_IN, source, ub, nbytes, 1, 0, 0, __VA_ARGS__)
