/* A row goes into the window of the next rank, followed by a flag; the row in one's own window is the result. */
#include "kernel_operator.h"

using namespace AscendC;

__aicore__ inline void Move(LocalTensor<float> &room, GM_ADDR to, uint32_t first, GM_ADDR from, uint32_t elements)
{
    GlobalTensor<float> source, target;
    source.SetGlobalBuffer((__gm__ float *)from);
    target.SetGlobalBuffer((__gm__ float *)to);
    DataCopy(room, source, elements);
    SetFlag<HardEvent::MTE2_MTE3>(EVENT_ID0);
    WaitFlag<HardEvent::MTE2_MTE3>(EVENT_ID0);
    DataCopy(target[first], room, elements);
    PipeBarrier<PIPE_ALL>();
    dsb(DSB_DDR);
}

extern "C" __global__ __aicore__ void pass_on(GM_ADDR x, GM_ADDR y, GM_ADDR window, GM_ADDR nextWindow, GM_ADDR flag,
                                              GM_ADDR nextFlag, GM_ADDR workspace, GM_ADDR tilingGM)
{
    GET_TILING_DATA(given, tilingGM);
    TPipe pipe;
    TBuf<> buffer;
    pipe.InitBuffer(buffer, given.row.elements * sizeof(float));
    LocalTensor<float> room = buffer.Get<float>();
    GlobalTensor<int64_t> arrived, sent;
    arrived.SetGlobalBuffer((__gm__ int64_t *)flag);
    sent.SetGlobalBuffer((__gm__ int64_t *)nextFlag);
    Move(room, nextWindow, 0, x + given.offsets[0] * sizeof(float), given.row.elements);
    sent.SetValue(0, 1);
    DataCacheCleanAndInvalid<int64_t, CacheLine::SINGLE_CACHE_LINE, DcciDst::CACHELINE_OUT>(sent);
    do {
        DataCacheCleanAndInvalid<int64_t, CacheLine::SINGLE_CACHE_LINE, DcciDst::CACHELINE_OUT>(arrived);
    } while (arrived.GetValue(0) != 1);
    Move(room, y, given.offsets[1], window, given.row.elements);
}
