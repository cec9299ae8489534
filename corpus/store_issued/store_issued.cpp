/* A store is issued and not propagated when the flag after it is set; store_issued.py in Ascend C. */
#include "kernel_operator.h"

using namespace AscendC;

__aicore__ inline GlobalTensor<int64_t> WordAt(GM_ADDR address)
{
    GlobalTensor<int64_t> word;
    word.SetGlobalBuffer((__gm__ int64_t *)address);
    return word;
}
__aicore__ inline void Clean(const GlobalTensor<int64_t> &word)
{
    DataCacheCleanAndInvalid<int64_t, CacheLine::SINGLE_CACHE_LINE, DcciDst::CACHELINE_OUT>(word);
}
__aicore__ inline void Read(const LocalTensor<int8_t> &to, GM_ADDR address, uint32_t nbytes)
{
    GlobalTensor<int8_t> from;
    from.SetGlobalBuffer((__gm__ int8_t *)address);
    DataCopy(to, from, nbytes);
    SetFlag<HardEvent::MTE2_MTE3>(EVENT_ID0);
    WaitFlag<HardEvent::MTE2_MTE3>(EVENT_ID0);
}
__aicore__ inline void Write(GM_ADDR address, const LocalTensor<int8_t> &from, uint32_t nbytes)
{
    GlobalTensor<int8_t> to;
    to.SetGlobalBuffer((__gm__ int8_t *)address);
    DataCopy(to, from, nbytes);
}

/* Give the peer its part, and take what it gives. */
extern "C" __global__ __aicore__ void combine(GM_ADDR own, GM_ADDR out, GM_ADDR window, GM_ADDR flag,
                                              GM_ADDR peer_window, GM_ADDR peer_flag, uint32_t nbytes, uint32_t mended)
{
    TPipe pipe;
    TBuf<> room;
    pipe.InitBuffer(room, nbytes);
    LocalTensor<int8_t> part = room.Get<int8_t>();
    GlobalTensor<int64_t> mine = WordAt(flag), theirs = WordAt(peer_flag);
    Read(part, own, nbytes);
    Write(peer_window, part, nbytes);
    PipeBarrier<PIPE_ALL>();
    if (mended) {
        dsb(DSB_DDR);
    }
    theirs.SetValue(0, 1);
    Clean(theirs);
    do {
        Clean(mine);
    } while (mine.GetValue(0) != 1);
    Read(part, window, nbytes);
    Write(out, part, nbytes);
}
