/* bfloat16 by its bits: each operation is made in single precision and rounded once. */
#pragma once
#include "xccl_numbers.h"

struct __nv_bfloat16 {
    uint16_t bits;
    __nv_bfloat16() = default;
    constexpr __nv_bfloat16(float value) : bits(xccl_bfloat_of(value)) {}
    constexpr operator float() const { return xccl_float(uint32_t(bits) << 16); }
};
typedef __nv_bfloat16 nv_bfloat16;
constexpr float __bfloat162float(__nv_bfloat16 value) { return float(value); }
constexpr __nv_bfloat16 __float2bfloat16(float value) { return __nv_bfloat16(value); }
constexpr __nv_bfloat16 __float2bfloat16_rn(float value) { return __nv_bfloat16(value); }
constexpr __nv_bfloat16 __hadd(__nv_bfloat16 a, __nv_bfloat16 b) { return __nv_bfloat16(float(a) + float(b)); }
constexpr __nv_bfloat16 __hmul(__nv_bfloat16 a, __nv_bfloat16 b) { return __nv_bfloat16(float(a) * float(b)); }
