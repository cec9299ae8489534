/* A slot's ready flag is cleared before the token has been copied out of the slot; flag_cleared_early.py in Ascend C. */
#include "kernel_operator.h"

using namespace AscendC;

class Flag {
public:
    __aicore__ inline explicit Flag(GM_ADDR address) { word.SetGlobalBuffer((__gm__ int64_t *)address); }
    __aicore__ inline void Set(int64_t value)
    {
        word.SetValue(0, value);
        Clean();
    }
    __aicore__ inline void Await(int64_t wanted)
    {
        do {
            Clean();
        } while (word.GetValue(0) != wanted);
    }

private:
    __aicore__ inline void Clean()
    {
        DataCacheCleanAndInvalid<int64_t, CacheLine::SINGLE_CACHE_LINE, DcciDst::CACHELINE_OUT>(word);
    }
    GlobalTensor<int64_t> word;
};

__aicore__ inline void Read(const LocalTensor<int8_t> &to, GM_ADDR address, uint32_t nbytes)
{
    GlobalTensor<int8_t> from;
    from.SetGlobalBuffer((__gm__ int8_t *)address);
    DataCopy(to, from, nbytes);
    SetFlag<HardEvent::MTE2_S>(EVENT_ID0);
    WaitFlag<HardEvent::MTE2_S>(EVENT_ID0);
}

__aicore__ inline void Write(GM_ADDR address, const LocalTensor<int8_t> &from, uint32_t nbytes)
{
    GlobalTensor<int8_t> to;
    to.SetGlobalBuffer((__gm__ int8_t *)address);
    DataCopy(to, from, nbytes);
}

/* Each token goes into the slot when its flag is clear, and the flag is set. */
extern "C" __global__ __aicore__ void send(GM_ADDR own, GM_ADDR slot, GM_ADDR ready, uint32_t tokens, uint32_t nbytes)
{
    TPipe pipe;
    TBuf<> room;
    pipe.InitBuffer(room, nbytes);
    Flag flag(ready);
    for (uint32_t i = 0; i < tokens; i++) {
        Read(room.Get<int8_t>(), own + i * nbytes, nbytes);
        flag.Await(0);
        Write(slot, room.Get<int8_t>(), nbytes);
        PipeBarrier<PIPE_ALL>();
        dsb(DSB_DDR);
        flag.Set(1);
    }
}

/* Each token is copied out when the flag is set, and the flag cleared: before or after. */
extern "C" __global__ __aicore__ void receive(GM_ADDR out, GM_ADDR slot, GM_ADDR ready, uint32_t tokens,
                                              uint32_t nbytes, uint32_t mended)
{
    TPipe pipe;
    TBuf<> room;
    pipe.InitBuffer(room, nbytes);
    Flag flag(ready);
    for (uint32_t i = 0; i < tokens; i++) {
        flag.Await(1);
        if (!mended) {
            flag.Set(0);
        }
        Read(room.Get<int8_t>(), slot, nbytes);
        if (mended) {
            flag.Set(0);
        }
        Write(out + i * nbytes, room.Get<int8_t>(), nbytes);
        PipeBarrier<PIPE_ALL>();
    }
}
