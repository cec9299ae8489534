/* Two blocks of a die: the first copies a row, both meet at SyncAll, and the second copies it on. */
#include "kernel_operator.h"

using namespace AscendC;

__aicore__ inline void Copy(GM_ADDR source, GM_ADDR target)
{
    TPipe pipe;
    TBuf<> room;
    pipe.InitBuffer(room, 32);
    LocalTensor<float> row = room.Get<float>();
    GlobalTensor<float> from, to;
    from.SetGlobalBuffer((__gm__ float *)source);
    to.SetGlobalBuffer((__gm__ float *)target);
    DataCopy(row, from, 8);
    SetFlag<HardEvent::MTE2_MTE3>(EVENT_ID0);
    WaitFlag<HardEvent::MTE2_MTE3>(EVENT_ID0);
    DataCopy(to, row, 8);
}

extern "C" __global__ __aicore__ void together(GM_ADDR own, GM_ADDR slot, GM_ADDR out)
{
    if (GetBlockIdx() == 0) {
        Copy(own, slot);
    }
    SyncAll();
    if (GetBlockIdx() == 1) {
        Copy(slot, out);
    }
}
