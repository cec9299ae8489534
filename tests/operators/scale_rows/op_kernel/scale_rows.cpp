/* Each block takes every n-th row through a buffer of the workspace, as a kernel of several phases does. */
#include "kernel_operator.h"
#include "scale_rows_tiling.h"

using namespace AscendC;

extern "C" __global__ __aicore__ void scale_rows(GM_ADDR inRows, GM_ADDR mask, GM_ADDR outRows, GM_ADDR workspaceGM,
                                                 GM_ADDR tiling)
{
    REGISTER_TILING_DEFAULT(ScaleRowsTiling);
    GET_TILING_DATA(given, tiling);
    uint32_t elements = given.shape.elements;
    TPipe pipe;
    TBuf<> buffer;
    pipe.InitBuffer(buffer, elements * sizeof(DTYPE_IN_ROWS));
    LocalTensor<DTYPE_IN_ROWS> room = buffer.Get<DTYPE_IN_ROWS>();
    GlobalTensor<DTYPE_IN_ROWS> source, kept, target;
    source.SetGlobalBuffer((__gm__ DTYPE_IN_ROWS *)inRows);
    kept.SetGlobalBuffer((__gm__ DTYPE_IN_ROWS *)workspaceGM);
    target.SetGlobalBuffer((__gm__ DTYPE_IN_ROWS *)outRows);
    for (uint32_t row = GetBlockIdx(); row < given.shape.rows; row += GetBlockNum()) {
        DataCopy(room, source[row * elements], elements);
        PipeBarrier<PIPE_ALL>();
        if (TILING_KEY_IS(2)) {
            Muls(room, room, DTYPE_IN_ROWS(given.factor), elements);
            PipeBarrier<PIPE_ALL>();
        }
        DataCopy(kept[row * elements], room, elements);
        PipeBarrier<PIPE_ALL>();
        dsb(DSB_DDR);
        DataCopy(room, kept[row * elements], elements);
        PipeBarrier<PIPE_ALL>();
        DataCopy(target[row * elements], room, elements);
        PipeBarrier<PIPE_ALL>();
    }
}
