/* Instructions of the vector pipe: a v_map (xccl_emu/lang/maps.py) of each contiguous part of what it works on. */
#pragma once

namespace AscendC {
enum class RoundMode { CAST_NONE, CAST_RINT, CAST_FLOOR, CAST_CEIL, CAST_ROUND, CAST_TRUNC, CAST_ODD };

template <class T> constexpr int64_t xccl_type() {
    if constexpr (xccl_same<T, bfloat16_t>) return XCCL_BF16;
    else if constexpr (xccl_same<T, half> || xccl_same<T, float16_t>) return XCCL_FP16;
    else if constexpr (xccl_same<T, float>) return XCCL_FP32;
    else {
        static_assert(!xccl_same<T, double>, "double: the vector pipe of xccl_emu's header for Ascend C has no such type");
        return sizeof(T) == 1 ? XCCL_INT8 : sizeof(T) == 2 ? XCCL_INT16 : sizeof(T) == 4 ? XCCL_INT32 : XCCL_INT64;
    }
}
template <class T> constexpr bool xccl_unsigned = T(-1) > T(0);
template <int BYTES> struct xccl_integer_of { using type = int32_t; };
template <> struct xccl_integer_of<2> { using type = int16_t; };
template <int BYTES> using xccl_integer = typename xccl_integer_of<BYTES>::type;
template <> constexpr bool xccl_unsigned<half> = false;
template <> constexpr bool xccl_unsigned<bfloat16_t> = false;

template <int64_t KIND, class T, class TO = T, bool SCALAR = false> constexpr int64_t xccl_number() {
    return (KIND & 15) | KIND >> 4 << XCCL_KIND_SHIFT | xccl_type<T>() << XCCL_DTYPE_SHIFT | (KIND == XCCL_MAP_CAST ? xccl_type<TO>() << XCCL_TO_SHIFT : 0) |
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

/* ---- masks, repeats and strides */

struct UnaryRepeatParams {
    uint16_t dstBlkStride = 1, srcBlkStride = 1;
    uint8_t dstRepStride = 8, srcRepStride = 8;
};
struct BinaryRepeatParams {
    uint8_t dstBlkStride = 1, src0BlkStride = 1, src1BlkStride = 1, dstRepStride = 8, src0RepStride = 8,
            src1RepStride = 8;
};

/* Which elements of a repeat take part: the first this many, or a bit for each. */
struct xccl_mask {
    uint64_t bits[2];
    xccl_mask(uint64_t n)
        : bits{n < 64 ? (uint64_t(1) << n) - 1 : ~uint64_t(0), n > 64 ? ~uint64_t(0) >> (128 - n) % 64 : 0} {}
    xccl_mask(const uint64_t *given) : bits{given[0], given[1]} {}
    static xccl_mask of(uint64_t bits) {
        const uint64_t given[] = {bits, 0};
        return xccl_mask(given);
    }
    bool has(uint32_t i) const { return bits[i / 64] >> i % 64 & 1; }
};

/* Where the elements of an operand are; strides of blocks and of repeats are in blocks of 32 bytes. */
struct xccl_operand {
    uint32_t start, size, block, repeat;
    uint32_t at(uint32_t r, uint32_t i) const {
        uint32_t of_block = 32 / size;
        return start + 32 * (r * repeat + i / of_block * block) + i % of_block * size;
    }
};

/* Calls f(where the operands begin, elements) for each contiguous part, in order; a repeat is 256 bytes of the widest. */
template <int N, class F>
void xccl_parts(xccl_place at, const xccl_operand (&operands)[N], const xccl_mask &mask, uint32_t repeats, F f) {
    uint32_t begin[N], n = 0, widest = 1;
    for (const xccl_operand &one : operands) widest = one.size > widest ? one.size : widest;
    uint32_t of_repeat = 256 / widest < 128 ? 256 / widest : 128;
    if ((of_repeat < 128 && (mask.bits[1] || (of_repeat < 64 && mask.bits[0] >> of_repeat))) || repeats > 255)
        at.fail(XCCL_OP_V_COPY, XCCL_BAD_MASK, repeats);
    for (uint32_t r = 0; r < repeats; r++)
        for (uint32_t i = 0; i < of_repeat; i++) {
            if (!mask.has(i)) continue;
            bool goes_on = n > 0;
            for (int k = 0; k < N; k++) goes_on &= operands[k].at(r, i) == begin[k] + n * operands[k].size;
            if (!goes_on) {
                if (n) f(begin, n);
                for (int k = 0; k < N; k++) begin[k] = operands[k].at(r, i);
                n = 0;
            }
            n++;
        }
    if (n) f(begin, n);
}

#define XCCL_OF_TWO(Name, KIND)                                                                                        \
    template <class T>                                                                                                 \
    void Name(const LocalTensor<T> &to, const LocalTensor<T> &a, const LocalTensor<T> &b, int32_t count,               \
              XCCL_AT(Name)) {                                                                                         \
        at(XCCL_OP_V_COPY, a.start, to.start, count, xccl_function<KIND, T>(), b.start);                               \
    }                                                                                                                  \
    template <class T>                                                                                                 \
    void Name(const LocalTensor<T> &to, const LocalTensor<T> &a, const LocalTensor<T> &b, xccl_mask mask,              \
              uint8_t repeats, const BinaryRepeatParams &p, XCCL_AT(Name)) {                                           \
        const xccl_operand operands[] = {{to.start, sizeof(T), p.dstBlkStride, p.dstRepStride},                        \
                                         {a.start, sizeof(T), p.src0BlkStride, p.src0RepStride},                       \
                                         {b.start, sizeof(T), p.src1BlkStride, p.src1RepStride}};                      \
        xccl_parts(at, operands, mask, repeats, [&](const uint32_t *begin, uint32_t n) {                               \
            at(XCCL_OP_V_COPY, begin[1], begin[0], n, xccl_function<KIND, T>(), begin[2]);                             \
        });                                                                                                            \
    }

/* A function of one operand, or of that and a scalar's bits. */
template <class TO, class T>
void xccl_unary(xccl_place at, const LocalTensor<TO> &to, const LocalTensor<T> &a, int64_t function, int64_t other,
                const xccl_mask &mask, uint32_t repeats, const UnaryRepeatParams &p) {
    const xccl_operand operands[] = {{to.start, sizeof(TO), p.dstBlkStride, p.dstRepStride},
                                     {a.start, sizeof(T), p.srcBlkStride, p.srcRepStride}};
    xccl_parts(at, operands, mask, repeats, [&](const uint32_t *begin, uint32_t n) {
        at(XCCL_OP_V_COPY, begin[1], begin[0], n, function, other);
    });
}
#define XCCL_OF_SCALAR(Name, KIND)                                                                                     \
    template <class T, class S>                                                                                        \
    void Name(const LocalTensor<T> &to, const LocalTensor<T> &a, S scalar, int32_t count, XCCL_AT(Name)) {             \
        at(XCCL_OP_V_COPY, a.start, to.start, count, xccl_function<KIND, T, true>(), xccl_word(T(scalar)));            \
    }                                                                                                                  \
    template <class T, class S>                                                                                        \
    void Name(const LocalTensor<T> &to, const LocalTensor<T> &a, S scalar, xccl_mask mask, uint8_t repeats,            \
              const UnaryRepeatParams &p, XCCL_AT(Name)) {                                                             \
        xccl_unary(at, to, a, xccl_function<KIND, T, true>(), xccl_word(T(scalar)), mask, repeats, p);                 \
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

#define XCCL_OF_ONE(Name, KIND)                                                                                        \
    template <class T> void Name(const LocalTensor<T> &to, const LocalTensor<T> &a, int32_t count, XCCL_AT(Name)) {    \
        at(XCCL_OP_V_COPY, a.start, to.start, count, xccl_function<KIND, T>(), 0);                                     \
    }                                                                                                                  \
    template <class T>                                                                                                 \
    void Name(const LocalTensor<T> &to, const LocalTensor<T> &a, xccl_mask mask, uint8_t repeats,                      \
              const UnaryRepeatParams &p, XCCL_AT(Name)) {                                                             \
        xccl_unary(at, to, a, xccl_function<KIND, T>(), 0, mask, repeats, p);                                          \
    }
XCCL_OF_ONE(Abs, XCCL_MAP_ABS)
XCCL_OF_ONE(Exp, XCCL_MAP_EXP)
template <class T, class S> void Duplicate(const LocalTensor<T> &to, S value, int32_t count, XCCL_AT(Duplicate)) {
    at(XCCL_OP_V_COPY, 0, to.start, count, xccl_function<XCCL_MAP_FILL, T>(), xccl_word(T(value)));
}
template <class T, class S>
void Duplicate(const LocalTensor<T> &to, S value, xccl_mask mask, uint8_t repeats, uint16_t dstBlockStride,
               uint8_t dstRepeatStride, XCCL_AT(Duplicate)) {
    const xccl_operand operands[] = {{to.start, sizeof(T), dstBlockStride, dstRepeatStride}};
    xccl_parts(at, operands, mask, repeats, [&](const uint32_t *begin, uint32_t n) {
        at(XCCL_OP_V_COPY, 0, begin[0], n, xccl_function<XCCL_MAP_FILL, T>(), xccl_word(T(value)));
    });
}
template <class T, class S>
void CreateVecIndex(const LocalTensor<T> &to, S first, uint32_t count, XCCL_AT(CreateVecIndex)) {
    at(XCCL_OP_V_COPY, 0, to.start, count, xccl_function<XCCL_MAP_INDEX, T>(), xccl_word(T(first)));
}

/* A rounding that there is not for these types is refused by the machine, as a bad operand. */
template <class T> constexpr int64_t xccl_type_cast() {
    static_assert(!xccl_unsigned<T> || xccl_same<T, uint8_t>, "Cast of these elements without a sign is not in "
                                                              "xccl_emu's header for Ascend C");
    return xccl_same<T, uint8_t> ? XCCL_UINT8 : xccl_type<T>();
}
template <class TO, class T> constexpr int64_t xccl_cast(RoundMode mode) {
    constexpr int64_t types =
        XCCL_MAP_CAST | xccl_type_cast<T>() << XCCL_DTYPE_SHIFT | xccl_type_cast<TO>() << XCCL_TO_SHIFT;
    constexpr bool known = [] {
        for (int64_t rounding = 0; rounding <= XCCL_ROUND_ODD; rounding++)
            if (xccl_is_known(types | rounding << XCCL_ROUNDING_SHIFT)) return true;
        return false;
    }();
    static_assert(known, "Cast of these types is not in xccl_emu's header for Ascend C");
    return types | int64_t(mode) << XCCL_ROUNDING_SHIFT;
}
template <class TO, class T>
void Cast(const LocalTensor<TO> &to, const LocalTensor<T> &a, RoundMode mode, uint32_t count, XCCL_AT(Cast)) {
    at(XCCL_OP_V_COPY, a.start, to.start, count, xccl_cast<TO, T>(mode), 0);
}
template <class TO, class T>
void Cast(const LocalTensor<TO> &to, const LocalTensor<T> &a, RoundMode mode, xccl_mask mask, uint8_t repeats,
          const UnaryRepeatParams &p, XCCL_AT(Cast)) {
    xccl_unary(at, to, a, xccl_cast<TO, T>(mode), 0, mask, repeats, p);
}

/* ---- one result of many elements */

#define XCCL_OF_ALL(Name, KIND)                                                                                        \
    template <class T>                                                                                                 \
    void Name(const LocalTensor<T> &to, const LocalTensor<T> &a, const LocalTensor<T> &, int32_t count,                \
              XCCL_AT(Name)) {                                                                                         \
        at(XCCL_OP_V_COPY, a.start, to.start, count, xccl_function<KIND, T>(), 0);                                     \
    }
/* With `index`, the result's place comes after it, as bits of an integer. */
#define XCCL_OF_ALL_AT(Name, KIND, BOTH)                                                                               \
    XCCL_OF_ALL(Name, KIND)                                                                                            \
    template <class T>                                                                                                 \
    void Name(const LocalTensor<T> &to, const LocalTensor<T> &a, const LocalTensor<T> &, int32_t count, bool index,    \
              XCCL_AT(Name)) {                                                                                         \
        at(XCCL_OP_V_COPY, a.start, to.start, count, index ? xccl_function<BOTH, T>() : xccl_function<KIND, T>(), 0);  \
    }
XCCL_OF_ALL(ReduceSum, XCCL_MAP_SUM)
XCCL_OF_ALL_AT(ReduceMax, XCCL_MAP_MOST, XCCL_MAP_MOST_AT)
XCCL_OF_ALL_AT(ReduceMin, XCCL_MAP_LEAST, XCCL_MAP_LEAST_AT)

/* The sum of each repeat, and with `work`'s help of these: of the first to the last. */
template <class T>
void ReduceSum(const LocalTensor<T> &to, const LocalTensor<T> &a, const LocalTensor<T> &work, xccl_mask mask,
               int32_t repeats, int32_t srcRepStride, XCCL_AT(ReduceSum)) {
    bool is_first = true;
    for (int32_t r = 0; r < repeats; r++) {
        const xccl_operand operands[] = {{a.start + 32 * r * srcRepStride, sizeof(T), 1, 8}};
        xccl_parts(at, operands, mask, 1, [&](const uint32_t *begin, uint32_t n) {
            at(XCCL_OP_V_COPY, begin[0], (is_first ? to : work).start, n, xccl_function<XCCL_MAP_SUM, T>(), 0);
            if (!is_first) at(XCCL_OP_V_COPY, to.start, to.start, 1, xccl_function<XCCL_MAP_ADD, T>(), work.start);
            is_first = false;
        });
    }
}

enum class ReduceOrder { ORDER_VALUE_INDEX, ORDER_INDEX_VALUE, ORDER_ONLY_VALUE, ORDER_ONLY_INDEX };
using enum ReduceOrder;

/* A result of each repeat, whose elements must be contiguous; `results` elements of it. */
template <class T>
void xccl_of_repeats(xccl_place at, const LocalTensor<T> &to, const LocalTensor<T> &a, int64_t function, int results,
                     const xccl_mask &mask, int32_t repeats, int32_t to_stride, uint32_t block, uint32_t stride) {
    for (int32_t r = 0; r < repeats; r++) {
        const xccl_operand operands[] = {{a.start + 32 * r * stride, sizeof(T), block, 8}};
        int parts = 0;
        xccl_parts(at, operands, mask, 1, [&](const uint32_t *begin, uint32_t n) {
            if (parts++) at.fail(XCCL_OP_V_COPY, XCCL_NOT_CONTIGUOUS, n);
            at(XCCL_OP_V_COPY, begin[0], to[r * to_stride * results].start, n, function, 0);
        });
    }
}
template <class T>
void WholeReduceSum(const LocalTensor<T> &to, const LocalTensor<T> &a, xccl_mask mask, int32_t repeats,
                    int32_t dstRepStride, int32_t srcBlkStride, int32_t srcRepStride, XCCL_AT(WholeReduceSum)) {
    xccl_of_repeats(at, to, a, xccl_function<XCCL_MAP_SUM, T>(), 1, mask, repeats, dstRepStride, srcBlkStride,
                    srcRepStride);
}
#define XCCL_OF_REPEATS(Name, KIND, BOTH)                                                                              \
    template <class T>                                                                                                 \
    void Name(const LocalTensor<T> &to, const LocalTensor<T> &a, xccl_mask mask, int32_t repeats,                      \
              int32_t dstRepStride, int32_t srcBlkStride, int32_t srcRepStride,                                        \
              ReduceOrder order = ORDER_VALUE_INDEX, XCCL_AT(Name)) {                                                  \
        if (order != ORDER_VALUE_INDEX && order != ORDER_ONLY_VALUE) at.fail(XCCL_OP_V_COPY, XCCL_NO_SUCH_ORDER, 0);   \
        bool both = order == ORDER_VALUE_INDEX;                                                                        \
        xccl_of_repeats(at, to, a, both ? xccl_function<BOTH, T>() : xccl_function<KIND, T>(), both ? 2 : 1, mask,     \
                        repeats, dstRepStride, srcBlkStride, srcRepStride);                                            \
    }
XCCL_OF_REPEATS(WholeReduceMax, XCCL_MAP_MOST, XCCL_MAP_MOST_AT)
XCCL_OF_REPEATS(WholeReduceMin, XCCL_MAP_LEAST, XCCL_MAP_LEAST_AT)

/* A result of each `n` elements that lie together; the mask takes part, and a stride of results is in repeats. */
template <class T>
void xccl_of_groups(xccl_place at, const LocalTensor<T> &to, const LocalTensor<T> &a, int64_t function, uint32_t n,
                    int32_t repeats, const xccl_mask &mask, int32_t to_stride, uint32_t block, uint32_t stride) {
    constexpr uint32_t each = 32 / sizeof(T);
    const uint32_t groups = 8 * each / n;
    for (int32_t r = 0; r < repeats; r++)
        for (uint32_t g = 0; g < groups; g++) {
            const uint32_t i = g * n;
            uint64_t held = mask.bits[i / 64] >> i % 64 & ((uint64_t(1) << n) - 1);
            xccl_of_repeats(at, to[r * to_stride * groups + g], a[(r * stride + i / each * block) * each + i % each],
                            function, 1, xccl_mask::of(held), 1, 0, 1, 0);
        }
}
/* Of each block of 32 bytes, or of each pair. */
#define XCCL_OF_GROUPS(Name, KIND, N)                                                                                  \
    template <class T>                                                                                                 \
    void Name(const LocalTensor<T> &to, const LocalTensor<T> &a, int32_t repeats, xccl_mask mask,                      \
              int32_t dstRepStride, int32_t srcBlkStride, int32_t srcRepStride, XCCL_AT(Name)) {                       \
        xccl_of_groups(at, to, a, xccl_function<KIND, T>(), N, repeats, mask, dstRepStride, srcBlkStride,              \
                       srcRepStride);                                                                                  \
    }
XCCL_OF_GROUPS(BlockReduceSum, XCCL_MAP_SUM, 32 / sizeof(T))
XCCL_OF_GROUPS(BlockReduceMax, XCCL_MAP_MOST, 32 / sizeof(T))
XCCL_OF_GROUPS(BlockReduceMin, XCCL_MAP_LEAST, 32 / sizeof(T))
XCCL_OF_GROUPS(PairReduceSum, XCCL_MAP_SUM, 2)

struct SumParams {
    uint32_t outter = 1, inner = 0, n = 0;
};
/* The sum of the first n of each row of `inner` elements; an instruction for each row. */
template <class T> void Sum(const LocalTensor<T> &to, const LocalTensor<T> &a, const SumParams &p, XCCL_AT(Sum)) {
    for (uint32_t i = 0; i < p.outter; i++)
        at(XCCL_OP_V_COPY, a[i * p.inner].start, to[i].start, p.n, xccl_function<XCCL_MAP_SUM, T>(), 0);
}

/* The same with room that is not needed here. */
template <class T, class U>
void Sum(const LocalTensor<T> &to, const LocalTensor<T> &a, const LocalTensor<U> &, const SumParams &p, XCCL_AT(Sum)) {
    Sum(to, a, p, at);
}

/* ---- bits for elements: made by comparing, used to select and to gather; the first element's is the lowest */

enum class CMPMODE { LT, EQ };
template <class U, class T, class S>
void CompareScalar(const LocalTensor<U> &to, const LocalTensor<T> &a, S scalar, CMPMODE mode, uint32_t count,
                   XCCL_AT(CompareScalar)) {
    constexpr int64_t less = xccl_function<XCCL_MAP_LESS, T, true>(), equal = xccl_function<XCCL_MAP_EQUAL, T, true>();
    at(XCCL_OP_V_COPY, a.start, to.start, count, mode == CMPMODE::LT ? less : equal, xccl_word(T(scalar)));
}
enum class SELMODE { VSEL_TENSOR_SCALAR_MODE };
template <class T, class U, class S>
void Select(const LocalTensor<T> &to, const LocalTensor<U> &bits, const LocalTensor<T> &a, S scalar, SELMODE,
            uint32_t count, XCCL_AT(Select)) {
    if (xccl_word(T(scalar))) at.fail(XCCL_OP_V_COPY, XCCL_NO_SUCH_SCALAR, xccl_word(T(scalar)));
    at(XCCL_OP_V_COPY, a.start, to.start, count, xccl_function<XCCL_MAP_KEEP, T>(), bits.start);
}

struct xccl_gather {
    uint16_t block, repeats, repeat, of_bits;
};
/* Which elements are gathered, and how many, is known when the call returns: so the scalar unit waits until the vector
 * pipe has come to it and read the bits.  Then it is a copy of each contiguous part. */
template <class T, class U, class C>
void GatherMask(const LocalTensor<T> &to, const LocalTensor<T> &a, const LocalTensor<U> &bits, bool counts,
                uint32_t mask, const xccl_gather &p, C &gathered, XCCL_AT(GatherMask)) {
    static_assert(sizeof(T) == 2 || sizeof(T) == 4, "GatherMask of these elements is not in xccl_emu's header");
    using I = xccl_integer<sizeof(T)>;
    if (!counts || !mask) at.fail(XCCL_OP_V_COPY, XCCL_BAD_MASK, mask);
    uint32_t n = 0, first = 0, length = 0, word = 0, words = (mask + 31) / 32;
    auto copy = [&] {
        if (length)
            at(XCCL_OP_V_COPY, first, to[n - length].start, length, xccl_function<XCCL_MAP_OR, I, true>(), 0);
        length = 0;
    };
    for (uint32_t r = 0; r < p.repeats; r++) {
        uint32_t from = bits.start + 32 * r * p.of_bits;
        const xccl_operand source = {a.start, sizeof(T), p.block, p.repeat};
        if (r == 0 || p.of_bits) {
            at(XCCL_OP_V_COPY, from, from, words, xccl_function<XCCL_MAP_OR, int32_t, true>(), 0);
            at(XCCL_OP_SET_FLAG, PIPE_V, PIPE_S, XCCL_BARRIER_EVENT);
            at(XCCL_OP_WAIT_FLAG, PIPE_V, PIPE_S, XCCL_BARRIER_EVENT);
        }
        for (uint32_t i = 0; i < mask; i++) {
            if (i % 32 == 0) word = uint32_t(at(XCCL_OP_UB_LOAD, from + i / 8, 4));
            if (!(word >> i % 32 & 1)) continue;
            if (source.at(r, i) != first + length * sizeof(T)) copy();
            if (!length) first = source.at(r, i);
            length++, n++;
        }
    }
    copy();
    gathered = n;
}

struct xccl_spread {
    uint16_t block, repeat;
};
/* Eight elements of each repeat, a block of 32 bytes of each. */
template <class T>
void Brcb(const LocalTensor<T> &to, const LocalTensor<T> &a, uint8_t repeats, const xccl_spread &p, XCCL_AT(Brcb)) {
    for (uint32_t r = 0; r < repeats; r++)
        for (uint32_t i = 0, n = p.block == 1 ? 8 : 1; i < 8; i += n)
            at(XCCL_OP_V_COPY, a[8 * r + i].start, to.start + 32 * (r * p.repeat + i * p.block), n,
               xccl_function<XCCL_MAP_SPREAD, T>(), 0);
}

struct CopyRepeatParams {
    uint16_t dstStride = 1, srcStride = 1, dstRepeatSize = 8, srcRepeatSize = 8;
};
template <class T>
void Copy(const LocalTensor<T> &to, const LocalTensor<T> &a, xccl_mask mask, uint8_t repeats, const CopyRepeatParams &p,
          XCCL_AT(Copy)) {
    static_assert(sizeof(T) == 2 || sizeof(T) == 4, "Copy of these elements is not in xccl_emu's header");
    const xccl_operand operands[] = {{to.start, sizeof(T), p.dstStride, p.dstRepeatSize},
                                     {a.start, sizeof(T), p.srcStride, p.srcRepeatSize}};
    xccl_parts(at, operands, mask, repeats, [&](const uint32_t *begin, uint32_t n) {
        at(XCCL_OP_V_COPY, begin[1], begin[0], n, xccl_function<XCCL_MAP_OR, xccl_integer<sizeof(T)>, true>(), 0);
    });
}

/* ---- sorting: pairs of 8 bytes, an element and its index, the largest first and of equal ones the first */

template <class T>
void xccl_sort(xccl_place at, const LocalTensor<T> &to, const LocalTensor<T> &a, const LocalTensor<uint32_t> &index,
               uint32_t first, uint32_t n) {
    at(XCCL_OP_V_COPY, a[first].start, to.start + 8 * first, n, xccl_function<XCCL_MAP_SORT, T>(), index[first].start);
}
template <class T>
void Sort32(const LocalTensor<T> &to, const LocalTensor<T> &a, const LocalTensor<uint32_t> &index, int32_t repeats,
            XCCL_AT(Sort32)) {
    for (int32_t r = 0; r < repeats; r++) xccl_sort(at, to, a, index, 32 * r, 32);
}
/* All of them, or each 32 by themselves. */
template <class T, bool ALL>
void Sort(const LocalTensor<T> &to, const LocalTensor<T> &a, const LocalTensor<uint32_t> &index, LocalTensor<T> &,
          int32_t repeats, XCCL_AT(Sort)) {
    if constexpr (ALL) xccl_sort(at, to, a, index, 0, 32 * repeats);
    else Sort32(to, a, index, repeats, at);
}
/* What Sort takes is as it was: elements of one tensor. */
template <class T>
void Concat(LocalTensor<T> &to, const LocalTensor<T> &a, const LocalTensor<T> &, int32_t) {
    to = a;
}
template <class T>
void Extract(const LocalTensor<T> &to, const LocalTensor<uint32_t> &index, const LocalTensor<T> &sorted,
             int32_t repeats, XCCL_AT(Extract)) {
    auto copy = [&]<class I>(const I *, uint32_t from, uint32_t where) {
        at(XCCL_OP_V_COPY, from, where, 1, xccl_function<XCCL_MAP_OR, I, true>(), 0);
    };
    for (int32_t i = 0; i < 32 * repeats; i++) {
        copy((const xccl_integer<sizeof(T)> *)nullptr, sorted.start + 8 * i, to[i].start);
        copy((const int32_t *)nullptr, sorted.start + 8 * i + 4, index[i].start);
    }
}

/* What an integer is multiplied by when it is cast to half: by nothing. */
inline void SetDeqScale(half scale, XCCL_AT(SetDeqScale)) {
    if (scale.bits != half(1.0f).bits) at.fail(XCCL_OP_FAIL, XCCL_NO_SUCH_SCALAR, scale.bits);
}

/* ---- what is not here */

XCCL_MISSING(Axpy) XCCL_MISSING(Barrier) XCCL_MISSING(Broadcast) XCCL_MISSING(CastImpl) XCCL_MISSING(Compare)
XCCL_MISSING(Gather) XCCL_MISSING(MulAddDst) XCCL_MISSING(OOMCheckAddrRange)
/* Refused where they are reached: callers have them in branches that are off. */
#define XCCL_STOPS(name)                                                                                               \
    template <class T> void name(XCCL_AT(name)) { at.fail(XCCL_OP_FAIL, XCCL_NO_ATOMIC_COPY, 0); }
XCCL_STOPS(SetAtomicMax)
XCCL_STOPS(SetAtomicMin)
} // namespace AscendC
