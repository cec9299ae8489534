/* What the host gives to the kernel, in the host's macros. */
#pragma once
#include "register/tilingdata_base.h"

namespace optiling {
BEGIN_TILING_DATA_DEF(PassOnRow)
TILING_DATA_FIELD_DEF(uint32_t, elements);
END_TILING_DATA_DEF;
REGISTER_TILING_DATA_CLASS(PassOnRowOp, PassOnRow)

BEGIN_TILING_DATA_DEF(PassOnTilingData)
TILING_DATA_FIELD_DEF_ARR(uint32_t, 2, offsets); // of the row, in x and in y
TILING_DATA_FIELD_DEF_STRUCT(PassOnRow, row);
END_TILING_DATA_DEF;
REGISTER_TILING_DATA_CLASS(PassOn, PassOnTilingData)
} // namespace optiling
