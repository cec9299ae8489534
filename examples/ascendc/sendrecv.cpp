/* A message from one die to another, in chunks: through a queue of buffers, into a slot, followed by a tail. */
#include "kernel_operator.h"

using namespace AscendC;

struct MessageTiling {
    uint32_t chunks;
    uint32_t chunkElements;
};

/* Wait until a counter of the other die has come so far. */
__aicore__ inline void Await(const GlobalTensor<int64_t> &counter, int64_t wanted)
{
    DataCacheCleanAndInvalid<int64_t, CacheLine::SINGLE_CACHE_LINE, DcciDst::CACHELINE_OUT>(counter);
    while (counter.GetValue(0) < wanted) {
        DataCacheCleanAndInvalid<int64_t, CacheLine::SINGLE_CACHE_LINE, DcciDst::CACHELINE_OUT>(counter);
    }
}

/* Set a counter of the other die, after all chunks before it. */
__aicore__ inline void Tell(const GlobalTensor<int64_t> &counter, int64_t value)
{
#ifndef NO_BARRIER
    PipeBarrier<PIPE_ALL>();
#ifndef NO_DSB
    dsb(DSB_DDR);
#endif
#endif
    counter.SetValue(0, value);
    DataCacheCleanAndInvalid<int64_t, CacheLine::SINGLE_CACHE_LINE, DcciDst::CACHELINE_OUT>(counter);
}

/* Elements come in, have one added by the vector pipe, and go out: each through a queue of two buffers. */
class Copier {
public:
    __aicore__ inline void Init(TPipe &pipe, uint32_t elements)
    {
        count = elements;
        pipe.InitBuffer(in, 2, elements * sizeof(float));
        pipe.InitBuffer(out, 2, elements * sizeof(float));
    }
    __aicore__ inline void Copy(const GlobalTensor<float> &to, const GlobalTensor<float> &from)
    {
        LocalTensor<float> read = in.AllocTensor<float>();
        DataCopy(read, from, count);
        in.EnQue(read);
        LocalTensor<float> filled = in.DeQue<float>();
        LocalTensor<float> added = out.AllocTensor<float>();
        Adds(added, filled, 1.0f, count);
        out.EnQue(added);
        in.FreeTensor(filled);
        LocalTensor<float> ready = out.DeQue<float>();
        DataCopy(to, ready, count);
        out.FreeTensor(ready);
    }

private:
    TQue<QuePosition::VECIN, 2> in;
    TQue<QuePosition::VECOUT, 2> out;
    uint32_t count;
};

extern "C" __global__ __aicore__ void send(GM_ADDR own, GM_ADDR slots, GM_ADDR tail, GM_ADDR tiling)
{
    GET_TILING_DATA_WITH_STRUCT(MessageTiling, sizes, tiling);
    TPipe pipe;
    Copier copier;
    copier.Init(pipe, sizes.chunkElements);
    GlobalTensor<float> from, to;
    GlobalTensor<int64_t> sent;
    from.SetGlobalBuffer((__gm__ float *)own);
    to.SetGlobalBuffer((__gm__ float *)slots);
    sent.SetGlobalBuffer((__gm__ int64_t *)tail);
    for (uint32_t i = 0; i < sizes.chunks; i++) {
        copier.Copy(to[i * sizes.chunkElements], from[i * sizes.chunkElements]);
        Tell(sent, i + 1);
    }
}

extern "C" __global__ __aicore__ void receive(GM_ADDR out, GM_ADDR slots, GM_ADDR tail, GM_ADDR tiling)
{
    GET_TILING_DATA_WITH_STRUCT(MessageTiling, sizes, tiling);
    TPipe pipe;
    Copier copier;
    copier.Init(pipe, sizes.chunkElements);
    GlobalTensor<float> from, to;
    GlobalTensor<int64_t> arrived;
    from.SetGlobalBuffer((__gm__ float *)slots);
    to.SetGlobalBuffer((__gm__ float *)out);
    arrived.SetGlobalBuffer((__gm__ int64_t *)tail);
    for (uint32_t i = 0; i < sizes.chunks; i++) {
        Await(arrived, i + 1);
        copier.Copy(to[i * sizes.chunkElements], from[i * sizes.chunkElements]);
    }
}
