/* Half precision by its bits: each operation is made in single precision and rounded once. */
#pragma once
#include "xccl_numbers.h"

struct __half {
    uint16_t bits;
    __half() = default;
    constexpr __half(float value) : bits(xccl_half_of(value)) {}
    constexpr operator float() const { return xccl_of_half(bits); }
};
typedef __half half;
constexpr float __half2float(__half value) { return float(value); }
constexpr __half __float2half(float value) { return __half(value); }
constexpr __half __float2half_rn(float value) { return __half(value); }
constexpr __half __hadd(__half a, __half b) { return __half(float(a) + float(b)); }
constexpr __half __hmul(__half a, __half b) { return __half(float(a) * float(b)); }
