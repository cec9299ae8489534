/* A kernel by key, with a type that its build gives. */
#include "kernel_operator.h"
#include "kernel_tiling/kernel_tiling.h"

using namespace AscendC;

struct KeyedTiling {
    uint64_t columns;
};
template <class X, class EXPAND_X> __aicore__ inline void Typed(GM_ADDR source) {
    GlobalTensor<X> row;
    row.SetGlobalBuffer((__gm__ X *)source);
    static_assert(sizeof(X) == 2 && sizeof(EXPAND_X) == 1);
    PipeBarrier<PIPE_ALL>();
}
extern "C" __global__ __aicore__ void keyed(GM_ADDR source, GM_ADDR tiling) {
    KERNEL_TASK_TYPE(1000, KERNEL_TYPE_AIV_ONLY);
    REGISTER_TILING_DEFAULT(KeyedTiling);
    REGISTER_TILING_FOR_TILINGKEY("TILING_KEY_VAR >= 1000", KeyedTiling);
    if (TILING_KEY_IS(1000)) {
        GET_TILING_DATA_WITH_STRUCT(KeyedTiling, given, tiling);
#if ORIG_DTYPE_X == DT_BF16 || ORIG_DTYPE_X == DT_FLOAT16
        Typed<DTYPE_X, DTYPE_EXPAND_X>(source);
#endif
    }
}
