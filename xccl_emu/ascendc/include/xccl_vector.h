/* Instructions of the vector pipe on the first elements of tensors: each is one v_map (xccl_emu/lang/maps.py). */
#pragma once

namespace AscendC {
enum class RoundMode { CAST_NONE, CAST_RINT, CAST_FLOOR, CAST_CEIL, CAST_ROUND, CAST_TRUNC };

template <class T> constexpr int64_t xccl_type() {
    if constexpr (xccl_same<T, bfloat16_t>) return XCCL_BF16;
    else if constexpr (xccl_same<T, half>) return XCCL_FP16;
    else if constexpr (xccl_same<T, float>) return XCCL_FP32;
    else return sizeof(T) == 1 ? XCCL_INT8 : sizeof(T) == 2 ? XCCL_INT16 : XCCL_INT32;
}
template <class T> constexpr bool xccl_unsigned = T(-1) > T(0);
template <> constexpr bool xccl_unsigned<half> = false;
template <> constexpr bool xccl_unsigned<bfloat16_t> = false;

template <int64_t KIND, class T, class TO = T, bool SCALAR = false> constexpr int64_t xccl_number() {
    static_assert(sizeof(T) <= 4 && sizeof(TO) <= 4, "elements of 8 bytes: not in xccl_emu's header for Ascend C");
    return KIND | xccl_type<T>() << XCCL_DTYPE_SHIFT | (KIND == XCCL_MAP_CAST ? xccl_type<TO>() << XCCL_TO_SHIFT : 0) |
           int64_t(SCALAR) << XCCL_SCALAR_SHIFT;
}
constexpr int64_t xccl_functions[] = {XCCL_FUNCTIONS};
constexpr bool xccl_is_known(int64_t number) {
    for (int64_t one : xccl_functions)
        if (one == number) return true;
    return false;
}

/* The number of a function, which there must be; of elements without a sign if it does the same bits. */
template <int64_t KIND, class T, bool SCALAR = false> constexpr int64_t xccl_function() {
    constexpr bool by_bits = KIND == XCCL_MAP_FILL || KIND == XCCL_MAP_AND || KIND == XCCL_MAP_OR ||
                             KIND == XCCL_MAP_ADD || KIND == XCCL_MAP_SUB || KIND == XCCL_MAP_INDEX;
    static_assert(by_bits || !xccl_unsigned<T>, "not in xccl_emu's header for elements without a sign");
    constexpr int64_t number = xccl_number<KIND, T, T, SCALAR>();
    static_assert(xccl_is_known(number), "this instruction is not in xccl_emu's header for these elements");
    return number;
}

#define XCCL_OF_TWO(Name, KIND)                                                                                        \
    template <class T>                                                                                                 \
    void Name(const LocalTensor<T> &to, const LocalTensor<T> &a, const LocalTensor<T> &b, int32_t count,               \
              XCCL_AT(Name)) {                                                                                         \
        at(XCCL_OP_V_COPY, a.start, to.start, count, xccl_function<KIND, T>(), b.start);                            \
    }
#define XCCL_OF_SCALAR(Name, KIND)                                                                                     \
    template <class T, class S>                                                                                        \
    void Name(const LocalTensor<T> &to, const LocalTensor<T> &a, S scalar, int32_t count, XCCL_AT(Name)) {             \
        at(XCCL_OP_V_COPY, a.start, to.start, count, xccl_function<KIND, T, true>(), xccl_word(T(scalar)));      \
    }
XCCL_OF_TWO(Add, XCCL_MAP_ADD)
XCCL_OF_TWO(Sub, XCCL_MAP_SUB)
XCCL_OF_TWO(Mul, XCCL_MAP_MUL)
XCCL_OF_TWO(Div, XCCL_MAP_DIV)
XCCL_OF_TWO(Max, XCCL_MAP_MAX)
XCCL_OF_TWO(Min, XCCL_MAP_MIN)
XCCL_OF_TWO(And, XCCL_MAP_AND)
XCCL_OF_TWO(Or, XCCL_MAP_OR)
XCCL_OF_SCALAR(Adds, XCCL_MAP_ADD)
XCCL_OF_SCALAR(Muls, XCCL_MAP_MUL)
XCCL_OF_SCALAR(Maxs, XCCL_MAP_MAX)
XCCL_OF_SCALAR(Mins, XCCL_MAP_MIN)

template <class T> void Abs(const LocalTensor<T> &to, const LocalTensor<T> &a, int32_t count, XCCL_AT(Abs)) {
    at(XCCL_OP_V_COPY, a.start, to.start, count, xccl_function<XCCL_MAP_ABS, T>(), 0);
}
template <class T, class S> void Duplicate(const LocalTensor<T> &to, S value, int32_t count, XCCL_AT(Duplicate)) {
    at(XCCL_OP_V_COPY, 0, to.start, count, xccl_function<XCCL_MAP_FILL, T>(), xccl_word(T(value)));
}
template <class T> void CreateVecIndex(const LocalTensor<T> &to, T first, uint32_t count, XCCL_AT(CreateVecIndex)) {
    at(XCCL_OP_V_COPY, 0, to.start, count, xccl_function<XCCL_MAP_INDEX, T>(), xccl_word(first));
}

/* A rounding that there is not for these types is refused by the machine, as a bad operand. */
template <class TO, class T>
void Cast(const LocalTensor<TO> &to, const LocalTensor<T> &a, RoundMode mode, uint32_t count, XCCL_AT(Cast)) {
    constexpr int64_t types = xccl_number<XCCL_MAP_CAST, T, TO>();
    constexpr bool known = [] {
        for (int64_t rounding = 0; rounding <= XCCL_ROUND_TRUNC; rounding++)
            if (xccl_is_known(types | rounding << XCCL_ROUNDING_SHIFT)) return true;
        return false;
    }();
    static_assert(known, "Cast of these types is not in xccl_emu's header for Ascend C");
    at(XCCL_OP_V_COPY, a.start, to.start, count, types | int64_t(mode) << XCCL_ROUNDING_SHIFT, 0);
}

#define XCCL_OF_ALL(Name, KIND)                                                                                        \
    template <class T>                                                                                                 \
    void Name(const LocalTensor<T> &to, const LocalTensor<T> &a, const LocalTensor<T> &, int32_t count,                \
              XCCL_AT(Name)) {                                                                                         \
        at(XCCL_OP_V_COPY, a.start, to.start, count, xccl_function<KIND, T>(), 0);                                  \
    }
XCCL_OF_ALL(ReduceSum, XCCL_MAP_SUM)
XCCL_OF_ALL(ReduceMax, XCCL_MAP_MOST)
XCCL_OF_ALL(ReduceMin, XCCL_MAP_LEAST)

struct SumParams {
    uint32_t outter = 1, inner = 0, n = 0;
};
/* The sum of the first n of each row of `inner` elements; an instruction for each row. */
template <class T> void Sum(const LocalTensor<T> &to, const LocalTensor<T> &a, const SumParams &p, XCCL_AT(Sum)) {
    static_assert(sizeof(T) == 4, "Sum of elements of 2 bytes: not in xccl_emu's header for Ascend C");
    for (uint32_t i = 0; i < p.outter; i++)
        at(XCCL_OP_V_COPY, a[i * p.inner].start, to[i].start, p.n, xccl_function<XCCL_MAP_SUM, T>(), 0);
}

/* ---- what is not here */

XCCL_MISSING(BlockReduceMax) XCCL_MISSING(BlockReduceSum) XCCL_MISSING(Brcb)
XCCL_MISSING(Broadcast) XCCL_MISSING(Compare) XCCL_MISSING(CompareScalar) XCCL_MISSING(Copy) XCCL_MISSING(Exp)
XCCL_MISSING(Gather) XCCL_MISSING(GatherMask) XCCL_MISSING(GetHcclContext) XCCL_MISSING(GetSystemCycle)
XCCL_MISSING(OOMCheckAddrRange) XCCL_MISSING(Select) XCCL_MISSING(SetDeqScale) XCCL_MISSING(WholeReduceMax)
XCCL_MISSING(WholeReduceSum)
#define XCCL_MISSING_OF(name)                                                                                          \
    template <class T> void name() {                                                                                   \
        static_assert(xccl_false<T>, #name " is not in xccl_emu's header for Ascend C");                               \
    }
XCCL_MISSING_OF(SetAtomicAdd) XCCL_MISSING_OF(SetAtomicMax) XCCL_MISSING_OF(SetAtomicMin)
inline void SetAtomicNone() {}
} // namespace AscendC
