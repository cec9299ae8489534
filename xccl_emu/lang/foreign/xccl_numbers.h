/* Numbers of 16 bits, which C++ has not: their bits, rounded half to even, and what they are in single precision. */
#pragma once
#include <stdint.h>

constexpr float xccl_float(uint32_t bits) { return __builtin_bit_cast(float, bits); }
constexpr uint32_t xccl_bits(float value) { return __builtin_bit_cast(uint32_t, value); }

constexpr uint16_t xccl_half_of(float value) {
    uint32_t bits = xccl_bits(value), sign = bits >> 16 & 0x8000;
    bits &= 0x7fffffff;
    if (bits > 0x7f800000) return sign | 0x7e00;
    if (bits >= 0x47800000) return sign | 0x7c00;
    if (bits < 0x38800000) return sign | (xccl_bits(xccl_float(bits) + 0.5f) - xccl_bits(0.5f));
    return sign | (bits - 0x38000000 + 0xfff + (bits >> 13 & 1)) >> 13;
}
constexpr float xccl_of_half(uint16_t bits) {
    uint32_t sign = uint32_t(bits & 0x8000) << 16, rest = bits & 0x7fff;
    uint32_t wide = rest >= 0x7c00 ? 0x7f800000 | (rest & 0x3ff) << 13 : xccl_bits(xccl_float(rest << 13) * 0x1p112f);
    return xccl_float(sign | wide);
}
constexpr uint16_t xccl_bfloat_of(float value) {
    uint32_t bits = xccl_bits(value);
    if ((bits & 0x7fffffff) > 0x7f800000) return (bits >> 16 & 0x8000) | 0x7fc0;
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
