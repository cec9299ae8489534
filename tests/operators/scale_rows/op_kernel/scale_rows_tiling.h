/* What the host gives to the kernel, as a struct that both of them include. */
#pragma once
#include <cstdint>

struct RowShape {
    uint32_t rows;
    uint32_t elements; // a multiple of 16
};

struct ScaleRowsTiling {
    Mc2InitTiling mc2InitTiling;
    RowShape shape;
    float factor;
};
