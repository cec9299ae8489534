/* All-gather on a ring of dies: each passes on what it has got last, its own chunk first. */
#include "counter.h"

using namespace AscendC;

struct RingTiling {
    uint32_t me;
    uint32_t dies;
    uint32_t slots;
    uint32_t chunkElements;
};

extern "C" __global__ __aicore__ void all_gather(GM_ADDR own, GM_ADDR out, GM_ADDR inbox, GM_ADDR tail, GM_ADDR ack,
                                                 GM_ADDR rightInbox, GM_ADDR rightTail, GM_ADDR leftAck, GM_ADDR tiling)
{
    GET_TILING_DATA_WITH_STRUCT(RingTiling, sizes, tiling);
    uint32_t n = sizes.chunkElements;
    TPipe pipe;
    TBuf<> room;
    pipe.InitBuffer(room, n * sizeof(float));
    LocalTensor<float> chunk = room.Get<float>();
    GlobalTensor<float> mine, gathered, here, right;
    mine.SetGlobalBuffer((__gm__ float *)own);
    gathered.SetGlobalBuffer((__gm__ float *)out);
    here.SetGlobalBuffer((__gm__ float *)inbox);
    right.SetGlobalBuffer((__gm__ float *)rightInbox);
    Counter arrived(tail), read(ack), sent(rightTail), taken(leftAck);

    DataCopy(chunk, mine, n);
    SetFlag<HardEvent::MTE2_MTE3>(EVENT_ID0);
    WaitFlag<HardEvent::MTE2_MTE3>(EVENT_ID0);
    DataCopy(gathered[sizes.me * n], chunk, n);
    for (uint32_t i = 0; i + 1 < sizes.dies; i++) {
        uint32_t slot = i % sizes.slots * n;
        read.Await(int64_t(i) + 1 - sizes.slots); /* the slot is free */
        DataCopy(right[slot], chunk, n);
        PipeBarrier<PIPE_ALL>(); /* the buffer is free */
        dsb(DSB_DDR);            /* the chunk is there before its tail */
        sent.Set(i + 1);
        arrived.Await(i + 1);
        DataCopy(chunk, here[slot], n);
        SetFlag<HardEvent::MTE2_S>(EVENT_ID1);
        SetFlag<HardEvent::MTE2_MTE3>(EVENT_ID0);
        WaitFlag<HardEvent::MTE2_MTE3>(EVENT_ID0);
        DataCopy(gathered[(sizes.me + sizes.dies - 1 - i) % sizes.dies * n], chunk, n);
        WaitFlag<HardEvent::MTE2_S>(EVENT_ID1);
        taken.Set(i + 1);
    }
}
